//! `[server.forwarded]`: who may say who the client is, and how guests learn of it.

use ipnet::IpNet;

use crate::{
    problem::{Mistake, Mistakes, all},
    reader::{Reader, Value},
};

/// The policy for `Forwarded` and `X-Forwarded-*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarded {
    /// `trust`: networks whose word about the client is believed. Default none.
    pub trust: Vec<IpNet>,
    /// `headers`: what guests get. Default [`ForwardedHeaders::XForwarded`].
    pub headers: ForwardedHeaders,
}

impl Default for Forwarded {
    fn default() -> Self {
        Self { trust: Vec::new(), headers: ForwardedHeaders::XForwarded }
    }
}

/// The headers that tell guests about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardedHeaders {
    /// `"x-forwarded"`: `x-forwarded-for`, `x-forwarded-proto` and `x-forwarded-host`.
    XForwarded,
    /// `"forwarded"`: `forwarded` (RFC 7239).
    Forwarded,
    /// `"both"`.
    Both,
    /// `"none"`: guests do not learn who the client is.
    None,
}

impl ForwardedHeaders {
    const WORDS: [(&'static str, Self); 4] = [
        ("x-forwarded", Self::XForwarded),
        ("forwarded", Self::Forwarded),
        ("both", Self::Both),
        ("none", Self::None),
    ];
}

pub(crate) fn read(mut table: Reader<'_>) -> Forwarded {
    let default = Forwarded::default();
    let forwarded = Forwarded {
        trust: table.read("trust", trust).unwrap_or(default.trust),
        headers: table
            .read("headers", |value| value.word(&ForwardedHeaders::WORDS))
            .unwrap_or(default.headers),
    };
    table.finish();
    forwarded
}

fn trust(value: &Value<'_>) -> Result<Vec<IpNet>, Mistakes> {
    all(value.one_or_more()?.iter().map(network))
}

fn network(value: &Value<'_>) -> Result<IpNet, Mistake> {
    let text = value.string()?;
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Ok(address.into());
    }
    text.parse().map_err(|_| {
        let mistake = value.mistake(format_args!("`{text}` is not a network"));
        mistake.hint("write an address and the length of its prefix, such as `10.0.0.0/8`")
    })
}

//! `[server.forwarded]`: who may say who the client is, and how guests learn of it.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::{
    kind::{Word, one_or_more, parsed, word},
    problem::Mistake,
    section::{Section, section},
    value::Value,
};

section! {
    /// The policy for `Forwarded` and `X-Forwarded-*`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Forwarded / ForwardedLayer {
        /// networks, such as `"10.0.0.0/8"`, whose `Forwarded` and `X-Forwarded-*` are believed. From
        /// all others these headers are dropped
        trust: Vec<IpNet> = Vec::new(),
            one_or_more(parsed("network", network), ("network", "networks"));
        /// which of these headers programs get: `x-forwarded-for`, `-proto` and `-host`; `forwarded`
        /// (RFC 7239); both; or none
        headers: ForwardedHeaders = ForwardedHeaders::XForwarded, word();
    }
}

impl Default for Forwarded {
    fn default() -> Self {
        Self::resolve(ForwardedLayer::default())
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

impl Word for ForwardedHeaders {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("x-forwarded", Self::XForwarded),
        ("forwarded", Self::Forwarded),
        ("both", Self::Both),
        ("none", Self::None),
    ];
}

fn network(value: &Value<'_>) -> Result<IpNet, Mistake> {
    let text = value.string()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.into());
    }
    text.parse().map_err(|_| {
        let mistake = value.mistake(format_args!("`{text}` is not a network"));
        mistake.hint("write an address and the length of its prefix, such as `10.0.0.0/8`")
    })
}

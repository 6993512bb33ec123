//! Who the client is, and how guests learn of it.
//!
//! Anybody can write `x-forwarded-for`. So what a request says about the way that it came is
//! removed, and said anew from what the connection knows; only the word of proxies in trusted
//! networks is kept, and the proxy's own address added to it.
//!
//! Only the headers that guests get are read from trusted proxies as well: a proxy that writes the
//! one kind often passes the other on as its client sent it.

mod chain;

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr},
    rc::Rc,
    sync::Arc,
};

use http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts};
use ipnet::IpNet;
use sandtide_engine::AddedHeaders;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// How many of these there are.
const SAID: usize = 3;

/// What is done with `Forwarded` and `X-Forwarded-*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForwardedPolicy {
    /// Networks whose word about the client is believed. A Unix socket counts as `127.0.0.1`.
    pub trust: Vec<IpNet>,
    /// What guests get.
    pub headers: ForwardedHeaders,
}

/// The headers that tell guests about the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ForwardedHeaders {
    /// `x-forwarded-for`, `x-forwarded-proto` and `x-forwarded-host`.
    #[default]
    XForwarded,
    /// `forwarded` (RFC 7239).
    Forwarded,
    /// All of them.
    Both,
    /// None: guests do not learn who the client is.
    None,
}

impl ForwardedHeaders {
    fn has_x(self) -> bool {
        matches!(self, Self::XForwarded | Self::Both)
    }

    fn has_forwarded(self) -> bool {
        matches!(self, Self::Forwarded | Self::Both)
    }
}

impl ForwardedPolicy {
    fn trusts(&self, address: IpAddr) -> bool {
        self.trust.iter().any(|network| network.contains(&address))
    }
}

/// The policy for the requests of one connection.
#[derive(Debug)]
pub(crate) struct Forwarder {
    policy: Arc<ForwardedPolicy>,
    trusts_peer: bool,
    /// The other end; `None` for a Unix socket.
    peer: Option<IpAddr>,
    /// For `x-forwarded-for`.
    address: HeaderValue,
    /// The headers of a request that has none of these, where they are nearly the same for all.
    added: Option<Rc<AddedHeaders>>,
    is_tls: bool,
}

/// Whether a header says something about the way that the request came.
pub(crate) fn is_forwarding(name: &str) -> bool {
    name.starts_with("x-forwarded-") || name == "forwarded" || name == "x-real-ip"
}

impl Forwarder {
    /// For a connection from this address, or over a Unix socket.
    pub(crate) fn new(policy: &Arc<ForwardedPolicy>, peer: Option<IpAddr>, is_tls: bool) -> Self {
        let peer = peer.map(|address| address.to_canonical());
        let trusts_peer = policy.trusts(peer.unwrap_or(Ipv4Addr::LOCALHOST.into()));
        let address = peer.and_then(|address| HeaderValue::try_from(address.to_string()).ok());
        let address = address.unwrap_or(HeaderValue::from_static("unknown"));
        let mut this =
            Self { policy: policy.clone(), trusts_peer, peer, address, added: None, is_tls };
        if policy.headers == ForwardedHeaders::XForwarded {
            let scheme = HeaderValue::from_static(this.scheme());
            let fields = vec![(FOR, this.address.clone()), (PROTO, scheme)];
            this.added = Some(Rc::new(AddedHeaders { fields, authority: Some(HOST) }));
        }
        this
    }

    /// The other end's address.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Makes the headers of a request that has none of these say what is known of its client: the
    /// other end. Or else gives headers that do.
    pub(crate) fn tell(&self, request: &mut Parts) -> Option<Rc<AddedHeaders>> {
        if self.added.is_none() {
            self.say(request, self.address.clone(), None, false);
        }
        self.added.clone()
    }

    /// Removes or believes the headers that a request has, and makes them say what is known of its
    /// client. Returns the client's address.
    #[cold]
    pub(crate) fn renew(&self, request: &mut Parts) -> Option<IpAddr> {
        let headers = self.policy.headers;
        let mut client = self.peer;
        let mut address = self.address.clone();
        let mut chain = None;
        if self.trusts_peer {
            let x_chain = join(&request.headers, &FOR);
            let forwarded = join(&request.headers, &header::FORWARDED);
            let forwarded = forwarded.filter(|text| chain::nodes(text).is_some());
            let x_nodes = x_chain.as_deref().map(chain::x_nodes);
            let nodes = match headers {
                ForwardedHeaders::Forwarded => forwarded.as_deref().and_then(chain::nodes),
                ForwardedHeaders::Both => {
                    x_nodes.or_else(|| forwarded.as_deref().and_then(chain::nodes))
                }
                ForwardedHeaders::XForwarded | ForwardedHeaders::None => x_nodes,
            };
            client = self.client(nodes.unwrap_or_default());
            if let Some(before) = x_chain {
                let own = self.address.to_str().unwrap_or("unknown");
                address = HeaderValue::try_from(format!("{before}, {own}")).unwrap_or(address);
            }
            chain = forwarded;
        }
        let (keep_x, keep_chain) =
            (self.trusts_peer && headers.has_x(), self.trusts_peer && headers.has_forwarded());
        let is_kept = |name: &HeaderName| match *name {
            header::FORWARDED => keep_chain,
            _ => keep_x,
        };
        let removed: Vec<_> = request
            .headers
            .keys()
            .filter(|name| is_forwarding(name.as_str()) && !is_kept(name))
            .cloned()
            .collect();
        for name in removed {
            request.headers.remove(name);
        }
        self.say(request, address, chain.filter(|_| keep_chain), keep_x);
        client
    }

    /// The rightmost address that no trusted proxy has. Behind a node that has no address, nobody
    /// can be believed.
    fn client(&self, nodes: Vec<Option<IpAddr>>) -> Option<IpAddr> {
        let mut client = self.peer;
        for node in nodes.into_iter().rev() {
            let Some(address) = node else { break };
            client = Some(address);
            if !self.policy.trusts(address) {
                break;
            }
        }
        client
    }

    /// Sets the headers; those of a trusted proxy that speak of the client's own request stay.
    fn say(&self, request: &mut Parts, address: HeaderValue, chain: Option<String>, keep_x: bool) {
        let headers = self.policy.headers;
        if headers.has_forwarded()
            && let Some(value) = self.forwarded(request, chain)
        {
            request.headers.insert(header::FORWARDED, value);
        }
        if headers.has_x() {
            // At once: each time that the map grows costs as much as an insertion.
            request.headers.reserve(SAID);
            request.headers.insert(FOR, address);
            if !(keep_x && is_single(&request.headers, &PROTO)) {
                request.headers.insert(PROTO, HeaderValue::from_static(self.scheme()));
            }
            if !(keep_x && is_single(&request.headers, &HOST))
                && let Some(host) = host(request)
            {
                request.headers.insert(HOST, host);
            }
        }
    }

    fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// The value of `forwarded`, with the elements of the proxies before us.
    fn forwarded(&self, request: &Parts, chain: Option<String>) -> Option<HeaderValue> {
        let mut text = chain.map(|chain| chain + ", ").unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = match self.peer {
            None => write!(text, "for=unknown"),
            Some(IpAddr::V4(address)) => write!(text, "for={address}"),
            Some(IpAddr::V6(address)) => write!(text, "for=\"[{address}]\""),
        };
        if let Some(host) = host(request).as_ref().and_then(|host| host.to_str().ok()) {
            text.push_str(";host=\"");
            for c in host.chars() {
                if matches!(c, '"' | '\\') {
                    text.push('\\');
                }
                text.push(c);
            }
            text.push('"');
        }
        let _ = write!(text, ";proto={}", self.scheme());
        HeaderValue::try_from(text).ok()
    }
}

/// All values of a header as one list (RFC 9110 §5.3); `None` if there is nothing in them.
fn join(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let values: Vec<_> = values.map(str::trim).filter(|value| !value.is_empty()).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// Whether there is one value, which is not empty.
fn is_single(headers: &HeaderMap, name: &HeaderName) -> bool {
    let mut values = headers.get_all(name).iter();
    values.next().is_some_and(|value| !value.is_empty()) && values.next().is_none()
}

/// Whom the request is addressed to.
fn host(request: &Parts) -> Option<HeaderValue> {
    match request.uri.authority() {
        Some(authority) => HeaderValue::try_from(authority.as_str()).ok(),
        None => request.headers.get(header::HOST).cloned(),
    }
}

#[cfg(test)]
mod tests;

//! From authority and path to a tenant.
//!
//! First the authority is chosen, the most specific first: the exact name, then the longest
//! wildcard, then the default. Within it the longest path prefix decides. An authority that is
//! named somewhere never falls through to a less specific one: what is not found there is not
//! found.
//!
//! Paths are compared as they were sent, without decoding: a tenant sees every path that was
//! routed to it and can tell `%2F` from `/`.

use std::collections::hash_map::Entry;

// Requests only look names up; it is the operator who puts them in.
use rustc_hash::FxHashMap;

use crate::route::{Authority, MAX_HOST, Route};

/// Maps requests to the indices of tenants. Immutable.
#[derive(Debug, Default)]
pub struct Router {
    exact: FxHashMap<Box<str>, Paths>,
    wildcard: FxHashMap<Box<str>, Paths>,
    default: Option<Paths>,
}

/// Two tenants want the same route; these are their indices.
#[derive(Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The route.
    pub route: Route,
    /// The tenant that has it.
    pub first: usize,
    /// The tenant that wants it, too.
    pub second: usize,
}

impl Router {
    /// Builds the map from routes and the indices of their tenants.
    pub fn build(routes: impl IntoIterator<Item = (Route, usize)>) -> Result<Self, Conflict> {
        let mut router = Self::default();
        for (route, tenant) in routes {
            let paths = match &route.authority {
                Authority::Exact(name) => router.exact.entry(name.as_str().into()).or_default(),
                Authority::Wildcard(name) => {
                    router.wildcard.entry(name.as_str().into()).or_default()
                }
                Authority::Default => router.default.get_or_insert_default(),
            };
            if let Err(first) = paths.insert(&route.prefix, tenant) {
                return Err(Conflict { route, first, second: tenant });
            }
        }
        Ok(router)
    }

    /// The tenant for a request to `authority` (with or without port and user) for `path`.
    pub fn find(&self, authority: &str, path: &str) -> Option<usize> {
        let paths = if self.exact.is_empty() && self.wildcard.is_empty() {
            self.default.as_ref()
        } else {
            self.paths_of_authority(authority)
        };
        paths?.find(path)
    }

    fn paths_of_authority(&self, authority: &str) -> Option<&Paths> {
        let mut buffer = [0; MAX_HOST];
        match host_of(authority, &mut buffer) {
            Some(host) => self.paths_of(host),
            None => self.default.as_ref(),
        }
    }

    fn paths_of(&self, host: &str) -> Option<&Paths> {
        if let Some(paths) = self.exact.get(host) {
            return Some(paths);
        }
        if !self.wildcard.is_empty() {
            let mut rest = host;
            while let Some((_, parent)) = rest.split_once('.') {
                if let Some(paths) = self.wildcard.get(parent) {
                    return Some(paths);
                }
                rest = parent;
            }
        }
        self.default.as_ref()
    }
}

/// The host of an authority, in lower case, without user, port or the root's dot. `None` if it
/// is longer than any name.
fn host_of<'a>(authority: &'a str, buffer: &'a mut [u8; MAX_HOST]) -> Option<&'a str> {
    // Nearly all are plain names; one look at each byte says so.
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    let name_end = authority.bytes().position(|b| !plain(b)).unwrap_or(authority.len());
    let host = match authority.as_bytes().get(name_end) {
        None => authority,
        Some(b':') if !authority[name_end..].contains('@') => &authority[..name_end],
        Some(_) => return unusual_host_of(authority, buffer),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    (host.len() <= MAX_HOST).then_some(host)
}

#[cold]
fn unusual_host_of<'a>(authority: &'a str, buffer: &'a mut [u8; MAX_HOST]) -> Option<&'a str> {
    let host = match authority.rsplit_once('@') {
        Some((_, host)) => host,
        None => authority,
    };
    let end = match host.rfind(']') {
        Some(bracket) if host.starts_with('[') => bracket + 1,
        _ => host.find(':').unwrap_or(host.len()),
    };
    let host = &host[..end];
    let host = host.strip_suffix('.').unwrap_or(host);
    let lower = buffer.get_mut(..host.len())?;
    lower.copy_from_slice(host.as_bytes());
    lower.make_ascii_lowercase();
    std::str::from_utf8(lower).ok()
}

/// The path prefixes of one authority.
#[derive(Debug, Default)]
struct Paths {
    root: Option<usize>,
    below: FxHashMap<Box<str>, usize>,
    longest: usize,
}

impl Paths {
    fn insert(&mut self, prefix: &str, tenant: usize) -> Result<(), usize> {
        if prefix.is_empty() {
            return match self.root.replace(tenant) {
                Some(first) => Err(first),
                None => Ok(()),
            };
        }
        self.longest = self.longest.max(prefix.len());
        match self.below.entry(prefix.into()) {
            Entry::Occupied(entry) => Err(*entry.get()),
            Entry::Vacant(entry) => {
                entry.insert(tenant);
                Ok(())
            }
        }
    }

    /// Tries the path, then its parents. Nothing longer than the longest prefix is looked up, so
    /// a client cannot buy many look-ups with a long path.
    fn find(&self, path: &str) -> Option<usize> {
        let mut end = path.len();
        while !self.below.is_empty() && end > 0 {
            if end <= self.longest
                && let Some(&tenant) = self.below.get(&path[..end])
            {
                return Some(tenant);
            }
            end = path.as_bytes()[..end.min(self.longest + 1)]
                .iter()
                .rposition(|&b| b == b'/')
                .unwrap_or(0);
        }
        self.root
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn router(routes: &[(&str, &str)]) -> Router {
        Router::build(routes.iter().enumerate().map(|(i, (a, p))| (Route::new(a, p).unwrap(), i)))
            .unwrap()
    }

    #[test]
    fn the_most_specific_authority_wins() {
        let r = router(&[
            ("*", "/"),
            ("*.example.com", "/"),
            ("*.eu.example.com", "/"),
            ("shop.eu.example.com", "/"),
        ]);
        assert_eq!(r.find("shop.eu.example.com", "/"), Some(3));
        assert_eq!(r.find("SHOP.eu.Example.com:8080", "/"), Some(3));
        assert_eq!(r.find("shop.eu.example.com.", "/"), Some(3));
        assert_eq!(r.find("a.b.eu.example.com", "/"), Some(2));
        assert_eq!(r.find("eu.example.com", "/"), Some(1));
        assert_eq!(r.find("example.com", "/"), Some(0));
        assert_eq!(r.find("", "/"), Some(0));
        assert_eq!(r.find(&"a.".repeat(4000), "/"), Some(0));
        assert_eq!(r.find("[::1]:80", "/"), Some(0));
    }

    #[test]
    fn addresses_are_names() {
        let r = router(&[("[::1]", "/"), ("127.0.0.1", "/")]);
        assert_eq!(r.find("[::1]:80", "/"), Some(0));
        assert_eq!(r.find("[::1]", "/"), Some(0));
        assert_eq!(r.find("127.0.0.1:80", "/"), Some(1));
        assert_eq!(r.find("user@127.0.0.1:80", "/"), Some(1));
    }

    #[test]
    fn prefixes_match_segments() {
        let r = router(&[("*", "/"), ("*", "/shop"), ("*", "/shop/cart/"), ("a", "/x")]);
        for (path, tenant) in [
            ("/", 0),
            ("", 0),
            ("*", 0),
            ("/shop", 1),
            ("/shop/", 1),
            ("/shop/x", 1),
            ("/shopping", 0),
            ("/shop/cart", 2),
            ("/shop/cart/1", 2),
            ("/shop/carts", 1),
            ("/Shop", 0),
            ("//shop", 0),
        ] {
            assert_eq!(r.find("b", path), Some(tenant), "{path}");
        }
        assert_eq!(r.find("a", "/x/y"), Some(3));
        assert_eq!(r.find("a", "/shop"), None, "a named authority does not fall through");
    }

    #[test]
    fn conflicts_are_found() {
        let routes = [("A.b", "/x/"), ("a.B.", "/x")]
            .iter()
            .enumerate()
            .map(|(i, (a, p))| (Route::new(a, p).unwrap(), i));
        let conflict = Router::build(routes).unwrap_err();
        assert_eq!((conflict.first, conflict.second), (0, 1));
        assert_eq!(conflict.route.to_string(), "a.b/x");
        assert!(Router::build([(Route::everything(), 0), (Route::everything(), 1)]).is_err());
    }

    #[test]
    fn routes_that_mean_nothing_are_refused() {
        for authority in ["", ".", "a..b", "*.", "a:80", "http://a", "*a", "a/b", "[x]", "ä"] {
            assert!(Route::new(authority, "/").is_err(), "{authority}");
        }
        for prefix in ["", "a", "/a//b", "//", "/a?b", "/a b", "/a#b"] {
            assert!(Route::new("*", prefix).is_err(), "{prefix}");
        }
    }

    /// What the router does, said without maps.
    fn by_definition(routes: &[(Route, usize)], host: &str, path: &str) -> Option<usize> {
        let names = |route: &Route| match &route.authority {
            Authority::Exact(name) => (name == host).then_some(usize::MAX),
            Authority::Wildcard(name) => {
                host.strip_suffix(name.as_str())?.ends_with('.').then_some(name.len() + 1)
            }
            Authority::Default => Some(0),
        };
        let best = routes.iter().filter_map(|(route, _)| names(route)).max()?;
        routes
            .iter()
            .filter(|(route, _)| names(route) == Some(best))
            .filter(|(route, _)| {
                path.strip_prefix(route.prefix.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                    || route.prefix.is_empty()
            })
            .max_by_key(|(route, _)| route.prefix.len())
            .map(|(_, tenant)| *tenant)
    }

    proptest! {
        #[test]
        fn it_does_what_the_definition_says(
            routes in proptest::collection::btree_set(("(\\*|(\\*\\.)?[ab](\\.[ab]){0,2})", "(/[ab]{1,2}){0,3}/?"), 0..8),
            host in "[ab](\\.[ab]){0,3}",
            path in "(/[ab]{0,2}){0,4}",
        ) {
            let mut seen = std::collections::HashSet::new();
            let routes: Vec<_> = routes
                .into_iter()
                .filter_map(|(a, p)| Route::new(&a, &p).ok())
                .filter(|route| seen.insert(route.clone()))
                .enumerate()
                .map(|(i, route)| (route, i))
                .collect();
            let router = Router::build(routes.clone()).unwrap();
            prop_assert_eq!(router.find(&host, &path), by_definition(&routes, &host, &path));
        }

        #[test]
        fn nothing_a_client_sends_panics(authority in ".{0,300}", path in ".{0,300}") {
            let r = router(&[("*", "/"), ("*.a", "/a/é".split('é').next().unwrap()), ("a.b", "/b")]);
            prop_assert!(r.find(&authority, &path).is_some() || !path.is_empty());
        }
    }
}

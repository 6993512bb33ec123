//! The addresses of names, as the host's resolver knows them, for a while.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;

use crate::{driver::driver, policy::is_below};

/// How long what the resolver said is not asked again.
const FRESH: Duration = Duration::from_secs(5);

/// How long an address that a name had may still be connected to: of several, resolvers tell others
/// each time, and programs keep what they were told.
const REMEMBERED: Duration = Duration::from_secs(600);

/// The names that are remembered.
const MOST_NAMES: usize = 256;

/// The addresses of one name that are remembered.
const MOST_ADDRESSES: usize = 64;

/// The names that are looked up at a time for one tenant, so that the resolver has time for others.
const LOOKUPS: usize = 4;

/// Asks the host's resolver; blocks.
pub(crate) type Resolve = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// What is known of the names of one tenant.
pub(crate) struct Names {
    resolve: Arc<Resolve>,
    known: Mutex<HashMap<String, Known>>,
    permits: Arc<Semaphore>,
}

struct Known {
    fresh_until: Instant,
    /// What the resolver said last, in its order.
    now: Vec<IpAddr>,
    /// All of its addresses, with when it last had them.
    seen: Vec<(IpAddr, Instant)>,
}

/// Why a name has no addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAddress {
    /// There is no such name.
    NotFound,
    /// Nobody could say.
    Failed,
}

impl Names {
    pub(crate) fn new(resolve: Arc<Resolve>) -> Self {
        let permits = Arc::new(Semaphore::new(LOOKUPS));
        Self { resolve, known: Mutex::default(), permits }
    }

    /// The addresses of a name.
    pub(crate) async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, NoAddress> {
        if let Some(now) = self.fresh(name) {
            return Ok(now);
        }
        let _permit = self.permits.acquire().await.map_err(|_| NoAddress::Failed)?;
        // Somebody else may have asked meanwhile.
        if let Some(now) = self.fresh(name) {
            return Ok(now);
        }
        let (resolve, asked) = (self.resolve.clone(), name.to_owned());
        let driver = driver().ok_or(NoAddress::Failed)?;
        let found = driver.spawn_blocking(move || resolve(&asked)).await;
        match found.map_err(|_| NoAddress::Failed)? {
            Ok(addresses) => {
                let addresses: Vec<_> = addresses.into_iter().map(|ip| ip.to_canonical()).collect();
                self.remember(name, &addresses, Instant::now());
                Ok(addresses)
            }
            Err(error) => Err(failure(&error)),
        }
    }

    /// Whether a name has an address, or had it a while ago.
    pub(crate) async fn has(&self, name: &str, ip: IpAddr) -> bool {
        if self.had(name, ip) {
            return true;
        }
        self.addresses(name).await.is_ok_and(|addresses| addresses.contains(&ip))
    }

    /// The names below another that are known to have an address.
    pub(crate) fn below(&self, parent: &str, ip: IpAddr) -> Vec<String> {
        let known = self.known();
        let below = known.iter().filter(|(name, known)| {
            is_below(name, parent) && known.seen.iter().any(|(seen, _)| *seen == ip)
        });
        below.map(|(name, _)| name.clone()).collect()
    }

    fn had(&self, name: &str, ip: IpAddr) -> bool {
        let now = Instant::now();
        let is_it = |(seen, when): &(IpAddr, Instant)| *seen == ip && now - *when < REMEMBERED;
        self.known().get(name).is_some_and(|known| known.seen.iter().any(is_it))
    }

    fn fresh(&self, name: &str) -> Option<Vec<IpAddr>> {
        let known = self.known();
        known.get(name).filter(|known| known.fresh_until > Instant::now()).map(|k| k.now.clone())
    }

    fn remember(&self, name: &str, addresses: &[IpAddr], now: Instant) {
        let mut all = self.known();
        if !all.contains_key(name) && all.len() >= MOST_NAMES {
            let oldest = all.iter().min_by_key(|(_, known)| known.fresh_until);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                all.remove(&oldest);
            }
        }
        let mut seen = all.remove(name).map(|known| known.seen).unwrap_or_default();
        seen.retain(|(ip, when)| !addresses.contains(ip) && now - *when < REMEMBERED);
        seen.splice(0..0, addresses.iter().map(|ip| (*ip, now)));
        seen.truncate(MOST_ADDRESSES);
        let known = Known { fresh_until: now + FRESH, now: addresses.to_vec(), seen };
        all.insert(name.to_owned(), known);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the C library knows of a name.
pub(crate) fn host_resolver(name: &str) -> io::Result<Vec<IpAddr>> {
    use std::net::ToSocketAddrs as _;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in (name, 0).to_socket_addrs()?.map(|address: SocketAddr| address.ip()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// The C library's errors reach us as texts (`gai_strerror(3)`).
fn failure(error: &io::Error) -> NoAddress {
    let text = error.to_string();
    let is_unknown = ["not known", "No address associated"].iter().any(|part| text.contains(part));
    if is_unknown || error.kind() == io::ErrorKind::NotFound {
        NoAddress::NotFound
    } else {
        NoAddress::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new(Arc::new(|_| Err(io::ErrorKind::NotFound.into())))
    }

    #[test]
    fn so_many_names_are_remembered() {
        let names = names();
        let (start, ip) = (Instant::now(), IpAddr::from([1, 1, 1, 1]));
        for number in 0..2 * MOST_NAMES {
            let now = start + Duration::from_millis(number as u64);
            names.remember(&format!("{number}.example.com"), &[ip], now);
        }
        assert_eq!(names.known().len(), MOST_NAMES);
        assert!(!names.had("0.example.com", ip) && names.had("511.example.com", ip));
        assert_eq!(names.below("example.com", ip).len(), MOST_NAMES);
        assert!(names.below("ample.com", ip).is_empty());
    }

    #[test]
    fn an_address_is_remembered_for_a_while() {
        let names = names();
        let (start, one, two) = (Instant::now(), IpAddr::from([1; 4]), IpAddr::from([2; 4]));
        names.remember("a", &[one], start);
        names.remember("a", &[two], start);
        assert!(names.had("a", one) && names.had("a", two));
        assert_eq!(names.fresh("a"), Some(vec![two]));
        names.remember("a", &[two], start + REMEMBERED);
        assert!(!names.had("a", one));
    }
}

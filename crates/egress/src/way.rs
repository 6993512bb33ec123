//! The way out of one tenant's sandboxes.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use sandtide_engine::{Link, Lookup, Network, NetworkError};
use tokio::{net::TcpStream, time::timeout};

use crate::{
    allowance::Allowance,
    dns::{Answer, Query, Wants},
    driver::event_loop,
    link::{TcpLink, explain},
    names::{Names, NoAddress, Resolve, host_resolver},
    policy::{Policy, Verdict},
    report::{Denied, Reason, Reports},
};

/// How long the other end may take to answer.
const CONNECT: Duration = Duration::from_secs(10);

/// The way out of one tenant's sandboxes: as far as its policy allows.
#[derive(Clone)]
pub struct Way(Arc<Shared>);

struct Shared {
    policy: Policy,
    names: Names,
    connections: Arc<Allowance>,
    reports: Reports,
}

/// How names are looked up that the policy has no address for.
pub struct Lookups(Arc<Resolve>);

impl Lookups {
    /// As this machine does: its C library, with its configuration.
    pub fn of_host() -> Self {
        Self::new(host_resolver)
    }

    /// By a function, which may block.
    pub fn new(resolve: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(resolve))
    }
}

impl Way {
    /// With so many connections at a time; `tell` is told, now and then, what was denied.
    pub fn new(
        policy: Policy,
        lookups: Lookups,
        connections: u32,
        tell: impl Fn(Denied) + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared {
            policy,
            names: Names::new(lookups.0),
            connections: Allowance::new(connections),
            reports: Reports::new(Box::new(tell)),
        }))
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Way({:?})", self.0.policy)
    }
}

impl Network for Way {
    fn connect(&self, to: SocketAddr) -> Result<Box<dyn Link>, NetworkError> {
        let shared = &self.0;
        // What is checked is what is connected to.
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        let verdict = shared.policy.check(to);
        if verdict == Verdict::Denied {
            shared.reports.address(to, Reason::NotNamed);
            return Err(NetworkError::Denied);
        }
        let Some(taken) = shared.connections.take() else {
            shared.reports.address(to, Reason::TooMany);
            return Err(NetworkError::TooMany);
        };
        let event_loop = event_loop().ok_or(NetworkError::TooMany)?;
        let opening = open(shared.clone(), to, verdict);
        Ok(Box::new(TcpLink::new(Box::pin(opening), event_loop, taken)))
    }

    fn resolve(&self, query: &[u8]) -> Lookup {
        let (shared, query) = (self.0.clone(), query.to_owned());
        Box::pin(async move {
            let query = Query::parse(&query)?;
            let answer = shared.look_up(&query).await;
            query.answer(&answer)
        })
    }
}

async fn open(
    shared: Arc<Shared>,
    to: SocketAddr,
    verdict: Verdict,
) -> Result<TcpStream, NetworkError> {
    if let Verdict::Names { exact, below } = verdict
        && !shared.is_of(to, &exact, &below).await
    {
        return Err(NetworkError::Denied);
    }
    let stream = timeout(CONNECT, TcpStream::connect(to)).await;
    let stream = stream.map_err(|_| NetworkError::TimedOut)?.map_err(|error| explain(&error))?;
    // What a guest writes goes out at once: it has no socket of its own to set that for.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

impl Shared {
    /// The addresses of a name, those of the operator first.
    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, NoAddress> {
        let own = self.policy.hosts_of(name);
        if own.is_empty() { self.names.addresses(name).await } else { Ok(own) }
    }

    /// Whether an address is one of these names', and may be reached as such.
    async fn is_of(&self, to: SocketAddr, exact: &[String], below: &[String]) -> bool {
        let mut reason = Reason::NotNamed;
        let known = below.iter().flat_map(|parent| self.names.below(parent, to.ip()));
        let known: Vec<String> = exact.iter().cloned().chain(known).collect();
        for name in &known {
            let own = self.policy.hosts_of(name);
            let has = match own.is_empty() {
                true => self.names.has(name, to.ip()).await,
                false => own.contains(&to.ip()),
            };
            if has && self.policy.accepts(name, to.ip(), Some(to.port())) {
                return true;
            }
            if has {
                reason = Reason::Special;
            }
        }
        self.reports.address(to, reason);
        false
    }

    async fn look_up(&self, query: &Query<'_>) -> Answer {
        let Some(name) = &query.name else { return Answer::NoSuchName };
        if !self.policy.allows_name(name) {
            self.reports.name(name, Reason::NotNamed);
            return Answer::NoSuchName;
        }
        if query.wants == Wants::Other {
            return Answer::Addresses(Vec::new());
        }
        let mut addresses = match self.addresses(name).await {
            Ok(addresses) => addresses,
            Err(NoAddress::NotFound) => return Answer::NoSuchName,
            Err(NoAddress::Failed) => return Answer::Failed,
        };
        let found = addresses.len();
        addresses.retain(|ip| self.policy.accepts(name, *ip, None));
        if addresses.is_empty() && found > 0 {
            self.reports.name(name, Reason::Special);
            return Answer::NoSuchName;
        }
        Answer::Addresses(addresses)
    }
}

#[cfg(test)]
mod tests;

//! What the operator is told of what was denied: not more often than somebody can read it, since a
//! guest can ask as often as it likes.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// So many reports come at once after a pause, and one in each [`PERIOD`] then.
const BURST: u32 = 5;
const PERIOD: Duration = Duration::from_secs(2);

/// Something that a guest wanted and may not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// A name, or an address and a port.
    pub what: String,
    /// Why.
    pub reason: Reason,
    /// So many others were not reported before it.
    pub suppressed: u64,
}

/// Why something is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// `egress` does not name it.
    NotNamed,
    /// `egress` names the name, but not the private address that it has.
    Special,
    /// `limits.connections_total`.
    TooMany,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotNamed => "`egress` does not name it",
            Self::Special => "`egress` does not name its address, which is not a public one",
            Self::TooMany => "the tenant has as many connections as `limits.connections_total`",
        })
    }
}

/// Tells the operator.
pub(crate) struct Reports {
    tell: Box<dyn Fn(Denied) + Send + Sync>,
    meter: Mutex<Meter>,
}

struct Meter {
    left: u32,
    since: Instant,
    suppressed: u64,
}

impl Reports {
    pub(crate) fn new(tell: Box<dyn Fn(Denied) + Send + Sync>) -> Self {
        let meter = Meter { left: BURST, since: Instant::now(), suppressed: 0 };
        Self { tell, meter: Mutex::new(meter) }
    }

    pub(crate) fn address(&self, to: SocketAddr, reason: Reason) {
        self.report(Instant::now(), || to.to_string(), reason);
    }

    pub(crate) fn name(&self, name: &str, reason: Reason) {
        self.report(Instant::now(), || name.to_owned(), reason);
    }

    fn report(&self, now: Instant, what: impl FnOnce() -> String, reason: Reason) {
        let suppressed = {
            let mut meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
            let periods = (now - meter.since).as_millis() / PERIOD.as_millis();
            let periods = u32::try_from(periods).unwrap_or(u32::MAX);
            if periods > 0 {
                meter.left = meter.left.saturating_add(periods).min(BURST);
                meter.since = now;
            }
            if meter.left == 0 {
                meter.suppressed += 1;
                return;
            }
            meter.left -= 1;
            std::mem::take(&mut meter.suppressed)
        };
        (self.tell)(Denied { what: what(), reason, suppressed });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_flood_is_told_of_now_and_then() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let copy = told.clone();
        let reports = Reports::new(Box::new(move |denied| copy.lock().unwrap().push(denied)));
        let start = Instant::now();
        for _ in 0..100 {
            reports.report(start, || "x".to_owned(), Reason::NotNamed);
        }
        assert_eq!(told.lock().unwrap().len(), BURST as usize);
        reports.report(start + PERIOD, || "y".to_owned(), Reason::NotNamed);
        reports.report(start + PERIOD, || "z".to_owned(), Reason::NotNamed);
        let told = told.lock().unwrap();
        assert_eq!((told.len(), told[5].suppressed), (6, 95));
        assert_eq!(told[5].what, "y");
    }
}

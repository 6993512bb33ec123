//! What a tenant may write into the server's log: the output of its guests, and reports of its
//! faults. A guest can cause both as often as it likes, so both are limited per tenant.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{bucket::Bucket, console::TenantConsole};

/// The target of log events that are lines of guest output.
pub const GUEST_TARGET: &str = "sandtide::guest";

/// The target of log events about exchanges.
pub const EXCHANGE_TARGET: &str = "sandtide::exchange";

/// How much one tenant may write into the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPolicy {
    /// Lines of guest output a second.
    pub lines_per_second: u32,
    /// Bytes of guest output a second.
    pub bytes_per_second: u32,
    /// Reports of faults a second.
    pub reports_per_second: u32,
    /// For how long an unused allowance is saved up.
    pub burst: Duration,
}

impl Default for LogPolicy {
    fn default() -> Self {
        Self {
            lines_per_second: 50,
            bytes_per_second: 32 << 10,
            reports_per_second: 10,
            burst: Duration::from_secs(4),
        }
    }
}

/// The log of one tenant, shared by all its sandboxes.
pub struct TenantLog {
    tenant: Arc<str>,
    meters: Mutex<Meters>,
}

struct Meters {
    lines: Bucket,
    bytes: Bucket,
    reports: Bucket,
    lines_lost: u64,
    reports_lost: u64,
}

impl TenantLog {
    /// The log of the tenant with this name.
    pub fn new(tenant: impl Into<Arc<str>>, policy: LogPolicy) -> Self {
        let now = Instant::now();
        let bucket = |rate| Bucket::new(rate, policy.burst, now);
        let meters = Mutex::new(Meters {
            lines: bucket(policy.lines_per_second),
            bytes: bucket(policy.bytes_per_second),
            reports: bucket(policy.reports_per_second),
            lines_lost: 0,
            reports_lost: 0,
        });
        Self { tenant: tenant.into(), meters }
    }

    /// A console for one sandbox, or for the initialisation of a program.
    pub fn console(self: &Arc<Self>) -> Arc<TenantConsole> {
        Arc::new(TenantConsole::new(self.clone()))
    }

    /// The tenant's name.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Reports the lines that were suppressed, if the flood is over. Hosts call it now and then.
    pub fn settle(&self) {
        let now = Instant::now();
        let lost = {
            let mut meters = self.meters();
            if meters.lines_lost > 0 && meters.lines.allows(1.0, now) {
                meters.lines.take(1.0);
                std::mem::take(&mut meters.lines_lost)
            } else {
                0
            }
        };
        self.report_lost(lost);
    }

    /// Whether a line of so many bytes may be written. Says first, once, how many were not.
    pub(crate) fn admits_line(&self, length: usize) -> bool {
        let now = Instant::now();
        let lost = {
            let mut meters = self.meters();
            let bytes = length as f64;
            if !(meters.lines.allows(1.0, now) && meters.bytes.allows(bytes, now)) {
                meters.lines_lost += 1;
                return false;
            }
            meters.lines.take(1.0);
            meters.bytes.take(bytes);
            std::mem::take(&mut meters.lines_lost)
        };
        self.report_lost(lost);
        true
    }

    /// Whether a fault may be reported; with the number of reports suppressed before it.
    pub(crate) fn admits_report(&self) -> Option<u64> {
        let now = Instant::now();
        let mut meters = self.meters();
        if meters.reports.allows(1.0, now) {
            meters.reports.take(1.0);
            Some(std::mem::take(&mut meters.reports_lost))
        } else {
            meters.reports_lost += 1;
            None
        }
    }

    fn report_lost(&self, lines: u64) {
        if lines > 0 {
            tracing::warn!(target: GUEST_TARGET, tenant = %self.tenant, lines, "output suppressed");
        }
    }

    fn meters(&self) -> MutexGuard<'_, Meters> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TenantLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TenantLog({})", self.tenant)
    }
}

impl Drop for TenantLog {
    fn drop(&mut self) {
        let lost = std::mem::take(&mut self.meters().lines_lost);
        self.report_lost(lost);
    }
}

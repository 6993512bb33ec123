//! `[tenants.<name>.limits]` and `[defaults.limits]`.

use std::{num::NonZeroU32, ops::RangeInclusive, time::Duration};

use sandtide_engine::Limits;

use crate::reader::Reader;

/// How much of a tenant's output reaches the log. What is over is counted and dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// `log_lines`: lines in a second, 1 to 1,000,000. Default 50.
    pub lines: u32,
    /// `log_bytes`: bytes in a second, 1 B to 1 GiB. Default 32 KiB.
    pub bytes: u32,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self { lines: 50, bytes: 32 << 10 }
    }
}

/// How many requests a tenant is sent in a second. What is over is answered 429.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// `requests_per_second`: in the long run, 1 to 1,000,000.
    pub requests_per_second: NonZeroU32,
    /// `burst`: at once, after a pause, 1 to 1,000,000. Default: as many as in a second.
    pub burst: NonZeroU32,
}

/// Everything that a `limits` table sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct TenantLimits {
    pub engine: Limits,
    pub log: LogLimits,
    pub requests_per_second: Option<u32>,
    pub burst: Option<u32>,
}

impl TenantLimits {
    pub fn rate(&self) -> Option<Rate> {
        let requests_per_second = NonZeroU32::new(self.requests_per_second?)?;
        let burst = self.burst.and_then(NonZeroU32::new).unwrap_or(requests_per_second);
        Some(Rate { requests_per_second, burst })
    }
}

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// What one exchange may compute. The upper bound is what TOML can write.
const INSTRUCTIONS: RangeInclusive<u64> = 1..=i64::MAX as u64;
/// A program smaller than this cannot start; more than a sandbox can address is no limit.
const MEMORY: RangeInclusive<u64> = 64 << 10..=4 << 30;
/// Streamed bodies are not held in memory, so they may be large.
const BODY: RangeInclusive<u64> = 1..=1 << 40;
/// Scratch files are held in host memory. None is a sensible choice.
const SCRATCH: RangeInclusive<u64> = 0..=4 << 30;
/// Three are open when a program starts.
const DESCRIPTORS: RangeInclusive<u32> = 3..=65_536;
const THREADS: RangeInclusive<u32> = 1..=4096;
const RATE: RangeInclusive<u32> = 1..=1_000_000;
const LOG_LINES: RangeInclusive<u32> = 1..=1_000_000;
const LOG_BYTES: RangeInclusive<u64> = 1..=1 << 30;

/// Reads a `limits` table; what it does not set is as in `base`.
pub(crate) fn read(mut table: Reader<'_>, base: &TenantLimits) -> TenantLimits {
    let mut limits = base.clone();
    let TenantLimits { engine, log, requests_per_second, burst } = &mut limits;
    let counts = [
        ("instructions", &mut engine.instructions, INSTRUCTIONS),
        ("boot_instructions", &mut engine.boot_instructions, INSTRUCTIONS),
    ];
    for (key, limit, allowed) in counts {
        set(limit, table.read(key, |value| value.integer(allowed)));
    }
    let sizes = [
        ("memory", &mut engine.memory, MEMORY),
        ("response_body", &mut engine.response_body, BODY),
        ("request_body", &mut engine.request_body, BODY),
        ("scratch", &mut engine.scratch, SCRATCH),
    ];
    for (key, limit, allowed) in sizes {
        set(limit, table.read(key, |value| value.size(allowed)));
    }
    let times = [
        ("wall_time", &mut engine.wall_time, MILLISECOND..=24 * 3600 * SECOND),
        ("response_time", &mut engine.response_time, MILLISECOND..=24 * 3600 * SECOND),
        ("boot_time", &mut engine.boot_time, MILLISECOND..=3600 * SECOND),
    ];
    for (key, limit, allowed) in times {
        set(limit, table.read(key, |value| value.duration(allowed)));
    }
    let numbers = [
        ("descriptors", &mut engine.descriptors, DESCRIPTORS),
        ("threads", &mut engine.threads, THREADS),
        ("log_lines", &mut log.lines, LOG_LINES),
    ];
    for (key, limit, allowed) in numbers {
        set(limit, table.read(key, |value| value.small_integer(allowed)));
    }
    let log_bytes = table.read("log_bytes", |value| value.size(LOG_BYTES));
    set(&mut log.bytes, log_bytes.and_then(|bytes| u32::try_from(bytes).ok()));
    for (key, limit) in [("requests_per_second", requests_per_second), ("burst", burst)] {
        *limit = table.read(key, |value| value.small_integer(RATE)).or(*limit);
    }
    table.finish();
    limits
}

fn set<T>(limit: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *limit = value;
    }
}

//! `limits`: what a tenant's program may use, and how much of it may be asked.

use std::{num::NonZeroU32, ops::RangeInclusive, time::Duration};

use sandtide_engine::Limits;

use crate::{
    kind::{duration, integer, optional, size},
    section::{Exceeded, section},
};

/// How much of a tenant's output reaches the log. What is over is counted and dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// `log_lines`: lines in a second.
    pub lines: u32,
    /// `log_bytes`: bytes in a second.
    pub bytes: u32,
}

/// How many requests a tenant is sent. What is over is answered 429.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// `requests_per_second`: in the long run.
    pub requests_per_second: NonZeroU32,
    /// `burst`: at once, after a pause. Default: as many as in a second.
    pub burst: NonZeroU32,
}

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
const CONNECTIONS: RangeInclusive<u32> = 0..=65_536;
const TRANSLATE_SIZE: RangeInclusive<u64> = 64 << 10..=1 << 30;
const LOG_LINES: RangeInclusive<u32> = 1..=1_000_000;
const LOG_BYTES: RangeInclusive<u32> = 1..=1 << 30;
const RATE: RangeInclusive<NonZeroU32> = non_zero(1)..=non_zero(1_000_000);
const DAY: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(24 * 3600);
const HOUR: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3600);

const fn non_zero(number: u32) -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(number - 1)
}

/// A program that does not come to its first request.
const NO_PROGRAM: Exceeded = Exceeded {
    answer: "503 with `retry-after` to every request, since there is no program",
    error: "destination_unavailable",
    log: "why, and where in the program, when it is loaded",
};

/// What goes over the limit of a system call is the guest's to deal with.
const fn system_call(answer: &'static str) -> Exceeded {
    Exceeded { answer, error: "", log: "" }
}

const INTERPRETED: Exceeded = Exceeded {
    answer: "nothing; what is not translated by then is interpreted",
    error: "",
    log: "`partly translated`, or `not translated`, with the limit",
};

const NOT_LOGGED: Exceeded = Exceeded {
    answer: "nothing; the output is dropped",
    error: "",
    log: "`output suppressed`, with how many lines",
};

const RATE_LIMITED: Exceeded = Exceeded {
    answer: "429 with `retry-after`",
    error: "http_request_error",
    log: "`refused`, with the reason",
};

section! {
    /// `limits`, as it is written.
    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct LimitKeys / LimitLayer {
        /// guest instructions for one exchange
        instructions: u64 = 2_000_000_000, integer(INSTRUCTIONS), exceeded: Exceeded {
            answer: "504",
            error: "http_response_timeout",
            log: "`fault=instructions`, and where in the program",
        };
        /// from the start of an exchange to its end
        wall_time: Duration = Duration::from_secs(10), duration(DAY), exceeded: Exceeded {
            answer: "504",
            error: "http_response_timeout",
            log: "`fault=deadline`, and where in the program",
        };
        /// guest instructions from the start of the program until it waits for its first request
        boot_instructions: u64 = 10_000_000_000, integer(INSTRUCTIONS), exceeded: NO_PROGRAM;
        /// from the start of the program until it waits for its first request
        boot_time: Duration = Duration::from_secs(10), duration(HOUR), exceeded: NO_PROGRAM;
        /// memory that the program has written, or maps in its file
        memory: u64 = 64 << 20, size(MEMORY), exceeded: Exceeded {
            answer: "`mmap` fails with `ENOMEM`; 502 when more is written",
            error: "connection_terminated",
            log: "`fault=memory`, and where in the program",
        };
        /// body of one response
        response_body: u64 = 16 << 20, size(BODY), exceeded: Exceeded {
            answer: "502, or cut off if it has begun",
            error: "http_response_body_size",
            log: "`fault=response`",
        };
        /// from the head of a response until the client has taken all of it
        response_time: Duration = Duration::from_secs(60), duration(DAY), exceeded: Exceeded {
            answer: "cut off",
            error: "",
            log: "",
        };
        /// body of one request
        request_body: u64 = 16 << 20, size(BODY), exceeded: Exceeded {
            answer: "413",
            error: "http_request_error",
            log: "`fault=request_body`, unless `content-length` already said so",
        };
        /// open descriptors
        descriptors: u32 = 64, integer(DESCRIPTORS),
            exceeded: system_call("nothing; the system call fails with `EMFILE`");
        /// threads alive at a time
        threads: u32 = 16, integer(THREADS),
            exceeded: system_call("nothing; the system call fails with `EAGAIN`");
        /// connections of one sandbox to the outside at a time
        connections: u32 = 16, integer(CONNECTIONS),
            exceeded: system_call("nothing; `connect` fails with `EADDRNOTAVAIL`");
        /// connections of all sandboxes of the tenant to the outside at a time
        connections_total: u32 = 256, integer(CONNECTIONS), exceeded: Exceeded {
            answer: "nothing; `connect` fails with `EADDRNOTAVAIL`",
            error: "",
            log: "`denied`, with the limit",
        };
        /// files in the private scratch area, which vanishes at reset
        scratch: u64 = 8 << 20, size(SCRATCH),
            exceeded: system_call("nothing; the system call fails with `ENOSPC`");
        /// processor time to translate the program, each time that it is not in the cache
        translate_time: Duration = Duration::from_secs(10), duration(HOUR), exceeded: INTERPRETED;
        /// memory for the program's translated code
        translate_size: u64 = 64 << 20, size(TRANSLATE_SIZE), exceeded: INTERPRETED;
        /// lines of output in a second that reach the log; a few seconds' worth may come at once
        log_lines: u32 = 50, integer(LOG_LINES), exceeded: NOT_LOGGED;
        /// bytes of output in a second that reach the log; a few seconds' worth may come at once
        log_bytes: u32 = 32 << 10, size(LOG_BYTES), exceeded: NOT_LOGGED;
        /// requests that are admitted in a second, in the long run, in the whole server
        requests_per_second: Option<NonZeroU32> = None, optional(integer(RATE), "no limit"),
            exceeded: RATE_LIMITED;
        /// requests that are admitted at once after a pause; needs `requests_per_second`
        burst: Option<NonZeroU32> = None, optional(integer(RATE), "as many as in a second"),
            exceeded: RATE_LIMITED;
    }
}

impl LimitKeys {
    pub fn engine(&self) -> Limits {
        Limits {
            instructions: self.instructions,
            wall_time: self.wall_time,
            boot_time: self.boot_time,
            boot_instructions: self.boot_instructions,
            memory: self.memory,
            response_body: self.response_body,
            response_time: self.response_time,
            request_body: self.request_body,
            descriptors: self.descriptors,
            threads: self.threads,
            connections: self.connections,
            connections_total: self.connections_total,
            scratch: self.scratch,
            translate_time: self.translate_time,
            translate_size: self.translate_size,
        }
    }

    pub fn log(&self) -> LogLimits {
        LogLimits { lines: self.log_lines, bytes: self.log_bytes }
    }

    pub fn rate(&self) -> Option<Rate> {
        let requests_per_second = self.requests_per_second?;
        Some(Rate { requests_per_second, burst: self.burst.unwrap_or(requests_per_second) })
    }
}

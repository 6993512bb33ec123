//! Stands in for `host.rs` where there is none: [`super::soft`] does everything.

use super::format::{Double, Format, Single};

/// Nothing to save.
pub(super) struct Saved;

/// Nothing to clear.
pub(super) fn start() -> Saved {
    Saved
}

/// Nothing to clear.
pub(super) fn cleared() -> Saved {
    Saved
}

/// Nothing has accrued.
pub(super) fn stop(_: Saved) -> u8 {
    0
}

/// See `host.rs`. Every operation answers `None`: not here.
pub(in crate::isa) trait HostFormat: Format {
    fn add(_: u64, _: u64) -> Option<u64> {
        None
    }
    fn sub(_: u64, _: u64) -> Option<u64> {
        None
    }
    fn mul(_: u64, _: u64) -> Option<u64> {
        None
    }
    fn div(_: u64, _: u64) -> Option<u64> {
        None
    }
    fn sqrt(_: u64) -> Option<u64> {
        None
    }
    fn mul_add(_: u64, _: u64, _: u64) -> Option<u64> {
        None
    }
    fn from_i64(_: i64) -> Option<u64> {
        None
    }
    fn to_i32(_: u64) -> Option<u64> {
        None
    }
    fn to_i64(_: u64) -> Option<u64> {
        None
    }
    fn from_other(_: u64) -> Option<u64> {
        None
    }
    fn equal(_: u64, _: u64) -> Option<u64> {
        None
    }
    fn less(_: u64, _: u64) -> Option<u64> {
        None
    }
    fn less_or_equal(_: u64, _: u64) -> Option<u64> {
        None
    }
}

impl HostFormat for Single {}
impl HostFormat for Double {}

//! The direct protocol as files.

use sandtide_abi::{call, file};
use serde::{Deserialize, Serialize};

use crate::files::flags;

/// A part of the exchange that the sandbox serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ExchangeFile {
    Requests,
    Body,
    Trailers,
    Response,
}

impl ExchangeFile {
    pub(crate) const ALL: [Self; 4] = [Self::Requests, Self::Body, Self::Trailers, Self::Response];

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Requests => file::REQUESTS,
            Self::Body => file::BODY,
            Self::Trailers => file::TRAILERS,
            Self::Response => file::RESPONSE,
        }
    }

    /// The guest call that reading it, or writing to it, is.
    pub(crate) fn call(self) -> u64 {
        match self {
            Self::Requests => call::RECEIVE,
            Self::Body => call::FETCH,
            Self::Trailers => call::FETCH_TRAILERS,
            Self::Response => call::SEND,
        }
    }

    /// Whether it can be opened with these flags.
    pub(crate) fn can_open(self, given: u32) -> bool {
        let access = if self == Self::Response { flags::WRITE_ONLY } else { 0 };
        given & flags::ACCESS == access || given & flags::PATH != 0
    }

    pub(crate) fn permissions(self) -> u32 {
        if self == Self::Response { 0o222 } else { 0o444 }
    }

    /// Major and minor number. The major is one that Linux leaves to local use.
    pub(crate) fn number(self) -> (u32, u32) {
        (240, self as u32)
    }
}

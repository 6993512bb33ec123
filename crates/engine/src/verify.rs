//! Looking whether a reset has restored everything.

use crate::EngineError;

/// How much of a sandbox is compared with its snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scrutiny {
    /// Everything but memory, and of memory a part that is another one each time: in less than a
    /// millisecond, however large the program.
    Sample,
    /// Everything. Takes longer for a larger program.
    Everything,
}

/// Something is not as the snapshot has it.
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// What a page of guest memory holds.
    #[error("the bytes of the page at {0:#x}")]
    Bytes(u64),
    /// What the guest may do with a page, or what is known of it.
    #[error("the access to the page at {0:#x}")]
    Access(u64),
    /// A part of the process, of the processor, or of what delivers requests.
    #[error("the {0}")]
    Part(&'static str),
    /// It could not be looked at, which is as bad.
    #[error("cannot be looked at")]
    Unseen(#[from] EngineError),
}

//! Where the standard output and error of a guest go.

use serde::{Deserialize, Serialize};

/// Which of a guest's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Takes what a guest writes to its standard output and error.
///
/// A guest can write as much as it likes: implementations bound what they keep and forward.
pub trait Console: Send + Sync {
    /// Bytes as the guest wrote them, in order within a stream; not split into lines.
    fn write(&self, stream: Stream, bytes: &[u8]);

    /// The exchange or the program's initialisation is over: a partial line is a line now.
    fn flush(&self) {}
}

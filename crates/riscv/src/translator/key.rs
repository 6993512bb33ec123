//! What names a translation: a hash of everything that it depends on.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::translate::Bounds;

/// The name of a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key(pub(super) [u8; 32]);

impl Key {
    /// For a program's file. `target` is what the code depends on besides: see
    /// [`crate::translate::target`]. Arguments, environment and files make no difference: the
    /// translation comes before the program's first instruction.
    pub(super) fn new(image: &[u8], target: &str, bounds: &Bounds) -> Self {
        let mut hash = Sha256::new();
        let bounds = format!("{} {} {}", bounds.instructions, bounds.region, bounds.bytes);
        for field in [target.as_bytes(), bounds.as_bytes(), image] {
            hash.update((field.len() as u64).to_le_bytes());
            hash.update(field);
        }
        Self(hash.finalize().into())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..16].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

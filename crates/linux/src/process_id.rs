//! The process id: another one after each snapshot.
//!
//! A generator of random numbers that was seeded before a snapshot would give the same numbers to
//! every request. OpenSSL's, which Node and many others draw keys, UUIDs and session ids from, seeds
//! itself anew when it finds itself in another process, which it tells by the id; and what starts
//! from a snapshot is a copy of a process, as after a `fork`. So the id is drawn when it is first
//! asked for behind a snapshot. The one before stays valid where a program names itself by it.
//!
//! CPython before 3.12 keeps its id: its asyncio finds no event loop of another process, and its own
//! random bytes come from `getrandom`.

use rand::RngCore;
use serde::{Deserialize, Serialize};

/// The id of a process before its snapshot, and that of its first thread.
pub(crate) const FIRST: u32 = 100;

/// The ids behind a snapshot: above those of threads, up to the most that Linux has.
const LOWEST: u32 = 1 << 16;
const HIGHEST: u32 = (1 << 22) - 1;

/// The id of a process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    /// `None` if nobody has asked since the snapshot.
    number: Option<u32>,
    is_kept: bool,
}

impl ProcessId {
    /// For a program at this path.
    pub(crate) fn of(program: &str) -> Self {
        Self { number: Some(FIRST), is_kept: is_old_python(program) }
    }

    /// The id, for the guest to see.
    pub(crate) fn get(&mut self, random: &mut dyn RngCore) -> u32 {
        let draw = || LOWEST + random.next_u32() % (HIGHEST - LOWEST + 1);
        *self.number.get_or_insert_with(draw)
    }

    /// The id where nothing can be drawn.
    pub(crate) fn known(&self) -> u32 {
        self.number.unwrap_or(FIRST)
    }

    /// Whether a number means the process itself.
    pub(crate) fn is(&self, number: u32) -> bool {
        number == FIRST || self.number == Some(number)
    }
}

/// A clone is a snapshot.
impl Clone for ProcessId {
    fn clone(&self) -> Self {
        Self { number: self.number.filter(|_| self.is_kept), is_kept: self.is_kept }
    }
}

fn is_old_python(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    let version = name.strip_prefix("python3.").and_then(|minor| minor.parse::<u32>().ok());
    version.is_some_and(|minor| minor < 12)
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn whatever_starts_from_a_snapshot_is_another_process() {
        let mut random = StdRng::seed_from_u64(1);
        let mut before = ProcessId::of("/usr/bin/node");
        assert_eq!(before.get(&mut random), FIRST);
        let (mut one, mut two) = (before.clone(), before.clone());
        let number = one.get(&mut random);
        assert_ne!(number, two.get(&mut random));
        assert_eq!(one.get(&mut random), number);
        assert!(one.is(number) && one.is(FIRST) && !two.is(number));
        assert!((LOWEST..=HIGHEST).contains(&number));
    }

    #[test]
    fn asyncio_before_3_12_needs_the_id_that_it_has_seen() {
        let mut random = StdRng::seed_from_u64(1);
        for (program, is_kept) in
            [("/usr/bin/python3.11", true), ("/usr/bin/python3.12", false), ("/bin/node", false)]
        {
            let id = ProcessId::of(program).clone().get(&mut random);
            assert_eq!(id == FIRST, is_kept, "{program}");
        }
    }
}

//! One of a tenant's programs, in the order in which they came.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use sandtide_engine::{Program, ProgramId};

/// A version is on probation for so many exchanges.
const PROBATION: u32 = 100;

/// A program that a slot has or had. Exchanges in flight hold on to theirs, so that a version is
/// gone when the last exchange that began with it has ended.
pub struct Version {
    pub(crate) program: Arc<dyn Program>,
    number: u64,
    /// Read at the end of each exchange; written once after the first exchanges.
    on_probation: AtomicBool,
    /// Only written on probation.
    exchanges: AtomicU32,
    faults: AtomicU32,
    /// With so many faults on probation it has failed.
    allowed: u32,
}

/// What an exchange on probation has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Open,
    /// The version is to be replaced by the one before it. Said once.
    Failed,
}

impl Version {
    /// With `faults` other than zero, the version is on probation and fails at so many.
    pub(crate) fn new(program: Arc<dyn Program>, number: u64, faults: u32) -> Self {
        Self {
            program,
            number,
            on_probation: AtomicBool::new(faults > 0),
            exchanges: AtomicU32::new(0),
            faults: AtomicU32::new(0),
            allowed: faults,
        }
    }

    /// The program.
    pub fn program(&self) -> &Arc<dyn Program> {
        &self.program
    }

    /// The how-manieth of its slot it is, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The program's content hash.
    pub fn id(&self) -> ProgramId {
        self.program.id()
    }

    /// Whether it may still be replaced by the version before it.
    pub fn is_on_probation(&self) -> bool {
        self.on_probation.load(Relaxed)
    }

    /// Counts an exchange of a version on probation.
    #[cold]
    pub(crate) fn judge(&self, faulted: bool) -> Verdict {
        if faulted && self.faults.fetch_add(1, Relaxed) + 1 >= self.allowed {
            // Whoever ends the probation speaks the verdict.
            return match self.on_probation.swap(false, Relaxed) {
                true => Verdict::Failed,
                false => Verdict::Open,
            };
        }
        if self.exchanges.fetch_add(1, Relaxed) + 1 >= PROBATION {
            self.on_probation.store(false, Relaxed);
        }
        Verdict::Open
    }

    /// Faults so far, of a version that is or was on probation.
    pub(crate) fn faults(&self) -> u32 {
        self.faults.load(Relaxed)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({} {})", self.number, self.id())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sandtide_engine::{Console, Program, ProgramId, Sandbox, SpawnError};

    use super::*;

    struct Nothing;

    impl Program for Nothing {
        fn id(&self) -> ProgramId {
            ProgramId([0; 32])
        }

        fn spawn(&self, _: Arc<dyn Console>) -> Result<Box<dyn Sandbox>, SpawnError> {
            unreachable!("nobody needs a sandbox here")
        }
    }

    fn verdicts(faults: u32, exchanges: impl IntoIterator<Item = bool>) -> Vec<Verdict> {
        let version = Version::new(Arc::new(Nothing), 2, faults);
        let judge = |faulted| version.is_on_probation().then(|| version.judge(faulted));
        exchanges.into_iter().filter_map(judge).collect()
    }

    #[test]
    fn probation_ends_with_the_last_of_its_exchanges() {
        let all = verdicts(3, std::iter::repeat_n(false, 200));
        assert_eq!(all, [Verdict::Open; PROBATION as usize]);
        let two_of_many = (0..200).map(|i| i % 90 == 0);
        assert!(verdicts(3, two_of_many).iter().all(|verdict| *verdict == Verdict::Open));
    }

    #[test]
    fn the_verdict_is_spoken_once_and_ends_it() {
        let all = verdicts(3, [true, false, true, false, true, true, true]);
        assert_eq!(all.len(), 5);
        assert_eq!(all.last(), Some(&Verdict::Failed));
        assert!(verdicts(0, [true; 10]).is_empty(), "no probation");
    }
}

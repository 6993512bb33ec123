//! One of a tenant's programs, in the order in which they came.

use std::{fmt, sync::Arc};

use sandtide_engine::{Program, ProgramId};

/// A program that a slot has or had. Exchanges in flight hold on to theirs, so that a version is
/// gone when the last exchange that began with it has ended.
pub struct Version {
    pub(crate) program: Arc<dyn Program>,
    number: u64,
}

impl Version {
    pub(crate) fn new(program: Arc<dyn Program>, number: u64) -> Self {
        Self { program, number }
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
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({} {})", self.number, self.id())
    }
}

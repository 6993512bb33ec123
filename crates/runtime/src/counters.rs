//! What a reactor counted.

use std::cell::Cell;

use sandtide_engine::{Fault, Usage};

/// The kinds of faults, as [`Fault::kind`] names them.
pub const FAULT_KINDS: [&str; 10] = [
    "trap",
    "signal",
    "exit",
    "deadline",
    "instructions",
    "memory",
    "response",
    "protocol",
    "request_body",
    "stalled",
];

/// The counters of one reactor. Plain cells: only its own thread writes them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) exchanges: Cell<u64>,
    pub(crate) fixed: Cell<u64>,
    pub(crate) refused: Cell<u64>,
    pub(crate) clients_gone: Cell<u64>,
    pub(crate) engine_failures: Cell<u64>,
    pub(crate) panics: Cell<u64>,
    pub(crate) failed_resets: Cell<u64>,
    pub(crate) spawned: Cell<u64>,
    instructions: Cell<u64>,
    pages_written: Cell<u64>,
    faults: [Cell<u64>; FAULT_KINDS.len()],
}

/// What a reactor has counted since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Exchanges that ran in a sandbox and have ended.
    pub exchanges: u64,
    /// Requests answered with a fixed response.
    pub fixed: u64,
    /// Requests refused before they reached a sandbox.
    pub refused: u64,
    /// Exchanges that the client left.
    pub clients_gone: u64,
    /// Exchanges that ended by our own failure, panics included.
    pub engine_failures: u64,
    /// Panics of an engine.
    pub panics: u64,
    /// Sandboxes that could not be reset.
    pub failed_resets: u64,
    /// Sandboxes made.
    pub spawned: u64,
    /// Guest instructions.
    pub instructions: u64,
    /// Pages that guests wrote.
    pub pages_written: u64,
    /// Faults, in the order of [`FAULT_KINDS`].
    pub faults: [u64; FAULT_KINDS.len()],
}

/// Adds one.
pub(crate) fn count(cell: &Cell<u64>) {
    cell.set(cell.get().wrapping_add(1));
}

impl Counters {
    pub(crate) fn add_usage(&self, usage: &Usage) {
        count(&self.exchanges);
        self.instructions.set(self.instructions.get().wrapping_add(usage.instructions));
        self.pages_written.set(self.pages_written.get().wrapping_add(usage.pages_written));
    }

    pub(crate) fn add_fault(&self, fault: &Fault) {
        if let Some(index) = FAULT_KINDS.iter().position(|kind| *kind == fault.kind()) {
            count(&self.faults[index]);
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            exchanges: self.exchanges.get(),
            fixed: self.fixed.get(),
            refused: self.refused.get(),
            clients_gone: self.clients_gone.get(),
            engine_failures: self.engine_failures.get(),
            panics: self.panics.get(),
            failed_resets: self.failed_resets.get(),
            spawned: self.spawned.get(),
            instructions: self.instructions.get(),
            pages_written: self.pages_written.get(),
            faults: std::array::from_fn(|i| self.faults[i].get()),
        }
    }
}

impl Totals {
    /// The sum of all faults.
    pub fn all_faults(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// The sums of two reactors.
    pub fn plus(self, other: &Self) -> Self {
        Self {
            exchanges: self.exchanges + other.exchanges,
            fixed: self.fixed + other.fixed,
            refused: self.refused + other.refused,
            clients_gone: self.clients_gone + other.clients_gone,
            engine_failures: self.engine_failures + other.engine_failures,
            panics: self.panics + other.panics,
            failed_resets: self.failed_resets + other.failed_resets,
            spawned: self.spawned + other.spawned,
            instructions: self.instructions + other.instructions,
            pages_written: self.pages_written + other.pages_written,
            faults: std::array::from_fn(|i| self.faults[i] + other.faults[i]),
        }
    }
}

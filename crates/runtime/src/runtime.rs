//! What the control plane holds on to.

use std::{rc::Rc, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use sandtide_engine::{ExchangeId, Slice};

use crate::{reactor::Reactor, table::Table, timers::Timers};

/// How the runtime runs guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long a guest may run before it lets others run.
    pub slice: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { slice: Duration::from_millis(1) }
    }
}

/// The routing table and what reactors are made from. One for each server.
#[derive(Debug)]
pub struct Runtime {
    table: Arc<ArcSwap<Table>>,
    options: Options,
    first_id: u64,
}

impl Runtime {
    /// A runtime that serves this table.
    pub fn new(table: Table, options: Options) -> Arc<Self> {
        let table = Arc::new(ArcSwap::from_pointee(table));
        Arc::new(Self { table, options, first_id: rand::random() })
    }

    /// Serves new exchanges by this table. Exchanges that have begun end by the old one. Tenants
    /// that are the same `Arc` in both keep their sandboxes.
    pub fn replace(&self, table: Table) {
        self.table.store(Arc::new(table));
    }

    /// The table that new exchanges are served by.
    pub fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// Makes reactor `index` of `reactors`, on the thread that it will live on.
    pub fn reactor(&self, index: usize, reactors: usize, timers: Box<dyn Timers>) -> Rc<Reactor> {
        // Every reactor numbers its exchanges from a start of its own, 2^48 apart.
        let first_id = ExchangeId(self.first_id.wrapping_add((index as u64) << 48));
        let slice = Slice(self.options.slice);
        Rc::new(Reactor::new(self.table.clone(), index, reactors, first_id, slice, timers))
    }
}

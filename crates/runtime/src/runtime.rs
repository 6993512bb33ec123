//! What the control plane holds on to.

use std::{
    collections::HashSet,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use sandtide_engine::{ExchangeId, Slice};

use crate::{
    counters::Totals,
    meters::Meters,
    reactor::{Reactor, Settings},
    table::Table,
    timers::Timers,
    verification::VerifyResets,
};

/// How the runtime runs guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long a guest may run before it lets others run.
    pub slice: Duration,
    /// Whether hosts want a [`crate::Record`] of each exchange.
    pub records: bool,
    /// Which resets are verified.
    pub verify_resets: VerifyResets,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slice: Duration::from_millis(1),
            records: false,
            verify_resets: VerifyResets::default(),
        }
    }
}

/// The routing table and what reactors are made from. One for each server.
#[derive(Debug)]
pub struct Runtime {
    table: Arc<ArcSwap<Table>>,
    /// Tables that were replaced, and that a reactor may still have.
    replaced: Mutex<Vec<Arc<Table>>>,
    options: Options,
    first_id: u64,
    meters: Arc<Meters>,
}

impl Runtime {
    /// A runtime that serves this table.
    pub fn new(table: Table, options: Options) -> Arc<Self> {
        let table = Arc::new(ArcSwap::from_pointee(table));
        let meters = Arc::new(Meters::new());
        let replaced = Mutex::default();
        Arc::new(Self { table, replaced, options, first_id: rand::random(), meters })
    }

    /// Serves new exchanges by this table. Exchanges that have begun end by the old one. Tenants
    /// that are the same `Arc` in both keep their sandboxes.
    pub fn replace(&self, table: Table) {
        let before = self.table.swap(Arc::new(table));
        self.replaced().push(before);
    }

    /// Lets go of tables that no reactor serves by any more. The control
    /// plane calls it now and then, so that no reactor has to.
    pub fn tidy(&self) {
        let (unused, in_use): (Vec<_>, _) =
            self.replaced().drain(..).partition(|table| Arc::strong_count(table) == 1);
        self.replaced().extend::<Vec<_>>(in_use);
        drop(unused);
    }

    fn replaced(&self) -> MutexGuard<'_, Vec<Arc<Table>>> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table that new exchanges are served by.
    pub fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// Makes reactor `index` of `reactors`, on the thread that it will live on.
    pub fn reactor(&self, index: usize, reactors: usize, timers: Box<dyn Timers>) -> Rc<Reactor> {
        // Every reactor numbers its exchanges from a start of its own, 2^48 apart.
        let first_id = ExchangeId(self.first_id.wrapping_add((index as u64) << 48));
        let settings = Settings {
            index,
            reactors,
            first_id,
            slice: Slice(self.options.slice),
            records: self.options.records,
            verify_resets: self.options.verify_resets,
        };
        Rc::new(Reactor::new(self.table.clone(), self.meters.clone(), settings, timers))
    }

    /// What each tenant's exchanges came to, by its name. Tenants that nobody has asked for
    /// anything may be missing.
    pub fn tenant_totals(&self) -> Vec<(Arc<str>, Totals)> {
        self.meters.tenants()
    }

    /// What was counted for requests that no tenant answers, and for tenants that are gone.
    pub fn other_totals(&self) -> Totals {
        self.meters.others()
    }

    /// How long ago each reactor's event loop turned for the last time, with the reactor's index.
    /// About a second for a healthy one.
    pub fn silences(&self) -> Vec<(usize, Duration)> {
        self.meters.silences()
    }

    /// Lets go of the counters of tenants that are not in the table any more. Their counts go on
    /// in [`Self::other_totals`].
    pub fn forget_tenants(&self) {
        let table = self.table();
        let names: HashSet<&str> = table.tenants().iter().map(|tenant| &*tenant.name).collect();
        self.meters.forget(|name| names.contains(name));
    }
}

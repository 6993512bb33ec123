//! A sandbox in use, and the way back for it.

use std::{rc::Rc, sync::Arc};

use sandtide_engine::{Exchange, Outcome, Progress, ResetError, SpawnError, Turn, Usage};

use crate::{
    counters::{Counters, count},
    local::{Home, Local, Permit},
    pool::{Clean, Dirty, Pool},
    report,
    stateful::Hold,
    tenant::Tenant,
    version::Version,
};

/// A sandbox that serves an exchange. Dropped without [`Lease::settle`], the sandbox is
/// destroyed.
pub(crate) struct Lease {
    dirty: Dirty,
    origin: Origin,
}

/// Where the sandbox goes back to, with the right to use it.
enum Origin {
    Pool(Rc<Pool>, Permit),
    Stateful(Hold, Arc<Version>),
}

/// What becomes of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The guest answered: reset, or keep the state of tenants that have one.
    Answered,
    /// The guest failed or was abandoned: reset.
    Abandoned,
    /// The engine failed: destroy.
    Unsound,
}

impl From<&Outcome> for Ending {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Answered,
            Outcome::Fault(_) | Outcome::ClientGone => Self::Abandoned,
            Outcome::Engine(_) => Self::Unsound,
        }
    }
}

impl Lease {
    /// Takes a sandbox from its home, or makes one. `pool` is of the version that serves.
    pub(crate) fn take(
        tenant: &Tenant,
        pool: Rc<Pool>,
        home: Home,
        counters: &Counters,
    ) -> Result<Self, SpawnError> {
        match home {
            Home::Pool(permit) => {
                let clean = match pool.take() {
                    Some(clean) => clean,
                    None => spawn(tenant, &pool.version, counters)?,
                };
                Ok(Self { dirty: clean.begin(), origin: Origin::Pool(pool, permit) })
            }
            Home::Stateful(hold) => {
                // It may have changed while this exchange stood in line.
                let version = hold.version().unwrap_or_else(|| pool.version.clone());
                let clean = match hold.take() {
                    Some((clean, of)) if Arc::ptr_eq(&of, &version) => clean,
                    other => {
                        if let Some((clean, _)) = other {
                            clean.retire();
                        }
                        spawn(tenant, &version, counters)?
                    }
                };
                Ok(Self { dirty: clean.begin(), origin: Origin::Stateful(hold, version) })
            }
        }
    }

    pub(crate) fn run(&mut self, turn: &mut Turn<'_, '_>) -> Progress {
        self.dirty.run(turn)
    }

    /// Whether the tenant's state is in this sandbox.
    pub(crate) fn keeps_state(&self) -> bool {
        matches!(self.origin, Origin::Stateful(..))
    }

    pub(crate) fn usage(&self) -> Usage {
        self.dirty.usage()
    }

    /// Makes the sandbox ready for the next exchange and returns it.
    pub(crate) fn settle(
        self,
        local: &Local,
        exchange: &Exchange,
        ending: Ending,
        counters: &Counters,
    ) {
        let Self { dirty, origin } = self;
        let tenant = &*local.tenant;
        let renewed = match (&origin, ending) {
            (Origin::Pool(..), Ending::Answered | Ending::Abandoned) => dirty.reset(),
            (Origin::Stateful(..), Ending::Answered) => dirty.keep(),
            (Origin::Stateful(..), Ending::Abandoned) => {
                report::state_lost(tenant, exchange, "the exchange did not end with an answer");
                dirty.reset()
            }
            (_, Ending::Unsound) => {
                dirty.retire();
                if let Origin::Stateful(..) = origin {
                    report::state_lost(tenant, exchange, "the engine failed");
                }
                return;
            }
        };
        match renewed {
            Ok(clean) => match origin {
                Origin::Pool(pool, _permit) => pool.put(clean),
                Origin::Stateful(hold, version) => hold.put(clean, version),
            },
            Err(error) => could_not_renew(&origin, tenant, exchange, &error, counters),
        }
    }
}

#[cold]
fn could_not_renew(
    origin: &Origin,
    tenant: &Tenant,
    exchange: &Exchange,
    error: &ResetError,
    counters: &Counters,
) {
    count(&counters.failed_resets);
    report::reset_failed(tenant, exchange, error);
    if let Origin::Stateful(..) = origin {
        report::state_lost(tenant, exchange, "the sandbox was destroyed");
    }
}

#[cold]
fn spawn(tenant: &Tenant, version: &Version, counters: &Counters) -> Result<Clean, SpawnError> {
    count(&counters.spawned);
    Clean::spawn(&*version.program, tenant.log.console())
}

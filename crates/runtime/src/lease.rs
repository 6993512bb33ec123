//! A sandbox in use, and the way back for it.

use std::sync::Arc;

use sandtide_engine::{Exchange, Outcome, Progress, ResetError, SpawnError, Turn, Usage};

use crate::{
    counters::{Counters, count},
    local::{Home, Local},
    pool::{Clean, Dirty},
    report,
    tenant::{Answer, Tenant},
};

/// A sandbox that serves an exchange. Dropped without [`Lease::settle`], the sandbox is
/// destroyed.
pub(crate) struct Lease {
    dirty: Dirty,
    home: Home,
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
    /// Takes a sandbox from its home, or makes one.
    pub(crate) fn take(local: &Local, home: Home, counters: &Counters) -> Result<Self, SpawnError> {
        let idle = match &home {
            Home::Pool(_) => local.pool.take(),
            Home::Stateful(hold) => hold.take(),
        };
        let clean = match idle {
            Some(clean) => clean,
            None => spawn(&local.tenant, counters)?,
        };
        Ok(Self { dirty: clean.begin(), home })
    }

    pub(crate) fn run(&mut self, turn: &mut Turn<'_, '_>) -> Progress {
        self.dirty.run(turn)
    }

    /// Whether the tenant's state is in this sandbox.
    pub(crate) fn keeps_state(&self) -> bool {
        matches!(self.home, Home::Stateful(_))
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
        let Self { dirty, home } = self;
        let tenant = &*local.tenant;
        let renewed = match (&home, ending) {
            (Home::Pool(_), Ending::Answered | Ending::Abandoned) => dirty.reset(),
            (Home::Stateful(_), Ending::Answered) => dirty.keep(),
            (Home::Stateful(_), Ending::Abandoned) => {
                report::state_lost(tenant, exchange, "the exchange did not end with an answer");
                dirty.reset()
            }
            (_, Ending::Unsound) => {
                dirty.retire();
                if let Home::Stateful(_) = home {
                    report::state_lost(tenant, exchange, "the engine failed");
                }
                return;
            }
        };
        match renewed {
            Ok(clean) => match &home {
                Home::Pool(_) => local.pool.put(clean, tenant.admission.idle_sandboxes),
                Home::Stateful(hold) => hold.put(clean),
            },
            Err(error) => could_not_renew(&home, tenant, exchange, &error, counters),
        }
    }
}

#[cold]
fn could_not_renew(
    home: &Home,
    tenant: &Tenant,
    exchange: &Exchange,
    error: &ResetError,
    counters: &Counters,
) {
    count(&counters.failed_resets);
    report::reset_failed(tenant, exchange, error);
    if let Home::Stateful(_) = home {
        report::state_lost(tenant, exchange, "the sandbox was destroyed");
    }
}

#[cold]
fn spawn(tenant: &Arc<Tenant>, counters: &Counters) -> Result<Clean, SpawnError> {
    let Answer::Program(program) = &tenant.answer else {
        return Err(SpawnError(sandtide_engine::EngineError::Invariant(
            "only programs have sandboxes",
        )));
    };
    count(&counters.spawned);
    Clean::spawn(&**program, tenant.log.console())
}

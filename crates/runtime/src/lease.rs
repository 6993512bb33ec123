//! A sandbox in use, and the way back for it.

use std::{rc::Rc, sync::Arc};

use sandtide_engine::{
    Exchange, ExchangeId, Next, Outcome, Progress, Scrutiny, SpawnError, Turn, Usage,
};

use crate::{
    client::SeatHold,
    local::{Home, Local, Permit},
    pool::{Clean, Dirty, Pool},
    report,
    stateful::Hold,
    version::Version,
};

/// A sandbox that serves an exchange. Dropped without [`Lease::settle`], the sandbox is
/// destroyed.
pub(crate) struct Lease {
    dirty: Dirty,
    origin: Origin,
    on_probation: bool,
}

/// Where the sandbox goes back to, with the right to use it.
enum Origin {
    Pool(Rc<Pool>, Permit),
    /// Of a client's connection, or else of the pool.
    Seat(Rc<Pool>, Permit, SeatHold),
    Stateful(Hold, Arc<Version>),
}

/// What becomes of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The guest answered: reset, or keep the state of tenants that have one.
    Answered,
    /// The guest failed or was abandoned: reset.
    Abandoned,
    /// The engine failed: destroy.
    Unsound,
}

impl From<&Outcome> for Fate {
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
    pub(crate) fn take(local: &Local, pool: Rc<Pool>, home: Home) -> Result<Self, SpawnError> {
        match home {
            Home::Pool(permit) => {
                let clean = of_pool(local, &pool)?;
                let on_probation = pool.version.is_on_probation();
                let origin = Origin::Pool(pool, permit);
                Ok(Self { dirty: clean.begin(), origin, on_probation })
            }
            Home::Seat(permit, seat) => {
                let clean = match seat.take(&pool) {
                    Some(clean) => clean,
                    None => of_pool(local, &pool)?,
                };
                let on_probation = pool.version.is_on_probation();
                let origin = Origin::Seat(pool, permit, seat);
                Ok(Self { dirty: clean.begin(), origin, on_probation })
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
                        spawn(local, &version)?
                    }
                };
                let on_probation = version.is_on_probation();
                let origin = Origin::Stateful(hold, version);
                Ok(Self { dirty: clean.begin(), origin, on_probation })
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

    /// Whether how the exchange ends counts for its version.
    pub(crate) fn is_on_probation(&self) -> bool {
        self.on_probation
    }

    /// However the exchange ends, it is not its version's doing.
    pub(crate) fn excuse(&mut self) {
        self.on_probation = false;
    }

    /// The version that serves the exchange.
    pub(crate) fn version(&self) -> &Arc<Version> {
        match &self.origin {
            Origin::Pool(pool, _) | Origin::Seat(pool, ..) => &pool.version,
            Origin::Stateful(_, version) => version,
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        self.dirty.usage()
    }

    /// Makes the sandbox ready for the next exchange and returns it.
    pub(crate) fn settle(self, local: &Local, exchange: &Exchange, fate: Fate) {
        let Self { dirty, origin, .. } = self;
        let tenant = &*local.tenant;
        let renewed = match (&origin, fate) {
            (Origin::Pool(..), Fate::Answered | Fate::Abandoned) => dirty.reset(),
            (Origin::Seat(.., seat), Fate::Answered) if seat.is_open() => {
                dirty.keep(Next::SameClient)
            }
            (Origin::Seat(..), Fate::Answered | Fate::Abandoned) => dirty.reset(),
            (Origin::Stateful(..), Fate::Answered) => dirty.keep(Next::Anyone),
            (Origin::Stateful(..), Fate::Abandoned) => {
                report::state_lost(tenant, exchange, "the exchange did not end with an answer");
                dirty.reset()
            }
            (_, Fate::Unsound) => {
                dirty.retire();
                if let Origin::Stateful(..) = origin {
                    report::state_lost(tenant, exchange, "the engine failed");
                }
                return;
            }
        };
        let kept = match &origin {
            Origin::Pool(..) => false,
            Origin::Seat(.., seat) => fate == Fate::Answered && seat.is_open(),
            Origin::Stateful(..) => fate == Fate::Answered,
        };
        let scrutiny = if kept { None } else { local.verification.take() };
        let clean = match (renewed, scrutiny) {
            (Ok(clean), None) => Some(clean),
            (Ok(clean), Some(scrutiny)) => verified(clean, scrutiny, local, Some(exchange.id)),
            (Err(error), _) => {
                local.counters.failed_resets.add(1);
                report::reset_failed(tenant, Some(exchange.id), &error);
                None
            }
        };
        match (clean, origin) {
            (Some(clean), Origin::Seat(pool, _permit, seat)) if kept => seat.put(clean, pool),
            (Some(clean), Origin::Pool(pool, _permit) | Origin::Seat(pool, _permit, _)) => {
                pool.put(clean);
            }
            (Some(clean), Origin::Stateful(hold, version)) => hold.put(clean, version),
            (None, Origin::Stateful(..)) => {
                report::state_lost(tenant, exchange, "the sandbox was destroyed");
            }
            (None, Origin::Pool(..) | Origin::Seat(..)) => {}
        }
    }
}

fn of_pool(local: &Local, pool: &Pool) -> Result<Clean, SpawnError> {
    match pool.take() {
        Some(clean) => Ok(clean),
        None => spawn(local, &pool.version),
    }
}

/// The sandbox, if it is what its snapshot is.
#[cold]
pub(crate) fn verified(
    clean: Clean,
    scrutiny: Scrutiny,
    local: &Local,
    exchange: Option<ExchangeId>,
) -> Option<Clean> {
    let start = local.timers.now();
    let result = clean.verify(scrutiny);
    let now = local.timers.now();
    local.verification.spent(now, now.saturating_duration_since(start));
    local.counters.verified_resets.add(1);
    result
        .inspect_err(|mismatch| {
            local.counters.reset_mismatches.add(1);
            report::reset_mismatch(&local.tenant, exchange, mismatch);
        })
        .ok()
}

#[cold]
fn spawn(local: &Local, version: &Version) -> Result<Clean, SpawnError> {
    local.counters.spawned.add(1);
    Clean::spawn(&*version.program, local.tenant.log.console())
}

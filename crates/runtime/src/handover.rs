//! How the state of a tenant goes from one version of its program to the next.
//!
//! ```text
//!   hold the sandbox ─▶ save (old) ─▶ spawn, restore (new) ─▶ install ─▶ let go
//!      exchanges wait in line all the while, and go on with the new version
//! ```
//!
//! | what happens | what serves after it |
//! |---|---|
//! | all goes well | the new version, with the state |
//! | there is no state yet | the new version |
//! | the old version has no `on_save`, or the new one no `on_restore` | the new version, without the state |
//! | `on_save` faults: the state is lost, as after every fault | the new version, without the state |
//! | `on_save` answers with another status than 200 | the old version, with its state |
//! | the new sandbox cannot be made, or `on_restore` faults or answers with another status than 200 | the old version, with its state |
//! | an exchange does not end in time | the old version, with its state |
//!
//! If the new version is on probation, the old sandbox is kept, as it was after it had saved. A
//! rollback takes it back: what the new version has added to the state goes with it.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::StatusCode;
use sandtide_engine::{Exchange, Limits, Next, Program};

use crate::{
    attended::{Answered, AttendedError, Unpark, new_id, run},
    log::TenantLog,
    pool::Clean,
    slot::Slot,
    stateful::{Entry, Hold},
    version::Version,
};

/// What a hand-over needs.
#[derive(Debug)]
pub struct HandOver<'a> {
    /// As for [`Slot::install`].
    pub rollback_on_faults: u32,
    /// The tenant's: saving and restoring are limited as exchanges are.
    pub limits: &'a Limits,
    /// Where the new sandbox writes.
    pub log: &'a Arc<TenantLog>,
    /// How long the exchange that has the sandbox may take.
    pub patience: Duration,
}

/// How a new version came to serve a tenant that keeps state.
#[derive(Debug)]
pub enum HandedOver {
    /// With the state of the version before it, of so many bytes.
    State(usize),
    /// There was no state.
    Nothing,
    /// Without the state, which these versions do not hand over.
    Dropped(&'static str),
    /// Without the state, which was lost when the old version was to save it.
    Lost(AttendedError),
}

/// Why the version before stays, with its state.
#[derive(Debug, thiserror::Error)]
pub enum HandOverError {
    /// An exchange has the sandbox.
    #[error("an exchange has held the tenant's sandbox for {0:?}")]
    Busy(Duration),
    /// The old version did not want to hand over.
    #[error("the version that serves answered `save` with status {}", .0.as_u16())]
    Declined(StatusCode),
    /// The new version did not take the state.
    #[error("the new version answered `restore` with status {}", .0.as_u16())]
    Refused(StatusCode),
    /// The new version faulted when it was to take the state.
    #[error("the new version failed to restore the state: {0}")]
    Restore(#[source] AttendedError),
}

impl Slot {
    /// Installs a program for a tenant that keeps its state, and hands that over. Blocks.
    pub fn hand_over(
        self: &Arc<Self>,
        program: Arc<dyn Program>,
        terms: &HandOver<'_>,
    ) -> Result<(Arc<Version>, HandedOver), HandOverError> {
        let hold = wait_for_hold(self, terms.patience)?;
        let install = |program| self.install(program, terms.rollback_on_faults);
        let Some((clean, old)) = hold.take() else {
            return Ok((install(program), HandedOver::Nothing));
        };
        let why = match (old.program.events().save, program.events().restore) {
            (true, true) => None,
            (false, _) => Some("the old version does not save it"),
            (_, false) => Some("the new version does not restore it"),
        };
        if let Some(why) = why {
            let version = install(program);
            self.keep_or_retire(&hold, Some((clean, old)));
            return Ok((version, HandedOver::Dropped(why)));
        }
        let (saved, old_clean) = match save(clean, terms.limits) {
            Ok(saved) => saved,
            Err(error) => return Ok((install(program), HandedOver::Lost(error))),
        };
        let stays = |old_clean: Option<Clean>, error| {
            if let Some(clean) = old_clean {
                hold.put(clean, old.clone());
            }
            Err(error)
        };
        if saved.head.status != StatusCode::OK {
            return stays(old_clean, HandOverError::Declined(saved.head.status));
        }
        let state = saved.body;
        let length = state.len();
        match restore(&*program, state, terms) {
            Ok(new_clean) => {
                let version = install(program);
                hold.put(new_clean, version.clone());
                self.keep_or_retire(&hold, old_clean.map(|clean| (clean, old)));
                Ok((version, HandedOver::State(length)))
            }
            Err(error) => stays(old_clean, error),
        }
    }

    /// Keeps the old sandbox if a rollback would go back to its version. If it would go back to
    /// an older one, the sandbox of that is kept already.
    fn keep_or_retire(&self, hold: &Hold, old: Option<(Clean, Arc<Version>)>) {
        match old {
            Some((clean, old)) if self.falls_back_to(&old) => hold.keep(clean, old),
            Some((clean, _)) => clean.retire(),
            None => {}
        }
    }
}

/// The answer, and the sandbox as it is after it, unless that could not go on.
fn save(clean: Clean, limits: &Limits) -> Result<(Answered, Option<Clean>), AttendedError> {
    let mut dirty = clean.begin();
    match run(&mut dirty, Exchange::save(new_id(), limits.response_body), limits) {
        Ok(answered) => Ok((answered, dirty.keep(Next::Anyone).ok())),
        Err(error) => {
            dirty.retire();
            Err(error)
        }
    }
}

fn restore(
    program: &dyn Program,
    state: Bytes,
    terms: &HandOver<'_>,
) -> Result<Clean, HandOverError> {
    let clean = Clean::spawn(program, terms.log.console())
        .map_err(|error| HandOverError::Restore(error.into()))?;
    let mut dirty = clean.begin();
    let exchange = Exchange::restore(new_id(), state, terms.limits.response_body);
    match run(&mut dirty, exchange, terms.limits) {
        Ok(answered) if answered.head.status == StatusCode::OK => {
            dirty.keep(Next::Anyone).map_err(|error| HandOverError::Restore(error.into()))
        }
        Ok(answered) => {
            dirty.retire();
            Err(HandOverError::Refused(answered.head.status))
        }
        Err(error) => {
            dirty.retire();
            Err(HandOverError::Restore(error))
        }
    }
}

fn wait_for_hold(slot: &Arc<Slot>, patience: Duration) -> Result<Hold, HandOverError> {
    let mut ticket = match Hold::enter_first(slot) {
        Entry::Held(hold) => return Ok(hold),
        Entry::Waiting(ticket, _) => ticket,
        Entry::Turned(_) => return Err(HandOverError::Busy(Duration::ZERO)),
    };
    let until = Instant::now() + patience;
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(hold) = ticket.poll(&mut cx) {
            return Ok(hold);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HandOverError::Busy(patience));
        }
        thread::park_timeout(left);
    }
}

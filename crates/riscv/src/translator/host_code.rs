//! The place of a program's host code: empty until there is some, and read by every sandbox.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sandtide_engine::{Shortfall, ShortfallReason, Translation as Status, TranslationState};

use super::room::Reserved;
use crate::translate::Translation;

/// A program's host code, from when it is there.
///
/// A sandbox asks each time that it goes on; so all of them change over within a chunk of
/// instructions, in front of an instruction, with nothing but registers and memory to take along.
#[derive(Default)]
pub(crate) struct HostCode {
    ready: OnceLock<Arc<Ready>>,
    outcome: Mutex<Outcome>,
}

/// Whoever waits for what becomes of it.
type Tell = Box<dyn FnOnce(&Status) + Send>;

/// Host code that runs, and its share of the server's room.
pub(super) struct Ready {
    pub(super) translation: Translation,
    pub(super) functions: u32,
    pub(super) left: u32,
    pub(super) _reserved: Reserved,
}

#[derive(Default)]
struct Outcome {
    status: Status,
    is_settled: bool,
    waiting: Vec<Tell>,
}

impl HostCode {
    /// What there is: an atomic load.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&Translation> {
        self.ready.get().map(|ready| &ready.translation)
    }

    /// Has sandboxes run this from here on. Once.
    pub(super) fn publish(&self, ready: Arc<Ready>) {
        let (functions, left) = (ready.functions.into(), ready.left.into());
        let result = self.ready.set(ready);
        debug_assert!(result.is_ok(), "a program is translated once");
        self.note(|status| {
            status.state = TranslationState::Translated;
            (status.functions, status.left) = (functions, left);
        });
    }

    /// Notes what has become of it, before it is settled.
    pub(super) fn note(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.outcome().status);
    }

    /// Notes why not all of it is translated.
    pub(super) fn fall_short(
        &self,
        reason: ShortfallReason,
        what: String,
        hint: Option<&'static str>,
    ) {
        let is_partial = self.ready.get().is_some();
        self.note(|status| {
            status.state = match is_partial {
                true => TranslationState::Partly,
                false => TranslationState::Interpreted,
            };
            status.shortfall = Some(Shortfall { reason, what, hint });
        });
    }

    /// Nothing will change any more: whoever waits is told.
    pub(super) fn settle(&self) {
        let (status, waiting) = {
            let mut outcome = self.outcome();
            outcome.is_settled = true;
            (outcome.status.clone(), std::mem::take(&mut outcome.waiting))
        };
        waiting.into_iter().for_each(|tell| tell(&status));
    }

    pub(crate) fn status(&self) -> Status {
        self.outcome().status.clone()
    }

    /// Tells when it is settled, perhaps at once.
    pub(crate) fn when_settled(&self, tell: Tell) {
        let status = {
            let mut outcome = self.outcome();
            if !outcome.is_settled {
                outcome.waiting.push(tell);
                return;
            }
            outcome.status.clone()
        };
        tell(&status);
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Signals: what each one does, and which of them are waiting.

use serde::{Deserialize, Serialize};

use crate::{
    Errno, SignalInfo,
    kernel::{Kernel, UID},
    objects::Alarm,
    readiness::{Edges, Readiness, Source, condition},
    threads::{Event, State},
};

pub(crate) const SIGKILL: u8 = 9;
pub(crate) const SIGSEGV: u8 = 11;
pub(crate) const SIGPIPE: u8 = 13;
pub(crate) const SIGALRM: u8 = 14;
const SIGCHLD: u8 = 17;
const SIGCONT: u8 = 18;
pub(crate) const SIGSTOP: u8 = 19;
const SIGTSTP: u8 = 20;
const SIGTTIN: u8 = 21;
const SIGTTOU: u8 = 22;
const SIGURG: u8 = 23;
const SIGWINCH: u8 = 28;

/// How many signals there are.
pub(crate) const COUNT: u8 = 64;

pub(crate) const SA_ONSTACK: u64 = 0x0800_0000;
pub(crate) const SA_RESTART: u64 = 0x1000_0000;
pub(crate) const SA_NODEFER: u64 = 0x4000_0000;
pub(crate) const SA_RESETHAND: u64 = 0x8000_0000;

const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;

/// `si_code` of `kill` and of `tkill`.
const SI_USER: i32 = 0;
const SI_TKILL: i32 = -6;

/// The signals that cannot be blocked, handled or ignored.
pub(crate) const UNBLOCKABLE: u64 = bit(SIGKILL) | bit(SIGSTOP);

/// The bit of a signal in a mask.
pub(crate) const fn bit(signal: u8) -> u64 {
    1 << (signal - 1)
}

/// A signal number from a guest.
pub(crate) fn number(argument: u64) -> Result<u8, Errno> {
    match argument as u32 {
        signal @ 1..=64 => Ok(signal as u8),
        _ => Err(Errno::INVAL),
    }
}

/// `struct sigaction`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct SignalAction {
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) restorer: u64,
    pub(crate) mask: u64,
}

/// What a signal does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposition {
    Ignore,
    Fatal,
    Handle(SignalAction),
}

/// The process's part: actions, and the signals that any thread may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Signals {
    #[serde(with = "crate::saved::array")]
    actions: [SignalAction; COUNT as usize],
    pub(crate) pending: u64,
    /// Sends `SIGALRM`.
    pub(crate) alarm: Alarm,
    /// How many signals were sent.
    sent: u64,
}

impl Default for Signals {
    fn default() -> Self {
        let actions = [SignalAction::default(); COUNT as usize];
        Self { actions, pending: 0, alarm: Alarm::default(), sent: 0 }
    }
}

impl Signals {
    pub(crate) fn action(&self, signal: u8) -> SignalAction {
        self.actions[usize::from(signal - 1)]
    }

    pub(crate) fn set_action(&mut self, signal: u8, action: SignalAction) {
        self.actions[usize::from(signal - 1)] = action;
    }

    pub(crate) fn disposition(&self, signal: u8) -> Disposition {
        let action = self.action(signal);
        match action.handler {
            SIG_DFL => match signal {
                // Nobody could continue a stopped sandbox, so a stop does nothing.
                SIGCHLD | SIGCONT | SIGURG | SIGWINCH | SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU => {
                    Disposition::Ignore
                }
                _ => Disposition::Fatal,
            },
            SIG_IGN => Disposition::Ignore,
            _ => Disposition::Handle(action),
        }
    }
}

impl Kernel {
    /// Sends a signal to a thread, or to the process.
    pub(crate) fn send_signal(&mut self, thread: Option<usize>, signal: u8) {
        let disposition = self.signals.disposition(signal);
        let is_blocked =
            |mask: u64| signal != SIGKILL && signal != SIGSTOP && mask & bit(signal) != 0;
        let blocked = match thread {
            Some(index) => is_blocked(self.threads.all()[index].mask),
            None => self.threads.all().iter().all(|thread| is_blocked(thread.mask)),
        };
        if disposition == Disposition::Ignore && !blocked {
            return;
        }
        match thread {
            Some(index) => self.threads.change().get_mut(index).pending |= bit(signal),
            None => self.signals.change().pending |= bit(signal),
        }
        if blocked {
            self.signals.change().sent += 1;
            self.notify(Source::Signals);
        }
        // Who waits must take it; who runs or is ready takes it when it runs.
        let taker = thread.or_else(|| {
            let able = |index: &usize| !is_blocked(self.threads.all()[*index].mask);
            let running = self.threads.running();
            Some(running).filter(able).or_else(|| (0..self.threads.count()).find(able))
        });
        let Some(taker) = taker else { return };
        let State::Parked(wait) = self.threads.all()[taker].state else { return };
        if !blocked {
            let restart = match disposition {
                Disposition::Handle(action) => action.flags & SA_RESTART != 0,
                _ => false,
            };
            self.threads.change().interrupt(taker, restart && wait.event != Event::Signal);
        }
    }

    /// What the signals that the running thread must act on do, in order.
    fn open_signals(&self) -> impl Iterator<Item = Disposition> {
        let blocked = self.threads.current().mask & !UNBLOCKABLE;
        let open = self.pending_signals() & !blocked;
        let signals = (1..=COUNT).filter(move |signal| open & bit(*signal) != 0);
        signals.map(|signal| self.signals.disposition(signal))
    }

    /// Whether the running thread is about to enter a handler.
    pub(crate) fn has_handler_to_enter(&self) -> bool {
        self.pending_signals() != 0
            && self.open_signals().any(|found| matches!(found, Disposition::Handle(_)))
    }

    /// A thread that has parked with a signal to take does not wait.
    pub(crate) fn heed_pending(&mut self) {
        if self.pending_signals() == 0 {
            return;
        }
        let restart = match self.open_signals().find(|found| *found != Disposition::Ignore) {
            None => return,
            Some(Disposition::Handle(action)) => action.flags & SA_RESTART != 0,
            Some(_) => false,
        };
        let running = self.threads.running();
        self.threads.change().interrupt(running, restart);
    }

    /// Takes the next signal that the running thread must act on.
    pub(crate) fn take_signal(&mut self) -> Option<SignalInfo> {
        self.take_signal_of(!(self.threads.current().mask & !UNBLOCKABLE))
    }

    /// Takes the next signal of a set that waits for the running thread, blocked or not.
    pub(crate) fn take_signal_of(&mut self, set: u64) -> Option<SignalInfo> {
        let own = self.threads.current().pending & set;
        let shared = self.signals.pending & set;
        let (found, code) = match (own, shared) {
            (0, 0) => return None,
            (0, shared) => (shared, SI_USER),
            (own, _) => (own, SI_TKILL),
        };
        let signal = found.trailing_zeros() as u8 + 1;
        if code == SI_TKILL {
            self.threads.change().current_mut().pending &= !bit(signal);
        } else {
            self.signals.change().pending &= !bit(signal);
        }
        // `si_pid` and `si_uid` lie where a trap has `si_addr`.
        let address = u64::from(UID) << 32 | u64::from(self.pid.known());
        Some(SignalInfo { signal, code, address })
    }

    /// What a signalfd for a set can do, for the running thread.
    pub(crate) fn signals_readiness(&self, set: u64) -> Readiness {
        let conditions = if self.pending_signals() & set != 0 { condition::INPUT } else { 0 };
        let edges = Edges { input: self.signals.sent, output: 0 };
        Readiness { conditions, edges }
    }

    /// The signals that wait for the running thread, blocked or not.
    pub(crate) fn pending_signals(&self) -> u64 {
        self.threads.current().pending | self.signals.pending
    }
}

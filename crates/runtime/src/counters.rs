//! What a tenant's exchanges came to on one reactor.
//!
//! Each counter has one writer, the reactor's thread, and any number of readers: the control plane
//! sums them up when somebody asks. So counting costs a load and a store in memory that no other
//! reactor writes.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use sandtide_engine::{Fault, Traffic};

use crate::record::{Refused, Spent};

/// The kinds of faults, as [`Fault::kind`] names them.
pub const FAULT_KINDS: [&str; 11] = [
    "trap",
    "signal",
    "exit",
    "deadline",
    "instructions",
    "memory",
    "response",
    "protocol",
    "request_body",
    "exception",
    "stalled",
];

/// The upper bounds of [`Measures::durations`], beside the last, which has none.
pub const DURATION_BOUNDS: [Duration; 11] = [
    Duration::from_micros(10),
    Duration::from_micros(50),
    Duration::from_micros(250),
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(25),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2500),
    Duration::from_secs(10),
];

/// A number that one thread writes and others read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds to it. Not atomic as a whole: there is one writer.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What is counted: `T` is a counter where it is counted, and a number where it was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measures<T> {
    /// Exchanges that ran in a sandbox and have ended.
    pub exchanges: T,
    /// Requests answered with a fixed response.
    pub fixed: T,
    /// Answers by the class of their status: 2xx, 3xx, 4xx, 5xx. Those of refused requests and of
    /// faults count, too; exchanges that the client left before the answer do not.
    pub statuses: [T; 4],
    /// Faults, in the order of [`FAULT_KINDS`].
    pub faults: [T; FAULT_KINDS.len()],
    /// Requests refused before they reached a sandbox, in the order of [`Refused::ALL`].
    pub refused: [T; Refused::ALL.len()],
    /// Exchanges that the client left.
    pub clients_gone: T,
    /// Exchanges that ended by our own failure, panics included.
    pub engine_failures: T,
    /// Panics of an engine.
    pub panics: T,
    /// Sandboxes that could not be reset.
    pub failed_resets: T,
    /// Sandboxes that were compared with their snapshot after a reset.
    pub verified_resets: T,
    /// Of these, sandboxes that were not what the snapshot is.
    pub reset_mismatches: T,
    /// Sandboxes made.
    pub spawned: T,
    /// Guest instructions.
    pub instructions: T,
    /// Pages that guests wrote.
    pub pages_written: T,
    /// System calls and guest calls.
    pub calls: T,
    /// How often guests came out of their virtual machines.
    pub exits: T,
    /// Connections that guests made to the outside.
    pub egress_connections: T,
    /// Connections to the outside that were refused because the tenant may not have them.
    pub egress_denied: T,
    /// Bytes that guests sent to the outside.
    pub egress_sent: T,
    /// Bytes that came to guests from the outside.
    pub egress_received: T,
    /// Nanoseconds in which guests ran.
    pub cpu_ns: T,
    /// Bytes of request bodies that guests read.
    pub bytes_in: T,
    /// Bytes of response bodies that guests wrote.
    pub bytes_out: T,
    /// Nanoseconds for which exchanges waited for admission.
    pub queue_ns: T,
    /// Nanoseconds from admission to the end of the guest's work.
    pub run_ns: T,
    /// Nanoseconds from the arrival of exchanges that ran to the end of the guest's work.
    pub duration_ns: T,
    /// Exchanges by their time from arrival to the end of the guest's work: one for each of
    /// [`DURATION_BOUNDS`] with those up to it and over the one before, and one for the rest.
    pub durations: [T; DURATION_BOUNDS.len() + 1],
    /// Sandboxes that wait for an exchange, as of the last second.
    pub idle: T,
    /// Sandboxes that connections of clients hold between their exchanges, as of the last second.
    pub held: T,
    /// Exchanges that hold a sandbox, as of the last second.
    pub busy: T,
    /// Exchanges that wait for admission, as of the last second.
    pub waiting: T,
    /// Bytes of memory that only the idle sandboxes hold, as of the last second.
    pub resident_bytes: T,
}

/// The counters of one tenant on one reactor.
pub(crate) type Counters = Measures<Count>;

/// What was counted, summed up or not.
pub type Totals = Measures<u64>;

impl<T> Measures<T> {
    fn zip<U, V>(&self, other: &Measures<U>, mut f: impl FnMut(&T, &U) -> V) -> Measures<V> {
        fn each<T, U, V, const N: usize>(
            a: &[T; N],
            b: &[U; N],
            mut f: impl FnMut(&T, &U) -> V,
        ) -> [V; N] {
            std::array::from_fn(|i| f(&a[i], &b[i]))
        }
        Measures {
            exchanges: f(&self.exchanges, &other.exchanges),
            fixed: f(&self.fixed, &other.fixed),
            statuses: each(&self.statuses, &other.statuses, &mut f),
            faults: each(&self.faults, &other.faults, &mut f),
            refused: each(&self.refused, &other.refused, &mut f),
            clients_gone: f(&self.clients_gone, &other.clients_gone),
            engine_failures: f(&self.engine_failures, &other.engine_failures),
            panics: f(&self.panics, &other.panics),
            failed_resets: f(&self.failed_resets, &other.failed_resets),
            verified_resets: f(&self.verified_resets, &other.verified_resets),
            reset_mismatches: f(&self.reset_mismatches, &other.reset_mismatches),
            spawned: f(&self.spawned, &other.spawned),
            instructions: f(&self.instructions, &other.instructions),
            pages_written: f(&self.pages_written, &other.pages_written),
            calls: f(&self.calls, &other.calls),
            exits: f(&self.exits, &other.exits),
            egress_connections: f(&self.egress_connections, &other.egress_connections),
            egress_denied: f(&self.egress_denied, &other.egress_denied),
            egress_sent: f(&self.egress_sent, &other.egress_sent),
            egress_received: f(&self.egress_received, &other.egress_received),
            cpu_ns: f(&self.cpu_ns, &other.cpu_ns),
            bytes_in: f(&self.bytes_in, &other.bytes_in),
            bytes_out: f(&self.bytes_out, &other.bytes_out),
            queue_ns: f(&self.queue_ns, &other.queue_ns),
            run_ns: f(&self.run_ns, &other.run_ns),
            duration_ns: f(&self.duration_ns, &other.duration_ns),
            durations: each(&self.durations, &other.durations, &mut f),
            idle: f(&self.idle, &other.idle),
            held: f(&self.held, &other.held),
            busy: f(&self.busy, &other.busy),
            waiting: f(&self.waiting, &other.waiting),
            resident_bytes: f(&self.resident_bytes, &other.resident_bytes),
        }
    }
}

impl Counters {
    /// An exchange that ran in a sandbox has ended.
    pub(crate) fn add_exchange(&self, spent: &Spent) {
        self.exchanges.add(1);
        self.instructions.add(spent.usage.instructions);
        self.pages_written.add(spent.usage.pages_written);
        self.calls.add(spent.usage.calls);
        self.exits.add(spent.usage.exits);
        let Traffic { connections, denied, sent, received } = spent.usage.traffic;
        // Few guests have anything to do with the outside.
        if connections + denied + sent + received > 0 {
            self.egress_connections.add(connections);
            self.egress_denied.add(denied);
            self.egress_sent.add(sent);
            self.egress_received.add(received);
        }
        self.cpu_ns.add(nanoseconds(spent.cpu));
        self.bytes_in.add(spent.bytes_in);
        self.bytes_out.add(spent.bytes_out);
        self.add_queued(spent.queued);
        self.run_ns.add(nanoseconds(spent.ran));
        let duration = spent.queued + spent.ran;
        self.duration_ns.add(nanoseconds(duration));
        let bucket = DURATION_BOUNDS.iter().position(|bound| duration <= *bound);
        self.durations[bucket.unwrap_or(DURATION_BOUNDS.len())].add(1);
    }

    /// An exchange has waited for admission.
    pub(crate) fn add_queued(&self, queued: Duration) {
        if !queued.is_zero() {
            self.queue_ns.add(nanoseconds(queued));
        }
    }

    pub(crate) fn add_status(&self, status: http::StatusCode) {
        let class = usize::from(status.as_u16() / 100).wrapping_sub(2);
        if let Some(count) = self.statuses.get(class) {
            count.add(1);
        }
    }

    pub(crate) fn add_fault(&self, fault: &Fault) {
        if let Some(index) = FAULT_KINDS.iter().position(|kind| *kind == fault.kind()) {
            self.faults[index].add(1);
        }
    }

    pub(crate) fn add_refused(&self, why: Refused) {
        self.refused[why as usize].add(1);
    }

    pub(crate) fn totals(&self) -> Totals {
        self.zip(self, |count, _| count.get())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Totals {
    /// The sum of all faults.
    pub fn all_faults(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// The sum of all refused requests.
    pub fn all_refused(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Everything that was answered, refused or left.
    pub fn requests(&self) -> u64 {
        self.exchanges + self.fixed + self.all_refused()
    }

    /// What has been added since `before`.
    #[must_use]
    pub fn minus(self, before: &Self) -> Self {
        self.zip(before, |a, b| a.wrapping_sub(*b))
    }

    /// These sums, with what there is at a time ([`Self::idle`] and so on) as in `now`.
    #[must_use]
    pub fn with_gauges_of(self, now: &Self) -> Self {
        let Self { idle, held, busy, waiting, resident_bytes, .. } = *now;
        Self { idle, held, busy, waiting, resident_bytes, ..self }
    }

    /// Both sums together.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        self.zip(other, |a, b| a.wrapping_add(*b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each field is summed with itself and no other.
    #[test]
    fn sums_keep_their_places() {
        let mut next = 0;
        let numbered = Totals::default().zip(&Totals::default(), |_, _| {
            next += 1;
            next
        });
        let doubled = numbered.plus(&numbered);
        assert_eq!(doubled.minus(&numbered), numbered);
        let mut expected = 0;
        doubled.zip(&numbered, |double, single| {
            expected += 1;
            assert_eq!((*double, *single), (2 * expected, expected));
        });
        assert_eq!(expected, next);
        assert_eq!(size_of::<Totals>(), next as usize * size_of::<u64>(), "every field is summed");
    }

    #[test]
    fn durations_fall_between_their_bounds() {
        let counters = Counters::default();
        let mut spent = Spent::default();
        for (ran, times) in [(10, 1), (11, 2), (10_000_000, 3), (10_000_001, 4)] {
            spent.ran = Duration::from_micros(ran);
            (0..times).for_each(|_| counters.add_exchange(&spent));
        }
        let counted = counters.totals().durations;
        assert_eq!((counted[0], counted[1]), (1, 2));
        assert_eq!((counted[10], counted[11]), (3, 4));
        assert_eq!(counted.iter().sum::<u64>(), 10);
    }

    #[test]
    fn reasons_are_in_their_order() {
        for (index, why) in Refused::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, index);
        }
    }
}

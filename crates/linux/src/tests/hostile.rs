//! Wild arguments in every system call.

use proptest::prelude::*;

use super::*;

const END: u64 = 16 << 20;

/// Values that arguments break on.
const NASTY: [u64; 20] = [
    0,
    1,
    2,
    3,
    7,
    100,
    4096,
    DATA,
    DATA + 1,
    DATA + DATA_SIZE - 4,
    DATA + DATA_SIZE - 1,
    END - 1,
    END,
    END - 4096,
    i32::MAX as u64,
    u32::MAX as u64,
    -100i64 as u64,
    i64::MAX as u64,
    i64::MAX as u64 + 1,
    u64::MAX,
];

/// A process that has something of everything.
fn busy() -> Machine {
    let mut machine = Machine::new();
    machine.open("/tmp/file", 0o102).unwrap();
    machine.open("/tmp", 0o200_000).unwrap();
    let pair = machine.put(&[0; 8]);
    machine.call("pipe2", &[pair, 0]).unwrap();
    machine.call("eventfd2", &[1, 0]).unwrap();
    machine.call("epoll_create1", &[0]).unwrap();
    let event = machine.words(&[5, 0]);
    machine.call("epoll_ctl", &[8, 1, 7, event]).unwrap();
    let pair = machine.put(&[0; 8]);
    machine.call("socketpair", &[1, 1, 0, pair]).unwrap();
    machine.call("timerfd_create", &[1, 0]).unwrap();
    machine.call("signalfd4", &[u64::MAX, pair, 8, 0]).unwrap();
    machine.connected();
    machine.call("clone", &[0x1_0900, 0x3_0000, 0, 0, 0]).unwrap();
    machine.mmap(4 * PAGE);
    machine.text("/tmp/file");
    machine
}

/// Puts everything back, as an engine does.
fn restore(machine: &mut Machine, fresh: &Machine) {
    if machine.process.kernel.space.has_changed() {
        machine.memory.clone_from(&fresh.memory);
    }
    machine.process.reset_from(&fresh.process);
}

/// Makes one call and lets the threads go on. Whether the process is over or waits.
fn attempt(machine: &mut Machine, number: u64, args: [u64; 6]) -> bool {
    match machine.raw(number, args) {
        Action::Continue => false,
        Action::Resched => machine.schedule() != Schedule::Run,
        Action::Exit(_) | Action::Killed(_) | Action::MemoryLimit => true,
        // It has found a file of the direct protocol.
        Action::GuestCall { .. } => false,
    }
}

/// The numbers of all calls that are implemented.
fn numbers() -> Vec<u64> {
    let is_implemented = |number: &u64| table::find(Architecture::Riscv64, *number).is_some();
    (0..512).filter(is_implemented).collect()
}

#[test]
fn one_wild_argument_at_a_time() {
    let fresh = busy();
    let mut machine = Machine { memory: fresh.memory.clone(), ..busy() };
    machine.process = fresh.process.clone();
    for number in numbers() {
        for base in [0, 3, DATA, u64::MAX] {
            for position in 0..6 {
                for value in NASTY {
                    let mut args = [base; 6];
                    args[position] = value;
                    if attempt(&mut machine, number, args) {
                        restore(&mut machine, &fresh);
                    }
                }
            }
        }
        restore(&mut machine, &fresh);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Sequences of calls, most of them with arguments that mean something.
    #[test]
    fn sequences_of_wild_calls(
        calls in prop::collection::vec(
            (
                prop::sample::select(numbers()),
                prop::array::uniform6(prop::sample::select(NASTY.to_vec())),
            ),
            1..100,
        ),
    ) {
        let fresh = busy();
        let mut machine = busy();
        machine.process = fresh.process.clone();
        for (number, args) in calls {
            if attempt(&mut machine, number, args) {
                restore(&mut machine, &fresh);
            }
        }
    }
}

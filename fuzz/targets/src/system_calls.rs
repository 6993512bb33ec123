//! `system_calls`: sequences of Linux system calls with any arguments, on both instruction sets.
//!
//! ```text
//!   0x10000  texts: paths, a slot of 32 bytes each, that pointers like to point to
//!   0x11000  the input's own bytes, as structures; then zeros
//!            guard │ stack │ mappings │ heap, as the process lays them out
//! ```
//!
//! Must hold: every call comes back, soon; it asks memory only for what can be; the process stays
//! within its limits; nothing outside of the granted directory is ever read; and a reset restores
//! the snapshot: part by part, in what is printed for it, and in what calls answer.

use std::{
    os::unix::fs::symlink,
    sync::OnceLock,
    time::{Duration, Instant},
};

use arbitrary::Unstructured;
use rand::{RngCore, SeedableRng, rngs::StdRng};
use sandtide_engine::{FileGrant, Limits};
use sandtide_linux::{
    Action, Cpu, CpuTime, Delivered, GuestMemory, Hardware, Host, ImageLayout, PAGE, Process,
    ProcessSetup, Schedule, Segment, SignalInfo,
};

use crate::{
    exchange::Quiet,
    fake_cpu::{Calling, FakeCpu},
    guest_memory::{FakeMemory, READ_WRITE},
    input::next,
    vocabulary::{DATA, DESCRIPTORS, PATHS, SLOT, TEXTS, argument, number, probes},
};

/// The fake address space, and how much of it can be written.
const PAGES: usize = 256;
const FRESH: usize = 64;

/// The end of texts and data.
const IMAGE_END: u64 = 0x1_8000;

/// Calls of one run.
const MOST_CALLS: usize = 128;

/// Thread switches that one call may cause before the next.
const MOST_TURNS: usize = 64;

/// The first byte chooses the instruction set (1); then the length of the data and the data; then
/// calls.
pub(crate) fn run(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    if choice & 1 == 0 {
        Guest::<FakeCpu<false>>::run(rest);
    } else {
        Guest::<FakeCpu<true>>::run(rest);
    }
}

/// The directory that is granted, and a secret beside it.
struct Grant {
    _directory: tempfile::TempDir,
    files: Vec<FileGrant>,
    secret: [u8; 32],
}

fn grant() -> &'static Grant {
    static GRANT: OnceLock<Grant> = OnceLock::new();
    GRANT.get_or_init(|| make_grant().expect("a temporary directory"))
}

fn make_grant() -> std::io::Result<Grant> {
    let directory = tempfile::tempdir()?;
    let (inside, outside) = (directory.path().join("data"), directory.path().join("secret"));
    let mut secret = [0; 32];
    rand::rng().fill_bytes(&mut secret);
    std::fs::create_dir_all(inside.join("sub"))?;
    std::fs::write(&outside, secret)?;
    std::fs::write(inside.join("a.txt"), b"granted")?;
    std::fs::write(inside.join("sub/b.txt"), [b'b'; 5000])?;
    symlink(directory.path(), inside.join("out"))?;
    symlink(&outside, inside.join("absolute"))?;
    symlink("../secret", inside.join("up"))?;
    symlink("loop", inside.join("loop"))?;
    let files = vec![FileGrant { guest: "/data".to_owned(), host: inside, public: false }];
    Ok(Grant { _directory: directory, files, secret })
}

fn limits() -> Limits {
    Limits {
        memory: FRESH as u64 * PAGE,
        descriptors: DESCRIPTORS,
        threads: 4,
        scratch: 32 << 10,
        ..Limits::default()
    }
}

/// Does something with what processes are started with.
pub(crate) fn with_setup<R>(work: impl FnOnce(&ProcessSetup<'_>) -> R) -> R {
    let limits = limits();
    let setup = ProcessSetup {
        program: "/fuzz",
        args: &["fuzz".to_owned()],
        env: &["A=b".to_owned()],
        reseed: true,
        files: &grant().files,
        limits: &limits,
        stack: 64 << 10,
        hardware: Hardware::default(),
        directory: "/",
        network: None,
    };
    work(&setup)
}

pub(crate) struct Guest<C: Cpu> {
    pub(crate) process: Process<C>,
    memory: FakeMemory,
    random: StdRng,
    now: Instant,
}

/// What a call came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Returned(Option<u64>),
    /// The process is over, or waits for what will not come.
    Over,
}

impl<C: Calling> Guest<C> {
    fn run(data: &[u8]) {
        let mut input = Unstructured::new(data);
        let own = usize::from(next::<u16>(&mut input) % 0x3000).min(input.len());
        let own = input.bytes(own).unwrap_or_default();
        let mut guest = Self::start(own);

        // Some calls before the snapshot, so that it has more than a fresh process has.
        let boot = next::<u8>(&mut input) % 16;
        for _ in 0..boot {
            if guest.call(&mut input) == End::Over {
                return;
            }
        }
        guest.process.take_unknown_calls();
        guest.process.take_reads();
        let snapshot = guest.process.clone();
        let frozen = guest.memory.clone();
        let probed = Self::probe(&snapshot, &frozen, guest.now);

        for _ in 0..MOST_CALLS {
            if input.is_empty() || guest.call(&mut input) == End::Over {
                break;
            }
        }
        guest.process.take_unknown_calls();
        guest.process.reset_from(&snapshot);
        assert_eq!(guest.process.differs_from(&snapshot), None, "the reset left something");
        assert!(!guest.process.has_changed(), "changed after a reset");
        assert_eq!(
            format!("{:?}", guest.process),
            format!("{snapshot:?}"),
            "the reset has left something"
        );
        let again = Self::probe(&guest.process, &frozen, guest.now);
        assert_eq!(probed, again, "after the reset, calls answer differently");
    }

    pub(crate) fn start(own: &[u8]) -> Self {
        let mut memory = FakeMemory::new(PAGES, FRESH);
        memory.map(TEXTS, IMAGE_END - TEXTS, READ_WRITE);
        for (index, path) in PATHS.iter().enumerate() {
            memory.put(TEXTS + (index * SLOT) as u64, path.as_bytes());
        }
        memory.put(DATA, own);
        let image = ImageLayout {
            entry: TEXTS,
            segments: vec![Segment { start: TEXTS, end: IMAGE_END, protection: READ_WRITE }],
            brk_start: IMAGE_END,
            ..ImageLayout::default()
        };
        let mut random = StdRng::seed_from_u64(1);
        let process = with_setup(|setup| {
            Process::start(&image, setup, C::default(), &mut memory, &mut random)
        })
        .expect("a process starts");
        Self { process, memory, random, now: Instant::now() }
    }

    /// Makes one call from the input, and lets other threads run until one can make the next.
    pub(crate) fn call(&mut self, input: &mut Unstructured<'_>) -> End {
        match next::<u8>(input) {
            // What an engine does between calls.
            0..4 => self.process.preempt(),
            4..8 => self.process.wake_host_waiters(),
            8..16 => return self.trap(input),
            _ => {}
        }
        if self.settle() == End::Over {
            return End::Over;
        }
        let number = number::<C>(input);
        let args = std::array::from_fn(|_| argument(input));
        self.process.cpu().begin(number, args);
        self.carry_out()
    }

    fn trap(&mut self, input: &mut Unstructured<'_>) -> End {
        let signal = [4, 5, 7, 8, 11][usize::from(next::<u8>(input) % 5)];
        let info = SignalInfo { signal, code: 1, address: argument(input) };
        if self.settle() == End::Over {
            return End::Over;
        }
        match self.process.deliver(info, &mut self.memory) {
            Delivered::Handler => End::Returned(None),
            Delivered::Fatal(_) | Delivered::MemoryLimit => End::Over,
        }
    }

    /// Makes the call that is in the registers of the running thread, and then lets threads run.
    fn carry_out(&mut self) -> End {
        self.run_threads(true)
    }

    /// Lets threads run until one can make a new call.
    fn settle(&mut self) -> End {
        self.run_threads(false)
    }

    /// Runs threads, all of whose code is the calls that are made again. `calling` says that the
    /// running thread is in a call.
    fn run_threads(&mut self, mut calling: bool) -> End {
        for _ in 0..MOST_TURNS {
            if std::mem::take(&mut calling) {
                match self.call_once() {
                    Action::Continue => return End::Returned(self.process.cpu().result()),
                    Action::Resched => {}
                    Action::GuestCall { number, .. } => {
                        assert!(sandtide_abi::call::is_guest_call(number));
                        self.process.wait_for_host();
                    }
                    Action::Exit(_) | Action::Killed(_) | Action::MemoryLimit => return End::Over,
                }
            }
            let now = self.now;
            let scheduled = self.with_host(|process, host| process.schedule(now, host));
            match scheduled {
                Schedule::Run if !self.process.cpu().restarts() => {
                    return End::Returned(self.process.cpu().result());
                }
                Schedule::Run => {
                    let (number, args) = self.process.cpu().call();
                    self.process.cpu().begin(number, args);
                    calling = !sandtide_abi::call::is_guest_call(number);
                    if !calling {
                        self.process.cpu().set_result(0);
                    }
                }
                // Time passes as soon as nothing else can happen.
                Schedule::Idle { until: Some(until) } => self.now = self.now.max(until),
                Schedule::Idle { until: None } => self.process.wake_host_waiters(),
                Schedule::Stalled | Schedule::Killed(_) | Schedule::MemoryLimit => {
                    return End::Over;
                }
            }
        }
        End::Over
    }

    fn call_once(&mut self) -> Action {
        let action = self.with_host(|process, host| process.call(host));
        let over_limit = self.memory.take_over_limit();
        assert!(over_limit || action != Action::MemoryLimit, "no write went over the limit");
        action
    }

    fn with_host<R>(&mut self, run: impl FnOnce(&mut Process<C>, &mut Host<'_>) -> R) -> R {
        let begun = Instant::now();
        let mut host = Host {
            memory: &mut self.memory,
            console: &Quiet,
            stdin: Some(&mut &b"standard input"[..]),
            random: &mut self.random,
            cpu_time: CpuTime { before: Duration::from_micros(5), since: begun },
        };
        let result = run(&mut self.process, &mut host);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "a call took {took:?}");
        self.check();
        result
    }

    fn check(&mut self) {
        assert!(self.process.threads() <= limits().threads as usize, "too many threads");
        let secret = &grant().secret;
        for write in self.memory.take_writes() {
            let written = &self.memory.bytes()[write.start as usize..write.end as usize];
            // The first byte decides most often, and quickly.
            let is_secret = |window: &[u8]| window[0] == secret[0] && window == secret;
            let mut windows = written.windows(secret.len());
            assert!(!windows.any(is_secret), "the guest has read the secret");
        }
    }

    /// What some calls answer in a copy of a process.
    fn probe(process: &Process<C>, memory: &FakeMemory, now: Instant) -> Vec<End> {
        let mut copy = Self {
            process: process.clone(),
            memory: memory.clone(),
            random: StdRng::seed_from_u64(2),
            now,
        };
        let mut ends = Vec::new();
        for (number, args) in probes::<C>() {
            if copy.settle() == End::Over {
                ends.push(End::Over);
                break;
            }
            copy.process.cpu().begin(number, args);
            ends.push(copy.carry_out());
        }
        ends
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    // A call: what happens before it, its number, its arguments in two bytes each.
    let call = |number: u16, arguments: &[[u8; 2]]| {
        let mut bytes = vec![16];
        bytes.extend(number.to_le_bytes());
        for index in 0..6 {
            bytes.extend(arguments.get(index).copied().unwrap_or([0, 0]));
        }
        bytes
    };
    let here = [13, 0];
    let data = [7, 200];
    // riscv: openat, read, getdents64, close, mmap, munmap, clone, futex, rt_sigaction, kill.
    let riscv = [
        call(56, &[here, [5, 2]]),
        call(63, &[[3, 3], data, [3, 100]]),
        call(56, &[here, [5, 1], [11, 16]]),
        call(61, &[[3, 4], data, [3, 255]]),
        call(57, &[[3, 3]]),
        call(56, &[here, [5, 13], [3, 66], [3, 255]]),
        call(64, &[[3, 3], data, [3, 200]]),
        call(222, &[[0, 0], [10, 3], [3, 3], [3, 34], [12, 255]]),
        call(215, &[[9, 0], [10, 1]]),
        call(134, &[[3, 10], [7, 0], [0, 0], [3, 8]]),
        call(129, &[[3, 100], [3, 10]]),
        call(98, &[[7, 3], [0, 0], [0, 0], [0, 0]]),
        call(101, &[[7, 0], [0, 0]]),
        call(17, &[data, [3, 100]]),
    ];
    // riscv: eventfd2, epoll_create1, epoll_ctl, write, epoll_pwait, socketpair, sendmsg, recvmsg,
    // timerfd_create, timerfd_settime, signalfd4, setitimer, clone3, set_robust_list, exit.
    let events = [
        call(19, &[[3, 1], [14, 0]]),
        call(20, &[[0, 0]]),
        call(21, &[[3, 4], [3, 1], [3, 3], data]),
        call(64, &[[3, 3], data, [3, 8]]),
        call(22, &[[3, 4], data, [3, 4], [0, 0]]),
        call(199, &[[3, 1], [3, 1], [0, 0], data]),
        call(211, &[[3, 5], [7, 100], [0, 0]]),
        call(212, &[[3, 6], [7, 100], [3, 64]]),
        call(85, &[[3, 1], [0, 0]]),
        call(86, &[[3, 7], [0, 0], [7, 20], [7, 30]]),
        call(74, &[[12, 255], [7, 0], [3, 8], [0, 0]]),
        call(103, &[[0, 0], [7, 20], [7, 30]]),
        call(435, &[[7, 40], [3, 88]]),
        call(99, &[[7, 60], [3, 24]]),
        call(93, &[[0, 0]]),
    ];
    let x86 = [
        call(257, &[here, [5, 3]]),
        call(0, &[[3, 3], data, [3, 100]]),
        call(217, &[[3, 3], data, [3, 255]]),
        call(9, &[[0, 0], [10, 3], [3, 3], [3, 34], [12, 255]]),
        call(10, &[[9, 0], [10, 1], [3, 1]]),
        call(12, &[[9, 60]]),
        call(56, &[[14, 0], [7, 100]]),
        call(24, &[]),
        call(39, &[]),
    ];
    let own = [8u8, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    let with = |choice: u8, boot: u8, calls: &[Vec<u8>]| {
        let mut input = vec![choice];
        input.extend(own);
        input.push(boot);
        calls.iter().for_each(|call| input.extend(call));
        input
    };
    vec![
        with(0, 0, &riscv),
        with(0, 6, &riscv),
        with(0, 0, &events),
        with(0, 9, &events),
        with(1, 0, &x86),
        with(1, 3, &x86),
        vec![],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_sees_state() {
        let guest = Guest::<FakeCpu<false>>::start(&[]);
        let before = Guest::probe(&guest.process, &guest.memory, guest.now);
        let mut changed = Guest::<FakeCpu<false>>::start(&[]);
        changed.process.cpu().begin(23, [0; 6]);
        assert_eq!(changed.carry_out(), End::Returned(Some(3)), "dup");
        let after = Guest::probe(&changed.process, &changed.memory, changed.now);
        assert_ne!(before, after);
    }

    #[test]
    fn the_granted_file_can_be_read_and_no_link_leads_out() {
        let read = |index: u64| {
            let mut guest = Guest::<FakeCpu<false>>::start(&[]);
            let path = TEXTS + index * SLOT as u64;
            guest.process.cpu().begin(56, [-100i64 as u64, path, 0, 0, 0, 0]);
            let opened = guest.carry_out();
            guest.process.cpu().begin(63, [3, DATA + 0x2000, 7, 0, 0, 0]);
            guest.carry_out();
            (opened, guest.memory.bytes()[DATA as usize + 0x2000..][..7].to_vec())
        };
        assert_eq!(read(2), (End::Returned(Some(3)), b"granted".to_vec()));
        for index in [4, 5, 6, 7, 8, 10] {
            let (opened, bytes) = read(index);
            assert_eq!(bytes, [0; 7], "{} {opened:?}", PATHS[index as usize]);
        }
    }

    #[test]
    fn protections_of_the_fake_are_those_of_the_process() {
        let guest = Guest::<FakeCpu<true>>::start(&[1, 2, 3]);
        assert_eq!(guest.memory.view(DATA, 3).unwrap(), [1, 2, 3]);
        assert!(guest.memory.view(IMAGE_END, 1).is_err(), "there is a guard");
    }
}

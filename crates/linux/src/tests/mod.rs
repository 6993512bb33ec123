//! Whole processes on a flat memory: what system calls do, and that a reset undoes it.

mod connections;
mod files;
mod fresh;
mod held;
mod hostile;
mod memory;
mod outside;
mod readiness;
mod reset;
mod saved;
mod signals;
mod sockets;
mod start;
mod threads;
mod timers;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rand::{SeedableRng, rngs::StdRng};
use sandtide_engine::{FileGrant, Limits, Network};

use crate::{
    Action, Architecture, CpuTime, Errno, GuestMemory, Hardware, Host, ImageLayout, PAGE, Process,
    ProcessSetup, Protection, Schedule, Segment, StartError, table,
    testing::{FakeCpu, FlatMemory, Recorder},
    threads::State,
};

/// Where tests put what they pass by pointer: the data segment.
const DATA: u64 = 0x2_0000;
const DATA_SIZE: u64 = 0x2_0000;

/// The stack of the tests' processes.
const STACK: u64 = 1 << 20;

const READ_WRITE: Protection = Protection { read: true, write: true, execute: false };

/// A process and everything around it.
struct Machine<const X86: bool = false> {
    process: Process<FakeCpu<X86>>,
    memory: FlatMemory,
    console: Recorder,
    random: StdRng,
    input: Option<&'static [u8]>,
    next: u64,
}

fn limits() -> Limits {
    Limits {
        memory: 4 << 20,
        descriptors: 16,
        threads: 4,
        connections: 4,
        scratch: 64 << 10,
        ..Limits::default()
    }
}

fn image() -> ImageLayout {
    let code = Protection { read: true, write: false, execute: true };
    ImageLayout {
        entry: 0x1_0000,
        phdr: 0x1_0040,
        phent: 56,
        phnum: 2,
        segments: vec![
            Segment { start: 0x1_0000, end: DATA, protection: code },
            Segment { start: DATA, end: DATA + DATA_SIZE, protection: READ_WRITE },
        ],
        brk_start: DATA + DATA_SIZE,
        interpreter_base: 0,
    }
}

/// Two arguments and a variable.
fn words() -> [String; 3] {
    ["program", "one", "KEY=value"].map(str::to_owned)
}

fn setup<'a>(
    words: &'a [String; 3],
    files: &'a [FileGrant],
    limits: &'a Limits,
) -> ProcessSetup<'a> {
    ProcessSetup {
        program: "/bin/program",
        args: &words[..2],
        env: &words[2..],
        reseed: true,
        files,
        limits,
        stack: STACK,
        hardware: Hardware { capabilities: 0x1105, ..Hardware::default() },
        directory: "/",
        network: None,
    }
}

impl Machine {
    fn new() -> Self {
        Self::with_files(&[]).unwrap()
    }
}

impl<const X86: bool> Machine<X86> {
    fn with_files(files: &[FileGrant]) -> Result<Self, StartError> {
        Self::with(files, None)
    }

    fn with(files: &[FileGrant], network: Option<&Arc<dyn Network>>) -> Result<Self, StartError> {
        let limits = limits();
        let words = words();
        let setup = ProcessSetup { network, ..setup(&words, files, &limits) };
        let mut memory = FlatMemory::new(16 << 20);
        memory.map(0x1_0000, DATA - 0x1_0000, image().segments[0].protection);
        memory.map(DATA, DATA_SIZE, READ_WRITE);
        memory.available = limits.memory;
        let mut random = StdRng::seed_from_u64(1);
        let cpu = FakeCpu { pc: 0x1_0000, ..FakeCpu::default() };
        let process = Process::start(&image(), &setup, cpu, &mut memory, &mut random)?;
        Ok(Self { process, memory, console: Recorder::default(), random, input: None, next: DATA })
    }

    /// Puts bytes where the guest can point to.
    fn put(&mut self, bytes: &[u8]) -> u64 {
        let address = self.next;
        crate::guest::write(&mut self.memory, address, bytes).unwrap();
        self.next = (address + bytes.len() as u64).next_multiple_of(16);
        assert!(self.next < DATA + DATA_SIZE);
        address
    }

    fn text(&mut self, text: &str) -> u64 {
        self.put(&[text.as_bytes(), b"\0"].concat())
    }

    fn words(&mut self, words: &[u64]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.put(&bytes)
    }

    fn bytes(&self, address: u64, length: u64) -> Vec<u8> {
        self.memory.view(address, length).unwrap().to_vec()
    }

    fn u32_at(&self, address: u64) -> u32 {
        crate::guest::read_u32(&self.memory, address).unwrap()
    }

    /// Makes a call by number.
    fn raw(&mut self, number: u64, args: [u64; 6]) -> Action {
        let cpu = self.process.cpu();
        (cpu.number, cpu.args, cpu.result, cpu.restarted) = (number, args, None, false);
        self.again()
    }

    /// Makes the call that the running thread stands in front of.
    fn again(&mut self) -> Action {
        self.with_host(|process, host| process.call(host))
    }

    fn with_host<R>(
        &mut self,
        run: impl FnOnce(&mut Process<FakeCpu<X86>>, &mut Host<'_>) -> R,
    ) -> R {
        let mut host = Host {
            memory: &mut self.memory,
            console: &self.console,
            stdin: self.input.as_mut().map(|input| input as _),
            random: &mut self.random,
            cpu_time: CpuTime { before: Duration::from_millis(5), since: Instant::now() },
        };
        run(&mut self.process, &mut host)
    }

    fn action(&mut self, name: &str, args: &[u64]) -> Action {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        self.raw(number(if X86 { Architecture::X86_64 } else { Architecture::Riscv64 }, name), all)
    }

    /// Makes a call that does not wait.
    fn call(&mut self, name: &str, args: &[u64]) -> Result<u64, Errno> {
        match self.action(name, args) {
            // To enter a signal handler.
            Action::Resched if self.process.kernel.threads.current().state == State::Running => {
                assert_eq!(self.schedule(), Schedule::Run, "{name}");
            }
            action => assert_eq!(action, Action::Continue, "{name}"),
        }
        self.result()
    }

    /// The result of the running thread's last call.
    fn result(&mut self) -> Result<u64, Errno> {
        let value = self.process.cpu().result.expect("the call has no result");
        match value as i64 {
            error @ -4095..0 => Err(Errno::from_raw_os_error(-error as i32)),
            _ => Ok(value),
        }
    }

    fn schedule(&mut self) -> Schedule {
        self.schedule_at(Instant::now())
    }

    fn schedule_at(&mut self, now: Instant) -> Schedule {
        self.with_host(|process, host| process.schedule(now, host))
    }

    fn mmap(&mut self, length: u64) -> u64 {
        self.call("mmap", &[0, length, 3, 0x22, u64::MAX, 0]).unwrap()
    }

    fn open(&mut self, path: &str, flags: u64) -> Result<u64, Errno> {
        let path = self.text(path);
        self.call("openat", &[-100i64 as u64, path, flags, 0o644])
    }

    fn read(&mut self, fd: u64, length: u64) -> Result<Vec<u8>, Errno> {
        let buffer = self.put(&vec![0; length as usize]);
        let count = self.call("read", &[fd, buffer, length])?;
        Ok(self.bytes(buffer, count))
    }

    fn write(&mut self, fd: u64, bytes: &[u8]) -> Result<u64, Errno> {
        let buffer = self.put(bytes);
        self.call("write", &[fd, buffer, bytes.len() as u64])
    }
}

fn number(architecture: Architecture, name: &str) -> u64 {
    (0..512).find(|number| table::name(architecture, *number) == name).expect(name)
}

#[test]
fn an_unknown_call_is_refused_and_counted() {
    let mut machine = Machine::new();
    assert_eq!(machine.call("io_uring_setup", &[]), Err(Errno::NOSYS));
    assert_eq!(machine.call("io_uring_setup", &[]), Err(Errno::NOSYS));
    machine.raw(u64::MAX, [0; 6]);
    assert!(!machine.process.has_changed() || machine.process.threads() == 1);
    assert_eq!(machine.process.take_unknown_calls(), [("io_uring_setup", 2), ("unassigned", 1)]);
    assert!(machine.process.take_unknown_calls().is_empty());
}

#[test]
fn a_guest_call_is_the_engines() {
    let mut machine = Machine::new();
    let number = sandtide_abi::call::NEXT_REQUEST;
    let args = [1, 2, 3, 4, 5, 6];
    assert_eq!(machine.raw(number, args), Action::GuestCall { number, args });
}

#[test]
fn the_numbers_of_x86_64_reach_the_same_calls() {
    let mut machine = Machine::<true>::with_files(&[]).unwrap();
    let path = machine.text("/tmp/a");
    let fd = machine.call("open", &[path, 0o102]).unwrap();
    assert_eq!(machine.call("write", &[fd, path, 6]), Ok(6));
    let stat = machine.put(&[0; 144]);
    assert_eq!(machine.call("stat", &[path, stat]), Ok(0));
    assert_eq!(machine.bytes(stat + 48, 8), 6u64.to_le_bytes());
    assert_eq!(machine.call("arch_prctl", &[0x1002, 0x1234]), Ok(0));
    assert_eq!(machine.process.cpu().thread_pointer, 0x1234);
}

#[test]
fn page_sizes_agree() {
    assert!(DATA.is_multiple_of(PAGE) && DATA_SIZE.is_multiple_of(PAGE));
}

#[test]
fn a_process_has_no_capabilities() {
    let mut machine = Machine::new();
    let header = machine.put(&[0x22, 0x05, 0x08, 0x20, 0, 0, 0, 0]);
    let data = header + 64;
    assert_eq!(machine.call("capget", &[header, data]), Ok(0));
    assert_eq!(machine.bytes(data, 24), [0; 24]);
    let header = machine.put(&[1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(machine.call("capget", &[header, 0]), Ok(0), "asks for the version");
    assert_eq!(machine.bytes(header, 4), 0x2008_0522u32.to_le_bytes());
}

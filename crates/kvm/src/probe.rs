//! What the KVM of this machine does.
//!
//! Not all KVMs are the same: some emulate parts of the processor, and some of those parts differ
//! from the manuals in ways that a program does not notice but an engine does. So everything that the
//! engine builds on is tried out once, with a few instructions of guest code each.

use std::{
    fmt, io,
    sync::OnceLock,
    time::{Duration, Instant},
};

use kvm_bindings::{
    KVM_API_VERSION, KVM_MAX_CPUID_ENTRIES, KVM_SYNC_X86_REGS, KVM_SYNC_X86_SREGS, kvm_regs,
    kvm_xsave,
};
use kvm_ioctls::{Cap, Kvm};
use sandtide_linux::Protection;

use crate::{
    inside::{DISPATCH, Ticks, counter},
    memory::Memory,
    paging::PAGE,
    stubs::{CALL_PORT, CallEntry, EXCEPTION_PORT, Frame, RESTORE, VECTORS_AREA},
    vcpu::{Leave, Vcpu},
    vectors,
    vm::Vm,
    watchdog::Watchdog,
};

/// Why programs for x86-64 cannot run here.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// There is no `/dev/kvm`.
    #[error("this machine has no KVM: there is no /dev/kvm")]
    Missing,
    /// We may not open it.
    #[error("no permission to open /dev/kvm")]
    Permission,
    /// It cannot be opened.
    #[error("cannot open /dev/kvm: {0}")]
    Open(#[source] io::Error),
    /// A KVM of another time.
    #[error("KVM has API version {0}, {KVM_API_VERSION} is needed")]
    Version(i32),
    /// Something is missing.
    #[error("KVM has no {what} (`{name}`)")]
    Capability {
        /// The name in KVM's documentation.
        name: &'static str,
        /// What it is.
        what: &'static str,
    },
    /// The kernel refused something.
    #[error("cannot {what}: {source}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Guest code did not do what it should.
    #[error("KVM does not run guests as expected: {what}")]
    Behaviour {
        /// What happened.
        what: String,
    },
}

impl Unavailable {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing => {
                "load `kvm_amd` or `kvm_intel`; enable virtualisation in the firmware, or nesting in the \
                 machine above; give a container `--device /dev/kvm`"
            }
            Self::Permission => {
                "add the user to the group that owns /dev/kvm: `usermod -aG kvm USER`"
            }
            Self::Open(_) | Self::Refused { .. } => {
                "see `dmesg`; another hypervisor may be in the way"
            }
            Self::Version(_) | Self::Capability { .. } => "Linux 5.11 or later is needed",
            Self::Behaviour { .. } => "please report this, with the machine and its kernel",
        }
    }
}

/// What works here, and what it costs.
#[derive(Debug, Clone, Copy)]
pub struct Support {
    /// Where the `syscall` instruction goes.
    pub entry: CallEntry,
    /// Whether vector registers can be restored by guest code.
    pub restores: bool,
    /// What a system call costs that the host does nothing for.
    pub call: Duration,
    /// What an exception costs, from the program to the host and back.
    pub exception: Duration,
    /// What the first write to a page costs after KVM was told to watch it.
    pub first_write: Duration,
    /// Whether guests can tell the time by themselves.
    pub clocks: bool,
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clocks = if self.clocks { "clocks need none" } else { "clocks are calls" };
        let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
        write!(
            f,
            "system calls {}; {:.1} us a call, {:.1} us an exception, {:.1} us a page's first write; {clocks}",
            self.entry,
            microseconds(self.call),
            microseconds(self.exception),
            microseconds(self.first_write)
        )
    }
}

/// What the KVM of this machine does. Looked at once; takes some tens of milliseconds.
pub fn probe() -> Result<Support, &'static Unavailable> {
    static FOUND: OnceLock<Result<Support, Unavailable>> = OnceLock::new();
    FOUND.get_or_init(|| try_out(&open()?)).as_ref().copied()
}

/// Opens KVM and checks that it has what is needed.
pub(crate) fn open() -> Result<Kvm, Unavailable> {
    let kvm = Kvm::new().map_err(|error| match error.errno() {
        libc::ENOENT | libc::ENXIO | libc::ENODEV => Unavailable::Missing,
        libc::EACCES | libc::EPERM => Unavailable::Permission,
        _ => Unavailable::Open(error.into()),
    })?;
    let version = kvm.get_api_version();
    if version != KVM_API_VERSION as i32 {
        return Err(Unavailable::Version(version));
    }
    let need = |has: bool, name, what| match has {
        true => Ok(()),
        false => Err(Unavailable::Capability { name, what }),
    };
    let sync = KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS;
    let has_sync = kvm.check_extension_int(Cap::SyncRegs) as u32 & sync == sync;
    need(has_sync, "KVM_CAP_SYNC_REGS", "registers in shared memory")?;
    let raw = |cap: u32| kvm.check_extension_raw(cap.into()) > 0;
    let ring = raw(kvm_bindings::KVM_CAP_DIRTY_LOG_RING)
        || raw(kvm_bindings::KVM_CAP_DIRTY_LOG_RING_ACQ_REL);
    need(ring, "KVM_CAP_DIRTY_LOG_RING", "ring of written pages")?;
    need(
        raw(kvm_bindings::KVM_CAP_X86_MSR_FILTER),
        "KVM_CAP_X86_MSR_FILTER",
        "filter for model-specific registers",
    )?;
    need(raw(kvm_bindings::KVM_CAP_IMMEDIATE_EXIT), "KVM_CAP_IMMEDIATE_EXIT", "safe interrupts")?;
    need(raw(kvm_bindings::KVM_CAP_XSAVE), "KVM_CAP_XSAVE", "extended processor state")?;
    need(raw(kvm_bindings::KVM_CAP_XCRS), "KVM_CAP_XCRS", "extended processor state")?;
    Ok(kvm)
}

/// Where the code of an experiment lies, and the page that it works on.
const CODE: u64 = 0x1_0000;
const DATA: u64 = 0x2_0000;

const READ_EXECUTE: Protection = Protection { read: true, write: false, execute: true };
const READ_WRITE: Protection = Protection { read: true, write: true, execute: false };

/// Rounds of which the quickest half counts.
const ROUNDS: usize = 16;

/// How long to wait until the time-stamp counter is measured.
const LONGEST_MEASURING: Duration = Duration::from_millis(100);

/// How often a few instructions may be interrupted.
const MOST_KICKS: u32 = 5_000;

/// A machine for experiments.
struct Bench {
    vcpu: Vcpu,
    vm: Vm,
    memory: Memory,
}

fn refused(what: &'static str) -> impl Fn(io::Error) -> Unavailable {
    move |source| Unavailable::Refused { what, source }
}

fn unexpected(what: impl Into<String>) -> Unavailable {
    Unavailable::Behaviour { what: what.into() }
}

impl Bench {
    fn new(kvm: &Kvm, entry: CallEntry) -> Result<Self, Unavailable> {
        let mut memory = Memory::new(1 << 20, entry).map_err(refused("reserve memory"))?;
        memory.map(CODE, PAGE, READ_EXECUTE);
        let vm = Vm::new(kvm, &memory).map_err(refused("create a virtual machine"))?;
        let vcpu = vm.processor(kvm, entry).map_err(refused("set up a processor"))?;
        Ok(Self { vcpu, vm, memory })
    }

    /// Runs code from its beginning until it leaves.
    fn begin(&mut self, code: &[u8]) -> Result<Leave, Unavailable> {
        self.put(code)?;
        self.go_on()
    }

    /// Puts the processor in front of code.
    fn put(&mut self, code: &[u8]) -> Result<(), Unavailable> {
        let placed = self.memory.initialise(CODE, code);
        placed.map_err(|_| unexpected("an experiment does not fit in memory"))?;
        self.vcpu.set_system(0, 0);
        let registers = kvm_regs { rip: CODE, rflags: 2, rdi: DATA, ..kvm_regs::default() };
        self.vcpu.set_registers(&registers);
        Ok(())
    }

    /// Lets code go on until it leaves by itself. On a busy machine it may be interrupted before.
    fn go_on(&mut self) -> Result<Leave, Unavailable> {
        for _ in 0..MOST_KICKS {
            match self.run()? {
                Leave::Kicked => {}
                leave => return Ok(leave),
            }
        }
        Ok(Leave::Kicked)
    }

    fn run(&mut self) -> Result<Leave, Unavailable> {
        let chunks = self.memory.chunks();
        self.vm.attach(chunks).map_err(refused("give memory to a virtual machine"))?;
        self.vcpu.run(&mut self.memory, self.vm.slots()).map_err(refused("run a virtual machine"))
    }

    /// Lets code go on that has made a call, with this result.
    fn answer(&mut self, result: u64) -> Result<Leave, Unavailable> {
        let registers = kvm_regs { rax: result, ..self.vcpu.registers() };
        self.vcpu.set_registers(&registers);
        self.go_on()
    }

    fn frame(&self) -> Frame {
        Frame::read(&self.memory.system(Frame::ADDRESS))
    }

    /// Lets code go on that took an exception.
    fn resume(&mut self) -> Result<Leave, Unavailable> {
        let frame = self.frame();
        let registers =
            kvm_regs { rip: frame.rip, rsp: frame.rsp, rflags: 2, ..self.vcpu.registers() };
        self.vcpu.set_system(0, 0);
        self.vcpu.set_registers(&registers);
        self.go_on()
    }
}

/// `mov eax, 7; syscall; mov edi, eax; syscall; jmp` back to the last one.
const CALLS: &[u8] = &[0xb8, 7, 0, 0, 0, 0x0f, 5, 0x89, 0xc7, 0x0f, 5, 0xeb, 0xfc];

/// `movq rdi, xmm3; syscall`.
const VECTOR: &[u8] = &[0x66, 0x48, 0x0f, 0x7e, 0xdf, 0x0f, 5];

/// `mov [rdi], dil; syscall; jmp` back.
const WRITES: &[u8] = &[0x40, 0x88, 0x3f, 0x0f, 5, 0xeb, 0xf9];

/// `lfence; rdtsc; shl rdx, 32; or rax, rdx; mov rdi, rax; syscall; jmp` back.
const COUNTER: &[u8] = &[
    0x0f, 0xae, 0xe8, 0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0x48, 0x89, 0xc7, 0x0f,
    5, 0xeb, 0xed,
];

/// `jmp` to itself.
const SPIN: &[u8] = &[0xeb, 0xfe];

fn try_out(kvm: &Kvm) -> Result<Support, Unavailable> {
    Watchdog::start().map_err(refused("start the watchdog"))?;
    Ticks::begin();
    let (mut bench, entry) = find_entry(kvm)?;
    let call = calls(&mut bench)?;
    let restores = restores(&mut bench)?;
    let exception = exceptions(&mut bench)?;
    let first_write = writes(&mut bench)?;
    spin(&mut bench)?;
    let clocks = clocks(kvm, &mut bench)?;
    Ok(Support { entry, restores, call, exception, first_write, clocks })
}

/// Which way `syscall` goes: with an entry that only ring 0 may execute, one that stays in ring 3
/// ends in a page fault there.
fn find_entry(kvm: &Kvm) -> Result<(Bench, CallEntry), Unavailable> {
    const PAGE_FAULT: u16 = EXCEPTION_PORT + 14;
    let mut bench = Bench::new(kvm, CallEntry::Ring0)?;
    let entry = match bench.begin(CALLS)? {
        Leave::Port(CALL_PORT) => CallEntry::Ring0,
        Leave::Port(PAGE_FAULT) if bench.frame().rip == DISPATCH => CallEntry::Ring3,
        leave => return Err(unexpected(format!("`syscall` ends with {leave:?}"))),
    };
    if entry == CallEntry::Ring3 {
        bench = Bench::new(kvm, entry)?;
    }
    Ok((bench, entry))
}

fn expect(found: Leave, port: u16, what: &str) -> Result<(), Unavailable> {
    match found {
        Leave::Port(found) if found == port => Ok(()),
        found => Err(unexpected(format!("{what} ends with {found:?}"))),
    }
}

/// Calls arrive with their registers and return with their results.
fn calls(bench: &mut Bench) -> Result<Duration, Unavailable> {
    let leave = bench.begin(CALLS)?;
    expect(leave, CALL_PORT, "a system call")?;
    let registers = bench.vcpu.registers();
    if (registers.rax, registers.rcx) != (7, CODE + 7) {
        return Err(unexpected("a system call has other registers than the program"));
    }
    const RESULT: u64 = 0x1234_5678;
    let leave = bench.answer(RESULT)?;
    expect(leave, CALL_PORT, "the return from a system call")?;
    if bench.vcpu.registers().rdi != RESULT {
        return Err(unexpected("the result of a system call is lost"));
    }
    measure(|| {
        let leave = bench.answer(0)?;
        expect(leave, CALL_PORT, "the return from a system call")
    })
}

/// Guest code gets vector registers from memory, with everything else as it was.
fn restores(bench: &mut Bench) -> Result<bool, Unavailable> {
    const PATTERN: u64 = 0x1234_5678_9abc_def0;
    bench.put(VECTOR)?;
    let mut extended = kvm_xsave::default();
    // The usual control words; `xmm3`; the header says that there are x87 and SSE registers.
    (extended.region[0], extended.region[6]) = (0x37f, 0x1f80);
    (extended.region[52], extended.region[53]) = (PATTERN as u32, (PATTERN >> 32) as u32);
    extended.region[128] = 0b11;
    bench.memory.write_own(VECTORS_AREA, &vectors::area(&extended));
    let registers =
        kvm_regs { rip: RESTORE, rflags: 2, rcx: CODE, r11: 7, rdx: 9, ..kvm_regs::default() };
    bench.vcpu.set_registers(&registers);
    let leave = bench.go_on()?;
    let registers = bench.vcpu.registers();
    let found = (leave, registers.rax, registers.rdi, registers.rdx);
    Ok(found == (Leave::Port(CALL_PORT), 7, PATTERN, 9))
}

/// A page fault says where it was, and the program goes on when its reason is gone.
fn exceptions(bench: &mut Bench) -> Result<Duration, Unavailable> {
    const PAGE_FAULT: u16 = EXCEPTION_PORT + 14;
    let leave = bench.begin(WRITES)?;
    expect(leave, PAGE_FAULT, "a write to no memory")?;
    let frame = bench.frame();
    let fault = bench.vcpu.system().map_err(refused("read a processor's registers"))?.fault;
    if !frame.is_users() || (frame.rip, fault) != (CODE, DATA) {
        return Err(unexpected(format!(
            "a page fault at {CODE:#x} of {DATA:#x} is reported wrong"
        )));
    }
    let cost = measure(|| {
        let leave = bench.resume()?;
        expect(leave, PAGE_FAULT, "a write to no memory")
    })?;
    bench.memory.map(DATA, PAGE, READ_WRITE);
    let leave = bench.resume()?;
    expect(leave, CALL_PORT, "a write to memory that was mapped")?;
    bench.memory.protect(DATA, PAGE, Protection { write: false, ..READ_WRITE });
    let leave = bench.answer(0)?;
    expect(leave, PAGE_FAULT, "a write to memory that may only be read")?;
    bench.memory.protect(DATA, PAGE, READ_WRITE);
    Ok(cost)
}

/// KVM notices the first write to a page, each time that it is told to.
fn writes(bench: &mut Bench) -> Result<Duration, Unavailable> {
    let leave = bench.begin(WRITES)?;
    expect(leave, CALL_PORT, "a write")?;
    let mut noticed = true;
    let cost = measure(|| {
        bench.memory.forget_guest_writes();
        bench.vcpu.free_ring(usize::MAX);
        bench.vm.reset_ring().map_err(refused("watch the writes of a virtual machine"))?;
        let leave = bench.answer(0)?;
        noticed &= bench.memory.is_written_by_guest(DATA / PAGE);
        expect(leave, CALL_PORT, "a write")
    })?;
    let call = measure(|| {
        let leave = bench.answer(0)?;
        expect(leave, CALL_PORT, "a write")
    })?;
    match noticed {
        true => Ok(cost.saturating_sub(call)),
        false => Err(unexpected("a write is not noticed")),
    }
}

/// The guest's time-stamp counter is the host's, and goes on at one pace for ever.
fn clocks(kvm: &Kvm, bench: &mut Bench) -> Result<bool, Unavailable> {
    let mut is_shared = is_steady(kvm)?;
    bench.put(COUNTER)?;
    for _ in 0..ROUNDS {
        let before = counter();
        let leave = bench.answer(0)?;
        expect(leave, CALL_PORT, "reading the time-stamp counter")?;
        is_shared &= (before..=counter()).contains(&bench.vcpu.registers().rdi);
    }
    let enough = Instant::now() + LONGEST_MEASURING;
    while is_shared && Ticks::now().is_none() && Instant::now() < enough {
        std::hint::spin_loop();
    }
    Ok(is_shared && Ticks::now().is_some())
}

/// Whether the processor says that of its counter, or the host's kernel relies on it.
fn is_steady(kvm: &Kvm) -> Result<bool, Unavailable> {
    const POWER: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES);
    let cpuid = cpuid.map_err(|error| refused("ask for a processor")(error.into()))?;
    let mut power = cpuid.as_slice().iter().filter(|entry| entry.function == POWER);
    Ok(power.any(|entry| entry.edx & INVARIANT != 0)
        || std::fs::read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .is_ok_and(|name| name.starts_with(b"tsc")))
}

/// A guest that never leaves is interrupted.
fn spin(bench: &mut Bench) -> Result<(), Unavailable> {
    bench.put(SPIN)?;
    match bench.run()? {
        Leave::Kicked if bench.vcpu.registers().rip == CODE => Ok(()),
        leave => Err(unexpected(format!("a loop ends with {leave:?}"))),
    }
}

/// The median time of something.
fn measure(mut round: impl FnMut() -> Result<(), Unavailable>) -> Result<Duration, Unavailable> {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times[ROUNDS / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_works_where_it_should() {
        match probe() {
            Ok(support) => {
                eprintln!("{support}");
                assert!(support.restores, "vector registers can be restored");
                assert!(support.call > Duration::ZERO && support.exception > Duration::ZERO);
            }
            Err(error) => crate::testing::skip(error),
        }
    }

    #[test]
    fn every_reason_comes_with_a_remedy() {
        let (name, what) = ("KVM_CAP_SYNC_REGS", "registers in shared memory");
        for reason in [
            Unavailable::Missing,
            Unavailable::Permission,
            Unavailable::Version(11),
            Unavailable::Capability { name, what },
            unexpected("it rains"),
        ] {
            assert!(!reason.to_string().is_empty() && !reason.hint().is_empty());
        }
    }
}

//! The processor of a virtual machine.
#![allow(unsafe_code, reason = "calls of KVM that read memory of ours")]

use std::{
    io,
    os::fd::AsRawFd as _,
    sync::{Arc, OnceLock},
};

use kvm_bindings::{
    CpuId, KVM_EXIT_DIRTY_RING_FULL, KVM_MAX_CPUID_ENTRIES, KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET,
    KVMIO, Msrs, kvm_device_attr, kvm_msr_entry, kvm_regs, kvm_sregs, kvm_vcpu_events, kvm_xcrs,
    kvm_xsave,
};
use kvm_ioctls::{Kvm, SyncReg, VcpuExit, VcpuFd};
use sandtide_memory::Reservation;
use sha2::{Digest as _, Sha256};

use crate::{
    inside::DISPATCH,
    memory::Memory,
    paging::ROOT,
    ring::Ring,
    state::State,
    stubs::{self, CallEntry},
    vectors::ALLOWED,
    vm::Slots,
    watchdog::{Mark, Watchdog},
};

/// Why the guest stopped running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// It wrote to this port.
    Port(u16),
    /// It has run for a while; nothing else happened.
    Kicked,
    /// Many pages were written.
    RingFull,
    /// It did what nothing in a sandbox does: touched memory that is not there, halted, or took
    /// an exception while it took one.
    Astray(&'static str),
}

/// A processor, set up to run a program in ring 3.
pub(crate) struct Vcpu {
    fd: VcpuFd,
    ring: Ring,
    mark: Mark,
    /// The system registers of a program that begins: what no guest may change.
    system: kvm_sregs,
    /// What else it was when it was made.
    made: Box<State>,
    /// The guest's memory: mapped for as long as the processor may write to it.
    host: Arc<Reservation>,
}

impl Vcpu {
    pub(crate) fn new(
        fd: VcpuFd,
        kvm: &Kvm,
        entry: CallEntry,
        host: Arc<Reservation>,
        ring_entries: usize,
    ) -> io::Result<Self> {
        let mut fd = fd;
        let (cpuid, xcr0) = features(kvm)?;
        fd.set_cpuid2(cpuid)?;
        let mut system = fd.get_sregs()?;
        set_system(&mut system);
        fd.set_sregs(&system)?;
        let mut xcrs = kvm_xcrs { nr_xcrs: 1, ..kvm_xcrs::default() };
        xcrs.xcrs[0].value = *xcr0;
        fd.set_xcrs(&xcrs)?;
        set_call_entry(&fd, entry)?;
        share_counter(&fd);
        fd.set_sync_valid_reg(SyncReg::Register);
        let ring = Ring::map(&fd, ring_entries)?;
        let made = Box::new(State::of(&fd)?);
        Ok(Self { fd, ring, mark: Watchdog::mark(), system, made, host })
    }

    /// Runs the guest until something needs the host, and takes note of the pages that it wrote.
    /// `slots` are the machine's.
    ///
    /// # Panics
    /// If `memory` is not the machine's: somebody could have a view of that.
    pub(crate) fn run(&mut self, memory: &mut Memory, slots: &Slots) -> io::Result<Leave> {
        assert!(Arc::ptr_eq(&self.host, memory.host()), "another machine's memory");
        memory.settle()?;
        let running = self.mark.enter(self.fd.get_kvm_run());
        let exit = self.fd.run();
        let leave = match exit {
            Ok(VcpuExit::IoOut(port, _)) => Ok(Leave::Port(port)),
            Ok(VcpuExit::Unsupported(KVM_EXIT_DIRTY_RING_FULL)) => Ok(Leave::RingFull),
            Ok(VcpuExit::Intr) => Ok(Leave::Kicked),
            Ok(exit) => Ok(Leave::Astray(name(&exit))),
            Err(error) if error.errno() == libc::EINTR => Ok(Leave::Kicked),
            // No signal is pending, but KVM wants to be asked again.
            Err(error) if error.errno() == libc::EAGAIN => Ok(Leave::Kicked),
            Err(error) if error.errno() == libc::EFAULT => Ok(Leave::Astray("memory fault")),
            Err(error) => Err(error.into()),
        };
        drop(running);
        self.fd.set_kvm_immediate_exit(0);
        self.ring.take(|entry| {
            if let Some(page) = slots.page_of(entry) {
                memory.note_guest_write(page);
            }
        });
        leave
    }

    /// Marks at most so many entries of the ring of written pages as ready to be freed, which
    /// [`crate::vm::Vm::reset_ring`] does then.
    pub(crate) fn free_ring(&mut self, most: usize) {
        self.ring.free(most);
    }

    /// The general registers, as of the last exit.
    pub(crate) fn registers(&self) -> kvm_regs {
        self.fd.sync_regs().regs
    }

    /// Sets the general registers.
    pub(crate) fn set_registers(&mut self, registers: &kvm_regs) {
        self.fd.sync_regs_mut().regs = *registers;
        self.fd.set_sync_dirty_reg(SyncReg::Register);
    }

    /// Where the last memory access failed, and the segment bases of `fs` and `gs`.
    pub(crate) fn system(&self) -> io::Result<System> {
        let system = self.fd.get_sregs()?;
        Ok(System { fault: system.cr2, fs: system.fs.base, gs: system.gs.base })
    }

    /// Puts the processor into ring 3, with everything that a program may not change as it was,
    /// and these segment bases.
    pub(crate) fn set_system(&mut self, fs: u64, gs: u64) {
        let mut system = self.system;
        (system.fs.base, system.gs.base) = (fs, gs);
        self.fd.sync_regs_mut().sregs = system;
        self.fd.set_sync_dirty_reg(SyncReg::SystemRegister);
    }

    /// Forgets an exception that was on its way to the guest when that was interrupted: who goes on
    /// now is another thread, or in another exchange.
    pub(crate) fn forget_exceptions(&mut self) {
        self.fd.sync_regs_mut().events = kvm_vcpu_events::default();
        self.fd.set_sync_dirty_reg(SyncReg::VcpuEvents);
    }

    /// What of the processor is not as it was when it was made, of what no program may change and
    /// [`Self::set_system`] does not set.
    pub(crate) fn differs(&self) -> io::Result<Option<&'static str>> {
        Ok(State::of(&self.fd)?.differs_from(&self.made))
    }

    /// For tests: KVM's own.
    #[cfg(test)]
    pub(crate) fn fd(&self) -> &VcpuFd {
        &self.fd
    }

    /// The floating-point and vector registers.
    pub(crate) fn extended(&self) -> io::Result<Box<kvm_xsave>> {
        Ok(Box::new(self.fd.get_xsave()?))
    }

    /// Sets them. The processor refuses what it does not have.
    pub(crate) fn set_extended(&self, extended: &kvm_xsave) -> io::Result<()> {
        // SAFETY: the area is as large as the features need that `features` enables: none of
        // them is one that a process has to ask for (AMX).
        unsafe { self.fd.set_xsave(extended).map_err(io::Error::from) }
    }
}

/// What [`Vcpu::system`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct System {
    /// `CR2`.
    pub(crate) fault: u64,
    /// The base of `fs`.
    pub(crate) fs: u64,
    /// The base of `gs`.
    pub(crate) gs: u64,
}

fn name(exit: &VcpuExit<'_>) -> &'static str {
    match exit {
        // Only a new machine is rid of it: KVM finishes the instruction when the guest goes on next,
        // wherever that is by then, a reset in between or not.
        VcpuExit::IoIn(..) => "port read",
        VcpuExit::MmioRead(..) | VcpuExit::MmioWrite(..) => "access outside memory",
        VcpuExit::MemoryFault { .. } => "memory fault",
        VcpuExit::Hlt => "halt",
        VcpuExit::Shutdown => "triple fault",
        VcpuExit::InternalError => "instruction that KVM cannot carry out",
        VcpuExit::FailEntry(..) => "state that the processor refuses",
        _ => "unknown exit",
    }
}

const AVX_512: u64 = 0b1110_0000;

/// What the processor has that programs may use, and the value of `XCR0`. KVM takes its time to say.
fn features(kvm: &Kvm) -> io::Result<&'static (CpuId, u64)> {
    static FEATURES: OnceLock<(CpuId, u64)> = OnceLock::new();
    if let Some(features) = FEATURES.get() {
        return Ok(features);
    }
    let features = ask_for_features(kvm)?;
    Ok(FEATURES.get_or_init(|| features))
}

fn ask_for_features(kvm: &Kvm) -> io::Result<(CpuId, u64)> {
    let mut cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?;
    // The leaves of KVM itself: interfaces for kernels.
    cpuid.retain(|entry| !(0x4000_0000..0x5000_0000).contains(&entry.function));
    let mut xcr0 = 0b11;
    for entry in cpuid.as_mut_slice() {
        match (entry.function, entry.index) {
            // MONITOR, VMX, x2APIC, TSC deadline.
            (1, _) => entry.ecx &= !(1 << 3 | 1 << 5 | 1 << 21 | 1 << 24),
            (7, 0) => {
                // PKU, CET, LA57.
                entry.ecx &= !(1 << 3 | 1 << 4 | 1 << 7 | 1 << 16);
                // UINTR, IBT, AMX.
                entry.edx &= !(1 << 5 | 1 << 20 | 1 << 22 | 1 << 24 | 1 << 25);
            }
            (0xd, 0) => {
                let has = u64::from(entry.eax) & ALLOWED;
                xcr0 = if has & AVX_512 == AVX_512 { has } else { has & !AVX_512 };
                (entry.eax, entry.edx) = (xcr0 as u32, 0);
            }
            // SVM.
            (0x8000_0001, _) => entry.ecx &= !(1 << 2),
            _ => {}
        }
    }
    Ok((cpuid, xcr0))
}

/// The processor, as guests see it.
pub(crate) struct Processor {
    /// Its maker and kind.
    pub(crate) name: String,
    /// A hash of all that programs can find out about it.
    pub(crate) features: String,
}

/// What guests find out about the processor with CPUID, and the vector registers that they have.
pub(crate) fn processor(kvm: &Kvm) -> io::Result<Processor> {
    let (cpuid, xcr0) = features(kvm)?;
    let mut hash = Sha256::new();
    hash.update(xcr0.to_le_bytes());
    let mut name = String::new();
    for entry in cpuid.as_slice() {
        let mut values = [entry.eax, entry.ebx, entry.ecx, entry.edx];
        match entry.function {
            // The number of the processor on which KVM was asked.
            1 => {
                values[1] &= 0x00ff_ffff;
                name.push_str(&kind(entry.eax));
            }
            0xb | 0x1f => values[3] = 0,
            0x8000_001e => (values[0], values[1], values[2]) = (0, 0, 0),
            0 => {
                let maker = [entry.ebx, entry.edx, entry.ecx].map(u32::to_le_bytes).concat();
                name.push_str(&String::from_utf8_lossy(&maker));
            }
            _ => {}
        }
        for value in [entry.function, entry.index].into_iter().chain(values) {
            hash.update(value.to_le_bytes());
        }
    }
    let features = hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Processor { name, features })
}

/// Family and model of a processor (AMD64 Architecture Programmer's Manual Vol. 3, E.3.2).
fn kind(signature: u32) -> String {
    let [base, extended] = [signature >> 8 & 0xf, signature >> 20 & 0xff];
    let family = base + if base == 0xf { extended } else { 0 };
    let model = signature >> 4 & 0xf | if base >= 6 { signature >> 12 & 0xf0 } else { 0 };
    format!(" family {family} model {model} stepping {}", signature & 0xf)
}

/// Long mode with our tables, in ring 3 (AMD64 Architecture Programmer's Manual Vol. 2, 14.6).
fn set_system(system: &mut kvm_sregs) {
    // Protection, coprocessor, write protection, alignment, paging.
    system.cr0 = 0x8005_0033;
    system.cr3 = ROOT;
    // PAE, FXSAVE, SIMD exceptions, FSGSBASE, XSAVE.
    system.cr4 = 1 << 5 | 1 << 9 | 1 << 10 | 1 << 16 | 1 << 18;
    // SYSCALL, long mode, no-execute.
    system.efer = 1 | 1 << 8 | 1 << 10 | 1 << 11;
    system.cs = stubs::user_code();
    let data = stubs::user_data();
    (system.ss, system.ds, system.es, system.fs, system.gs) = (data, data, data, data, data);
    system.tr = stubs::task();
    (system.gdt, system.idt) = stubs::descriptor_tables();
}

fn set_call_entry(fd: &VcpuFd, entry: CallEntry) -> io::Result<()> {
    const STAR: u32 = 0xc000_0081;
    const LSTAR: u32 = 0xc000_0082;
    const SFMASK: u32 = 0xc000_0084;
    // In ring 0: traps, interrupts, direction, nested task, alignment checks off.
    let mask = match entry {
        CallEntry::Ring0 => 0x4_4700,
        CallEntry::Ring3 => 0,
    };
    let values = [(STAR, stubs::STAR), (LSTAR, DISPATCH), (SFMASK, mask)];
    let values = values.map(|(index, data)| kvm_msr_entry { index, data, ..Default::default() });
    let msrs = Msrs::from_entries(&values).map_err(|_| io::ErrorKind::InvalidInput)?;
    match fd.set_msrs(&msrs)? == values.len() {
        true => Ok(()),
        false => Err(io::Error::other("KVM does not set the entry of system calls")),
    }
}

/// Has the guest read the host's time-stamp counter, which is from Linux 5.16 on a matter of an offset.
/// Where that cannot be set, the probe finds out whether the two are the same.
fn share_counter(fd: &VcpuFd) {
    /// `_IOW(KVMIO, 0xe1, struct kvm_device_attr)`.
    const SET_DEVICE_ATTR: libc::c_ulong =
        (1 << 30 | size_of::<kvm_device_attr>() << 16 | (KVMIO as usize) << 8 | 0xe1) as _;
    let offset = 0u64;
    let attribute = kvm_device_attr {
        group: KVM_VCPU_TSC_CTRL,
        attr: KVM_VCPU_TSC_OFFSET.into(),
        addr: (&raw const offset) as u64,
        flags: 0,
    };
    // SAFETY: the call reads the attribute and the word that it names, both of which live here.
    unsafe { libc::ioctl(fd.as_raw_fd(), SET_DEVICE_ATTR, &raw const attribute) };
}

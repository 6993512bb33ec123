//! A virtual machine: the guest-physical memory of one sandbox, and what it has written of it.
#![allow(unsafe_code, reason = "gives host memory to KVM, and calls what the bindings lack")]

use std::{io, os::fd::AsRawFd as _, sync::Arc};

use kvm_bindings::{
    KVM_CAP_DIRTY_LOG_RING, KVM_CAP_DIRTY_LOG_RING_ACQ_REL, KVM_MEM_LOG_DIRTY_PAGES, KVMIO,
    kvm_dirty_gfn, kvm_enable_cap, kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, MsrFilterDefaultAction, MsrFilterRange, MsrFilterRangeFlags, VmFd};
use sandtide_memory::Reservation;

use crate::{
    memory::Memory,
    paging::{END, PAGE, SYSTEM, USER_END},
    stubs::CallEntry,
    vcpu::Vcpu,
};

/// How many pages can be written before the guest stops to have them taken note of.
pub(crate) const RING_ENTRIES: usize = 4096;

/// A part of the program's addresses that KVM is told of as one.
pub(crate) const CHUNK: u64 = 1 << 30;

/// The slot behind those of the chunks: system pages and page tables.
const SYSTEM_SLOT: u32 = (USER_END / CHUNK) as u32;

/// A virtual machine without devices.
pub(crate) struct Vm {
    fd: VmFd,
    /// What KVM has as guest memory: mapped for as long as KVM may write to it.
    host: Arc<Reservation>,
    /// The chunks that KVM knows.
    chunks: u64,
}

const _: () = assert!(SYSTEM_SLOT <= u64::BITS);

impl Vm {
    /// A machine with this memory.
    pub(crate) fn new(kvm: &Kvm, memory: &Memory) -> io::Result<Self> {
        let fd = kvm.create_vm()?;
        let size = (RING_ENTRIES * size_of::<kvm_dirty_gfn>()) as u64;
        let enable = |cap| {
            fd.enable_cap(&kvm_enable_cap { cap, args: [size, 0, 0, 0], ..Default::default() })
        };
        enable(KVM_CAP_DIRTY_LOG_RING_ACQ_REL).or_else(|_| enable(KVM_CAP_DIRTY_LOG_RING))?;
        // No guest code has business with model-specific registers. A filter that denies all must
        // have a range.
        fd.set_msr_filter(
            MsrFilterDefaultAction::DENY,
            &[MsrFilterRange {
                flags: MsrFilterRangeFlags::READ | MsrFilterRangeFlags::WRITE,
                base: 0,
                msr_count: 1,
                bitmap: &[0],
            }],
        )?;
        let this = Self { fd, host: Arc::clone(memory.host()), chunks: 0 };
        this.add(SYSTEM_SLOT, SYSTEM, END - SYSTEM)?;
        Ok(this)
    }

    /// Tells KVM of the parts of its memory that a guest has come to use. Each takes milliseconds,
    /// so they are large, and are never taken away.
    pub(crate) fn attach(&mut self, chunks: u64) -> io::Result<()> {
        let mut missing = chunks & !self.chunks;
        while missing != 0 {
            let chunk = missing.trailing_zeros();
            self.add(chunk, u64::from(chunk) * CHUNK, CHUNK)?;
            self.chunks |= 1 << chunk;
            missing &= missing - 1;
        }
        Ok(())
    }

    fn add(&self, slot: u32, start: u64, length: u64) -> io::Result<()> {
        assert!(start + length <= END);
        let region = kvm_userspace_memory_region {
            slot,
            flags: KVM_MEM_LOG_DIRTY_PAGES,
            guest_phys_addr: start,
            memory_size: length,
            userspace_addr: self.host.base() as u64 + start,
        };
        // SAFETY: the range is inside the reservation, which has `END` bytes and which this
        // machine and its processor keep mapped; slots do not overlap, as each number and range
        // is used once. While the guest runs, nobody has a view of it (`Vcpu::run`).
        unsafe { self.fd.set_user_memory_region(region).map_err(io::Error::from) }
    }

    /// The machine's only processor.
    pub(crate) fn processor(&self, kvm: &Kvm, entry: CallEntry) -> io::Result<Vcpu> {
        Vcpu::new(self.fd.create_vcpu(0)?, kvm, entry, Arc::clone(&self.host))
    }

    /// Makes room in the ring of written pages, and has KVM notice the next write to each page of
    /// which note was taken.
    pub(crate) fn reset_ring(&self) -> io::Result<()> {
        /// `_IO(KVMIO, 0xc7)`.
        const KVM_RESET_DIRTY_RINGS: libc::c_ulong = ((KVMIO << 8) | 0xc7) as libc::c_ulong;
        // SAFETY: the call takes no argument and touches only entries of the ring that were
        // marked as taken note of.
        match unsafe { libc::ioctl(self.fd.as_raw_fd(), KVM_RESET_DIRTY_RINGS, 0) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The page that an entry of the ring speaks of; `None` for what no slot of ours has.
pub(crate) fn page_of(entry: &kvm_dirty_gfn) -> Option<u64> {
    let (start, length) = match entry.slot {
        SYSTEM_SLOT => (SYSTEM, END - SYSTEM),
        chunk if chunk < SYSTEM_SLOT => (u64::from(chunk) * CHUNK, CHUNK),
        _ => return None,
    };
    (entry.offset < length / PAGE).then(|| start / PAGE + entry.offset)
}

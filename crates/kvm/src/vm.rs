//! A virtual machine: the guest-physical memory of one sandbox, and what it has written of it.
#![allow(unsafe_code, reason = "gives host memory to KVM, and calls what the bindings lack")]

use std::{io, ops::Range, os::fd::AsRawFd as _, sync::Arc};

use kvm_bindings::{
    KVM_CAP_DIRTY_LOG_RING, KVM_CAP_DIRTY_LOG_RING_ACQ_REL, KVM_MEM_LOG_DIRTY_PAGES, KVMIO,
    kvm_dirty_gfn, kvm_enable_cap, kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, MsrFilterDefaultAction, MsrFilterRange, MsrFilterRangeFlags, VmFd};
use sandtide_memory::Reservation;

use crate::{
    memory::{Chunks, Memory},
    paging::{END, PAGE},
    ring,
    stubs::CallEntry,
    vcpu::Vcpu,
};

/// A virtual machine without devices.
pub(crate) struct Vm {
    fd: VmFd,
    /// What KVM has as guest memory: mapped for as long as KVM may write to it.
    host: Arc<Reservation>,
    /// The parts of it that KVM knows.
    chunks: Chunks,
    slots: Slots,
    ring_entries: usize,
}

/// The pages that KVM knows under a slot's number.
#[derive(Debug, Default)]
pub(crate) struct Slots(Vec<Range<u64>>);

impl Slots {
    /// The page that an entry of the ring speaks of; `None` for what no slot has.
    pub(crate) fn page_of(&self, entry: &kvm_dirty_gfn) -> Option<u64> {
        let pages = self.0.get(entry.slot as usize)?;
        (entry.offset < pages.end - pages.start).then(|| pages.start + entry.offset)
    }
}

impl Vm {
    /// A machine with this memory.
    pub(crate) fn new(kvm: &Kvm, memory: &Memory) -> io::Result<Self> {
        let fd = kvm.create_vm()?;
        let ring_entries = ring::entries_for(memory.limit_pages());
        let size = ring::size(ring_entries) as u64;
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
        let mut this = Self {
            fd,
            host: Arc::clone(memory.host()),
            chunks: Chunks::new(),
            slots: Slots::default(),
            ring_entries,
        };
        this.attach(memory.chunks())?;
        Ok(this)
    }

    /// Tells KVM of the parts of its memory that a guest has come to use. They are never taken away.
    pub(crate) fn attach(&mut self, chunks: &Chunks) -> io::Result<()> {
        if chunks.count() == self.chunks.count() {
            return Ok(());
        }
        for pages in chunks.pages_beyond(&self.chunks) {
            self.add(&pages)?;
            self.slots.0.push(pages.clone());
            self.chunks.add(&pages);
        }
        Ok(())
    }

    fn add(&self, pages: &Range<u64>) -> io::Result<()> {
        assert!(pages.start < pages.end && pages.end * PAGE <= END);
        let start = pages.start * PAGE;
        let region = kvm_userspace_memory_region {
            slot: self.slots.0.len() as u32,
            flags: KVM_MEM_LOG_DIRTY_PAGES,
            guest_phys_addr: start,
            memory_size: pages.end * PAGE - start,
            userspace_addr: self.host.base() as u64 + start,
        };
        // SAFETY: the range is inside the reservation, which has `END` bytes and which this
        // machine and its processor keep mapped; slots do not overlap, as each number and range
        // is used once. While the guest runs, nobody has a view of it (`Vcpu::run`).
        unsafe { self.fd.set_user_memory_region(region).map_err(io::Error::from) }
    }

    /// What the numbers of slots mean.
    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The machine's only processor.
    pub(crate) fn processor(&self, kvm: &Kvm, entry: CallEntry) -> io::Result<Vcpu> {
        Vcpu::new(self.fd.create_vcpu(0)?, kvm, entry, Arc::clone(&self.host), self.ring_entries)
    }

    /// Frees entries of the ring of written pages, as marked by [`Vcpu::free_ring`], and has KVM notice
    /// the next write to each page that they speak of.
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

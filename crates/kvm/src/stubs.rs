//! The few pages that stand in for an operating system: how a guest enters the host, and back.
//!
//! ```text
//!  SYSTEM + 0   entry of SYSCALL, readable by ring 3
//!         + 1   interrupt descriptors
//!         + 2   global descriptors; the task state and its I/O bitmap (2 pages)
//!         + 4   exception vectors
//!         + 5   stack of the exception vectors
//!         + 6   way back with vector registers, readable by ring 3
//!         + 7   the vector registers of the snapshot, likewise
//!         + 8   functions for clocks, likewise
//!         + 9   the desk, which ring 3 may write
//! ```
//!
//! `SYSCALL` goes to the entry, which answers some calls itself ([`crate::inside`]), and leaves the
//! guest for others by writing to port [`CALL_PORT`]. The host carries the call out, sets `rax`, and the guest goes back to its program by itself. Where
//! `SYSCALL` enters ring 0, as the manuals have it, that is `SYSRET`; where it stays in ring 3, it is a
//! jump, and the task's I/O bitmap allows the port. An exception enters ring 0 on a stack of its
//! own and writes to the port of its vector; the host takes the program's registers from that
//! stack and sets them when the program goes on. No code here is trusted by the host.
//!
//! KVM has a call that sets the vector registers, but it takes microseconds. After a reset, the
//! thread that waits in a call starts at [`RESTORE`], which loads them from a page of the snapshot and `rax`
//! from `r11`, and goes where `rcx` says: a call leaves these two to the kernel.
//!
//! (AMD64 Architecture Programmer's Manual Vol. 2, 6.1 "Fast System Call and Return", 8.9 "Long-Mode
//! Interrupt Control Transfers", 12.2.5 "64-Bit Task State Segment".)

use std::fmt;

use kvm_bindings::{kvm_dtable, kvm_segment};

use crate::{
    inside::{self, DESK_PAGES},
    paging::{PAGE, SYSTEM, SystemPage},
};

/// The port of a system call.
pub(crate) const CALL_PORT: u16 = 0x10;

/// The port of exception 0. Those of the others follow.
pub(crate) const EXCEPTION_PORT: u16 = 0x20;

/// How many exceptions there are.
pub(crate) const EXCEPTIONS: u16 = 32;

const INTERRUPTS: u64 = SYSTEM + PAGE;
const GLOBALS: u64 = SYSTEM + 2 * PAGE;
const TASK: u64 = GLOBALS + 0x100;
const VECTORS: u64 = SYSTEM + 4 * PAGE;

/// Where the stack of exceptions starts; it grows down from there.
pub(crate) const STACK_TOP: u64 = SYSTEM + 6 * PAGE;

/// Where a thread goes on that gets the vector registers of [`VECTORS_AREA`].
pub(crate) const RESTORE: u64 = SYSTEM + 6 * PAGE;

/// Where those are: an area as XSAVE makes it.
pub(crate) const VECTORS_AREA: u64 = SYSTEM + 7 * PAGE;

/// `mov eax, -1; xrstor64 [rip + …]; mov rax, r11; jmp rcx`. The features that `edx` names do not
/// exist.
const RESTORE_CODE: &[u8] = &[
    0xb8, 0xff, 0xff, 0xff, 0xff, 0x48, 0x0f, 0xae, 0x2d, 0xf3, 0x0f, 0, 0, 0x4c, 0x89, 0xd8, 0xff,
    0xe1,
];

const _: () = {
    // From the end of `xrstor64`, 13 bytes into the code.
    assert!(VECTORS_AREA - (RESTORE + 13) == 0xff3);
};

/// The page of the code that `SYSCALL` goes to.
pub(crate) const ENTRY: u64 = SYSTEM;

/// The bytes between two vectors.
const VECTOR_LENGTH: u64 = 16;

/// The length of a task state without its I/O bitmap.
const TASK_LENGTH: u64 = 0x68;

/// Ports that the bitmap speaks of: those beyond are forbidden too.
const PORTS: u64 = 64;

/// Where the processor finds the kernel's and the program's segments.
pub(crate) mod selector {
    /// Ring 0 code; ring 0 data follows, as `SYSCALL` wants it.
    pub(crate) const KERNEL: u16 = 0x08;
    /// What `SYSRET` counts from: ring 3 data is 8, ring 3 code is 16 behind it.
    pub(crate) const SYSRET: u16 = 0x18;
    /// Ring 3 data.
    pub(crate) const USER_DATA: u16 = 0x23;
    /// Ring 3 code.
    pub(crate) const USER_CODE: u16 = 0x2b;
    /// The task state.
    pub(crate) const TASK: u16 = 0x30;
}

/// How `SYSCALL` works here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallEntry {
    /// It enters ring 0, as on hardware.
    Ring0,
    /// It jumps, and stays in ring 3.
    Ring3,
}

impl fmt::Display for CallEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring0 => "enter ring 0",
            Self::Ring3 => "stay in ring 3",
        })
    }
}

/// What the pages of the system part are for.
pub(crate) fn pages(entry: CallEntry) -> impl Iterator<Item = SystemPage> {
    let entry = match entry {
        CallEntry::Ring0 => SystemPage::Code,
        CallEntry::Ring3 => SystemPage::UserCode,
    };
    use SystemPage::{Code, Data, Stack, UserCode, UserData, UserShared};
    [entry, Data, Data, Data, Code, Stack, UserCode, UserData, UserCode]
        .into_iter()
        .chain([UserShared; DESK_PAGES])
}

/// Everything that the pages hold: hands `(address, bytes)` to `put`.
pub(crate) fn contents(entry: CallEntry, mut put: impl FnMut(u64, &[u8])) {
    put(ENTRY, inside::entry(entry));
    put(inside::VDSO, &inside::image());
    put(RESTORE, RESTORE_CODE);
    for vector in 0..EXCEPTIONS {
        let handler = VECTORS + u64::from(vector) * VECTOR_LENGTH;
        // out EXCEPTION_PORT + vector, al; and should the guest go on there: hlt, again and again
        put(handler, &[0xe6, (EXCEPTION_PORT + vector) as u8, 0xf4, 0xeb, 0xfd]);
        // INT3 and INTO may be used by ring 3.
        let ring = if vector == 3 || vector == 4 { 3 } else { 0 };
        put(INTERRUPTS + u64::from(vector) * 16, &gate(handler, ring));
    }
    let globals: [u64; 8] = [
        0,
        0x00af_9b00_0000_ffff, // ring 0 code, 64 bits
        0x00cf_9300_0000_ffff, // ring 0 data
        0x00cf_fb00_0000_ffff, // ring 3 code, 32 bits: only what SYSRET counts from
        0x00cf_f300_0000_ffff, // ring 3 data
        0x00af_fb00_0000_ffff, // ring 3 code, 64 bits
        // The task state takes two places.
        TASK_LIMIT | (TASK & 0xff_ffff) << 16 | 0x8b << 40 | (TASK >> 24 & 0xff) << 56,
        TASK >> 32,
    ];
    for (index, descriptor) in (0..).zip(globals) {
        put(GLOBALS + index * 8, &descriptor.to_le_bytes());
    }
    let mut task = [0; (TASK_LIMIT + 1) as usize];
    task[4..12].copy_from_slice(&STACK_TOP.to_le_bytes()); // RSP0
    task[0x24..0x2c].copy_from_slice(&STACK_TOP.to_le_bytes()); // IST1
    task[0x66..0x68].copy_from_slice(&(TASK_LENGTH as u16).to_le_bytes());
    task[TASK_LENGTH as usize..].fill(0xff);
    if entry == CallEntry::Ring3 {
        task[(TASK_LENGTH + u64::from(CALL_PORT) / 8) as usize] = !(1 << (CALL_PORT % 8));
    }
    put(TASK, &task);
}

/// The bitmap ends with a byte of ones.
const TASK_LIMIT: u64 = TASK_LENGTH + PORTS / 8;

/// An interrupt gate on stack 1.
fn gate(handler: u64, ring: u64) -> [u8; 16] {
    let low = (handler & 0xffff)
        | u64::from(selector::KERNEL) << 16
        | 1 << 32
        | (0x8e | ring << 5) << 40
        | (handler >> 16 & 0xffff) << 48;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&low.to_le_bytes());
    bytes[8..].copy_from_slice(&(handler >> 32).to_le_bytes());
    bytes
}

/// The program's code segment.
pub(crate) fn user_code() -> kvm_segment {
    kvm_segment {
        limit: u32::MAX,
        selector: selector::USER_CODE,
        type_: 11,
        present: 1,
        dpl: 3,
        s: 1,
        l: 1,
        g: 1,
        ..kvm_segment::default()
    }
}

/// The program's data segment.
pub(crate) fn user_data() -> kvm_segment {
    kvm_segment {
        limit: u32::MAX,
        selector: selector::USER_DATA,
        type_: 3,
        present: 1,
        dpl: 3,
        db: 1,
        s: 1,
        g: 1,
        ..kvm_segment::default()
    }
}

/// The task state.
pub(crate) fn task() -> kvm_segment {
    kvm_segment {
        base: TASK,
        limit: TASK_LIMIT as u32,
        selector: selector::TASK,
        type_: 11,
        present: 1,
        ..kvm_segment::default()
    }
}

/// The tables of descriptors: global, interrupts.
pub(crate) fn descriptor_tables() -> (kvm_dtable, kvm_dtable) {
    let table = |base, limit| kvm_dtable { base, limit, ..kvm_dtable::default() };
    (table(GLOBALS, 8 * 8 - 1), table(INTERRUPTS, EXCEPTIONS * 16 - 1))
}

/// What `STAR` holds.
pub(crate) const STAR: u64 = (selector::SYSRET as u64) << 48 | (selector::KERNEL as u64) << 32;

/// What an exception leaves at the top of its stack, as far as it concerns the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The error code; only some exceptions have one.
    pub(crate) error: u64,
    pub(crate) rip: u64,
    pub(crate) cs: u64,
    pub(crate) rflags: u64,
    pub(crate) rsp: u64,
}

impl Frame {
    /// Where it lies.
    pub(crate) const ADDRESS: u64 = STACK_TOP - Self::LENGTH as u64;

    /// How long it is, in bytes.
    pub(crate) const LENGTH: usize = 48;

    /// Reads it. Nothing says that an exception wrote it: its values may be anything.
    pub(crate) fn read(bytes: &[u8; Self::LENGTH]) -> Self {
        let mut words = [0; 6];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [error, rip, cs, rflags, rsp, _] = words;
        Self { error, rip, cs, rflags, rsp }
    }

    /// Whether the exception came from the program.
    pub(crate) fn is_users(&self) -> bool {
        self.cs & 3 == 3
    }
}

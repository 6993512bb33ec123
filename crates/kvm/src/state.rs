//! What of a processor no program can change: for the check that none has.
//!
//! Everything else is set whenever a thread goes on from a snapshot: general and vector registers,
//! control registers, segments and descriptor tables, and exceptions under way. Here is the rest.

use std::io;

use kvm_bindings::{Msrs, kvm_msr_entry};
use kvm_ioctls::VcpuFd;

/// Model-specific registers that a kernel has and a program has not (AMD64 Architecture Programmer's
/// Manual Vol. 2, appendix A), without those that count time.
const MSRS: [u32; 14] = [
    0x174,       // SYSENTER_CS
    0x175,       // SYSENTER_ESP
    0x176,       // SYSENTER_EIP
    0x1a0,       // MISC_ENABLE
    0x1d9,       // DEBUGCTL
    0x277,       // PAT
    0x2ff,       // MTRRdefType
    0xda0,       // XSS
    0xc000_0081, // STAR
    0xc000_0082, // LSTAR
    0xc000_0083, // CSTAR
    0xc000_0084, // SFMASK
    0xc000_0102, // KERNEL_GS_BASE
    0xc000_0103, // TSC_AUX
];

/// The state of a processor, as far as no program can change it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State {
    /// Those that this KVM has, with their numbers.
    msrs: Vec<(u32, u64)>,
    /// Addresses of breakpoints, and which of them are on. `DR6` says what the last exception was, and
    /// only to ring 0.
    breakpoints: ([u64; 4], u64),
    /// `XCR0`.
    features: u64,
    /// Whether it runs, is halted, or waits to be started.
    running: u32,
}

impl State {
    /// What it is now.
    pub(crate) fn of(fd: &VcpuFd) -> io::Result<Self> {
        let debug = fd.get_debug_regs()?;
        Ok(Self {
            msrs: MSRS.into_iter().filter_map(|index| msr(fd, index)).collect(),
            breakpoints: (debug.db, debug.dr7),
            features: fd.get_xcrs()?.xcrs[0].value,
            running: fd.get_mp_state()?.mp_state,
        })
    }

    /// The part that is another in `other`, if there is one.
    pub(crate) fn differs_from(&self, other: &Self) -> Option<&'static str> {
        let Self { msrs, breakpoints, features, running } = self;
        let parts = [
            ("model-specific registers", *msrs == other.msrs),
            ("breakpoints", *breakpoints == other.breakpoints),
            ("enabled vector registers", *features == other.features),
            ("processor's running state", *running == other.running),
        ];
        parts.into_iter().find(|(_, is_same)| !is_same).map(|(part, _)| part)
    }
}

/// A register and its value; `None` if this KVM does not have it.
fn msr(fd: &VcpuFd, index: u32) -> Option<(u32, u64)> {
    let entry = kvm_msr_entry { index, ..kvm_msr_entry::default() };
    let mut msrs = Msrs::from_entries(&[entry]).ok()?;
    let found = fd.get_msrs(&mut msrs).ok()? == 1;
    found.then(|| (index, msrs.as_slice()[0].data))
}

//! Floating-point and vector registers, as they lie in memory.

use kvm_bindings::kvm_xsave;

/// The size of the area, in bytes.
const AREA: usize = 4096;

/// Which components it has (`XSTATE_BV`; Intel SDM Vol. 1, 13.4.2 "XSAVE Header").
const COMPONENTS: usize = 512;

/// What programs may use: x87, SSE, AVX, AVX-512. Loading others would be an exception.
pub(crate) const ALLOWED: u64 = 0b1110_0111;

/// What KVM says of the registers as XRSTOR takes it.
pub(crate) fn area(extended: &kvm_xsave) -> [u8; AREA] {
    let mut area = [0; AREA];
    for (bytes, word) in area.as_chunks_mut::<4>().0.iter_mut().zip(extended.region) {
        *bytes = word.to_le_bytes();
    }
    let components = &mut area[COMPONENTS..COMPONENTS + 8];
    for (byte, allowed) in components.iter_mut().zip(ALLOWED.to_le_bytes()) {
        *byte &= allowed;
    }
    area
}

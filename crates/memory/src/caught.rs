//! Loads that nobody checks before: the host does, and its fault is caught.
//!
//! ```text
//!   the load ──▶ its bytes
//!       └─ SIGSEGV ─▶ the handler asks `instead_of` ─▶ goes on where the load yields `None`
//! ```
//!
//! Each load, wherever the compiler puts it, leaves an entry in a section of its own.

use std::arch::asm;

use crate::Space;

/// An entry: addresses relative to where they are written.
#[repr(C)]
struct Entry {
    load: i32,
    instead: i32,
}

unsafe extern "C" {
    // The linker names both ends of a section so.
    #[link_name = "__start_sandtide_caught"]
    static FIRST: [Entry; 0];
    #[link_name = "__stop_sandtide_caught"]
    static END: [Entry; 0];
}

/// Where to go on if the instruction at an address faults; `None` if it is not one of these loads.
/// Async-signal-safe.
pub fn instead_of(instruction: usize) -> Option<usize> {
    let (first, end) = ((&raw const FIRST).cast::<Entry>(), (&raw const END).cast::<Entry>());
    // SAFETY: both are ends of one section, which holds entries and nothing else.
    let entries = unsafe { std::slice::from_raw_parts(first, end.offset_from_unsigned(first)) };
    let address = |field: &i32| (&raw const *field).addr().wrapping_add_signed(*field as isize);
    let entry = entries.iter().find(|entry| address(&entry.load) == instruction)?;
    Some(address(&entry.instead))
}

/// A number that can be loaded so.
pub trait Caught: Sized {
    /// Loads a number at any alignment, and puts it into a register of the guest, extended by its
    /// sign or zeros. `None` if the host has faulted: what that means, [`Space::load`] knows.
    ///
    /// # Safety
    /// The space must be mirrored ([`Space::is_mirrored`]), and a handler of SIGSEGV must go on at
    /// what [`instead_of`] says.
    unsafe fn load(space: &Space, address: u32, register: &mut u64) -> Option<()>;
}

macro_rules! caught {
    ($($number:ty: $instruction:literal;)*) => {$(
        impl Caught for $number {
            #[inline(always)]
            unsafe fn load(space: &Space, address: u32, register: &mut u64) -> Option<()> {
                // SAFETY: the address is in the reservation, of which all can be read that the
                // guest may read, and the rest faults. Then the register is as it was, and what
                // follows goes on at the label, as the caller promises.
                unsafe {
                    asm!(
                        concat!("2: ", $instruction, " ptr [{base} + {address}]"),
                        "mov [{register}], {value}",
                        ".pushsection sandtide_caught, \"aR\", @progbits",
                        ".balign 4",
                        ".long 2b - .",
                        ".long {instead} - .",
                        ".popsection",
                        base = in(reg) space.memory.base(),
                        address = in(reg) u64::from(address),
                        register = in(reg) register,
                        value = out(reg) _,
                        instead = label { return None },
                        options(nostack, preserves_flags),
                    );
                }
                Some(())
            }
        }
    )*};
}

caught! {
    i8: "movsx {value}, byte";
    i16: "movsx {value}, word";
    i32: "movsxd {value}, dword";
    u8: "movzx {value:e}, byte";
    u16: "movzx {value:e}, word";
    u32: "mov {value:e}, dword";
    u64: "mov {value}, qword";
}

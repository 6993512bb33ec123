//! Guest code, assembled with this crate.
#![allow(unsafe_code, reason = "takes the bytes between two labels")]

/// The bytes between two labels.
pub(crate) fn between(start: *const u8, end: *const u8) -> &'static [u8] {
    // SAFETY: `code!` has laid both labels into one read-only section, the code between them.
    unsafe { std::slice::from_raw_parts(start, end.offset_from(start) as usize) }
}

/// A function that returns the bytes of some guest code. It begins at a multiple of 16 bytes; label
/// `7` is its beginning.
macro_rules! code {
    ($visible:vis $name:ident: [$($line:expr),+ $(,)?] $(, $constant:ident = $value:expr)* $(,)?) => {
        core::arch::global_asm!(
            ".pushsection .rodata.guests, \"a\", @progbits",
            ".balign 16",
            concat!(".globl kvm_code_", stringify!($name), "_start"),
            concat!("kvm_code_", stringify!($name), "_start:"),
            "7:",
            $($line),+,
            concat!(".globl kvm_code_", stringify!($name), "_end"),
            concat!("kvm_code_", stringify!($name), "_end:"),
            ".popsection",
            $($constant = const $value),*
        );
        $visible fn $name() -> &'static [u8] {
            unsafe extern "C" {
                #[link_name = concat!("kvm_code_", stringify!($name), "_start")]
                static START: u8;
                #[link_name = concat!("kvm_code_", stringify!($name), "_end")]
                static END: u8;
            }
            $crate::inside::code::between(&raw const START, &raw const END)
        }
    };
}
pub(crate) use code;

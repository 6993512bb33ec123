//! Reading a program's file: RV64 ELF (RISC-V ELF psABI).

use object::elf::{EF_RISCV_FLOAT_ABI_QUAD, EF_RISCV_RVE, EM_RISCV};
use sandtide_engine::LoadError;
use sandtide_linux::elf::{self, Target};

pub(crate) use sandtide_linux::elf::{Image, Segment};

const TARGET: Target = Target {
    machine: EM_RISCV,
    compile: "compile it for riscv64-linux",
    pie_base: 0x1_0000,
    highest: 0xe000_0000,
    link_lower: "guest memory is 32 bits wide: link below 0xe0000000",
    interpreter: false,
    check_flags,
};

/// Whether a file is an ELF for RISC-V, by its first bytes.
pub(crate) fn is_riscv(image: &[u8]) -> bool {
    elf::is_for(EM_RISCV, image)
}

/// Reads and checks a file. Nothing in it is believed.
pub(crate) fn parse(data: &[u8]) -> Result<Image<'_>, LoadError> {
    elf::parse(data, &TARGET)
}

fn check_flags(flags: u32) -> Option<(String, &'static str)> {
    let wrong =
        flags & EF_RISCV_RVE != 0 || flags & EF_RISCV_FLOAT_ABI_QUAD == EF_RISCV_FLOAT_ABI_QUAD;
    let what = || format!("built for RV64E or with quad-precision registers (flags {flags:#x})");
    wrong.then(|| (what(), "compile with `-march=rv64gc -mabi=lp64d`"))
}

#[cfg(test)]
mod tests;

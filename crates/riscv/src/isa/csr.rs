//! Control and status registers (RISC-V Unprivileged ISA, "Zicsr", "Zicntr", "Floating-Point
//! Control and Status Register").

use super::{
    cpu::Cpu,
    insn::{Insn, csr_fields},
};

const FFLAGS: u64 = 0x001;
const FRM: u64 = 0x002;
const FCSR: u64 = 0x003;
const CYCLE: u64 = 0xc00;
const TIME: u64 = 0xc01;
const INSTRET: u64 = 0xc02;

/// How many instructions make one tick of `time`. A guest gets the true time from system calls;
/// this counter only has to advance, and must not be a clock fine enough to spy on neighbours.
const INSTRUCTIONS_PER_TICK: u64 = 100;

/// The instruction names a CSR that user mode does not have, or writes one that is read-only.
pub(crate) struct NoSuchCsr;

/// Executes a CSR instruction. `cpu.fflags` must be up to date; `retired` is the number of
/// instructions that this thread has retired.
#[inline(never)]
pub(crate) fn execute(cpu: &mut Cpu, insn: Insn, retired: u64) -> Result<(), NoSuchCsr> {
    let fields = insn.immediate();
    let number = fields & csr_fields::NUMBER;
    let function = fields >> csr_fields::FUNCTION_SHIFT & 7;
    let old = match number {
        FFLAGS => u64::from(cpu.fflags),
        FRM => u64::from(cpu.frm),
        FCSR => u64::from(cpu.fcsr()),
        CYCLE | INSTRET => retired,
        TIME => retired / INSTRUCTIONS_PER_TICK,
        _ => return Err(NoSuchCsr),
    };
    if fields & csr_fields::WRITES != 0 {
        // Functions 5 to 7 have the value in the instruction instead of a register.
        let operand = if function >= 4 { insn.s1() as u64 } else { cpu.x[insn.s1()] };
        let value = match function & 3 {
            1 => operand,
            2 => old | operand,
            _ => old & !operand,
        };
        match number {
            FFLAGS => cpu.fflags = (value & 31) as u8,
            FRM => cpu.frm = (value & 7) as u8,
            FCSR => cpu.set_fcsr(value as u32),
            _ => return Err(NoSuchCsr),
        }
    }
    cpu.x[insn.d()] = old;
    Ok(())
}

//! The exceptions that have accrued (`fflags`), and `frm`, read and written by instructions.
//!
//! What the host has raised is in MXCSR, what the interpreter's functions have raised in
//! [`Cpu`](crate::isa::Cpu). Two pieces of host code of a few bytes move MXCSR to the frame and
//! back, which the code generator cannot; a table in the frame says which RISC-V flags its bits are.
//!
//! Compilers compare quietly by a comparison that is not, and put the flags back behind it:
//!
//! ```text
//!  frflags a4
//!  flt.d   a5, fa0, fa1
//!  fsflags a4
//! ```
//!
//! The host's comparison is quiet, so that none of this needs the flags, except for signalling NaNs.

use cranelift_codegen::ir::{BlockArg, InstBuilder, Value, condcodes::FloatCC, types};

use super::{
    frame, helpers,
    lower::{Lowering, THERE},
};
use crate::isa::insn::{FloatFields, FloatFunction, Insn, SINK, csr_fields, op};

const FFLAGS: u64 = 1;
const FRM: u64 = 2;

/// The bits of MXCSR that tell which exceptions have accrued (Intel SDM Vol. 1 §10.2.3).
const ACCRUED: i64 = 63;

/// The flags for each value of the accrued bits: IE 0, DE 1, ZE 2, OE 3, UE 4, PE 5.
pub(super) const FLAGS_OF_HOST: [u8; 64] = {
    let mut table = [0; 64];
    let mut bits = 0;
    while bits < 64 {
        let flags = (bits & 1) << 4 | (bits & 4) << 1 | (bits & 8) >> 1;
        table[bits] = (flags | (bits & 16) >> 3 | (bits & 32) >> 5) as u8;
        bits += 1;
    }
    table
};

/// The host code that moves MXCSR: `stmxcsr [r15 + offset]`, `ret`; or `ldmxcsr`.
pub(super) fn mover(is_load: bool) -> [u8; 9] {
    let [a, b, c, d] = frame::MXCSR.to_le_bytes();
    [0x41, 0x0f, 0xae, if is_load { 0x97 } else { 0x9f }, a, b, c, d, 0xc3]
}

fn number(insn: Insn) -> u64 {
    insn.immediate() & csr_fields::NUMBER
}

fn writes(insn: Insn) -> bool {
    insn.immediate() & csr_fields::WRITES != 0
}

/// Whether translated code can execute a CSR instruction.
pub(super) fn is_translated(insn: Insn) -> bool {
    match number(insn) {
        FFLAGS => true,
        FRM => !writes(insn),
        _ => false,
    }
}

/// Whether an instruction reads the flags, and the next two compare and put them back.
fn is_quiet_comparison(insn: Insn, rest: &[Insn]) -> bool {
    let [compare, write, ..] = rest else { return false };
    let compares = matches!(compare.op(), op::FLOAT_S | op::FLOAT_D)
        && matches!(
            FloatFields::of(*compare).function(),
            FloatFunction::Equal | FloatFunction::Less | FloatFunction::LessOrEqual
        );
    let function = |insn: Insn| insn.immediate() >> csr_fields::FUNCTION_SHIFT & 7;
    compares
        && (write.op() == op::CSR && number(*write) == FFLAGS && writes(*write))
        && function(*write) == 1
        && matches!(write.d(), 0 | SINK_INDEX)
        && write.s1() == insn.d()
        && compare.d() != insn.d()
        && !matches!(insn.d(), 0 | SINK_INDEX)
}

const SINK_INDEX: usize = SINK as usize;

impl Lowering<'_> {
    /// Translates a CSR instruction of those that [`is_translated`] says.
    pub(super) fn csr(&mut self, insn: Insn) {
        if number(insn) == FRM {
            // Translated code runs only while it is 0.
            let zero = self.constant(0);
            self.set_x(insn.d(), zero);
        } else if !writes(insn) {
            let flags = self.read_flags();
            self.set_x(insn.d(), flags);
            self.is_quiet = is_quiet_comparison(insn, self.rest);
        } else if self.is_quiet {
            // They are what they were.
            self.is_quiet = false;
        } else {
            let (bits, operand) = (self.constant(insn.0), self.x(insn.s1()));
            let (_, old) = self.help(helpers::FLAGS, &[bits, operand]);
            self.set_x(insn.d(), old);
        }
    }

    fn read_flags(&mut self) -> Value {
        self.move_mxcsr(helpers::STORE_MXCSR);
        let base = self.base();
        let host = self.builder.ins().uload32(THERE, base, frame::MXCSR);
        let host = self.builder.ins().band_imm(host, ACCRUED);
        let base = self.base();
        let entry = self.builder.ins().iadd(base, host);
        let raised = self.builder.ins().uload8(types::I64, THERE, entry, frame::FLAGS_OF_HOST);
        let fflags = self.load_frame(frame::FFLAGS);
        let others = self.builder.ins().uload8(types::I64, THERE, fflags, 0);
        self.builder.ins().bor(raised, others)
    }

    fn move_mxcsr(&mut self, mover: usize) {
        let function = self.load_frame(frame::helper(mover));
        self.builder.ins().call_indirect(self.helper, function, &[]);
    }

    /// A comparison between two instructions that read the flags and put them back.
    pub(super) fn compare_quietly(&mut self, condition: FloatCC, a: Value, b: Value) -> Value {
        let (numbers, other) = (self.builder.create_block(), self.builder.create_block());
        let done = self.builder.create_block();
        let result = self.builder.append_block_param(done, types::I64);
        self.set_cold(other);
        let are_numbers = self.builder.ins().fcmp(FloatCC::Ordered, a, b);
        self.builder.ins().brif(are_numbers, numbers, &[], other, &[]);
        self.begin(other);
        // A signalling NaN has raised something. The frame still has what was read before.
        self.move_mxcsr(helpers::LOAD_MXCSR);
        let no = self.constant(0);
        self.builder.ins().jump(done, &[BlockArg::Value(no)]);
        self.begin(numbers);
        let holds = self.builder.ins().fcmp(condition, a, b);
        let holds = self.builder.ins().uextend(types::I64, holds);
        self.builder.ins().jump(done, &[BlockArg::Value(holds)]);
        self.begin(done);
        result
    }
}

//! Instructions as the interpreter keeps them: as decoded, but that the commonest floating-point
//! instructions have operations of their own, which the interpreter's loop carries out itself as
//! long as the host can.

use super::insn::{FloatFields, FloatFunction, Insn, op};

/// The first of the numbers of these operations; those in [`op`] stay below.
const FIRST: u8 = 192;

/// Numbers the operations: those in single precision at even numbers, the same one in double
/// precision behind it. `rm` are the rounding modes that an operation is for.
macro_rules! quick_operations {
    ($($single:ident $double:ident: $function:ident $modes:expr;)*) => {
        #[repr(u8)]
        enum Number { $($function),* }

        $(
            pub(super) const $single: u8 = FIRST + 2 * Number::$function as u8;
            pub(super) const $double: u8 = $single + 1;
        )*

        /// The operation in single precision, and its rounding modes, of a function.
        fn of(function: FloatFunction) -> Option<(u8, &'static [u32])> {
            match function {
                $(FloatFunction::$function => Some(($single, &$modes)),)*
                _ => None,
            }
        }
    };
}

/// To nearest, or as `frm` says.
const NEAREST: [u32; 2] = [0, 7];
const TOWARD_ZERO: [u32; 1] = [1];
/// What the decoder sets where nothing is rounded.
const NONE: [u32; 1] = [0];

quick_operations! {
    ADD_S ADD_D: Add NEAREST;
    SUB_S SUB_D: Sub NEAREST;
    MUL_S MUL_D: Mul NEAREST;
    DIV_S DIV_D: Div NEAREST;
    SQRT_S SQRT_D: Sqrt NEAREST;
    MUL_ADD_S MUL_ADD_D: MulAdd NEAREST;
    MUL_SUB_S MUL_SUB_D: MulSub NEAREST;
    NEG_MUL_ADD_S NEG_MUL_ADD_D: NegMulAdd NEAREST;
    NEG_MUL_SUB_S NEG_MUL_SUB_D: NegMulSub NEAREST;
    SIGN_COPY_S SIGN_COPY_D: SignCopy NONE;
    SIGN_NEGATE_S SIGN_NEGATE_D: SignNegate NONE;
    SIGN_XOR_S SIGN_XOR_D: SignXor NONE;
    EQUAL_S EQUAL_D: Equal NONE;
    LESS_S LESS_D: Less NONE;
    LESS_OR_EQUAL_S LESS_OR_EQUAL_D: LessOrEqual NONE;
    MOVE_TO_INTEGER_S MOVE_TO_INTEGER_D: MoveToInteger NONE;
    MOVE_FROM_INTEGER_S MOVE_FROM_INTEGER_D: MoveFromInteger NONE;
    TO_I32_S TO_I32_D: ToI32 TOWARD_ZERO;
    TO_I64_S TO_I64_D: ToI64 TOWARD_ZERO;
    FROM_I32_S FROM_I32_D: FromI32 NEAREST;
    FROM_I64_S FROM_I64_D: FromI64 NEAREST;
    FROM_OTHER_S FROM_OTHER_D: FromOther NEAREST;
}

const _: () = assert!(op::COUNT <= FIRST as usize && FIRST as usize + 2 * 32 <= 256);

/// A decoded instruction as the interpreter keeps it.
pub(super) fn quicken(insn: Insn) -> Insn {
    let is_double = match insn.op() {
        op::FLOAT_S => 0,
        op::FLOAT_D => 1,
        _ => return insn,
    };
    let fields = FloatFields::of(insn);
    match of(fields.function()) {
        Some((single, modes)) if modes.contains(&fields.rm()) => insn.with_op(single + is_double),
        _ => insn,
    }
}

/// Whether a floating-point instruction is in single precision.
pub(super) fn is_single(insn: Insn) -> bool {
    let op = insn.op();
    op == op::FLOAT_S || op >= FIRST && op % 2 == FIRST % 2
}

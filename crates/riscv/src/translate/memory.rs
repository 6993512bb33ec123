//! Loads and stores.
//!
//! An access is allowed if the page table has the bit for its page ([`sandtide_memory::native`])
//! and it does not reach into the next one. Accesses of a block that use the same base register
//! are checked together, at the first: the range from the lowest to the highest of them. If the
//! table does not allow the range, a helper looks closer, and if it does not either, the
//! interpreter executes what follows, and finds what there is to find.

use cranelift_codegen::ir::{InstBuilder, Type, Value, condcodes::IntCC, types};
use sandtide_memory::{
    PAGE,
    native::{READABLE, TABLE_BELOW},
};

use super::{
    frame::leave,
    helpers,
    lower::{Lowering, THERE},
    measure::{self, Part},
    registers::effects,
};
use crate::isa::insn::{Insn, op};

/// Ranges longer than this are not checked as one: they would span pages too often.
const LONGEST_RANGE: i64 = 1024;

/// Guest memory that was checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fact {
    /// The value of the base register.
    base: Value,
    /// The range, relative to it.
    low: i64,
    high: i64,
    /// Whether stores are allowed, too.
    is_store: bool,
    /// The address of the lowest byte, in 64 bits.
    first: Value,
}

/// The bytes that an instruction accesses, relative to its base register; whether it stores.
fn access(insn: Insn) -> Option<(i64, i64, bool)> {
    let (bytes, is_store) = match insn.op() {
        op::LB | op::LBU => (1, false),
        op::LH | op::LHU => (2, false),
        op::LW | op::C_LW | op::LWU | op::FLW => (4, false),
        op::LD | op::C_LD | op::FLD | op::C_FLD => (8, false),
        op::SB => (1, true),
        op::SH => (2, true),
        op::SW | op::C_SW | op::FSW => (4, true),
        op::SD | op::C_SD | op::FSD | op::C_FSD => (8, true),
        _ => return None,
    };
    Some((insn.immediate() as i64, bytes, is_store))
}

impl Lowering<'_> {
    /// Translates a load.
    pub(super) fn load(&mut self, insn: Insn) {
        let (host, offset) = self.checked(insn);
        macro_rules! integer {
            ($method:ident $ty:ident) => {{
                let value = self.builder.ins().load(types::$ty, THERE, host, offset);
                let value = self.builder.ins().$method(types::I64, value);
                self.set_x(insn.d(), value)
            }};
        }
        match insn.op() {
            op::LB => integer!(sextend I8),
            op::LBU => integer!(uextend I8),
            op::LH => integer!(sextend I16),
            op::LHU => integer!(uextend I16),
            op::LW | op::C_LW => integer!(sextend I32),
            op::LWU => integer!(uextend I32),
            op::LD | op::C_LD => {
                let value = self.builder.ins().load(types::I64, THERE, host, offset);
                self.set_x(insn.d(), value);
            }
            op::FLW => {
                let value = self.builder.ins().load(types::F32, THERE, host, offset);
                self.set_single(insn.fd_index(), value);
            }
            _ => {
                let value = self.builder.ins().load(types::F64, THERE, host, offset);
                self.set_f(insn.fd_index(), value);
            }
        }
    }

    /// Translates a store.
    pub(super) fn store(&mut self, insn: Insn) {
        let (host, offset) = self.checked(insn);
        let narrow = |this: &mut Self, ty: Type| {
            let value = this.x(insn.s2());
            this.builder.ins().ireduce(ty, value)
        };
        let value = match insn.op() {
            op::SB => narrow(self, types::I8),
            op::SH => narrow(self, types::I16),
            op::SW | op::C_SW => narrow(self, types::I32),
            op::SD | op::C_SD => self.x(insn.s2()),
            op::FSW => self.low_half(insn.fs2_index()),
            _ => self.f(insn.fs2_index()),
        };
        self.builder.ins().store(THERE, value, host, offset);
    }

    /// Makes sure that an access is allowed; gives its host address.
    fn checked(&mut self, insn: Insn) -> (Value, i32) {
        let Some((offset, bytes, is_store)) = access(insn) else { unreachable!("no access") };
        let base = self.x(insn.s1());
        let known = self.facts.iter().find(|fact| {
            fact.base == base
                && fact.low <= offset
                && offset + bytes <= fact.high
                && (fact.is_store || !is_store)
        });
        if let Some(fact) = known {
            let (first, low) = (fact.first, fact.low);
            return (self.host(first), (offset - low) as i32);
        }
        let (low, high) = self.range(insn, offset, bytes, is_store);
        let first = self.check(base, (low, high), (offset, bytes), is_store);
        self.facts.push(Fact { base, low, high, is_store, first });
        (self.host(first), (offset - low) as i32)
    }

    /// The range that this access and those behind it in the block need.
    fn range(&self, insn: Insn, offset: i64, bytes: i64, is_store: bool) -> (i64, i64) {
        let (mut low, mut high) = (offset, offset + bytes);
        let own = effects(insn).writes;
        let base = super::registers::Registers::x(insn.s1());
        if insn.s1() == 0 || own.without(base) != own {
            return (low, high);
        }
        for other in self.rest {
            if let Some((offset, bytes, other_stores)) = access(*other)
                && other.s1() == insn.s1()
                && other_stores == is_store
            {
                let all = (low.min(offset), high.max(offset + bytes));
                if all.1 - all.0 <= LONGEST_RANGE {
                    (low, high) = all;
                }
            }
            let writes = effects(*other).writes;
            if writes.without(base) != writes {
                break;
            }
        }
        (low, high)
    }

    /// Checks the range from `low` to `high` from a base on, in which the current access is.
    fn check(
        &mut self,
        base: Value,
        (low, high): (i64, i64),
        (offset, bytes): (i64, i64),
        is_store: bool,
    ) -> Value {
        let length = high - low;
        let narrow = self.low_word(base);
        let first = if low == 0 { narrow } else { self.builder.ins().iadd_imm(narrow, low) };
        let first = self.builder.ins().uextend(types::I64, first);
        if is_store && !measure::has(Part::StoreChecks) {
            return first;
        }
        let closer = self.builder.create_block();
        let is_allowed = self.allows(first, is_store);
        let inside = self.builder.create_block();
        self.builder.ins().brif(is_allowed, inside, &[], closer, &[]);
        let done = if length == 1 {
            inside
        } else {
            self.begin(inside);
            let limit = PAGE as i64 - length;
            let fits = if length == bytes {
                let odd = self.builder.ins().band_imm(first, length - 1);
                self.builder.ins().icmp_imm(IntCC::Equal, odd, 0)
            } else {
                let in_page = self.builder.ins().band_imm(first, PAGE as i64 - 1);
                self.builder.ins().icmp_imm(IntCC::UnsignedLessThanOrEqual, in_page, limit)
            };
            let done = self.builder.create_block();
            self.builder.ins().brif(fits, done, &[], closer, &[]);
            done
        };
        self.builder.set_cold_block(closer);
        self.begin(closer);
        let length_and_kind = self.constant(length as u64 | u64::from(is_store) << 32);
        let narrow = if offset == low {
            first
        } else {
            let own = self.builder.ins().iadd_imm(narrow, offset);
            self.builder.ins().uextend(types::I64, own)
        };
        let bytes = self.constant(bytes as u64);
        let (is_allowed, _) = self.help(helpers::CHECK, &[first, length_and_kind, narrow, bytes]);
        let out = self.builder.create_block();
        self.builder.ins().brif(is_allowed, done, &[], out, &[]);
        self.builder.set_cold_block(out);
        self.begin(out);
        self.leave(self.pc, leave::INTERPRET);
        self.begin(done);
        first
    }

    /// The host address of a guest address.
    fn host(&mut self, address: Value) -> Value {
        let base = self.base();
        self.builder.ins().iadd(base, address)
    }

    /// Whether the table allows an access to the page of an address.
    fn allows(&mut self, address: Value, is_store: bool) -> Value {
        let page = self.builder.ins().ushr_imm(address, i64::from(PAGE.trailing_zeros()));
        let base = self.base();
        let entry = self.builder.ins().iadd(base, page);
        let below = -(TABLE_BELOW as i32);
        let byte = self.builder.ins().load(types::I8, THERE, entry, below);
        if is_store {
            // The sign bit.
            self.builder.ins().icmp_imm(IntCC::SignedLessThan, byte, 0)
        } else {
            self.builder.ins().band_imm(byte, i64::from(READABLE))
        }
    }

    /// Translates an atomic access: the interpreter's own function executes it.
    pub(super) fn atomic(&mut self, insn: Insn) {
        let (a, b) = (self.x(insn.s1()), self.x(insn.s2()));
        let bits = self.constant(insn.0);
        let (done, value) = self.help(helpers::ATOMIC, &[bits, a, b]);
        self.leave_unless(done, leave::INTERPRET);
        self.set_x(insn.d(), value);
    }
}

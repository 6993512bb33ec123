//! Loads and stores.
//!
//! A load is not checked: its address is the low half of the base register, as an offset into the
//! space, and what the guest may not read faults in the host ([`super::fault`]).
//!
//! A store is allowed if the page table has the bit for its page ([`sandtide_memory::native`])
//! and it does not reach into the next one. Stores of a block that use the same base register are
//! checked together, at the first: the range from the lowest to the highest of them. If the table
//! does not allow the range, a helper looks closer, and if it does not either, the interpreter
//! executes what follows, and finds what there is to find.

use cranelift_codegen::ir::{
    InstBuilder, InstructionData, MemFlags, Opcode, SourceLoc, TrapCode, Type, Value, ValueDef,
    condcodes::IntCC, types,
};
use sandtide_memory::{PAGE, native::TABLE_BELOW};

use super::{
    frame::leave,
    helpers,
    lower::{Lowering, THERE},
    measure::{self, Part},
    registers::effects,
    unroll::{Apart, Range},
};
use crate::isa::insn::{Insn, op};

/// Ranges longer than this are not checked as one: they would span pages too often.
const LONGEST_RANGE: i64 = 1024;

/// As far as an instruction's own offset reaches.
const FARTHEST: i64 = 2048;

/// So many values are remembered with their low halves.
const MOST_NARROW: usize = 16;

/// Guest memory that may be there or not.
const GUEST: MemFlags = MemFlags::new().with_trap_code(Some(TrapCode::unwrap_user(1)));

/// Guest memory that was checked: it can be loaded and stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fact {
    /// The value of the base register.
    base: Value,
    /// The range, relative to it.
    low: i64,
    high: i64,
    /// The address of the lowest byte, in 64 bits.
    first: Value,
}

/// The bytes that an instruction accesses, relative to its base register; whether it stores.
pub(super) fn access(insn: Insn) -> Option<(i64, i64, bool)> {
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
        let Some((offset, bytes, _)) = access(insn) else { unreachable!("no access") };
        let base = self.x(insn.s1());
        if let Some((host, offset)) = self.covered(base, offset, bytes) {
            return self.load_from(insn, THERE, host, offset);
        }
        let (root, distance) = self.root(base, offset);
        let low = self.address_of(root);
        let host = self.host(low);
        let site = self.site(insn.s1(), low, (distance - offset) as i32);
        self.builder.set_srcloc(SourceLoc::new(site));
        self.load_from(insn, GUEST, host, distance as i32);
        self.builder.set_srcloc(SourceLoc::default());
    }

    fn load_from(&mut self, insn: Insn, flags: MemFlags, host: Value, offset: i32) {
        let ins = self.builder.ins();
        let value = match insn.op() {
            op::LB => ins.sload8(types::I64, flags, host, offset),
            op::LBU => ins.uload8(types::I64, flags, host, offset),
            op::LH => ins.sload16(types::I64, flags, host, offset),
            op::LHU => ins.uload16(types::I64, flags, host, offset),
            op::LW | op::C_LW => ins.sload32(flags, host, offset),
            op::LWU => ins.uload32(flags, host, offset),
            op::LD | op::C_LD => ins.load(types::I64, flags, host, offset),
            op::FLW => ins.load(types::F32, flags, host, offset),
            _ => ins.load(types::F64, flags, host, offset),
        };
        if flags == GUEST {
            // The load must not become part of a later instruction: other registers may differ
            // there.
            self.builder.ins().sequence_point();
        }
        match self.builder.func.dfg.value_type(value) {
            types::F32 => self.set_single(insn.fd_index(), value),
            types::F64 => self.set_f(insn.fd_index(), value),
            _ => {
                let base = self.x(insn.s1());
                self.loaded.push((value, base, insn.immediate() as i64));
                self.set_x(insn.d(), value);
            }
        }
    }

    /// The low half of a value: a guest address.
    fn address_of(&mut self, value: Value) -> Value {
        let known = self.narrow.iter().rev().take(MOST_NARROW).find(|(whole, _)| *whole == value);
        if let Some((_, low)) = known {
            return *low;
        }
        let dfg = &self.builder.func.dfg;
        let low = match dfg.value_def(dfg.resolve_aliases(value)) {
            ValueDef::Result(inst, _) => match dfg.insts[inst] {
                InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => {
                    self.constant(u64::from(imm.bits() as u32))
                }
                // From 32 bits or less.
                InstructionData::Unary { opcode: Opcode::Uextend, .. }
                | InstructionData::Load {
                    opcode: Opcode::Uload8 | Opcode::Uload16 | Opcode::Uload32,
                    ..
                } => value,
                _ => self.cut(value),
            },
            _ => self.cut(value),
        };
        self.narrow.push((value, low));
        low
    }

    fn cut(&mut self, value: Value) -> Value {
        let low = self.builder.ins().ireduce(types::I32, value);
        self.builder.ins().uextend(types::I64, low)
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

    /// Looks whether the stores of several rounds are allowed, before the first.
    pub(super) fn check_rounds(&mut self, apart: &Apart) {
        if !measure::has(Part::StoreChecks) {
            return;
        }
        let other = self.bodies[apart.block];
        self.owed[apart.block] = Some(self.pending);
        self.set_cold(other);
        for Range { register, low, high } in apart.ranges.iter().copied() {
            let base = self.x(register);
            let first = self.first(base, low);
            let is_allowed = self.allows(first);
            let (inside, go) = (self.builder.create_block(), self.builder.create_block());
            self.builder.ins().brif(is_allowed, inside, &[], other, &[]);
            self.begin(inside);
            let in_page = self.builder.ins().band_imm(first, PAGE as i64 - 1);
            let most = PAGE as i64 - (high - low);
            let fits = self.builder.ins().icmp_imm(IntCC::UnsignedLessThanOrEqual, in_page, most);
            self.builder.ins().brif(fits, go, &[], other, &[]);
            self.begin(go);
            self.facts.push(Fact { base, low, high, first });
        }
    }

    /// Makes sure that a store is allowed; gives its host address.
    fn checked(&mut self, insn: Insn) -> (Value, i32) {
        let Some((offset, bytes, _)) = access(insn) else { unreachable!("no access") };
        let base = self.x(insn.s1());
        if let Some(known) = self.covered(base, offset, bytes) {
            return known;
        }
        let (low, high) = self.range(insn, offset, bytes);
        let first = self.check(base, (low, high), (offset, bytes));
        self.facts.push(Fact { base, low, high, first });
        (self.host(first), (offset - low) as i32)
    }

    /// The host address of an access that a check before has covered.
    fn covered(&mut self, base: Value, offset: i64, bytes: i64) -> Option<(Value, i32)> {
        self.covered_by(base, offset, bytes).or_else(|| {
            let (root, offset) = self.root(base, offset);
            if root == base { None } else { self.covered_by(root, offset, bytes) }
        })
    }

    fn covered_by(&mut self, base: Value, offset: i64, bytes: i64) -> Option<(Value, i32)> {
        let covers = |fact: &&Fact| fact.low <= offset && offset + bytes <= fact.high;
        let fact = *self.facts.iter().filter(covers).find(|fact| fact.base == base)?;
        Some((self.host(fact.first), (offset - fact.low) as i32))
    }

    /// An address as what it is computed from by adding a constant, if that is small in all: such
    /// addresses share their low half.
    fn root(&self, base: Value, offset: i64) -> (Value, i64) {
        match self.definition(base) {
            Some(&InstructionData::BinaryImm64 { opcode: Opcode::IaddImm, arg, imm })
                if imm.bits().saturating_add(offset).abs() < FARTHEST =>
            {
                (self.builder.func.dfg.resolve_aliases(arg), imm.bits() + offset)
            }
            _ => (base, offset),
        }
    }

    /// The range that this store and those behind it in the block need.
    fn range(&self, insn: Insn, offset: i64, bytes: i64) -> (i64, i64) {
        let (mut low, mut high) = (offset, offset + bytes);
        let own = effects(insn).writes;
        let base = super::registers::Registers::x(insn.s1());
        if insn.s1() == 0 || own.without(base) != own {
            return (low, high);
        }
        for other in self.rest {
            if let Some((offset, bytes, true)) = access(*other)
                && other.s1() == insn.s1()
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

    /// The lowest address of a range.
    fn first(&mut self, base: Value, low: i64) -> Value {
        if low == 0 {
            return self.address_of(base);
        }
        let narrow = self.low_word(base);
        let first = self.builder.ins().iadd_imm(narrow, low);
        self.builder.ins().uextend(types::I64, first)
    }

    /// Checks the range from `low` to `high` from a base on, in which the current store is.
    fn check(
        &mut self,
        base: Value,
        (low, high): (i64, i64),
        (offset, bytes): (i64, i64),
    ) -> Value {
        let length = high - low;
        let narrow = self.low_word(base);
        let first = self.first(base, low);
        if !measure::has(Part::StoreChecks) {
            return first;
        }
        let closer = self.builder.create_block();
        let is_allowed = self.allows(first);
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
        self.set_cold(closer);
        self.begin(closer);
        let length = self.constant(length as u64);
        let narrow = if offset == low {
            first
        } else {
            let own = self.builder.ins().iadd_imm(narrow, offset);
            self.builder.ins().uextend(types::I64, own)
        };
        let bytes = self.constant(bytes as u64);
        let (is_allowed, _) = self.help(helpers::CHECK, &[first, length, narrow, bytes]);
        let out = self.builder.create_block();
        self.set_cold(out);
        self.builder.ins().brif(is_allowed, done, &[], out, &[]);
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

    /// Whether the table allows stores to the page of an address.
    fn allows(&mut self, address: Value) -> Value {
        let page = self.builder.ins().ushr_imm(address, i64::from(PAGE.trailing_zeros()));
        let base = self.base();
        let entry = self.builder.ins().iadd(base, page);
        let below = -(TABLE_BELOW as i32);
        let byte = self.builder.ins().load(types::I8, THERE, entry, below);
        // The sign bit.
        self.builder.ins().icmp_imm(IntCC::SignedLessThan, byte, 0)
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

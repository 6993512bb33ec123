//! A region as a function in Cranelift's intermediate representation (CLIF).
//!
//! ```text
//!  function(left, sp, a0 … a3) → (where the guest goes on, left, sp, a0 … a3)
//!
//!    start ── enough left? ──▶ body of block 0 ──▶ …
//!      │ no
//!      ├── resume = k ─▶ stub k: loads what block k needs ─▶ body of block k
//!      └── otherwise: leave
//! ```
//!
//! * In a loop, a guest register is a variable (SSA value). Where the code calls or leaves, those
//!   that differ are stored to the frame; where it comes in, those needed are loaded. Elsewhere a
//!   variable lasts for a block: it is loaded where it is first used, and stored when it is set.
//! * A guest call is a host call. When it comes back with the address behind the guest's call,
//!   execution goes on there; with any other, it is handed on to the caller, in the end to the
//!   dispatcher. So whatever a guest does to its return addresses, host returns stay paired.
//! * `left` is the budget. Before each block that [`Plan`] says, it is compared with what can
//!   retire until the next look; so it never goes below zero.

use cranelift_codegen::ir::{
    AbiParam, Block as HostBlock, BlockArg, ExtFuncData, ExternalName, FuncRef, Function,
    InstBuilder, InstructionData, MemFlags, Opcode, SigRef, Signature, UserExternalName,
    UserFuncName, Value, condcodes::IntCC, types,
};
use cranelift_codegen::{ir::JumpTableData, isa::CallConv};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};

use super::{
    discover::{Block, End, Region},
    float::Singles,
    frame::{self, leave},
    measure::{self, Part},
    memory::Fact,
    plan::{BlockPlan, PASSED, PASSED_SET, Plan},
    registers::{Flow, Registers, effects, flow},
    sites::{LEFT, LoadSite},
};
use crate::isa::insn::{Insn, SINK, op};

/// What a region needs to know about the rest of the program.
pub(super) struct Surroundings<'a> {
    /// The number of the host function of the region that starts at an address.
    pub(super) function: &'a dyn Fn(u64) -> Option<u32>,
    /// The number of the region's first entry in the table of entries.
    pub(super) first_entry: u32,
    /// The first address that the table has, and for how many bytes of code.
    pub(super) table: (u64, u64),
}

/// The signature of host functions.
pub(super) fn signature() -> Signature {
    let mut signature = Signature::new(CallConv::Tail);
    let passed = [AbiParam::new(types::I64); PASSED.len() + 1];
    signature.params.extend(passed);
    signature.returns.push(AbiParam::new(types::I64));
    signature.returns.extend(passed);
    signature
}

/// The signature of the functions that call helpers: nothing in registers. They are called where
/// code is cold, between code that is hot: so that the hot code may use all registers, they
/// preserve them, and what is passed and returned is in the frame.
pub(super) fn helper_signature() -> Signature {
    Signature::new(CallConv::PreserveAll)
}

/// Instructions of a block that is worth a host register for the base.
const SHORT: usize = 16;

/// Memory that is there: accesses were checked, or are to the frame or the table.
pub(super) const THERE: MemFlags = MemFlags::new().with_notrap();

/// Where code goes that is seldom reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Behind all other.
    Cold,
    /// Where it comes. Everything else, registers as well, is the same.
    InOrder,
}

/// Translates a region. Gives also the loads that may fault; the number of each is the source
/// location of its instructions.
pub(super) fn lower(
    region: &Region,
    plan: &Plan,
    number: u32,
    around: &Surroundings<'_>,
    context: &mut FunctionBuilderContext,
    layout: Layout,
) -> (Function, Vec<LoadSite>) {
    let name = UserFuncName::user(0, number);
    let mut function = Function::with_name_signature(name, signature());
    let mut builder = FunctionBuilder::new(&mut function, context);
    let passing = builder.import_signature(signature());
    let helper = builder.import_signature(helper_signature());
    let start = builder.create_block();
    builder.append_block_params_for_function_params(start);
    builder.switch_to_block(start);
    builder.seal_block(start);
    let left = builder.declare_var(types::I64);
    let x = std::array::from_fn(|_| builder.declare_var(types::I64));
    let f = std::array::from_fn(|_| builder.declare_var(types::F64));
    let bodies: Vec<_> = region.blocks.iter().map(|_| builder.create_block()).collect();
    let way_out = builder.create_block();
    if layout == Layout::Cold {
        builder.set_cold_block(way_out);
    }
    for _ in 0..PASSED.len() + 2 {
        builder.append_block_param(way_out, types::I64);
    }
    let mut this = Lowering {
        builder,
        region,
        plan,
        around,
        base: None,
        left,
        x,
        f,
        passing,
        helper,
        bodies,
        unfilled: unfilled(region, plan),
        inherited: vec![None; region.blocks.len()],
        pc: 0,
        pending: 0,
        dirty: Registers::NONE,
        is_lazy: false,
        at_hand: Registers::NONE,
        way_out,
        facts: Vec::new(),
        narrow: Vec::new(),
        sites: Vec::new(),
        layout,
        live: Registers::NONE,
        singles: [None; 32],
        has_fma: has_fma(),
        rest: &[],
        is_quiet: false,
    };
    this.prologue();
    for &index in &plan.order {
        this.block(index);
    }
    this.leave_region();
    this.builder.seal_all_blocks();
    let sites = std::mem::take(&mut this.sites);
    this.builder.finalize();
    (function, sites)
}

/// What a block takes over from its only predecessor.
#[derive(Clone)]
struct Inherited {
    pending: u64,
    facts: Vec<Fact>,
    narrow: Vec<(Value, Value)>,
    singles: Singles,
    at_hand: Registers,
}

pub(super) struct Lowering<'a> {
    pub(super) builder: FunctionBuilder<'a>,
    region: &'a Region,
    plan: &'a Plan,
    around: &'a Surroundings<'a>,
    /// A copy of the base, in a block of a loop that is short enough to hold on to it.
    base: Option<Value>,
    left: Variable,
    x: [Variable; 32],
    f: [Variable; 32],
    passing: SigRef,
    pub(super) helper: SigRef,
    bodies: Vec<HostBlock>,
    /// For each block, how many predecessors have not been translated.
    unfilled: Vec<usize>,
    inherited: Vec<Option<Inherited>>,
    /// The address of the instruction that is being translated.
    pub(super) pc: u64,
    /// Instructions that have retired and are not yet taken from `left`.
    pending: u64,
    /// Registers that may differ from the frame.
    dirty: Registers,
    /// Whether the current block stores registers late.
    is_lazy: bool,
    /// Registers whose variables are good, in a block that stores registers at once.
    pub(super) at_hand: Registers,
    /// Where all ways out come together, with what is returned.
    way_out: HostBlock,
    /// What is known about guest memory.
    pub(super) facts: Vec<Fact>,
    /// Values, and their low halves as addresses.
    pub(super) narrow: Vec<(Value, Value)>,
    /// The loads that may fault.
    pub(super) sites: Vec<LoadSite>,
    layout: Layout,
    /// Registers whose values are needed by the current instruction or later.
    live: Registers,
    /// What is known about floating-point registers.
    pub(super) singles: Singles,
    /// Whether the host has fused multiply-add.
    pub(super) has_fma: bool,
    /// The instructions behind the current one, in its block.
    pub(super) rest: &'a [Insn],
    /// Whether the flags are put back behind the next instruction.
    pub(super) is_quiet: bool,
}

impl<'a> Lowering<'a> {
    // --- Values ------------------------------------------------------------------------------

    pub(super) fn constant(&mut self, value: u64) -> Value {
        self.builder.ins().iconst(types::I64, value as i64)
    }

    /// The host address of guest address 0. It is asked for anew wherever it is needed: a copy of
    /// a register costs less than one that was moved to the stack to make room for others.
    pub(super) fn base(&mut self) -> Value {
        match self.base {
            Some(base) => base,
            None => self.builder.ins().get_pinned_reg(types::I64),
        }
    }

    /// The low word of a value.
    pub(super) fn low_word(&mut self, value: Value) -> Value {
        let dfg = &self.builder.func.dfg;
        if let Some(inst) = dfg.value_def(dfg.resolve_aliases(value)).inst()
            && let InstructionData::Unary { opcode: Opcode::Sextend | Opcode::Uextend, arg } =
                dfg.insts[inst]
            && dfg.value_type(arg) == types::I32
        {
            return arg;
        }
        self.builder.ins().ireduce(types::I32, value)
    }

    /// The constant that a value is, if it is one.
    pub(super) fn known(&self, value: Value) -> Option<i64> {
        let dfg = &self.builder.func.dfg;
        let inst = dfg.value_def(dfg.resolve_aliases(value)).inst()?;
        match dfg.insts[inst] {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
            _ => None,
        }
    }

    /// A value plus a constant: one addition, also if the value is such a sum itself.
    pub(super) fn plus(&mut self, value: Value, constant: i64) -> Value {
        if let Some(value) = self.known(value) {
            return self.constant(value.wrapping_add(constant) as u64);
        }
        let dfg = &self.builder.func.dfg;
        let inst = dfg.value_def(dfg.resolve_aliases(value)).inst();
        let (mut value, mut constant) = (value, constant);
        if let Some(inst) = inst
            && let InstructionData::Binary { opcode: Opcode::Iadd, args } = dfg.insts[inst]
            && let Some(other) = self.known(args[1])
        {
            (value, constant) = (args[0], constant.wrapping_add(other));
        }
        if constant == 0 { value } else { self.builder.ins().iadd_imm(value, constant) }
    }

    /// The value of an integer register.
    pub(super) fn x(&mut self, register: usize) -> Value {
        if register == 0 {
            return self.constant(0);
        }
        self.fetch(Registers::x(register).without(PASSED_SET));
        let value = self.builder.use_var(self.x[register]);
        // Behind a block with several predecessors the same value has another name.
        self.builder.func.dfg.resolve_aliases(value)
    }

    /// Sets an integer register.
    pub(super) fn set_x(&mut self, register: usize, value: Value) {
        if register != SINK as usize && register != 0 {
            self.builder.def_var(self.x[register], value);
            self.at_hand = self.at_hand.and(Registers::x(register));
            self.wrote(Registers::x(register).without(PASSED_SET), register, value);
        }
    }

    /// A register has a value that the frame has not. Outside of loops the frame gets it at once,
    /// unless it gets another one before anybody can look.
    fn wrote(&mut self, set: Registers, register: usize, value: Value) {
        // Loads may fault in between, so it is kept in mind in any case.
        if self.is_lazy || self.is_overwritten(set) {
            self.dirty = self.dirty.and(set);
        } else if set != Registers::NONE {
            self.dirty = self.dirty.without(set);
            self.store_frame(frame::register(register), value);
        }
    }

    /// Whether a register is written again in the block before the code may leave.
    fn is_overwritten(&self, set: Registers) -> bool {
        for insn in self.rest {
            let effects = effects(*insn);
            if effects.may_leave || !matches!(flow(*insn), Flow::Next) {
                return false;
            }
            if effects.writes == set {
                return true;
            }
        }
        false
    }

    /// The value of a floating-point register, all 64 bits.
    pub(super) fn f(&mut self, register: usize) -> Value {
        self.fetch(Registers::f(register));
        self.builder.use_var(self.f[register])
    }

    /// Sets a floating-point register.
    pub(super) fn set_f(&mut self, register: usize, value: Value) {
        self.builder.def_var(self.f[register], value);
        self.at_hand = self.at_hand.and(Registers::f(register));
        self.wrote(Registers::f(register), 32 + register, value);
        self.singles[register] = None;
    }

    fn value_of(&mut self, register: usize) -> Value {
        if register < 32 { self.x(register) } else { self.f(register - 32) }
    }

    // --- The way in --------------------------------------------------------------------------

    fn prologue(&mut self) {
        let start = self.builder.current_block().map(|block| self.builder.block_params(block));
        let parameters: Vec<Value> = start.unwrap_or(&[]).to_vec();
        self.receive(&parameters);
        let enough = self.enough(0);
        let (go, short) = (self.builder.create_block(), self.builder.create_block());
        self.set_cold(short);
        self.builder.ins().brif(enough, go, &[], short, &[]);
        self.begin(short);
        self.resume();
        self.begin(go);
        self.pc = self.region.blocks[0].pc;
        let calls = self
            .region
            .blocks
            .iter()
            .any(|block| matches!(block.end, End::Call { .. } | End::CallRegister { .. }));
        if calls {
            let stack = self.builder.ins().get_stack_pointer(types::I64);
            let limit = self.load_frame(frame::STACK_LIMIT);
            let is_low = self.builder.ins().icmp(IntCC::UnsignedLessThan, stack, limit);
            let (full, go) = (self.builder.create_block(), self.builder.create_block());
            self.builder.ins().brif(is_low, full, &[], go, &[]);
            self.set_cold(full);
            self.begin(full);
            self.leave(self.pc, leave::STACK);
            self.begin(go);
        }
        self.load_needed(0);
        self.builder.ins().jump(self.bodies[0], &[]);
    }

    /// Continues in a block that has all its predecessors.
    pub(super) fn begin(&mut self, block: HostBlock) {
        self.builder.seal_block(block);
        self.builder.switch_to_block(block);
    }

    /// The way to an entry that is not the start.
    fn resume(&mut self) {
        let number = self.load_frame(frame::RESUME);
        let nowhere = self.builder.create_block();
        let stubs: Vec<HostBlock> =
            self.plan.entries.iter().map(|_| self.builder.create_block()).collect();
        let call = |builder: &mut FunctionBuilder<'_>, block| {
            builder.func.dfg.block_call(block, &[] as &[BlockArg])
        };
        // Number 0 is the start, which has no stub.
        let mut ways = vec![call(&mut self.builder, nowhere)];
        for stub in &stubs[1..] {
            ways.push(call(&mut self.builder, *stub));
        }
        let default = call(&mut self.builder, nowhere);
        let table = JumpTableData::new(default, &ways);
        let table = self.builder.create_jump_table(table);
        let number = self.builder.ins().ireduce(types::I32, number);
        self.builder.ins().br_table(number, table);
        self.begin(nowhere);
        self.pc = self.region.blocks[0].pc;
        self.leave(self.pc, leave::BUDGET);
        for (number, &index) in self.plan.entries.iter().enumerate().skip(1) {
            self.set_cold(stubs[number]);
            self.begin(stubs[number]);
            let zero = self.constant(0);
            self.store_frame(frame::RESUME, zero);
            let left = self.load_frame(frame::LEFT);
            self.builder.def_var(self.left, left);
            self.pc = self.region.blocks[index].pc;
            if !self.plan.blocks[index].is_checked {
                self.check_budget(index);
            }
            self.load_needed(index);
            self.builder.ins().jump(self.bodies[index], &[]);
        }
    }

    /// Takes over what a caller or a callee has passed: the budget and registers.
    fn receive(&mut self, values: &[Value]) {
        self.builder.def_var(self.left, values[0]);
        for (register, value) in PASSED.iter().zip(&values[1..]) {
            self.builder.def_var(self.x[*register], *value);
        }
    }

    /// What is passed to a callee or back to a caller.
    fn passed(&mut self) -> Vec<Value> {
        let left = self.builder.use_var(self.left);
        std::iter::once(left)
            .chain(PASSED.map(|register| self.builder.use_var(self.x[register])))
            .collect()
    }

    /// Loads the registers that a block needs, behind a call or in a stub.
    fn load_needed(&mut self, index: usize) {
        self.load_registers(self.plan.blocks[index].needed.without(PASSED_SET));
    }

    /// Outside of loops, loads registers from the frame that the block has not yet used.
    fn fetch(&mut self, registers: Registers) {
        if !self.is_lazy {
            self.load_registers(registers.without(self.at_hand));
            self.at_hand = self.at_hand.and(registers);
        }
    }

    fn load_registers(&mut self, registers: Registers) {
        for register in registers.iter() {
            let base = self.base();
            let offset = frame::register(register);
            if register < 32 {
                let value = self.builder.ins().load(types::I64, THERE, base, offset);
                self.builder.def_var(self.x[register], value);
            } else {
                let value = self.builder.ins().load(types::F64, THERE, base, offset);
                self.builder.def_var(self.f[register - 32], value);
            }
        }
    }

    pub(super) fn load_frame(&mut self, offset: i32) -> Value {
        let base = self.base();
        self.builder.ins().load(types::I64, THERE, base, offset)
    }

    pub(super) fn store_frame(&mut self, offset: i32, value: Value) {
        let base = self.base();
        self.builder.ins().store(THERE, value, base, offset);
    }

    // --- The budget --------------------------------------------------------------------------

    /// Whether there is enough left for a block.
    fn enough(&mut self, index: usize) -> Value {
        let left = self.builder.use_var(self.left);
        let counts = measure::has(Part::Counting);
        let path = if counts { self.plan.blocks[index].path.max(1) as i64 } else { 0 };
        self.builder.ins().icmp_imm(IntCC::SignedGreaterThanOrEqual, left, path)
    }

    /// Leaves in front of a block if there is not enough left for it.
    fn check_budget(&mut self, index: usize) {
        if !measure::has(Part::Counting) {
            return;
        }
        let enough = self.enough(index);
        self.leave_unless(enough, leave::BUDGET);
    }

    /// Leaves in front of the current instruction unless a condition holds.
    pub(super) fn leave_unless(&mut self, condition: Value, why: u64) {
        let (go, out) = (self.builder.create_block(), self.builder.create_block());
        self.set_cold(out);
        self.builder.ins().brif(condition, go, &[], out, &[]);
        self.begin(out);
        self.leave(self.pc, why);
        self.begin(go);
    }

    /// Lays a block behind all others, since it is seldom reached.
    pub(super) fn set_cold(&mut self, block: HostBlock) {
        if self.layout == Layout::Cold {
            self.builder.set_cold_block(block);
        }
    }

    /// The current instruction as a load that may fault; gives its number.
    pub(super) fn site(&mut self, base: usize, low: Value) -> u32 {
        let differ = self.dirty.and(PASSED_SET);
        let registers = self.live.and_both(differ);
        let left = self.builder.use_var(self.left);
        let values = std::iter::once((LEFT, left))
            .chain(registers.iter().map(|register| (register as u8, self.value_of(register))))
            .collect();
        let differs = registers.and_both(Registers::x(base)) != Registers::NONE;
        self.sites.push(LoadSite {
            pc: self.pc,
            pending: self.pending,
            values,
            base: differs.then_some((base as u8, low)),
            differ,
        });
        self.sites.len() as u32 - 1
    }

    /// What is left after what is pending.
    fn left_after(&mut self, retired: u64) -> Value {
        let left = self.builder.use_var(self.left);
        self.plus(left, -(retired as i64))
    }

    /// Takes what is pending from the budget.
    fn settle(&mut self) {
        let left = self.left_after(self.pending);
        self.builder.def_var(self.left, left);
        self.pending = 0;
    }

    // --- The ways out ------------------------------------------------------------------------

    /// Stores the registers that may differ from the frame.
    fn store_dirty(&mut self) {
        for register in self.dirty.iter() {
            let value = self.value_of(register);
            self.store_frame(frame::register(register), value);
        }
    }

    /// Leaves in front of an instruction. Ends the host block; the state stays, for others.
    pub(super) fn leave(&mut self, pc: u64, why: u64) {
        let next = self.constant(pc | why);
        self.give_back(next);
    }

    /// Returns to the caller, with the address where the guest goes on, from code that is cold.
    fn give_back(&mut self, next: Value) {
        let results: Vec<BlockArg> = self.results(next).into_iter().map(BlockArg::Value).collect();
        self.builder.ins().jump(self.way_out, &results);
    }

    /// What is returned. The dirty registers are stored.
    fn results(&mut self, next: Value) -> Vec<Value> {
        self.store_dirty();
        let mut results = vec![next];
        results.extend(self.passed());
        results[1] = self.left_after(self.pending);
        results
    }

    /// The end of all ways out.
    fn leave_region(&mut self) {
        self.builder.switch_to_block(self.way_out);
        let results = self.builder.block_params(self.way_out).to_vec();
        self.builder.ins().return_(&results);
    }

    fn function(&mut self, number: u32) -> FuncRef {
        let name = UserExternalName { namespace: 0, index: number };
        let name = self.builder.func.declare_imported_user_function(name);
        self.builder.import_function(ExtFuncData {
            name: ExternalName::user(name),
            signature: self.passing,
            colocated: true,
            patchable: false,
        })
    }

    /// Goes on at an address that this region has not.
    fn elsewhere(&mut self, pc: u64) {
        match (self.around.function)(pc) {
            Some(number) => {
                self.store_dirty();
                self.settle();
                let arguments = self.passed();
                let function = self.function(number);
                self.builder.ins().return_call(function, &arguments);
            }
            None => {
                let next = self.constant(pc);
                self.give_back(next);
            }
        }
    }

    /// Whether something has to be done between the current block and one behind it.
    fn has_passage(&self, index: usize) -> bool {
        let next = &self.plan.blocks[index];
        if self.is_lazy { !next.is_lazy && self.dirty != Registers::NONE } else { next.is_lazy }
    }

    /// Goes on in a block of the region: into a loop, with all registers at hand that it needs;
    /// out of one, with all registers in the frame.
    fn pass_to(&mut self, index: usize) {
        let next = &self.plan.blocks[index];
        if self.is_lazy && !next.is_lazy {
            self.store_dirty();
        } else if next.is_lazy && !self.is_lazy {
            self.load_registers(next.needed.without(PASSED_SET).without(self.at_hand));
        }
        self.builder.ins().jump(self.bodies[index], &[]);
    }

    /// The host block for an address inside or outside of the region. The state must be settled.
    fn way_to(&mut self, pc: u64, outside: &mut Vec<(HostBlock, u64)>) -> HostBlock {
        match self.plan.at(pc) {
            Some(index) if !self.has_passage(index) => self.bodies[index],
            _ => {
                let block = self.builder.create_block();
                outside.push((block, pc));
                block
            }
        }
    }

    // --- Blocks ------------------------------------------------------------------------------

    fn block(&mut self, index: usize) {
        let region = self.region;
        let (block, plan): (&'a Block, _) = (&region.blocks[index], &self.plan.blocks[index]);
        if self.unfilled[index] == 0 {
            self.builder.seal_block(self.bodies[index]);
        }
        self.builder.switch_to_block(self.bodies[index]);
        self.pc = block.pc;
        self.dirty = plan.dirty;
        self.is_lazy = plan.is_lazy;
        let is_short = block.instructions.len() <= SHORT;
        self.base = None;
        self.base = (self.is_lazy && is_short).then(|| self.base());
        match self.inherited[index].take() {
            Some(Inherited { pending, facts, narrow, singles, at_hand }) => {
                (self.pending, self.facts, self.singles) = (pending, facts, singles);
                (self.narrow, self.at_hand) = (narrow, at_hand);
            }
            None => {
                self.pending = 0;
                self.facts.clear();
                self.narrow.clear();
                self.singles = [None; 32];
                self.at_hand = Registers::NONE;
            }
        }
        if plan.is_checked {
            self.check_budget(index);
        }
        let live = self.plan.live(index, block);
        for (number, insn) in block.instructions.iter().enumerate() {
            self.live = live[number];
            self.rest = &block.instructions[number + 1..];
            let is_last = self.rest.is_empty();
            if !(is_last && ends_block(&block.end)) {
                self.instruction(*insn);
            }
            self.pending += u64::from(measure::has(Part::Counting));
            if !is_last {
                self.pc += 2 * insn.length();
            }
        }
        self.end(index, block);
        self.base = None;
        for follower in followers(block, &self.plan.blocks[index]) {
            self.unfilled[follower] -= 1;
        }
    }

    fn instruction(&mut self, insn: Insn) {
        match insn.op() {
            op::LB | op::LH | op::LBU | op::LHU | op::LWU => self.load(insn),
            op::LW | op::C_LW | op::LD | op::C_LD => self.load(insn),
            op::FLD | op::C_FLD | op::FLW => self.load(insn),
            op::SB | op::SH | op::SW | op::C_SW | op::SD | op::C_SD => self.store(insn),
            op::FSD | op::C_FSD | op::FSW => self.store(insn),
            op::ATOMIC_W | op::ATOMIC_D => self.atomic(insn),
            op::FLOAT_S | op::FLOAT_D => self.float(insn),
            op::CSR => self.csr(insn),
            op::FENCE => {}
            // One that jumps to a known place.
            op::JAL | op::C_JAL | op::JALR | op::C_JALR => {
                let link = self.constant(self.pc + 2 * insn.length());
                self.set_x(insn.d(), link);
            }
            _ => self.integer(insn),
        }
    }

    /// Calls a helper with values. Gives whether it has done what was asked, and a value.
    pub(super) fn help(&mut self, helper: usize, values: &[Value]) -> (Value, Value) {
        for (number, value) in values.iter().enumerate() {
            self.store_frame(frame::question(number), *value);
        }
        let function = self.load_frame(frame::helper(helper));
        self.builder.ins().call_indirect(self.helper, function, &[]);
        (self.load_frame(frame::answer(0)), self.load_frame(frame::answer(1)))
    }

    fn end(&mut self, index: usize, block: &'a Block) {
        let last = block.instructions.last().copied();
        let plan: &'a BlockPlan = &self.plan.blocks[index];
        let blocks = &self.plan.blocks;
        let inherits = |successor: &usize| {
            let plan = &blocks[*successor];
            plan.predecessors == 1 && plan.entry.is_none() && *successor != index
        };
        let keeps = plan.successors.iter().all(inherits);
        if !keeps && !plan.successors.is_empty() {
            self.settle();
        }
        for successor in plan.successors.iter().filter(|successor| inherits(successor)) {
            self.inherited[*successor] = Some(Inherited {
                pending: self.pending,
                facts: self.facts.clone(),
                narrow: self.narrow.clone(),
                singles: self.singles,
                at_hand: if self.is_lazy { Registers::NONE } else { self.at_hand },
            });
        }
        match &block.end {
            End::Jump(pc) => match self.plan.at(*pc) {
                Some(index) => self.pass_to(index),
                None => self.elsewhere(*pc),
            },
            End::Branch { taken, next } => self.branch(last, *taken, *next),
            End::Call { target, back } => {
                let link = self.constant(*back);
                self.set_x(last.map_or(0, Insn::d), link);
                match (self.around.function)(*target) {
                    Some(number) => {
                        self.store_dirty();
                        self.settle();
                        let arguments = self.passed();
                        let function = self.function(number);
                        let call = self.builder.ins().call(function, &arguments);
                        self.come_back(call, *back);
                    }
                    None => {
                        let next = self.constant(*target);
                        self.give_back(next);
                    }
                }
            }
            End::CallRegister { back } => {
                let target = self.register_target(last);
                let link = self.constant(*back);
                self.set_x(last.map_or(0, Insn::d), link);
                let (function, arguments) = self.look_up(target);
                let call = self.builder.ins().call_indirect(self.passing, function, &arguments);
                self.come_back(call, *back);
            }
            End::Return => {
                let target = self.register_target(last);
                let results = self.results(target);
                self.builder.ins().return_(&results);
            }
            End::JumpRegister { .. } => self.jump_register(index, last),
            End::Leave { pc, next } => {
                self.pc = *pc;
                // It executes more than one instruction, so the count is right in any case.
                let _ = next;
                self.leave(*pc, leave::INTERPRET);
            }
        }
    }

    /// The target of a `jalr`.
    fn register_target(&mut self, insn: Option<Insn>) -> Value {
        let (register, offset) = insn.map_or((0, 0), |insn| (insn.s1(), insn.immediate()));
        let value = self.x(register);
        let sum = self.plus(value, offset as i64);
        self.builder.ins().band_imm(sum, -2)
    }

    /// Finds the host function for an address, and what to pass to it. If there is none, returns
    /// with the address. The dirty registers are stored.
    fn look_up(&mut self, target: Value) -> (Value, Vec<Value>) {
        self.store_dirty();
        self.settle();
        let number = self.number_of(target);
        let (known, unknown) = (self.builder.create_block(), self.builder.create_block());
        self.set_cold(unknown);
        self.builder.ins().brif(number, known, &[], unknown, &[]);
        let dirty = std::mem::take(&mut self.dirty);
        self.begin(unknown);
        self.give_back(target);
        self.begin(known);
        self.dirty = dirty;
        let entries = self.load_frame(frame::ENTRIES);
        let wide = self.builder.ins().uextend(types::I64, number);
        let offset = self.builder.ins().ishl_imm(wide, 4);
        let entry = self.builder.ins().iadd(entries, offset);
        let function = self.builder.ins().load(types::I64, THERE, entry, 0);
        let resume = self.builder.ins().load(types::I64, THERE, entry, 8);
        // In front of an entry that is not the start, the callee must find the budget too short.
        self.store_frame(frame::RESUME, resume);
        let mut arguments = self.passed();
        self.store_frame(frame::LEFT, arguments[0]);
        let short = self.builder.ins().iconst(types::I64, -1);
        arguments[0] = self.builder.ins().select(resume, short, arguments[0]);
        (function, arguments)
    }

    /// The number of the entry at an address, or 0.
    fn number_of(&mut self, target: Value) -> Value {
        let (start, bytes) = self.around.table;
        let offset = self.builder.ins().iadd_imm(target, -(start as i64));
        let inside = self.builder.ins().icmp_imm(IntCC::UnsignedLessThan, offset, bytes as i64);
        let (look, done) = (self.builder.create_block(), self.builder.create_block());
        let number = self.builder.append_block_param(done, types::I32);
        let none = self.builder.ins().iconst(types::I32, 0);
        self.builder.ins().brif(inside, look, &[], done, &[BlockArg::Value(none)]);
        self.begin(look);
        let numbers = self.load_frame(frame::NUMBERS);
        // Four bytes for each halfword.
        let offset = self.builder.ins().ishl_imm(offset, 1);
        let slot = self.builder.ins().iadd(numbers, offset);
        let found = self.builder.ins().load(types::I32, THERE, slot, 0);
        self.builder.ins().jump(done, &[BlockArg::Value(found)]);
        self.begin(done);
        number
    }

    /// Goes on behind a call.
    fn come_back(&mut self, call: cranelift_codegen::ir::Inst, back: u64) {
        let results = self.builder.inst_results(call).to_vec();
        self.receive(&results[1..]);
        self.dirty = Registers::NONE;
        let is_back = self.builder.ins().icmp_imm(IntCC::Equal, results[0], back as i64);
        let (go, other) = (self.builder.create_block(), self.builder.create_block());
        self.set_cold(other);
        self.builder.ins().brif(is_back, go, &[], other, &[]);
        self.begin(other);
        self.give_back(results[0]);
        self.begin(go);
        match self.plan.at(back) {
            Some(index) => {
                self.pc = back;
                if !self.plan.blocks[index].is_checked {
                    self.check_budget(index);
                }
                self.load_needed(index);
                self.builder.ins().jump(self.bodies[index], &[]);
            }
            None => self.elsewhere(back),
        }
    }

    fn branch(&mut self, last: Option<Insn>, taken: u64, next: u64) {
        let Some(insn) = last else { return };
        let (a, b) = (self.x(insn.s1()), self.x(insn.s2()));
        let condition = match insn.op() {
            op::BEQ | op::C_BEQ => IntCC::Equal,
            op::BNE | op::C_BNE => IntCC::NotEqual,
            op::BLT => IntCC::SignedLessThan,
            op::BGE => IntCC::SignedGreaterThanOrEqual,
            op::BLTU => IntCC::UnsignedLessThan,
            _ => IntCC::UnsignedGreaterThanOrEqual,
        };
        let holds = self.builder.ins().icmp(condition, a, b);
        let mut outside = Vec::new();
        let there = self.way_to(taken, &mut outside);
        let here = self.way_to(next, &mut outside);
        self.builder.ins().brif(holds, there, &[], here, &[]);
        let pending = self.pending;
        for (block, pc) in outside {
            self.begin(block);
            self.pending = pending;
            match self.plan.at(pc) {
                Some(index) => self.pass_to(index),
                None => self.elsewhere(pc),
            }
        }
    }

    fn jump_register(&mut self, index: usize, last: Option<Insn>) {
        let target = self.register_target(last);
        if let Some(insn) = last {
            let link = self.constant(self.pc + 2 * insn.length());
            self.set_x(insn.d(), link);
        }
        self.settle();
        if !self.plan.blocks[index].successors.is_empty() {
            // Perhaps it stays in the region.
            let number = self.number_of(target);
            let first = i64::from(self.around.first_entry);
            let local = self.builder.ins().iadd_imm(number, -first);
            let other = self.builder.create_block();
            let mut passages = Vec::new();
            let mut ways = Vec::new();
            for &entry in &self.plan.entries {
                let block = if !self.plan.blocks[index].successors.contains(&entry) {
                    other
                } else if self.has_passage(entry) {
                    let passage = self.builder.create_block();
                    passages.push((passage, entry));
                    passage
                } else {
                    self.bodies[entry]
                };
                ways.push(self.builder.func.dfg.block_call(block, &[] as &[BlockArg]));
            }
            let default = self.builder.func.dfg.block_call(other, &[] as &[BlockArg]);
            let table = self.builder.create_jump_table(JumpTableData::new(default, &ways));
            self.builder.ins().br_table(local, table);
            for (passage, entry) in passages {
                self.begin(passage);
                self.pass_to(entry);
            }
            self.set_cold(other);
            self.begin(other);
        }
        let (function, arguments) = self.look_up(target);
        self.builder.ins().return_call_indirect(self.passing, function, &arguments);
    }
}

/// Whether the host multiplies and adds in one instruction.
fn has_fma() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("fma")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// The blocks that the host code of a block jumps to.
fn followers(block: &Block, plan: &BlockPlan) -> impl Iterator<Item = usize> {
    let calls = matches!(block.end, End::Call { .. } | End::CallRegister { .. });
    plan.successors.iter().copied().chain(plan.back.filter(|_| calls))
}

/// How many blocks jump to each.
fn unfilled(region: &Region, plan: &Plan) -> Vec<usize> {
    let mut counts = vec![0; region.blocks.len()];
    for (block, plan) in region.blocks.iter().zip(&plan.blocks) {
        for follower in followers(block, plan) {
            counts[follower] += 1;
        }
    }
    counts
}

/// Whether an instruction is translated as the end of its block.
fn ends_block(end: &End) -> bool {
    match end {
        End::Branch { .. } | End::Return | End::JumpRegister { .. } => true,
        End::Call { .. } | End::CallRegister { .. } => true,
        End::Jump(_) | End::Leave { .. } => false,
    }
}

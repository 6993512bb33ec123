//! A region as a function in Cranelift's intermediate representation (CLIF).
//!
//! ```text
//!  function(left, sp, a0 … a3) → (where the guest goes on, a1, a0, sp, left, a2, a3)
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

pub(super) use cranelift_codegen::ir::Block as HostBlock;
use cranelift_codegen::{
    ir::{
        AbiParam, Function, InstBuilder, MemFlags, SigRef, Signature, UserFuncName, Value, types,
    },
    isa::CallConv,
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};

use super::{
    boxing::Singles,
    discover::{Block, End, Region},
    frame,
    measure::{self, Part},
    memory::Fact,
    plan::{BlockPlan, PASSED, Plan},
    registers::Registers,
    sites::LoadSite,
};
use crate::isa::insn::{Insn, op};

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

/// Puts what is returned from the order of arguments into that of results, or back. Arguments are in
/// `rdi`, `rsi`, `rdx`, `rcx`, `r8` and `r9`, results behind the first in `rcx`, `rdx`, `rsi`, `rdi`,
/// `r8` and `r9`: so each value comes back in the host register that it was passed in.
pub(super) fn turn(results: &mut [Value]) {
    results[1..5].reverse();
}

/// The signature of the functions that call helpers: nothing in registers. They are called where
/// code is cold, between code that is hot: so that the hot code may use all registers, they
/// preserve them, and what is passed and returned is in the frame.
pub(super) fn helper_signature() -> Signature {
    Signature::new(CallConv::PreserveAll)
}

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
    let base_variable = builder.declare_var(types::I64);
    let left = builder.declare_var(types::I64);
    let x = std::array::from_fn(|_| builder.declare_var(types::I64));
    let f = std::array::from_fn(|_| builder.declare_var(types::F64));
    let bodies: Vec<_> = region.blocks.iter().map(|_| builder.create_block()).collect();
    let way_out = builder.create_block();
    if layout == Layout::Cold {
        builder.set_cold_block(way_out);
    }
    builder.append_block_param(way_out, types::I64);
    let mut this = Lowering {
        builder,
        region,
        plan,
        around,
        base: None,
        base_variable,
        index: 0,
        left,
        x,
        f,
        passing,
        helper,
        bodies,
        unfilled: unfilled(region, plan),
        inherited: vec![None; region.blocks.len()],
        owed: plan.blocks.iter().map(BlockPlan::owed).collect(),
        pc: 0,
        pending: 0,
        dirty: Registers::NONE,
        is_lazy: false,
        at_hand: Registers::NONE,
        way_out,
        loaded: Vec::new(),
        facts: Vec::new(),
        narrow: Vec::new(),
        sites: Vec::new(),
        layout,
        live: Registers::NONE,
        alive: Registers::ALL,
        singles: [None; 32],
        raw: Registers::NONE,
        unread: Registers::NONE,
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
pub(super) struct Inherited {
    pub(super) facts: Vec<Fact>,
    pub(super) narrow: Vec<(Value, Value)>,
    pub(super) singles: Singles,
    pub(super) raw: (Registers, Registers),
    pub(super) at_hand: Registers,
}

pub(super) struct Lowering<'a> {
    pub(super) builder: FunctionBuilder<'a>,
    pub(super) region: &'a Region,
    pub(super) plan: &'a Plan,
    pub(super) around: &'a Surroundings<'a>,
    /// A copy of the base, in a block that holds on to it.
    pub(super) base: Option<Value>,
    /// The same for a whole loop.
    pub(super) base_variable: Variable,
    /// The block that is being translated.
    pub(super) index: usize,
    pub(super) left: Variable,
    pub(super) x: [Variable; 32],
    pub(super) f: [Variable; 32],
    pub(super) passing: SigRef,
    pub(super) helper: SigRef,
    pub(super) bodies: Vec<HostBlock>,
    /// For each block, how many predecessors have not been translated.
    pub(super) unfilled: Vec<usize>,
    pub(super) inherited: Vec<Option<Inherited>>,
    /// For each block, how many instructions it finds pending, as far as that is decided.
    pub(super) owed: Vec<Option<u64>>,
    /// The address of the instruction that is being translated.
    pub(super) pc: u64,
    /// Instructions that have retired and are not yet taken from `left`.
    pub(super) pending: u64,
    /// Registers that may differ from the frame.
    pub(super) dirty: Registers,
    /// Whether the current block stores registers late.
    pub(super) is_lazy: bool,
    /// Registers whose variables are good, in a block that stores registers at once.
    pub(super) at_hand: Registers,
    /// Where all ways out come together, with what is returned.
    pub(super) way_out: HostBlock,
    /// Values that were loaded in the block: the value, the base register's, and the offset.
    pub(super) loaded: Vec<(Value, Value, i64)>,
    /// What is known about guest memory.
    pub(super) facts: Vec<Fact>,
    /// Values, and their low halves as addresses.
    pub(super) narrow: Vec<(Value, Value)>,
    /// The loads that may fault.
    pub(super) sites: Vec<LoadSite>,
    pub(super) layout: Layout,
    /// Registers that the current instruction or a later one reads. Others are left as they are
    /// where the code leaves.
    pub(super) alive: Registers,
    /// Registers whose values are needed by the current instruction or later.
    pub(super) live: Registers,
    /// What is known about floating-point registers.
    pub(super) singles: Singles,
    /// Those of them that are canonical NaNs if their values are NaNs.
    pub(super) raw: Registers,
    /// Those of the raw ones that nothing has read.
    pub(super) unread: Registers,
    /// Whether the host has fused multiply-add.
    pub(super) has_fma: bool,
    /// The instructions behind the current one, in its block.
    pub(super) rest: &'a [Insn],
    /// Whether the flags are put back behind the next instruction.
    pub(super) is_quiet: bool,
}

impl<'a> Lowering<'a> {
    /// Continues in a block that has all its predecessors.
    pub(super) fn begin(&mut self, block: HostBlock) {
        self.builder.seal_block(block);
        self.builder.switch_to_block(block);
    }

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
        self.index = index;
        self.loaded.clear();
        self.pending = *self.owed[index].get_or_insert(0);
        self.base = None;
        self.base = self.holds_base(index).then(|| match plan.innermost {
            Some(_) => self.builder.use_var(self.base_variable),
            None => self.base(),
        });
        match self.inherited[index].take() {
            Some(Inherited { facts, narrow, singles, raw, at_hand }) => {
                (self.raw, self.unread) = raw;
                (self.facts, self.singles) = (facts, singles);
                (self.narrow, self.at_hand) = (narrow, at_hand);
            }
            None => {
                self.facts.clear();
                self.narrow.clear();
                self.singles = [None; 32];
                (self.raw, self.unread) = (Registers::NONE, Registers::NONE);
                self.at_hand = Registers::NONE;
            }
        }
        self.alive = plan.alive;
        if plan.is_checked {
            self.check_budget(index);
        }
        if let Some(apart) = &block.apart {
            self.check_rounds(apart);
        }
        let live = self.plan.live(index, block);
        let alive = self.plan.alive(index, block);
        for (number, insn) in block.instructions.iter().enumerate() {
            (self.live, self.alive) = (live[number], alive[number]);
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
        self.alive = alive[block.instructions.len()];
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
    plan.successors.iter().copied().chain(plan.back.filter(|_| calls)).chain(plan.apart)
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
        End::Branch { .. } | End::Return | End::JumpRegister(_) => true,
        End::Call { .. } | End::CallRegister { .. } => true,
        End::Jump(_) | End::Leave { .. } => false,
    }
}

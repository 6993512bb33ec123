//! From regions to host code: Cranelift's settings, and linking.

use std::sync::Arc;

use cranelift_codegen::{
    CodegenResult, CompiledCode, Context, FinalizedRelocTarget,
    binemit::Reloc,
    control::ControlPlane,
    ir::{AbiParam, Function, InstBuilder, MemFlags, Signature, UserFuncName, types},
    isa::{self, CallConv, TargetIsa},
    settings::{self, Configurable},
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

use super::{
    discover::Region,
    flags, frame, helpers,
    lower::{Layout, Surroundings, THERE, helper_signature, lower, signature, turn},
    plan::{PASSED, Plan},
    sites::{self, Collector, LoadSite, Need, Sites},
};

/// The most host stack that a host function may need.
pub(super) const LARGEST_FRAME: u32 = 32 << 10;

/// A host function that is compiled, but not linked.
struct Compiled {
    offset: usize,
    relocations: Vec<(usize, u32, i64)>,
}

/// Cranelift's settings for this host. `None` if it has no back end, or one for which this
/// translator was not made.
pub(super) fn isa() -> Option<Arc<dyn TargetIsa>> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    isa_of(cranelift_native::builder().ok()?)
}

/// Cranelift's settings for a host.
pub(super) fn isa_of(host: isa::Builder) -> Option<Arc<dyn TargetIsa>> {
    let mut flags = settings::builder();
    for (name, value) in [
        // Without it, operations stay where they are: floating-point exceptions accrue in
        // order, and not at all for what does not run.
        ("opt_level", "none"),
        ("enable_pinned_reg", "true"),
        ("preserve_frame_pointers", "true"),
        ("enable_probestack", "false"),
        ("unwind_info", "false"),
        ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
    ] {
        flags.set(name, value).ok()?;
    }
    host.finish(settings::Flags::new(flags)).ok()
}

/// Compiles regions one after the other.
pub(super) struct Compiler {
    isa: Arc<dyn TargetIsa>,
    context: Context,
    builder: FunctionBuilderContext,
    code: Vec<u8>,
    /// By number. `None`: it could not be compiled.
    functions: Vec<Option<Compiled>>,
    sites: Collector,
    /// The offsets of the functions that call helpers.
    pub(super) helpers: [usize; helpers::HOST_CODE],
}

impl Compiler {
    /// For this host. `None` if it has no back end, or one for which this translator was not made.
    pub(super) fn new() -> Option<Self> {
        let mut this = Self {
            isa: isa()?,
            context: Context::new(),
            builder: FunctionBuilderContext::new(),
            code: Vec::new(),
            functions: Vec::new(),
            sites: Collector::default(),
            helpers: [0; helpers::HOST_CODE],
        };
        let trampoline = this.trampoline();
        let _ = this.compile_alone(trampoline)?;
        for number in 0..helpers::HELPERS {
            let helper = this.helper(number);
            this.helpers[number] = this.compile_alone(helper)?.offset;
        }
        for (number, is_load) in [(helpers::STORE_MXCSR, false), (helpers::LOAD_MXCSR, true)] {
            this.helpers[number] = this.code.len();
            this.code.extend_from_slice(&flags::mover(is_load));
        }
        Some(this)
    }

    /// How many bytes of code and tables there are.
    pub(super) fn bytes(&self) -> u64 {
        self.code.len() as u64 + self.sites.bytes()
    }

    /// Compiles a region, whose number is the next one.
    pub(super) fn region(&mut self, region: &Region, plan: &Plan, around: &Surroundings<'_>) {
        let number = self.functions.len() as u32;
        let compiled =
            self.compile(|builder, layout| lower(region, plan, number, around, builder, layout));
        self.functions.push(compiled);
    }

    /// Undoes the last region. Another may come in its place.
    pub(super) fn take_back(&mut self) {
        if let Some(Some(function)) = self.functions.pop() {
            self.code.truncate(function.offset);
            self.sites.take_back(function.offset);
        }
    }

    /// Generates code as [`Context::compile`] does without optimising, but asks in between where
    /// the values of load sites will be: before that, some of them turn out to be others.
    fn generate(&mut self, sites: &mut [LoadSite]) -> Option<CompiledCode> {
        let (context, isa) = (&mut self.context, &*self.isa);
        let mut generate = || {
            let control = &mut ControlPlane::default();
            context.verify_if(isa)?;
            context.legalize(isa)?;
            context.compute_cfg();
            context.compute_domtree();
            context.eliminate_unreachable_code(isa)?;
            context.remove_constant_phis(isa)?;
            sites::label(&mut context.func, sites);
            context.func.dfg.resolve_all_aliases();
            let code = isa.compile_function(&context.func, &context.domtree, false, control)?;
            Ok(code.apply_params(&context.func.params))
        };
        let result: CodegenResult<_> = generate();
        debug_assert!(result.is_ok(), "a region does not compile: {result:?}");
        result.ok()
    }

    /// Compiles a function that has no loads that may fault.
    fn compile_alone(&mut self, function: Function) -> Option<Compiled> {
        let mut function = Some(function);
        self.compile(|_, _| (function.take().unwrap_or_else(Function::new), Vec::new()))
    }

    /// Compiles what `lower` makes.
    fn compile(
        &mut self,
        mut lower: impl FnMut(&mut FunctionBuilderContext, Layout) -> (Function, Vec<LoadSite>),
    ) -> Option<Compiled> {
        let (function, mut sites) = lower(&mut self.builder, Layout::Cold);
        self.context.clear();
        self.context.func = function;
        let compiled = self.generate(&mut sites)?;
        let known = match sites::places(&self.context.func, &compiled, &sites, Need::All) {
            Some(known) => known,
            None => {
                // Cranelift does not always say where values are around cold blocks. In other
                // places of the code, the same instructions have them in the same registers.
                let (function, mut sites) = lower(&mut self.builder, Layout::InOrder);
                self.context.clear();
                self.context.func = function;
                let in_order = self.generate(&mut sites)?;
                sites::places(&self.context.func, &in_order, &sites, Need::Fault)?
            }
        };
        let frame = compiled.buffer.frame_layout();
        if frame.is_none_or(|frame| frame.frame_to_fp_offset > LARGEST_FRAME) {
            return None;
        }
        self.code.resize(self.code.len().next_multiple_of(16), 0xcc);
        let offset = self.code.len();
        let mut relocations = Vec::new();
        for relocation in compiled.buffer.relocs() {
            let FinalizedRelocTarget::ExternalName(cranelift_codegen::ir::ExternalName::User(name)) =
                &relocation.target
            else {
                debug_assert!(false, "an unexpected relocation: {relocation:?}");
                return None;
            };
            if !matches!(relocation.kind, Reloc::X86CallPCRel4) {
                debug_assert!(false, "an unexpected relocation: {relocation:?}");
                return None;
            }
            relocations.push((offset + relocation.offset as usize, *name, relocation.addend));
        }
        self.sites.add(&compiled, &sites, known, offset);
        self.code.extend_from_slice(compiled.buffer.data());
        let names = self.context.func.params.user_named_funcs();
        let relocations = relocations
            .into_iter()
            .map(|(at, name, addend)| (at, names[name].index, addend))
            .collect();
        Some(Compiled { offset, relocations })
    }

    /// Links everything. `starts` are the addresses of all regions by number, also of those that
    /// were not compiled. Gives the code, which starts with the trampoline, and the offset of each
    /// function by number, and the loads that may fault; `None` if the host cannot have the code.
    pub(super) fn finish(mut self, starts: &[u64]) -> Option<(Vec<u8>, Vec<Option<usize>>, Sites)> {
        self.functions.resize_with(starts.len(), || None);
        let offsets: Vec<_> =
            self.functions.iter().map(|function| Some(function.as_ref()?.offset)).collect();
        // What stands in for a function that is not there returns to where it was called from,
        // and the dispatcher goes on where the guest is then.
        let mut is_called = vec![false; starts.len()];
        for (_, target, _) in self.functions.iter().flatten().flat_map(|made| &made.relocations) {
            is_called[*target as usize] = true;
        }
        let mut linked = Vec::new();
        for ((offset, start), is_called) in offsets.iter().zip(starts).zip(is_called) {
            linked.push(match offset {
                Some(offset) => *offset,
                None if !is_called => 0,
                None => {
                    let absent = self.absent(*start);
                    self.compile_alone(absent)?.offset
                }
            });
        }
        for function in self.functions.iter().flatten() {
            for (at, target, addend) in &function.relocations {
                let value = linked[*target as usize] as i64 + addend - *at as i64;
                let value = i32::try_from(value).ok()?;
                self.code[*at..*at + 4].copy_from_slice(&value.to_le_bytes());
            }
        }
        Some((self.code, offsets, self.sites.finish()))
    }

    /// A function that only says where the guest goes on.
    fn absent(&mut self, pc: u64) -> Function {
        let mut function = Function::with_name_signature(UserFuncName::user(1, 1), signature());
        let mut builder = FunctionBuilder::new(&mut function, &mut self.builder);
        let block = builder.create_block();
        builder.append_block_params_for_function_params(block);
        builder.switch_to_block(block);
        builder.seal_block(block);
        let next = builder.ins().iconst(types::I64, pc as i64);
        let mut results: Vec<_> =
            std::iter::once(next).chain(builder.block_params(block).iter().copied()).collect();
        turn(&mut results);
        builder.ins().return_(&results);
        builder.finalize();
        function
    }

    /// A function that calls a helper, and preserves all registers.
    fn helper(&mut self, number: usize) -> Function {
        let own = helper_signature();
        let mut function = Function::with_name_signature(UserFuncName::user(1, 2), own);
        let mut builder = FunctionBuilder::new(&mut function, &mut self.builder);
        let block = builder.create_block();
        builder.append_block_params_for_function_params(block);
        builder.switch_to_block(block);
        builder.seal_block(block);
        let base = builder.ins().get_pinned_reg(types::I64);
        let target = builder.ins().load(types::I64, THERE, base, frame::function(number));
        let questions = (0..4)
            .map(|number| builder.ins().load(types::I64, THERE, base, frame::question(number)));
        let arguments: Vec<_> =
            std::iter::once(base).chain(questions.collect::<Vec<_>>()).collect();
        let mut foreign = Signature::new(CallConv::SystemV);
        foreign.params.extend([AbiParam::new(types::I64); 5]);
        foreign.returns.extend([AbiParam::new(types::I64); 2]);
        let foreign = builder.import_signature(foreign);
        let call = builder.ins().call_indirect(foreign, target, &arguments);
        let results = builder.inst_results(call).to_vec();
        for (number, result) in results.iter().enumerate() {
            builder.ins().store(THERE, *result, base, frame::answer(number));
        }
        builder.ins().return_(&[]);
        builder.finalize();
        function
    }

    /// A function in the host's own convention that calls one in ours.
    fn trampoline(&mut self) -> Function {
        let mut own = Signature::new(CallConv::SystemV);
        own.params.extend([AbiParam::new(types::I64); 3]);
        own.returns.push(AbiParam::new(types::I64));
        let mut function = Function::with_name_signature(UserFuncName::user(1, 0), own);
        let mut builder = FunctionBuilder::new(&mut function, &mut self.builder);
        let block = builder.create_block();
        builder.append_block_params_for_function_params(block);
        builder.switch_to_block(block);
        builder.seal_block(block);
        let parameters = builder.block_params(block).to_vec();
        let [base, target, left] = parameters[..] else { return Function::new() };
        let saved = builder.ins().get_pinned_reg(types::I64);
        builder.ins().set_pinned_reg(base);
        let mut arguments = vec![left];
        for register in PASSED {
            let offset = frame::register(register);
            arguments.push(builder.ins().load(types::I64, THERE, base, offset));
        }
        let passing = builder.import_signature(signature());
        let call = builder.ins().call_indirect(passing, target, &arguments);
        let mut results = builder.inst_results(call).to_vec();
        turn(&mut results);
        let base = builder.ins().get_pinned_reg(types::I64);
        builder.ins().set_pinned_reg(saved);
        builder.ins().store(MemFlags::trusted(), results[1], base, frame::LEFT);
        for (register, value) in PASSED.iter().zip(&results[2..]) {
            builder.ins().store(MemFlags::trusted(), *value, base, frame::register(*register));
        }
        builder.ins().return_(&results[..1]);
        builder.finalize();
        function
    }
}

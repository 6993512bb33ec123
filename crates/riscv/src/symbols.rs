//! Names of functions, for people who read a fault.

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind, read::elf::ElfFile64};
use sandtide_engine::Location;

use crate::{isa::Cpu, memory::Memory, unwind::UnwindTable};

/// A file may name at most this many functions; the rest have no names.
const MOST_FUNCTIONS: usize = 1 << 18;

/// How many callers a backtrace has.
const MOST_CALLERS: usize = 24;

/// What a program's file says about its own code: function names and how to unwind.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// Sorted by address.
    functions: Box<[Function]>,
    names: Box<str>,
    unwind: UnwindTable,
}

/// A function, cheap to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FunctionAt {
    /// By its number.
    Named(u32),
    /// By the address where it begins, or if that is not known by the address that was looked for.
    Nameless(u64),
}

#[derive(Debug)]
struct Function {
    address: u32,
    length: u32,
    name: u32,
    name_length: u32,
}

impl Symbols {
    /// Reads them from a file whose addresses are `base` too low. A file without them, or with
    /// nonsense in them, gives fewer names.
    pub(crate) fn read(data: &[u8], base: u64) -> Self {
        let Ok(file) = ElfFile64::<object::LittleEndian>::parse(data) else {
            return Self::default();
        };
        let mut names = String::new();
        let mut functions: Vec<Function> = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
            .filter_map(|symbol| {
                let name = symbol.name().ok().filter(|name| !name.is_empty())?;
                let name_at = u32::try_from(names.len()).ok()?;
                let function = Function {
                    address: u32::try_from(symbol.address().wrapping_add(base)).ok()?,
                    length: u32::try_from(symbol.size()).ok()?,
                    name: name_at,
                    name_length: u32::try_from(name.len()).ok()?,
                };
                names.push_str(name);
                Some(function)
            })
            .take(MOST_FUNCTIONS)
            .collect();
        functions.sort_by_key(|function| function.address);
        let unwind = file
            .section_by_name(".eh_frame")
            .and_then(|section| {
                let bytes = section.data().ok()?;
                Some(UnwindTable::read(bytes, section.address().wrapping_add(base)))
            })
            .unwrap_or_default();
        Self { functions: functions.into(), names: names.into(), unwind }
    }

    /// The addresses of functions.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        self.functions.iter().map(|function| u64::from(function.address))
    }

    /// A code address with the name of its function.
    pub(crate) fn locate(&self, pc: u64) -> Location {
        let symbol = self.index(pc).map(|index| {
            let function = &self.functions[index];
            (self.name_of(function).to_owned(), pc - u64::from(function.address))
        });
        Location { pc, symbol }
    }

    /// Where a thread is, innermost first, with its callers.
    pub(crate) fn backtrace(&self, cpu: &Cpu, memory: &Memory) -> Vec<Location> {
        // A return address may lie behind the end of a function that ends in a call.
        let behind_call = |caller: u64| {
            let call = self.locate(caller.wrapping_sub(1));
            Location { pc: caller, symbol: call.symbol.map(|(name, offset)| (name, offset + 1)) }
        };
        let callers = self.callers(MOST_CALLERS, cpu, memory).into_iter().map(behind_call);
        std::iter::once(self.locate(cpu.pc)).chain(callers).collect()
    }

    /// The return addresses of a thread's callers, innermost first, at most so many.
    pub(crate) fn callers(&self, most: usize, cpu: &Cpu, memory: &Memory) -> Vec<u64> {
        self.unwind.callers(most, cpu.pc, cpu.integers(), |address| {
            let address = u32::try_from(address).ok()?;
            memory.0.load::<8>(address).ok().map(u64::from_le_bytes)
        })
    }

    /// The function that a code address lies in.
    pub(crate) fn function(&self, pc: u64) -> FunctionAt {
        match self.index(pc) {
            Some(index) => FunctionAt::Named(index as u32),
            // A file without names may still tell where functions begin.
            None => FunctionAt::Nameless(self.unwind.function(pc).unwrap_or(pc)),
        }
    }

    /// What a function is called.
    pub(crate) fn name(&self, function: FunctionAt) -> String {
        match function {
            FunctionAt::Named(index) => {
                let function = self.functions.get(index as usize);
                function.map_or_else(String::new, |function| self.name_of(function).to_owned())
            }
            FunctionAt::Nameless(address) => format!("{address:#x}"),
        }
    }

    /// The number of the function that has a code address.
    fn index(&self, pc: u64) -> Option<usize> {
        let after = self.functions.partition_point(|function| u64::from(function.address) <= pc);
        let index = after.checked_sub(1)?;
        let Function { address, length, .. } = self.functions[index];
        // Hand-written functions often have no length.
        (length == 0 || pc - u64::from(address) < u64::from(length)).then_some(index)
    }

    fn name_of(&self, function: &Function) -> &str {
        let start = function.name as usize;
        &self.names[start..start + function.name_length as usize]
    }
}

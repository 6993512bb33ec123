//! Names of functions, for people who read a fault.

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind, read::elf::ElfFile64};
use sandtide_engine::Location;

use crate::unwind::UnwindTable;

/// A file may name at most this many functions; the rest have no names.
const MOST_FUNCTIONS: usize = 1 << 18;

/// What a program's file says about its own code: function names and how to unwind.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// Sorted by address.
    functions: Box<[Function]>,
    names: Box<str>,
    unwind: UnwindTable,
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
        let after = self.functions.partition_point(|function| u64::from(function.address) <= pc);
        let symbol = self.functions[..after].last().and_then(|function| {
            let offset = pc - u64::from(function.address);
            // Hand-written functions often have no length.
            let inside = offset < u64::from(function.length.max(1)) || function.length == 0;
            let range =
                function.name as usize..function.name as usize + function.name_length as usize;
            inside.then(|| (self.names[range].to_owned(), offset))
        });
        Location { pc, symbol }
    }

    /// Where a thread is, innermost first, with its callers. `load` reads 8 bytes of its memory.
    pub(crate) fn backtrace(
        &self,
        pc: u64,
        registers: [u64; 32],
        load: impl Fn(u64) -> Option<u64>,
    ) -> Vec<Location> {
        let callers = self.unwind.callers(pc, registers, load);
        // A return address may lie behind the end of a function that ends in a call.
        let behind_call = |caller: u64| {
            let call = self.locate(caller.wrapping_sub(1));
            Location { pc: caller, symbol: call.symbol.map(|(name, offset)| (name, offset + 1)) }
        };
        std::iter::once(self.locate(pc)).chain(callers.into_iter().map(behind_call)).collect()
    }
}

//! Names of functions, for people who read a fault.

use object::{Object as _, ObjectSymbol as _, SymbolKind, read::elf::ElfFile64};
use sandtide_engine::Location;
use serde::{Deserialize, Serialize};

/// A file may name at most this many functions; the rest have no names.
const MOST_FUNCTIONS: usize = 1 << 18;

/// So many bytes of names are kept, at most.
const MOST_NAMES: usize = 16 << 20;

/// The functions of a program's own file. Those of its libraries have no names.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Symbols {
    /// Sorted by address.
    functions: Box<[Function]>,
    names: Box<str>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Function {
    address: u64,
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
            // A file that was stripped still names what others call.
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
            .filter_map(|symbol| {
                let name = symbol.name().ok().filter(|name| !name.is_empty())?;
                if name.len() > MOST_NAMES - names.len() {
                    return None;
                }
                let function = Function {
                    address: symbol.address().wrapping_add(base),
                    length: u32::try_from(symbol.size()).ok()?,
                    name: names.len() as u32,
                    name_length: name.len() as u32,
                };
                names.push_str(name);
                Some(function)
            })
            .take(MOST_FUNCTIONS)
            .collect();
        functions.sort_by_key(|function| function.address);
        Self { functions: functions.into(), names: names.into() }
    }

    /// Them, to be kept.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, postcard::Error> {
        postcard::to_allocvec(self)
    }

    /// What was kept; `None` if it is nonsense.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let this: Self = postcard::from_bytes(bytes).ok()?;
        let has_name = |function: &Function| {
            let start = function.name as usize;
            this.names.get(start..start.checked_add(function.name_length as usize)?)
        };
        let is_right = this.functions.is_sorted_by_key(|function| function.address)
            && this.functions.iter().all(|function| has_name(function).is_some());
        is_right.then_some(this)
    }

    /// A code address with the name of its function.
    pub(crate) fn locate(&self, pc: u64) -> Location {
        let after = self.functions.partition_point(|function| function.address <= pc);
        let function = after.checked_sub(1).map(|index| &self.functions[index]);
        // Hand-written functions often have no length.
        let covers = |function: &&Function| {
            function.length == 0 || pc - function.address < u64::from(function.length)
        };
        let symbol = function.filter(covers).map(|function| {
            let start = function.name as usize;
            let name = &self.names[start..start + function.name_length as usize];
            (name.to_owned(), pc - function.address)
        });
        Location { pc, symbol }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_this_test_are_found() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let symbols = Symbols::read(&file, 0x1000);
        let Function { address, length, .. } =
            *symbols.functions.iter().find(|function| function.length > 8).unwrap();
        assert!(address >= 0x1000);
        let (name, offset) = symbols.locate(address + 1).symbol.unwrap();
        assert!(!name.is_empty() && offset == 1);
        let behind = symbols.locate(address + u64::from(length)).symbol;
        assert_ne!(behind.map(|(name, _)| name), Some(name));
        assert_eq!(symbols.locate(0).symbol, None);
        let bytes = symbols.to_bytes().unwrap();
        let kept = Symbols::from_bytes(&bytes).unwrap();
        assert_eq!(kept.locate(address + 1), symbols.locate(address + 1));
        assert!(Symbols::from_bytes(&bytes[..bytes.len() - 1]).is_none());
    }

    #[test]
    fn nonsense_has_no_names() {
        for data in [&b""[..], b"\x7fELF", &[0xff; 4096]] {
            assert_eq!(Symbols::read(data, 0).locate(0x1000).symbol, None);
        }
    }
}

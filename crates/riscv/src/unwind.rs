//! Who called whom: unwinding guest stacks by the program's own `.eh_frame`.
//!
//! Everything here comes from the guest: the tables from its file, the stack from its memory. A
//! walk is bounded in frames, in the size of the tables and in the bytes of one table entry, and
//! stops where something makes no sense.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindSection,
};

/// Larger tables are not read.
const LARGEST_TABLE: usize = 8 << 20;

/// Longer entries are skipped, and so are those that share rules that are longer: ordinary ones
/// have fewer than a hundred bytes, and each is followed anew for every frame.
const LONGEST_ENTRY: usize = 4 << 10;

/// Registers by their DWARF numbers, which are their own (RISC-V ELF psABI, DWARF §).
const RA: u16 = 1;
const SP: u16 = 2;
const REGISTERS: usize = 32;

/// Where one function's unwinding rules are.
#[derive(Debug)]
struct Entry {
    start: u32,
    end: u32,
    offset: u32,
}

/// A program's unwinding rules, by code address.
#[derive(Debug, Default)]
pub(crate) struct UnwindTable {
    section: Box<[u8]>,
    address: u64,
    /// Sorted by start.
    entries: Box<[Entry]>,
}

impl UnwindTable {
    /// Reads a section `.eh_frame` that lies at a guest address.
    pub(crate) fn read(section: &[u8], address: u64) -> Self {
        if section.len() > LARGEST_TABLE {
            return Self::default();
        }
        let table = EhFrame::new(section, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(address);
        let mut entries = Vec::new();
        let mut iterator = table.entries(&bases);
        while let Ok(Some(entry)) = iterator.next() {
            let gimli::CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
            let range = (
                u32::try_from(fde.initial_address()),
                u32::try_from(fde.initial_address().wrapping_add(fde.len())),
                u32::try_from(fde.offset()),
            );
            if let (Ok(start), Ok(end), Ok(offset)) = range
                && fde.entry_len().max(fde.cie().entry_len()) <= LONGEST_ENTRY
            {
                entries.push(Entry { start, end, offset });
            }
        }
        entries.sort_by_key(|entry| entry.start);
        Self { section: section.into(), address, entries: entries.into() }
    }

    /// Where the function that has a code address begins.
    pub(crate) fn function(&self, pc: u64) -> Option<u64> {
        self.entry(pc).map(|entry| u64::from(entry.start))
    }

    fn entry(&self, pc: u64) -> Option<&Entry> {
        let after = self.entries.partition_point(|entry| u64::from(entry.start) <= pc);
        self.entries[..after].last().filter(|entry| pc < u64::from(entry.end))
    }

    /// The return addresses of the callers of `pc`, innermost first.
    ///
    /// At most `most` of them; `load` reads 8 bytes of guest memory.
    pub(crate) fn callers(
        &self,
        most: usize,
        pc: u64,
        mut registers: [u64; REGISTERS],
        load: impl Fn(u64) -> Option<u64>,
    ) -> Vec<u64> {
        let mut callers = Vec::new();
        let mut context = UnwindContext::new();
        let mut at = pc;
        while callers.len() < most {
            let stack = registers[usize::from(SP)];
            let caller = match self.step(at, &mut registers, &mut context, &load) {
                Some(caller) => caller,
                // A leaf, or code without rules: the return address is still in its register.
                None if callers.is_empty() => registers[usize::from(RA)],
                None => break,
            };
            // A recursive function returns to the same place again, but it has a frame each time.
            let is_stuck = callers.last() == Some(&caller) && registers[usize::from(SP)] == stack;
            if caller == 0 || is_stuck {
                break;
            }
            callers.push(caller);
            // The call, not what follows it.
            at = caller.wrapping_sub(1);
        }
        callers
    }

    /// Restores the registers of the caller and returns the address it goes on at.
    fn step(
        &self,
        pc: u64,
        registers: &mut [u64; REGISTERS],
        context: &mut UnwindContext<usize>,
        load: &impl Fn(u64) -> Option<u64>,
    ) -> Option<u64> {
        let entry = self.entry(pc)?;
        let table = EhFrame::new(&self.section, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(self.address);
        let offset = gimli::EhFrameOffset(entry.offset as usize);
        let fde = table.fde_from_offset(&bases, offset, EhFrame::cie_from_offset).ok()?;
        let row = fde.unwind_info_for_address(&table, &bases, context, pc).ok()?;
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return None };
        let cfa = registers.get(usize::from(register.0))?.wrapping_add_signed(offset);
        let mut caller = *registers;
        for number in 0..REGISTERS as u16 {
            match row.register(Register(number)) {
                Some(RegisterRule::Offset(offset)) => {
                    caller[usize::from(number)] = load(cfa.wrapping_add_signed(offset))?;
                }
                Some(RegisterRule::ValOffset(offset)) => {
                    caller[usize::from(number)] = cfa.wrapping_add_signed(offset);
                }
                // The outermost function says that nobody called it.
                Some(RegisterRule::Undefined) if number == RA => return Some(0),
                _ => {}
            }
        }
        caller[usize::from(SP)] = cfa;
        *registers = caller;
        Some(caller[usize::from(RA)])
    }
}

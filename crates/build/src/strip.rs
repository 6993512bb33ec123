//! Taking debug information out of a program, and leaving its symbols.
//!
//! Linkers have a flag for it, but zig's takes the symbols too, and the debug information of its
//! C library is many times the size of a program.

const HEADER: usize = 64;
const SECTION: usize = 64;
const SEGMENT: usize = 56;
const SYMBOL: usize = 24;
const SHT_NULL: u32 = 0;
const SHT_SYMTAB: u32 = 2;
const SHT_NOBITS: u32 = 8;
const SHF_ALLOC: u64 = 2;

/// The program without its `.debug_*` sections; `None` if it is not an ELF64 executable as
/// linkers write them.
///
/// What is loaded stays at its place. What is not (symbols, names, …) moves up behind it. Sections
/// that are taken out leave an inactive entry in the table (`SHT_NULL`; System V ABI, Sections), so
/// that no index that a symbol has changes its meaning.
pub(crate) fn strip(elf: &[u8]) -> Option<Vec<u8>> {
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let sections = table(elf, 40, 60, 58, SECTION)?;
    let segments = table(elf, 32, 56, 54, SEGMENT)?;
    let names_index = usize::from(u16_at(elf, 62)?);
    let names = elf.get(extent(elf, *sections.get(names_index)?)?)?;

    let mut end = segments.last().map_or(HEADER, |at| at + SEGMENT);
    for &at in &sections {
        let loaded = u64_at(elf, at + 8)? & SHF_ALLOC != 0;
        if loaded && u32_at(elf, at + 4)? != SHT_NOBITS {
            end = end.max(extent(elf, at)?.end);
        }
    }
    let is_debug = |at: usize| {
        let name = names.get(u32_at(elf, at)? as usize..)?;
        Some(name.starts_with(b".debug_") && u64_at(elf, at + 8)? & SHF_ALLOC == 0)
    };
    let removed = sections.iter().map(|&at| is_debug(at)).collect::<Option<Vec<bool>>>()?;
    let mut out = elf.get(..end)?.to_vec();
    let mut new_table = Vec::with_capacity(sections.len() * SECTION);
    for (&at, &removed_here) in sections.iter().zip(&removed) {
        let mut entry = elf.get(at..at + SECTION)?.to_vec();
        let (kind, flags) = (u32_at(elf, at + 4)?, u64_at(elf, at + 8)?);
        if removed_here {
            entry.fill(0);
        } else if kind != SHT_NULL && kind != SHT_NOBITS && flags & SHF_ALLOC == 0 {
            let old = extent(elf, at)?;
            let alignment = usize::try_from(u64_at(elf, at + 48)?).ok()?.clamp(1, 4096);
            out.resize(out.len().next_multiple_of(alignment), 0);
            let new = (out.len() as u64).to_le_bytes();
            entry[24..32].copy_from_slice(&new);
            // `PT_RISCV_ATTRIBUTES` names such a section by its place.
            for &segment in &segments {
                if u64_at(elf, segment + 8)? == old.start as u64 && !old.is_empty() {
                    out.get_mut(segment + 8..segment + 16)?.copy_from_slice(&new);
                }
            }
            if kind == SHT_SYMTAB {
                let (symbols, locals) = symbols(&elf[old], u32_at(elf, at + 44)?, &removed)?;
                entry[32..40].copy_from_slice(&(symbols.len() as u64).to_le_bytes());
                entry[44..48].copy_from_slice(&locals.to_le_bytes());
                out.extend_from_slice(&symbols);
            } else {
                out.extend_from_slice(&elf[old]);
            }
        }
        new_table.extend_from_slice(&entry);
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let place = (out.len() as u64).to_le_bytes();
    out[40..48].copy_from_slice(&place);
    out.extend_from_slice(&new_table);
    Some(out)
}

/// A symbol table without the symbols of removed sections, of which RISC-V's debug information has
/// thousands, and how many of the rest are local. (Nothing in an executable refers to a symbol by
/// its index here.)
fn symbols(table: &[u8], locals: u32, removed: &[bool]) -> Option<(Vec<u8>, u32)> {
    let (mut kept, mut kept_locals) = (Vec::new(), 0);
    for (index, symbol) in table.chunks_exact(SYMBOL).enumerate() {
        let section = usize::from(u16_at(symbol, 6)?);
        if removed.get(section).is_some_and(|&removed| removed) {
            continue;
        }
        kept.extend_from_slice(symbol);
        kept_locals += u32::from(index < locals as usize);
    }
    Some((kept, kept_locals))
}

/// The offsets of the entries of a table, from where the ELF header has its offset, count and
/// entry size.
fn table(
    elf: &[u8],
    offset: usize,
    count: usize,
    size: usize,
    wanted: usize,
) -> Option<Vec<usize>> {
    let start = usize::try_from(u64_at(elf, offset)?).ok()?;
    let count = usize::from(u16_at(elf, count)?);
    if count > 0 && usize::from(u16_at(elf, size)?) != wanted {
        return None;
    }
    let end = start.checked_add(count * wanted)?;
    (end <= elf.len()).then(|| (start..end).step_by(wanted).collect())
}

/// Where a section's bytes are in the file.
fn extent(elf: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(u64_at(elf, at + 24)?).ok()?;
    let end = start.checked_add(usize::try_from(u64_at(elf, at + 32)?).ok()?)?;
    (end <= elf.len()).then_some(start..end)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use object::{Object, ObjectSection, ObjectSymbol};

    use super::*;

    /// This test's own executable: a real one, with symbols and debug information.
    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn debug_information_goes_and_everything_else_stays() {
        let before = own();
        let after = strip(&before).unwrap();
        assert!(after.len() < before.len());
        let old = object::File::parse(&*before).unwrap();
        let new = object::File::parse(&*after).unwrap();
        for name in [".debug_info", ".debug_line", ".debug_str"] {
            assert!(old.section_by_name(name).is_some() && new.section_by_name(name).is_none());
        }
        for section in new.sections() {
            let name = section.name().unwrap();
            if name.is_empty() {
                continue;
            }
            let was = old.section_by_index(section.index()).unwrap();
            assert_eq!(was.name().unwrap(), name);
            assert_eq!(was.data().unwrap(), section.data().unwrap(), "{name}");
        }
        let symbols = |file: &object::File<'_>| -> Vec<_> {
            file.symbols()
                .map(|symbol| (symbol.name().unwrap().to_owned(), symbol.address()))
                .collect()
        };
        assert!(symbols(&new).iter().any(|(name, _)| name.contains("debug_information_goes")));
        assert_eq!(symbols(&old), symbols(&new));
        assert_eq!(strip(&after).unwrap().len(), after.len());
    }

    #[test]
    fn what_is_no_executable_is_left_alone() {
        assert_eq!(strip(b""), None);
        assert_eq!(strip(b"#!/bin/sh\n"), None);
        let whole = own();
        for length in [4, 40, 63, 64, 100, whole.len() / 2, whole.len() - 1] {
            assert_eq!(strip(&whole[..length]), None, "{length}");
        }
    }
}

//! Reading a program's file: 64-bit ELF (ELF gABI).

use object::{
    LittleEndian as LE,
    elf::{
        ET_DYN, ET_EXEC, FileHeader64, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD, PT_PHDR,
        ProgramHeader64,
    },
    read::elf::{FileHeader as _, ProgramHeader as _},
};
use sandtide_engine::LoadError;

use crate::{ImageLayout, PAGE, Protection};

/// What an engine runs.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The ELF machine number.
    pub machine: u16,
    /// What to do with a file for another machine.
    pub compile: &'static str,
    /// Where a position-independent program is put.
    pub pie_base: u64,
    /// The end of the addresses that a program's file may have; above is room for its heap and
    /// stack.
    pub highest: u64,
    /// What to do with a file that is linked to higher addresses.
    pub link_lower: &'static str,
    /// Whether a program may name an interpreter, which loads its libraries.
    pub interpreter: bool,
    /// What is wrong with the processor flags of a file, if something is, with a hint.
    pub check_flags: fn(u32) -> Option<(String, &'static str)>,
}

/// The lowest address that a segment may have: address 0 must trap.
const LOWEST: u64 = 0x1000;

/// A file may have at most this many segments.
const MOST_SEGMENTS: usize = 64;

/// The longest path of an interpreter, in bytes (`PATH_MAX`).
const LONGEST_PATH: usize = 4096;

/// A part of the file that is put into memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment<'data> {
    /// The first guest address.
    pub address: u64,
    /// How much memory it covers, in bytes; what the file does not fill is zero.
    pub length: u64,
    /// What the file has for it.
    pub bytes: &'data [u8],
    /// What the guest may do with it.
    pub protection: Protection,
}

impl Segment<'_> {
    /// The pages that it covers, as a start and an end address.
    pub fn pages(&self) -> (u64, u64) {
        (self.address / PAGE * PAGE, (self.address + self.length).next_multiple_of(PAGE))
    }
}

/// A program's file, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image<'data> {
    /// Sorted by address, not overlapping, all below [`Target::highest`].
    pub segments: Vec<Segment<'data>>,
    /// Where it starts.
    pub entry: u64,
    /// What was added to the file's addresses.
    pub base: u64,
    /// The guest address of the program headers, or 0 if they are not in memory.
    pub headers: u64,
    /// How many program headers there are.
    pub header_count: u16,
    /// The size of a program header.
    pub header_size: u16,
    /// The path of the program that loads this one's libraries and starts it.
    pub interpreter: Option<&'data str>,
}

impl Image<'_> {
    /// The end of the pages that it covers.
    pub fn end(&self) -> u64 {
        self.segments.iter().map(|segment| segment.pages().1).max().unwrap_or(0)
    }

    /// Whether a file names an interpreter. Says nothing about whether it is in order.
    pub fn names_interpreter(data: &[u8]) -> bool {
        let headers = |data| FileHeader64::<LE>::parse(data)?.program_headers(LE, data);
        headers(data).is_ok_and(|headers| headers.iter().any(is_interpreter))
    }

    /// What a process needs to know of it.
    pub fn layout(&self) -> ImageLayout {
        let segments: Vec<_> = self
            .segments
            .iter()
            .map(|segment| {
                let (start, end) = segment.pages();
                crate::Segment { start, end, protection: segment.protection }
            })
            .collect();
        ImageLayout {
            entry: self.entry,
            phdr: self.headers,
            phent: u64::from(self.header_size),
            phnum: u64::from(self.header_count),
            brk_start: self.end(),
            segments,
            interpreter_base: 0,
        }
    }
}

/// Whether a file is a 64-bit ELF for this machine, by its first bytes.
pub fn is_for(machine: u16, image: &[u8]) -> bool {
    image.starts_with(b"\x7fELF") && image.get(18..20) == Some(&machine.to_le_bytes())
}

/// Reads and checks a file. Nothing in it is believed.
pub fn parse<'data>(data: &'data [u8], target: &Target) -> Result<Image<'data>, LoadError> {
    if !data.starts_with(b"\x7fELF") {
        return Err(refuse(
            "not an ELF file",
            Some("build one with `sandtide build`, or cross-compile with `-static`"),
        ));
    }
    // Class and byte order come before everything that depends on them (ELF gABI, e_ident).
    let of_another = match data.get(4..6) {
        Some([1, _]) => Some("built for a 32-bit machine"),
        Some([_, 2]) => Some("built for a big-endian machine"),
        _ => None,
    };
    if let Some(what) = of_another {
        return Err(refuse(what, Some(target.compile)));
    }
    let header = FileHeader64::<LE>::parse(data)
        .map_err(|error| refuse(format!("not a 64-bit ELF file: {error}"), None))?;
    check_target(header, target)?;
    let headers = header
        .program_headers(LE, data)
        .map_err(|error| refuse(format!("bad program headers: {error}"), None))?;
    if headers.iter().any(is_interpreter) && !target.interpreter {
        return Err(refuse(
            "the program is dynamically linked",
            Some("link it with `-static` or `-static-pie`"),
        ));
    }
    let interpreter = interpreter(headers, data)?;
    let base = if header.e_type(LE) == ET_DYN { target.pie_base } else { 0 };
    let segments = segments(headers, data, base, target)?;
    let entry = header.e_entry(LE).wrapping_add(base);
    let executable = |segment: &Segment<'_>| {
        segment.protection.execute
            && (segment.address..segment.address + segment.length).contains(&entry)
    };
    if !segments.iter().any(executable) {
        return Err(refuse(format!("the entry point {entry:#x} is not code"), None));
    }
    Ok(Image {
        entry,
        base,
        headers: headers_address(headers, header.e_phoff(LE), &segments, base),
        header_count: header.e_phnum(LE),
        header_size: header.e_phentsize(LE),
        segments,
        interpreter,
    })
}

fn is_interpreter(header: &ProgramHeader64<LE>) -> bool {
    header.p_type(LE) == PT_INTERP
}

/// The path that the file names: absolute, and ended by a NUL.
fn interpreter<'data>(
    headers: &[ProgramHeader64<LE>],
    data: &'data [u8],
) -> Result<Option<&'data str>, LoadError> {
    let Some(header) = headers.iter().find(|header| is_interpreter(header)) else {
        return Ok(None);
    };
    let bytes = header.data(LE, data).unwrap_or_default();
    let path = bytes.strip_suffix(b"\0").and_then(|path| std::str::from_utf8(path).ok());
    let usable = |path: &&str| {
        path.starts_with('/') && path.len() < LONGEST_PATH && !path.contains(char::is_control)
    };
    path.filter(usable).map(Some).ok_or_else(|| refuse("the interpreter's path is not one", None))
}

fn check_target(header: &FileHeader64<LE>, target: &Target) -> Result<(), LoadError> {
    if header.e_machine(LE) != target.machine {
        return Err(refuse(
            format!("built for another machine (ELF machine {})", header.e_machine(LE)),
            Some(target.compile),
        ));
    }
    if let Some((what, hint)) = (target.check_flags)(header.e_flags(LE)) {
        return Err(refuse(what, Some(hint)));
    }
    match header.e_type(LE) {
        ET_EXEC | ET_DYN => Ok(()),
        kind => Err(refuse(
            format!("not a program (ELF type {kind})"),
            Some("link the object files to a static executable"),
        )),
    }
}

fn segments<'data>(
    headers: &[ProgramHeader64<LE>],
    data: &'data [u8],
    base: u64,
    target: &Target,
) -> Result<Vec<Segment<'data>>, LoadError> {
    let mut segments = Vec::new();
    for header in headers.iter().filter(|header| header.p_type(LE) == PT_LOAD) {
        let (length, flags) = (header.p_memsz(LE), header.p_flags(LE));
        if length == 0 {
            continue;
        }
        let address = header.p_vaddr(LE).wrapping_add(base);
        let highest = target.highest;
        let inside = address >= LOWEST && length <= highest && address <= highest - length;
        if !inside {
            return Err(refuse(
                format!("a segment at {address:#x} of {length:#x} bytes is outside guest memory"),
                Some(target.link_lower),
            ));
        }
        let bytes = header
            .data(LE, data)
            .map_err(|()| refuse("a segment lies outside the file; is it complete?", None))?;
        if bytes.len() as u64 > length {
            return Err(refuse("a segment has more bytes than memory", None));
        }
        segments.push(Segment {
            address,
            length,
            bytes,
            protection: Protection {
                read: flags & PF_R != 0,
                write: flags & PF_W != 0,
                execute: flags & PF_X != 0,
            },
        });
        if segments.len() > MOST_SEGMENTS {
            return Err(refuse(format!("more than {MOST_SEGMENTS} segments"), None));
        }
    }
    segments.sort_by_key(|segment| segment.address);
    if let Some(pair) =
        segments.windows(2).find(|pair| pair[0].address + pair[0].length > pair[1].address)
    {
        return Err(refuse(format!("two segments overlap at {:#x}", pair[1].address), None));
    }
    Ok(segments)
}

/// Where the program headers are in memory: where `PT_PHDR` says, or in the segment that covers
/// their place in the file.
fn headers_address(
    headers: &[ProgramHeader64<LE>],
    offset: u64,
    segments: &[Segment<'_>],
    base: u64,
) -> u64 {
    let declared = headers
        .iter()
        .find(|header| header.p_type(LE) == PT_PHDR)
        .map(|header| header.p_vaddr(LE).wrapping_add(base));
    let covering = || {
        headers
            .iter()
            .filter(|header| header.p_type(LE) == PT_LOAD)
            .find(|header| {
                let (start, length) = header.file_range(LE);
                offset >= start && offset - start < length
            })
            .map(|header| {
                header.p_vaddr(LE).wrapping_add(base).wrapping_add(offset - header.p_offset(LE))
            })
    };
    declared
        .or_else(covering)
        .filter(|address| {
            segments.iter().any(|segment| {
                *address >= segment.address && *address - segment.address < segment.length
            })
        })
        .unwrap_or(0)
}

/// Where there is no better advice: no linker writes such a file.
const DAMAGED: &str = "the file is damaged or cut off: build it again";

fn refuse(what: impl Into<String>, hint: Option<&'static str>) -> LoadError {
    LoadError::NotAProgram { what: what.into(), hint: hint.or(Some(DAMAGED)) }
}

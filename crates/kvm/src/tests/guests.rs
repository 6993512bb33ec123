//! Guest programs: assembled with these tests, put into ELF files here. No compiler is needed.
//!
//! Code is at [`CODE`] and position-independent; [`DATA`] is 64 KiB that can be written.

use std::sync::Arc;

use sandtide_engine::{
    Console, Engine as _, Fault, Limits, LoadError, Program, ProgramSource, Stream, Translate,
    Warmup,
};

use crate::{KvmEngine, testing};

pub(super) const CODE: u64 = 0x40_0000;
pub(super) const DATA: u64 = 0x50_0000;

/// Guest code, as a function that returns its bytes.
macro_rules! guest {
    ($visible:vis $name:ident: $($line:expr),+ $(,)?) => {
        $crate::inside::code!($visible $name: [$($line),+]);
    };
}
pub(super) use guest;

/// An ELF file with this code.
pub(super) fn elf(code: &[u8]) -> Vec<u8> {
    file(2, CODE, code, &[])
}

/// An ELF file of type `kind` with code that begins at `start`, and with the path of its interpreter,
/// if that is not empty.
pub(super) fn file(kind: u16, start: u64, code: &[u8], interpreter: &[u8]) -> Vec<u8> {
    const RX: u32 = 5;
    const RW: u32 = 6;
    let (length, data) = (code.len() as u64, start + DATA - CODE);
    let mut headers =
        vec![(1u32, RX, 0x1000u64, start, length, length), (1, RW, 0, data, 0, 0x1_0000)];
    let path = interpreter.len() as u64;
    if path > 0 {
        headers.push((3, 4, 0x800, start + 0x800, path, path));
    }
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(kind.to_le_bytes());
    file.extend(62u16.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    file.extend(start.to_le_bytes());
    file.extend(64u64.to_le_bytes());
    file.extend(0u64.to_le_bytes());
    file.extend(0u32.to_le_bytes());
    for half in [64, 56, headers.len() as u16, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    for (what, flags, offset, address, in_file, in_memory) in headers {
        file.extend(what.to_le_bytes());
        file.extend(flags.to_le_bytes());
        for word in [offset, address, address, in_file, in_memory, 0x1000] {
            file.extend(word.to_le_bytes());
        }
    }
    file.resize(0x800, 0);
    file.extend(interpreter);
    file.resize(0x1000, 0);
    file.extend(code);
    file
}

pub(super) fn source(code: &[u8]) -> ProgramSource {
    ProgramSource {
        name: "guest".to_owned(),
        image: elf(code).into(),
        args: vec!["guest".to_owned()],
        env: Vec::new(),
        reseed: false,
        files: Vec::new(),
        network: None,
        path: "/program".to_owned(),
        directory: "/".to_owned(),
        translate: Translate::Off,
        warmup: Warmup::default(),
    }
}

/// Throws away what guests write.
pub(super) struct Quiet;

impl Console for Quiet {
    fn write(&self, _: Stream, _: &[u8]) {}
}

/// Whether there is a KVM. Says so if not.
pub(super) fn has_kvm() -> bool {
    crate::probe().map_err(testing::skip).is_ok()
}

/// Runs code to its end.
pub(super) fn execute(code: &[u8], limits: &Limits) -> Result<u8, Fault> {
    let stdin = Box::new(std::io::empty());
    KvmEngine::new().execute(&source(code), limits, stdin, Arc::new(Quiet)).unwrap()
}

/// Loads a program.
pub(super) fn load(code: &[u8], limits: &Limits) -> Result<Arc<dyn Program>, LoadError> {
    KvmEngine::new().load(&source(code), limits, Arc::new(Quiet))
}

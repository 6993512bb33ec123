//! Chooses the engine by looking at the program, and says what a file is that no engine runs.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sandtide_engine::Engine;
use sandtide_snapshot::is_snapshot;

/// As much of a file as engines look at.
const HEAD: u64 = 4096;

/// Why a file cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    /// A directory.
    #[error("`{}` is a directory", .0.display())]
    Directory(PathBuf),
    /// It cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No engine runs it.
    #[error("{what}")]
    NotAProgram {
        /// What it is instead.
        what: String,
        /// What to do about it.
        hint: String,
    },
}

impl ChooseError {
    /// What to do about it, if there is something to say.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Directory(_) => Some("name the program's file"),
            Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("check the path, or make the program: `sandtide build SOURCE -o PROGRAM`")
            }
            Self::Read { .. } => None,
            Self::NotAProgram { hint, .. } => Some(hint),
        }
    }
}

/// Reads a program's file. Of a snapshot its beginning, which tells it from all others.
pub fn read(file: &Path) -> Result<Bytes, ChooseError> {
    let head = read_head(file)?;
    if is_snapshot(&head) {
        return Ok(head);
    }
    match fs::read(file) {
        Ok(image) => Ok(image.into()),
        Err(source) => Err(cannot_read(file, source)),
    }
}

/// Reads the beginning of a program's file: enough for [`engine`].
pub fn read_head(file: &Path) -> Result<Bytes, ChooseError> {
    let mut head = Vec::new();
    let read = File::open(file).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    match read {
        Ok(_) => Ok(head.into()),
        Err(source) => Err(cannot_read(file, source)),
    }
}

fn cannot_read(file: &Path, source: io::Error) -> ChooseError {
    let path = file.to_owned();
    if file.is_dir() { ChooseError::Directory(path) } else { ChooseError::Read { path, source } }
}

/// The file of a program that is named as on a shell: a path, or what `PATH` has by this name where
/// no such file is here.
pub fn find(name: &str) -> PathBuf {
    let here = PathBuf::from(name);
    if name.contains('/') || here.exists() {
        return here;
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&directories).map(|directory| directory.join(name));
    found.find(|file| file.is_file()).unwrap_or(here)
}

/// The engine with this name, or the first that recognises the program.
pub fn engine(
    engines: &[Arc<dyn Engine>],
    name: Option<&str>,
    file: &Path,
    image: &[u8],
) -> Result<Arc<dyn Engine>, ChooseError> {
    let chosen = engines.iter().find(|engine| match name {
        Some(name) => engine.name() == name,
        None => engine.recognises(image),
    });
    chosen.cloned().ok_or_else(|| not_a_program(file, image))
}

/// Whether a file looks like a compiled program, for any machine.
pub fn is_elf(image: &[u8]) -> bool {
    image.starts_with(b"\x7fELF")
}

/// Whether a file is something that `sandtide build` compiles, by its name.
pub fn is_source(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("c" | "cc" | "cpp" | "cxx" | "py"))
}

fn not_a_program(file: &Path, image: &[u8]) -> ChooseError {
    let shown = file.display();
    let error = |what: String, hint: &str| ChooseError::NotAProgram { what, hint: hint.to_owned() };
    if is_source(file) {
        let hint = format!("compile it: `sandtide build {shown}`");
        return error(format!("`{shown}` is source code, not a program"), &hint);
    }
    if !is_elf(image) {
        let hint = "a program is an ELF file for Linux: a static one for RISC-V, as `sandtide build` makes it, \
                    or any for x86-64; a script is run by naming its interpreter";
        return error(format!("`{shown}` is not a program (no ELF file)"), hint);
    }
    let what = match (image.get(4), image.get(18..20)) {
        (Some(1), Some(&[243, 0])) => {
            format!("`{shown}` is a program for 32-bit RISC-V, which no engine of this build runs")
        }
        (Some(_), Some(&[low, high])) => format!(
            "`{shown}` is a program for {}, which no engine of this build runs",
            machine(u16::from_le_bytes([low, high]))
        ),
        _ => format!("`{shown}` is an ELF file that is cut off"),
    };
    error(what, "compile it for riscv64 Linux and link it statically: `sandtide build SOURCE`")
}

/// The name of an ELF machine number (`e_machine`).
fn machine(number: u16) -> String {
    match number {
        3 => "x86".to_owned(),
        40 => "32-bit ARM".to_owned(),
        62 => "x86-64".to_owned(),
        183 => "AArch64".to_owned(),
        243 => "RISC-V of a kind".to_owned(),
        258 => "LoongArch".to_owned(),
        other => format!("machine {other}"),
    }
}

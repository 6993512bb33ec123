//! Chooses the engine by looking at the program, and says what a file is that no engine runs.

use std::{fs, path::Path, sync::Arc};

use anyhow::Context as _;
use bytes::Bytes;
use sandtide_engine::Engine;

use crate::report::Hinted;

/// Reads a program's file.
pub fn read(file: &Path) -> anyhow::Result<Bytes> {
    let shown = file.display();
    if file.is_dir() {
        let message = format!("`{shown}` is a directory");
        return Err(Hinted::new(message, "name the program's file").into());
    }
    match fs::read(file) {
        Ok(image) => Ok(image.into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let hint = "check the path, or make the program: `sandtide build SOURCE -o PROGRAM`";
            Err(Hinted::new(format!("cannot read `{shown}`"), hint).because(error).into())
        }
        Err(error) => Err(error).with_context(|| format!("cannot read `{shown}`")),
    }
}

/// The engine with this name, or the first that recognises the program.
pub fn engine(
    engines: &[Arc<dyn Engine>],
    name: Option<&str>,
    file: &Path,
    image: &[u8],
) -> anyhow::Result<Arc<dyn Engine>> {
    let chosen = engines.iter().find(|engine| match name {
        Some(name) => engine.name() == name,
        None => engine.recognises(image),
    });
    match chosen {
        Some(engine) => Ok(engine.clone()),
        None => Err(not_a_program(file, image).into()),
    }
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

fn not_a_program(file: &Path, image: &[u8]) -> Hinted {
    let shown = file.display();
    if is_source(file) {
        let hint = format!("compile it: `sandtide build {shown}`");
        return Hinted::new(format!("`{shown}` is source code, not a program"), hint);
    }
    if !is_elf(image) {
        let hint = "a program is a static RISC-V Linux ELF, as `sandtide build` makes it";
        return Hinted::new(format!("`{shown}` is not a program (no ELF file)"), hint);
    }
    let hint = "compile it for riscv64 Linux and link it statically: `sandtide build SOURCE`";
    let message = match (image.get(4), image.get(18..20)) {
        (Some(1), Some(&[243, 0])) => {
            format!("`{shown}` is a program for 32-bit RISC-V, which no engine of this build runs")
        }
        (Some(_), Some(&[low, high])) => format!(
            "`{shown}` is a program for {}, which no engine of this build runs",
            machine(u16::from_le_bytes([low, high]))
        ),
        _ => format!("`{shown}` is an ELF file that is cut off"),
    };
    Hinted::new(message, hint)
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

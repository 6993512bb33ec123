//! Runs the real binary in a directory of its own.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

/// A directory with files, in which `sandtide` runs: what it prints then has no absolute paths.
pub struct Place {
    directory: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { directory: TempDir::new().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Puts a file into the directory, or into one below it.
    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    /// The binary, with nothing of this process's settings that it would look at.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(args).current_dir(self.path());
        command.env_remove("SANDTIDE_LOG").env("COLUMNS", "100");
        command
    }

    /// Runs it to its end. Shows exit code, standard output and standard error.
    pub fn run(&self, args: &[&str]) -> String {
        self.run_with_input(args, b"")
    }

    pub fn run_with_input(&self, args: &[&str], input: &[u8]) -> String {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        format!(
            "exit: {}\n--- stdout\n{}--- stderr\n{}",
            output.status.code().map_or("signal".to_owned(), |code| code.to_string()),
            text(&output.stdout),
            text(&output.stderr),
        )
    }
}

fn binary() -> PathBuf {
    env!("CARGO_BIN_EXE_sandtide").into()
}

/// The first bytes of an ELF file for the machine with this number, and nothing behind them.
pub fn elf_header(class: u8, machine: u16) -> Vec<u8> {
    let mut header = vec![0; 64];
    header[..4].copy_from_slice(b"\x7fELF");
    header[4..7].copy_from_slice(&[class, 1, 1]);
    header[16..18].copy_from_slice(&2u16.to_le_bytes());
    header[18..20].copy_from_slice(&machine.to_le_bytes());
    header
}

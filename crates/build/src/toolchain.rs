//! Compilers that make RISC-V programs, and the interpreters that may carry them.

use std::{
    env, fmt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
};

use crate::{BuildError, source::Language};

/// Which compiler to build with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CompilerChoice {
    /// Zig if it is installed, else GNU.
    #[default]
    Auto,
    /// `zig cc`, with clang and musl: from PyPI's `ziglang`, or on the path.
    Zig,
    /// `riscv64-linux-gnu-gcc` with glibc, as Debian has it.
    Gnu,
}

impl CompilerChoice {
    /// The words for a command line.
    pub const NAMES: [&'static str; 3] = ["auto", "zig", "gnu"];

    fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl fmt::Display for CompilerChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CompilerChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Auto, Self::Zig, Self::Gnu]
            .into_iter()
            .find(|choice| choice.name() == text)
            .ok_or_else(|| {
                format!("`{text}` is no compiler; choose one of {}", Self::NAMES.join(", "))
            })
    }
}

/// A compiler that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Compiler {
    Zig { program: PathBuf, version: String },
    Gnu { version: String },
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zig { version, .. } => write!(f, "zig {version}"),
            Self::Gnu { version } => write!(f, "riscv64-linux-gnu-gcc {version}"),
        }
    }
}

impl Compiler {
    /// The compiler's driver for a language (Python becomes C++), without flags.
    pub fn command(&self, language: Language) -> Command {
        match self {
            Self::Zig { program, .. } => {
                let mut command = Command::new(program);
                command.arg(if language == Language::C { "cc" } else { "c++" });
                command.args(["-target", "riscv64-linux-musl"]);
                command
            }
            Self::Gnu { .. } => Command::new(gnu_driver(language)),
        }
    }
}

fn gnu_driver(language: Language) -> &'static str {
    if language == Language::C { "riscv64-linux-gnu-gcc" } else { "riscv64-linux-gnu-g++" }
}

/// The Python interpreters to look for packages in, best first.
pub(crate) fn pythons(project: &Path) -> Vec<PathBuf> {
    let named = env::var_os("SANDTIDE_PYTHON").filter(|value| !value.is_empty()).map(PathBuf::from);
    let in_venv = |directory: PathBuf| Some(directory.join("bin/python")).filter(|p| p.is_file());
    named
        .into_iter()
        .chain(in_venv(project.join("build/venv")))
        .chain(in_venv(project.join(".venv")))
        .chain(env::var_os("VIRTUAL_ENV").and_then(|venv| in_venv(venv.into())))
        .chain([PathBuf::from("python3")])
        .collect()
}

/// The compiler for a language.
pub(crate) fn find(
    choice: CompilerChoice,
    language: Language,
    pythons: &[PathBuf],
) -> Result<Compiler, BuildError> {
    let found = match choice {
        CompilerChoice::Auto => zig(pythons).or_else(|| gnu(language)),
        CompilerChoice::Zig => zig(pythons),
        CompilerChoice::Gnu => gnu(language),
    };
    let asked = (choice != CompilerChoice::Auto).then(|| choice.name());
    found.ok_or(BuildError::NoCompiler { asked })
}

fn zig(pythons: &[PathBuf]) -> Option<Compiler> {
    const WHERE: &str = "import os, ziglang; print(os.path.dirname(ziglang.__file__))";
    let in_wheels = pythons.iter().filter_map(|python| {
        Some(PathBuf::from(says(Command::new(python).args(["-c", WHERE]))?).join("zig"))
    });
    // A project's own comes before the machine's; what is on the path needs no Python to start.
    let mut candidates = in_wheels.chain([PathBuf::from("zig")]);
    candidates.find_map(|program| {
        let version = says(Command::new(&program).arg("version"))?;
        Some(Compiler::Zig { program, version })
    })
}

fn gnu(language: Language) -> Option<Compiler> {
    let version = says(Command::new(gnu_driver(language)).arg("-dumpfullversion"))?;
    Some(Compiler::Gnu { version })
}

/// What a command prints, without the line's end, if it succeeds.
pub(crate) fn says(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_named_as_they_are_written() {
        for name in CompilerChoice::NAMES {
            assert_eq!(name.parse::<CompilerChoice>().unwrap().to_string(), name);
        }
        assert!("clang".parse::<CompilerChoice>().unwrap_err().contains("auto, zig, gnu"));
    }

    #[test]
    fn a_projects_environments_come_before_the_machines() {
        let project = tempfile::tempdir().unwrap();
        for venv in ["build/venv", ".venv"] {
            let bin = project.path().join(venv).join("bin");
            std::fs::create_dir_all(&bin).unwrap();
            std::fs::write(bin.join("python"), "").unwrap();
        }
        let found = pythons(project.path());
        let at = |name: &str| found.iter().position(|p| p.ends_with(name)).unwrap();
        assert!(at("build/venv/bin/python") < at(".venv/bin/python"));
        assert!(at(".venv/bin/python") < at("python3"));
    }

    #[test]
    fn what_fails_says_nothing() {
        assert_eq!(says(Command::new("sh").args(["-c", "echo yes"])).as_deref(), Some("yes"));
        assert_eq!(says(Command::new("sh").args(["-c", "echo no; exit 1"])), None);
        assert_eq!(says(&mut Command::new("no-such-program-anywhere")), None);
    }
}

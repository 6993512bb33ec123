//! Running the compilers.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use tempfile::NamedTempFile;

use crate::{
    BuildError,
    cache::{Cache, Hash},
    python::{self, Pythran},
    sdk::Sdk,
    source::{Language, Source},
    strip::strip,
    toolchain::Compiler,
};

/// For every program: one file that needs nothing of its surroundings, and a frame-pointer chain
/// for backtraces. The size of the stack is what musl gives each thread; zig asks for 16 MiB, of
/// which the memory limit would leave room for a few only.
const FLAGS: [&str; 6] =
    ["-O2", "-static", "-g0", "-fno-omit-frame-pointer", "-pthread", "-Wl,-z,stack-size=1048576"];

/// Part of every key: raise it when the same compiler's output is treated differently.
const RECIPE: &[u8] = b"2";

fn language_flags(language: Language) -> &'static [&'static str] {
    match language {
        Language::C => &["-Wall", "-Wextra"],
        Language::Cpp => &["-std=c++17", "-Wall", "-Wextra"],
        // Nobody reads warnings about generated code.
        Language::Python => &["-std=c++17"],
    }
}

/// One source, and what to build it with.
pub(crate) struct Job<'a> {
    pub source: &'a Source,
    pub sdk: &'a Sdk,
    pub compiler: &'a Compiler,
    /// For Python sources.
    pub pythran: Option<&'a Pythran>,
}

impl Job<'_> {
    /// A hash of all that the program depends on: a C or C++ source with everything that it
    /// includes, from wherever.
    pub fn key(&self, progress: &mut dyn FnMut(&str)) -> Result<Hash, BuildError> {
        let mut hash = Hash::default();
        hash.field(RECIPE);
        hash.field(self.compiler.to_string().as_bytes());
        for flag in FLAGS.iter().chain(language_flags(self.source.language)) {
            hash.field(flag.as_bytes());
        }
        if let Some(pythran) = self.pythran {
            hash.field(self.sdk.hash.to_string().as_bytes());
            python::hash(self.source, pythran, &mut hash)?;
        } else {
            hash.field(&self.preprocess(progress)?);
        }
        Ok(hash)
    }

    fn preprocess(&self, progress: &mut dyn FnMut(&str)) -> Result<Vec<u8>, BuildError> {
        let mut command = self.command();
        let output = command
            .args(["-E", "-P"])
            .arg(&self.source.path)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| self.cannot_start(error))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        String::from_utf8_lossy(&output.stderr).lines().for_each(progress);
        Err(refused(&self.compiler.to_string(), self.source, output.status))
    }

    /// Makes the program.
    pub fn run(
        &self,
        cache: &Cache,
        progress: &mut dyn FnMut(&str),
    ) -> Result<NamedTempFile, BuildError> {
        let program = cache.unfinished()?;
        let mut command = self.command();
        command.args(FLAGS).args(language_flags(self.source.language));
        let directory;
        if let Some(pythran) = self.pythran {
            directory = cache.workspace()?;
            let at = directory.path();
            let headers = python::translate(self.source, pythran, self.sdk, at, progress)?;
            command.arg("-I").arg(self.sdk.python()).arg("-isystem").arg(headers);
            command.arg(at.join("glue.cpp"));
        } else {
            command.arg(&self.source.path);
        }
        // glibc has the mathematics of C in a library of its own.
        command.arg("-lm").arg("-o").arg(program.path());
        let marker = self.slow_first_time(cache);
        progress(&format!("compiling {} with {}", self.source.path.display(), self.compiler));
        if marker.as_ref().is_some_and(|marker| !marker.exists()) {
            progress("the first C++ build takes a minute or two: zig builds its C++ library, once");
        }
        let status = self.run_compiler(command, progress)?;
        if !status.success() {
            return Err(refused(&self.compiler.to_string(), self.source, status));
        }
        let path = program.path();
        let linked = fs::read(path).map_err(BuildError::file("read", path))?;
        if let Some(stripped) = strip(&linked) {
            fs::write(path, stripped).map_err(BuildError::file("write", path))?;
        }
        if let Some(marker) = marker {
            // Only a message depends on it.
            let _ = fs::write(marker, "");
        }
        Ok(program)
    }

    /// The file that tells that zig's C++ library has been built, if it is needed.
    fn slow_first_time(&self, cache: &Cache) -> Option<PathBuf> {
        match self.compiler {
            Compiler::Zig { version, .. } if self.source.language != Language::C => {
                Some(cache.marker(&format!("zig-{version}-c++")))
            }
            _ => None,
        }
    }

    /// The compiler with the directories that includes are looked up in.
    fn command(&self) -> Command {
        let mut command = self.compiler.command(self.source.language);
        for directory in self.sdk.includes() {
            command.arg("-I").arg(directory);
        }
        command
    }

    /// Runs a compiler; what it says goes to `progress` line by line, as it says it.
    fn run_compiler(
        &self,
        mut command: Command,
        progress: &mut dyn FnMut(&str),
    ) -> Result<ExitStatus, BuildError> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| self.cannot_start(error))?;
        if let Some(stderr) = child.stderr.take() {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                progress(String::from_utf8_lossy(&line).trim_end());
            }
        }
        child.wait().map_err(|error| self.cannot_start(error))
    }

    fn cannot_start(&self, source: std::io::Error) -> BuildError {
        BuildError::Start { tool: self.compiler.to_string(), source }
    }
}

/// A tool that has said what is wrong with the source.
pub(crate) fn refused(tool: &str, source: &Source, status: ExitStatus) -> BuildError {
    let path: &Path = &source.path;
    BuildError::Refused { tool: tool.to_owned(), path: path.to_owned(), status }
}

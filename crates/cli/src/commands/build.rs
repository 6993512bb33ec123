//! `sandtide build`: source to program.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use sandtide_build::{BuildOptions, CompilerChoice};

use crate::report;

/// Compile a source file into a program.
///
/// Takes C (`.c`), C++ (`.cc`, `.cpp`, `.cxx`) and Python that Pythran compiles (`.py`). What was
/// built before from the same source in the same way is not built again.
#[derive(clap::Args)]
#[command(after_long_help = "\
Needs a compiler for riscv64: the `ziglang` package of PyPI in `build/venv`, in `.venv` or for
`python3`, or else Debian's `g++-riscv64-linux-gnu`. Python needs `pythran` beside it.

Environment:
  SANDTIDE_SDK     a directory with an SDK, instead of the one that sandtide brings
  SANDTIDE_PYTHON  the Python interpreter that has Pythran
  XDG_CACHE_HOME   where programs are kept that were built before [default: ~/.cache]")]
pub struct Args {
    /// The source file
    source: PathBuf,
    /// Where the program goes [default: beside the source, with the extension .elf]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The compiler to use: auto, zig or gnu
    #[arg(long, value_name = "NAME", default_value_t)]
    compiler: CompilerChoice,
}

/// Builds, with progress on standard error; prints the program's path.
pub fn build(args: &Args) -> anyhow::Result<ExitCode> {
    let options = BuildOptions {
        output: args.output.clone(),
        compiler: args.compiler,
        ..BuildOptions::default()
    };
    let mut progress = |line: &str| eprintln!("{}", report::printable(line));
    let built = sandtide_build::build(&args.source, &options, &mut progress)
        .with_context(|| format!("cannot build `{}`", args.source.display()))?;
    let how = if built.cached { "was built before" } else { "built" };
    eprintln!("{how} with {}", built.compiler);
    println!("{}", built.program.display());
    Ok(ExitCode::SUCCESS)
}

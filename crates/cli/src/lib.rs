//! What the `sandtide` binary does: `serve`, `run`, `call`, `check`, `snapshot`, `schema`, `build`.
//!
//! Each command is a file of its own under `commands`. Data goes to standard output, everything
//! else to standard error.
//!
//! There are two ways in: the binary, and the extension module of Python, which has the same commands and
//! brings an interpreter for applications in this process.

mod applications;
mod certificates;
mod commands;
mod engines;
mod exchange;
mod interpreter;
mod observe;
mod profile;
mod python;
mod report;
mod signals;
mod supervisor;
mod translate;
mod verification;
mod worker;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;
use sandtide_engine::InProcess;

use commands::{Command, build, call, check, run, schema, serve, snapshot};

/// Serves and runs programs in sandboxes: every request gets a fresh one.
#[derive(Parser)]
#[command(name = "sandtide", version, max_term_width = 100)]
#[command(after_help = "Environment:\n  \
    SANDTIDE_LOG  what is logged to standard error: error, warn, info (the default), debug,\n                \
    trace, or a filter such as `info,sandtide::guest=off`")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Runs the command that these arguments name, the first of which is the name of the program, and
/// says what the process is to exit with. `in_process` runs the applications among the tenants;
/// without it, they are left to an interpreter that is looked for.
pub fn main(
    arguments: impl IntoIterator<Item = OsString>,
    in_process: Option<&dyn InProcess>,
) -> ExitCode {
    let cli = Cli::parse_from(arguments);
    report::start_log();
    let (result, code_of_error) = match cli.command {
        Command::Serve(args) => (serve::serve(&args, in_process), 1),
        Command::Run(args) => (run::run(&args), run::OUR_ERROR),
        Command::Call(args) => (call::call(&args), 1),
        Command::Check(args) => (check::check(&args), 1),
        Command::Snapshot(args) => (snapshot::snapshot(&args), 1),
        Command::Schema(args) => (schema::schema(&args), 1),
        Command::Build(args) => (build::build(&args), 1),
    };
    result.unwrap_or_else(|error| {
        report::print_error(&error);
        ExitCode::from(code_of_error)
    })
}

//! The `sandtide` binary: `serve`, `run`, `call`, `check`, `snapshot`, `schema`, `build`.
//!
//! Each command is a file of its own under `commands`. Data goes to standard output, everything
//! else to standard error.

mod certificates;
mod commands;
mod engines;
mod exchange;
mod observe;
mod profile;
mod python;
mod report;
mod signals;
mod translate;
mod verification;

use std::process::ExitCode;

use clap::Parser;

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

fn main() -> ExitCode {
    let cli = Cli::parse();
    report::start_log();
    let (result, code_of_error) = match cli.command {
        Command::Serve(args) => (serve::serve(&args), 1),
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

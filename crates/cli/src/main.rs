//! The `sandtide` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    sandtide_cli::main(std::env::args_os(), None)
}

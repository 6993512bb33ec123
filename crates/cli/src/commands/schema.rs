//! `sandtide schema`: the JSON Schema of a configuration.

use std::{io::Write as _, process::ExitCode};

use crate::engines;

/// Print the JSON Schema of a configuration file.
///
/// Editors that know it complete keys and check values while one types. It is of draft 2020-12.
#[derive(clap::Args)]
pub struct Args {}

/// Prints it to standard output.
pub fn schema(Args {}: &Args) -> anyhow::Result<ExitCode> {
    let schema = sandtide_config::schema(&engines::names(&engines::all()));
    std::io::stdout().write_all(schema.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

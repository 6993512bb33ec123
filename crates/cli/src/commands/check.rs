//! `sandtide check`: is this configuration right, and does every program in it load?

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use sandtide_config::{Serves, Surroundings};
use sandtide_control::{Content, Loaded, load_all, unknown_calls};

use crate::{engines, report};

/// Check a configuration and load every program in it.
///
/// Prints a table of the tenants to standard output, and what is wrong to standard error. Exits
/// with 0 if everything is right, and with 1 otherwise.
#[derive(clap::Args)]
pub struct Args {
    /// The configuration
    #[arg(default_value = "sandtide.toml")]
    config: PathBuf,
}

/// Checks; 1 if a program cannot be loaded.
pub fn check(args: &Args) -> anyhow::Result<ExitCode> {
    let engines = engines::all();
    let config =
        sandtide_config::load(&args.config, &Surroundings::of_process(&engines::names(&engines)))?;
    let loaded = load_all(config.tenants, &engines);
    let header = ["TENANT", "STATE", "ENGINE", "LOADED IN", "SERVES"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(header).chain(loaded.iter().map(row)).collect();
    std::io::stdout().write_all(table(&rows).as_bytes())?;
    let mut failures = Vec::new();
    for Loaded { tenant, content, .. } in loaded {
        match content {
            Ok(Content::Program(program)) => {
                if let Some(note) = unknown_calls(&tenant.name, &*program) {
                    eprintln!("{note}");
                }
            }
            Ok(Content::Fixed(_)) => {}
            Err(error) => failures.push(report::cannot_load(&tenant.name, error)),
        }
    }
    report::print_errors(&failures);
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row(loaded: &Loaded) -> [String; 5] {
    let Loaded { tenant, content, engine, time, .. } = loaded;
    let (time, serves) = match &tenant.serves {
        Serves::Program(program) => {
            (report::milliseconds(*time), program.file.display().to_string())
        }
        Serves::Respond(respond) => {
            ("-".to_owned(), format!("constant {}", respond.status.as_str()))
        }
    };
    let state = if content.is_ok() { "ok" } else { "failed" };
    [&tenant.name, state, engine.unwrap_or("-"), &time, &serves].map(str::to_owned)
}

/// Columns as wide as their widest cell; nothing behind the last.
fn table(rows: &[[String; 5]]) -> String {
    let widths: [usize; 5] =
        std::array::from_fn(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0));
    rows.iter()
        .map(|row| {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            format!("{}\n", line.trim_end())
        })
        .collect()
}

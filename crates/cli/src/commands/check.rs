//! `sandtide check`: is this configuration right, and does every program in it load?

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use sandtide_config::{Serves, Surroundings};
use sandtide_control::{Content, Loaded, try_all, unknown_calls};

use crate::{certificates, engines, report};

/// Check a configuration, load every program in it and read every certificate.
///
/// Prints a table of the tenants to standard output, and what is wrong to standard error. Programs
/// are asked for their `warmup`. Exits with 0 if everything is right, and with 1 otherwise.
#[derive(clap::Args)]
pub struct Args {
    /// The configuration
    #[arg(default_value = "sandtide.toml")]
    config: PathBuf,
    /// Look at what this machine offers to engines, instead of a configuration
    #[arg(long, conflicts_with = "config")]
    engines: bool,
}

/// What is said of a tenant.
struct Verdict {
    row: [String; 5],
    note: Option<String>,
    failure: Option<anyhow::Error>,
}

/// Checks; 1 if a program or a certificate cannot be used.
pub fn check(args: &Args) -> anyhow::Result<ExitCode> {
    if args.engines {
        return check_engines();
    }
    let engines = engines::all();
    let config =
        sandtide_config::load(&args.config, &Surroundings::of_process(&engines::names(&engines)))?;
    let engines = engines::configured(&config.server.translation)?;
    let verdicts = try_all(&config.tenants, &engines, verdict);
    let header = ["TENANT", "STATE", "ENGINE", "LOADED IN", "SERVES"].map(str::to_owned);
    let rows: Vec<_> =
        std::iter::once(&header).chain(verdicts.iter().map(|verdict| &verdict.row)).collect();
    std::io::stdout().write_all(table(&rows).as_bytes())?;
    verdicts
        .iter()
        .filter_map(|verdict| verdict.note.as_ref())
        .for_each(|note| eprintln!("{note}"));
    let mut failures = Vec::new();
    if let Some(tls) = &config.tls {
        failures.extend(certificates::check(tls).into_iter().map(anyhow::Error::from));
        if !config.server.listen.iter().any(|listen| listen.tls) {
            eprintln!("note: `[tls]` is not used: no listener has `tls = true`");
        }
    }
    failures.extend(verdicts.into_iter().filter_map(|verdict| verdict.failure));
    report::print_errors(&failures);
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what each engine needs of this machine, and whether it is here; 1 if something is missing.
fn check_engines() -> anyhow::Result<ExitCode> {
    let mut missing = Vec::new();
    for (engine, condition) in engines::conditions() {
        match condition {
            Ok(what) => writeln!(std::io::stdout(), "{engine}  ok  {what}")?,
            Err(error) => {
                writeln!(std::io::stdout(), "{engine}  unavailable")?;
                missing.push(error);
            }
        }
    }
    report::print_errors(&missing);
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verdict(loaded: Loaded) -> Verdict {
    let row = row(&loaded);
    let Loaded { tenant, content, .. } = loaded;
    let (note, failure) = match content {
        Ok(Content::Program(program)) => (unknown_calls(&tenant.name, &*program), None),
        Ok(Content::Fixed(_)) => (None, None),
        Err(error) => (None, Some(report::cannot_load(&tenant.name, error))),
    };
    Verdict { row, note, failure }
}

fn row(loaded: &Loaded) -> [String; 5] {
    let Loaded { tenant, content, engine, time, .. } = loaded;
    let (time, serves) = match &tenant.serves {
        Serves::Program(program) => {
            (report::milliseconds(*time), program.file.display().to_string())
        }
        Serves::Application(source) => ("-".to_owned(), source.target.to_string()),
        Serves::Respond(respond) => {
            ("-".to_owned(), format!("constant {}", respond.status.as_str()))
        }
    };
    let state = if content.is_ok() { "ok" } else { "failed" };
    [&tenant.name, state, engine.unwrap_or("-"), &time, &serves].map(str::to_owned)
}

/// Columns as wide as their widest cell; nothing behind the last.
fn table(rows: &[&[String; 5]]) -> String {
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

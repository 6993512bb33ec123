//! `sandtide snapshot`: a program's snapshot, kept on disk.

use std::{
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use sandtide_config::{Serves, Surroundings, Tenant};
use sandtide_control::{choose, keep};
use sandtide_engine::{Engine, Requests};
use sandtide_snapshot::{About, EXTENSION, SnapshotFile};

use crate::{
    commands::serve::{of_command, parse_env, parse_warmup},
    engines,
    report::{self, Hinted},
};

/// Keep a program's snapshot on disk, for a start that needs no boot.
///
/// Starts the program, has it answer the warm-up requests, and writes what it has come to when it
/// waits for the next request. `sandtide serve FILE` goes on from there, and so does a tenant with
/// `program = "FILE"`.
///
/// A snapshot is for this build of Sandtide, this kind of processor, and the files that the program has
/// read: where one of them is another, it is refused.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  sandtide snapshot --warmup 50 -o shop.snapshot -- node server.js
  sandtide snapshot sandtide.toml --tenant shop
  sandtide snapshot --show shop.snapshot
  sandtide serve shop.snapshot")]
pub struct Args {
    /// A configuration, or a program [default: sandtide.toml]
    #[arg(conflicts_with = "command")]
    file: Option<PathBuf>,
    /// The tenant whose snapshot it is to be, where a configuration has several
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    tenant: Option<String>,
    /// The file to write [default: the tenant's name, with `.snapshot`]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Have the program behind `--` answer so many requests for `/` before its snapshot is taken, or
    /// with `auto` as many as make it faster
    #[arg(long, value_name = "N", requires = "command", value_parser = parse_warmup)]
    warmup: Option<Requests>,
    /// Set an environment variable of the program behind `--`; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_env, requires = "command")]
    env: Vec<(String, String)>,
    /// Say what a snapshot is of and whether it can be used here, and make none
    #[arg(long, value_name = "SNAPSHOT", exclusive = true)]
    show: Option<PathBuf>,
    /// A program with its arguments, which may have what `sandtide serve --` lets it have
    #[arg(last = true, value_names = ["PROGRAM", "ARGS"])]
    command: Vec<String>,
}

/// Makes a snapshot, or shows one; 1 if that cannot be used here.
pub fn snapshot(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.show {
        return show(file);
    }
    let start = Instant::now();
    let tenant = tenant(args)?;
    let output = match &args.output {
        Some(output) => output.clone(),
        None => PathBuf::from(format!("{}.{EXTENSION}", tenant.name)),
    };
    keep(&tenant, &engines::all(), &output)?;
    let size = std::fs::metadata(&output)?.len();
    let (output, time) = (output.display(), report::milliseconds(start.elapsed()));
    eprintln!("{output}: {}, made in {time}", mebibytes(size));
    Ok(ExitCode::SUCCESS)
}

/// The tenant whose snapshot is wanted.
fn tenant(args: &Args) -> anyhow::Result<Tenant> {
    let engines = engines::all();
    if let Some(name) = args.command.first() {
        let file = choose::find(name);
        let image = choose::read(&file)?;
        let is_dynamic = choose::engine(&engines, None, &file, &image)?.is_dynamic(&image);
        return Ok(of_command(
            file,
            &args.command,
            is_dynamic,
            args.warmup.unwrap_or_default(),
            &args.env,
        ));
    }
    let default = PathBuf::from("sandtide.toml");
    let file = args.file.as_ref().unwrap_or(&default);
    if file.extension().is_none_or(|extension| extension != "toml") {
        return Ok(Tenant::of_program(file.clone()));
    }
    let names = engines::names(&engines);
    let config = sandtide_config::load(file, &Surroundings::of_process(&names))?;
    let has_program = |tenant: &Tenant| matches!(tenant.serves, Serves::Program(_));
    let mut tenants: Vec<_> = config.tenants.into_iter().filter(has_program).collect();
    if let Some(name) = &args.tenant {
        tenants.retain(|tenant| tenant.name == *name);
    }
    match tenants.pop() {
        Some(tenant) if tenants.is_empty() => Ok(tenant),
        Some(_) => {
            let message = format!("`{}` has several tenants with programs", file.display());
            Err(Hinted::new(message, "name one of them: `--tenant NAME`").into())
        }
        None => {
            let name = args.tenant.as_deref().unwrap_or("with a program");
            let message = format!("`{}` has no tenant {name}", file.display());
            Err(Hinted::new(message, "only a tenant with `program` has a snapshot").into())
        }
    }
}

/// Says what a snapshot is of, and whether it can be used here.
fn show(path: &Path) -> anyhow::Result<ExitCode> {
    let file = SnapshotFile::open(path)?;
    let about = file.about();
    std::io::stdout().write_all(text(about, &file).as_bytes())?;
    let usable = match engines::all().iter().find(|engine| engine.name() == about.engine) {
        Some(engine) => check(&file, &**engine),
        None => Err(anyhow::anyhow!("this build has no engine `{}`", about.engine)),
    };
    let answer = match &usable {
        Ok(()) => "usable here        yes".to_owned(),
        Err(error) => format!("usable here        no: {error:#}"),
    };
    writeln!(std::io::stdout(), "{answer}")?;
    Ok(if usable.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a snapshot can be used here, all of its memory included.
fn check(file: &SnapshotFile, engine: &dyn Engine) -> anyhow::Result<()> {
    let about = file.about();
    about.check(&engine.conditions()?)?;
    about.program.check()?;
    file.check_pages()?;
    engine.restore(&file.kept())?;
    Ok(())
}

fn text(about: &About, file: &SnapshotFile) -> String {
    let recipe = &about.recipe;
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Nothing can go wrong where a text is written to.
        let _ = writeln!(text, "{name:18} {}", report::printable(value));
    };
    line("program", &about.program.path.display().to_string());
    line("arguments", &recipe.args.get(1..).unwrap_or_default().join(" "));
    line("engine", &about.engine);
    line("made at", &format!("{} seconds since 1970", about.made));
    let requests = match recipe.warmup.requests {
        Requests::Exactly(count) => format!("{count} requests"),
        Requests::UntilSteady => "until its requests took no less time".to_owned(),
    };
    line("warm-up", &requests);
    for condition in &about.conditions {
        line(&condition.name, &condition.value);
    }
    line("memory", &mebibytes(file.pages_length()));
    line("memory limit", &mebibytes(recipe.limits.memory));
    for read in &about.files {
        line("has read", read);
    }
    text
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

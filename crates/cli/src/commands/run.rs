//! `sandtide run`: a program to its end in a sandbox.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use sandtide_config::{Translation, is_env_name, is_guest_path, units};
use sandtide_control::{
    choose,
    libraries::{self, Libraries},
};
use sandtide_egress::{Denied, Lookups, Policy, Way};
use sandtide_engine::{
    Console, EgressRule, EgressRuleError, Fault, FileGrant, Limits, Profile, ProgramSource, Stream,
    TrapCause, Warmup,
};

use crate::{
    engines,
    profile::{Table, fold},
    report::{self, GuestFault},
    translate::Mode,
};

/// The exit code when it was not the guest that failed, as `timeout` and `docker run` have it.
pub const OUR_ERROR: u8 = 125;

/// The exit code of a guest that ran out of time, as `timeout` has it.
const OUT_OF_TIME: u8 = 124;

/// Connections to the outside at a time.
const CONNECTIONS: u32 = 1024;

/// Longer than anything runs, and short enough to be added to any clock.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Run a program to its end in a sandbox.
///
/// Standard input, output and error are passed through, and the program's exit code is handed on.
/// The program sees no file but those that are given to it, and no environment but what is set
/// here. A dynamically linked program is given the libraries of this machine, the public data of its
/// packages, and the current directory, where it starts, unless that is your home.
#[derive(clap::Args)]
#[command(after_long_help = "\
Exit codes:
  the program's own, when it ends by itself
  2         the command line is wrong
  124       it ran out of time (--time)
  125       sandtide itself failed, or the program cannot be run
  128 + n   it was ended by signal n: 139 for a bad memory access, 132 for an illegal
            instruction, 133 for a breakpoint, 134 for abort, 137 when it is over its
            memory, 152 when it used up its instructions

Examples:
  sandtide run hello.elf
  sandtide run --memory '16 MiB' --file /data=./data sort.elf -r /data/names
  sandtide run --profile=sort.folded sort.elf && flamegraph.pl sort.folded > sort.svg")]
pub struct Args {
    /// Memory that the program may write
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "2 GiB")]
    memory: u64,
    /// Instructions that the program may execute [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    instructions: Option<u64>,
    /// Time that the program may take, for example `10 s` [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    time: Option<Duration>,
    /// Let the program read the file or directory HOST, as GUEST; may be repeated
    #[arg(long = "file", value_name = "GUEST=HOST", value_parser = parse_grant)]
    files: Vec<FileGrant>,
    /// Let the program connect to HOST at PORT, such as `db.internal:5432`, `*.example.com:443` or
    /// `10.0.0.0/8:6379`; may be repeated
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_egress)]
    egress: Vec<EgressRule>,
    /// Give a dynamically linked program no file but those of `--file`
    #[arg(long)]
    no_libraries: bool,
    /// Set an environment variable of the program; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_env)]
    env: Vec<String>,
    /// Translate the program's code, or interpret it: auto, off
    #[arg(long, value_name = "MODE", hide_possible_values = true, default_value_t)]
    translate: Mode,
    /// Show at the end in which functions the program has spent its instructions; also write the
    /// stacks that were seen to FILE, folded, as flame graphs are made from
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    profile: Option<Option<PathBuf>>,
    /// The program, a Linux ELF for RISC-V (static) or x86-64, and its arguments: whatever stands
    /// behind the program is its own, options included
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    command: Vec<String>,
}

fn parse_size(text: &str) -> Result<u64, String> {
    units::size(text).map_err(|error| format!("{error}: {}", error.hint))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    units::duration(text).map_err(|error| format!("{error}: {}", error.hint))
}

fn parse_grant(text: &str) -> Result<FileGrant, String> {
    match text.split_once('=') {
        Some((_, "")) | None => Err("write GUEST=HOST, such as /data=./data".to_owned()),
        Some((guest, _)) if !is_guest_path(guest) => {
            Err(format!("`{guest}` is not an absolute path without `.` and `..`"))
        }
        Some((guest, host)) => {
            Ok(FileGrant { guest: guest.to_owned(), host: host.into(), public: false })
        }
    }
}

/// Whom a program may connect to.
pub(super) fn parse_egress(text: &str) -> Result<EgressRule, String> {
    text.parse().map_err(|error: EgressRuleError| format!("{error}: {}", error.hint()))
}

/// The way out, of which standard error is told what was denied.
fn network(rules: Vec<EgressRule>) -> Way {
    let tell = |denied: Denied| eprintln!("denied: {}: {}", denied.what, denied.reason);
    Way::new(Policy::new(rules, Vec::new()), Lookups::of_host(), CONNECTIONS, tell)
}

fn parse_env(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, _)) if is_env_name(name) => Ok(text.to_owned()),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

/// Runs the program; the exit code is its own.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // `required` makes it hold one at least.
    let Some(name) = args.command.first() else { bail!("no program is named") };
    let file = choose::find(name);
    let image = choose::read(&file)?;
    let engines = engines::configured(&Translation::default())?;
    let engine = choose::engine(&engines, None, &file, &image)?;
    let (mut path, mut files, mut directory) = (name.clone(), args.files.clone(), "/".to_owned());
    if !args.no_libraries && engine.is_dynamic(&image) {
        let mut libraries = Libraries::of(&file)?;
        path.clone_from(&libraries.path);
        if let Some(here) = libraries::here() {
            directory.clone_from(&here.guest);
            libraries.files.push(here);
        }
        libraries.add_to(&mut files);
    }
    let mut arguments = args.command.clone();
    if file != Path::new(name) {
        // Found on `PATH`, which the program does not have.
        arguments[0] = file.display().to_string();
    }
    let source = ProgramSource {
        name: name.clone(),
        image,
        path,
        args: arguments,
        env: args.env.clone(),
        // Nothing starts from a snapshot of it.
        reseed: false,
        files,
        network: Some(Arc::new(network(args.egress.clone()))),
        directory,
        translate: args.translate.into(),
        warmup: Warmup::default(),
    };
    let console = Arc::new(PassThrough);
    let stdin = Box::new(io::stdin());
    let (limits, mut profile) = (limits(args), Profile::default());
    let ended = match &args.profile {
        Some(_) => engine.profile(&source, &limits, stdin, console, &mut profile),
        None => engine.execute(&source, &limits, stdin, console),
    };
    let ended = ended.with_context(|| format!("cannot run `{}`", source.name))?;
    if let Some(file) = &args.profile {
        match profile.instructions {
            0 => eprintln!("profile: engine `{}` does not take samples", engine.name()),
            _ => show(&profile, file.as_deref())?,
        }
    }
    match ended {
        Ok(code) => Ok(ExitCode::from(code)),
        Err(Fault::Exit { code }) => Ok(ExitCode::from(code)),
        Err(fault) => {
            let code = exit_code(&fault);
            let hint = hint(&fault);
            let error = anyhow::Error::from(GuestFault { fault, usage: None, hint });
            report::print_error(&error.context(format!("`{}` ended badly", source.name)));
            Ok(ExitCode::from(code))
        }
    }
}

/// Shows where the program has spent its instructions, and writes it to a file if one is named.
fn show(profile: &Profile, file: Option<&Path>) -> anyhow::Result<()> {
    // As with the program's own output: whoever does not read it does not want it.
    let _ = write!(io::stderr(), "{}", Table(profile));
    if let Some(path) = file {
        let mut text = Vec::new();
        fold(profile, &mut text)?;
        fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(())
}

/// Generous, since it is the user's own program on the user's own machine.
fn limits(args: &Args) -> Limits {
    let instructions = args.instructions.unwrap_or(u64::MAX);
    let time = args.time.unwrap_or(FOREVER);
    Limits {
        instructions,
        boot_instructions: instructions,
        wall_time: time,
        boot_time: time,
        memory: args.memory,
        response_body: u64::MAX,
        response_time: time,
        request_body: u64::MAX,
        descriptors: 1024,
        threads: 256,
        connections: CONNECTIONS,
        connections_total: CONNECTIONS,
        scratch: args.memory,
        translate_time: FOREVER,
        translate_size: args.memory,
    }
}

/// The limits of `run` are its options.
fn hint(fault: &Fault) -> Option<&'static str> {
    match fault {
        Fault::Deadline { .. } => Some("raise `--time`"),
        Fault::Instructions { .. } => Some("raise `--instructions`"),
        Fault::Memory { .. } => Some("raise `--memory`"),
        fault => fault.hint(),
    }
}

/// What a shell would show for this end.
fn exit_code(fault: &Fault) -> u8 {
    const SIGILL: u8 = 4;
    const SIGTRAP: u8 = 5;
    const SIGABRT: u8 = 6;
    const SIGBUS: u8 = 7;
    const SIGFPE: u8 = 8;
    const SIGKILL: u8 = 9;
    const SIGSEGV: u8 = 11;
    const SIGXCPU: u8 = 24;
    let signal = match fault {
        Fault::Exit { code } => return *code,
        Fault::Deadline { .. } => return OUT_OF_TIME,
        Fault::Trap(trap) => match trap.cause {
            TrapCause::Load | TrapCause::Store | TrapCause::Fetch | TrapCause::Protection => {
                SIGSEGV
            }
            TrapCause::Arithmetic => SIGFPE,
            TrapCause::IllegalInstruction => SIGILL,
            TrapCause::MisalignedFetch | TrapCause::MisalignedAtomic => SIGBUS,
            TrapCause::Breakpoint => SIGTRAP,
        },
        Fault::Signal { signal, .. } => *signal,
        Fault::Instructions { .. } => SIGXCPU,
        Fault::Memory { .. } => SIGKILL,
        Fault::Response(_)
        | Fault::Protocol(_)
        | Fault::RequestBody(_)
        | Fault::Exception(_)
        | Fault::Stalled { .. } => SIGABRT,
    };
    128 | signal
}

/// Hands the guest's output on, unbuffered: what it wrote is out when it ends.
struct PassThrough;

impl Console for PassThrough {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        let written = match stream {
            Stream::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
            Stream::Stderr => io::stderr().lock().write_all(bytes),
        };
        if written.is_err() {
            // Nobody reads any more. A guest that goes on writing would never learn of it; on its
            // own it would have got SIGPIPE.
            std::process::exit(128 + 13);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_name_both_sides() {
        let grant = parse_grant("/data=a=b").unwrap();
        assert_eq!((grant.guest.as_str(), grant.host.to_str()), ("/data", Some("a=b")));
        for bad in ["", "/data", "/data=", "data=x", "/a/../b=x", "=x"] {
            assert!(parse_grant(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn variables_have_a_name() {
        assert!(parse_env("A=").is_ok());
        assert!(parse_env("=b").is_err());
        assert!(parse_env("A").is_err());
    }

    #[test]
    fn signals_are_shown_as_a_shell_shows_them() {
        let signal = |signal| exit_code(&Fault::Signal { signal, backtrace: Vec::new() });
        assert_eq!((signal(6), signal(11), signal(64)), (134, 139, 192));
    }
}

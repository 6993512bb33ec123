//! What the user is told when something went wrong, and the log.
//!
//! ```text
//! error: cannot load tenant `shop`
//!   caused by: the program failed before it asked for its first request: …
//!     at 0x101a2 (main+0x12)
//!
//! hint: …
//! ```

use std::{fmt::Write as _, io::IsTerminal as _};

use sandtide_build::BuildError;
use sandtide_config::{ListenError, LoadError as ConfigError, Problems};
use sandtide_control::{ConfigureError, KeepFailed, LoadFailed, choose::ChooseError};
use sandtide_engine::{Fault, LoadError, Usage};
use sandtide_http::{BindError, TlsError};
use sandtide_snapshot::Unusable;
use tracing_subscriber::EnvFilter;

/// An error of the command line itself, with what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Hinted {
    message: String,
    hint: String,
}

impl Hinted {
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// A guest ended badly, where that is the end of the command.
#[derive(Debug, thiserror::Error)]
#[error("{fault}")]
pub struct GuestFault {
    pub fault: Fault,
    /// What it used until then, where that is known.
    pub usage: Option<Usage>,
    /// What to do about it, in the command's own words.
    pub hint: Option<&'static str>,
}

/// Starts the log on standard error, as `SANDTIDE_LOG` says.
pub fn start_log() {
    let filter = std::env::var("SANDTIDE_LOG").unwrap_or_default();
    let filter = if filter.is_empty() { "info".to_owned() } else { filter };
    let (filter, wrong) = match EnvFilter::try_new(&filter) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_writer(std::io::stderr)
        .init();
    if let Some(error) = wrong {
        tracing::warn!("SANDTIDE_LOG is not a filter, logging at `info`: {error}");
    }
}

/// Prints an error with its causes and its hint.
pub fn print_error(error: &anyhow::Error) {
    eprint!("{}", describe(error));
}

/// Why a tenant's program cannot be served.
pub fn cannot_load(tenant: &str, error: LoadFailed) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("cannot load tenant `{tenant}`"))
}

/// Prints errors with an empty line between them.
pub fn print_errors(errors: &[anyhow::Error]) {
    let blocks: Vec<_> = errors.iter().map(describe).collect();
    eprint!("{}", blocks.join("\n"));
}

/// An error with its causes and its hint, as lines.
pub fn describe(error: &anyhow::Error) -> String {
    // A wrong configuration is many errors, each with a hint of its own.
    if let Some(ConfigError::Wrong(Problems(problems))) = error.downcast_ref() {
        let blocks =
            problems.iter().map(|problem| block(&[problem], problem.hint.as_deref(), None));
        return blocks.collect::<Vec<_>>().join("\n");
    }
    let causes: Vec<_> = error.chain().collect();
    let hint = causes.iter().find_map(|cause| hint(*cause));
    let fault = causes.iter().find_map(|cause| fault(*cause));
    block(&causes, hint.as_deref(), fault)
}

fn block(
    causes: &[impl ToString],
    hint: Option<&str>,
    fault: Option<(&Fault, Option<Usage>)>,
) -> String {
    let mut text = String::new();
    let mut previous = String::new();
    for (index, cause) in causes.iter().enumerate() {
        let cause = printable(&cause.to_string());
        // A cause that the line above already quotes adds nothing.
        if index == 0 || !previous.contains(&cause) {
            let label = if index == 0 { "error" } else { "  caused by" };
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(text, "{label}: {cause}");
        }
        previous = cause;
    }
    if let Some((fault, usage)) = fault {
        for location in fault.backtrace() {
            let _ = writeln!(text, "    at {}", printable(&location.to_string()));
        }
        if let Some(Usage { instructions, pages_written, calls, exits, .. }) = usage {
            let _ = write!(
                text,
                "  used: {instructions} instructions, {pages_written} pages written, {calls} calls"
            );
            let _ = if exits > 0 { writeln!(text, ", {exits} exits") } else { writeln!(text) };
        }
    }
    if let Some(hint) = hint {
        let _ = writeln!(text, "\nhint: {hint}");
    }
    text
}

fn hint(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(error) = cause.downcast_ref::<Hinted>() {
        Some(error.hint.clone())
    } else if let Some(error) = cause.downcast_ref::<LoadError>() {
        error.hint().map(str::to_owned)
    } else if let Some(error) = cause.downcast_ref::<LoadFailed>() {
        error.hint().map(str::to_owned)
    } else if let Some(error) = cause.downcast_ref::<KeepFailed>() {
        error.hint().map(str::to_owned)
    } else if let Some(error) = cause.downcast_ref::<Unusable>() {
        Some(error.hint().to_owned())
    } else if let Some(error) = cause.downcast_ref::<ChooseError>() {
        error.hint().map(str::to_owned)
    } else if let Some(error) = cause.downcast_ref::<GuestFault>() {
        error.hint.map(str::to_owned)
    } else if let Some(ConfigError::Read { source, .. }) = cause.downcast_ref() {
        let hint = "name a configuration that exists: docs/configuration.md says what is in it";
        (source.kind() == std::io::ErrorKind::NotFound).then(|| hint.to_owned())
    } else if let Some(error) = cause.downcast_ref::<BindError>() {
        error.hint()
    } else if let Some(error) = cause.downcast_ref::<TlsError>() {
        error.hint().map(str::to_owned)
    } else if let Some(error) = cause.downcast_ref::<BuildError>() {
        error.hint().map(str::to_owned)
    } else if let Some(error) = cause.downcast_ref::<ConfigureError>() {
        Some(error.hint().to_owned())
    } else {
        cause.downcast_ref::<ListenError>().map(|error| error.hint.clone())
    }
}

fn fault<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<(&'a Fault, Option<Usage>)> {
    if let Some(LoadError::Boot(fault)) = cause.downcast_ref() {
        Some((fault, None))
    } else if let Some(error) = cause.downcast_ref::<LoadFailed>() {
        error.fault().map(|fault| (fault, None))
    } else if let Some(KeepFailed::Load(error)) = cause.downcast_ref() {
        error.fault().map(|fault| (fault, None))
    } else {
        cause.downcast_ref::<GuestFault>().map(|error| (&error.fault, error.usage))
    }
}

/// The text with control characters escaped: names of symbols and the like are the guest's, and
/// must not drive a terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| -> Box<dyn Iterator<Item = char>> {
            if c.is_control() { Box::new(c.escape_default()) } else { Box::new(std::iter::once(c)) }
        })
        .collect()
}

/// A time for people: `3.2 ms`.
pub fn milliseconds(time: std::time::Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

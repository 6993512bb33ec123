//! `[tenants.<name>]`: what a tenant's owner sets.

use std::{
    ops::{Range, RangeInclusive},
    path::{Path, PathBuf},
    time::Duration,
};

use sandtide_engine::Limits;
use toml::Spanned;

use crate::{
    Authority, LogLimits, Program, Respond,
    limits::{self, TenantLimits},
    problem::{Mistake, Mistakes, all},
    program,
    reader::{Reader, Value},
    respond,
};

/// An owner's entry: the names it answers to, and what it serves there.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// The key of the table: 1 to 63 of `a`–`z`, `0`–`9`, `-`, `_`; the first a letter or digit.
    pub name: String,
    /// `authorities`: a host name, a `*.wildcard`, or an array of them. Default none.
    pub authorities: Vec<Authority>,
    /// `default`: whether it also answers to every name that no tenant has. Default `false`.
    pub default: bool,
    /// `path`: it answers to this path and those below it. The longest that fits a request wins.
    /// Default `"/"`.
    pub path: String,
    /// `program` or `respond`: exactly one of them.
    pub serves: Serves,
    /// `ephemeral`: whether each request gets a fresh sandbox. With `false` there is one sandbox,
    /// which keeps its state, and requests take turns. Default `true`.
    pub ephemeral: bool,
    /// `concurrency`: exchanges at a time in the whole server, 1 to 65,536; others wait. `None`: as
    /// the runtime has it, which is so for the next two as well.
    pub concurrency: Option<u32>,
    /// `queue`: exchanges that may wait for their turn, 0 to 65,536; more are answered 503.
    pub queue: Option<u32>,
    /// `queue_time`: how long one may wait before it is answered 503, 1 ms to 1 h.
    pub queue_time: Option<Duration>,
    /// `limits`: what its program may use.
    pub limits: Limits,
    /// `limits.log_lines` and `limits.log_bytes`: how much of its output reaches the log.
    pub log: LogLimits,
}

/// What answers a tenant's requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serves {
    /// `program`: code in a sandbox.
    Program(Program),
    /// `respond`: a constant.
    Respond(Respond),
}

/// More exchanges than this at a time no server holds.
const MAX_EXCHANGES: u32 = 65_536;
const QUEUE_TIME: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3600);

impl Tenant {
    /// The tenant that `sandtide serve PROGRAM` serves: everything goes to the program, which may
    /// have nothing but the default limits. Its name is made from the file's.
    pub fn of_program(file: PathBuf) -> Self {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let name: String =
            stem.chars().map(|c| if is_name_character(c) { c } else { '-' }).take(63).collect();
        let name = name.trim_start_matches(['-', '_']);
        Self {
            name: if name.is_empty() { "program" } else { name }.to_owned(),
            authorities: Vec::new(),
            default: true,
            path: "/".to_owned(),
            serves: Serves::Program(Program {
                file,
                engine: None,
                args: Vec::new(),
                env: Vec::new(),
                files: Vec::new(),
            }),
            ephemeral: true,
            concurrency: None,
            queue: None,
            queue_time: None,
            limits: Limits::default(),
            log: LogLimits::default(),
        }
    }
}

/// What a tenant's table is read in.
pub(crate) struct Surroundings<'a> {
    pub directory: &'a Path,
    pub engines: &'a [&'a str],
    pub defaults: &'a TenantLimits,
}

/// A tenant, and where it says what it answers to.
pub(crate) struct Claim {
    pub tenant: Tenant,
    pub name_span: Range<usize>,
    /// As many as `tenant.authorities`.
    pub authority_spans: Vec<Range<usize>>,
    pub default_span: Range<usize>,
}

pub(crate) fn read(
    name: &Spanned<String>,
    mut table: Reader<'_>,
    surroundings: &Surroundings<'_>,
) -> Claim {
    check_name(name, &table);
    let authorities = table.read("authorities", authorities).unwrap_or_default();
    let (authorities, authority_spans) = authorities.into_iter().unzip();
    let (default, default_span) = table
        .read("default", |value| value.boolean().map(|default| (default, value.span.clone())))
        .unwrap_or((false, name.span()));
    let path = table.read("path", path).unwrap_or_else(|| "/".to_owned());
    let serves = serves(name, &mut table, surroundings);
    let ephemeral = table.read("ephemeral", Value::boolean).unwrap_or(true);
    let concurrency = table.read("concurrency", |value| value.small_integer(1..=MAX_EXCHANGES));
    let queue = table.read("queue", |value| value.small_integer(0..=MAX_EXCHANGES));
    let queue_time = table.read("queue_time", |value| value.duration(QUEUE_TIME));
    let TenantLimits { engine: limits, log } = match table.table("limits") {
        Some(limits) => limits::read(limits, surroundings.defaults),
        None => surroundings.defaults.clone(),
    };
    table.finish();
    let tenant = Tenant {
        name: name.get_ref().clone(),
        authorities,
        default,
        path,
        serves,
        ephemeral,
        concurrency,
        queue,
        queue_time,
        limits,
        log,
    };
    Claim { tenant, name_span: name.span(), authority_spans, default_span }
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_'
}

fn check_name(name: &Spanned<String>, table: &Reader<'_>) {
    let text = name.get_ref();
    let valid = (1..=63).contains(&text.len())
        && !text.starts_with(['-', '_'])
        && text.chars().all(is_name_character);
    if !valid {
        let mistake = Mistake::new(name.span(), format!("`{text}` cannot be a tenant's name"));
        let hint = "up to 63 of `a`-`z`, `0`-`9`, `-` and `_`, the first a letter or a digit";
        table.findings.add(mistake.hint(hint));
    }
}

fn authorities(value: &Value<'_>) -> Result<Vec<(Authority, Range<usize>)>, Mistakes> {
    let read = |element: &Value<'_>| match Authority::parse(element.string()?) {
        Ok(authority) => Ok((authority, element.span.clone())),
        Err(error) => Err(element.mistake(&error).hint(error.hint)),
    };
    all(value.one_or_more()?.iter().map(read))
}

fn path(value: &Value<'_>) -> Result<String, Mistake> {
    let path = value.string()?;
    let mistake = |what: &str| value.mistake(format_args!("`{path}` {what}"));
    if !path.starts_with('/') {
        return Err(mistake("does not start with `/`").hint(format!("write `/{path}`")));
    }
    if path != "/" && path.ends_with('/') {
        let hint = format!("write `{}`: it covers what is below it", path.trim_end_matches('/'));
        return Err(mistake("ends with `/`").hint(hint));
    }
    let segments = path.split('/').skip(1);
    if path != "/" && segments.into_iter().any(|part| matches!(part, "" | "." | "..")) {
        return Err(mistake("has an empty segment, `.` or `..` in it"));
    }
    if !path.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'?' | b'#')) {
        let hint = "paths are compared as they are sent: write other characters as `%XX`";
        return Err(mistake("has a character that paths do not have").hint(hint));
    }
    Ok(path.to_owned())
}

fn serves(
    name: &Spanned<String>,
    table: &mut Reader<'_>,
    surroundings: &Surroundings<'_>,
) -> Serves {
    let respond = table.table("respond").map(respond::read);
    let file = table.read("program", |value| match value.string_without_nul()? {
        "" => Err(value.mistake("is empty")),
        path => Ok(surroundings.directory.join(path)),
    });
    let has_program = table.has("program");
    let wrong = match (has_program, table.has("respond")) {
        (true, true) => Some(("has both `program` and `respond`", "keep one of them")),
        (false, false) => Some((
            "has nothing to serve",
            "set `program` to a file, or `respond` to a constant answer",
        )),
        _ => None,
    };
    if let Some((what, hint)) = wrong {
        let what = format!("tenant `{}` {what}", name.get_ref());
        table.findings.add(Mistake::new(name.span(), what).hint(hint));
    }
    match respond {
        // `args` and the like mean nothing here, and are found to be unknown.
        Some(respond) if !has_program => Serves::Respond(respond),
        _ => Serves::Program(program::read(
            file.unwrap_or_default(),
            table,
            surroundings.directory,
            surroundings.engines,
        )),
    }
}

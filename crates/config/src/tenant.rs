//! `[tenants.<name>]`: what a tenant's owner sets.

use std::{
    ops::{Range, RangeInclusive},
    path::{Path, PathBuf},
    time::Duration,
};

use sandtide_engine::Limits;
use toml::Spanned;

use crate::{
    Authority, LogLimits, Program, Rate, Respond,
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
    /// `load`: when its program is loaded. Default [`Load::FirstUse`].
    pub load: Load,
    /// `cold_after`: its program and sandboxes are let go of when they were not used for so long,
    /// 1 s to 365 days; `None` for `"never"`. Default `"10 min"`.
    pub cold_after: Option<Duration>,
    /// `warmup`: request targets that a program is asked for before it serves anybody; a fault or
    /// a status of 500 or more refuses it. Default none.
    pub warmup: Vec<String>,
    /// `rollback_on_faults`: so many faults among the first exchanges of a program bring back the
    /// one before it; 0 for never. Up to 100. Default 0.
    pub rollback_on_faults: u32,
    /// `weight`: its share of the CPU against other tenants, 1 to 10,000. Default 100.
    pub weight: u32,
    /// `concurrency`: exchanges at a time in the whole server, 1 to 65,536; others wait. Default
    /// 128.
    pub concurrency: u32,
    /// `queue`: exchanges that may wait for their turn on each thread, 0 to 65,536; more are
    /// answered 503. Default 1024.
    pub queue: u32,
    /// `queue_time`: how long one may wait before it is answered 503, 1 ms to 1 h. Default
    /// `"1 s"`.
    pub queue_time: Duration,
    /// `limits.requests_per_second` and `limits.burst`: how many requests are admitted. Default:
    /// no limit.
    pub rate: Option<Rate>,
    /// `limits`: what its program may use.
    pub limits: Limits,
    /// `limits.log_lines` and `limits.log_bytes`: how much of its output reaches the log.
    pub log: LogLimits,
}

/// When a program is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// `"first-use"`: when the first request for it arrives.
    FirstUse,
    /// `"start"`: when the server starts, and it is kept.
    Start,
}

impl Load {
    const WORDS: [(&'static str, Self); 2] =
        [("first-use", Self::FirstUse), ("start", Self::Start)];
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
const COLD_AFTER: Option<Duration> = Some(Duration::from_secs(600));
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
            load: Load::FirstUse,
            cold_after: COLD_AFTER,
            warmup: Vec::new(),
            rollback_on_faults: 0,
            weight: 100,
            concurrency: 128,
            queue: 1024,
            queue_time: Duration::from_secs(1),
            rate: None,
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
    let limits = match table.table("limits") {
        Some(limits) => limits::read(limits, surroundings.defaults),
        None => surroundings.defaults.clone(),
    };
    let number = |table: &mut Reader<'_>, key, allowed, default| {
        table.read(key, |value| value.small_integer(allowed)).unwrap_or(default)
    };
    let tenant = Tenant {
        name: name.get_ref().clone(),
        authorities,
        default,
        path,
        serves,
        ephemeral,
        load: table.read("load", |value| value.word(&Load::WORDS)).unwrap_or(Load::FirstUse),
        cold_after: table.read("cold_after", cold_after).unwrap_or(COLD_AFTER),
        warmup: table.read("warmup", warmup).unwrap_or_default(),
        rollback_on_faults: number(&mut table, "rollback_on_faults", 0..=100, 0),
        weight: number(&mut table, "weight", 1..=10_000, 100),
        concurrency: number(&mut table, "concurrency", 1..=MAX_EXCHANGES, 128),
        queue: number(&mut table, "queue", 0..=MAX_EXCHANGES, 1024),
        queue_time: table
            .read("queue_time", |value| value.duration(QUEUE_TIME))
            .unwrap_or(Duration::from_secs(1)),
        rate: limits.rate(),
        limits: limits.engine,
        log: limits.log,
    };
    table.finish();
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

fn cold_after(value: &Value<'_>) -> Result<Option<Duration>, Mistake> {
    if value.string().is_ok_and(|text| text == "never") {
        return Ok(None);
    }
    value.duration(Duration::from_secs(1)..=Duration::from_secs(365 * 24 * 3600)).map(Some)
}

fn warmup(value: &Value<'_>) -> Result<Vec<String>, Mistakes> {
    all(value.one_or_more()?.iter().map(|target| {
        let text = target.string()?;
        if !text.starts_with('/') || !text.bytes().all(|b| b.is_ascii_graphic() && b != b'#') {
            let mistake = target.mistake(format_args!("`{text}` is not a path to ask for"));
            return Err(mistake.hint("write `/`, or a path with a query such as `/list?page=1`"));
        }
        Ok(text.to_owned())
    }))
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

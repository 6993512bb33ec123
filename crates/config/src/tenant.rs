//! `[tenants.<name>]`: what a tenant's owner sets, with what its groups and `[defaults]` say.

use std::{path::PathBuf, time::Duration};

use sandtide_engine::{ApplicationSource, Isolation, Limits};

use crate::{
    Authority, Load, LogLimits, Program, Rate, Respond, Warmup,
    entry::{Answers, TenantEntry, is_name_character},
    limits::LimitKeys,
    problem::{Findings, Mistake},
    running::RunKeys,
    section::Section as _,
    shared::{Shared, SharedLayer},
};

/// An owner's entry: the names it answers to, and what it serves there.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// `isolation`: which requests share a sandbox.
    pub isolation: Isolation,
    /// `load`: when its program is loaded.
    pub load: Load,
    /// `cold_after`: its program and sandboxes are let go of when they were not used for so long;
    /// `None` for `"never"`.
    pub cold_after: Option<Duration>,
    /// `warmup`: what a program is asked for before it serves anybody; a fault or a status of 500
    /// or more refuses it.
    pub warmup: Warmup,
    /// `rollback_on_faults`: so many faults among the first exchanges of a program bring back the
    /// one before it; 0 for never.
    pub rollback_on_faults: u32,
    /// `weight`: its share of the CPU against other tenants.
    pub weight: u32,
    /// `concurrency`: exchanges at a time in the whole server; others wait.
    pub concurrency: u32,
    /// `queue`: exchanges that may wait for their turn on each thread; more are answered 503.
    pub queue: u32,
    /// `queue_time`: how long one may wait before it is answered 503.
    pub queue_time: Duration,
    /// `limits.requests_per_second` and `limits.burst`: how many requests are admitted. Default:
    /// no limit.
    pub rate: Option<Rate>,
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
    /// `app`: an application in this process.
    Application(ApplicationSource),
    /// `respond`: a constant.
    Respond(Respond),
}

impl Tenant {
    /// The tenant that `sandtide serve PROGRAM` serves: everything goes to the program, which may
    /// have nothing but the default limits. Its name is made from the file's.
    pub fn of_program(file: PathBuf) -> Self {
        let name = name_of(&file.file_stem().unwrap_or_default().to_string_lossy());
        let Shared { program, run } = Shared::resolve(SharedLayer::default());
        let serves = Serves::Program(program.program(file));
        Self::new(name, (Vec::new(), true, "/".to_owned()), serves, run)
    }

    /// The tenant that `sandtide serve MODULE:ATTRIBUTE` serves: everything goes to the application.
    /// Its name is made from the module's.
    pub fn of_application(source: ApplicationSource) -> Self {
        let name = name_of(&source.target.module);
        let Shared { run, .. } = Shared::resolve(SharedLayer::default());
        let serves = Serves::Application(source);
        Self::new(name, (Vec::new(), true, "/".to_owned()), serves, run)
    }

    /// A tenant as it is written, over what it inherits.
    pub(crate) fn of_entry(
        mut entry: TenantEntry,
        base: &SharedLayer,
        findings: &Findings,
    ) -> Self {
        let burst = entry.shared.run.limits.as_ref().and_then(|limits| limits.value.burst.clone());
        Shared::inherit(&mut entry.shared, base);
        let Shared { program, run } = Shared::resolve(entry.shared);
        let serves = match (entry.served.respond, entry.served.program) {
            (Some(respond), None) => Serves::Respond(respond),
            (_, file) => Serves::Program(program.program(file.unwrap_or_default())),
        };
        let Answers { authorities, default, path } = entry.answers;
        let authorities = authorities.into_iter().map(|authority| authority.value).collect();
        let tenant = Self::new(entry.name.value, (authorities, default.value, path), serves, run);
        if let Some(burst) = burst
            && tenant.rate.is_none()
        {
            let mistake = Mistake::new(burst.place, "`burst`: there is no rate to exceed");
            findings.add(mistake.hint("set `requests_per_second` beside it"));
        }
        tenant
    }

    fn new(
        name: String,
        (authorities, default, path): (Vec<Authority>, bool, String),
        serves: Serves,
        run: RunKeys,
    ) -> Self {
        let limits = LimitKeys::resolve(run.limits);
        Self {
            name,
            authorities,
            default,
            path,
            serves,
            isolation: run.isolation,
            load: run.load,
            cold_after: run.cold_after,
            warmup: run.warmup,
            rollback_on_faults: run.rollback_on_faults,
            weight: run.weight,
            concurrency: run.concurrency,
            queue: run.queue,
            queue_time: run.queue_time,
            rate: limits.rate(),
            limits: limits.engine(),
            log: limits.log(),
        }
    }
}

/// A tenant's name, made from another.
fn name_of(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    let name: String =
        text.chars().map(|c| if is_name_character(c) { c } else { '-' }).take(63).collect();
    let name = name.trim_start_matches(['-', '_']);
    if name.is_empty() { "program" } else { name }.to_owned()
}

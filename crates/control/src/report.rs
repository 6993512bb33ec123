//! What the log says of programs and configurations: one line each time.

use std::{error::Error, time::Duration};

use sandtide_engine::{CacheUse, Program, Translation, TranslationState};
use sandtide_runtime::HandedOver;

use crate::{configure::Changes, entry::Entry, load::LoadFailed, reload::Made};

/// The target of log events about programs and configurations.
pub const CONTROL_TARGET: &str = "sandtide::control";

/// An error and what caused it, in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // What the text quotes already adds nothing.
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// A version serves.
pub(crate) fn loaded(entry: &Entry, made: &Made) {
    let state = made.handed_over.as_ref().map(|how| match how {
        HandedOver::State(bytes) => format!("{bytes} bytes handed over"),
        HandedOver::Nothing => "there was none".to_owned(),
        HandedOver::Dropped(why) => format!("dropped: {why}"),
        HandedOver::Lost(error) => format!("lost: it could not be saved: {}", chain(error)),
    });
    tracing::info!(
        target: CONTROL_TARGET,
        tenant = %entry.name,
        version = made.version.number(),
        program = %made.version.id(),
        engine = made.engine,
        time = milliseconds(made.time),
        state,
        warmup = made.version.program().warmed().map(|warmed| warmed.to_string()),
        reason = made.reason,
        "{}",
        if made.is_restored { "restored" } else { "loaded" },
    );
}

/// It is settled what becomes of the translation of a version.
pub(crate) fn translated(tenant: &str, version: u64, translation: &Translation) {
    if let CacheUse::Damaged { file, why } = &translation.cache {
        tracing::warn!(
            target: CONTROL_TARGET,
            tenant,
            file,
            "a translation in the cache is made again: {why}",
        );
    }
    if let Some(why) = &translation.unkept {
        tracing::warn!(
            target: CONTROL_TARGET,
            tenant,
            "the translation cannot be put into the cache: {why}",
        );
    }
    let from = match &translation.cache {
        CacheUse::Shared => "another",
        CacheUse::Hit => "cache",
        _ if translation.in_background => "background",
        _ => "load",
    };
    let time = milliseconds(translation.time);
    let Translation { functions, left, bytes, .. } = translation;
    let Some(shortfall) = &translation.shortfall else {
        tracing::info!(
            target: CONTROL_TARGET,
            tenant,
            version,
            functions,
            left,
            bytes,
            time,
            from,
            "translated",
        );
        return;
    };
    let what = match translation.state {
        TranslationState::Partly => "partly translated, the rest is interpreted",
        _ => "not translated, all is interpreted",
    };
    tracing::warn!(
        target: CONTROL_TARGET,
        tenant,
        version,
        functions,
        left,
        bytes,
        time,
        from,
        limit = shortfall.reason.as_str(),
        hint = shortfall.hint,
        "{what}: {}",
        shortfall.what,
    );
}

/// No version could be made.
pub(crate) fn not_loaded(entry: &Entry, why: &str, error: &LoadFailed) {
    let serves = match entry.slot.version() {
        Some(version) => format!("version {}", version.number()),
        None => "503".to_owned(),
    };
    let frames = error.fault().map(|fault| fault.backtrace()).unwrap_or_default();
    let frames: Vec<_> = frames.iter().map(ToString::to_string).collect();
    tracing::warn!(
        target: CONTROL_TARGET,
        tenant = %entry.name,
        serves,
        backtrace = (!frames.is_empty()).then(|| printable(&frames.join(" < "))),
        hint = error.hint(),
        "cannot load tenant `{}`: {}",
        entry.name,
        printable(why),
    );
}

/// Too many faults brought the version before back.
pub(crate) fn rolled_back(entry: &Entry, bad: u64) {
    let Some(rollback) = entry.slot.status().rollback else { return };
    tracing::warn!(
        target: CONTROL_TARGET,
        tenant = %entry.name,
        version = rollback.to,
        faults = rollback.faults,
        hint = "the file is not loaded again until it changes",
        "rolled back from version {bad}: too many of its first exchanges faulted",
    );
}

/// Nobody has used a program for long.
pub(crate) fn retired(entry: &Entry, after: Duration) {
    tracing::info!(
        target: CONTROL_TARGET,
        tenant = %entry.name,
        unused_for = ?after,
        "let go of until it is used again",
    );
}

/// Programs were let go of before their time.
pub(crate) fn made_room(programs: usize, most: usize) {
    tracing::info!(
        target: CONTROL_TARGET,
        programs,
        most,
        hint = "a larger `vm.max_map_count` (sysctl) has room for more",
        "let go of until they are used again, to make room for others",
    );
}

/// Another configuration serves.
pub(crate) fn configured(changes: &Changes, restart: &[String], time: Duration) {
    let list = |names: &[String]| (!names.is_empty()).then(|| short(names));
    if *changes == Changes::default() && restart.is_empty() {
        tracing::info!(target: CONTROL_TARGET, "the configuration is as it was");
        return;
    }
    tracing::info!(
        target: CONTROL_TARGET,
        added = list(&changes.added),
        changed = list(&changes.changed),
        removed = list(&changes.removed),
        time = milliseconds(time),
        "configured",
    );
    if !restart.is_empty() {
        tracing::warn!(
            target: CONTROL_TARGET,
            keys = restart.join(", "),
            hint = "restart the server to apply them",
            "changes to the configuration that need a restart",
        );
    }
}

/// The configuration is wrong.
pub(crate) fn not_configured(why: &str, hint: Option<&str>) {
    let why = why.trim().replace("\n\n", "; ").replace('\n', " ");
    tracing::error!(target: CONTROL_TARGET, hint, "not configured, goes on as it was: {why}");
}

/// The text with control characters escaped: names of symbols and the like are the guest's.
fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(escape).collect()
}

/// A few names, and how many more there are.
fn short(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Says which system calls of a tenant's guests the engine does not have, if there are any.
pub fn unknown_calls(tenant: &str, program: &dyn Program) -> Option<String> {
    let calls = program.unknown_calls();
    let calls: Vec<_> = calls.iter().map(|(name, count)| format!("{name} ({count})")).collect();
    let calls = (!calls.is_empty()).then(|| calls.join(", "))?;
    Some(format!("note: tenant `{tenant}` made system calls that guests do not have: {calls}"))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn causes_are_told_once() {
        let cause = Layer("the disk is full", None);
        let error = Layer("cannot read `a`", Some(Box::new(cause)));
        assert_eq!(chain(&error), "cannot read `a`: the disk is full");
        let quoted = Layer("failed: the disk is full", Some(Box::new(Layer("the disk", None))));
        assert_eq!(chain(&quoted), "failed: the disk is full");
    }
}

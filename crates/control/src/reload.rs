//! From a tenant's file to its slot: loaded, warmed, installed beside the version that serves.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use sandtide_engine::{Engine, Isolation};
use sandtide_runtime::{HandOver, HandOverError, HandedOver, Version};

use crate::{
    choose,
    entry::{Entry, Need, Order, Origin, Signature},
    load::{self, LoadFailed, load_image},
    prepare::Ready,
    report,
    tally::{Deed, Tally},
    translated::follow,
    warm::warm,
};

/// A file that changes while it is loaded is loaded again; but not for ever.
const ATTEMPTS: usize = 5;

/// A version that was made.
pub(crate) struct Made {
    pub(crate) version: Arc<Version>,
    pub(crate) engine: &'static str,
    /// It goes on from a snapshot on disk.
    pub(crate) is_restored: bool,
    /// Of a tenant that keeps state.
    pub(crate) handed_over: Option<HandedOver>,
    /// Why it was made.
    pub(crate) reason: &'static str,
    /// How long it took.
    pub(crate) time: Duration,
}

/// Looks at a tenant's file, and loads it if it is not what serves.
pub(crate) fn reload(entry: &Entry, engines: &[Arc<dyn Engine>], tally: &Arc<Tally>) {
    for attempt in 1..=ATTEMPTS {
        let order = entry.order();
        let Some(spec) = order.spec() else {
            entry.slot.fail("an application is imported when the server starts");
            return;
        };
        let before = Signature::of(&spec.file).ok();
        let result = load_once(entry, &order, engines);
        let has_changed = Signature::of(&spec.file).ok() != before;
        match result {
            // Half of a file is nothing to tell anybody about.
            Err(_) if has_changed && attempt < ATTEMPTS => continue,
            Err(failed) => {
                tally.add(Deed::NotLoaded);
                give_up(entry, failed.0, &failed.1);
            }
            Ok(Some(made)) => {
                tally.add(Deed::Loaded);
                report::loaded(entry, &made);
                follow(entry, &made.version, tally);
            }
            Ok(None) => {}
        }
        if !has_changed {
            return;
        }
    }
}

/// Loads a tenant's program before anybody has asked for it. How, and how long it took.
pub(crate) fn load_now(
    entry: &Entry,
    engines: &[Arc<dyn Engine>],
    tally: &Arc<Tally>,
) -> Result<Ready, LoadFailed> {
    let start = Instant::now();
    entry.slot.begin_loading();
    let made = load_once(entry, &entry.order(), engines).map_err(|failed| failed.1)?;
    let time = start.elapsed();
    let Some(made) = made else { return Ok(Ready::Loaded(time, None)) };
    follow(entry, &made.version, tally);
    Ok(match made.is_restored {
        true => Ready::Restored(time),
        false => Ready::Loaded(time, made.version.program().warmed()),
    })
}

/// A failure, with what could not be made a version of; `None` if there was nothing to read.
type Failed = Box<(Option<Origin>, LoadFailed)>;

fn load_once(
    entry: &Entry,
    order: &Order,
    engines: &[Arc<dyn Engine>],
) -> Result<Option<Made>, Failed> {
    let (start, began, tenant) = (Instant::now(), SystemTime::now(), &order.tenant);
    let Some(spec) = order.spec().filter(|_| entry.is_wanted()) else { return Ok(None) };
    entry.read_at(Signature::of(&spec.file).ok());
    let image = choose::read(&spec.file).map_err(|error| Box::new((None, error.into())))?;
    let origin = Origin::new(&image, spec, &tenant.limits);
    let reason = match entry.need(&origin, order) {
        Need::Load(reason) => reason,
        Need::Nothing | Need::Refused => {
            tracing::debug!(target: report::CONTROL_TARGET, tenant = %entry.name, "as it was");
            return Ok(None);
        }
    };
    let (version, engine, is_restored, handed_over) =
        load_image(tenant, spec, image, engines, &order.log)
            .and_then(|made| {
                let load::Made { engine, program, is_restored } = made;
                warm(&*program, tenant, &order.log)?;
                let faults = tenant.rollback_on_faults;
                if tenant.isolation != Isolation::None {
                    return Ok((entry.slot.install(program, faults), engine, is_restored, None));
                }
                let terms = HandOver {
                    rollback_on_faults: faults,
                    limits: &tenant.limits,
                    log: &order.log,
                    patience: tenant.limits.wall_time + tenant.limits.response_time,
                };
                let (version, how) = entry.slot.hand_over(program, &terms)?;
                Ok((version, engine, is_restored, Some(how)))
            })
            .map_err(|error| Box::new((Some(origin.clone()), error)))?;
    entry.has_read(version.program().files(), began);
    entry.succeeded(version.number(), origin);
    let time = start.elapsed();
    Ok(Some(Made { version, engine, is_restored, handed_over, reason, time }))
}

fn give_up(entry: &Entry, origin: Option<Origin>, error: &LoadFailed) {
    let why = report::chain(error);
    entry.slot.fail(&why);
    // What could only not be handed over now is worth another try.
    let is_busy = matches!(error, LoadFailed::HandOver(HandOverError::Busy(_)));
    let origin = origin.filter(|_| !is_busy);
    if entry.failed(origin, &why) {
        report::not_loaded(entry, &why, error);
    }
}

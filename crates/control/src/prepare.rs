//! What becomes of a tenant before anything is served.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sandtide_config::{Load, Serves, Tenant};
use sandtide_engine::{Engine, InProcess, Warmed};

use crate::{
    configure::Known,
    load::{LoadFailed, look_at},
    reload::load_now,
    report,
    tally::Tally,
};

/// A tenant that is going to be served.
pub struct Prepared {
    /// The tenant.
    pub tenant: Arc<Tenant>,
    /// Whether it can be. One that cannot is answered 503, and tried again when it is asked for
    /// or its file changes.
    pub state: Result<Ready, LoadFailed>,
}

/// How a tenant is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// It has a constant answer.
    Constant,
    /// Its program was loaded, which took so long, and has answered warm-up requests.
    Loaded(Duration, Option<Warmed>),
    /// Its program goes on from a snapshot on disk; to take that up took so long.
    Restored(Duration),
    /// Its program is there, and is loaded when it is asked for.
    OnFirstUse,
}

pub(crate) fn prepare(known: &Known, engines: &[Arc<dyn Engine>], tally: &Arc<Tally>) -> Prepared {
    let tenant = known.tenant.clone();
    let (Serves::Program(spec), Some(entry)) = (&tenant.serves, &known.entry) else {
        return Prepared { tenant, state: Ok(Ready::Constant) };
    };
    let state = match tenant.load {
        Load::Start => load_now(entry, engines, tally),
        Load::FirstUse => look_at(spec, engines).map(|_| Ready::OnFirstUse),
    };
    if let Err(error) = &state {
        let why = report::chain(error);
        entry.slot.fail(&why);
        // Whoever prepared it tells.
        entry.failed(None, &why);
    }
    Prepared { tenant, state }
}

/// Imports a tenant's application, if it has one: on this thread, which is to serve it.
pub(crate) fn import(known: &Known, in_process: Option<&dyn InProcess>) -> Option<Prepared> {
    let tenant = known.tenant.clone();
    let (Serves::Application(source), Some(entry)) = (&tenant.serves, &known.entry) else {
        return None;
    };
    let start = Instant::now();
    entry.slot.begin_loading();
    let loaded = match in_process {
        Some(in_process) => in_process.load(source).map_err(LoadFailed::from),
        None => Err(LoadFailed::NoInterpreter),
    };
    let state = match loaded {
        Ok(program) => {
            entry.slot.install(program, 0);
            Ok(Ready::Loaded(start.elapsed(), None))
        }
        Err(error) => {
            entry.slot.fail(&report::chain(&error));
            Err(error)
        }
    };
    Some(Prepared { tenant, state })
}

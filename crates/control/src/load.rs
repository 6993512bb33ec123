//! From a tenant's file to its program.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sandtide_config::{Program as Spec, Serves, Tenant};
use sandtide_egress::{Denied, Lookups, Policy, Way};
use sandtide_engine::{Engine, Fault, Limits, LoadError, Network, Program, ProgramSource, Warmup};
use sandtide_runtime::{AttendedError, HandOverError, TenantLog};
use sandtide_snapshot::is_snapshot;

use crate::{
    choose::{self, ChooseError},
    kept::{self, RestoreFailed},
    libraries::Libraries,
    table::{Content, constant, tenant_log},
    warm::{self, WarmError, warm},
};

/// The target of log events about what guests may not reach.
const EGRESS_TARGET: &str = "sandtide::egress";

/// Why a tenant's program cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum LoadFailed {
    /// Its file cannot be run.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// Its engine cannot load it.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It is a snapshot that cannot be used.
    #[error(transparent)]
    Restore(#[from] RestoreFailed),
    /// It is an application, and there is no interpreter in this process.
    #[error("there is no interpreter in this process to run the application")]
    NoInterpreter,
    /// Its engine panicked. The panic itself is on standard error.
    #[error("the engine panicked while loading")]
    Panicked,
    /// It was loaded, and is not fit to serve.
    #[error(transparent)]
    Warm(#[from] WarmError),
    /// It was loaded, and the state of the version before it could not be handed over.
    #[error(transparent)]
    HandOver(#[from] HandOverError),
}

impl LoadFailed {
    /// How the guest ended, if it was the guest.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Load(LoadError::Boot(fault)) => Some(fault),
            Self::Warm(WarmError::Failed { source: AttendedError::Fault(fault), .. }) => {
                Some(fault)
            }
            _ => None,
        }
    }

    /// What to do about it, if there is something to say.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Choose(error) => error.hint(),
            Self::Load(error) => error.hint(),
            Self::Restore(error) => Some(error.hint()),
            Self::NoInterpreter | Self::Panicked | Self::Warm(_) | Self::HandOver(_) => None,
        }
    }
}

/// A tenant after its program was loaded, or was not.
pub struct Loaded {
    /// The tenant.
    pub tenant: Tenant,
    /// What it answers with, or why it cannot.
    pub content: Result<Content, LoadFailed>,
    /// The engine that runs it; `None` for a constant, or if none was found.
    pub engine: Option<&'static str>,
    /// Where the output of its guests goes, that of the initialisation included.
    pub log: Arc<TenantLog>,
    /// How long it took.
    pub time: Duration,
}

/// Loads the program of each tenant and asks it for its `warmup`, as many at a time as there are
/// cores. What `take` does not keep is let go of before the next is loaded. The order is kept.
pub fn try_all<R: Send>(
    tenants: &[Tenant],
    engines: &[Arc<dyn Engine>],
    take: impl Fn(Loaded) -> R + Sync,
) -> Vec<R> {
    for_all(tenants, |tenant| {
        let mut loaded = load(tenant.clone(), engines);
        if let Ok(Content::Program(program)) = &loaded.content {
            let warm = AssertUnwindSafe(|| warm(&**program, tenant, &loaded.log));
            let warmed = panic::catch_unwind(warm).map_err(|_| LoadFailed::Panicked);
            if let Err(error) = warmed.and_then(|warmed| Ok(warmed?)) {
                loaded.content = Err(error);
            }
        }
        take(loaded)
    })
}

/// Does something with each of them, with as many at a time as there are cores. The order is kept.
pub(crate) fn for_all<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { break };
            let result = work(item);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(worker))));
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Loads the program of one tenant.
pub fn load(tenant: Tenant, engines: &[Arc<dyn Engine>]) -> Loaded {
    let start = Instant::now();
    let log = tenant_log(&tenant);
    let (content, engine) = match &tenant.serves {
        Serves::Respond(respond) => (Ok(Content::Fixed(constant(respond))), None),
        // Only who serves it can import it.
        Serves::Application(_) => (Err(LoadFailed::NoInterpreter), None),
        Serves::Program(spec) => {
            let image = choose::read(&spec.file).map_err(LoadFailed::from);
            match image.and_then(|image| load_image(&tenant, spec, image, engines, &log)) {
                Ok(made) => (Ok(Content::Program(made.program)), Some(made.engine)),
                Err(error) => (Err(error), None),
            }
        }
    };
    Loaded { tenant, content, engine, log, time: start.elapsed() }
}

/// A program that was made.
pub(crate) struct Made {
    /// The name of its engine.
    pub(crate) engine: &'static str,
    pub(crate) program: Arc<dyn Program>,
    /// It goes on from a snapshot on disk, and was not booted.
    pub(crate) is_restored: bool,
}

/// The program of a file that was read: of a snapshot, its beginning.
pub(crate) fn load_image(
    tenant: &Tenant,
    spec: &Spec,
    image: Bytes,
    engines: &[Arc<dyn Engine>],
    log: &Arc<TenantLog>,
) -> Result<Made, LoadFailed> {
    if is_snapshot(&image) {
        return guarded(|| kept::restore(tenant, spec, engines))?;
    }
    let engine = choose::engine(engines, spec.engine.as_deref(), &spec.file, &image)?;
    let source = source(tenant, spec, image, &*engine)?;
    let program = load_source(&*engine, &source, &tenant.limits, log)?;
    Ok(Made { engine: engine.name(), program, is_restored: false })
}

/// What a tenant's program is made from.
pub(crate) fn source(
    tenant: &Tenant,
    spec: &Spec,
    image: Bytes,
    engine: &dyn Engine,
) -> Result<ProgramSource, LoadFailed> {
    let (path, files) = if spec.libraries && engine.is_dynamic(&image) {
        // Libraries and data are found from where a program lies.
        let libraries = Libraries::of(&spec.file)
            .map_err(|source| ChooseError::Read { path: spec.file.clone(), source })?;
        let (path, mut files) = (libraries.path.clone(), spec.files.clone());
        libraries.add_to(&mut files);
        (path, files)
    } else {
        // The guest learns nothing of where the host keeps its program.
        let name = spec.file.file_name().unwrap_or_default();
        (format!("/{}", name.to_string_lossy()), spec.files.clone())
    };
    Ok(ProgramSource {
        args: [std::slice::from_ref(&path), &spec.args].concat(),
        name: spec.file.display().to_string(),
        image,
        path,
        env: spec.env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        reseed: spec.reseed,
        files,
        network: Some(network(tenant, spec)),
        directory: spec.directory.clone(),
        translate: spec.translate,
        warmup: Warmup {
            requests: tenant.warmup.requests,
            targets: tenant.warmup.paths.clone(),
            host: warm::host(tenant),
        },
    })
}

/// The program that an engine makes of a source.
pub(crate) fn load_source(
    engine: &dyn Engine,
    source: &ProgramSource,
    limits: &Limits,
    log: &Arc<TenantLog>,
) -> Result<Arc<dyn Program>, LoadFailed> {
    Ok(guarded(|| engine.load(source, limits, log.console()))??)
}

/// An engine that panics must not take the other tenants with it.
fn guarded<R>(work: impl FnOnce() -> R) -> Result<R, LoadFailed> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|_| LoadFailed::Panicked)
}

/// The way out of a tenant's sandboxes, as far as it may go.
pub(crate) fn network(tenant: &Tenant, spec: &Spec) -> Arc<dyn Network> {
    let policy = Policy::new(spec.egress.clone(), spec.hosts.clone());
    let name: Arc<str> = tenant.name.as_str().into();
    let tell = move |denied: Denied| {
        let Denied { what, reason, suppressed } = denied;
        tracing::warn!(target: EGRESS_TARGET, tenant = %name, %what, %reason, suppressed, "denied");
    };
    Arc::new(Way::new(policy, Lookups::of_host(), tenant.limits.connections_total, tell))
}

/// Whether a first-use tenant's file is there and some engine takes it for its own. Reads no more
/// than its beginning.
pub(crate) fn look_at(
    spec: &Spec,
    engines: &[Arc<dyn Engine>],
) -> Result<&'static str, LoadFailed> {
    let head = choose::read_head(&spec.file)?;
    if is_snapshot(&head) {
        return Ok(kept::open(spec, engines)?.1.name());
    }
    Ok(choose::engine(engines, spec.engine.as_deref(), &spec.file, &head)?.name())
}

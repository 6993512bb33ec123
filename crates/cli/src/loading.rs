//! From a tenant of the configuration to a tenant of the runtime.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use sandtide_config::{Authority, Program, Serves, Tenant};
use sandtide_engine::{Engine, ProgramSource};
use sandtide_runtime::{
    self as runtime, Admission, Answer, FixedResponse, LogPolicy, Rate, Route, Slot, TenantLog,
};

use crate::choose;

/// A tenant after its program was loaded, or was not.
pub struct Loaded {
    pub tenant: Tenant,
    /// What it answers with, or why it cannot.
    pub answer: anyhow::Result<Content>,
    /// The engine that runs it; `None` for a constant, or if none was found.
    pub engine: Option<&'static str>,
    /// Where the output of its guests goes, that of the initialisation included.
    pub log: Arc<TenantLog>,
    /// How long it took.
    pub time: Duration,
}

/// What a tenant has to answer with.
pub enum Content {
    /// A program.
    Program(Arc<dyn sandtide_engine::Program>),
    /// A constant.
    Fixed(FixedResponse),
}

/// Loads the programs of all tenants, as many at a time as there are cores. The order is kept.
pub fn load_all(tenants: Vec<Tenant>, engines: &[Arc<dyn Engine>]) -> Vec<Loaded> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(tenants.len()));
    let work = || {
        while let Some((index, tenant)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            tenants.get(index).map(|tenant| (index, tenant))
        } {
            let loaded = load(tenant.clone(), engines);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, loaded));
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(tenants.len());
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, loaded)| loaded).collect()
}

/// Loads the program of one tenant.
pub fn load(tenant: Tenant, engines: &[Arc<dyn Engine>]) -> Loaded {
    let start = Instant::now();
    let log = Arc::new(TenantLog::new(tenant.name.as_str(), log_policy(&tenant)));
    let mut engine = None;
    let answer = match &tenant.serves {
        Serves::Respond(respond) => Ok(Content::Fixed(FixedResponse {
            status: respond.status,
            headers: respond.headers.clone(),
            body: Bytes::from(respond.body.clone()),
        })),
        Serves::Program(program) => {
            // An engine that panics must not take the other tenants with it.
            let load = AssertUnwindSafe(|| load_program(&tenant, program, engines, &log));
            let loaded = panic::catch_unwind(load)
                .unwrap_or_else(|_| Err(anyhow!("the engine panicked while loading")));
            loaded.map(|(name, answer)| {
                engine = Some(name);
                answer
            })
        }
    };
    let answer = answer.with_context(|| format!("cannot load tenant `{}`", tenant.name));
    Loaded { tenant, answer, engine, log, time: start.elapsed() }
}

fn load_program(
    tenant: &Tenant,
    program: &Program,
    engines: &[Arc<dyn Engine>],
    log: &Arc<TenantLog>,
) -> anyhow::Result<(&'static str, Content)> {
    let image = choose::read(&program.file)?;
    let engine = choose::engine(engines, program.engine.as_deref(), &program.file, &image)?;
    // The guest learns nothing of where the host keeps its program.
    let own_path = format!("/{}", program.file.file_name().unwrap_or_default().to_string_lossy());
    let source = ProgramSource {
        args: [std::slice::from_ref(&own_path), &program.args].concat(),
        name: program.file.display().to_string(),
        image,
        env: program.env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        files: program.files.clone(),
    };
    let loaded = engine.load(&source, &tenant.limits, log.console())?;
    Ok((engine.name(), Content::Program(loaded)))
}

/// Says which system calls of a tenant's guests the engine does not have, if there are any.
pub fn unknown_calls(tenant: &str, program: &dyn sandtide_engine::Program) -> Option<String> {
    let calls = program.unknown_calls();
    let calls: Vec<_> = calls.iter().map(|(name, count)| format!("{name} ({count})")).collect();
    let calls = (!calls.is_empty()).then(|| calls.join(", "))?;
    Some(format!("note: tenant `{tenant}` made system calls that guests do not have: {calls}"))
}

fn log_policy(tenant: &Tenant) -> LogPolicy {
    LogPolicy {
        lines_per_second: tenant.log.lines,
        bytes_per_second: tenant.log.bytes,
        ..LogPolicy::default()
    }
}

impl Loaded {
    /// The tenant as the runtime serves it: with 503 if its program could not be loaded.
    pub fn into_runtime(self) -> anyhow::Result<runtime::Tenant> {
        let Self { tenant, answer, log, .. } = self;
        let answer = match answer {
            Ok(Content::Program(program)) => Answer::Program(Slot::loaded(program)),
            Ok(Content::Fixed(fixed)) => Answer::Fixed(fixed),
            Err(error) => Answer::Program(Slot::failed(format!("{error:#}"))),
        };
        let admission = Admission {
            concurrency: tenant.concurrency,
            queue: tenant.queue,
            queue_time: tenant.queue_time,
            weight: tenant.weight,
            rate: tenant.rate.map(|rate| Rate {
                per_second: rate.requests_per_second.get(),
                burst: rate.burst.get(),
            }),
            ..Admission::default()
        };
        let routes = routes(&tenant)?;
        let mut served = runtime::Tenant::new(tenant.name, routes, answer);
        served.limits = tenant.limits;
        served.admission = admission;
        served.ephemeral = tenant.ephemeral;
        served.log = log;
        Ok(served)
    }
}

fn routes(tenant: &Tenant) -> anyhow::Result<Vec<Route>> {
    let names = tenant.authorities.iter().map(Authority::to_string);
    let names = names.chain(tenant.default.then(|| "*".to_owned()));
    names.map(|name| Ok(Route::new(&name, &tenant.path)?)).collect()
}

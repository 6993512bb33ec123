//! Programs on disk: a tenant's snapshot is made, and a tenant goes on from one.

use std::{
    io,
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use sandtide_config::{Program as Spec, Serves, Tenant};
use sandtide_engine::{
    Engine, KeepError, Limits, LoadError, Program, ProgramSource, Recipe, Requests,
};
use sandtide_snapshot::{About, Origin, SnapshotFile, Unusable, WriteError, write};

use crate::{
    choose,
    load::{LoadFailed, Made, load_source, network, source},
    table::tenant_log,
    warm::warm,
};

/// Why a tenant cannot go on from its snapshot.
#[derive(Debug, thiserror::Error)]
pub enum RestoreFailed {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] Unusable),
    /// No engine of this build is the one that made it.
    #[error("the snapshot was made by the engine `{0}`, which this build does not have")]
    Engine(String),
    /// The tenant says something that was decided when the snapshot was made.
    #[error("`{0}` was decided when the snapshot was made")]
    Decided(&'static str),
    /// The tenant may have less.
    #[error("the snapshot was made with `limits.{limit}` of {made}, the tenant's is {allowed}")]
    Limit {
        /// Which one.
        limit: &'static str,
        /// What the snapshot needs.
        made: u64,
        /// What the tenant may have.
        allowed: u64,
    },
}

impl RestoreFailed {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::File(error) => error.hint(),
            Self::Engine(_) => "make it anew with this build: `sandtide snapshot`",
            Self::Decided(_) => "leave it out, or make the snapshot anew with it",
            Self::Limit { .. } => {
                "raise the limit of the tenant, or make the snapshot anew with less"
            }
        }
    }
}

/// Why a tenant's snapshot cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepFailed {
    /// Its program cannot be run.
    #[error(transparent)]
    Load(#[from] LoadFailed),
    /// It cannot be kept.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// Its program's file cannot be read again.
    #[error("cannot read the program's file again")]
    Origin(#[source] io::Error),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The tenant has no program.
    #[error("tenant `{0}` has no program")]
    NoProgram(String),
}

impl KeepFailed {
    /// What to do about it, if there is something to say.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Load(error) => error.hint(),
            Self::Keep(error) => error.hint(),
            Self::Origin(_) => Some("it has changed while it was loaded: try again"),
            Self::Write(_) | Self::NoProgram(_) => None,
        }
    }
}

/// Boots the program of a tenant, up to where it waits for its first request, and writes its
/// snapshot to a file.
pub fn keep(
    tenant: &Tenant,
    engines: &[Arc<dyn Engine>],
    path: &Path,
) -> Result<About, KeepFailed> {
    let Serves::Program(spec) = &tenant.serves else {
        return Err(KeepFailed::NoProgram(tenant.name.clone()));
    };
    let image = choose::read(&spec.file).map_err(LoadFailed::from)?;
    let engine = choose::engine(engines, spec.engine.as_deref(), &spec.file, &image)
        .map_err(LoadFailed::from)?;
    // Whether it can be kept is to be known before it is booted.
    let conditions = engine.conditions().map_err(|error| match error {
        LoadError::Snapshot { .. } => KeepFailed::Keep(KeepError::Unsupported),
        error => KeepFailed::Load(error.into()),
    })?;
    let source = source(tenant, spec, image, &*engine)?;
    let log = tenant_log(tenant);
    let program = load_source(&*engine, &source, &tenant.limits, &log)?;
    warm(&*program, tenant, &log).map_err(LoadFailed::from)?;
    let about = About { conditions, ..about(&*engine, &source, &tenant.limits, &spec.file)? };
    keep_program(&*program, about, path)
}

/// Writes the snapshot of a program to a file.
pub(crate) fn keep_program(
    program: &dyn Program,
    about: About,
    path: &Path,
) -> Result<About, KeepFailed> {
    let parts = program.to_keep()?;
    let about = About { files: parts.files.clone(), ..about };
    write(path, about.clone(), &parts)?;
    Ok(about)
}

/// What is said of a program in its snapshot.
fn about(
    engine: &dyn Engine,
    source: &ProgramSource,
    limits: &Limits,
    file: &Path,
) -> Result<About, KeepFailed> {
    Ok(About {
        engine: engine.name().to_owned(),
        conditions: Vec::new(),
        recipe: Recipe::of(source, limits),
        program: Origin::of(file, &source.image).map_err(KeepFailed::Origin)?,
        files: Vec::new(),
        made: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
    })
}

/// Opens the snapshot that a tenant names as its program. The engine that made it.
pub(crate) fn open(
    spec: &Spec,
    engines: &[Arc<dyn Engine>],
) -> Result<(SnapshotFile, Arc<dyn Engine>), LoadFailed> {
    let file = SnapshotFile::open(&spec.file).map_err(RestoreFailed::from)?;
    let name = &file.about().engine;
    let engine = engines.iter().find(|engine| engine.name() == name);
    let engine = engine.ok_or_else(|| RestoreFailed::Engine(name.clone()))?;
    Ok((file, Arc::clone(engine)))
}

/// The program of a tenant that names a snapshot as its program.
pub(crate) fn restore(
    tenant: &Tenant,
    spec: &Spec,
    engines: &[Arc<dyn Engine>],
) -> Result<Made, LoadFailed> {
    for (is_said, key) in [
        (!spec.args.is_empty(), "args"),
        (!spec.env.is_empty(), "env"),
        (!spec.files.is_empty(), "files"),
        (spec.directory != "/", "directory"),
        (tenant.warmup.requests != Requests::default(), "warmup.requests"),
    ] {
        if is_said {
            return Err(RestoreFailed::Decided(key).into());
        }
    }
    let (file, engine) = open(spec, engines)?;
    let about = file.about();
    about.check(&engine.conditions()?).map_err(RestoreFailed::from)?;
    about.program.check().map_err(RestoreFailed::from)?;
    let mut kept = file.kept();
    kept.source.network = Some(network(tenant, spec));
    kept.limits = limits(&about.recipe.limits, &tenant.limits)?;
    let program = engine.restore(&kept)?;
    file.check_pages().map_err(RestoreFailed::from)?;
    Ok(Made { engine: engine.name(), program, is_restored: true })
}

/// The limits of a tenant, where they bind, with those that a snapshot was made with.
fn limits(made: &Limits, tenant: &Limits) -> Result<Limits, RestoreFailed> {
    for (limit, made, allowed) in [
        ("memory", made.memory, tenant.memory),
        ("descriptors", made.descriptors.into(), tenant.descriptors.into()),
        ("threads", made.threads.into(), tenant.threads.into()),
        ("scratch", made.scratch, tenant.scratch),
    ] {
        if made > allowed {
            return Err(RestoreFailed::Limit { limit, made, allowed });
        }
    }
    let Limits { memory, descriptors, threads, scratch, .. } = *made;
    Ok(Limits { memory, descriptors, threads, scratch, ..tenant.clone() })
}

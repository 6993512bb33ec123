//! The engines of this build. The one place that knows them by name.

use std::{env, path::PathBuf, sync::Arc};

use sandtide_config::{Server, Translation, TranslationCache};
use sandtide_control::SnapshotDirectory;
use sandtide_engine::Engine;
use sandtide_riscv::{Cache, RiscvEngine, TranslationOptions};

use crate::report::Hinted;

/// All engines, in the order in which they are asked whether they recognise a program.
pub fn all() -> Vec<Arc<dyn Engine>> {
    with(RiscvEngine::new())
}

/// All engines, with what a configuration says of translated code and of snapshots.
pub fn of_server(server: &Server) -> anyhow::Result<Vec<Arc<dyn Engine>>> {
    let engines = configured(&server.translation)?;
    let Some(directory) = &server.snapshots else { return Ok(engines) };
    let directory = SnapshotDirectory::open(directory, server.snapshots_size).map_err(|error| {
        let hint =
            "set `server.snapshots` to a directory of the server's user alone, or leave it out";
        Hinted::new(format!("{:#}", anyhow::Error::from(error)), hint)
    })?;
    Ok(engines.into_iter().map(|engine| directory.in_front_of(engine)).collect())
}

/// All engines, with what a configuration says of translated code.
pub fn configured(translation: &Translation) -> anyhow::Result<Vec<Arc<dyn Engine>>> {
    let options = TranslationOptions {
        cache: cache(translation)?,
        memory: translation.code_memory,
        threads: translation.threads as usize,
        ..TranslationOptions::default()
    };
    Ok(with(RiscvEngine::with(options)))
}

/// This engine, and those that nothing is said of.
fn with(riscv: RiscvEngine) -> Vec<Arc<dyn Engine>> {
    vec![
        Arc::new(riscv),
        #[cfg(target_arch = "x86_64")]
        Arc::new(sandtide_kvm::KvmEngine::new()),
    ]
}

/// Where translations are kept. A place that nobody has asked for is gone without.
fn cache(translation: &Translation) -> anyhow::Result<Option<Cache>> {
    let (path, is_asked_for) = match &translation.cache {
        TranslationCache::Off => return Ok(None),
        TranslationCache::Directory(path) => (path.clone(), true),
        TranslationCache::Auto => match user_cache() {
            Some(path) => (path.join("translations"), false),
            None => return Ok(None),
        },
    };
    match Cache::open(&path, translation.cache_size) {
        Ok(cache) => Ok(Some(cache)),
        Err(error) if is_asked_for => {
            let hint = error.hint();
            Err(Hinted::new(format!("{:#}", anyhow::Error::from(error)), hint).into())
        }
        Err(error) => {
            let error = anyhow::Error::from(error);
            eprintln!("note: translations are not kept: {error:#}");
            Ok(None)
        }
    }
}

/// The directory for caches: of the service (systemd.exec(5), `CacheDirectory=`), or of the user (XDG
/// Base Directory Specification).
fn user_cache() -> Option<PathBuf> {
    let from_env = |name| env::var_os(name).filter(|value| !value.is_empty());
    let absolute = |path: &PathBuf| path.is_absolute();
    if let Some(all) = from_env("CACHE_DIRECTORY") {
        return env::split_paths(&all).find(absolute);
    }
    let user = from_env("XDG_CACHE_HOME").map(PathBuf::from).filter(absolute);
    let home = || Some(PathBuf::from(from_env("HOME")?).join(".cache")).filter(absolute);
    Some(user.or_else(home)?.join("sandtide"))
}

/// The names that `engine` may have in a configuration.
pub fn names(engines: &[Arc<dyn Engine>]) -> Vec<&'static str> {
    engines.iter().map(|engine| engine.name()).collect()
}

/// What each engine finds on this machine, by name: in a few words, or why it cannot run.
pub fn conditions() -> Vec<(&'static str, anyhow::Result<String>)> {
    vec![
        ("riscv", Ok("needs nothing".to_owned())),
        #[cfg(target_arch = "x86_64")]
        (
            "kvm",
            sandtide_kvm::probe()
                .map(|support| support.to_string())
                .map_err(|reason| Hinted::new(reason.to_string(), reason.hint()).into()),
        ),
    ]
}

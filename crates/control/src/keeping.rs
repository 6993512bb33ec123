//! Snapshots that are kept by themselves: an engine in front of another one, with a directory.
//!
//! ```text
//!   load ─▶ a snapshot of this program there? ─ yes, and usable ─▶ restore
//!                 └─ no ─▶ the engine boots it ─▶ serves
//!                                     └─ a thread writes its snapshot, for the next start
//! ```
//!
//! Files are named by a hash of what they are made from: the program's file, what it is given, and the
//! conditions. What was not used for longest makes room.

use std::{
    fmt, fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sandtide_engine::{
    Condition, Console, Engine, Fault, Kept, Limits, LoadError, Profile, Program, ProgramSource,
    Recipe,
};
use sandtide_snapshot::{About, EXTENSION, Origin, SnapshotFile};
use sha2::{Digest as _, Sha256};

use crate::{kept::keep_program, report::CONTROL_TARGET};

/// A file that is not whole after so long never will be.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A directory of snapshots.
#[derive(Debug)]
pub struct SnapshotDirectory {
    path: PathBuf,
    /// Bytes of all files together.
    most: u64,
    /// Whoever writes: one at a time, since programs are large.
    writing: Mutex<()>,
}

/// Why a directory cannot have snapshots.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep snapshots in `{path}`")]
pub struct DirectoryError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl SnapshotDirectory {
    /// Opens a directory, which is made if it is not there, for files of at most `most` bytes
    /// together.
    pub fn open(path: &Path, most: u64) -> Result<Arc<Self>, DirectoryError> {
        let failed = |source| DirectoryError { path: path.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let metadata = fs::metadata(path).map_err(failed)?;
        sandtide_snapshot::belongs_to_us(metadata.uid(), metadata.mode())
            .map_err(|what| failed(io::Error::other(format!("it {what}"))))?;
        Ok(Arc::new(Self { path: path.to_owned(), most, writing: Mutex::new(()) }))
    }

    /// An engine in front of another one, that keeps its snapshots here.
    pub fn in_front_of(self: &Arc<Self>, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        Arc::new(Keeping { engine, directory: Arc::clone(self) })
    }

    /// Removes the files that were not used for longest, until the rest is within the limit.
    fn make_room(&self) -> io::Result<()> {
        let mut files = Vec::new();
        let now = SystemTime::now();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let path = entry.path();
            // Another server may have removed it meanwhile.
            let Ok(metadata) = entry.metadata() else { continue };
            let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let age = now.duration_since(modified).unwrap_or_default();
            if name.contains(".unfinished-") && age > ABANDONED {
                let _ = fs::remove_file(&path);
            } else if path.extension().is_some_and(|extension| extension == EXTENSION) {
                files.push((modified, metadata.len(), path));
            }
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in files {
            if total <= self.most {
                break;
            }
            let _ = fs::remove_file(path);
            total -= size;
        }
        Ok(())
    }
}

/// An engine in front of another one.
struct Keeping {
    engine: Arc<dyn Engine>,
    directory: Arc<SnapshotDirectory>,
}

impl Keeping {
    /// Where the snapshot of a program is.
    fn place(&self, source: &ProgramSource, limits: &Limits, conditions: &[Condition]) -> PathBuf {
        let mut hash = Sha256::new();
        // `Debug` of these types names every field, and strings are quoted: no two are alike.
        let recipe = Recipe::of(source, limits);
        for field in [format!("{recipe:?}"), format!("{conditions:?}")] {
            hash.update((field.len() as u64).to_le_bytes());
            hash.update(field);
        }
        hash.update(&source.image);
        let name: String = hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        self.directory.path.join(name).with_extension(EXTENSION)
    }

    /// The program of a snapshot, if it is there and can be used.
    fn restore_from(
        &self,
        source: &ProgramSource,
        place: &Path,
        conditions: &[Condition],
    ) -> Result<Arc<dyn Program>, Box<dyn fmt::Display>> {
        let file = SnapshotFile::open(place).map_err(boxed)?;
        file.about().check(conditions).map_err(boxed)?;
        let mut kept = file.kept();
        // What it may connect to is no part of a snapshot.
        kept.source.network.clone_from(&source.network);
        let program = self.engine.restore(&kept).map_err(boxed)?;
        file.check_pages().map_err(boxed)?;
        // Only for the order in which files make room.
        let _ = fs::File::open(place).and_then(|file| file.set_modified(SystemTime::now()));
        Ok(program)
    }

    /// Writes the snapshot of a program that was booted, on a thread of its own.
    fn keep(
        &self,
        program: &Arc<dyn Program>,
        about: impl FnOnce() -> io::Result<About> + Send + 'static,
        place: PathBuf,
    ) {
        let (directory, program) = (Arc::clone(&self.directory), Arc::clone(program));
        let work = move || {
            let _alone = directory.writing.lock().unwrap_or_else(PoisonError::into_inner);
            let written = about().map_err(|error| error.to_string()).and_then(|about| {
                keep_program(&*program, about, &place).map_err(|error| crate::report::chain(&error))
            });
            match written {
                Ok(_) => {
                    tracing::info!(target: CONTROL_TARGET, file = %place.display(), "kept a snapshot")
                }
                Err(why) => {
                    tracing::warn!(target: CONTROL_TARGET, "cannot keep a snapshot: {why}");
                }
            }
            if let Err(error) = directory.make_room() {
                tracing::warn!(target: CONTROL_TARGET, "cannot make room for snapshots: {error}");
            }
        };
        if let Err(error) = thread::Builder::new().name("snapshot".to_owned()).spawn(work) {
            tracing::warn!(target: CONTROL_TARGET, "cannot keep a snapshot: {error}");
        }
    }
}

fn boxed(error: impl fmt::Display + 'static) -> Box<dyn fmt::Display> {
    Box::new(error)
}

impl Engine for Keeping {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn recognises(&self, image: &[u8]) -> bool {
        self.engine.recognises(image)
    }

    fn is_dynamic(&self, image: &[u8]) -> bool {
        self.engine.is_dynamic(image)
    }

    fn load(
        &self,
        source: &ProgramSource,
        limits: &Limits,
        console: Arc<dyn Console>,
    ) -> Result<Arc<dyn Program>, LoadError> {
        let Ok(conditions) = self.engine.conditions() else {
            return self.engine.load(source, limits, console);
        };
        let place = self.place(source, limits, &conditions);
        if place.exists() {
            match self.restore_from(source, &place, &conditions) {
                Ok(program) => {
                    let (file, name) = (place.display(), &source.name);
                    tracing::info!(target: CONTROL_TARGET, %file, "`{name}` goes on from its snapshot");
                    return Ok(program);
                }
                Err(why) => tracing::info!(
                    target: CONTROL_TARGET,
                    file = %place.display(),
                    "`{}` is booted: {why}",
                    source.name,
                ),
            }
        }
        let program = self.engine.load(source, limits, console)?;
        let (engine, recipe) = (self.engine.name().to_owned(), Recipe::of(source, limits));
        let image = source.image.clone();
        let about = move || {
            Ok(About {
                program: Origin::of(Path::new(&recipe.name), &image)?,
                engine,
                conditions,
                recipe,
                files: Vec::new(),
                made: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            })
        };
        self.keep(&program, about, place);
        Ok(program)
    }

    fn conditions(&self) -> Result<Vec<Condition>, LoadError> {
        self.engine.conditions()
    }

    fn restore(&self, kept: &Kept) -> Result<Arc<dyn Program>, LoadError> {
        self.engine.restore(kept)
    }

    fn execute(
        &self,
        source: &ProgramSource,
        limits: &Limits,
        stdin: Box<dyn io::Read + Send>,
        console: Arc<dyn Console>,
    ) -> Result<Result<u8, Fault>, LoadError> {
        self.engine.execute(source, limits, stdin, console)
    }

    fn profile(
        &self,
        source: &ProgramSource,
        limits: &Limits,
        stdin: Box<dyn io::Read + Send>,
        console: Arc<dyn Console>,
        profile: &mut Profile,
    ) -> Result<Result<u8, Fault>, LoadError> {
        self.engine.profile(source, limits, stdin, console, profile)
    }
}

//! Which files have changed.
//!
//! Directories are watched, not files: an editor that writes beside a file and renames, a link
//! that is moved to another release, a file that is deleted and comes back are all something that
//! happens in a directory. What has happened there is then looked up at the files themselves.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::mpsc::Sender,
};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _, event::AccessKind};

use crate::{entry::Signature, report::CONTROL_TARGET, shared::Event};

/// The files that are watched.
pub(crate) struct Watch {
    /// `None` if the operating system does not tell: then all are looked at now and then.
    watcher: Option<RecommendedWatcher>,
    files: HashMap<PathBuf, Watched>,
    /// Directories, with the files that something in them may concern.
    directories: HashMap<PathBuf, HashSet<PathBuf>>,
}

struct Watched {
    /// What it was like when it was last looked at; `None` if it was not there.
    signature: Option<Signature>,
    directories: Vec<PathBuf>,
}

impl Watch {
    /// Watches nothing yet. What happens is sent to `events`.
    pub(crate) fn new(events: Sender<Event>) -> Self {
        let watcher = notify::recommended_watcher(move |result: notify::Result<notify::Event>| {
            let event = match result {
                Ok(event) if event.need_rescan() => Event::Rescan,
                Ok(event) if is_a_look(event.kind) => return,
                Ok(event) => Event::Touched(event.paths),
                Err(_) => Event::Rescan,
            };
            // The control thread may be gone.
            let _ = events.send(event);
        });
        let watcher = watcher.inspect_err(cannot_watch).ok();
        Self { watcher, files: HashMap::new(), directories: HashMap::new() }
    }

    /// Watches these files and directories and no others. With each comes what it was like when
    /// it was last read, if that is known.
    pub(crate) fn set(&mut self, files: impl IntoIterator<Item = (PathBuf, Option<Signature>)>) {
        let mut before = std::mem::take(&mut self.files);
        let before_directories = std::mem::take(&mut self.directories);
        for (path, known) in files {
            if self.files.contains_key(&path) {
                continue;
            }
            let directories = directories_of(&path);
            for directory in &directories {
                self.directories.entry(directory.clone()).or_default().insert(path.clone());
            }
            let signature = match before.remove(&path) {
                Some(watched) => watched.signature,
                None => known.or_else(|| Signature::of(&path).ok()),
            };
            self.files.insert(path, Watched { signature, directories });
        }
        self.follow(&before_directories);
    }

    /// Has the operating system tell about the directories as they are now.
    fn follow(&mut self, before: &HashMap<PathBuf, HashSet<PathBuf>>) {
        let Some(watcher) = &mut self.watcher else { return };
        for gone in before.keys().filter(|path| !self.directories.contains_key(*path)) {
            // It is not watched any more if it was deleted.
            let _ = watcher.unwatch(gone);
        }
        let mut failed = None;
        for new in self.directories.keys().filter(|path| !before.contains_key(*path)) {
            if let Err(error) = watcher.watch(new, RecursiveMode::NonRecursive)
                && new.exists()
            {
                failed = Some(error);
            }
        }
        if let Some(error) = failed {
            cannot_watch(&error);
            self.watcher = None;
        }
    }

    /// Whether the files have to be looked at without being told.
    pub(crate) fn is_blind(&self) -> bool {
        self.watcher.is_none()
    }

    /// Whether what happened to this path may concern a watched file.
    pub(crate) fn concerns(&self, path: &Path) -> bool {
        self.directories.contains_key(path)
            || path.parent().is_some_and(|parent| self.directories.contains_key(parent))
    }

    /// The files that are not what they were when they were last looked at, among those that what
    /// happened to `touched` may concern.
    pub(crate) fn changed(&mut self, touched: &HashSet<PathBuf>) -> Vec<PathBuf> {
        let directories = touched.iter().flat_map(|path| [Some(path.as_path()), path.parent()]);
        let concerned: HashSet<PathBuf> = directories
            .flatten()
            .filter_map(|directory| self.directories.get(directory))
            .flatten()
            .cloned()
            .collect();
        self.look_at(concerned)
    }

    /// The same, among all.
    pub(crate) fn all_changed(&mut self) -> Vec<PathBuf> {
        let all: Vec<_> = self.files.keys().cloned().collect();
        self.look_at(all)
    }

    fn look_at(&mut self, paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
        let mut changed = Vec::new();
        for path in paths {
            let Some(watched) = self.files.get_mut(&path) else { continue };
            let signature = Signature::of(&path).ok();
            if std::mem::replace(&mut watched.signature, signature) != signature {
                changed.push(path);
            }
        }
        // Links may lead elsewhere now.
        if changed.iter().any(|path| directories_of(path) != self.files[path].directories) {
            let files: Vec<_> = self
                .files
                .iter()
                .map(|(path, watched)| (path.clone(), watched.signature))
                .collect();
            self.set(files);
        }
        changed
    }
}

/// An event that changes nothing.
fn is_a_look(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(access) if !matches!(access, AccessKind::Close(_)))
}

fn cannot_watch(error: &notify::Error) {
    tracing::warn!(
        target: CONTROL_TARGET,
        hint = "raise `fs.inotify.max_user_watches` and `fs.inotify.max_user_instances`",
        "cannot watch files, looks at them every few seconds instead: {error}",
    );
}

/// The directories in which something may happen that changes what is found at a path: its own,
/// those of all links on the way, the one at the end of the links, and itself.
fn directories_of(path: &Path) -> Vec<PathBuf> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parent = |path: &Path| path.parent().map(Path::to_owned);
    let mut directories: Vec<_> = absolute
        .ancestors()
        .skip(1)
        .filter(|ancestor| ancestor.is_symlink())
        .filter_map(parent)
        .chain(parent(&absolute))
        .collect();
    if let Ok(real) = absolute.canonicalize() {
        if real.is_dir() {
            directories.push(real);
        } else {
            directories.extend(parent(&real));
        }
    }
    directories.sort_unstable();
    directories.dedup();
    directories
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::symlink,
        sync::mpsc::{Receiver, channel},
        time::Duration,
    };

    use tempfile::TempDir;

    use super::*;

    struct Place {
        directory: TempDir,
        watch: Watch,
        events: Receiver<Event>,
    }

    fn place() -> Place {
        let directory = TempDir::new().unwrap();
        let (sender, events) = channel();
        Place { directory, watch: Watch::new(sender), events }
    }

    impl Place {
        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            fs::write(self.path(name), text).unwrap();
            self.path(name)
        }

        fn set(&mut self, names: &[&str]) {
            let files: Vec<_> = names.iter().map(|name| (self.path(name), None)).collect();
            self.watch.set(files);
        }

        /// What has changed, once something has.
        fn changed(&mut self) -> PathBuf {
            loop {
                let event = self.events.recv_timeout(Duration::from_secs(30)).expect("an event");
                let Event::Touched(paths) = event else { continue };
                let changed = self.watch.changed(&paths.into_iter().collect());
                if let [path] = &*changed {
                    return path.clone();
                }
                assert!(changed.is_empty(), "{changed:?}");
            }
        }
    }

    #[test]
    fn files_may_be_written_replaced_deleted_and_come_back() {
        let mut place = place();
        let file = place.write("a", "1");
        place.write("b", "1");
        place.set(&["a"]);
        place.write("b", "2");
        place.write("a", "12");
        assert_eq!(place.changed(), file);
        place.write(".a.swp", "123");
        fs::rename(place.path(".a.swp"), &file).unwrap();
        assert_eq!(place.changed(), file);
        fs::remove_file(&file).unwrap();
        assert_eq!(place.changed(), file);
        place.write("a", "1234");
        assert_eq!(place.changed(), file);
    }

    #[test]
    fn links_may_be_moved() {
        let mut place = place();
        for release in ["1", "2"] {
            fs::create_dir(place.path(release)).unwrap();
        }
        place.write("1/program", "one");
        let new = place.write("2/program", "second");
        symlink("1", place.path("current")).unwrap();
        place.set(&["current/program"]);
        symlink("2", place.path("next")).unwrap();
        fs::rename(place.path("next"), place.path("current")).unwrap();
        let linked = place.path("current/program");
        assert_eq!(place.changed(), linked);
        fs::write(new, "written where the link leads").unwrap();
        assert_eq!(place.changed(), linked);
    }

    #[test]
    fn a_directory_changes_with_what_is_in_it() {
        let mut place = place();
        fs::create_dir(place.path("tenants.d")).unwrap();
        place.set(&["tenants.d"]);
        place.write("tenants.d/new.toml", "x");
        assert_eq!(place.changed(), place.path("tenants.d"));
    }

    #[test]
    fn what_has_changed_before_it_was_watched_is_found() {
        let mut place = place();
        let file = place.write("a", "1");
        let known = Signature::of(&file).ok();
        place.write("a", "12");
        place.watch.set([(file.clone(), known)]);
        assert_eq!(place.watch.all_changed(), [file]);
    }
}

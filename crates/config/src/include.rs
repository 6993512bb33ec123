//! `include`: which files a pattern stands for.

use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
};

use crate::problem::Placed;

/// What the files that a configuration includes are found with.
pub(crate) trait Files {
    /// The files that a pattern fits, sorted by name.
    fn find(&self, pattern: &str) -> Result<Vec<PathBuf>, glob::PatternError>;

    /// The text of a file.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// A path by which a file is known again.
    fn identity(&self, path: &Path) -> PathBuf;
}

/// The files of this machine.
pub(crate) struct Disk;

impl Files for Disk {
    fn find(&self, pattern: &str) -> Result<Vec<PathBuf>, glob::PatternError> {
        // Editors and package managers leave hidden files behind.
        let options =
            glob::MatchOptions { require_literal_leading_dot: true, ..Default::default() };
        let mut found: Vec<_> = glob::glob_with(pattern, options)?.filter_map(Result::ok).collect();
        found.sort();
        Ok(found)
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }
}

/// No files at all.
pub(crate) struct Nothing;

impl Files for Nothing {
    fn find(&self, pattern: &str) -> Result<Vec<PathBuf>, glob::PatternError> {
        glob::Pattern::new(pattern).map(|_| Vec::new())
    }

    fn read(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
}

/// What `include` of one file comes to.
#[derive(Debug, Default)]
pub(crate) struct Includes {
    /// In the order in which they are read, each once, with the place that includes them.
    pub files: Vec<Placed<PathBuf>>,
    /// Where files would be found that do not exist yet.
    pub directories: Vec<PathBuf>,
    seen: HashSet<PathBuf>,
}

impl Includes {
    /// Of the file with this path, which does not include itself.
    pub fn of(path: &Path, files: &dyn Files) -> Self {
        Self { seen: HashSet::from([files.identity(path)]), ..Self::default() }
    }

    /// Adds what one element of `include` stands for, relative to a directory.
    pub fn add(
        &mut self,
        directory: &Path,
        Placed { value: pattern, place }: &Placed<String>,
        files: &dyn Files,
    ) -> Result<(), glob::PatternError> {
        let found = if is_pattern(pattern) {
            self.directories.push(directory.join(literal(pattern)));
            files.find(&below(directory, pattern))?
        } else {
            vec![directory.join(pattern)]
        };
        for path in found {
            if self.seen.insert(files.identity(&path)) {
                self.files.push(Placed { value: path, place: *place });
            }
        }
        Ok(())
    }
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The directories before the first that a pattern leaves open.
fn literal(pattern: &str) -> PathBuf {
    let path = Path::new(pattern);
    let parent = path.parent().unwrap_or(Path::new(""));
    parent
        .components()
        .take_while(|part| !is_pattern(&part.as_os_str().to_string_lossy()))
        .collect()
}

/// The pattern, relative to a directory whose name is no pattern.
fn below(directory: &Path, pattern: &str) -> String {
    if Path::new(pattern).is_absolute() || directory.as_os_str().is_empty() {
        return pattern.to_owned();
    }
    format!("{}/{pattern}", glob::Pattern::escape(&directory.to_string_lossy()))
}

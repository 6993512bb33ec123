//! Outputs by the hash of what they were made from.

use std::{
    env, fmt, fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use tempfile::{NamedTempFile, TempDir};

use crate::BuildError;

/// A hash over fields whose borders count: `ab, c` is not `a, bc`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hash(Sha256);

impl Hash {
    pub fn field(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.clone().finalize()[..16].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The cache directory:
///
/// ```text
/// build/<hash>.elf    programs
/// sdk/<hash>/         the embedded SDK, extracted
/// ```
///
/// Entries appear whole, by renaming, and never change: several builds can share it.
#[derive(Debug)]
pub(crate) struct Cache(PathBuf);

impl Cache {
    /// The directory that is given, or `$XDG_CACHE_HOME/sandtide`, or `~/.cache/sandtide`.
    pub fn open(given: Option<&Path>) -> Result<Self, BuildError> {
        let from_env =
            |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = match given {
            Some(path) => path.to_owned(),
            None => from_env("XDG_CACHE_HOME")
                .filter(|path| path.is_absolute())
                .or_else(|| Some(from_env("HOME")?.join(".cache")))
                .ok_or(BuildError::NoCacheDirectory)?
                .join("sandtide"),
        };
        for directory in [root.join("build"), root.join("sdk")] {
            fs::create_dir_all(&directory).map_err(BuildError::file("create", &directory))?;
        }
        // Compilers run in other directories.
        let root = fs::canonicalize(&root).map_err(BuildError::file("find", &root))?;
        Ok(Self(root))
    }

    fn entry(&self, key: &Hash) -> PathBuf {
        self.0.join("build").join(format!("{key}.elf"))
    }

    /// The program with this key, if there is one.
    pub fn program(&self, key: &Hash) -> Option<PathBuf> {
        Some(self.entry(key)).filter(|path| path.is_file())
    }

    /// A directory for the intermediate files of one build.
    pub fn workspace(&self) -> Result<TempDir, BuildError> {
        TempDir::with_prefix_in("job-", self.0.join("build"))
            .map_err(BuildError::file("create a directory in", &self.0))
    }

    /// A file for a program that is being made.
    pub fn unfinished(&self) -> Result<NamedTempFile, BuildError> {
        NamedTempFile::with_prefix_in("job-", self.0.join("build"))
            .map_err(BuildError::file("create a file in", &self.0))
    }

    /// Keeps a program.
    pub fn keep(&self, program: NamedTempFile, key: &Hash) -> Result<(), BuildError> {
        let path = self.entry(key);
        match program.persist(&path) {
            Ok(_) => Ok(()),
            Err(failed) => Err(BuildError::file("write", path)(failed.error)),
        }
    }

    /// A file whose existence tells something.
    pub fn marker(&self, name: &str) -> PathBuf {
        self.0.join("build").join(name)
    }

    /// The directory `kind/<key>`, which `fill` writes if it is not there.
    pub fn directory(
        &self,
        kind: &str,
        key: &Hash,
        fill: impl FnOnce(&Path) -> Result<(), BuildError>,
    ) -> Result<PathBuf, BuildError> {
        let path = self.0.join(kind).join(key.to_string());
        if path.is_dir() {
            return Ok(path);
        }
        let unfinished = TempDir::with_prefix_in("job-", self.0.join(kind))
            .map_err(BuildError::file("create a directory in", &self.0))?;
        fill(unfinished.path())?;
        match fs::rename(unfinished.path(), &path) {
            Ok(()) => {
                // It has moved: there is nothing to remove.
                let _ = unfinished.keep();
                Ok(path)
            }
            // Another build was faster.
            Err(_) if path.is_dir() => Ok(path),
            Err(error) => Err(BuildError::file("create", path)(error)),
        }
    }
}

/// Puts a program where it was asked for. Whoever runs the old one keeps it; whoever watches the
/// path sees a whole new one.
pub(crate) fn copy(program: &Path, output: &Path) -> Result<(), BuildError> {
    let directory = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(directory).map_err(BuildError::file("create", directory))?;
    let write = || -> io::Result<()> {
        let unfinished = NamedTempFile::with_prefix_in(".sandtide-", directory)?;
        fs::copy(program, unfinished.path())?;
        make_executable(unfinished.path())?;
        unfinished.persist(output)?;
        Ok(())
    };
    write().map_err(BuildError::file("write", output))
}

#[cfg(unix)]
fn make_executable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_between_fields_count() {
        let hash = |fields: &[&str]| {
            let mut hash = Hash::default();
            fields.iter().for_each(|field| {
                hash.field(field.as_bytes());
            });
            hash.to_string()
        };
        assert_eq!(hash(&["ab", "c"]), hash(&["ab", "c"]));
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&["ab"]), hash(&["ab", ""]));
    }

    #[test]
    fn a_kept_program_is_found_by_its_key_only() {
        let temporary = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(temporary.path())).unwrap();
        let (mut key, mut other) = (Hash::default(), Hash::default());
        key.field(b"a");
        other.field(b"b");
        let program = cache.unfinished().unwrap();
        fs::write(program.path(), b"elf").unwrap();
        assert_eq!(cache.program(&key), None);
        cache.keep(program, &key).unwrap();
        assert_eq!(fs::read(cache.program(&key).unwrap()).unwrap(), b"elf");
        assert_eq!(cache.program(&other), None);
    }

    #[test]
    fn an_output_replaces_the_file_that_was_there() {
        let temporary = tempfile::tempdir().unwrap();
        let (from, to) = (temporary.path().join("from"), temporary.path().join("new/to"));
        fs::write(&from, b"one").unwrap();
        copy(&from, &to).unwrap();
        let open = fs::File::open(&to).unwrap();
        fs::write(&from, b"two").unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"two");
        assert_eq!(io::read_to_string(open).unwrap(), "one");
        assert_eq!(fs::read_dir(to.parent().unwrap()).unwrap().count(), 1);
    }
}

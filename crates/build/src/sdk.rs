//! The SDK that programs include: embedded in this crate, written to the cache when it is needed.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::{
    BuildError,
    cache::{Cache, Hash},
};

macro_rules! embedded {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../sdk/", $path)))),*]
    };
}

/// Every file of the SDK that a build needs, by its path in `sdk/`.
const FILES: &[(&str, &str)] = embedded![
    "c/sandtide.h",
    "c/sandtide_abi.h",
    "c/sandtide_devserver.h",
    "cpp/sandtide.hpp",
    "python/sandtide_glue.py",
    "python/sandtide_pythran.hpp",
];

/// An SDK on disk.
#[derive(Debug)]
pub(crate) struct Sdk {
    pub directory: PathBuf,
    /// Identifies the content of its files.
    pub hash: Hash,
}

impl Sdk {
    /// The directories that a program's includes are looked up in.
    pub fn includes(&self) -> [PathBuf; 2] {
        ["c", "cpp"].map(|language| self.directory.join(language))
    }

    pub fn python(&self) -> PathBuf {
        self.directory.join("python")
    }
}

/// The SDK that the option or `$SANDTIDE_SDK` names, or else the embedded one.
pub(crate) fn locate(option: Option<&Path>, cache: &Cache) -> Result<Sdk, BuildError> {
    let named = option.map(Path::to_owned).or_else(|| {
        env::var_os("SANDTIDE_SDK").filter(|value| !value.is_empty()).map(PathBuf::from)
    });
    match named {
        Some(directory) => read(directory),
        None => extract(cache),
    }
}

fn read(directory: PathBuf) -> Result<Sdk, BuildError> {
    if !directory.join("c/sandtide.h").is_file() {
        return Err(BuildError::NotAnSdk(directory));
    }
    let mut hash = Hash::default();
    for (name, _) in FILES {
        let path = directory.join(name);
        let text = fs::read(&path).map_err(BuildError::file("read", &path))?;
        hash.field(name.as_bytes()).field(&text);
    }
    Ok(Sdk { directory, hash })
}

/// Writes the embedded SDK to a directory of the cache that is named by its content.
fn extract(cache: &Cache) -> Result<Sdk, BuildError> {
    let mut hash = Hash::default();
    for (name, text) in FILES {
        hash.field(name.as_bytes()).field(text.as_bytes());
    }
    let directory = cache.directory("sdk", &hash, |directory| {
        for (name, text) in FILES {
            let path = directory.join(name);
            let parent = path.parent().unwrap_or(directory);
            fs::create_dir_all(parent).map_err(BuildError::file("create", parent))?;
            fs::write(&path, text).map_err(BuildError::file("write", &path))?;
        }
        Ok(())
    })?;
    Ok(Sdk { directory, hash })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_sdk_is_embedded() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk");
        for language in ["c", "cpp", "python"] {
            for entry in fs::read_dir(root.join(language)).unwrap() {
                let name = format!("{language}/{}", entry.unwrap().file_name().to_str().unwrap());
                // A program that is interpreted finds it in `/sandtide`.
                let code = name != "python/sandtide.py"
                    && [".h", ".hpp", ".py"].iter().any(|end| name.ends_with(end));
                assert!(!code || FILES.iter().any(|(file, _)| *file == name), "{name}");
            }
        }
    }

    #[test]
    fn the_embedded_sdk_is_written_whole_and_only_once() {
        let temporary = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(temporary.path())).unwrap();
        let first = extract(&cache).unwrap();
        for (name, text) in FILES {
            assert_eq!(fs::read_to_string(first.directory.join(name)).unwrap(), *text);
        }
        let time = fs::metadata(&first.directory).unwrap().modified().unwrap();
        let second = extract(&cache).unwrap();
        assert_eq!(first.directory, second.directory);
        assert_eq!(fs::metadata(&second.directory).unwrap().modified().unwrap(), time);
        assert_eq!(read(first.directory).unwrap().hash.to_string(), second.hash.to_string());
    }

    #[test]
    fn another_directory_must_be_an_sdk() {
        let temporary = tempfile::tempdir().unwrap();
        let error = read(temporary.path().to_owned()).unwrap_err();
        assert!(matches!(error, BuildError::NotAnSdk(_)));
    }
}

//! Python programs: through Pythran to C++.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{BuildError, cache::Hash, compile::refused, sdk::Sdk, source::Source, toolchain::says};

/// An interpreter that has Pythran.
#[derive(Debug)]
pub(crate) struct Pythran {
    pub python: PathBuf,
    /// Of Pythran and of Python, which reads the source.
    pub version: String,
}

/// The first of the interpreters that has Pythran.
pub(crate) fn find(pythons: &[PathBuf]) -> Result<Pythran, BuildError> {
    const VERSION: &str = "import platform, pythran\n\
                           print(pythran.__version__, 'on Python', platform.python_version())";
    pythons
        .iter()
        .find_map(|python| {
            let version = says(Command::new(python).args(["-c", VERSION]))?;
            Some(Pythran { python: python.clone(), version })
        })
        .ok_or_else(|| BuildError::NoPythran {
            tried: pythons
                .iter()
                .map(|python| format!("`{}`", python.display()))
                .collect::<Vec<_>>()
                .join(", "),
        })
}

/// Adds all that the translation of a source depends on: Pythran itself, and the modules beside the
/// source, which it may import.
pub(crate) fn hash(source: &Source, pythran: &Pythran, hash: &mut Hash) -> Result<(), BuildError> {
    let directory = source.directory();
    let list = || -> std::io::Result<Vec<PathBuf>> {
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
    };
    let mut modules = list().map_err(BuildError::file("list", directory))?;
    modules.retain(|path| path.extension() == Some(OsStr::new("py")) && path.is_file());
    modules.sort();
    hash.field(pythran.version.as_bytes()).field(&source.text);
    for module in modules {
        let text = fs::read(&module).map_err(BuildError::file("read", &module))?;
        hash.field(module.as_os_str().as_encoded_bytes()).field(&text);
    }
    Ok(())
}

/// Writes `program.hpp` and `glue.cpp` to a directory; returns where Pythran's headers are.
pub(crate) fn translate(
    source: &Source,
    pythran: &Pythran,
    sdk: &Sdk,
    directory: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, BuildError> {
    progress(&format!("translating {} with Pythran {}", source.path.display(), pythran.version));
    let tool = pythran.python.display().to_string();
    let output = Command::new(&pythran.python)
        .arg("-B")
        .arg(sdk.python().join("sandtide_glue.py"))
        .arg(&source.path)
        .arg(directory)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| BuildError::Start { tool, source })?;
    String::from_utf8_lossy(&output.stderr).lines().for_each(progress);
    if !output.status.success() {
        return Err(refused("pythran", source, output.status));
    }
    let headers = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    Ok(PathBuf::from(headers))
}

//! The Python that runs an application, and the packages installed for it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use sandtide_control::choose;
use sandtide_engine::FileGrant;

use crate::report::Hinted;

/// The adapter, where every dynamically linked program finds it.
const ADAPTER: &str = "/sandtide/sandtide.py";

/// An interpreter.
#[derive(Debug, PartialEq, Eq)]
pub struct Python {
    /// Its file.
    pub program: PathBuf,
    /// The virtual environment that it belongs to.
    environment: Option<Environment>,
}

/// A virtual environment (PEP 405).
#[derive(Debug, PartialEq, Eq)]
struct Environment {
    /// Where its packages are.
    packages: PathBuf,
    /// Whether it has those of the interpreter as well.
    with_system: bool,
}

impl Python {
    /// The interpreter that was named; else that of the virtual environment, active or in `.venv`;
    /// else what `PATH` has.
    pub fn find(named: Option<&Path>) -> anyhow::Result<Self> {
        let of = |environment: PathBuf| environment.join("bin/python");
        let active = env::var_os("VIRTUAL_ENV").map(PathBuf::from).map(of);
        let here = env::current_dir().ok().map(|directory| of(directory.join(".venv")));
        let environments = active.into_iter().chain(here).find(|python| python.is_file());
        let python = match (named, environments) {
            (Some(named), _) => named.to_owned(),
            (None, Some(python)) => python,
            (None, None) => choose::find("python3"),
        };
        if !python.is_file() {
            let what = format!("no Python at `{}`", python.display());
            let hint = "install Python 3, or name one: `--python PATH`";
            return Err(Hinted::new(what, hint).into());
        }
        Self::at(&python)
    }

    fn at(python: &Path) -> anyhow::Result<Self> {
        let image = choose::read_head(python)?;
        let python = if choose::is_elf(&image) { python.to_owned() } else { said(python)? };
        let python = std::path::absolute(python)?;
        let prefix = python.parent().and_then(Path::parent);
        let environment = prefix.and_then(|prefix| {
            let settings = fs::read_to_string(prefix.join("pyvenv.cfg")).ok()?;
            let with_system = settings.lines().any(|line| {
                let (key, value) = line.split_once('=').unwrap_or_default();
                key.trim() == "include-system-site-packages"
                    && value.trim().eq_ignore_ascii_case("true")
            });
            Some(Environment { packages: packages(&prefix.join("lib"))?, with_system })
        });
        let program = python
            .canonicalize()
            .with_context(|| format!("cannot find what `{}` is", python.display()))?;
        Ok(Self { program, environment })
    }

    /// The arguments with which it serves an application.
    pub fn arguments(&self, application: &str) -> Vec<String> {
        let mut arguments = vec![ADAPTER.to_owned()];
        if let Some(Environment { packages, with_system }) = &self.environment {
            let directory = packages.display().to_string();
            arguments.extend(["--site".to_owned(), directory]);
            arguments.extend(with_system.then(|| "--system-site".to_owned()));
        }
        arguments.push(application.to_owned());
        arguments
    }

    /// What it reads beside its own libraries.
    pub fn files(&self) -> impl Iterator<Item = FileGrant> {
        self.environment.iter().map(|Environment { packages, .. }| FileGrant {
            guest: packages.display().to_string(),
            host: packages.clone(),
            public: false,
        })
    }
}

/// `lib/python3.X/site-packages`.
fn packages(library: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(library).ok()?.filter_map(Result::ok);
    let mut found = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .map(|entry| entry.path().join("site-packages"))
        .filter(|path| path.is_dir());
    found.next()
}

/// The interpreter behind a script that chooses one, as version managers have it.
fn said(script: &Path) -> anyhow::Result<PathBuf> {
    let output = Command::new(script)
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .with_context(|| format!("cannot run `{}`", script.display()))?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if !output.status.success() || !path.is_file() {
        let what = format!("`{}` is no Python", script.display());
        return Err(Hinted::new(what, "name one: `--python PATH`").into());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_environment_brings_its_packages() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for path in ["venv/bin", "venv/lib/python3.11/site-packages", "bin"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        fs::write(root.join("bin/python3.11"), b"\x7fELF").unwrap();
        let python = root.join("venv/bin/python");
        std::os::unix::fs::symlink(root.join("bin/python3.11"), &python).unwrap();
        fs::write(root.join("venv/pyvenv.cfg"), "include-system-site-packages = false\n").unwrap();
        let found = Python::find(Some(&python)).unwrap();
        let packages = root.join("venv/lib/python3.11/site-packages").display().to_string();
        assert_eq!(found.program, root.join("bin/python3.11"));
        assert_eq!(found.arguments("app:app"), [ADAPTER, "--site", &packages, "app:app"]);
        assert_eq!(found.files().map(|file| file.guest).collect::<Vec<_>>(), [packages]);

        let base = Python::find(Some(&root.join("bin/python3.11"))).unwrap();
        assert_eq!((base.arguments("a:b").len(), base.files().count()), (2, 0));
        let missing = Python::find(Some(&root.join("nothing"))).unwrap_err();
        assert!(missing.to_string().contains("no Python at"));
    }
}

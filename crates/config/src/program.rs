//! A tenant's program, and what it may have.

use std::path::{Component, Path, PathBuf};

use sandtide_engine::FileGrant;

use crate::{
    problem::{Mistake, Mistakes, all},
    reader::{Reader, Value, suggest},
};

/// A program in a file, and what it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// `program`: the file, relative to the configuration's directory.
    pub file: PathBuf,
    /// `engine`: the engine to run it on. Default: the first that recognises the file.
    pub engine: Option<String>,
    /// `args`: the arguments behind the program's name. Default none.
    pub args: Vec<String>,
    /// `env`: the environment, as `(name, value)`; nothing of the server's own. Default empty.
    pub env: Vec<(String, String)>,
    /// `files`: guest path to host path; what the program may read. Host paths are relative to the
    /// configuration's directory. Default none.
    pub files: Vec<FileGrant>,
}

/// Reads the keys of a program from a tenant's table.
pub(crate) fn read(
    file: PathBuf,
    table: &mut Reader<'_>,
    directory: &Path,
    engines: &[&str],
) -> Program {
    Program {
        file,
        engine: table.read("engine", |value| engine(value, engines)),
        args: table.read("args", args).unwrap_or_default(),
        env: table.read("env", env).unwrap_or_default(),
        files: table.read("files", |value| files(value, directory)).unwrap_or_default(),
    }
}

fn engine(value: &Value<'_>, engines: &[&str]) -> Result<String, Mistake> {
    let name = value.string()?;
    if !engines.contains(&name) {
        let mistake = value.mistake(format_args!("there is no engine `{name}` in this build"));
        return Err(mistake.hint(suggest(name, engines)));
    }
    Ok(name.to_owned())
}

fn args(value: &Value<'_>) -> Result<Vec<String>, Mistakes> {
    all(value.array()?.iter().map(|arg| arg.string_without_nul().map(str::to_owned)))
}

fn env(value: &Value<'_>) -> Result<Vec<(String, String)>, Mistakes> {
    all(value.entries()?.into_iter().map(|(name, value)| {
        if !is_env_name(name.get_ref()) {
            let message = format!("`{}` cannot be the name of a variable", name.get_ref());
            return Err(Mistake::new(name.span(), message).hint("it has no `=` and is not empty"));
        }
        Ok((name.into_inner(), value.string_without_nul()?.to_owned()))
    }))
}

/// Whether a text can be the name of an environment variable.
pub fn is_env_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

fn files(value: &Value<'_>, directory: &Path) -> Result<Vec<FileGrant>, Mistakes> {
    all(value.entries()?.into_iter().map(|(guest, host)| {
        if !is_guest_path(guest.get_ref()) {
            let message = format!("`{}` cannot be a path of the guest", guest.get_ref());
            let hint = "it starts with `/` and has no `.` or `..` in it";
            return Err(Mistake::new(guest.span(), message).hint(hint));
        }
        match host.string_without_nul()? {
            "" => Err(host.mistake("is empty")),
            path => Ok(FileGrant { guest: guest.into_inner(), host: directory.join(path) }),
        }
    }))
}

/// Whether a text is an absolute path without detours.
pub fn is_guest_path(path: &str) -> bool {
    !path.contains('\0')
        && path.starts_with('/')
        && !path.split('/').any(|part| part == "." || part == "..")
        && Path::new(path)
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

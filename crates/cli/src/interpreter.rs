//! The interpreter that applications run in: looked for, and started in place of this process.

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use crate::report::Hinted;

/// The extension module beside the binary, which has the whole server in it.
const MODULE: &str = "lib_sandtide.so";

/// Imports the module and has it do what the binary was asked to.
const START: &str = "\
import importlib.machinery, importlib.util, sys
path = sys.argv[1]
loader = importlib.machinery.ExtensionFileLoader('_sandtide', path)
spec = importlib.util.spec_from_file_location('_sandtide', path, loader=loader)
sys.modules['_sandtide'] = module = importlib.util.module_from_spec(spec)
loader.exec_module(module)
sys.argv = sys.argv[2:]
sys.exit(0 if module.main(sys.argv) else 1)
";

/// Runs what this process was asked to do in an interpreter. Returns only if there is none.
pub fn become_one(python: Option<&Path>) -> anyhow::Error {
    match module() {
        Ok(module) => {
            let mut command = command(python, &module);
            let error = command.exec();
            let program = command.get_program().to_string_lossy().into_owned();
            let hint = "install CPython 3.11 or newer, or name it: `--python PATH`";
            Hinted::new(format!("cannot run `{program}`: {error}"), hint).into()
        }
        Err(error) => error,
    }
}

/// An interpreter that does what this process was asked to.
pub fn command(python: Option<&Path>, module: &Path) -> Command {
    let mut command = Command::new(find(python));
    command.arg("-c").arg(START).arg(module).args(env::args_os());
    command
}

/// The module's file.
pub fn module() -> anyhow::Result<PathBuf> {
    if let Some(path) = from_env("SANDTIDE_MODULE") {
        return Ok(path.into());
    }
    let own = env::current_exe().context("cannot tell where this program is")?;
    let beside = own.with_file_name(MODULE);
    if beside.is_file() {
        return Ok(beside);
    }
    let hint = "build it: `cargo build -p sandtide-module`, or name it in SANDTIDE_MODULE";
    Err(Hinted::new(format!("there is no `{}`", beside.display()), hint).into())
}

/// The interpreter: the one that is named, that of the virtual environment that is active or lies
/// here, or what the shell would run.
fn find(named: Option<&Path>) -> PathBuf {
    if let Some(named) = named {
        return named.to_owned();
    }
    let active = from_env("VIRTUAL_ENV").map(PathBuf::from);
    let here = PathBuf::from(".venv");
    let mut places = active.into_iter().chain([here]).map(|place| place.join("bin/python"));
    places.find(|python| python.exists()).unwrap_or_else(|| PathBuf::from("python3"))
}

fn from_env(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

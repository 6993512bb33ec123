//! Other parts of the server that depend on files.

use std::{error::Error, path::PathBuf};

use sandtide_config::{Config, LoadError};

use crate::report::{self, CONTROL_TARGET};

/// Reads the configuration that was started with again.
pub type Reread = Box<dyn Fn() -> Result<Config, LoadError> + Send>;

/// What keeps a runtime true.
pub struct Settings {
    /// Where a changed configuration comes from.
    pub reread: Reread,
    /// Other parts of the server that depend on files.
    pub hooks: Vec<Hook>,
    /// Called when programs were let go of, once their memory is free.
    pub trim: fn(),
}

/// The files that something depends on.
pub type FilesOf = dyn Fn(&Config) -> Vec<PathBuf> + Send;
/// Takes the files as they are now.
pub type Apply = dyn FnMut(&Config) -> Result<bool, Box<dyn Error + Send + Sync>> + Send;

/// A part of the server that is to be told when a file has changed.
pub struct Hook {
    /// What it is, for the log: `certificates`.
    pub what: &'static str,
    /// The files that it depends on.
    pub files: Box<FilesOf>,
    /// Has it take the files as they are now. Called when one of them or the configuration has
    /// changed, and on SIGHUP. `false` if there was nothing to do.
    pub apply: Box<Apply>,
}

pub(crate) fn apply(hook: &mut Hook, config: &Config) {
    match (hook.apply)(config) {
        Ok(true) => tracing::info!(target: CONTROL_TARGET, "{} reloaded", hook.what),
        Ok(false) => {}
        Err(error) => {
            let why = report::chain(&*error);
            tracing::error!(target: CONTROL_TARGET, "{} not reloaded: {why}", hook.what);
        }
    }
}

//! What is known while a configuration is read.

use std::{cell::RefCell, ffi::OsString, path::PathBuf};

use crate::problem::{Findings, Mistake, Place};

/// What a configuration is read in: the same text may mean something else elsewhere.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The names that `engine` may have: this crate knows no engine.
    pub engines: &'a [&'a str],
    /// The environment, which `${NAME}` asks.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl<'a> Surroundings<'a> {
    /// These engines, and the environment of this process.
    pub fn of_process(engines: &'a [&'a str]) -> Self {
        Self { engines, variable: &|name| std::env::var_os(name) }
    }
}

/// What the readers of all files share.
pub(crate) struct Context<'a> {
    pub surroundings: Surroundings<'a>,
    pub findings: Findings,
    /// Where listeners ask for TLS.
    pub tls_listeners: RefCell<Vec<Place>>,
}

impl<'a> Context<'a> {
    pub fn new(surroundings: Surroundings<'a>) -> Self {
        Self { surroundings, findings: Findings::default(), tls_listeners: RefCell::default() }
    }
}

/// The file that is being read.
pub(crate) struct Origin<'a> {
    pub context: &'a Context<'a>,
    /// Its number, from 0.
    pub file: u32,
    /// What relative paths in it start from.
    pub directory: PathBuf,
}

impl Origin<'_> {
    pub fn place(&self, offset: usize) -> Place {
        Place { file: self.file, offset }
    }

    pub fn add(&self, mistake: Mistake) {
        self.context.findings.add(mistake);
    }
}

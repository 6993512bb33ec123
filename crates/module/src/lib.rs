//! The server as an extension module of CPython: `_sandtide`.
//!
//! It has the commands of the `sandtide` binary, and the interpreter that has imported it to run
//! applications in. The binary starts an interpreter with this module when there is an application
//! to serve, so that the binary itself needs none.
#![forbid(unsafe_code)]

use pyo3::prelude::*;

/// The module.
#[pymodule]
#[pyo3(name = "_sandtide")]
mod module {
    use std::{ffi::OsString, process::ExitCode};

    use pyo3::prelude::*;

    /// Runs `sandtide` with these arguments, the first of which is the name of the program, on the
    /// calling thread. Returns whether it went well.
    #[pyfunction]
    fn main(py: Python<'_>, arguments: Vec<OsString>) -> bool {
        let python = sandtide_python::Python::default();
        py.detach(|| {
            let code = sandtide_cli::main(arguments, Some(&python));
            python.shut_down();
            code == ExitCode::SUCCESS
        })
    }
}

//! Exceptions as text.

use pyo3::prelude::*;

/// As the interpreter shows an exception.
pub(crate) fn shown(py: Python<'_>, error: &PyErr) -> String {
    let formatted = py.import("traceback").and_then(|traceback| {
        let error = error.value(py);
        let lines = traceback.call_method1("format_exception", (error,))?;
        lines.try_iter()?.map(|line| line?.extract::<String>()).collect::<PyResult<String>>()
    });
    match formatted {
        Ok(text) => text.trim_end().to_owned(),
        Err(_) => error.to_string(),
    }
}

/// In one line: the type and the text.
pub(crate) fn line(py: Python<'_>, error: &PyErr) -> String {
    let name = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
    let text = error.value(py).to_string();
    let first = text.lines().next().unwrap_or_default();
    if first.is_empty() { name } else { format!("{name}: {first}") }
}

/// An exception that nobody handles, in the log.
pub(crate) fn log(py: Python<'_>, what: &str, error: &PyErr) {
    tracing::error!(target: "sandtide::app", "{what}\n{}", shown(py, error));
}

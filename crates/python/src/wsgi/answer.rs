//! An application's answer: what it has returned, asked for piece by piece.

use pyo3::{intern, prelude::*, types::PyDict};

use crate::{failure, wsgi::start::Start};

/// The iterable that an application has returned.
pub(crate) struct Answer {
    iterable: Py<PyAny>,
    iterator: Py<PyAny>,
    start: Py<Start>,
}

impl Answer {
    /// Calls the application.
    pub(crate) fn begin(
        application: &Bound<'_, PyAny>,
        environ: Bound<'_, PyDict>,
        start: &Bound<'_, Start>,
    ) -> PyResult<Self> {
        let iterable = application.call1((environ, start))?;
        let iterator = iterable.try_iter()?.into_any().unbind();
        Ok(Self { iterable: iterable.unbind(), iterator, start: start.clone().unbind() })
    }

    /// Sends one piece; whether there may be more.
    pub(crate) fn step(&self, py: Python<'_>) -> PyResult<bool> {
        let mut iterator = self.iterator.bind(py).try_iter()?;
        match iterator.next() {
            Some(piece) => self.start.bind(py).get().body(&piece?).map(|()| true),
            None => self.start.bind(py).get().finish(py).map(|()| false),
        }
    }

    /// Tells the application that its answer is not needed any more: always, and once.
    pub(crate) fn close(self, py: Python<'_>) {
        let closed = match self.iterable.bind(py).getattr_opt(intern!(py, "close")) {
            Ok(None) => return,
            Ok(Some(close)) => close.call0().map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = closed {
            failure::log(py, "a WSGI application raised an exception in `close`", &error);
        }
    }
}

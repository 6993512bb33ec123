//! The lifespan protocol, before the first request and after the last.

use pyo3::{prelude::*, types::PyDict};
use sandtide_engine as engine;

use crate::event_loop::EventLoop;

/// An application that has started up.
pub(crate) struct Lifespan {
    /// What it has put into the scope's `state`, of which each request gets a shallow copy.
    pub(crate) state: Py<PyDict>,
    /// `None` if it is told nothing.
    protocol: Option<Py<PyAny>>,
}

impl Lifespan {
    /// Has an application start up.
    pub(crate) fn start(
        py: Python<'_>,
        event_loop: &EventLoop,
        application: &Bound<'_, PyAny>,
        mode: engine::Lifespan,
    ) -> PyResult<Self> {
        let state = PyDict::new(py);
        let mode = match mode {
            engine::Lifespan::Auto => "auto",
            engine::Lifespan::On => "on",
            engine::Lifespan::Off => return Ok(Self { state: state.unbind(), protocol: None }),
        };
        let class = event_loop.helpers.bind(py).getattr("Lifespan")?;
        let protocol = class.call1((application, &state, mode))?;
        event_loop.run(&protocol.call_method0("startup")?)?;
        Ok(Self { state: state.unbind(), protocol: Some(protocol.unbind()) })
    }

    /// Has it shut down. No reactor drives the loop any more.
    pub(crate) fn shut_down(&self, py: Python<'_>, event_loop: &EventLoop) -> PyResult<()> {
        let Some(protocol) = &self.protocol else { return Ok(()) };
        event_loop.run(&protocol.bind(py).call_method0("shutdown")?).map(drop)
    }
}

//! An application that was imported.

use std::sync::Arc;

use pyo3::prelude::*;
use sandtide_engine::{ApplicationSource, Console, Program, ProgramId, Sandbox, SpawnError};

use crate::{
    asgi::{lifespan::Lifespan, place::Place, scope::Scopes},
    event_loop::EventLoop,
    import::id_of,
};

/// An ASGI application and what its requests are made with.
pub(crate) struct AsgiProgram {
    application: Arc<Application>,
    id: ProgramId,
}

/// What all places share.
pub(crate) struct Application {
    pub(crate) callable: Py<PyAny>,
    pub(crate) scopes: Scopes,
    pub(crate) event_loop: Arc<EventLoop>,
}

impl AsgiProgram {
    pub(crate) fn new(
        py: Python<'_>,
        event_loop: Arc<EventLoop>,
        callable: &Bound<'_, PyAny>,
        lifespan: &Lifespan,
        source: &ApplicationSource,
    ) -> PyResult<Self> {
        let scopes = Scopes::new(py, &source.root_path, lifespan.state.clone_ref(py))?;
        let application = Application { callable: callable.clone().unbind(), scopes, event_loop };
        Ok(Self { application: Arc::new(application), id: id_of(source) })
    }
}

impl Program for AsgiProgram {
    fn id(&self) -> ProgramId {
        self.id
    }

    fn spawn(&self, _console: Arc<dyn Console>) -> Result<Box<dyn Sandbox>, SpawnError> {
        Ok(Box::new(Place::new(self.application.clone())))
    }
}

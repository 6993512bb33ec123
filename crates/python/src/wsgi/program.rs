//! A WSGI application that was imported.

use std::sync::Arc;

use pyo3::prelude::*;
use sandtide_engine::{ApplicationSource, Console, Program, ProgramId, Sandbox, SpawnError};

use crate::{
    import::id_of,
    wsgi::{environ::Environs, place::Place, pool::Pool},
};

/// A WSGI application and what its requests are made with.
pub(crate) struct WsgiProgram {
    application: Arc<Application>,
    id: ProgramId,
}

/// What all places share.
pub(crate) struct Application {
    pub(crate) callable: Py<PyAny>,
    pub(crate) environs: Environs,
    pub(crate) pool: Arc<Pool>,
    /// Whether it is called on the reactor's thread if nothing has to be waited for.
    pub(crate) is_inline: bool,
}

impl WsgiProgram {
    pub(crate) fn new(
        py: Python<'_>,
        callable: &Bound<'_, PyAny>,
        pool: Arc<Pool>,
        source: &ApplicationSource,
    ) -> PyResult<Self> {
        let application = Application {
            callable: callable.clone().unbind(),
            environs: Environs::new(py, &source.root_path, source.threads)?,
            pool,
            is_inline: source.threads <= 1,
        };
        Ok(Self { application: Arc::new(application), id: id_of(source) })
    }
}

impl Program for WsgiProgram {
    fn id(&self) -> ProgramId {
        self.id
    }

    fn spawn(&self, _console: Arc<dyn Console>) -> Result<Box<dyn Sandbox>, SpawnError> {
        Ok(Box::new(Place::new(self.application.clone())))
    }
}

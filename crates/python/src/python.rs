//! The interpreter of this process, as the rest of the server sees it.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use sandtide_engine::{ApplicationSource, InProcess, Interface, LoadError, Program};

use crate::{
    asgi::{AsgiProgram, Lifespan},
    event_loop::EventLoop,
    failure, import,
    wsgi::{Pool, WsgiProgram},
};

/// CPython, with one loop of asyncio for the thread that serves.
#[derive(Default)]
pub struct Python {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    event_loop: Option<Arc<EventLoop>>,
    lifespans: Vec<Lifespan>,
    pools: Vec<Arc<Pool>>,
}

impl Python {
    /// Has the applications shut down, after the last of their exchanges.
    pub fn shut_down(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.pools.drain(..).for_each(|pool| pool.close());
        let Some(event_loop) = inner.event_loop.take() else { return };
        pyo3::Python::attach(|py| {
            let ended = (|| {
                event_loop.take_back(py)?;
                for lifespan in inner.lifespans.drain(..).rev() {
                    if let Err(error) = lifespan.shut_down(py, &event_loop) {
                        failure::log(py, "an application failed to shut down", &error);
                    }
                }
                event_loop.python.bind(py).call_method0("finish").map(drop)
            })();
            if let Err(error) = ended {
                failure::log(py, "the event loop did not end", &error);
            }
        });
    }

    fn import(
        &self,
        py: pyo3::Python<'_>,
        source: &ApplicationSource,
    ) -> PyResult<Arc<dyn Program>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let event_loop = match &inner.event_loop {
            Some(event_loop) => event_loop.clone(),
            None => inner.event_loop.insert(EventLoop::new(py)?).clone(),
        };
        let application = import::import(py, &source.target)?;
        let helpers = event_loop.helpers.bind(py);
        let found: Option<String> =
            helpers.call_method1("interface", (&application,))?.extract()?;
        let interface = match (source.interface, found.as_deref()) {
            (Interface::Auto, None) => {
                return Err(pyo3::exceptions::PyTypeError::new_err(format!(
                    "`{}` is neither an ASGI nor a WSGI application",
                    source.target
                )));
            }
            (Interface::Auto, Some(found)) => found,
            (Interface::Asgi, Some("asgi2")) => "asgi2",
            (Interface::Asgi, _) => "asgi3",
            (Interface::Wsgi, _) => "wsgi",
        };
        if interface == "wsgi" {
            let pool = Pool::new(source.threads as usize);
            inner.pools.push(pool.clone());
            return Ok(Arc::new(WsgiProgram::new(py, &application, pool, source)?));
        }
        let application = match interface {
            "asgi2" => helpers.call_method1("asgi2", (application,))?,
            _ => application,
        };
        let lifespan = Lifespan::start(py, &event_loop, &application, source.lifespan)?;
        let program = AsgiProgram::new(py, event_loop, &application, &lifespan, source)?;
        inner.lifespans.push(lifespan);
        Ok(Arc::new(program))
    }
}

impl InProcess for Python {
    fn name(&self) -> &'static str {
        "python"
    }

    fn load(&self, source: &ApplicationSource) -> Result<Arc<dyn Program>, LoadError> {
        pyo3::Python::attach(|py| {
            self.import(py, source).map_err(|error| {
                // As every program in Python ends.
                error.display(py);
                LoadError::Application(failure::line(py, &error))
            })
        })
    }
}

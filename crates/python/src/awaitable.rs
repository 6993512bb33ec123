//! What `receive()` and `send()` give an application to wait for.

use std::sync::{Mutex, PoisonError};

use pyo3::{exceptions::PyStopIteration, intern, prelude::*};

use crate::asgi::Cycle;

/// Something that is there already: nothing.
#[pyclass(frozen, module = "_sandtide")]
pub(crate) struct Ready;

#[pymethods]
impl Ready {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self) -> Option<Py<PyAny>> {
        None
    }

    /// With `throw` and `close`, what makes it a coroutine in the eyes of `asyncio.create_task`.
    fn send(&self, _value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        Err(PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (kind, value = None, traceback = None))]
    fn throw(
        &self,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        Err(thrown(kind, value, traceback))
    }

    fn close(&self) {}
}

/// A message, or room, that may not be there yet.
#[pyclass(frozen, module = "_sandtide")]
pub(crate) struct Waiting {
    cycle: Py<Cycle>,
    what: What,
    /// The iterator of the future that is waited for.
    future: Mutex<Option<Py<PyAny>>>,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A message to the application.
    Message,
    /// Room for more of the response.
    Room,
}

impl Waiting {
    pub(crate) fn new(cycle: Py<Cycle>, what: What) -> Self {
        Self { cycle, what, future: Mutex::default() }
    }
}

#[pymethods]
impl Waiting {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        loop {
            let waited = self.future.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(iterator) = waited {
                match iterator.call_method0(py, intern!(py, "__next__")) {
                    Ok(future) => {
                        *self.future.lock().unwrap_or_else(PoisonError::into_inner) =
                            Some(iterator);
                        return Ok(future);
                    }
                    Err(error) if error.is_instance_of::<PyStopIteration>(py) => {}
                    Err(error) => return Err(error),
                }
            }
            if let Some(value) = Cycle::take(self.cycle.bind(py), self.what)? {
                return Err(PyStopIteration::new_err((value.unbind(),)));
            }
            let future = self.cycle.bind(py).get().wait(py, self.what)?;
            let iterator = future.call_method0(intern!(py, "__await__"))?.unbind();
            *self.future.lock().unwrap_or_else(PoisonError::into_inner) = Some(iterator);
        }
    }

    fn send(&self, py: Python<'_>, _value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        self.__next__(py)
    }

    #[pyo3(signature = (kind, value = None, traceback = None))]
    fn throw(
        &self,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.close();
        Err(thrown(kind, value, traceback))
    }

    fn close(&self) {
        *self.future.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The exception of a `throw(kind)` or `throw(kind, value, traceback)`.
fn thrown(
    kind: Bound<'_, PyAny>,
    value: Option<Bound<'_, PyAny>>,
    _traceback: Option<Bound<'_, PyAny>>,
) -> PyErr {
    match value {
        Some(value) if !value.is_none() => PyErr::from_value(value),
        _ => PyErr::from_value(kind),
    }
}

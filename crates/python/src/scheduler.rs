//! `call_soon`, and the way to have a task's first step at once.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::{
    prelude::*,
    sync::PyOnceLock,
    types::{PyTuple, PyType},
};
use tokio::sync::Notify;

/// Stands in for the loop's `call_soon`.
///
/// A task of asyncio asks for its first step when it is made, with `loop.call_soon(step)`. Between
/// [`Self::expect`] and [`Self::take`] that step is kept instead of queued, so that it can run
/// at once: what `eager_start` of Python 3.12 does, with every Python.
#[pyclass(frozen, module = "_sandtide")]
pub(crate) struct Scheduler {
    first: Mutex<First>,
    woken: Arc<Notify>,
    event_loop: PyOnceLock<Py<PyAny>>,
    append: PyOnceLock<Py<PyAny>>,
    handle: Py<PyType>,
}

#[derive(Default)]
enum First {
    #[default]
    NotExpected,
    Expected,
    Here(Step),
}

/// A call that was asked for.
pub(crate) struct Step {
    pub(crate) callback: Py<PyAny>,
    pub(crate) context: Py<PyAny>,
}

impl Scheduler {
    pub(crate) fn new(py: Python<'_>, woken: Arc<Notify>) -> PyResult<Self> {
        let handle = py.import("asyncio")?.getattr("Handle")?.cast_into::<PyType>()?.unbind();
        Ok(Self {
            first: Mutex::default(),
            woken,
            event_loop: PyOnceLock::new(),
            append: PyOnceLock::new(),
            handle,
        })
    }

    /// From here on it is this loop's.
    pub(crate) fn attach(&self, py: Python<'_>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let append = event_loop.getattr("_ready")?.getattr("append")?.unbind();
        let _ = self.append.set(py, append);
        let _ = self.event_loop.set(py, event_loop.clone().unbind());
        Ok(())
    }

    /// Lets the loop go again: it refers to this.
    pub(crate) fn expect(&self) {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner) = First::Expected;
    }

    /// The step that was asked for since [`Self::expect`].
    pub(crate) fn take(&self) -> Option<Step> {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *first) {
            First::Here(step) => Some(step),
            _ => None,
        }
    }
}

#[pymethods]
impl Scheduler {
    #[pyo3(signature = (callback, *args, context = None))]
    fn call_soon<'py>(
        &self,
        py: Python<'py>,
        callback: Bound<'py, PyAny>,
        args: Bound<'py, PyTuple>,
        context: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(context) = &context {
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            if matches!(*first, First::Expected) {
                let (callback, context) = (callback.unbind(), context.clone().unbind());
                *first = First::Here(Step { callback, context });
                return Ok(None);
            }
        }
        let event_loop = self.event_loop.get(py).map(|own| own.bind(py));
        let handle = self.handle.bind(py).call1((callback, args, event_loop, context))?;
        if let Some(append) = self.append.get(py) {
            append.bind(py).call1((&handle,))?;
        }
        self.woken.notify_one();
        Ok(Some(handle))
    }

    /// Has the reactor turn the loop soon. From any thread.
    fn wake(&self) {
        self.woken.notify_one();
    }
}

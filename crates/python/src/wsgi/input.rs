//! `wsgi.input`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use pyo3::{prelude::*, types::PyBytes};

use crate::wsgi::talk::Talk;

/// The body of a request, as a file that is read as it arrives.
#[pyclass(frozen, module = "_sandtide")]
pub(crate) struct Input {
    talk: Arc<Talk>,
    /// What has come and was not read.
    here: Mutex<BytesMut>,
}

impl Input {
    pub(crate) fn new(talk: Arc<Talk>) -> Self {
        Self { talk, here: Mutex::default() }
    }

    fn here(&self) -> MutexGuard<'_, BytesMut> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for more; whether there was any.
    fn fill(&self, py: Python<'_>) -> PyResult<bool> {
        let more = self.talk.body(py)?;
        let mut here = self.here();
        if here.is_empty() {
            *here = more;
            return Ok(!here.is_empty());
        }
        here.extend_from_slice(&more);
        Ok(!more.is_empty())
    }

    /// Waits until so many bytes are here, or all there are, and takes at most so many.
    fn take<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Bound<'py, PyBytes>> {
        while self.here().len() < count && self.fill(py)? {}
        let mut here = self.here();
        let count = count.min(here.len());
        Ok(PyBytes::new(py, &here.split_to(count)))
    }
}

/// A `size` of Python's files, in which a negative one, or none, means all.
fn limit(size: Option<i64>) -> usize {
    size.and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX)
}

#[pymethods]
impl Input {
    #[pyo3(signature = (size = None, /))]
    fn read<'py>(&self, py: Python<'py>, size: Option<i64>) -> PyResult<Bound<'py, PyBytes>> {
        self.take(py, limit(size))
    }

    #[pyo3(signature = (size = None, /))]
    fn readline<'py>(&self, py: Python<'py>, size: Option<i64>) -> PyResult<Bound<'py, PyBytes>> {
        let limit = limit(size);
        let mut looked_at = 0;
        loop {
            let found = {
                let here = self.here();
                let end = here[looked_at..].iter().position(|byte| *byte == b'\n');
                let end = end.map(|position| looked_at + position + 1);
                looked_at = here.len();
                end
            };
            match found {
                Some(end) => return self.take(py, end.min(limit)),
                None if looked_at >= limit || !self.fill(py)? => {
                    return self.take(py, looked_at.min(limit));
                }
                None => {}
            }
        }
    }

    #[pyo3(signature = (hint = None, /))]
    fn readlines<'py>(
        &self,
        py: Python<'py>,
        hint: Option<i64>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let hint = limit(hint.filter(|hint| *hint > 0));
        let (mut lines, mut length) = (Vec::new(), 0);
        while length < hint {
            let line = self.readline(py, None)?;
            if line.as_bytes().is_empty() {
                break;
            }
            length += line.as_bytes().len();
            lines.push(line);
        }
        Ok(lines)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(Some(self.readline(py, None)?).filter(|line| !line.as_bytes().is_empty()))
    }

    /// Closing it is the server's affair.
    fn close(&self) {}
}

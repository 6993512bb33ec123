//! `start_response`, and the `write` that it returns.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, HeaderName, HeaderValue};
use pyo3::{
    exceptions::{PyAssertionError, PyTypeError, PyValueError},
    intern,
    prelude::*,
    types::{PyBytes, PyList, PyString, PyTuple},
};

use crate::wsgi::talk::{Piece, Talk};

/// A response's head, until the first byte of its body: it can be replaced that long.
#[pyclass(frozen, module = "_sandtide")]
pub(crate) struct Start {
    talk: Arc<Talk>,
    /// Whether the application is on a thread of its own, which can wait.
    waits: bool,
    head: Mutex<Head>,
}

#[derive(Default)]
enum Head {
    #[default]
    Missing,
    Here(u16, HeaderMap),
    Sent,
}

impl Start {
    pub(crate) fn new(talk: Arc<Talk>, waits: bool) -> Self {
        Self { talk, waits, head: Mutex::default() }
    }

    fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send_head(&self, py: Python<'_>) -> PyResult<()> {
        let head = std::mem::replace(&mut *self.head(), Head::Sent);
        match head {
            Head::Here(status, headers) => self.talk.add(py, Piece::Begin(status, headers), false),
            Head::Sent => Ok(()),
            Head::Missing => {
                *self.head() = Head::Missing;
                Err(PyAssertionError::new_err("the application did not call `start_response`"))
            }
        }
    }

    /// A piece of the body; the head goes before the first.
    pub(crate) fn body(&self, chunk: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = chunk.py();
        let bytes = chunk.cast::<PyBytes>().map_err(|_| {
            let name = chunk.get_type().name().map(|name| name.to_string());
            let name = name.unwrap_or_default();
            PyTypeError::new_err(format!("a piece of the body is `{name}`, not bytes"))
        })?;
        if bytes.as_bytes().is_empty() {
            return Ok(());
        }
        self.send_head(py)?;
        self.talk.add(py, Piece::Write(bytes.clone().unbind()), self.waits)
    }

    /// The end of the body.
    pub(crate) fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.send_head(py)
    }
}

#[pymethods]
impl Start {
    #[pyo3(signature = (status, headers, exc_info = None, /))]
    fn __call__<'py>(
        slf: Bound<'py, Self>,
        status: &Bound<'py, PyString>,
        headers: &Bound<'py, PyAny>,
        exc_info: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let own = slf.get();
        let code = status.to_str()?.split(' ').next().unwrap_or_default();
        let code = match code.parse::<u16>() {
            Ok(code) if code.to_string().len() == 3 => code,
            _ => {
                let text =
                    format!("{} does not begin with a status of three digits", status.repr()?);
                return Err(PyValueError::new_err(text));
            }
        };
        let headers = read_headers(headers)?;
        {
            let mut head = own.head();
            match (&*head, exc_info.filter(|info| !info.is_none())) {
                // Too late for another answer: the application's exception goes on.
                (Head::Sent, Some(info)) => return Err(PyErr::from_value(info.get_item(1)?)),
                (Head::Missing, _) | (Head::Here(..), Some(_)) => *head = Head::Here(code, headers),
                (Head::Here(..) | Head::Sent, None) => {
                    return Err(PyAssertionError::new_err("the response has a head already"));
                }
            }
        }
        slf.getattr(intern!(py, "write"))
    }

    /// Sends a piece of the body at once.
    fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        self.body(data)
    }
}

/// A list of pairs of texts, each character of which is a byte.
fn read_headers(headers: &Bound<'_, PyAny>) -> PyResult<HeaderMap> {
    let list =
        headers.cast::<PyList>().map_err(|_| PyTypeError::new_err("the headers are not a list"))?;
    let mut map = HeaderMap::with_capacity(list.len());
    for pair in list {
        let pair = pair.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
        let pair = pair.ok_or_else(|| PyTypeError::new_err("a header is not a pair"))?;
        let (name, value) = (pair.get_item(0)?, pair.get_item(1)?);
        let (name, value) = (name.cast::<PyString>()?, value.cast::<PyString>()?);
        let wrong = || PyValueError::new_err(format!("({name:?}, {value:?}) cannot be a header"));
        let parsed = HeaderName::from_bytes(name.to_str()?.as_bytes()).map_err(|_| wrong())?;
        map.append(parsed, read_value(value.to_str()?).ok_or_else(wrong)?);
    }
    Ok(map)
}

fn read_value(text: &str) -> Option<HeaderValue> {
    if text.is_ascii() {
        return HeaderValue::from_str(text).ok();
    }
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
    HeaderValue::from_bytes(&bytes?).ok()
}

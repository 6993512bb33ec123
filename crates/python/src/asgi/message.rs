//! What an application sends.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use pyo3::{
    buffer::PyBuffer,
    exceptions::{PyTypeError, PyValueError},
    intern,
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyString, PyTuple},
};

/// An event of an HTTP response.
pub(crate) enum Message {
    Start {
        status: u16,
        headers: HeaderMap,
        has_trailers: bool,
    },
    Body {
        bytes: Option<Py<PyBytes>>,
        more: bool,
    },
    Trailers {
        headers: HeaderMap,
        more: bool,
    },
    Path(String),
    EarlyHint(HeaderMap),
    /// Nothing that a client gets.
    Ignored,
}

impl Message {
    pub(crate) fn read(event: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = event.py();
        let event = event.cast::<PyDict>()?;
        let kind = event.get_item(intern!(py, "type"))?;
        let kind = kind.ok_or_else(|| PyValueError::new_err("an event without `type`"))?;
        let kind = kind.cast::<PyString>()?;
        Ok(match kind.to_str()? {
            "http.response.start" => Self::Start {
                status: match event.get_item(intern!(py, "status"))? {
                    Some(status) => status.extract()?,
                    None => return Err(PyValueError::new_err("a response without `status`")),
                },
                headers: match event.get_item(intern!(py, "headers"))? {
                    Some(headers) => read_headers(&headers)?,
                    None => HeaderMap::new(),
                },
                has_trailers: flag(event, intern!(py, "trailers"))?,
            },
            "http.response.body" => Self::Body {
                bytes: match event.get_item(intern!(py, "body"))? {
                    Some(body) => Some(read_bytes(&body)?),
                    None => None,
                },
                more: flag(event, intern!(py, "more_body"))?,
            },
            "http.response.trailers" => Self::Trailers {
                headers: match event.get_item(intern!(py, "headers"))? {
                    Some(headers) => read_headers(&headers)?,
                    None => HeaderMap::new(),
                },
                more: flag(event, intern!(py, "more_trailers"))?,
            },
            "http.response.pathsend" => match event.get_item(intern!(py, "path"))? {
                Some(path) => Self::Path(path.extract()?),
                None => return Err(PyValueError::new_err("a `pathsend` without `path`")),
            },
            "http.response.early_hint" => Self::EarlyHint(match event.get_item("links")? {
                Some(links) => read_links(&links)?,
                None => HeaderMap::new(),
            }),
            "http.response.debug" => Self::Ignored,
            other => {
                return Err(PyValueError::new_err(format!("unexpected event `{other}`")));
            }
        })
    }
}

fn flag(event: &Bound<'_, PyDict>, name: &Bound<'_, PyString>) -> PyResult<bool> {
    match event.get_item(name)? {
        Some(value) => value.is_truthy(),
        None => Ok(false),
    }
}

/// Bytes, or whatever else is a buffer of them.
fn read_bytes(value: &Bound<'_, PyAny>) -> PyResult<Py<PyBytes>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.clone().unbind());
    }
    let buffer =
        PyBuffer::<u8>::get(value).map_err(|_| PyTypeError::new_err("`body` is not bytes"))?;
    Ok(PyBytes::new(value.py(), &buffer.to_vec(value.py())?).unbind())
}

/// Pairs of bytes, in any two things that can be iterated.
pub(crate) fn read_headers(headers: &Bound<'_, PyAny>) -> PyResult<HeaderMap> {
    let mut map = HeaderMap::new();
    let mut add = |pair: &Bound<'_, PyAny>| -> PyResult<()> {
        if let Ok(pair) = pair.cast::<PyTuple>()
            && pair.len() == 2
        {
            return insert(&mut map, &pair.get_item(0)?, &pair.get_item(1)?);
        }
        let pair: Vec<Bound<'_, PyAny>> = pair.try_iter()?.collect::<PyResult<_>>()?;
        match &pair[..] {
            [name, value] => insert(&mut map, name, value),
            _ => Err(PyValueError::new_err("a header is not a name and a value")),
        }
    };
    match headers.cast::<PyList>() {
        Ok(list) => list.iter().try_for_each(|pair| add(&pair))?,
        Err(_) => headers.try_iter()?.try_for_each(|pair| add(&pair?))?,
    }
    Ok(map)
}

fn insert(map: &mut HeaderMap, name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let (name, value) = (name.cast::<PyBytes>()?, value.cast::<PyBytes>()?);
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| PyValueError::new_err(format!("{name} cannot be a header's name")))?;
    let value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| PyValueError::new_err(format!("{value} cannot be the value of `{name}`")))?;
    map.append(name, value);
    Ok(())
}

fn read_links(links: &Bound<'_, PyAny>) -> PyResult<HeaderMap> {
    let mut map = HeaderMap::new();
    for link in links.try_iter()? {
        let link = link?;
        let bytes = link.cast::<PyBytes>()?.as_bytes();
        let value = HeaderValue::from_bytes(bytes)
            .map_err(|_| PyValueError::new_err(format!("{link} cannot be a link")))?;
        map.append(header::LINK, value);
    }
    Ok(map)
}

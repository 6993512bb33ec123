//! The scope of a request.

use http::{Method, Version, header};
use pyo3::{
    intern,
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyString, PyTuple},
};
use sandtide_engine::{Connection, Exchange};

use crate::{
    connections::{Connections, pair},
    path::decoded,
};

/// Makes scopes: a copy of what is the same for all requests of a connection, and the request's own.
pub(crate) struct Scopes {
    common: Py<PyDict>,
    state: Py<PyDict>,
    connections: Connections,
}

impl Scopes {
    pub(crate) fn new(py: Python<'_>, root_path: &str, state: Py<PyDict>) -> PyResult<Self> {
        let asgi = PyDict::new(py);
        asgi.set_item("version", "3.0")?;
        asgi.set_item("spec_version", "2.4")?;
        let extensions = PyDict::new(py);
        for name in ["http.response.trailers", "http.response.pathsend", "http.response.early_hint"]
        {
            extensions.set_item(name, PyDict::new(py))?;
        }
        let common = PyDict::new(py);
        common.set_item(intern!(py, "type"), intern!(py, "http"))?;
        common.set_item(intern!(py, "asgi"), asgi)?;
        common.set_item(intern!(py, "http_version"), intern!(py, "1.1"))?;
        common.set_item(intern!(py, "scheme"), intern!(py, "http"))?;
        common.set_item(intern!(py, "root_path"), root_path)?;
        common.set_item(intern!(py, "extensions"), extensions)?;
        Ok(Self { common: common.unbind(), state, connections: Connections::default() })
    }

    /// The scope of a request.
    pub(crate) fn make<'py>(
        &self,
        py: Python<'py>,
        exchange: &Exchange,
    ) -> PyResult<Bound<'py, PyDict>> {
        let request = &exchange.request;
        let scope = self.of_connection(py, exchange.connection.as_deref())?;
        match request.version {
            Version::HTTP_11 => {}
            Version::HTTP_2 => {
                scope.set_item(intern!(py, "http_version"), intern!(py, "2"))?;
            }
            _ => scope.set_item(intern!(py, "http_version"), intern!(py, "1.0"))?,
        }
        scope.set_item(intern!(py, "method"), method(py, &request.method))?;
        let (path, query) = (request.uri.path(), request.uri.query().unwrap_or_default());
        scope.set_item(
            intern!(py, "path"),
            PyString::new(py, &String::from_utf8_lossy(&decoded(path))),
        )?;
        scope.set_item(intern!(py, "raw_path"), PyBytes::new(py, path.as_bytes()))?;
        scope.set_item(intern!(py, "query_string"), PyBytes::new(py, query.as_bytes()))?;
        scope.set_item(intern!(py, "headers"), headers(py, exchange)?)?;
        scope.set_item(intern!(py, "state"), self.state.bind(py).copy()?)?;
        Ok(scope)
    }

    /// A copy of what is the same for all requests of a connection.
    fn of_connection<'py>(
        &self,
        py: Python<'py>,
        connection: Option<&Connection>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.connections.copy(py, connection, |connection| {
            let common = self.common.bind(py).copy()?;
            common.set_item(intern!(py, "client"), pair(py, connection.client)?)?;
            common.set_item(intern!(py, "server"), pair(py, connection.local)?)?;
            if connection.is_tls {
                common.set_item(intern!(py, "scheme"), intern!(py, "https"))?;
            }
            Ok(common)
        })
    }
}

fn method<'py>(py: Python<'py>, method: &Method) -> Bound<'py, PyString> {
    match *method {
        Method::GET => intern!(py, "GET").clone(),
        Method::POST => intern!(py, "POST").clone(),
        _ => PyString::new(py, method.as_str()),
    }
}

/// Names and values as bytes, `host` first if only the target says whom the request is for (HTTP/2).
fn headers<'py>(py: Python<'py>, exchange: &Exchange) -> PyResult<Bound<'py, PyList>> {
    let header = |name: &[u8], value: &[u8]| {
        PyTuple::new(py, [PyBytes::new(py, name), PyBytes::new(py, value)])
    };
    let list = PyList::empty(py);
    if let Some(authority) = exchange.request.uri.authority()
        && !exchange.request.headers.contains_key(header::HOST)
    {
        list.append(header(b"host", authority.as_str().as_bytes())?)?;
    }
    for (name, value) in exchange.headers() {
        list.append(header(name.as_bytes(), value)?)?;
    }
    Ok(list)
}

//! `environ` (PEP 3333, "environ Variables").

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use http::{HeaderName, Version, header};
use pyo3::{
    intern,
    prelude::*,
    types::{PyDict, PyString},
};
use sandtide_engine::{Connection, Exchange};

use crate::{
    connections::Connections,
    path::{decoded, latin1},
    wsgi::{input::Input, talk::Talk},
};

/// So many names of headers are remembered.
const NAMES: usize = 256;

/// Makes environments: a copy of what is the same for all requests of a connection, and the request's own.
pub(crate) struct Environs {
    common: Py<PyDict>,
    connections: Connections,
    root_path: String,
    /// `HTTP_…` of headers.
    names: Mutex<HashMap<HeaderName, Py<PyString>>>,
}

impl Environs {
    pub(crate) fn new(py: Python<'_>, root_path: &str, threads: u32) -> PyResult<Self> {
        let common = PyDict::new(py);
        common.set_item("SCRIPT_NAME", root_path)?;
        common.set_item("SERVER_PROTOCOL", "HTTP/1.1")?;
        common.set_item("SERVER_SOFTWARE", "sandtide")?;
        common.set_item("wsgi.version", (1, 0))?;
        common.set_item("wsgi.url_scheme", "http")?;
        common.set_item("wsgi.errors", py.import("sys")?.getattr("stderr")?)?;
        common.set_item("wsgi.multithread", threads > 1)?;
        common.set_item("wsgi.multiprocess", true)?;
        common.set_item("wsgi.run_once", false)?;
        common.set_item("wsgi.input_terminated", true)?;
        let wrapper = py.import("wsgiref.util")?.getattr("FileWrapper")?;
        common.set_item("wsgi.file_wrapper", wrapper)?;
        let root_path = root_path.to_owned();
        let (connections, names) = (Connections::default(), Mutex::default());
        Ok(Self { common: common.unbind(), connections, root_path, names })
    }

    /// The environment of a request.
    pub(crate) fn make<'py>(
        &self,
        py: Python<'py>,
        exchange: &Exchange,
        talk: &Arc<Talk>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let request = &exchange.request;
        let environ = self.of_connection(py, exchange)?;
        environ.set_item(intern!(py, "REQUEST_METHOD"), request.method.as_str())?;
        let path = decoded(request.uri.path());
        let below = path.strip_prefix(self.root_path.as_bytes()).unwrap_or(&path);
        environ.set_item(intern!(py, "PATH_INFO"), &*latin1(below))?;
        let query = request.uri.query().unwrap_or_default();
        environ.set_item(intern!(py, "QUERY_STRING"), query)?;
        match request.version {
            Version::HTTP_11 => {}
            Version::HTTP_2 => {
                environ.set_item(intern!(py, "SERVER_PROTOCOL"), intern!(py, "HTTP/2.0"))?;
            }
            _ => environ.set_item(intern!(py, "SERVER_PROTOCOL"), intern!(py, "HTTP/1.0"))?,
        }
        if let Some(authority) = request.uri.authority()
            && !request.headers.contains_key(header::HOST)
        {
            environ.set_item(intern!(py, "HTTP_HOST"), authority.as_str())?;
        }
        for (name, value) in exchange.headers() {
            self.add(&environ, name, value)?;
        }
        environ.set_item(intern!(py, "wsgi.input"), Bound::new(py, Input::new(talk.clone()))?)?;
        Ok(environ)
    }

    fn of_connection<'py>(
        &self,
        py: Python<'py>,
        exchange: &Exchange,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.connections.copy(py, exchange.connection.as_deref(), |connection| {
            let Connection { client, local, is_tls } = connection;
            let common = self.common.bind(py).copy()?;
            if let Some(client) = client {
                common.set_item("REMOTE_ADDR", client.ip().to_string())?;
                common.set_item("REMOTE_PORT", client.port().to_string())?;
            }
            let name = local.map_or_else(|| "localhost".to_owned(), |local| local.ip().to_string());
            let port = local.map_or(80, |local| local.port());
            common.set_item("SERVER_NAME", name)?;
            common.set_item("SERVER_PORT", port.to_string())?;
            if *is_tls {
                common.set_item("wsgi.url_scheme", "https")?;
                common.set_item("HTTPS", "on")?;
            }
            Ok(common)
        })
    }

    /// Adds a header. Several of one name become one, as HTTP allows.
    fn add(&self, environ: &Bound<'_, PyDict>, name: &str, value: &[u8]) -> PyResult<()> {
        let py = environ.py();
        let value = PyString::new(py, &latin1(value));
        let key = match name {
            "content-type" => intern!(py, "CONTENT_TYPE").clone(),
            "content-length" => intern!(py, "CONTENT_LENGTH").clone(),
            // It would be taken for the header with a dash.
            _ if name.contains('_') => return Ok(()),
            _ => self.key(py, name)?,
        };
        match environ.get_item(&key)? {
            None => environ.set_item(key, value),
            Some(first) => {
                let separator = if name == "cookie" { "; " } else { "," };
                environ.set_item(key, format!("{first}{separator}{value}"))
            }
        }
    }

    fn key<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyString>> {
        let key =
            || PyString::new(py, &format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_")));
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { return Ok(key()) };
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(&name) {
            return Ok(known.bind(py).clone());
        }
        let key = key();
        if names.len() < NAMES {
            names.insert(name, key.clone().unbind());
        }
        Ok(key)
    }
}

//! What is the same for all requests of a connection, made once.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
};

use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};
use sandtide_engine::Connection;

/// What is kept of so many connections; then they are forgotten all at once.
const REMEMBERED: usize = 1024;

/// A dictionary for each connection.
#[derive(Default)]
pub(crate) struct Connections(Mutex<HashMap<Connection, Py<PyDict>>>);

impl Connections {
    /// A copy of the connection's dictionary, which `make` makes the first time.
    pub(crate) fn copy<'py>(
        &self,
        py: Python<'py>,
        connection: Option<&Connection>,
        make: impl FnOnce(&Connection) -> PyResult<Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let Some(connection) = connection else { return make(&Connection::default()) };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(common) = known.get(connection) {
            return common.bind(py).copy();
        }
        if known.len() == REMEMBERED {
            known.clear();
        }
        let common = make(connection)?;
        known.insert(connection.clone(), common.clone().unbind());
        common.copy()
    }
}

/// An address as Python's sockets have it.
pub(crate) fn pair(
    py: Python<'_>,
    address: Option<SocketAddr>,
) -> PyResult<Option<Bound<'_, PyTuple>>> {
    let pair = |address: SocketAddr| (address.ip().to_string(), address.port());
    address.map(|address| pair(address).into_pyobject(py)).transpose()
}

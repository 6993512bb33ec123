//! From `module:attribute` to the object.

use pyo3::{exceptions::PyAttributeError, prelude::*, types::PyList};
use sandtide_engine::{ApplicationSource, ProgramId, Target};

/// What an application is called in its module, where nobody says so.
const USUAL: [&str; 5] = ["app", "application", "asgi", "wsgi", "api"];

/// Imports it.
pub(crate) fn import<'py>(py: Python<'py>, target: &Target) -> PyResult<Bound<'py, PyAny>> {
    let path = py.import("sys")?.getattr("path")?.cast_into::<PyList>()?;
    let directory = match target.directory.as_os_str().is_empty() {
        true => std::env::current_dir()?,
        false => std::path::absolute(&target.directory)?,
    };
    let directory = directory.to_string_lossy().into_owned();
    if !path.contains(&directory)? {
        path.insert(0, directory)?;
    }
    let module = py.import(&*target.module)?;
    let Some(attribute) = &target.attribute else {
        for name in USUAL {
            if let Some(found) = module.getattr_opt(name)? {
                return Ok(found);
            }
        }
        let module = &target.module;
        let names = USUAL.join("`, `");
        return Err(PyAttributeError::new_err(format!(
            "module `{module}` has none of `{names}`: name the attribute, as in `{module}:main`"
        )));
    };
    let found =
        attribute.split('.').try_fold(module.into_any(), |object, name| object.getattr(name));
    if target.is_factory { found?.call0() } else { found }
}

/// What an interpreter has imported has no content to hash: the name stands for it, in this process.
pub(crate) fn id_of(source: &ApplicationSource) -> ProgramId {
    let mut id = [0_u8; 32];
    let name = source.target.to_string();
    for (index, byte) in name.bytes().enumerate() {
        id[index % 32] = id[index % 32].wrapping_mul(31).wrapping_add(byte);
    }
    ProgramId(id)
}

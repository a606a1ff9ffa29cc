//! The exception that errors of the engine become.

use crate::report::dictionary;
use pyo3::{
    create_exception,
    exceptions::{PyBaseException, PyException},
    prelude::*,
    types::PyString,
};

create_exception!(
    peregrine,
    Error,
    PyException,
    "What went wrong, and where. `kind` is usage, consensus, damaged, missing, hints, environment, \
     interrupted or internal; the other attributes are None where they are not known."
);

pub fn raised(error: engine::Error) -> PyErr {
    let raised = Error::new_err(error.to_string());
    Python::attach(|py| set_attributes(raised.value(py), &error)).err().unwrap_or(raised)
}

/// The attributes are the fields that reports and failures have in the command line's JSON.
fn set_attributes(object: &Bound<'_, PyBaseException>, error: &engine::Error) -> PyResult<()> {
    for (name, value) in dictionary(object.py(), error)? {
        object.setattr(name.cast_into::<PyString>()?, value)?;
    }
    object.setattr("file", error.file.as_ref())
}

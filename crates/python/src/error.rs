//! The exception that errors of the engine become.

use engine::{ErrorKind, Remedy};
use pyo3::{
    create_exception,
    exceptions::{PyBaseException, PyException},
    prelude::*,
};

create_exception!(
    peregrine,
    Error,
    PyException,
    "What went wrong, and where. `kind` is usage, consensus, damaged, missing, hints, environment, \
     interrupted or internal; the other attributes are None where they are not known."
);

/// Returns the exception of an error.
pub fn raised(py: Python<'_>, error: &engine::Error) -> PyErr {
    let raised = Error::new_err(error.to_string());
    match set_attributes(raised.value(py), error) {
        Ok(()) => raised,
        Err(other) => other,
    }
}

fn set_attributes(object: &Bound<'_, PyBaseException>, error: &engine::Error) -> PyResult<()> {
    object.setattr("kind", kind(error))?;
    object.setattr("detail", &error.detail)?;
    object.setattr("height", error.height.map(|height| height.0))?;
    object.setattr("block_hash", error.block_hash.map(|hash| hash.to_string()))?;
    object.setattr("txid", error.txid.map(|txid| txid.to_string()))?;
    object.setattr("rule", error.rule)?;
    object.setattr("core", error.core.as_deref())?;
    object.setattr("file", error.file.as_ref())?;
    object.setattr("offset", error.offset)?;
    object.setattr("remedies", error.remedies.iter().map(Remedy::name).collect::<Vec<_>>())
}

/// The kind of an error, as the command line's JSON names it.
fn kind(error: &engine::Error) -> &'static str {
    match error.kind {
        ErrorKind::Usage => "usage",
        ErrorKind::Consensus => "consensus",
        ErrorKind::Damaged if error.is_missing => "missing",
        ErrorKind::Damaged => "damaged",
        ErrorKind::Hints => "hints",
        ErrorKind::Environment => "environment",
        ErrorKind::Interrupted => "interrupted",
        _ => "internal",
    }
}

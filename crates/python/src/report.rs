//! Reports, which Python gets as dictionaries: those of the command line's JSON.

use engine::{blocks::BlockRange, reindex::ReindexReport, utxo::UtxoStatsReport};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyDict};
use serde::Serialize;

/// The rows that were read.
#[derive(Clone, Serialize)]
#[serde(untagged)]
pub enum RowsReport {
    Coins(UtxoStatsReport),
    /// What blocks contain.
    Blocks(BlockRange),
}

/// Returns a report, or an error, as a dictionary.
pub fn dictionary<'py>(py: Python<'py>, report: &impl Serialize) -> PyResult<Bound<'py, PyDict>> {
    let text = serde_json::to_string(report).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(py.import("json")?.call_method1("loads", (text,))?.cast_into()?)
}

/// Returns the report about a rebuild. Paths are `Path`, and warnings are there as texts too.
pub fn rebuild_report<'py>(py: Python<'py>, report: &ReindexReport) -> PyResult<Bound<'py, PyDict>> {
    let fields = dictionary(py, report)?;
    if report.scripts.is_none() {
        fields.set_item("script_inputs", None::<u64>)?;
    }
    fields.set_item("chainstate", &report.chainstate)?;
    fields.set_item("kept", &report.kept)?;
    let warnings: Vec<_> = report.notes.iter().map(ToString::to_string).collect();
    fields.set_item("warnings", warnings)?;
    Ok(fields)
}

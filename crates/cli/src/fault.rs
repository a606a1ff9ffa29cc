//! An error that is a finding of a report, and not the failure of the command.

use engine::Error;
use peregrine::{output::error_kind, remedy::error_text};
use serde::Serialize;

/// What is wrong, and where. Its fields are some of those that the error of a failure has.
#[derive(Serialize, PartialEq, Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FaultJson {
    /// `consensus`, `damaged`, `missing`, ..: one of the kinds that a failure can have.
    kind: String,
    height: Option<u32>,
    block_hash: Option<String>,
    file: Option<String>,
    offset: Option<u64>,
    /// Bitcoin Core's reject string.
    core: Option<String>,
    /// All of it for people; it may change at any time.
    text: String,
}

impl FaultJson {
    pub fn new(error: &Error) -> Self {
        Self {
            kind: error_kind(error),
            height: error.height.map(|height| height.0),
            block_hash: error.block_hash.map(|hash| hash.to_string()),
            file: error.file.as_ref().map(|file| file.display().to_string()),
            offset: error.offset,
            core: error.core.as_ref().map(ToString::to_string),
            text: fact_text(error),
        }
    }
}

/// Words an error without what helps.
pub fn fact_text(error: &Error) -> String {
    let mut error = error.clone();
    error.remedies.clear();
    error_text(&error)
}

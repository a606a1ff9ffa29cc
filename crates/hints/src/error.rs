//! Errors of this crate.

use std::path::PathBuf;
use vfs::{FileError, UnfinishedError};

/// Why a hint file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HintsError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file cannot be created.
    #[error(transparent)]
    Unfinished(#[from] UnfinishedError),
    /// The file does not have its format.
    #[error("{} at byte {offset}: {flaw}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// The flaw, and the remedy.
        flaw: String,
    },
    /// The file can be read in several formats, with different meanings.
    #[error("{} at byte 0: {flaw}", path.display())]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The possible formats.
        flaw: String,
    },
    /// The caller passed data that cannot be written: a bug in Peregrine.
    #[error("{}: {flaw}; this is a bug, please report it", path.display())]
    CallerError {
        /// The file being written.
        path: PathBuf,
        /// The request.
        flaw: String,
    },
}

//! Errors of this crate: why a datadir, or a file in it, cannot be used. Messages state where, what is wrong
//! there, and what to do.

use crate::fs::FileError;
use crate::leveldb::LevelDbError;
use hex_conservative::DisplayHex as _;
use std::path::{Path, PathBuf};

/// The errors of all formats in this crate; those of plain LevelDB files are inside [`DiskError::LevelDb`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A database cannot be read or written.
    #[error(transparent)]
    LevelDb(#[from] LevelDbError),
    /// The directory is not a datadir of the network.
    #[error("{}: {flaw}", path.display())]
    NoDatadir {
        /// The directory that was examined.
        path: PathBuf,
        /// What is missing, and which networks are present.
        flaw: String,
    },
    /// Another process uses the datadir.
    #[error("{} is in use; stop bitcoind (or the program that uses it)", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A file does not have the format in which Core or Peregrine writes it.
    #[error("{} at byte {offset}: {flaw}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// What is wrong there and what to do.
        flaw: String,
    },
    /// A file of Peregrine's own is intact, but for another network, or of another version.
    #[error("{}: {flaw}; pass --restart to start over", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What the file was made for, and what is needed.
        flaw: String,
    },
    /// A row of a database does not have the format in which Core writes it.
    #[error("{}, row {key}: {flaw}", dir.display())]
    Row {
        /// The database.
        dir: PathBuf,
        /// The key in hexadecimal.
        key: String,
        /// What is wrong with the row and what to do.
        flaw: String,
    },
    /// Core was stopped while it wrote the chainstate, which now mixes the coins of two blocks.
    #[error("{}: chainstate is inconsistent: interrupted flush, run reindex", dir.display())]
    InterruptedFlush {
        /// The database.
        dir: PathBuf,
    },
    /// An operation that the job needs is impossible at this path, or must not be done there.
    #[error("{}: {flaw}", path.display())]
    Refused {
        /// The file or directory.
        path: PathBuf,
        /// What is at the path, and what to do.
        flaw: String,
    },
    /// The new database would belong to another user than the one that it replaces.
    #[error(
        "{} belongs to user id {owner}, and this process cannot create files for that user; run as that user",
        path.display()
    )]
    NotOwner {
        /// The database, or the directory in which it would be.
        path: PathBuf,
        /// User id of the owner.
        owner: u32,
    },
    /// The caller passed data that cannot be written: a bug in Peregrine.
    #[error("{}: {flaw}; this is a bug, please report it", dir.display())]
    CallerError {
        /// The database or file being written.
        dir: PathBuf,
        /// What the caller asked for.
        flaw: String,
    },
}

impl DiskError {
    pub(crate) fn refused(path: &Path, flaw: impl Into<String>) -> Self {
        Self::Refused { path: path.to_owned(), flaw: flaw.into() }
    }

    pub(crate) fn row(dir: &Path, key: &[u8], flaw: impl Into<String>) -> Self {
        Self::Row { dir: dir.to_owned(), key: key.to_lower_hex_string(), flaw: flaw.into() }
    }
}

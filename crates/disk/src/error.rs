//! Why a datadir, or a file in it, cannot be used. Messages name the place, what is wrong there, and what to
//! do.

use crate::fs::FileError;
use crate::leveldb::LevelDbError;
use std::path::{Path, PathBuf};

/// The errors of all formats in this crate; those of bare LevelDB files are inside [`DiskError::LevelDb`].
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
        /// The directory that was looked at.
        path: PathBuf,
        /// What is missing and which networks are there.
        flaw: String,
    },
    /// Another process uses the datadir.
    #[error("{} is in use, stop bitcoind (or the program that uses it)", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A file is not what Core writes, or what we write.
    #[error("{} at byte {offset}: {flaw}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// What is wrong there and what to do.
        flaw: String,
    },
    /// A file of our own is sound, but not for this run: of another network or version.
    #[error("{}: {flaw}; start anew with --restart", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is made for, and what is wanted.
        flaw: String,
    },
    /// A row of a database is not what Core writes.
    #[error("{}, row {key}: {flaw}", dir.display())]
    Row {
        /// The database.
        dir: PathBuf,
        /// The key in hexadecimal.
        key: String,
        /// What is wrong with it and what to do.
        flaw: String,
    },
    /// Core was stopped while it wrote the chainstate, which is now between two blocks.
    #[error("{}: chainstate is inconsistent: interrupted flush, run reindex", dir.display())]
    InterruptedFlush {
        /// The database.
        dir: PathBuf,
    },
    /// What a run would have to do cannot be done here, or must not be.
    #[error("{}: {flaw}", path.display())]
    Refused {
        /// The file or folder.
        path: PathBuf,
        /// What is there, and what to do.
        flaw: String,
    },
    /// What is written would belong to another user than the database that it replaces.
    #[error(
        "{} belongs to user number {owner}, for whom this process cannot create files; run as that user",
        path.display()
    )]
    NotOwner {
        /// The database, or the folder in which it would be.
        path: PathBuf,
        /// The number of the user to whom it belongs.
        owner: u32,
    },
    /// The caller gave rows that cannot be written: our own mistake.
    #[error("{}: {flaw}; this is a bug, please report it", dir.display())]
    CallerError {
        /// The database being written.
        dir: PathBuf,
        /// What was asked for.
        flaw: String,
    },
}

impl DiskError {
    pub(crate) fn refused(path: &Path, flaw: impl Into<String>) -> Self {
        Self::Refused { path: path.to_owned(), flaw: flaw.into() }
    }

    pub(crate) fn row(dir: &Path, key: &[u8], flaw: impl Into<String>) -> Self {
        let key = key.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::Row { dir: dir.to_owned(), key, flaw: flaw.into() }
    }
}

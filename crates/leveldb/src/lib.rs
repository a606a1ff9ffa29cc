//! LevelDB databases as Bitcoin Core writes them (`chainstate`, `blocks/index`): read without changing any
//! file, written in one pass.
//!
//! A database is a directory:
//! ```text
//! CURRENT            the name of the live MANIFEST and a newline
//! MANIFEST-NNNNNN    the live tables and their levels          (manifest, in the framing of log)
//! NNNNNN.ldb, .sst   sorted rows                               (table, filter)
//! NNNNNN.log         rows not yet in tables                    (batch, in the framing of log)
//! LOCK               empty, locked by the process that has the database open (not by this code)
//! ```
//! The reader merges logs and tables into one view and never writes: LevelDB itself moves rows and creates
//! files whenever it opens a database, but a chainstate must not change until the new one is proven. The
//! writer builds tables from rows in key order, and then one MANIFEST: many times faster than puts. An update
//! adds a log or tables to a database, all at once; a new database is what its first update makes. The
//! formats are LevelDB's (`doc/log_format.md`, `doc/table_format.md`, `doc/impl.md`), without compression.
//!
//! ```
//! use peregrine_leveldb::Database;
//! use vfs::RealDisk;
//!
//! let dir = std::env::temp_dir().join(format!("peregrine-leveldb-{}", std::process::id()));
//! std::fs::create_dir(&dir)?;
//! let mut database = Database::new(&RealDisk, &dir);
//! let update = database.update()?;
//! // Ranges can be written in parallel, each with rows in ascending order of their keys.
//! let (mut first, mut second) = (update.range(b"", Some(b"n")), update.range(b"n", None));
//! first.set(b"first key", Some(b"value"))?;
//! second.set(b"second key", Some(b"another value"))?;
//! let ranges = [first.finish()?, second.finish()?];
//! update.commit(ranges)?;
//!
//! let database = Database::open(&RealDisk, &dir)?;
//! assert_eq!(database.get(b"second key")?, Some(b"another value".to_vec()));
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod batch;
mod coding;
mod cursor;
mod filter;
mod log;
mod lookup;
mod manifest;
mod reader;
mod table;
mod update;
mod writer;

pub use cursor::Cursor;
pub use lookup::Lookup;
pub use reader::{Database, OPEN_TABLE_BYTES};
pub use update::{ChangedRange, DatabaseUpdate, RangeUpdate, UnsyncedRange, write_database};

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use vfs::FileError;

/// Why a database cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LevelDbError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file does not have the format in which LevelDB writes it.
    #[error("{} at byte {offset}: {flaw}; the database is damaged, restore or rebuild it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// The flaw.
        flaw: String,
    },
    /// A file is intact, but uses a feature that is not supported.
    #[error("{} at byte {offset}: {feature}; open it with Bitcoin Core once, or rebuild it", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// The feature that is not supported.
        feature: String,
    },
    /// The caller passed rows or tables out of order to the writer.
    #[error("{}: key {after} does not come after {before}; this is a bug, please report it", path.display())]
    Order {
        /// The table or manifest being written.
        path: PathBuf,
        /// The earlier key, in hex.
        before: String,
        /// The later key, in hex.
        after: String,
    },
}

impl LevelDbError {
    fn damaged(path: &Path, offset: u64, flaw: impl Into<String>) -> Self {
        Self::Damaged { path: path.into(), offset, flaw: flaw.into() }
    }
}

/// Whether `name` is a name that LevelDB gives to files of a database.
pub fn is_database_file(name: &OsStr) -> bool {
    let others = ["CURRENT", "LOCK", "LOG", "LOG.old"];
    manifest::parse_name(name).is_some() || others.iter().any(|other| name == *other)
}

#[cfg(test)]
mod tests;

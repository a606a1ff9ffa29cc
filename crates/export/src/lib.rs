//! Writes coins and blocks in formats of programs that work with data: Parquet, Arrow, CSV, SQLite.
//!
//! A [`Writer`] takes the coins of a UTXO set in order; [`Parts`] are files of any [`Table`]. An output is
//! written under a temporary name, and gets its own when all of it is on the medium: a writer that is dropped
//! before [`Writer::finish`] leaves nothing. Where rows come from, and what scripts are called, is the
//! caller's.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod batches;
mod column;
mod columns;
mod csv;
mod parquet;
mod parts;
mod rows;
mod sqlite;
mod table;

pub use batches::Batches;
pub use column::SCRIPT_TYPES;
pub use columns::{Columns, UnknownColumn};
pub use parts::{Continued, Parts, PartsError, REQUEST, REQUEST_LEN};
pub use rows::{FileFormat, ParquetOptions, RowFile};
pub use table::{
    AgeRow, AgeTable, BlockRow, BlockTable, CoinRow, CoinTable, HistoryRow, HistoryTable, InputRow,
    InputTable, OutputRow, OutputTable, ScriptRow, ScriptTable, Table, TransactionRow, TransactionTable,
};

use std::io;
use std::path::Path;
use vfs::{Disk, During as _, FileError, UnfinishedError, unfinished};

/// Upper bound of the memory of a writer, in bytes.
pub const MAX_MEMORY: u64 = 96 << 20;

wire::named! {
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format: "format" {
    /// A directory of Parquet files.
    Parquet = "parquet",
    /// One Arrow file.
    Arrow = "arrow",
    /// One CSV file.
    Csv = "csv",
    /// One SQLite database.
    Sqlite = "sqlite",
}
}

/// Names and values that tell whose coins these are: Parquet and Arrow files contain them, so that they prove
/// themselves (`docs/export.md`).
pub type Metadata = Vec<(&'static str, String)>;

/// The metadata of a part of a set with so many coins, by its number and that of all parts.
fn of_part(metadata: &Metadata, (part, parts): (u32, u32), coins: u64) -> Metadata {
    let numbers = [("coins", coins.to_string()), ("part", part.to_string()), ("parts", parts.to_string())];
    metadata.iter().cloned().chain(numbers).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    pub files: u32,
    pub rows: u64,
    /// Total size of the files, in bytes.
    pub bytes: u64,
}

/// Writes the coins of one UTXO set.
pub struct Writer<'d>(Kind<'d>);

enum Kind<'d> {
    Parquet(Box<parquet::ParquetWriter<'d>>),
    File(Box<RowFile<'d, CoinTable>>),
    Sqlite(sqlite::SqliteWriter<'d>),
}

impl<'d> Writer<'d> {
    /// Begins an output at `path`, which must not exist: a directory for [`Format::Parquet`], otherwise a
    /// file. What a crash has left of an earlier attempt is removed.
    ///
    /// The columns of [`Format::Sqlite`] are those of Bitcoin Core's table, whatever `columns` says.
    ///
    /// SQLite opens the file by itself, so that a `disk` other than [`vfs::RealDisk`] must have it at the
    /// same path; it only creates, syncs, renames and removes it.
    ///
    /// # Errors
    /// [`UnfinishedError`], also if `path` exists, or if another process is writing it.
    pub fn create(
        disk: &'d dyn Disk,
        path: &Path,
        format: Format,
        columns: &Columns,
    ) -> Result<Self, UnfinishedError> {
        if disk.exists(path).during_creation(path)? {
            return Err(UnfinishedError::Exists(path.to_owned()));
        }
        let path = &unfinished::target(disk, path)?;
        Ok(Self(match format {
            Format::Parquet => Kind::Parquet(Box::new(parquet::ParquetWriter::create(disk, path, columns)?)),
            Format::Arrow => Kind::File(Box::new(RowFile::create(disk, path, FileFormat::Arrow, columns)?)),
            Format::Csv => Kind::File(Box::new(RowFile::create(disk, path, FileFormat::Csv, columns)?)),
            Format::Sqlite => Kind::Sqlite(sqlite::SqliteWriter::create(disk, path)?),
        }))
    }

    /// Appends a row. Rows must be in the order of the bytes of their txids, then of `vout`.
    ///
    /// # Errors
    /// [`UnfinishedError`] if the disk fails; the writer is unusable then.
    pub fn add(&mut self, row: CoinRow<'_>) -> Result<(), UnfinishedError> {
        match &mut self.0 {
            Kind::Parquet(writer) => writer.add(row),
            Kind::File(file) => file.add(row),
            Kind::Sqlite(writer) => writer.add(row),
        }
    }

    /// Writes the rest, and gives the output its name. When it returns, all of it is on the medium.
    ///
    /// # Errors
    /// [`UnfinishedError`] if the disk fails, or if something has the path by now; nothing is written there
    /// then, unless only the last sync failed.
    pub fn finish(self, metadata: &Metadata) -> Result<Written, UnfinishedError> {
        match self.0 {
            Kind::Parquet(writer) => writer.finish(metadata),
            Kind::File(file) => {
                let rows = file.rows();
                Ok(Written { files: 1, rows, bytes: file.finish(&of_part(metadata, (0, 1), rows))? })
            }
            Kind::Sqlite(writer) => writer.finish(),
        }
    }
}

const DIRECTORY_IN_USE: &str = "another peregrine writes this directory; let it end, or write another one";

/// Returns the error of a library that could not write to `path`.
fn write_error(path: &Path, source: io::Error) -> UnfinishedError {
    FileError { path: path.to_owned(), action: "write", is_creation: false, source }.into()
}

//! A SQLite database with the one table that Bitcoin Core's `contrib/utxo-tools/utxo_to_sqlite.py` makes:
//! names, types and values are the same.
//!
//! SQLite accesses the file by itself. What makes it safe is that it has a temporary name until it is
//! complete and synced; SQLite's own journal and syncs are off. A crash leaves the temporary file, which the
//! next attempt removes.

use crate::{CoinRow, Written, write_error};
use hex_conservative::DisplayHex as _;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};
use std::io;
use std::path::Path;
use vfs::{AtomicFile, Disk, During as _, UnfinishedError, unfinished};
use wire::Txid;

/// When SQLite gives up a lock of the file, ours ends too. In this mode it keeps its own; the mode must be
/// set before it first reads the file.
const CREATE: &str = "\
    PRAGMA locking_mode = EXCLUSIVE;
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    BEGIN;
    CREATE TABLE utxos(txid TEXT, vout INT, value INT, coinbase INT, height INT, scriptpubkey TEXT)";
const INSERT: &str = "INSERT INTO utxos VALUES(?, ?, ?, ?, ?, ?)";

/// Number of rows that are inserted with one statement.
const BATCH_ROWS: usize = 1 << 12;

/// A row in the order of the columns.
type OwnedRow = (String, u32, i64, bool, u32, String);

pub struct SqliteWriter<'d> {
    // Dropped before the connection, which ends the lock when it is closed: the file is removed under the
    // lock.
    file: AtomicFile<'d>,
    connection: Connection,
    disk: &'d dyn Disk,
    batch: Vec<OwnedRow>,
    rows: u64,
}

impl<'d> SqliteWriter<'d> {
    pub fn create(disk: &'d dyn Disk, path: &Path) -> Result<Self, UnfinishedError> {
        let file = unfinished::create_new(disk, path, unfinished::SUFFIX)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(file.temporary_path(), flags);
        let created = opened.and_then(|connection| connection.execute_batch(CREATE).map(|()| connection));
        let connection = created.map_err(|error| flaw(disk, &file, error))?;
        Ok(Self { file, connection, disk, batch: Vec::with_capacity(BATCH_ROWS), rows: 0 })
    }

    pub fn add(&mut self, row: CoinRow<'_>) -> Result<(), UnfinishedError> {
        let CoinRow { txid, vout, height, coinbase, value, script, .. } = row;
        let (txid, script) = (Txid(txid).to_string(), script.to_lower_hex_string());
        self.batch.push((txid, vout, value, coinbase, height, script));
        if self.batch.len() == BATCH_ROWS { self.insert() } else { Ok(()) }
    }

    pub fn finish(mut self) -> Result<Written, UnfinishedError> {
        self.insert()?;
        let Self { connection, file, disk, rows, .. } = self;
        connection.execute_batch("COMMIT").map_err(|error| flaw(disk, &file, error))?;
        let temporary = file.temporary_path();
        let bytes = disk.metadata(temporary).during("look at", temporary)?.map_or(0, |found| found.len);
        // This syncs the whole file, also what SQLite has written. It writes nothing when it is closed, which
        // ends the lock: the file has its name before.
        file.commit()?;
        drop(connection);
        Ok(Written { files: 1, rows, bytes })
    }

    fn insert(&mut self) -> Result<(), UnfinishedError> {
        self.rows += self.batch.len() as u64;
        let disk = self.disk;
        let Self { connection, batch, file, .. } = self;
        let inserted = connection.prepare(INSERT).and_then(|mut insert| {
            batch.drain(..).try_for_each(|(txid, vout, value, is_coinbase, height, script)| {
                insert.execute(params![txid, vout, value, is_coinbase, height, script]).map(drop)
            })
        });
        inserted.map_err(|error| flaw(disk, file, error))
    }
}

/// SQLite does not say which error of the system it has met: one more byte at the end of the file meets it
/// again, if it is a limit, or of a medium that takes no more.
fn flaw(disk: &dyn Disk, file: &AtomicFile<'_>, error: rusqlite::Error) -> UnfinishedError {
    let path = file.temporary_path();
    let append = || -> io::Result<()> {
        let len = disk.metadata(path)?.map_or(0, |found| found.len);
        disk.open_for_writing(path)?.write_all_at(&[0], len)
    };
    let source = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => io::Error::new(io::ErrorKind::StorageFull, error),
        Some(ErrorCode::SystemIoFailure) => append().err().unwrap_or_else(|| io::Error::other(error)),
        _ => io::Error::other(error),
    };
    write_error(path, source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    /// SQLite writes by itself: its own limit stands for a full disk.
    #[test]
    fn a_full_disk_leaves_nothing() {
        let dir = TempDir::new().unwrap();
        let mut writer = SqliteWriter::create(&vfs::RealDisk, &dir.path().join("utxos.sqlite")).unwrap();
        writer.connection.execute_batch("PRAGMA max_page_count = 100").unwrap();
        let row = CoinRow { txid: [7; 32], script: &[0x51; 100], ..CoinRow::default() };
        let error = (0..10 * BATCH_ROWS).find_map(|_| writer.add(row).err()).unwrap();
        let UnfinishedError::File(error) = error else { panic!("{error}") };
        assert_eq!((error.source.kind(), error.action), (io::ErrorKind::StorageFull, "write"));
        drop(writer);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

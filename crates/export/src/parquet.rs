//! A directory of Parquet files: parts of the set in the order of txids, compressed with zstd.
//!
//! The files are `part-0000.parquet` and so on. The coins of a transaction are in one part. Every file has
//! the key-value metadata of the whole set, which is known only at the end: the parts stay open until then,
//! without rows in memory. They are written in a directory with a temporary name, which is renamed.

use crate::columns::Columns;
use crate::rows::{FileFormat, RowFile};
use crate::table::{CoinRow, CoinTable};
use crate::{Metadata, Written, of_part};
use std::path::Path;
use vfs::{AtomicDir, Disk, UnfinishedError, unfinished};

/// Number of rows after which a part ends. The 180 million coins of 2026 make 43 parts.
const PART_ROWS: u64 = 1 << 22;

fn part_name(number: usize) -> String {
    format!("part-{number:04}.parquet")
}

pub struct ParquetWriter<'d> {
    disk: &'d dyn Disk,
    // Before the directory: the parts remove their files, and only then is the directory removed.
    parts: Vec<RowFile<'d, CoinTable>>,
    dir: AtomicDir<'d>,
    columns: Columns,
    last_txid: Option<[u8; 32]>,
    rows: u64,
    /// [`PART_ROWS`], but in tests.
    part_rows: u64,
}

impl<'d> ParquetWriter<'d> {
    pub fn create(disk: &'d dyn Disk, path: &Path, columns: &Columns) -> Result<Self, UnfinishedError> {
        let columns = columns.clone();
        let is_part = |name: &str| name.starts_with("part-");
        let (dir, part) = AtomicDir::create(disk, path, is_part, &part_name(0), |path| {
            // What a crash has left can have this name, and is replaced.
            let file = unfinished::create(disk, path, unfinished::SUFFIX)?;
            RowFile::begin(file, path, FileFormat::PARQUET, &columns)
        })?;
        let parts = vec![part];
        Ok(Self { disk, parts, dir, columns, last_txid: None, rows: 0, part_rows: PART_ROWS })
    }

    pub fn add(&mut self, row: CoinRow<'_>) -> Result<(), UnfinishedError> {
        let is_full = self.parts.last().is_some_and(|part| part.rows() >= self.part_rows);
        if is_full && self.last_txid != Some(row.txid) {
            self.parts.last_mut().map_or(Ok(()), RowFile::flush)?;
            self.begin_part()?;
        }
        self.last_txid = Some(row.txid);
        self.rows += 1;
        self.parts.last_mut().map_or(Ok(()), |part| part.add(row))
    }

    pub fn finish(mut self, metadata: &Metadata) -> Result<Written, UnfinishedError> {
        let files = self.parts.len() as u32;
        let (mut bytes, mut locked) = (0, None);
        // The first part is completed last: its lock protects the others until the directory has its name.
        for (number, part) in (0..files).zip(self.parts.drain(..)).rev() {
            let (len, file) = part.finish_held(&of_part(metadata, (number, files), self.rows))?;
            bytes += len;
            locked = file;
        }
        self.dir.commit()?;
        drop(locked);
        Ok(Written { files, rows: self.rows, bytes })
    }

    fn begin_part(&mut self) -> Result<(), UnfinishedError> {
        let path = self.dir.temporary_path().join(part_name(self.parts.len()));
        let part = RowFile::create(self.disk, &path, FileFormat::PARQUET, &self.columns)?;
        self.parts.push(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use std::ffi::OsString;
    use std::fs::{self, File};
    use std::path::PathBuf;
    use std::sync::mpsc;
    use tempfile::TempDir;
    use testkit::fault::FaultDisk;
    use vfs::RealDisk;

    /// Two coins of the first transaction, three of the second, ..
    fn keys() -> Vec<(u8, u32)> {
        (0..5).flat_map(|tx: u8| (0..u32::from(tx) + 2).map(move |vout| (tx, vout))).collect()
    }

    /// Writes them in four parts.
    fn write(disk: &dyn Disk, out: &Path) -> Result<Written, UnfinishedError> {
        let mut writer = ParquetWriter::create(disk, out, &Columns::all::<CoinTable>(false))?;
        writer.part_rows = 3;
        for (tx, vout) in keys() {
            let (txid, script_type, script) = ([tx; 32], "other", &[tx; 5][..]);
            writer.add(CoinRow { txid, vout, value: 2, script_type, script, ..CoinRow::default() })?;
        }
        writer.finish(&vec![("network", "regtest".to_owned())])
    }

    /// Once, the first part was complete, and its lock ended, before the others: another run removed them.
    #[test]
    fn the_first_part_is_complete_when_all_others_are() {
        for at in 0.. {
            let dir = TempDir::new().unwrap();
            let is_done = write(&FaultDisk::killed_at(at), &dir.path().join("out")).is_ok();
            let left = RealDisk.list(&dir.path().join("out.peregrine-part")).unwrap_or_default();
            let is_incomplete = |name: &OsString| name.to_string_lossy().ends_with(unfinished::SUFFIX);
            let has_first = left.iter().any(|name| *name == *part_name(0));
            assert!(!has_first || !left.iter().any(is_incomplete), "change {at}: {left:?}");
            if is_done {
                assert!(at > 20, "{at}");
                break;
            }
        }
    }

    /// Once, the directory was unlocked before it had its name: another run emptied it.
    #[test]
    fn no_other_run_takes_the_directory_before_it_has_its_name() {
        let dir = TempDir::new().unwrap();
        let [out, part] = ["out", "out.peregrine-part/part-0000.parquet"].map(|name| dir.path().join(name));
        let (tries, tried) = mpsc::channel();
        let other = out.clone();
        let attempt = move || tries.send(write(&RealDisk, &other).is_ok()).unwrap();
        let disk = FaultDisk::healthy().watched(part, attempt);
        write(&disk, &out).unwrap();
        let tried: Vec<bool> = tried.try_iter().collect();
        assert!(!tried.is_empty() && !tried.contains(&true), "{tried:?}");
        assert_eq!(RealDisk.list(&out).unwrap().len(), 4);
    }

    #[test]
    fn parts_end_between_transactions_and_know_their_number() {
        let dir = TempDir::new().unwrap();
        let (out, keys) = (dir.path().join("utxo"), keys());
        let written = write(&RealDisk, &out).unwrap();
        let mut found = Vec::new();
        let mut files: Vec<PathBuf> =
            fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for (number, file) in files.iter().enumerate() {
            let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
            let pairs = reader.metadata().file_metadata().key_value_metadata().unwrap();
            let value = |key| pairs.iter().find(|pair| pair.key == key)?.value.clone();
            assert_eq!((value("part"), value("parts")), (Some(number.to_string()), Some("4".to_owned())));
            let names = ["coins", "network", "height"].map(value);
            assert_eq!(names, [Some("20".to_owned()), Some("regtest".to_owned()), None]);
            let rows = reader.get_row_iter(None).unwrap().map(|row| {
                let row = row.unwrap();
                let (tx, vout) = (row.get_bytes(0).unwrap().data()[0], row.get_int(1).unwrap() as u32);
                assert_eq!(row.get_bytes(6).unwrap().data(), [tx; 5]);
                (tx, vout)
            });
            found.push(rows.collect::<Vec<_>>());
        }
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [5, 4, 5, 6]);
        assert_eq!(found.concat(), keys);
        assert_eq!((written.files, written.rows), (4, 20));
    }
}

//! A directory of Parquet files: parts of the set in the order of txids, compressed with zstd.
//!
//! The files are `part-0000.parquet` and so on. The coins of a transaction are in one part. Every file has
//! the key-value metadata of the whole set, which is known only at the end: the parts stay open until then,
//! without rows in memory. They are written in a directory with a temporary name, which is renamed.

use crate::{Metadata, Row, Written, write_error};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type,
    Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{AtomicFile, Disk, During as _, UnfinishedError, dir_of, unfinished};
use wire::Txid;

/// Number of rows after which a part ends. The 180 million coins of 2026 make 43 parts.
const PART_ROWS: u64 = 1 << 22;
/// Number of rows of a row group, which is in memory until it is complete: about as many as DuckDB's.
const GROUP_ROWS: usize = 1 << 17;
/// Bytes of scripts and addresses after which a row group ends early.
const GROUP_BYTES: usize = 16 << 20;
/// Length of a txid, in bytes.
const TXID_LEN: usize = 32;

/// The columns, without the address.
const COLUMNS: &str = "
    REQUIRED FIXED_LEN_BYTE_ARRAY (32) txid;
    REQUIRED INT32 vout (INTEGER (32, false));
    REQUIRED INT32 height (INTEGER (32, false));
    REQUIRED BOOLEAN coinbase;
    REQUIRED INT64 value;
    REQUIRED BYTE_ARRAY script_type (STRING);
    REQUIRED BYTE_ARRAY script;";
const ADDRESS: &str = "OPTIONAL BYTE_ARRAY address (STRING);";

/// Columns with few distinct values in a row group.
const DICTIONARIES: [&str; 2] = ["vout", "script_type"];

/// The writer of one part.
type Part<'d> = SerializedFileWriter<PartFile<'d>>;

/// The columns of the rows that are in memory.
#[derive(Default)]
struct Group {
    txids: Vec<u8>,
    vouts: Vec<i32>,
    heights: Vec<i32>,
    coinbases: Vec<bool>,
    values: Vec<i64>,
    script_types: Vec<ByteArray>,
    scripts: Strings,
    addresses: Strings,
    /// 1 for each row that has an address, 0 for the others.
    has_address: Vec<i16>,
}

/// Strings one after the other, and where each ends.
#[derive(Default)]
struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }

    /// Takes the strings. They share their memory.
    fn take(&mut self) -> Vec<ByteArray> {
        let bytes = ByteArray::from(std::mem::take(&mut self.bytes));
        let mut end_before = 0;
        let strings = self.ends.drain(..).map(|end| {
            let start = std::mem::replace(&mut end_before, end);
            bytes.slice(start, end - start)
        });
        strings.collect()
    }
}

pub struct ParquetWriter<'d> {
    // Before the directory: the parts remove their files, and only then is the directory removed.
    parts: Vec<Part<'d>>,
    dir: TemporaryDir<'d>,
    schema: TypePtr,
    properties: WriterPropertiesPtr,
    addresses: bool,
    group: Group,
    /// The names of script types so far.
    script_types: Vec<(&'static str, ByteArray)>,
    last_txid: Option<Txid>,
    rows: u64,
    rows_of_part: u64,
    /// [`PART_ROWS`], but in tests.
    part_rows: u64,
}

impl<'d> ParquetWriter<'d> {
    pub fn create(disk: &'d dyn Disk, path: &Path, addresses: bool) -> Result<Self, UnfinishedError> {
        let message = format!("message utxo {{ {COLUMNS} {} }}", if addresses { ADDRESS } else { "" });
        let schema = parse_message_type(&message).map_err(|error| flaw(path, error))?;
        let level = ZstdLevel::try_new(1).map_err(|error| flaw(path, error))?;
        let ascending = |column_idx| SortingColumn { column_idx, descending: false, nulls_first: false };
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_dictionary_enabled(false)
            .set_sorting_columns(Some(vec![ascending(0), ascending(1)]));
        for column in DICTIONARIES {
            properties = properties.set_column_dictionary_enabled(column.into(), true);
        }
        let mut writer = Self {
            parts: Vec::new(),
            dir: TemporaryDir::create(disk, path)?,
            schema: Arc::new(schema),
            properties: Arc::new(properties.build()),
            addresses,
            group: Group::default(),
            script_types: Vec::new(),
            last_txid: None,
            rows: 0,
            rows_of_part: 0,
            part_rows: PART_ROWS,
        };
        writer.begin_part()?;
        Ok(writer)
    }

    pub fn add(&mut self, row: &Row<'_>) -> Result<(), UnfinishedError> {
        if self.rows_of_part >= self.part_rows && self.last_txid != Some(row.txid) {
            self.write_group()?;
            self.begin_part()?;
        }
        self.last_txid = Some(row.txid);
        self.rows += 1;
        self.rows_of_part += 1;
        let script_type = self.script_type(row.script_type);
        let group = &mut self.group;
        group.txids.extend_from_slice(&row.txid.0);
        group.vouts.push(row.vout.cast_signed());
        group.heights.push(row.height.cast_signed());
        group.coinbases.push(row.is_coinbase);
        group.values.push(row.value);
        group.script_types.push(script_type);
        group.scripts.push(row.script);
        if self.addresses {
            group.has_address.push(row.address.is_some().into());
            row.address.into_iter().for_each(|address| group.addresses.push(address.as_bytes()));
        }
        let bytes = group.scripts.bytes.len() + group.addresses.bytes.len();
        if group.vouts.len() >= GROUP_ROWS || bytes >= GROUP_BYTES { self.write_group() } else { Ok(()) }
    }

    pub fn finish(mut self, metadata: &Metadata) -> Result<Written, UnfinishedError> {
        self.write_group()?;
        let files = self.parts.len() as u32;
        let mut bytes = 0;
        for (number, mut part) in (0..files).zip(self.parts.drain(..)) {
            for (key, value) in key_values(metadata, (number, files), self.rows) {
                part.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
            }
            let PartFile { file, written } =
                part.into_inner().map_err(|error| flaw(&self.dir.path, error))?;
            bytes += written;
            file.commit()?;
        }
        self.dir.commit()?;
        Ok(Written { files, rows: self.rows, bytes })
    }

    /// Returns the name of a script type; all of its rows share the memory.
    fn script_type(&mut self, name: &'static str) -> ByteArray {
        if let Some((_, bytes)) = self.script_types.iter().find(|(known, _)| *known == name) {
            return bytes.clone();
        }
        let bytes = ByteArray::from(name);
        self.script_types.push((name, bytes.clone()));
        bytes
    }

    fn begin_part(&mut self) -> Result<(), UnfinishedError> {
        let path = self.dir.temporary.join(format!("part-{:04}.parquet", self.parts.len()));
        let file =
            PartFile { file: unfinished::create(self.dir.disk, &path, unfinished::SUFFIX)?, written: 0 };
        let part = SerializedFileWriter::new(file, Arc::clone(&self.schema), Arc::clone(&self.properties));
        self.parts.push(part.map_err(|error| flaw(&path, error))?);
        self.rows_of_part = 0;
        Ok(())
    }

    /// Writes the rows that are in memory to the last part.
    fn write_group(&mut self) -> Result<(), UnfinishedError> {
        let Some(part) = self.parts.last_mut().filter(|_| !self.group.vouts.is_empty()) else {
            return Ok(());
        };
        write_columns(part, &mut self.group, self.addresses).map_err(|error| flaw(&self.dir.path, error))
    }
}

/// Writes one row group.
fn write_columns(part: &mut Part<'_>, group: &mut Group, addresses: bool) -> Result<(), ParquetError> {
    let txids = ByteArray::from(std::mem::take(&mut group.txids));
    let txids = (0..txids.len() / TXID_LEN).map(|at| txids.slice(at * TXID_LEN, TXID_LEN).into());
    let txids: Vec<FixedLenByteArray> = txids.collect();
    let mut to = part.next_row_group()?;
    write_column::<FixedLenByteArrayType>(&mut to, &txids, None)?;
    write_column::<Int32Type>(&mut to, &group.vouts, None)?;
    write_column::<Int32Type>(&mut to, &group.heights, None)?;
    write_column::<BoolType>(&mut to, &group.coinbases, None)?;
    write_column::<Int64Type>(&mut to, &group.values, None)?;
    write_column::<ByteArrayType>(&mut to, &group.script_types, None)?;
    write_column::<ByteArrayType>(&mut to, &group.scripts.take(), None)?;
    if addresses {
        write_column::<ByteArrayType>(&mut to, &group.addresses.take(), Some(&group.has_address))?;
    }
    to.close()?;
    *group = Group::default();
    Ok(())
}

/// Writes the next column; `is_present` tells for an optional one which rows have a value.
fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, PartFile<'_>>,
    values: &[T::T],
    is_present: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the schema has fewer columns than the rows".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(values, is_present, None)?;
    column.close()
}

/// The key-value metadata of a part.
fn key_values(
    metadata: &Metadata,
    (part, parts): (u32, u32),
    rows: u64,
) -> impl Iterator<Item = (&'static str, String)> {
    let height = metadata.height.map(|height| ("height", height.to_string()));
    [
        ("network", metadata.network.to_owned()),
        ("block_hash", metadata.block_hash.clone()),
        ("hash_serialized_3", metadata.hash_serialized_3.clone()),
        ("muhash", metadata.muhash.clone()),
        ("coins", rows.to_string()),
        ("total_value", metadata.total_value.to_string()),
        ("part", part.to_string()),
        ("parts", parts.to_string()),
        ("program", metadata.program.clone()),
    ]
    .into_iter()
    .chain(height)
}

/// The file of a part, as the library writes it.
struct PartFile<'d> {
    file: AtomicFile<'d>,
    written: u64,
}

impl Write for PartFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes).map_err(|error| error.source)?;
        self.written += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the error for what the library could not do; that of the disk, if it is one.
fn flaw(path: &Path, error: ParquetError) -> UnfinishedError {
    let source = match error {
        ParquetError::External(error) => {
            error.downcast::<io::Error>().map_or_else(io::Error::other, |io| *io)
        }
        error => io::Error::other(error),
    };
    write_error(path, source)
}

/// A directory that is filled under a temporary name. If it is dropped before it is committed, its files are
/// removed.
struct TemporaryDir<'d> {
    disk: &'d dyn Disk,
    path: PathBuf,
    temporary: PathBuf,
    is_temporary: bool,
}

impl<'d> TemporaryDir<'d> {
    fn create(disk: &'d dyn Disk, path: &Path) -> Result<Self, UnfinishedError> {
        let mut temporary = path.as_os_str().to_os_string();
        temporary.push(unfinished::SUFFIX);
        let temporary = PathBuf::from(temporary);
        let found = disk.metadata(&temporary).during("look for", &temporary)?;
        if found.is_some_and(|found| !found.is_dir) {
            let flaw =
                "a file has the name of a temporary directory; move it away, or write another directory";
            return Err(UnfinishedError::Refused { path: temporary, flaw });
        }
        if found.is_some() {
            // The first part is locked as long as its writer lives.
            let first = temporary.join(format!("part-0000.parquet{}", unfinished::SUFFIX));
            let Some(_lock) = disk.lock(&first).during("lock", &first)? else {
                let flaw = "another peregrine writes this directory; let it end, or write another one";
                return Err(UnfinishedError::Refused { path: temporary, flaw });
            };
            remove_parts(disk, &temporary)?;
            if !disk.list(&temporary).during("list", &temporary)?.is_empty() {
                let flaw = "other files are in a directory with a temporary name; move them away, or \
                            write another directory";
                return Err(UnfinishedError::Refused { path: temporary, flaw });
            }
        } else {
            disk.create_dir_all(&temporary).during_creation(&temporary)?;
        }
        Ok(Self { disk, path: path.to_owned(), temporary, is_temporary: true })
    }

    fn commit(&mut self) -> Result<(), UnfinishedError> {
        let Self { disk, path, temporary, .. } = self;
        disk.rename(temporary, path).during("rename to its final name", temporary)?;
        self.is_temporary = false;
        let parent = dir_of(path);
        Ok(disk.sync_dir(parent).during("sync", parent)?)
    }
}

impl Drop for TemporaryDir<'_> {
    fn drop(&mut self) {
        if self.is_temporary {
            // The error that ended the writing is the one to report.
            let _ = remove_parts(self.disk, &self.temporary);
            let _ = self.disk.remove_dir(&self.temporary);
        }
    }
}

/// Removes the parts in a directory, and no other file.
fn remove_parts(disk: &dyn Disk, dir: &Path) -> Result<(), UnfinishedError> {
    let is_part = |name: &OsString| name.to_string_lossy().starts_with("part-");
    for name in disk.list(dir).during("list", dir)?.iter().filter(|name| is_part(name)) {
        let path = dir.join(name);
        disk.remove_file(&path).during("remove", &path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use std::fs::{self, File};
    use tempfile::TempDir;
    use vfs::RealDisk;

    #[test]
    fn parts_end_between_transactions_and_know_their_number() {
        let dir = TempDir::new().unwrap();
        let out = dir.path().join("utxo");
        let mut writer = ParquetWriter::create(&RealDisk, &out, false).unwrap();
        writer.part_rows = 3;
        // Two coins of the first transaction, three of the second, ..
        let keys: Vec<(u8, u32)> =
            (0..5).flat_map(|tx: u8| (0..u32::from(tx) + 2).map(move |vout| (tx, vout))).collect();
        for &(tx, vout) in &keys {
            let (txid, script_type, script) = (Txid([tx; 32]), "other", &[tx; 5][..]);
            let row = Row {
                txid,
                vout,
                height: 1,
                is_coinbase: false,
                value: 2,
                script_type,
                script,
                address: None,
            };
            writer.add(&row).unwrap();
        }
        let metadata = Metadata {
            network: "regtest",
            height: None,
            block_hash: String::new(),
            hash_serialized_3: String::new(),
            muhash: String::new(),
            total_value: 40,
            program: String::new(),
        };
        let written = writer.finish(&metadata).unwrap();
        let mut found = Vec::new();
        let mut files: Vec<PathBuf> =
            fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for (number, file) in files.iter().enumerate() {
            let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
            let pairs = reader.metadata().file_metadata().key_value_metadata().unwrap();
            let value = |key| pairs.iter().find(|pair| pair.key == key)?.value.clone();
            assert_eq!((value("part"), value("parts")), (Some(number.to_string()), Some("4".to_owned())));
            assert_eq!((value("coins"), value("height")), (Some("20".to_owned()), None));
            let rows = reader.get_row_iter(None).unwrap().map(|row| {
                let row = row.unwrap();
                let (tx, vout) = (row.get_bytes(0).unwrap().data()[0], row.get_uint(1).unwrap());
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

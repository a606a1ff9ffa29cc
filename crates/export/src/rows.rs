//! One file of rows: Parquet, Arrow or CSV. It has its name when it is complete and on the medium.

use crate::{batches::Batches, columns::Columns, csv, table::Table, write_error};
use arrow_array::RecordBatch;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::mem;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use vfs::{AtomicFile, Disk, UnfinishedError, unfinished};

/// Columns with few distinct values among many rows, which rows are not sorted by in the first place.
const FEW_VALUES: [&str; 5] = ["vout", "prev_vout", "index", "sequence", "sighash"];

/// The level of zstd unless a user wants another one.
const ZSTD_LEVEL: i32 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ParquetOptions {
    /// Level of zstd, 1 to 22; `None`: 1.
    pub zstd_level: Option<i32>,
    /// Number of rows in a group; `None`: as the table has it. The rows of a group are in memory, encoded.
    pub row_group: Option<NonZeroU32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFormat {
    /// Parquet, compressed with zstd.
    Parquet(ParquetOptions),
    /// Arrow's file format, also called Feather.
    Arrow,
    Csv,
}

impl FileFormat {
    /// Parquet, as it is written unless a user wants something else.
    pub const PARQUET: Self = Self::Parquet(ParquetOptions { zstd_level: None, row_group: None });

    /// Returns the format's name in options, which is also the file extension.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parquet(_) => "parquet",
            Self::Arrow => "arrow",
            Self::Csv => "csv",
        }
    }
}

impl fmt::Display for FileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FileFormat {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let named = [Self::PARQUET, Self::Arrow, Self::Csv].into_iter().find(|format| format.name() == name);
        named.ok_or(match name {
            "sqlite" => "must be parquet, arrow or csv: SQLite's table is one of coins, for export utxo",
            _ => "must be parquet, arrow or csv",
        })
    }
}

pub struct RowFile<'d, T> {
    path: PathBuf,
    batches: Batches<T>,
    encoder: Encoder<'d>,
    rows: u64,
}

enum Encoder<'d> {
    Parquet {
        writer: Box<ArrowWriter<CountedFile<'d>>>,
        /// Whether each batch is a row group.
        by_batch: bool,
    },
    Arrow(Box<FileWriter<CountedFile<'d>>>),
    Csv {
        file: CountedFile<'d>,
        text: String,
    },
}

impl<'d, T: Table> RowFile<'d, T> {
    /// Begins a file at `path`, which must not exist, under a temporary name.
    pub fn create(
        disk: &'d dyn Disk,
        path: &Path,
        format: FileFormat,
        columns: &Columns,
    ) -> Result<Self, UnfinishedError> {
        Self::begin(unfinished::create_new(disk, path, unfinished::SUFFIX)?, path, format, columns)
    }

    /// Begins with an empty file, which gets the name `path` when it is complete.
    pub(crate) fn begin(
        file: AtomicFile<'d>,
        path: &Path,
        format: FileFormat,
        columns: &Columns,
    ) -> Result<Self, UnfinishedError> {
        let file = CountedFile { file: Some(file), written: 0 };
        let batches = Batches::<T>::new(columns);
        let schema = batches.schema();
        let encoder = match format {
            FileFormat::Parquet(options) => {
                let writer = parquet_writer::<T>(file, schema, columns.sorted(T::SORTED), options);
                writer.map(|writer| Encoder::Parquet { writer, by_batch: options.row_group.is_none() })
            }
            FileFormat::Arrow => FileWriter::try_new(file, schema)
                .map(|writer| Encoder::Arrow(Box::new(writer)))
                .map_err(arrow),
            FileFormat::Csv => Ok(Encoder::Csv { file, text: csv::header(schema) }),
        };
        let encoder = encoder.map_err(|error| write_error(path, error))?;
        Ok(Self { path: path.to_owned(), batches, encoder, rows: 0 })
    }

    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Appends a row.
    ///
    /// # Errors
    /// [`UnfinishedError`] if the disk fails; the writer is unusable then.
    pub fn add(&mut self, row: T::Row<'_>) -> Result<(), UnfinishedError> {
        self.rows += 1;
        let batch = self.batches.add(row);
        self.write(batch)
    }

    /// Writes the rows that are in memory.
    ///
    /// # Errors
    /// [`UnfinishedError`] if the disk fails; the writer is unusable then.
    pub fn flush(&mut self) -> Result<(), UnfinishedError> {
        let batch = self.batches.take();
        self.write(batch)
    }

    fn write(&mut self, batch: Result<Option<RecordBatch>, ArrowError>) -> Result<(), UnfinishedError> {
        let written = batch.map_err(arrow).and_then(|batch| {
            let Some(batch) = batch else { return Ok(()) };
            match &mut self.encoder {
                Encoder::Parquet { writer, by_batch } => {
                    let written = writer.write(&batch);
                    written.and_then(|()| if *by_batch { writer.flush() } else { Ok(()) }).map_err(parquet)
                }
                Encoder::Arrow(writer) => writer.write(&batch).map_err(arrow),
                Encoder::Csv { file, text } => {
                    csv::write(&batch, text);
                    let written = file.write_all(text.as_bytes());
                    text.clear();
                    written
                }
            }
        });
        written.map_err(|error| write_error(&self.path, error))
    }

    /// Writes the rest and, where the format has a place for it, the metadata, and gives the file its name.
    /// Returns its size in bytes. When it returns, the file is on the medium.
    pub fn finish(self, metadata: &[(&str, String)]) -> Result<u64, UnfinishedError> {
        Ok(self.finish_held(metadata)?.0)
    }

    /// The same, but the file stays locked until what is returned with its size is dropped.
    pub(crate) fn finish_held(
        mut self,
        metadata: &[(&str, String)],
    ) -> Result<(u64, Option<AtomicFile<'d>>), UnfinishedError> {
        self.flush()?;
        let file = match self.encoder {
            Encoder::Parquet { mut writer, .. } => {
                for (key, value) in metadata {
                    writer.append_key_value_metadata(KeyValue::new((*key).to_owned(), value.clone()));
                }
                // Its `into_inner` drops the error of the disk.
                writer.finish().map(|_| mem::take(writer.inner_mut())).map_err(parquet)
            }
            Encoder::Arrow(mut writer) => {
                for (key, value) in metadata {
                    writer.write_metadata(*key, value);
                }
                writer.finish().and_then(|()| writer.into_inner()).map_err(arrow)
            }
            // A file without rows has its header only.
            Encoder::Csv { mut file, text } => file.write_all(text.as_bytes()).map(|()| file),
        };
        let CountedFile { file, written } = file.map_err(|error| write_error(&self.path, error))?;
        Ok((written, file.map(AtomicFile::commit_held).transpose()?))
    }
}

fn parquet_writer<'d, T: Table>(
    file: CountedFile<'d>,
    schema: &SchemaRef,
    sorted: usize,
    options: ParquetOptions,
) -> io::Result<Box<ArrowWriter<CountedFile<'d>>>> {
    let compression =
        Compression::ZSTD(ZstdLevel::try_new(options.zstd_level.unwrap_or(ZSTD_LEVEL)).map_err(parquet)?);
    let ascending = |column_idx| SortingColumn { column_idx, descending: false, nulls_first: false };
    // Rows in the order of hashes are in no order of anything else.
    let first_type = schema.fields().first().map(|field| field.data_type());
    let is_by_hash = matches!(first_type, Some(DataType::FixedSizeBinary(_)));
    let mut properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(options.row_group.map(|rows| rows.get() as usize))
        .set_data_page_row_count_limit(T::PAGE_ROWS)
        .set_sorting_columns(Some((0..sorted as i32).map(ascending).collect()))
        .set_dictionary_enabled(false);
    for (index, field) in schema.fields().iter().enumerate() {
        let (name, path) = (field.name().as_str(), ColumnPath::from(field.name().as_str()));
        properties = match field.data_type() {
            DataType::Dictionary(..) => properties.set_column_dictionary_enabled(path, true),
            DataType::Int32 | DataType::Int64 | DataType::Utf8
                if index < sorted && !is_by_hash || FEW_VALUES.contains(&name) =>
            {
                properties.set_column_dictionary_enabled(path, true)
            }
            // Nobody looks for a range of hashes, unless the rows are in their order. Most hashes occur once,
            // so that compressing them takes time in vain; txids of inputs and outputs are repeated.
            DataType::FixedSizeBinary(_) if index >= sorted => {
                let is_repeated = name == "txid" && !is_by_hash;
                let compression = if is_repeated { compression } else { Compression::UNCOMPRESSED };
                properties
                    .set_column_statistics_enabled(path.clone(), EnabledStatistics::None)
                    .set_column_compression(path, compression)
            }
            _ => properties,
        };
    }
    let writer = ArrowWriter::try_new(file, Arc::clone(schema), Some(properties.build()));
    writer.map(Box::new).map_err(parquet)
}

#[derive(Default)]
struct CountedFile<'d> {
    /// `None` once it was taken out of its encoder.
    file: Option<AtomicFile<'d>>,
    written: u64,
}

impl Write for CountedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(bytes)).map_err(|error| error.source)?;
        self.written += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the error of the disk, if a library's error is one.
fn unwrapped(error: Box<dyn Error + Send + Sync>) -> io::Error {
    error.downcast::<io::Error>().map_or_else(io::Error::other, |error| *error)
}

fn parquet(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => unwrapped(error),
        error => io::Error::other(error),
    }
}

fn arrow(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        ArrowError::ExternalError(error) => unwrapped(error),
        error => io::Error::other(error),
    }
}

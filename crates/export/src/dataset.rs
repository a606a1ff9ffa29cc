//! Datasets: directories of files with rows of the blocks of a chain. The file `.dataset.json` beside one
//! states what it has, and determines all its files.

mod blocks;
mod history;

pub use blocks::BlockDataset;
pub use history::{HistoryDataset, HistoryFolder};

use crate::columns::Columns;
use crate::parts::Parts;
use crate::rows::{FileFormat, RowFile};
use crate::table::Table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vfs::UnfinishedError;
use wire::{BlockHash, Height, Network};

/// The program, as files name it: its version is that of this crate.
pub const PROGRAM: &str = concat!("peregrine ", env!("CARGO_PKG_VERSION"));

#[derive(Clone, Debug)]
pub struct DatasetOptions {
    pub output: PathBuf,
    pub format: FileFormat,
    pub columns: Columns,
    pub file_blocks: u32,
    /// Whether each file is in a folder that is named as a column. Those of history always are.
    pub partitioned: bool,
    /// Whether a directory that is there is continued. That of history never is.
    pub append: bool,
}

/// The blocks whose rows a dataset has.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    pub network: Network,
    /// The first block.
    pub from: Height,
    /// The last block.
    pub to: Height,
    /// Hash of the last block.
    pub last: BlockHash,
    /// The last block whose inputs were looked at, if it is written by which input an output is spent.
    pub spent_to: Option<(Height, BlockHash)>,
}

pub type HashAt<'a> = dyn Fn(Height) -> BlockHash + 'a;

/// The files of a directory.
#[derive(Clone, Serialize, JsonSchema, Debug)]
pub struct WrittenFiles {
    /// The directory that was written.
    pub output: String,
    pub format: &'static str,
    pub files: u32,
    /// Those of them that an earlier run had completed.
    pub files_kept: u32,
    pub bytes: u64,
}

/// A column, as `.dataset.json` has it.
#[derive(Serialize, Deserialize, PartialEq)]
struct ColumnText {
    name: String,
    /// Its type in Arrow.
    r#type: String,
}

impl ColumnText {
    /// Those of a table that are written.
    fn all<T: Table>(columns: &Columns) -> Vec<Self> {
        columns.fields::<T>().into_iter().map(|(name, r#type)| Self { name, r#type }).collect()
    }
}

/// What the values of columns mean.
#[derive(Serialize)]
struct Units {
    amounts: &'static str,
    times: &'static str,
    hashes: &'static str,
}

impl Default for Units {
    fn default() -> Self {
        Self {
            amounts: "satoshis",
            times: "UTC, of block headers",
            hashes: "bytes in the order of the hash function, in CSV reversed",
        }
    }
}

/// The content of `.dataset.json`.
fn text(content: &impl Serialize) -> String {
    serde_json::to_string_pretty(content).unwrap_or_default() + "\n"
}

/// A directory that is written by several threads, and what each of its files says of the chain.
struct Files<'d> {
    parts: Parts<'d>,
    options: DatasetOptions,
    blocks: Blocks,
    files: AtomicU32,
    files_kept: AtomicU32,
    bytes: AtomicU64,
}

impl<'d> Files<'d> {
    fn new(parts: Parts<'d>, options: DatasetOptions, blocks: Blocks) -> Self {
        let (files, files_kept, bytes) = Default::default();
        Self { parts, options, blocks, files, files_kept, bytes }
    }

    /// Begins a file with the rows of these blocks; `None` if an earlier run has completed it.
    fn begin<T: Table>(
        &self,
        name: &str,
        columns: &Columns,
        heights: RangeInclusive<u32>,
    ) -> Result<Option<DatasetFile<'_, 'd, T>>, UnfinishedError> {
        self.files.fetch_add(1, Ordering::Relaxed);
        if let Some(bytes) = self.parts.complete_len(name)? {
            self.files_kept.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            return Ok(None);
        }
        let rows = self.parts.begin(name, self.options.format, columns)?;
        Ok(Some(DatasetFile { files: self, rows, heights }))
    }

    /// Completes the directory, beside which the file with this content is written.
    fn complete(self, content: &str) -> Result<WrittenFiles, UnfinishedError> {
        self.parts.finish(content)?;
        Ok(WrittenFiles {
            output: self.options.output.display().to_string(),
            format: self.options.format.name(),
            files: self.files.into_inner(),
            files_kept: self.files_kept.into_inner(),
            bytes: self.bytes.into_inner(),
        })
    }
}

pub struct DatasetFile<'a, 'd, T> {
    files: &'a Files<'d>,
    rows: RowFile<'d, T>,
    heights: RangeInclusive<u32>,
}

impl<T: Table> DatasetFile<'_, '_, T> {
    pub fn add(&mut self, row: T::Row<'_>) -> Result<(), UnfinishedError> {
        self.rows.add(row)
    }

    pub fn finish(self) -> Result<(), UnfinishedError> {
        let Blocks { network, to, last, spent_to, .. } = self.files.blocks;
        let mut metadata = vec![
            ("network", network.name().to_owned()),
            ("from", self.heights.start().to_string()),
            ("to", self.heights.end().to_string()),
            ("rows", self.rows.rows().to_string()),
            ("tip_height", to.to_string()),
            ("tip_hash", last.to_string()),
            ("program", PROGRAM.to_owned()),
        ];
        metadata.extend(spent_to.iter().flat_map(|(height, hash)| {
            [("spent_to_height", height.to_string()), ("spent_to_hash", hash.to_string())]
        }));
        self.files.bytes.fetch_add(self.rows.finish(&metadata)?, Ordering::Relaxed);
        Ok(())
    }
}

//! Datasets: directories of files with rows of what the engine shows, blocks and the history of scripts. The
//! file `.dataset.json` beside one states what it has, and determines all its files.

mod blocks;
mod history;

pub use blocks::BlockDataset;
pub use history::HistoryDataset;

use crate::{affordable_threads, rows::BlockRows};
use engine::{
    ChainOptions, Disk as _, Error, Height, RealDisk, Remedy,
    blocks::{BlockData, BlockRange, PartConsumer, ReadBlocksOptions, SpendsOptions, SpentTo},
};
use export::{Columns, FileFormat, Parts, PartsError, REQUEST, REQUEST_LEN, RowFile, Table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The program, as files name it: its version is that of this crate.
pub const PROGRAM: &str = concat!("peregrine ", env!("CARGO_PKG_VERSION"));

/// Returns the columns with these names; all if there are none, with `address` if `addresses`, and with those
/// of spends if `spent`.
///
/// # Errors
/// [`engine::ErrorKind::Usage`] for a name that is not one of the table's.
pub fn columns_of<T: Table>(
    names: Option<&[String]>,
    addresses: bool,
    spent: bool,
) -> Result<Columns, Error> {
    match names {
        None if spent => Ok(Columns::all::<T>(addresses).with_spends::<T>()),
        None => Ok(Columns::all::<T>(addresses)),
        Some(names) => Columns::named::<T>(names).map_err(|error| Error::usage(error.to_string())),
    }
}

/// Returns how the blocks of a table are read on threads that each take so much memory, in parts that are the
/// files of a dataset. `spent_to`: the last block whose inputs are looked at, if a column needs them.
pub fn read_options<T: BlockRows>(
    chain: ChainOptions,
    columns: &Columns,
    from: Height,
    spent_to: Option<Height>,
    worker_bytes: u64,
) -> ReadBlocksOptions {
    let with_txids = columns.has::<T>("spent_txid");
    let spends = columns.has_spends::<T>().then_some(SpendsOptions { to: spent_to, with_txids });
    // Half of the memory is for spending inputs.
    let for_workers = chain.memory_bytes / if spends.is_some() { 2 } else { 1 };
    let threads = affordable_threads(for_workers, worker_bytes, chain.threads);
    let chain = ChainOptions { threads, ..chain };
    ReadBlocksOptions { chain, from, with_coins: T::NEEDS_COINS, spends, part_blocks: T::FILE_BLOCKS }
}

#[derive(Clone, Debug)]
pub struct DatasetOptions {
    pub output: PathBuf,
    pub format: FileFormat,
    pub columns: Columns,
    /// Whether each file is in a folder that is named as a column. Those of history always are.
    pub partitioned: bool,
    /// Whether a directory that is there is continued. That of history never is.
    pub append: bool,
}

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
fn units() -> BTreeMap<&'static str, &'static str> {
    let hashes = "bytes in the order of the hash function, in CSV reversed";
    BTreeMap::from([("amounts", "satoshis"), ("hashes", hashes), ("times", "UTC")])
}

/// The content of `.dataset.json`.
fn text(content: &impl Serialize) -> String {
    serde_json::to_string_pretty(content).unwrap_or_default() + "\n"
}

/// A directory that is written by several threads, and what each of its files says of the chain.
struct Files {
    parts: Parts<'static>,
    options: DatasetOptions,
    blocks: BlockRange,
    files: AtomicU32,
    files_kept: AtomicU32,
    bytes: AtomicU64,
}

impl Files {
    fn new(parts: Parts<'static>, options: DatasetOptions, blocks: BlockRange) -> Self {
        let (files, files_kept, bytes) = Default::default();
        Self { parts, options, blocks, files, files_kept, bytes }
    }

    /// Begins a file with the rows of these blocks; `None` if an earlier run has completed it.
    fn begin<T: Table>(
        &self,
        name: &str,
        columns: &Columns,
        heights: RangeInclusive<u32>,
    ) -> Result<Option<DatasetFile<'_, T>>, Error> {
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
    fn complete(self, content: &str) -> Result<WrittenFiles, Error> {
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

struct DatasetFile<'a, T> {
    files: &'a Files,
    rows: RowFile<'static, T>,
    heights: RangeInclusive<u32>,
}

impl<T: Table> DatasetFile<'_, T> {
    fn finish(self) -> Result<(), Error> {
        let BlockRange { network, to, last, spent_to, .. } = self.files.blocks;
        let mut metadata = vec![
            ("network", network.name().to_owned()),
            ("from", self.heights.start().to_string()),
            ("to", self.heights.end().to_string()),
            ("rows", self.rows.rows().to_string()),
            ("tip_height", to.to_string()),
            ("tip_hash", last.to_string()),
            ("program", PROGRAM.to_owned()),
        ];
        metadata.extend(spent_to.iter().flat_map(|SpentTo { height, hash, .. }| {
            [("spent_to_height", height.to_string()), ("spent_to_hash", hash.to_string())]
        }));
        self.files.bytes.fetch_add(self.rows.finish(&metadata)?, Ordering::Relaxed);
        Ok(())
    }
}

impl<T: BlockRows> PartConsumer for DatasetFile<'_, T> {
    fn block(&mut self, block: &BlockData<'_>) -> Result<(), Error> {
        T::each_row(block, &self.files.options.columns, |row| Ok(self.rows.add(row)?))
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        (*self).finish()
    }
}

/// In what the interrupted export that has left a directory differs from this one, unless in other options.
fn difference(dir: &Path, request: &str) -> Option<String> {
    let found = RealDisk.read(&dir.join(REQUEST), REQUEST_LEN).ok()?;
    let found: Value = serde_json::from_slice(&found).ok()?;
    let wanted: Value = serde_json::from_str(request).ok()?;
    let fields =
        [("program", "by"), ("to", "up to"), ("spent_to", "with spends up to"), ("block_hash", "up to")];
    fields.into_iter().find_map(|(field, words)| {
        let value = found.get(field).filter(|value| wanted.get(field) != Some(*value))?;
        Some(format!("{words} {}", value.to_string().trim_matches('"')))
    })
}

/// The error for a directory that cannot be begun or continued.
fn refusal(error: PartsError, request: &str) -> Error {
    let usage = |detail: &str| Error::usage(detail).with_remedies([Remedy::OtherName]);
    match error {
        PartsError::Unfinished(error) => error.into(),
        PartsError::OtherRequest(path) => {
            let which = difference(&path, request).unwrap_or_else(|| "with other options".to_owned());
            let advice =
                "has left this directory; repeat that one, with its options, or remove the directory";
            usage(&format!("an interrupted export {which} {advice}")).in_file(path, None)
        }
        PartsError::WasComplete(path) => {
            let error = Error::usage("an interrupted run was continuing this export, which was complete");
            error.in_file(path, None).with_remedies([Remedy::RepeatOptions, Remedy::OtherName])
        }
        PartsError::Refused { path, flaw } => usage(&flaw).in_file(path, None),
    }
}

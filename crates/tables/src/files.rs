//! Datasets of what the engine shows: blocks, and the history of scripts.

use crate::{
    affordable_threads,
    rows::{BlockRows, history_row, with_script_row},
};
use engine::{
    ChainOptions, Error, ErrorKind, Height, Network, RealDisk, Remedy,
    blocks::{BlockConsumer, BlockData, BlockRange, HashAt, PartConsumer, ReadBlocksOptions, SpendsOptions},
    history::{HistoryConsumer, HistoryEntry, HistoryRange, HistorySink, ScriptHistory},
};
use export::{
    BlockDataset, Blocks, Columns, DatasetFile, DatasetOptions, HistoryDataset, HistoryFolder, PartsError,
    Table, WrittenFiles,
};
use std::{marker::PhantomData, ops::RangeInclusive};

/// Returns the columns with these names; all if there are none, with `address` if `addresses`, and with those
/// of spends if `spent`.
///
/// # Errors
/// [`ErrorKind::Usage`] for a name that is not one of the table's.
pub fn columns_of<T: Table>(
    names: Option<&[String]>,
    addresses: bool,
    spent: bool,
) -> Result<Columns, Error> {
    match names {
        None if spent => Ok(Columns::all::<T>(addresses).with_spends::<T>()),
        None => Ok(Columns::all::<T>(addresses)),
        Some(names) => {
            Columns::named::<T>(names).map_err(|error| Error::new(ErrorKind::Usage, error.to_string()))
        }
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

/// A dataset of what blocks contain.
pub struct BlockFiles<T> {
    dataset: BlockDataset<'static>,
    table: PhantomData<fn() -> T>,
}

impl<T: BlockRows> BlockFiles<T> {
    /// Begins the dataset, or continues it.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if it exists or has other rows; [`ErrorKind::Environment`] if it cannot be
    /// written.
    pub fn open(options: DatasetOptions, range: &BlockRange, hash_at: &HashAt<'_>) -> Result<Self, Error> {
        let BlockRange { network, from, to, last, spent_to } = *range;
        let spent_to = spent_to.map(|spent_to| (spent_to.height, spent_to.hash));
        let blocks = Blocks { network, from, to, last, spent_to };
        let dataset = BlockDataset::open::<T>(&RealDisk, options, blocks, hash_at).map_err(refusal)?;
        Ok(Self { dataset, table: PhantomData })
    }

    /// Completes the dataset, when all blocks have been read.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`] if the disk fails.
    pub fn complete(self) -> Result<WrittenFiles, Error> {
        Ok(self.dataset.complete()?)
    }
}

impl<T: BlockRows> BlockConsumer for BlockFiles<T> {
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        let Some(file) = self.dataset.begin(*heights.start())? else { return Ok(None) };
        Ok(Some(Box::new(Part::<T> { columns: self.dataset.columns(), file })))
    }
}

/// A file of it.
struct Part<'a, T> {
    columns: &'a Columns,
    file: DatasetFile<'a, 'static, T>,
}

impl<T: BlockRows> PartConsumer for Part<'_, T> {
    fn block(&mut self, block: &BlockData<'_>) -> Result<(), Error> {
        T::each_row(block, self.columns, |row| Ok(self.file.add(row)?))
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        Ok(self.file.finish()?)
    }
}

/// A dataset of the history of scripts.
pub struct HistoryFiles {
    dataset: HistoryDataset<'static>,
    network: Network,
}

impl HistoryFiles {
    /// Begins the dataset, or continues it. `asked`: the first and the last prefix, if not all were asked
    /// for.
    ///
    /// # Errors
    /// Those of [`BlockFiles::open`].
    pub fn open(
        options: DatasetOptions,
        range: &HistoryRange,
        asked: Option<String>,
        hash_at: &HashAt<'_>,
    ) -> Result<Self, Error> {
        let HistoryRange { network, to, last, prefix_digits: digits, .. } = *range;
        let blocks = Blocks { network, from: Height(0), to, last, spent_to: None };
        let dataset = HistoryDataset::open(&RealDisk, options, blocks, digits, asked, hash_at);
        Ok(Self { dataset: dataset.map_err(refusal)?, network })
    }

    /// Completes the dataset, when all buckets have been read.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`] if the disk fails.
    pub fn complete(self) -> Result<WrittenFiles, Error> {
        Ok(self.dataset.complete()?)
    }
}

impl HistoryConsumer for HistoryFiles {
    fn begin_bucket(&self, bucket: u32) -> Result<Box<dyn HistorySink + '_>, Error> {
        Ok(Box::new(Bucket { folder: self.dataset.folder(bucket), network: self.network }))
    }
}

/// A folder of it.
struct Bucket<'a> {
    folder: HistoryFolder<'a, 'static>,
    network: Network,
}

impl HistorySink for Bucket<'_> {
    fn entry(&mut self, entry: &HistoryEntry) -> Result<(), Error> {
        Ok(self.folder.add(history_row(entry))?)
    }

    fn script(&mut self, script: &ScriptHistory) -> Result<(), Error> {
        with_script_row(script, self.network, |row| Ok(self.folder.add_script(row)?))
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        Ok(self.folder.finish()?)
    }
}

/// The error for a directory that cannot be begun or continued.
fn refusal(error: PartsError) -> Error {
    let usage = |detail: &str| Error::new(ErrorKind::Usage, detail).with_remedies([Remedy::OtherName]);
    match error {
        PartsError::Unfinished(error) => error.into(),
        PartsError::OtherRequest(path) => {
            let detail = "an interrupted export with other options, or up to another block, has left this \
                          directory; repeat that one, up to the height `to` in its dataset.json, or remove \
                          the directory";
            usage(detail).in_file(path, None)
        }
        PartsError::OtherContent(path) => {
            let detail = "it has a complete export with other options; export into another directory";
            usage(detail).in_file(path, None)
        }
        PartsError::Exists(path) => usage("it exists already").in_file(path, None),
        PartsError::Foreign(_) | PartsError::WouldLose { .. } => usage(&error.to_string()),
    }
}

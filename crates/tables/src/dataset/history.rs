//! A dataset of what each output script got and spent: files by script hash, in folders, and by height.

use super::{ColumnText, DatasetFile, DatasetOptions, Files, PROGRAM, WrittenFiles, refusal, text, units};
use crate::rows::{history_row, with_script_row};
use engine::{
    Error, Height, RealDisk,
    blocks::{BlockRange, HashAt},
    history::{HistoryConsumer, HistoryEntry, HistoryRange, HistorySink, ScriptHistory},
};
use export::{Columns, HistoryTable, Parts, ScriptTable, Table};
use serde::Serialize;
use std::collections::{BTreeMap, btree_map::Entry};
use std::num::NonZeroU32;

/// Maximum number of rows of the files of a folder that are not written yet: as many as four files have that
/// are not flushed.
const FOLDER_ROWS: u32 = 1 << 17;

/// See the module. Several threads can write its folders at the same time.
pub struct HistoryDataset {
    files: Files,
    content: String,
    prefix_digits: usize,
    file_blocks: u32,
    /// Number of rows after which a file is flushed.
    flushed_rows: u64,
}

/// What a dataset has, in `.dataset.json`.
#[derive(Serialize)]
struct Content {
    program: &'static str,
    tables: [TableText; 2],
    format: &'static str,
    chain: &'static str,
    /// Height of the first block.
    from: u32,
    /// Height of the last block.
    to: u32,
    /// Hash of the last block.
    block_hash: String,
    /// Number of hexadecimal digits of a script hash that are the value of `prefix`.
    prefix_digits: u32,
    /// The first and the last value of `prefix`, if not all were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefixes: Option<String>,
    /// The values of `from_height`.
    heights: Vec<Heights>,
    units: BTreeMap<&'static str, &'static str>,
}

#[derive(Serialize)]
struct TableText {
    table: &'static str,
    /// The files.
    files: String,
    columns: Vec<ColumnText>,
}

#[derive(Serialize)]
struct Heights {
    from_height: u32,
    /// Height of the last block.
    to: u32,
    /// Hash of the last block.
    block_hash: String,
}

impl HistoryDataset {
    /// Maximum number of files for the history of the scripts of a folder. All are open at the same time.
    pub const FOLDER_FILES: u32 = 64;
    /// Memory in bytes of the files that are written for the scripts of a folder: rows that are not written
    /// yet, and what the format makes of them.
    pub const FOLDER_BYTES: u64 = 48 << 20;

    /// Begins the dataset, or continues what an interrupted run has left. `file_blocks`: number of blocks of
    /// a file; `asked`: the first and the last prefix, if not all were asked for.
    ///
    /// # Errors
    /// Those of [`BlockDataset::open`](super::BlockDataset::open).
    pub fn open(
        options: DatasetOptions,
        file_blocks: NonZeroU32,
        range: &HistoryRange,
        asked: Option<String>,
        hash_at: &HashAt<'_>,
    ) -> Result<Self, Error> {
        let HistoryRange { network, to, last, prefix_digits: digits, .. } = *range;
        let blocks = BlockRange { network, from: Height(0), to, last, spent_to: None };
        let DatasetOptions { output, format, columns, .. } = &options;
        let (to, format, file_blocks) = (to.0, *format, file_blocks.get());
        let heights = |number: u32| {
            let from_height = number * file_blocks;
            let last = to.min(from_height.saturating_add(file_blocks - 1));
            Heights { from_height, to: last, block_hash: hash_at(Height(last)).to_string() }
        };
        let table = |table, columns| TableText { table, files: format!("{table}/**/*.{format}"), columns };
        let content = text(&Content {
            program: PROGRAM,
            tables: [
                table(HistoryTable::NAME, ColumnText::all::<HistoryTable>(columns)),
                table(ScriptTable::NAME, ColumnText::all::<ScriptTable>(&Columns::all::<ScriptTable>(true))),
            ],
            format: format.name(),
            chain: network.name(),
            from: 0,
            to,
            block_hash: last.to_string(),
            prefix_digits: digits,
            prefixes: asked,
            heights: (0..=to / file_blocks).map(heights).collect(),
            units: units(),
        });
        let flushed_rows = u64::from(FOLDER_ROWS / (to / file_blocks + 1)).max(1);
        let parts = Parts::open(&RealDisk, output, &content).map_err(|error| refusal(error, &content))?;
        let files = Files::new(parts, options, blocks);
        Ok(Self { files, content, prefix_digits: digits as usize, file_blocks, flushed_rows })
    }

    /// Completes the directory, when all buckets have been read.
    ///
    /// # Errors
    /// [`engine::ErrorKind::Environment`] if the disk fails.
    pub fn complete(self) -> Result<WrittenFiles, Error> {
        self.files.complete(&self.content)
    }
}

impl HistoryConsumer for HistoryDataset {
    fn begin_bucket(&self, bucket: u32) -> Result<Box<dyn HistorySink + '_>, Error> {
        let prefix = format!("prefix={bucket:0digits$x}", digits = self.prefix_digits);
        Ok(Box::new(HistoryFolder { dataset: self, prefix, history: BTreeMap::new(), scripts: None }))
    }
}

/// The files with the scripts whose hashes begin with the same digits. A file of an interrupted run, which is
/// kept, is `None`.
struct HistoryFolder<'a> {
    dataset: &'a HistoryDataset,
    /// The name of the folder in each table's folder.
    prefix: String,
    /// By the height of the first block.
    history: BTreeMap<u32, Option<DatasetFile<'a, HistoryTable>>>,
    /// Begins with the first script.
    scripts: Option<Option<DatasetFile<'a, ScriptTable>>>,
}

impl HistorySink for HistoryFolder<'_> {
    fn entry(&mut self, entry: &HistoryEntry) -> Result<(), Error> {
        let Self { dataset, prefix, history, .. } = self;
        let HistoryDataset { files, file_blocks, flushed_rows, .. } = dataset;
        let DatasetOptions { format, columns, .. } = &files.options;
        let from = entry.height.0 / file_blocks * file_blocks;
        let file = match history.entry(from) {
            Entry::Occupied(file) => file.into_mut(),
            Entry::Vacant(none) => {
                let table = HistoryTable::NAME;
                let name = format!("{table}/{prefix}/from_height={from:07}/{table}.{format}");
                let to = files.blocks.to.0.min(from.saturating_add(file_blocks - 1));
                none.insert(files.begin(&name, columns, from..=to)?)
            }
        };
        let Some(file) = file else { return Ok(()) };
        file.rows.add(history_row(entry))?;
        if file.rows.rows().is_multiple_of(*flushed_rows) {
            file.rows.flush()?;
        }
        Ok(())
    }

    fn script(&mut self, script: &ScriptHistory) -> Result<(), Error> {
        let Self { dataset: HistoryDataset { files, .. }, prefix, scripts, .. } = self;
        let file = match scripts {
            Some(file) => file,
            None => {
                let (table, columns) = (ScriptTable::NAME, Columns::all::<ScriptTable>(true));
                let name = format!("{table}/{prefix}/{table}.{}", files.options.format);
                scripts.insert(files.begin(&name, &columns, 0..=files.blocks.to.0)?)
            }
        };
        let Some(file) = file else { return Ok(()) };
        with_script_row(script, files.blocks.network, |row| Ok(file.rows.add(row)?))
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        self.history.into_values().flatten().try_for_each(DatasetFile::finish)?;
        self.scripts.flatten().map_or(Ok(()), DatasetFile::finish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affordable_threads;
    use engine::{BlockHash, Network};
    use export::FileFormat;
    use std::num::NonZeroUsize;

    /// Once, a zero was a divisor, and files of one block were never flushed.
    #[test]
    fn sizes_of_zero_count_as_one() {
        assert_eq!(affordable_threads(3, 0, NonZeroUsize::MAX).get(), 2);
        let dir = tempfile::tempdir().unwrap();
        let options = DatasetOptions {
            output: dir.path().join("history"),
            format: FileFormat::Csv,
            columns: Columns::all::<HistoryTable>(true),
            partitioned: false,
            append: false,
        };
        let (network, to, last) = (Network::Regtest, Height(FOLDER_ROWS), BlockHash::default());
        let hash_at = |_: Height| BlockHash::default();
        let range = HistoryRange { network, to, last, prefix_digits: 0, first_prefix: 0, last_prefix: 0 };
        let history = HistoryDataset::open(options, NonZeroU32::MIN, &range, None, &hash_at);
        assert_eq!(history.map(|history| history.flushed_rows).unwrap(), 1);
    }
}

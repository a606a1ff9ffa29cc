//! A dataset of what blocks contain: a file for each so many blocks. One that is complete can be continued.

use super::{ColumnText, DatasetOptions, Files, PROGRAM, WrittenFiles, refusal, text, units};
use crate::rows::BlockRows;
use engine::{
    Error, Height, RealDisk,
    blocks::{BlockConsumer, BlockRange, HashAt, PartConsumer},
};
use export::{Continued, FileFormat, ParquetOptions, Parts};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, marker::PhantomData, ops::RangeInclusive};

/// See the module. Several threads can write its files at the same time.
pub struct BlockDataset<T> {
    files: Files,
    content: Content,
    table: PhantomData<fn() -> T>,
}

impl<T: BlockRows> BlockDataset<T> {
    /// Begins the dataset, or continues what an interrupted run has left.
    ///
    /// # Errors
    /// [`engine::ErrorKind::Usage`] if it exists or has other rows; [`engine::ErrorKind::Environment`] if it
    /// cannot be written.
    pub fn open(options: DatasetOptions, blocks: &BlockRange, hash_at: &HashAt<'_>) -> Result<Self, Error> {
        let content = Content::of::<T>(&options, blocks, hash_at);
        let continued = |found: &[u8]| match serde_json::from_slice(found) {
            Ok(old) => content.continued(old),
            Err(_) => Ok(None),
        };
        let request = &text(&content);
        let parts = match options.append {
            true => Parts::append(&RealDisk, &options.output, request, continued),
            false => Parts::open(&RealDisk, &options.output, request),
        };
        let files = Files::new(parts.map_err(|error| refusal(error, request))?, options, *blocks);
        Ok(Self { files, content, table: PhantomData })
    }

    /// Completes the directory, when all blocks have been read.
    ///
    /// # Errors
    /// [`engine::ErrorKind::Environment`] if the disk fails.
    pub fn complete(mut self) -> Result<WrittenFiles, Error> {
        for file in &mut self.content.files {
            file.bytes = self.files.parts.complete_len(&file.file)?;
        }
        self.files.complete(&text(&self.content))
    }
}

impl<T: BlockRows> BlockConsumer for BlockDataset<T> {
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        let found = self.content.files.iter().find(|file| (file.from..=file.to).contains(heights.start()));
        let Some(ContentFile { file, from, to, .. }) = found else { return Ok(None) };
        let begun = self.files.begin::<T>(file, &self.files.options.columns, *from..=*to)?;
        Ok(begun.map(|file| Box::new(file) as _))
    }
}

/// What a dataset has, in `.dataset.json`.
#[derive(Serialize, Deserialize)]
struct Content {
    program: String,
    table: String,
    format: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zstd_level: Option<i32>,
    /// Number of rows in a row group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    row_group: Option<u32>,
    columns: Vec<ColumnText>,
    #[serde(skip_deserializing)]
    units: BTreeMap<&'static str, &'static str>,
    chain: String,
    /// Height of the first block.
    from: u32,
    /// Height of the last block.
    to: u32,
    /// Hash of the last block.
    block_hash: String,
    /// Height of the last block whose inputs were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spent_to: Option<u32>,
    /// Its hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spent_to_hash: Option<String>,
    files: Vec<ContentFile>,
}

#[derive(Serialize, Deserialize, PartialEq)]
struct ContentFile {
    file: String,
    /// Height of its first block.
    from: u32,
    /// Height of its last block.
    to: u32,
    /// Its size, when the directory is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Hash of its last block.
    block_hash: String,
}

impl Content {
    fn of<T: BlockRows>(options: &DatasetOptions, blocks: &BlockRange, hash_at: &HashAt<'_>) -> Self {
        let DatasetOptions { format, ref columns, partitioned, .. } = *options;
        let (from, to) = (blocks.from.0, blocks.to.0);
        let file = |number: u32| {
            let (name, first) = (T::NAME, number * T::FILE_BLOCKS);
            let last = (first + (T::FILE_BLOCKS - 1)).min(to);
            let file = match partitioned {
                true => format!("from_height={first:07}/{name}.{format}"),
                false => format!("{name}-{first:07}.{format}"),
            };
            let block_hash = hash_at(Height(last)).to_string();
            ContentFile { file, from: first.max(from), to: last, block_hash, bytes: None }
        };
        let ParquetOptions { zstd_level, row_group } = match format {
            FileFormat::Parquet(options) => options,
            _ => ParquetOptions::default(),
        };
        Self {
            program: PROGRAM.to_owned(),
            table: T::NAME.to_owned(),
            format: format.name().to_owned(),
            zstd_level,
            row_group: row_group.map(u32::from),
            columns: ColumnText::all::<T>(columns),
            units: units(),
            chain: blocks.network.name().to_owned(),
            from,
            to,
            block_hash: blocks.last.to_string(),
            spent_to: blocks.spent_to.map(|spent_to| spent_to.height.0),
            spent_to_hash: blocks.spent_to.map(|spent_to| spent_to.hash.to_string()),
            files: (from / T::FILE_BLOCKS..=to / T::FILE_BLOCKS).map(file).collect(),
        }
    }

    /// What stays if a directory with `old` is continued for this; `None` if it has other rows.
    ///
    /// # Errors
    /// What would be lost.
    fn continued(&self, mut old: Self) -> Result<Option<Continued>, String> {
        let files = old.files.iter_mut().map(|file| (file.file.clone(), file.bytes.take())).collect();
        let is_same = old.table == self.table
            && (&old.format, old.zstd_level, old.row_group)
                == (&self.format, self.zstd_level, self.row_group)
            && old.columns == self.columns
            && old.chain == self.chain
            && old.from == self.from;
        let outdated = || old.files.iter().filter(|file| !self.files.contains(file));
        // It only names files of its own.
        let form = |file: &ContentFile| file.file.replace(|letter: char| letter.is_ascii_digit(), "");
        let is_own = |file: &ContentFile| self.files.first().is_some_and(|own| form(own) == form(file));
        if !is_same || !old.files.iter().all(is_own) {
            return Ok(None);
        }
        if old.to > self.to {
            return Err(format!(
                "it has the blocks up to height {}, and this run ends at {}: they would be lost; export into \
                 another directory, or wait until the chain is as high",
                old.to, self.to
            ));
        }
        // The last file gets more blocks, and a reorganisation can replace one before it.
        if outdated().count() > 2 {
            let first = outdated().next().map_or(0, |file| file.from);
            return Err(format!(
                "its blocks from height {first} on are those of another chain, and would be lost; export \
                 into another directory"
            ));
        }
        let outdated = outdated().map(|file| file.file.clone()).collect();
        let to_come = self.files.iter().map(|file| file.file.clone()).collect();
        Ok(Some(Continued { files, outdated, to_come }))
    }
}

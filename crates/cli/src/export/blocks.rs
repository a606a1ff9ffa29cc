//! `peregrine export blocks`, `transactions`, `inputs` and `outputs`: what blocks contain, in files that each
//! have the same number of blocks.

use super::{DatasetColumn, Directory, PROGRAM, Tip, Units, WrittenFiles};
use crate::{
    args::common::ReadingArgs,
    limits::{WORKER_BYTES, affordable_threads},
    paths,
    progress::stages,
    rows::Rows,
    units::{btc, counted},
};
use clap::Args as ClapArgs;
use engine::{
    BlockHash, ChainOptions, Error, ErrorKind, Height, Network, RealDisk,
    blocks::{
        BlockConsumer, BlockData, BlockRange, HashAt, PartConsumer, ReadBlocksOptions, SpendsOptions,
        SpentTo, UnspentOutputs,
    },
    hex_reversed,
};
use export::{Columns, Continued, FileFormat, ParquetOptions, Parts, RowFile};
use peregrine::{
    exit::Exit,
    output::{Done, reply},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{marker::PhantomData, num::NonZeroU32, ops::RangeInclusive, path::PathBuf, time::Instant};
use tables::BlockRows;

/// The part of it that is for a row group.
const ROW_GROUP_BYTES: u64 = 16 << 20;
/// Memory in bytes of a row that is encoded; scripts of unusual length take more.
const ROW_BYTES: u64 = 128;
/// Maximum number of rows in a row group.
const MAX_ROW_GROUP: i64 = 1 << 24;

#[derive(ClapArgs, Debug)]
pub struct ExportBlocksArgs {
    #[command(flatten)]
    pub reading: ReadingArgs,

    /// First block
    #[arg(long, value_name = "HEIGHT", alias = "from", default_value_t = 0)]
    pub from_height: u32,

    /// Last block [default: the chainstate's best block]
    #[arg(long, value_name = "HEIGHT")]
    pub to: Option<u32>,

    /// Format of the files: parquet, arrow or csv
    #[arg(long, default_value_t = FileFormat::PARQUET)]
    pub format: FileFormat,

    /// Level of compression of Parquet files, 1 to 22 [default: 1]
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(i32).range(1..=22))]
    #[arg(hide_short_help = true)]
    pub zstd: Option<i32>,

    /// Number of rows in a row group of Parquet files, up to 16777216 [default: up to 131072]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..=MAX_ROW_GROUP))]
    #[arg(hide_short_help = true)]
    pub row_group: Option<u32>,

    /// Write each file into a folder that is named as a column: from_height=0840000
    #[arg(long)]
    pub partitioned: bool,

    /// Columns to write, of those that the documentation lists [default: all, without addresses]
    #[arg(long, value_name = "NAME[,NAME..]", value_delimiter = ',')]
    pub columns: Vec<String>,

    /// Continue the directory up to the last block: files whose blocks are still those of the chain stay,
    /// also if a reorganisation has replaced others
    #[arg(long)]
    pub append: bool,

    /// Directory to write; without --append, it must not exist. What an interrupted run has left of it is
    /// completed
    #[arg(long, short, value_name = "PATH")]
    pub output: PathBuf,
}

#[derive(ClapArgs, Debug)]
pub struct ExportScriptsArgs {
    #[command(flatten)]
    pub blocks: ExportBlocksArgs,

    /// Also write addresses
    #[arg(long, conflicts_with = "columns")]
    pub addresses: bool,
}

#[derive(ClapArgs, Debug)]
pub struct ExportOutputsArgs {
    #[command(flatten)]
    pub scripts: ExportScriptsArgs,

    #[command(flatten)]
    pub spends: SpendsArgs,
}

#[derive(ClapArgs, Debug)]
pub struct SpendsArgs {
    /// Also write by which input each output is spent: all columns that begin with spent_ [not with --append]
    #[arg(long, conflicts_with_all = ["columns", "append"])]
    pub spent: bool,

    /// With such columns: the last block whose inputs are looked at [default: the last one that can be read]
    #[arg(long, value_name = "HEIGHT")]
    pub spent_to: Option<u32>,

    /// With such columns: directory for temporary files [default: beside the result]
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,
}

#[derive(Serialize, JsonSchema)]
pub struct ExportedBlocksJson {
    #[serde(flatten)]
    written: WrittenFiles,
    chain: Network,
    from: Height,
    to: Height,
    /// The last block.
    block_hash: BlockHash,
    /// With the inputs that spend outputs: the last block whose inputs were looked at. `unspent` is `null`
    /// unless all outputs up to it were written by this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    spent_to: Option<SpentTo>,
    seconds: f64,
}

/// Exports a table.
pub fn export<T: BlockRows>(args: &ExportBlocksArgs, addresses: bool, spends: Option<&SpendsArgs>) -> Done {
    let started = Instant::now();
    let (located, chain) = args.reading.locate()?;
    let work_dir = spends.and_then(|spends| spends.work_dir.as_deref());
    paths::check_output(work_dir, &located, &args.output)?;
    let columns = super::columns::<T>(&args.columns, addresses)?;
    let columns = if spends.is_some_and(|it| it.spent) { columns.with_spends::<T>() } else { columns };
    let spends = spends_options::<T>(args, spends, &columns)?;
    let format = file_format(args)?;
    let stages = if spends.is_some() { stages::EXPORT_SPENT } else { stages::EXPORT_BLOCKS };
    let work_dir = Some(super::work_dir(work_dir, &args.output));
    let chain = ChainOptions { work_dir, ..chain };
    let options = options::<T>(args, chain, spends);
    let begin = |range: &BlockRange, hash_at: &HashAt<'_>| {
        BlockFiles::<T>::open(args, format, columns, range, hash_at)
    };
    let (range, files) = args.reading.datadir.run(Some(&options.chain), stages, |sink, interrupt| {
        engine::blocks::read(&RealDisk, &options, begin, sink, interrupt)
    })?;
    let BlockFiles { directory, dataset, .. } = files;
    let content = dataset.with_sizes(&directory.parts)?.text();
    let exported = ExportedBlocksJson {
        written: directory.complete(&args.output, &content)?,
        chain: range.network,
        from: range.from,
        to: range.to,
        block_hash: range.last,
        spent_to: range.spent_to,
        seconds: started.elapsed().as_secs_f64(),
    };
    Ok(reply(&exported, Exit::Done, rows))
}

/// The format with its options.
fn file_format(args: &ExportBlocksArgs) -> Result<FileFormat, Error> {
    match args.format {
        FileFormat::Parquet(default) => Ok(FileFormat::Parquet(ParquetOptions {
            zstd_level: args.zstd.unwrap_or(default.zstd_level),
            row_group: args.row_group.and_then(NonZeroU32::new),
        })),
        format if args.zstd.is_none() && args.row_group.is_none() => Ok(format),
        format => {
            let detail = format!("--zstd and --row-group are for Parquet files, not for {format}");
            Err(Error::new(ErrorKind::Usage, detail))
        }
    }
}

/// Which spending inputs the columns need.
fn spends_options<T: BlockRows>(
    args: &ExportBlocksArgs,
    spends: Option<&SpendsArgs>,
    columns: &Columns,
) -> Result<Option<SpendsOptions>, Error> {
    let Some(SpendsArgs { spent_to, work_dir, .. }) = spends else { return Ok(None) };
    let text = match (columns.has_spends::<T>(), args.append) {
        (true, true) => {
            "--append keeps files, but each new block spends outputs that they have as unspent; export \
             columns that begin with spent_ into a new directory"
        }
        (false, _) if spent_to.is_some() || work_dir.is_some() => {
            "--spent-to and --work-dir are for --spent, or for columns that begin with spent_"
        }
        (false, _) => return Ok(None),
        (true, false) => {
            let with_txids = columns.has::<T>("spent_txid");
            return Ok(Some(SpendsOptions { to: spent_to.map(Height), with_txids }));
        }
    };
    Err(Error::new(ErrorKind::Usage, text))
}

fn options<T: BlockRows>(
    args: &ExportBlocksArgs,
    chain: ChainOptions,
    spends: Option<SpendsOptions>,
) -> ReadBlocksOptions {
    // Half of the memory is for spending inputs.
    let for_workers = chain.memory_bytes / if spends.is_some() { 2 } else { 1 };
    let group_bytes = args.row_group.map_or(0, |rows| u64::from(rows) * ROW_BYTES);
    let worker_bytes = WORKER_BYTES + group_bytes.saturating_sub(ROW_GROUP_BYTES);
    let threads = affordable_threads(for_workers, worker_bytes, chain.threads);
    ReadBlocksOptions {
        chain: ChainOptions { threads, stop_at_height: args.to.map(Height), ..chain },
        from: Height(args.from_height),
        with_coins: T::NEEDS_COINS,
        spends,
        part_blocks: T::FILE_BLOCKS,
    }
}

/// The directory that is written, with a file for each so many blocks.
struct BlockFiles<T> {
    directory: Directory,
    dataset: Dataset,
    partitioned: bool,
    table: PhantomData<fn() -> T>,
}

impl<T: BlockRows> BlockFiles<T> {
    fn open(
        args: &ExportBlocksArgs,
        format: FileFormat,
        columns: Columns,
        range: &BlockRange,
        hash_at: &HashAt<'_>,
    ) -> Result<Self, Error> {
        let dataset = Dataset::of::<T>(args, &columns, range, hash_at);
        let continued = |found: &[u8]| match serde_json::from_slice(found) {
            Ok(old) => dataset.continued(old),
            Err(_) => Ok(None),
        };
        let parts = match args.append {
            true => Parts::append(&RealDisk, &args.output, &dataset.text(), continued),
            false => Parts::open(&RealDisk, &args.output, &dataset.text()),
        };
        let parts = parts.map_err(|error| super::refusal(error, &args.output))?;
        let tip = Tip { network: range.network, height: range.to, hash: range.last };
        let mut directory = Directory::new(parts, format, columns, &tip);
        directory.tip.extend(range.spent_to.iter().flat_map(|SpentTo { height, hash, .. }| {
            [("spent_to_height", height.to_string()), ("spent_to_hash", hash.to_string())]
        }));
        Ok(Self { directory, dataset, partitioned: args.partitioned, table: PhantomData })
    }
}

/// What a directory is for, in the file `.dataset.json` beside it: it determines all files of the directory.
#[derive(Serialize, Deserialize)]
struct Dataset {
    program: String,
    table: String,
    format: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zstd_level: Option<i32>,
    /// Number of rows in a row group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    row_group: Option<u32>,
    columns: Vec<DatasetColumn>,
    #[serde(skip_deserializing)]
    units: Units,
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
    files: Vec<DatasetFile>,
}

#[derive(Serialize, Deserialize, PartialEq)]
struct DatasetFile {
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

impl Dataset {
    fn of<T: BlockRows>(
        args: &ExportBlocksArgs,
        columns: &Columns,
        range: &BlockRange,
        hash_at: &HashAt<'_>,
    ) -> Self {
        let (from, to) = (range.from.0, range.to.0);
        let file = |number: u32| {
            let first = (number * T::FILE_BLOCKS).max(from);
            let last = ((number + 1) * T::FILE_BLOCKS - 1).min(to);
            let block_hash = hash_at(Height(last)).to_string();
            DatasetFile {
                file: file_name::<T>(number, args.format, args.partitioned),
                from: first,
                to: last,
                block_hash,
                bytes: None,
            }
        };
        Self {
            program: PROGRAM.to_owned(),
            table: T::NAME.to_owned(),
            format: args.format.name().to_owned(),
            zstd_level: args.zstd,
            row_group: args.row_group,
            columns: DatasetColumn::all::<T>(columns),
            units: Units::default(),
            chain: range.network.name().to_owned(),
            from,
            to,
            block_hash: range.last.to_string(),
            spent_to: range.spent_to.map(|last| last.height.0),
            spent_to_hash: range.spent_to.map(|last| last.hash.to_string()),
            files: (from / T::FILE_BLOCKS..=to / T::FILE_BLOCKS).map(file).collect(),
        }
    }

    fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// With the sizes of its files, which are complete.
    fn with_sizes(mut self, parts: &Parts<'_>) -> Result<Self, Error> {
        for file in &mut self.files {
            file.bytes = parts.complete_len(&file.file)?;
        }
        Ok(self)
    }

    /// What stays if a directory for `old` is continued for this; `None` if it has other rows.
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
        let form = |file: &DatasetFile| file.file.replace(|letter: char| letter.is_ascii_digit(), "");
        let is_own = |file: &DatasetFile| self.files.first().is_some_and(|own| form(own) == form(file));
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

/// The name of the file with the blocks from `number` times those of a file on.
fn file_name<T: BlockRows>(number: u32, format: FileFormat, partitioned: bool) -> String {
    let (name, height) = (T::NAME, number * T::FILE_BLOCKS);
    if partitioned {
        format!("from_height={height:07}/{name}.{format}")
    } else {
        format!("{name}-{height:07}.{format}")
    }
}

impl<T: BlockRows> BlockConsumer for BlockFiles<T> {
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        let number = heights.start() / T::FILE_BLOCKS;
        let directory = &self.directory;
        let name = file_name::<T>(number, directory.format, self.partitioned);
        let Some(file) = directory.begin(&name, &directory.columns)? else { return Ok(None) };
        Ok(Some(Box::new(Part::<T> { directory, heights, file })))
    }
}

/// A file of the directory.
struct Part<'a, T> {
    directory: &'a Directory,
    heights: RangeInclusive<u32>,
    file: RowFile<'static, T>,
}

impl<T: BlockRows> PartConsumer for Part<'_, T> {
    fn block(&mut self, block: &BlockData<'_>) -> Result<(), Error> {
        T::each_row(block, &self.directory.columns, |row| Ok(self.file.add(row)?))
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        self.directory.finish(self.file, &self.heights)
    }
}

fn rows(exported: &ExportedBlocksJson) -> Rows {
    let ExportedBlocksJson { written, from, to, block_hash, spent_to, .. } = exported;
    let unspent = spent_to.as_ref().and_then(|spent_to| spent_to.unspent.as_ref());
    let amount = |unspent: &UnspentOutputs| {
        format!("{}, {} BTC", counted(unspent.coins, "coin"), btc(unspent.total_amount.0))
    };
    Rows::default()
        .row("export", written.text("kept"))
        .row("blocks", format!("{from} to {to}"))
        .row("last block", block_hash)
        .each("spent up to", spent_to.iter().map(|last| format!("{}, {}", last.height, last.hash)))
        .each("unspent", unspent.map(amount))
        .each("muhash", unspent.map(|unspent| hex_reversed(&unspent.muhash)))
}

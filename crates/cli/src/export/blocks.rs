//! `peregrine export blocks`, `transactions`, `inputs` and `outputs`: what blocks contain, in files that each
//! have the same number of blocks.

use super::PROGRAM;
use crate::{
    args::common::{DatadirArgs, size},
    paths,
    progress::{Style, stages},
    run,
    units::{count, counted},
};
use clap::Args as ClapArgs;
use engine::{
    BlockConsumer, BlockData, BlockHash, BlockRange, ChainOptions, Error, ErrorKind, HashAt, Height,
    HumanSize, Network, PartConsumer, ReadBlocksOptions, RealDisk, Remedy, read_blocks,
};
use export::{Columns, FileFormat, Parts, PartsError, RowFile};
use peregrine::{
    exit::Exit,
    output::{Done, reply},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    marker::PhantomData,
    num::NonZeroUsize,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Instant,
};
use tables::BlockRows;

/// Memory in bytes of a worker: the rows of a file that are not written yet, and what its format makes of
/// them.
const WORKER_BYTES: u64 = 64 << 20;

#[derive(ClapArgs, Debug)]
pub struct ExportBlocksArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// First block
    #[arg(long, value_name = "HEIGHT", default_value_t = 0)]
    pub from: u32,

    /// Last block [default: the chainstate's best block]
    #[arg(long, value_name = "HEIGHT")]
    pub to: Option<u32>,

    /// Format of the files: parquet, arrow or csv
    #[arg(long, default_value_t = FileFormat::Parquet)]
    pub format: FileFormat,

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

    /// Read beside a running bitcoind; the last six blocks are left out
    #[arg(long)]
    pub live: bool,

    /// Ignore the block index and find blocks and undo data by reading their files
    #[arg(long)]
    pub scan: bool,

    /// Memory limit of the whole process: 128M, 1G, ... [default: a quarter of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,

    /// How to show progress
    #[arg(long, value_enum, default_value_t = Style::Auto)]
    pub progress: Style,
}

#[derive(ClapArgs, Debug)]
pub struct ExportScriptsArgs {
    #[command(flatten)]
    pub blocks: ExportBlocksArgs,

    /// Also write addresses
    #[arg(long, conflicts_with = "columns")]
    pub addresses: bool,
}

#[derive(Serialize, JsonSchema)]
pub struct ExportedBlocksJson {
    /// The directory that was written.
    output: String,
    format: &'static str,
    files: u32,
    /// Those of them that an interrupted run had completed.
    files_kept: u32,
    bytes: u64,
    chain: Network,
    from: Height,
    to: Height,
    /// The last block.
    block_hash: BlockHash,
    seconds: f64,
}

/// Exports a table.
pub fn export<T: BlockRows>(args: &ExportBlocksArgs, addresses: bool) -> Done {
    let started = Instant::now();
    let located = args.datadir.core.locate()?;
    paths::check_output(None, &located, &args.output)?;
    let options = options::<T>(args, args.datadir.default_options(&located));
    let columns = super::columns::<T>(&args.columns, addresses)?;
    let begin =
        |range: &BlockRange, hash_at: &HashAt<'_>| Directory::<T>::open(args, columns, range, hash_at);
    let (range, directory) =
        run::run(Some(&options.chain), args.progress, stages::EXPORT_BLOCKS, |sink, interrupt| {
            read_blocks(&RealDisk, &options, begin, sink, interrupt)
        })?;
    directory.parts.finish()?;
    let exported = ExportedBlocksJson {
        output: args.output.display().to_string(),
        format: args.format.name(),
        files: directory.files.into_inner(),
        files_kept: directory.files_kept.into_inner(),
        bytes: directory.bytes.into_inner(),
        chain: range.network,
        from: range.from,
        to: range.to,
        block_hash: range.last,
        seconds: started.elapsed().as_secs_f64(),
    };
    Ok(reply(&exported, Exit::Done, text))
}

fn options<T: BlockRows>(args: &ExportBlocksArgs, chain: ChainOptions) -> ReadBlocksOptions {
    let memory_bytes = args.memory.unwrap_or(chain.memory_bytes);
    let threads = reading_threads(memory_bytes, chain.threads);
    ReadBlocksOptions {
        chain: ChainOptions { memory_bytes, threads, live: args.live, ..chain },
        scan: args.scan,
        from: Height(args.from),
        to: args.to.map(Height),
        with_coins: T::NEEDS_COINS,
        part_blocks: T::FILE_BLOCKS,
    }
}

/// The number of threads that so much memory suffices for.
pub fn reading_threads(memory_bytes: u64, threads: NonZeroUsize) -> NonZeroUsize {
    let affordable = usize::try_from(memory_bytes / WORKER_BYTES).unwrap_or(usize::MAX).saturating_sub(1);
    threads.min(NonZeroUsize::new(affordable).unwrap_or(NonZeroUsize::MIN))
}

/// The directory that is written.
struct Directory<T> {
    parts: Parts<'static>,
    format: FileFormat,
    columns: Columns,
    range: BlockRange,
    files: AtomicU32,
    files_kept: AtomicU32,
    bytes: AtomicU64,
    table: PhantomData<fn() -> T>,
}

impl<T: BlockRows> Directory<T> {
    fn open(
        args: &ExportBlocksArgs,
        columns: Columns,
        range: &BlockRange,
        hash_at: &HashAt<'_>,
    ) -> Result<Self, Error> {
        let dataset = Dataset::of::<T>(args, &columns, range, hash_at);
        let request = serde_json::to_string_pretty(&dataset).unwrap_or_default() + "\n";
        let outdated = |found: &[u8]| dataset.outdated(serde_json::from_slice(found).ok()?);
        let parts = match args.append {
            true => Parts::append(&RealDisk, &args.output, &request, outdated),
            false => Parts::open(&RealDisk, &args.output, &request),
        };
        let parts = parts.map_err(|error| refusal(error, args))?;
        let (files, files_kept, bytes, table) = Default::default();
        Ok(Self { parts, format: args.format, columns, range: *range, files, files_kept, bytes, table })
    }
}

/// What a directory is for, in its file `dataset.json`: it determines all other files.
#[derive(Serialize, Deserialize, PartialEq)]
struct Dataset {
    program: String,
    table: String,
    format: String,
    columns: Vec<DatasetColumn>,
    chain: String,
    /// Height of the first block.
    from: u32,
    /// Height of the last block.
    to: u32,
    /// Hash of the last block.
    block_hash: String,
    files: Vec<DatasetFile>,
}

#[derive(Serialize, Deserialize, PartialEq)]
struct DatasetColumn {
    name: String,
    /// Its type in Arrow.
    r#type: String,
}

#[derive(Serialize, Deserialize, PartialEq)]
struct DatasetFile {
    file: String,
    /// Height of its first block.
    from: u32,
    /// Height of its last block.
    to: u32,
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
            DatasetFile { file: file_name::<T>(number, args.format), from: first, to: last, block_hash }
        };
        let fields = columns.fields::<T>().into_iter();
        Self {
            program: PROGRAM.to_owned(),
            table: T::NAME.to_owned(),
            format: args.format.name().to_owned(),
            columns: fields.map(|(name, r#type)| DatasetColumn { name, r#type }).collect(),
            chain: range.network.name().to_owned(),
            from,
            to,
            block_hash: range.last.to_string(),
            files: (from / T::FILE_BLOCKS..=to / T::FILE_BLOCKS).map(file).collect(),
        }
    }

    /// The files that do not stay if a directory for `old` is continued for this; `None` if it has other
    /// rows.
    fn outdated(&self, old: Self) -> Option<Vec<String>> {
        let is_same = old.table == self.table
            && old.format == self.format
            && old.columns == self.columns
            && old.chain == self.chain
            && old.from == self.from;
        let outdated = old.files.into_iter().filter(|file| !self.files.contains(file));
        // It only names files of its own.
        let is_own = |name: &str| name.starts_with(&format!("{}-", self.table)) && !name.contains('/');
        let names: Vec<String> = outdated.map(|file| file.file).collect();
        (is_same && names.iter().all(|name| is_own(name))).then_some(names)
    }
}

/// The name of the file with the blocks from `number` times those of a file on.
fn file_name<T: BlockRows>(number: u32, format: FileFormat) -> String {
    format!("{}-{:07}.{format}", T::NAME, number * T::FILE_BLOCKS)
}

fn refusal(error: PartsError, args: &ExportBlocksArgs) -> Error {
    match error {
        PartsError::Unfinished(error) => error.into(),
        PartsError::OtherRequest(path) => other_request(&path),
        _ => super::exists(&args.output),
    }
}

fn other_request(path: &Path) -> Error {
    let detail = "an interrupted export with other options has left this directory; repeat that one, or \
                  remove the directory";
    Error::new(ErrorKind::Usage, detail).in_file(path, None).with_remedies([Remedy::OtherName])
}

impl<T: BlockRows> BlockConsumer for Directory<T> {
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        let number = heights.start() / T::FILE_BLOCKS;
        let name = file_name::<T>(number, self.format);
        self.files.fetch_add(1, Ordering::Relaxed);
        if let Some(bytes) = self.parts.complete_len(&name)? {
            self.files_kept.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            return Ok(None);
        }
        let file = self.parts.begin(&name, self.format, &self.columns)?;
        Ok(Some(Box::new(Part::<T> { directory: self, heights, file })))
    }
}

/// A file of the directory.
struct Part<'a, T> {
    directory: &'a Directory<T>,
    heights: RangeInclusive<u32>,
    file: RowFile<'static, T>,
}

impl<T: BlockRows> PartConsumer for Part<'_, T> {
    fn block(&mut self, block: &BlockData<'_>) -> Result<(), Error> {
        let Directory { columns, range, .. } = self.directory;
        let network: Option<Network> = columns.has_addresses::<T>().then_some(range.network);
        T::each_row(block, network, |row| Ok(self.file.add(row)?))
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        let range = &self.directory.range;
        let metadata = [
            ("network", range.network.name().to_owned()),
            ("from", self.heights.start().to_string()),
            ("to", self.heights.end().to_string()),
            ("rows", self.file.rows().to_string()),
            ("tip_height", range.to.to_string()),
            ("tip_hash", range.last.to_string()),
            ("program", PROGRAM.to_owned()),
        ];
        let bytes = self.file.finish(&metadata)?;
        self.directory.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

fn text(exported: &ExportedBlocksJson) -> String {
    let kept = match exported.files_kept {
        0 => String::new(),
        kept => format!(", {} of an interrupted run", count(kept)),
    };
    format!(
        "export             {} ({}, {}{kept}, {})\n\
         blocks             {} to {}\n\
         last block         {}",
        exported.output,
        exported.format,
        counted(exported.files, "file"),
        HumanSize(exported.bytes),
        exported.from,
        exported.to,
        exported.block_hash
    )
}

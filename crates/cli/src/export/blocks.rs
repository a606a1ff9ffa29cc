//! `peregrine export blocks`, `transactions`, `inputs` and `outputs`: what blocks contain, in files that each
//! have the same number of blocks.

use super::written_text;
use crate::{args::common::ReadingArgs, limits::WORKER_BYTES, prelude::*};
use engine::blocks::{BlockRange, HashAt, UnspentOutputs};
use export::{Columns, FileFormat, ParquetOptions};
use std::{num::NonZeroU32, time::Instant};
use tables::{BlockDataset, BlockRows, DatasetOptions, WrittenFiles, read_options};

/// The part of [`WORKER_BYTES`] that is for a row group.
const ROW_GROUP_BYTES: u64 = 16 << 20;
/// Memory in bytes of a row that is encoded; scripts of unusual length take more.
const ROW_BYTES: u64 = 128;
/// Maximum number of rows in a row group.
const MAX_ROW_GROUP: i64 = 1 << 24;

#[derive(Args, Debug)]
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

#[derive(Args, Debug)]
pub struct ExportScriptsArgs {
    #[command(flatten)]
    pub blocks: ExportBlocksArgs,

    /// Also write addresses
    #[arg(long, conflicts_with = "columns")]
    pub addresses: bool,
}

#[derive(Args, Debug)]
pub struct ExportOutputsArgs {
    #[command(flatten)]
    pub scripts: ExportScriptsArgs,

    #[command(flatten)]
    pub spends: SpendsArgs,
}

#[derive(Args, Debug)]
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

json_of! {
pub struct ExportedBlocksJson(files: WrittenFiles, range: &BlockRange, started: Instant) {
    #[serde(flatten)]
    written: WrittenFiles = files,
    #[serde(flatten)]
    range: BlockRange = *range,
    seconds: f64 = started.elapsed().as_secs_f64(),
}
}

pub fn export<T: BlockRows>(args: &ExportBlocksArgs, addresses: bool, spends: Option<&SpendsArgs>) -> Done {
    let started = Instant::now();
    let (located, chain) = args.reading.locate()?;
    let work_dir = spends.and_then(|spends| spends.work_dir.as_deref());
    paths::check(&located, work_dir, &[("--output", Some(&args.output))])?;
    let columns = super::columns::<T>(&args.columns, addresses, spends.is_some_and(|it| it.spent))?;
    check_spends::<T>(args, spends, &columns)?;
    let format = file_format(args)?;
    let work_dir = Some(super::work_dir(work_dir, &args.output));
    let chain = ChainOptions { work_dir, stop_at_height: args.to.map(Height), ..chain };
    let spent_to = spends.and_then(|spends| spends.spent_to).map(Height);
    let group_bytes = args.row_group.map_or(0, |rows| u64::from(rows) * ROW_BYTES);
    let worker_bytes = WORKER_BYTES + group_bytes.saturating_sub(ROW_GROUP_BYTES);
    let options = read_options::<T>(chain, &columns, Height(args.from_height), spent_to, worker_bytes);
    let stages = if options.spends.is_some() { stages::EXPORT_SPENT } else { stages::EXPORT_BLOCKS };
    let begin = |range: &BlockRange, hash_at: &HashAt<'_>| {
        let dataset = DatasetOptions {
            output: args.output.clone(),
            format,
            columns,
            partitioned: args.partitioned,
            append: args.append,
        };
        BlockDataset::<T>::open(dataset, range, hash_at)
    };
    let (range, files) = args
        .reading
        .datadir
        .run(Some(&options.chain), stages, |watch| engine::blocks::read(&RealDisk, &options, begin, watch))?;
    let exported = ExportedBlocksJson::of(files.complete()?, &range, started);
    Ok(reply(&exported, Exit::Done, rows))
}

fn file_format(args: &ExportBlocksArgs) -> Result<FileFormat, Error> {
    match args.format {
        FileFormat::Parquet(_) => Ok(FileFormat::Parquet(ParquetOptions {
            zstd_level: args.zstd,
            row_group: args.row_group.and_then(NonZeroU32::new),
        })),
        format if args.zstd.is_none() && args.row_group.is_none() => Ok(format),
        format => {
            Err(Error::usage(format!("--zstd and --row-group are for Parquet files, not for {format}")))
        }
    }
}

/// Refuses options about spends that do not go with the columns or with each other.
fn check_spends<T: BlockRows>(
    args: &ExportBlocksArgs,
    spends: Option<&SpendsArgs>,
    columns: &Columns,
) -> Result<(), Error> {
    let Some(SpendsArgs { spent_to, work_dir, .. }) = spends else { return Ok(()) };
    let text = match (columns.has_spends::<T>(), args.append) {
        (true, true) => {
            "--append keeps files, but each new block spends outputs that they have as unspent; export \
             columns that begin with spent_ into a new directory"
        }
        (false, _) if spent_to.is_some() || work_dir.is_some() => {
            "--spent-to and --work-dir are for --spent, or for columns that begin with spent_"
        }
        _ => return Ok(()),
    };
    Err(Error::usage(text))
}

fn rows(exported: &ExportedBlocksJson) -> Rows {
    let ExportedBlocksJson { written, range: BlockRange { from, to, last, spent_to, .. }, .. } = exported;
    let unspent = spent_to.as_ref().and_then(|spent_to| spent_to.unspent.as_ref());
    let amount = |unspent: &UnspentOutputs| {
        format!("{}, {} BTC", counted(unspent.coins, "coin"), btc(unspent.total_amount.0))
    };
    Rows::default()
        .row("export", written_text(written, "kept"))
        .row("blocks", format!("{from} to {to}"))
        .row("last block", last)
        .each("spent up to", spent_to.iter().map(|last| format!("{}, {}", last.height, last.hash)))
        .each("unspent", unspent.map(amount))
        .each("muhash", unspent.map(|unspent| hex_reversed(&unspent.muhash)))
}

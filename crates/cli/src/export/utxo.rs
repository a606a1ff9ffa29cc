//! The command `peregrine export utxo`: the coins of a chainstate or a snapshot, or those after a block, for
//! programs that work with data.

use crate::{prelude::*, report::set_hash_text};
use engine::{
    Disk as _, UndoPolicy, UtxoElement,
    utxo::{CreationTimes, EachCoin, EachSet, StoredCoins, UtxoStatsReport},
};
use export::{CoinTable, Columns, Format, Metadata, Writer, Written};
use std::{collections::BTreeSet, time::Instant};
use tables::{PROGRAM, with_coin_row};

#[derive(Args, Debug)]
pub struct ExportUtxoArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Take the coins from this snapshot, as of Bitcoin Core's dumptxoutset, instead of the chainstate
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,

    /// Write the coins after the block at this height: all blocks up to it are checked as by reindex, and no
    /// chainstate is needed. With several heights, PATH becomes a directory with an output for each
    #[arg(long, value_name = "HEIGHT[,HEIGHT..]", alias = "height", value_delimiter = ',')]
    #[arg(conflicts_with = "snapshot")]
    pub at: Vec<u32>,

    /// With --at: ignore the block index and find blocks and undo data by reading their files
    #[arg(long, requires = "at")]
    pub scan: bool,

    /// With --at: which undo data is used, as for reindex
    #[arg(long, value_name = "auto|trust|make", requires = "at")]
    #[arg(hide_short_help = true)]
    pub undo: Option<UndoPolicy>,

    /// Format to write: parquet (a directory of files), arrow, csv, or sqlite (the table of Bitcoin Core's
    /// utxo_to_sqlite.py)
    #[arg(long, default_value_t = Format::Parquet)]
    pub format: Format,

    /// Directory (parquet) or file to write; it must not exist
    #[arg(long, short, value_name = "PATH")]
    pub output: PathBuf,

    /// Columns to write, of those that the documentation lists [default: all, without addresses; not with
    /// --format sqlite]
    #[arg(long, value_name = "NAME[,NAME..]", value_delimiter = ',')]
    pub columns: Vec<String>,

    /// Also write addresses [not with --format sqlite]
    #[arg(long, conflicts_with = "columns")]
    pub addresses: bool,

    #[command(flatten)]
    pub run: RunArgs,
}

json_of! {
pub struct ExportedJson(path: &Path, format: Format, files: Written, set: UtxoStatsReport, begun: Instant) {
    /// The directory or file that was written.
    output: String = path.display().to_string(),
    format: &'static str = format.name(),
    files: u32 = files.files,
    bytes: u64 = files.bytes,
    /// For a snapshot, `height` is also `null` if no datadir was given. If Core's source has another hash for
    /// the set, nothing is written.
    #[serde(flatten)]
    stats: UtxoStatsReport = set,
    seconds: f64 = begun.elapsed().as_secs_f64(),
}
}

/// What was exported.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ExportedUtxo {
    One(ExportedJson),
    Several {
        /// The directory with all outputs.
        output: String,
        /// In ascending order of heights.
        sets: Vec<ExportedJson>,
    },
}

/// Exports the coins of a chainstate or a snapshot, or those after some blocks.
pub fn utxo(args: &ExportUtxoArgs) -> Done {
    let columns = &columns(args)?;
    let exported = if args.at.is_empty() { stored(args, columns) } else { after_blocks(args, columns) };
    Ok(reply(&exported?, Exit::Done, |exported| match exported {
        ExportedUtxo::One(set) => rows(set),
        ExportedUtxo::Several { sets, .. } => Rows::all(sets.iter().map(rows)),
    }))
}

/// Returns the columns that are written. Refuses options that do not go together.
fn columns(args: &ExportUtxoArgs) -> Result<Columns, Error> {
    let RunArgs { assumevalid, work_dir, .. } = &args.run;
    let text = if (args.addresses || !args.columns.is_empty()) && args.format == Format::Sqlite {
        "the table of --format sqlite has the columns of Bitcoin Core's; leave out --addresses and \
         --columns, or choose another format"
    } else if args.at.is_empty() && (assumevalid.is_some() || work_dir.is_some()) {
        "--assumevalid and --work-dir are for --at; no block is checked without it"
    } else if args.at.len() > 1 && args.undo.is_some() {
        "--undo is for one --at; for several, no undo data is used"
    } else {
        return super::columns::<CoinTable>(&args.columns, args.addresses, false);
    };
    Err(Error::usage(text))
}

/// Exports the coins of a chainstate or a snapshot.
fn stored(args: &ExportUtxoArgs, columns: &Columns) -> Result<ExportedUtxo, Error> {
    let (coins, network, options) = source(args)?;
    let memory = options.memory_bytes.saturating_sub(export::MAX_MEMORY);
    let with_times = with_times(args, columns);
    args.datadir.run(Some(&options), stages::EXPORT, |watch| {
        let read =
            |each: &mut EachCoin<'_>| engine::utxo::read(&RealDisk, &coins, memory, with_times, each, watch);
        write_set(args, columns, &args.output, network, read).map(ExportedUtxo::One)
    })
}

/// Exports the coins after some blocks; if they are several, each set to an output of its own in a new
/// directory.
fn after_blocks(args: &ExportUtxoArgs, columns: &Columns) -> Result<ExportedUtxo, Error> {
    let located = args.datadir.core.locate()?;
    paths::check(&located, args.run.work_dir.as_deref(), &[("--output", Some(&args.output))])?;
    let options = args.datadir.chain_options(&located, &args.run);
    let work_dir = Some(super::work_dir(options.work_dir.as_deref(), &args.output));
    let undo = args.undo.unwrap_or(UndoPolicy::Auto);
    let options = ChainOptions { work_dir, undo, scan: args.scan, ..options };
    let heights: BTreeSet<Height> = args.at.iter().copied().map(Height).collect();
    let is_one = heights.len() == 1;
    let path_of = |height: Height| match args.format {
        _ if is_one => args.output.clone(),
        Format::Parquet => args.output.join(height.to_string()),
        format => args.output.join(format!("{height}.{format}")),
    };
    if !args.output.is_dir() {
        paths::refuse_existing(&args.output)?;
    }
    // The directory may have sets that an interrupted run has completed.
    heights.iter().try_for_each(|height| paths::refuse_existing(&path_of(*height)))?;
    let is_new = !is_one && !args.output.is_dir();
    let new_dir = is_new.then(|| create_dir(&args.output)).transpose()?;
    let stages = if is_one { stages::EXPORT_HEIGHT } else { stages::EXPORT_HEIGHTS };
    let mut sets = Vec::new();
    let each_set: &mut EachSet<'_> = &mut |height, read| {
        sets.push(write_set(args, columns, &path_of(height), located.network(), |each| read(each))?);
        Ok(())
    };
    let with_times = with_times(args, columns);
    let done = args.datadir.run(Some(&options), stages, |watch| {
        engine::utxo::read_after(&RealDisk, &options, &heights, with_times, each_set, watch)
    });
    if let (Some(dir), true) = (new_dir, done.is_err()) {
        // Only if it is empty; the outputs in it are complete.
        let _ = RealDisk.remove_dir(dir);
    }
    done?;
    Ok(match <[ExportedJson; 1]>::try_from(sets) {
        Ok([set]) => ExportedUtxo::One(set),
        Err(sets) => ExportedUtxo::Several { output: args.output.display().to_string(), sets },
    })
}

/// Whether the times of blocks are written.
fn with_times(args: &ExportUtxoArgs, columns: &Columns) -> bool {
    args.format != Format::Sqlite && columns.has_times::<CoinTable>()
}

fn create_dir(path: &Path) -> Result<&Path, Error> {
    let created = RealDisk.create_dir_all(path).map(|()| path);
    created.map_err(|error| {
        let detail = format!("the directory cannot be created: {error}");
        Error::environment(detail).in_file(path, None).caused_by(error)
    })
}

/// Writes the coins that `read` gives.
fn write_set(
    args: &ExportUtxoArgs,
    columns: &Columns,
    path: &Path,
    network: Network,
    read: impl FnOnce(&mut EachCoin<'_>) -> Result<UtxoStatsReport, Error>,
) -> Result<ExportedJson, Error> {
    let started = Instant::now();
    let addresses = columns.has_addresses::<CoinTable>().then_some(network);
    let mut writer = Writer::create(&RealDisk, path, args.format, columns)?;
    let stats = read(&mut |coin: &UtxoElement<'_>, times: Option<CreationTimes>| {
        Ok(with_coin_row(coin, times, addresses, |row| writer.add(row))?)
    })?;
    stats.check_pinned()?;
    let written = writer.finish(&metadata(&stats, network))?;
    Ok(ExportedJson::of(path, args.format, written, stats, started))
}

/// Returns where the coins are, their network, and the limits of the run.
fn source(args: &ExportUtxoArgs) -> Result<(StoredCoins, Network, ChainOptions), Error> {
    let DatadirArgs { core, .. } = &args.datadir;
    let Some(file) = args.snapshot.clone() else {
        let located = core.locate()?;
        paths::check(&located, None, &[("--output", Some(&args.output))])?;
        let options = args.datadir.default_options(&located, args.run.memory);
        return Ok((StoredCoins::Chainstate(options.clone()), located.network(), options));
    };
    let named = core.if_named()?;
    let network = engine::snapshot::info(&RealDisk, &file)?.network();
    let Some(core) = named else {
        let coins = StoredCoins::Snapshot { file, datadir: None };
        let options = ChainOptions::reading(Path::new(""), network);
        let memory_bytes = args.run.memory.unwrap_or(options.memory_bytes);
        return Ok((coins, network, ChainOptions { memory_bytes, ..options }));
    };
    let located = core.locate_on(network)?;
    paths::check(&located, None, &[("--output", Some(&args.output))])?;
    let options = args.datadir.default_options(&located, args.run.memory);
    Ok((StoredCoins::Snapshot { file, datadir: Some(options.clone()) }, network, options))
}

fn metadata(stats: &UtxoStatsReport, network: Network) -> Metadata {
    let height = stats.height.map(|height| ("height", height.to_string()));
    let all = [
        ("network", network.name().to_owned()),
        ("block_hash", stats.best_block.to_string()),
        ("hash_serialized_3", hex_reversed(&stats.hash_serialized_3)),
        ("muhash", stats.muhash.as_ref().map(hex_reversed).unwrap_or_default()),
        ("total_value", stats.total_amount.0.to_string()),
        ("program", PROGRAM.to_owned()),
    ];
    all.into_iter().chain(height).collect()
}

fn rows(exported: &ExportedJson) -> Rows {
    let ExportedJson { output, format, bytes, stats, .. } = exported;
    let files = counted(exported.files, "file");
    let height = stats.height.map(|height| height.to_string());
    Rows::default()
        .row("export", format!("{output} ({format}, {files}, {})", HumanSize(*bytes)))
        .row("height", height.as_deref().unwrap_or("unknown (not in a block index)"))
        .row("block", stats.best_block)
        .row("coins", count(stats.txouts))
        .row("amount", format!("{} BTC", btc(stats.total_amount.0)))
        .row("hash_serialized_3", set_hash_text(&stats.hash_serialized_3, stats.pinned))
        .row("muhash", stats.muhash.as_ref().map(hex_reversed).unwrap_or_default())
}

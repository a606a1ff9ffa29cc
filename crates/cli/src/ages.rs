//! The command `peregrine utxo ages`: how old the coins are after some blocks, as a table, files and a
//! picture. Amounts in JSON are in satoshis.

mod picture;

use crate::{
    args::common::ReadingArgs,
    limits::WORKER_BYTES,
    prelude::*,
    stats_at::{self, MAX_HEIGHTS},
};
use engine::{
    BlockTime, Sats,
    blocks::{BlockRange, HashAt, ReadBlocksOptions},
    unfinished,
};
use export::{AgeRow, AgeTable, Columns, RowFile};
use std::{collections::BTreeSet, ffi::OsStr, ops::RangeInclusive};
use tables::{
    PROGRAM, affordable_threads,
    ages::{AgeBands, Ages, AgesAt, ByType, Held},
    script_type::ScriptType,
};

/// Number of blocks that a thread reads at a time.
const PART_BLOCKS: u32 = 1_000;
/// Memory in bytes for the coins of each block, of more blocks than mainnet has.
const HELD_BYTES: u64 = (size_of::<ByType>() << 20) as u64;

#[derive(Args, Debug)]
pub struct AgesArgs {
    #[command(flatten)]
    pub reading: ReadingArgs,

    /// Blocks after which the coins are counted [default: the chainstate's best block]
    #[arg(long, value_name = "HEIGHT|FIRST-LAST", value_delimiter = ',')]
    #[arg(value_parser = stats_at::height_range)]
    pub at: Vec<RangeInclusive<u32>>,

    /// Count the coins after each block whose height is a multiple of this, and after the last
    #[arg(long, value_name = "BLOCKS", conflicts_with = "at")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub every: Option<u32>,

    /// Ages in days at which a band ends and the next begins
    #[arg(long, value_name = "DAYS[,DAYS..]", value_delimiter = ',')]
    #[arg(default_value = "1,7,30,91,182,365,730,1095,1825,2555,3650")]
    pub bands: Vec<u32>,

    /// File to write, which must not exist: .parquet, .arrow or .csv with a row for each height, band and
    /// type of script, or .svg, a picture of the parts of the bands; can be given repeatedly
    #[arg(long, short, value_name = "FILE")]
    pub output: Vec<PathBuf>,
}

#[derive(Serialize, JsonSchema)]
pub struct AgesJson {
    chain: Network,
    /// The files that were written.
    outputs: Vec<String>,
    /// In ascending order.
    heights: Vec<HeightJson>,
}

json_of! {
struct HeightJson(ages: &AgesAt, bands: &AgeBands, all: Held) {
    height: Height = ages.height,
    block_hash: BlockHash = ages.hash,
    /// The median of the times of the block and the ten blocks below, in seconds since 1970, from which ages
    /// are counted.
    mediantime: BlockTime = ages.median_time,
    coins: i64 = all.coins,
    total_amount_sat: Sats = Sats(all.amount),
    /// The youngest first.
    bands: Vec<BandJson> =
        bands.days().zip(&ages.bands).map(|(days, held)| BandJson::of(days, held.iter().sum())).collect(),
}

struct BandJson(days: (u32, Option<u32>), held: Held) {
    /// The coins are at least so many days old.
    from_days: u32 = days.0,
    /// They are less than so many days old; `null`: the band has no end.
    to_days: Option<u32> = days.1,
    coins: i64 = held.coins,
    amount_sat: Sats = Sats(held.amount),
}
}

pub fn run(args: &AgesArgs) -> Done {
    let bands = &AgeBands::new(args.bands.clone()).map_err(Error::usage)?;
    let (located, chain) = args.reading.locate()?;
    let outputs: Vec<_> = args.output.iter().map(|output| ("--output", Some(&**output))).collect();
    paths::check(&located, None, &outputs)?;
    args.output.iter().try_for_each(|output| paths::refuse_existing(output))?;
    let pictures = args.output.iter().filter(|path| is_picture(path));
    let pictures = pictures.map(|path| unfinished::create_new(&RealDisk, path, unfinished::SUFFIX));
    let pictures = pictures.collect::<Result<Vec<_>, _>>()?;
    let files = args.output.iter().filter(|path| !is_picture(path)).map(|path| create(path));
    let mut files = files.collect::<Result<Vec<_>, _>>()?;
    let options = options(args, chain);
    let mut heights = Vec::new();
    let each = |ages: &AgesAt| {
        files.iter_mut().try_for_each(|file| write_rows(file, ages, bands))?;
        heights.push(HeightJson::of(ages, bands, ages.bands.iter().flatten().sum()));
        Ok(())
    };
    let begin =
        |range: &BlockRange, _: &HashAt<'_>| Ok(Ages::new(bands.clone(), wanted(args, range.to)?, each));
    let (range, _) = args.reading.datadir.run(Some(&options.chain), stages::EXPORT_BLOCKS, |watch| {
        engine::blocks::read(&RealDisk, &options, begin, watch)
    })?;
    let metadata = [
        ("network", range.network.name().to_owned()),
        ("tip_height", range.to.to_string()),
        ("tip_hash", range.last.to_string()),
        ("program", PROGRAM.to_owned()),
    ];
    files.into_iter().try_for_each(|file| file.finish(&metadata).map(drop))?;
    for mut file in pictures {
        file.write_all(picture::svg(&heights).as_bytes())?;
        file.commit()?;
    }
    let outputs = args.output.iter().map(|path| path.display().to_string()).collect();
    Ok(reply(&AgesJson { chain: range.network, outputs, heights }, Exit::Done, rows))
}

fn options(args: &AgesArgs, chain: ChainOptions) -> ReadBlocksOptions {
    let for_workers = chain.memory_bytes.saturating_sub(HELD_BYTES);
    let threads = affordable_threads(for_workers, WORKER_BYTES, chain.threads);
    let stop_at_height = args.at.iter().map(|range| Height(*range.end())).max();
    ReadBlocksOptions {
        chain: ChainOptions { threads, stop_at_height, ..chain },
        from: Height(0),
        with_coins: true,
        spends: None,
        part_blocks: PART_BLOCKS,
    }
}

/// Returns the heights of the blocks after which coins are counted; the chain ends at `tip`.
fn wanted(args: &AgesArgs, tip: Height) -> Result<BTreeSet<Height>, Error> {
    let named = args.at.iter().cloned().flatten();
    let regular = args.every.into_iter().flat_map(|every| (0..tip.0).step_by(every as usize));
    let tip = args.at.is_empty().then_some(tip.0);
    let mut heights = BTreeSet::new();
    for height in named.chain(regular).chain(tip) {
        heights.insert(Height(height));
        if heights.len() as u64 > MAX_HEIGHTS {
            return Err(Error::usage(format!("{MAX_HEIGHTS} heights are the most for one run")));
        }
    }
    Ok(heights)
}

fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "svg")
}

fn create(path: &Path) -> Result<RowFile<'static, AgeTable>, Error> {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    let format = extension.parse().map_err(|_| {
        let detail = "the name must end with .parquet, .arrow, .csv or .svg, which is the file's format";
        Error::usage(detail).in_file(path, None)
    })?;
    Ok(RowFile::create(&RealDisk, path, format, &Columns::all::<AgeTable>(false))?)
}

/// Writes a row for each band and type of script that has coins.
fn write_rows(file: &mut RowFile<'_, AgeTable>, ages: &AgesAt, bands: &AgeBands) -> Result<(), Error> {
    for ((from_days, to_days), by_type) in bands.days().zip(&ages.bands) {
        for (script_type, held) in ScriptType::ALL.into_iter().zip(by_type) {
            if held.coins > 0 {
                file.add(AgeRow {
                    height: ages.height.0,
                    from_days: from_days.into(),
                    to_days: to_days.map(i64::from),
                    block_time: ages.time.0,
                    mediantime: ages.median_time.0,
                    script_type: script_type.name(),
                    coins: held.coins,
                    value: held.amount,
                })?;
            }
        }
    }
    Ok(())
}

/// The table of the last height, and what was written.
fn rows(ages: &AgesJson) -> Rows {
    let Some(last) = ages.heights.last() else { return Rows::default() };
    let heights = counted(ages.heights.len() as u64, "height");
    let head = Rows::default()
        .row("height", format!("{} (of {heights})", last.height))
        .row("best block", last.block_hash)
        .row("coins", count(last.coins.unsigned_abs()))
        .row("amount", format!("{} BTC", btc(last.total_amount_sat.0)))
        .line("")
        .line(format!("{:<19}{:>14}{:>20}{:>8}", "age", "coins", "BTC", "part"));
    let band = |rows: Rows, band: &BandJson| {
        let (coins, amount) = (count(band.coins.unsigned_abs()), btc(band.amount_sat.0));
        let part = last.part_of(band) * 100.0;
        rows.line(format!("{:<19}{coins:>14}{amount:>20}{part:>6.1} %", days(band)))
    };
    last.bands.iter().fold(head, band).each("written", &ages.outputs)
}

impl HeightJson {
    /// The band's part of the amount of all coins.
    fn part_of(&self, band: &BandJson) -> f64 {
        band.amount_sat.0 as f64 / self.total_amount_sat.0.max(1) as f64
    }
}

/// Returns what a band is called.
fn days(band: &BandJson) -> String {
    match band.to_days {
        Some(to) if band.from_days == 0 => format!("under {}", counted(to, "day")),
        Some(to) => format!("{} to {to} days", band.from_days),
        None => format!("{} or more", counted(band.from_days, "day")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches as _};
    use engine::ScriptChecks;
    use std::num::NonZeroUsize;

    /// Once, the coins of each block came on top of the memory that the threads share.
    #[test]
    fn the_coins_of_each_block_are_within_the_memory_limit() {
        let matches = AgesArgs::augment_args(Command::new("ages")).get_matches_from(["ages"]);
        let args = AgesArgs::from_arg_matches(&matches).unwrap();
        let mut chain = ChainOptions::new(Path::new("d"), Network::Main, ScriptChecks::LeftOut);
        (chain.memory_bytes, chain.threads) = (512 << 20, NonZeroUsize::new(64).unwrap());
        let threads = options(&args, chain).chain.threads.get() as u64;
        assert!(threads > 1 && threads * WORKER_BYTES + HELD_BYTES <= 512 << 20, "{threads}");
    }
}

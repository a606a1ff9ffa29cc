//! `peregrine utxo stats --at`: the statistics of the UTXO set at other heights, from the blocks. Amounts in
//! JSON are in satoshis.

use crate::{
    args::{DatadirArgs, RunArgs},
    json::{self, Report},
    limits,
    progress::{Progress, stages},
    units::btc,
    utxo::StatsReport,
};
use clap::Args as ClapArgs;
use engine::{
    AtHeightsOptions, BlockAmounts, Error, ErrorKind, Height, Network, RealDisk, Sats, UnspendableAmounts,
    UtxoStatsAt, hex_reversed,
};
use peregrine::{exit::Exit, output::Done, remedy::about_height, stop::interrupt};
use serde::Serialize;
use std::ops::RangeInclusive;

#[derive(ClapArgs, Debug)]
pub struct AtArgs {
    /// Instead, check all blocks up to these heights, and print what gettxoutsetinfo reports about each with
    /// Bitcoin Core's coinstatsindex; needs neither a chainstate nor undo data
    #[arg(long, value_name = "HEIGHT|FIRST-LAST", value_delimiter = ',', value_parser = height_range)]
    #[arg(conflicts_with = "muhash")]
    pub at: Vec<RangeInclusive<u32>>,

    /// With --at: ignore the block index and find blocks by reading their files
    #[arg(long, requires = "at")]
    pub scan: bool,

    #[command(flatten, next_help_heading = "Options with --at")]
    pub run: RunArgs,
}

impl AtArgs {
    /// Whether there are options that only a run over the blocks has.
    pub const fn has_run_options(&self) -> bool {
        let RunArgs { assumevalid, memory, work_dir, progress: _ } = &self.run;
        assumevalid.is_some() || memory.is_some() || work_dir.is_some()
    }
}

/// Maximum number of heights of a run, whose results are kept in memory.
const MAX_HEIGHTS: u64 = 100_000;

/// Parses one height, or two.
fn height_range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        (Ok(_), Ok(_)) => Err("the first height is above the last".to_owned()),
        _ => Err("must be heights, or ranges of them: 100000,200000-200143".to_owned()),
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StatsAtJson {
    chain: &'static str,
    /// In ascending order.
    heights: Vec<HeightJson>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HeightJson {
    height: u32,
    block_hash: String,
    coins: u64,
    bogosize: u64,
    total_amount_sat: i64,
    muhash: String,
    /// Of this block and all below it.
    total_unspendable_amount_sat: i64,
    block_info: BlockInfoJson,
}

/// What the block moves.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BlockInfoJson {
    prevout_spent_sat: i64,
    coinbase_sat: i64,
    new_outputs_ex_coinbase_sat: i64,
    unspendable_sat: i64,
    unspendables: UnspendablesJson,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UnspendablesJson {
    genesis_block_sat: i64,
    bip30_sat: i64,
    scripts_sat: i64,
    unclaimed_rewards_sat: i64,
}

/// Runs `utxo stats --at`.
pub fn run(datadir: &DatadirArgs, args: &AtArgs) -> Done {
    let count: u64 = args.at.iter().map(|range| u64::from(range.end() - range.start()) + 1).sum();
    if count > MAX_HEIGHTS {
        let text = format!("--at names {count} heights; {MAX_HEIGHTS} is the most for one run");
        return Err(Error::new(ErrorKind::Usage, text));
    }
    let located = datadir.core.locate()?;
    let chain = datadir.chain_options(&located, &args.run);
    limits::check(&chain)?;
    let interrupt = interrupt(datadir.json)?;
    let progress = Progress::new(args.run.progress, stages::CONNECT);
    let heights = args.at.iter().cloned().flatten().map(Height).collect();
    let options = AtHeightsOptions { chain, scan: args.scan, heights };
    let stats = engine::utxo_stats_at(&RealDisk, &options, &progress, &interrupt);
    progress.close();
    let stats = stats.map_err(|error| about_height(error, "--at"))?;
    Ok(match datadir.json {
        true => json::report(
            Report::UtxoStats(StatsReport::AtHeights(all_json(&stats, located.network()))),
            Exit::Done,
        ),
        false => (stats.iter().map(text).collect::<Vec<_>>().join("\n\n"), Exit::Done),
    })
}

fn all_json(stats: &[UtxoStatsAt], chain: Network) -> StatsAtJson {
    StatsAtJson { chain: chain.name(), heights: stats.iter().map(height_json).collect() }
}

fn height_json(stats: &UtxoStatsAt) -> HeightJson {
    let BlockAmounts { prevout_spent, coinbase, new_outputs_ex_coinbase, unspendable } = stats.block_info;
    let UnspendableAmounts { genesis_block, bip30, scripts, unclaimed_rewards } = unspendable;
    HeightJson {
        height: stats.height.0,
        block_hash: stats.hash.to_string(),
        coins: stats.txouts,
        bogosize: stats.bogosize,
        total_amount_sat: stats.total_amount.0,
        muhash: hex_reversed(&stats.muhash),
        total_unspendable_amount_sat: stats.total_unspendable_amount.0,
        block_info: BlockInfoJson {
            prevout_spent_sat: prevout_spent.0,
            coinbase_sat: coinbase.0,
            new_outputs_ex_coinbase_sat: new_outputs_ex_coinbase.0,
            unspendable_sat: unspendable.total().0,
            unspendables: UnspendablesJson {
                genesis_block_sat: genesis_block.0,
                bip30_sat: bip30.0,
                scripts_sat: scripts.0,
                unclaimed_rewards_sat: unclaimed_rewards.0,
            },
        },
    }
}

fn text(stats: &UtxoStatsAt) -> String {
    let BlockAmounts { prevout_spent, coinbase, new_outputs_ex_coinbase, unspendable } = stats.block_info;
    let amount = |Sats(amount)| format!("{} BTC", btc(amount));
    format!(
        "height             {}\n\
         best block         {}\n\
         coins              {}\n\
         amount             {}\n\
         bogosize           {}\n\
         muhash             {}\n\
         unspendable        {}\n\
         of this block      {} spent, {} created, {} by the coinbase, {} unspendable",
        stats.height,
        stats.hash,
        stats.txouts,
        amount(stats.total_amount),
        stats.bogosize,
        hex_reversed(&stats.muhash),
        amount(stats.total_unspendable_amount),
        amount(prevout_spent),
        amount(new_outputs_ex_coinbase),
        amount(coinbase),
        amount(unspendable.total()),
    )
}

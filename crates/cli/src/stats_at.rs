//! `peregrine utxo stats --at`: the statistics of the UTXO set at other heights, from the blocks. Amounts in
//! JSON are in satoshis.

use crate::prelude::*;
use engine::{
    Sats,
    utxo::{BlockAmounts, UtxoStatsAt},
};
use std::ops::RangeInclusive;

#[derive(Args, Debug)]
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
        let RunArgs { assumevalid, memory, work_dir } = &self.run;
        assumevalid.is_some() || memory.is_some() || work_dir.is_some()
    }
}

/// Maximum number of heights of a run, whose results are kept in memory.
pub const MAX_HEIGHTS: u64 = 100_000;

/// Parses one height, or two.
pub fn height_range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        (Ok(_), Ok(_)) => Err("the first height is above the last".to_owned()),
        _ => Err("must be heights, or ranges of them: 100000,200000-200143".to_owned()),
    }
}

#[derive(Serialize, JsonSchema)]
pub struct StatsAt {
    chain: Network,
    /// In ascending order.
    heights: Vec<UtxoStatsAt>,
}

/// Runs `utxo stats --at`.
pub fn run(datadir: &DatadirArgs, args: &AtArgs) -> Done {
    let count: u64 = args.at.iter().map(|range| u64::from(range.end() - range.start()) + 1).sum();
    if count > MAX_HEIGHTS {
        let text = format!("--at names {count} heights; {MAX_HEIGHTS} is the most for one run");
        return Err(Error::usage(text));
    }
    let located = datadir.core.locate()?;
    let chain = datadir.chain_options(&located, &args.run);
    let heights = &args.at.iter().cloned().flatten().map(Height).collect();
    let options = ChainOptions { scan: args.scan, ..chain };
    let heights = datadir.run(Some(&options), stages::CONNECT, |watch| {
        engine::utxo::stats_at(&RealDisk, &options, heights, watch)
    })?;
    let report = StatsAt { chain: located.network(), heights };
    Ok(reply(&report, Exit::Done, |report| Rows::all(report.heights.iter().map(rows))))
}

fn rows(stats: &UtxoStatsAt) -> Rows {
    let BlockAmounts { prevout_spent, coinbase, new_outputs_ex_coinbase, unspendable } = stats.block_info;
    let amount = |Sats(amount)| format!("{} BTC", btc(amount));
    let of_block = format!(
        "{} spent, {} created, {} by the coinbase, {} unspendable",
        amount(prevout_spent),
        amount(new_outputs_ex_coinbase),
        amount(coinbase),
        amount(unspendable.total())
    );
    Rows::default()
        .row("height", stats.height)
        .row("best block", stats.hash)
        .row("coins", stats.txouts)
        .row("amount", amount(stats.total_amount))
        .row("bogosize", stats.bogosize)
        .row("muhash", hex_reversed(&stats.muhash))
        .row("unspendable", amount(stats.total_unspendable_amount))
        .row("of this block", of_block)
}

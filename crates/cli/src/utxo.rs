//! The commands `peregrine utxo stats`, `get` and `scan`, which read a chainstate on disk. Amounts in JSON
//! are in satoshis.

#[cfg(feature = "export")]
use crate::ages::AgesArgs;
use crate::{
    core_args::CoreArgs,
    descriptor::{self, Wanted},
    prelude::*,
    report::set_hash_text,
    stats_at::{self, AtArgs},
};
use bitcoin::{Script, hex::DisplayHex as _};
use engine::{
    OutPoint, Sats,
    utxo::{FoundCoin, GetReport, ScanReport, StoredCoin, UtxoStatsReport},
};
use peregrine::wrap::SCRIPT;
use std::ops::RangeInclusive;
use tables::script_type::{self, ScriptType};

#[derive(Subcommand, Debug)]
pub enum UtxoCommand {
    /// Print what Bitcoin Core's gettxoutsetinfo reports, from the chainstate on disk
    Stats(StatsArgs),
    /// Look up coins by their outpoints, as Bitcoin Core's gettxout; exit code 7 if one is not unspent
    Get(GetArgs),
    /// Find all coins of addresses, scripts or output descriptors, as Bitcoin Core's scantxoutset
    Scan(ScanArgs),
    /// Count the coins after some blocks by their age and the type of their script
    #[cfg(feature = "export")]
    Ages(AgesArgs),
}

#[derive(Args, Debug)]
pub struct StatsArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Also compute MuHash3072 (about 3 microseconds per coin)
    #[arg(long)]
    pub muhash: bool,

    #[command(flatten)]
    pub at: AtArgs,
}

#[derive(Args, Debug)]
pub struct GetArgs {
    /// Outpoints: TXID:VOUT
    #[arg(value_name = "OUTPOINT", required = true)]
    pub outpoints: Vec<OutPoint>,

    #[command(flatten)]
    pub core: CoreArgs,

    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct ScanArgs {
    /// Addresses, scripts in hex, or output descriptors, with or without checksum
    #[arg(value_name = "DESCRIPTOR|ADDRESS|SCRIPT", required = true)]
    pub wanted: Vec<String>,

    /// Indices at which keys that end in /* are derived: 0 to LAST, or FIRST to LAST
    #[arg(long, value_name = "LAST|FIRST-LAST", default_value = "1000", value_parser = index_range)]
    pub range: RangeInclusive<u32>,

    #[command(flatten)]
    pub datadir: DatadirArgs,
}

/// Maximum number of indices of a range (Core `ParseDescriptorRange`).
const MAX_RANGE: u32 = 1_000_000;

/// Parses the indices of derived keys.
fn index_range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or(("0", text));
    let index = |text: &str| text.parse().ok().filter(|index| *index <= i32::MAX as u32);
    match (index(first), index(last)) {
        (Some(first), Some(last)) if first > last => Err("the first index is above the last".to_owned()),
        (Some(first), Some(last)) if last - first >= MAX_RANGE => {
            Err(format!("more than {MAX_RANGE} indices"))
        }
        (Some(first), Some(last)) => Ok(first..=last),
        _ => Err("must be an index below 2147483648, or a range: 1000, 500-600".to_owned()),
    }
}

json_of! {
pub struct GetJson(report: &GetReport, network: Network) {
    chain: Network = network,
    height: Option<Height> = report.height,
    block_hash: BlockHash = report.best_block,
    unspent: Vec<CoinJson> = report.coins.iter().map(|coin| CoinJson::of(coin, network)).collect(),
    /// The other outpoints: spent, or never created.
    not_unspent: Vec<OutPoint> = report.not_unspent.clone(),
}

struct CoinJson(coin: &StoredCoin, network: Network) {
    #[serde(flatten)]
    outpoint: OutPoint = coin.outpoint,
    amount_sat: Sats = coin.amount,
    /// In hex.
    script: String = coin.script.to_lower_hex_string(),
    #[serde(rename = "type")]
    script_type: ScriptType = ScriptType::of(Script::from_bytes(&coin.script)),
    address: Option<String> = script_type::address(Script::from_bytes(&coin.script), network),
    /// Height of the block that created it.
    height: Height = coin.height,
    coinbase: bool = coin.is_coinbase,
    /// `null` if the height of the best block is unknown.
    confirmations: Option<u32> = coin.confirmations,
}

pub struct ScanJson(report: &ScanReport, network: Network, wanted: &[Wanted]) {
    chain: Network = network,
    height: Option<Height> = report.height,
    block_hash: BlockHash = report.best_block,
    /// Number of all coins of the chainstate.
    coins: u64 = report.txouts,
    found: Vec<FoundJson> = report.found.iter().map(|it| FoundJson::of(it, network, wanted)).collect(),
    found_amount_sat: Sats = report.found_amount,
}

struct FoundJson(found: &FoundCoin, network: Network, wanted: &[Wanted]) {
    #[serde(flatten)]
    coin: CoinJson = CoinJson::of(&found.coin, network),
    /// Of the script, with the origin of its keys.
    descriptor: String = wanted.get(found.script_index).map(|it| it.descriptor.clone()).unwrap_or_default(),
    /// The block that created it; `null` if the block index does not have it.
    block_hash: Option<BlockHash> = found.block_hash,
}
}

pub fn stats(args: &StatsArgs) -> Done {
    if !args.at.at.is_empty() {
        return stats_at::run(&args.datadir, &args.at);
    }
    if args.at.has_run_options() {
        let text = "--assumevalid, --memory and --work-dir are for --at, which goes through the blocks";
        return Err(Error::usage(text));
    }
    let located = args.datadir.core.locate()?;
    let options = args.datadir.default_options(&located, None);
    let stats = args
        .datadir
        .run(None, stages::COINS, |watch| engine::utxo::stats(&RealDisk, &options, args.muhash, watch))?;
    let exit = if stats.pinned == Some(false) { Exit::Damaged } else { Exit::Done };
    Ok(reply(&stats, exit, stats_rows))
}

pub fn get(args: &GetArgs) -> Done {
    let located = args.core.locate()?;
    let report = engine::utxo::get(&RealDisk, &located.chain_options(), &args.outpoints)?;
    let exit = if report.not_unspent.is_empty() { Exit::Done } else { Exit::NotUnspent };
    Ok(reply(&GetJson::of(&report, located.network()), exit, get_rows))
}

pub fn scan(args: &ScanArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let chain = located.network();
    let mut wanted = Vec::new();
    for text in &args.wanted {
        wanted.extend(descriptor::parse(text, chain, &args.range)?);
    }
    let scripts: Vec<&[u8]> = wanted.iter().map(|wanted| wanted.script.as_bytes()).collect();
    let options = args.datadir.default_options(&located, None);
    let report = args
        .datadir
        .run(None, stages::COINS, |watch| engine::utxo::scan(&RealDisk, &options, &scripts, watch))?;
    Ok(reply(&ScanJson::of(&report, chain, &wanted), Exit::Done, scan_rows))
}

fn stats_rows(stats: &UtxoStatsReport) -> Rows {
    Rows::default()
        .row("height", height_text(stats.height))
        .row("best block", stats.best_block)
        .row("coins", format!("{} of {} transactions", count(stats.txouts), count(stats.transactions)))
        .row("amount", format!("{} BTC", btc(stats.total_amount.0)))
        .row("bogosize", count(stats.bogosize))
        .row("hash_serialized_3", set_hash_text(&stats.hash_serialized_3, stats.pinned))
        .each("muhash", stats.muhash.as_ref().map(hex_reversed))
}

fn height_text(height: Option<Height>) -> String {
    height.map_or("unknown (not in the block index)".to_owned(), |height| height.to_string())
}

fn get_rows(report: &GetJson) -> Rows {
    let rows = Rows::default().row("height", height_text(report.height)).row("best block", report.block_hash);
    let why = "NOT UNSPENT: it was spent, or never created; the output of the genesis block, and scripts \
               with OP_RETURN or of more than 10,000 bytes, never become coins";
    let spent = report.not_unspent.iter().map(|outpoint| Rows::default().row("coin", outpoint).row("", why));
    report.unspent.iter().map(coin_rows).chain(spent).fold(rows, Rows::then)
}

fn coin_rows(coin: &CoinJson) -> Rows {
    let coinbase = if coin.coinbase { " by a coinbase" } else { "" };
    let confirmations = coin.confirmations.map(|number| format!(", {}", counted(number, "confirmation")));
    let created = format!("at height {}{coinbase}{}", coin.height, confirmations.unwrap_or_default());
    Rows::default()
        .row("coin", coin.outpoint)
        .row("amount", format!("{} BTC", btc(coin.amount_sat.0)))
        .row(SCRIPT, &coin.script)
        .row("type", coin.script_type.name())
        .each("address", coin.address.as_ref())
        .row("created", created)
}

fn scan_rows(report: &ScanJson) -> Rows {
    let found = format!("{} of {} coins", count(report.found.len() as u64), count(report.coins));
    let rows = Rows::default()
        .row("height", height_text(report.height))
        .row("best block", report.block_hash)
        .row("found", found)
        .row("amount", format!("{} BTC", btc(report.found_amount_sat.0)));
    let coins = report.found.iter().map(|found| coin_rows(&found.coin).row("descriptor", &found.descriptor));
    coins.fold(rows, Rows::then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_begin_at_0_or_where_they_are_told_to() {
        assert_eq!((index_range("7"), index_range("5-7")), (Ok(0..=7), Ok(5..=7)));
        assert_eq!(index_range("2146483648-2147483647"), Ok(2_146_483_648..=2_147_483_647));
    }
}

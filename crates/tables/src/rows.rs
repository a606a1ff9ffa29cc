//! The rows of blocks and coins.

use crate::{
    ages::SECONDS_PER_DAY,
    script_type::{self, ScriptType},
    sighash::sighash,
};
use bitcoin::Script;
use engine::{
    Error, Network, SpentCoin, Txid, UtxoElement,
    blocks::{BlockData, BlockStats},
    compact_size_len,
    history::{HistoryEntry, ScriptHistory},
    utxo::CreationTimes,
};
use export::{
    BlockRow, BlockTable, CoinRow, Columns, HistoryRow, InputRow, InputTable, OutputRow, OutputTable,
    ScriptRow, Table, TransactionRow, TransactionTable,
};
use std::iter::repeat;

pub trait AddRow<T: Table>: FnMut(T::Row<'_>) -> Result<(), Error> {}

impl<T: Table, F: FnMut(T::Row<'_>) -> Result<(), Error>> AddRow<T> for F {}

/// A table of what blocks contain.
pub trait BlockRows: Table {
    const NEEDS_COINS: bool = true;
    const FILE_BLOCKS: u32 = 1_000;

    /// Gives the rows of a block to `add`. Values that take time are only made for these columns.
    ///
    /// # Errors
    /// Those of `add`; [`engine::ErrorKind::Damaged`] if undo data has a malformed coin.
    fn each_row(data: &BlockData<'_>, columns: &Columns, add: impl AddRow<Self>) -> Result<(), Error>;
}

/// The row of a block: columns with the name and the value of a statistic, and others.
macro_rules! block_row {
    ($($same:ident)*, of $stats:ident; $($column:ident: $value:expr,)*) => {
        BlockRow { $($same: $stats.$same,)* $($column: $value,)* }
    };
}

impl BlockRows for BlockTable {
    const FILE_BLOCKS: u32 = 10_000;

    fn each_row(data: &BlockData<'_>, _columns: &Columns, mut add: impl AddRow<Self>) -> Result<(), Error> {
        let (header, stats) = (data.block.header(), BlockStats::of(data));
        let ages = SpentAges::of(data);
        let [p10, p25, p50, p75, p90] = stats.feerate_percentiles;
        add(block_row! {
            txs ins outs subsidy totalfee total_out total_size total_weight avgfee avgfeerate avgtxsize
            maxfee maxfeerate maxtxsize medianfee mediantxsize minfee minfeerate mintxsize
            swtxs swtotal_size swtotal_weight
            utxo_increase utxo_size_inc utxo_increase_actual utxo_size_inc_actual, of stats;
            height: data.height.0,
            blockhash: data.hash.0,
            time: header.time.0,
            mediantime: data.median_time.0,
            version: header.version.into(),
            bits: header.bits,
            nonce: header.nonce,
            size: data.block.bytes().len() as i64,
            weight: data.block.weight().0 as i64,
            feerate_percentile_10: p10,
            feerate_percentile_25: p25,
            feerate_percentile_50: p50,
            feerate_percentile_75: p75,
            feerate_percentile_90: p90,
            coin_days_destroyed: ages.coin_days_destroyed,
            median_spent_age: ages.median,
            max_spent_age: ages.max,
        })
    }
}

/// How old the coins are that a block spends: differences of median times, in seconds.
struct SpentAges {
    coin_days_destroyed: i64,
    median: Option<i64>,
    max: Option<i64>,
}

impl SpentAges {
    fn of(data: &BlockData<'_>) -> Self {
        let age =
            |coin: &SpentCoin<'_>| data.median_time.0.saturating_sub(data.median_time_at(coin.height).0);
        let mut ages: Vec<u32> = data.coins.iter().map(age).collect();
        let amounts = data.coins.iter().map(|coin| i128::from(coin.amount.0));
        let seconds: i128 = amounts.zip(&ages).map(|(amount, age)| amount * i128::from(*age)).sum();
        let middle = ages.len().saturating_sub(1) / 2;
        let max = ages.iter().max().copied().map(i64::from);
        let median = max.map(|_| (*ages.select_nth_unstable(middle).1).into());
        // A block cannot spend so much that its coin days exceed 63 bits, unless undo data is false.
        let coin_days_destroyed = i64::try_from(seconds / i128::from(SECONDS_PER_DAY)).unwrap_or(i64::MAX);
        Self { coin_days_destroyed, median, max }
    }
}

impl BlockRows for TransactionTable {
    fn each_row(data: &BlockData<'_>, _columns: &Columns, mut add: impl AddRow<Self>) -> Result<(), Error> {
        let wtxids = data.wtxids.iter().map(|wtxid| wtxid.0);
        // Without witnesses, both ids are the same.
        let wtxids = wtxids.chain(data.txids.iter().skip(data.wtxids.len()).map(|txid| txid.0));
        let ids = data.txids.iter().zip(wtxids);
        for (((tx, spent), tx_index), (txid, wtxid)) in data.txs().zip(0..).zip(ids) {
            let coinbase = tx_index == 0;
            let value_in = (!coinbase).then(|| spent.iter().map(|coin| coin.amount.0).sum::<i64>());
            let value_out = tx.outputs().map(|output| output.value().0).sum();
            add(TransactionRow {
                height: data.height.0,
                tx_index,
                block_time: data.block.header().time.0,
                txid: txid.0,
                wtxid,
                coinbase,
                version: tx.version(),
                lock_time: tx.lock_time(),
                inputs: tx.input_count() as u32,
                outputs: tx.output_count() as u32,
                size: tx.total_size() as u32,
                weight: tx.weight().0 as u32,
                vsize: tx.weight().0.div_ceil(4) as u32,
                value_in,
                value_out,
                fee: value_in.map(|value_in| value_in - value_out),
            })?;
        }
        Ok(())
    }
}

impl BlockRows for InputTable {
    fn each_row(data: &BlockData<'_>, columns: &Columns, mut add: impl AddRow<Self>) -> Result<(), Error> {
        let txs = data.block.txs().zip(0..).zip(data.txids).skip(1);
        let inputs =
            txs.flat_map(|((tx, tx_index), txid)| tx.inputs().zip(0..).zip(repeat((tx, tx_index, txid))));
        let addresses = columns.has_addresses::<Self>().then_some(data.params.network);
        let has_sighash = columns.has::<Self>("sighash");
        let mut script = Vec::new();
        for (((input, input_index), (tx, tx_index, &Txid(txid))), coin) in inputs.zip(data.coins) {
            let has_witness = tx.has_witness();
            let &SpentCoin { amount, script: compressed, height, is_coinbase } = coin;
            script.clear();
            let malformed = |error| Error::malformed_coin(error, data.height, data.hash);
            compressed.decompress(&mut script).map_err(malformed)?;
            let prevout = input.prevout();
            let script_sig = Script::from_bytes(input.script_sig());
            let sighash = || sighash(Script::from_bytes(&script), script_sig, input.witness());
            add(InputRow {
                height: data.height.0,
                tx_index,
                input_index,
                block_time: data.block.header().time.0,
                mediantime: data.median_time.0,
                txid,
                sequence: input.sequence(),
                script_sig_bytes: script_sig.len() as u32,
                witness_bytes: if has_witness { witness_len(input.witness()) } else { 0 },
                sighash: has_sighash.then(sighash).flatten().as_deref(),
                prev_txid: prevout.txid.0,
                prev_vout: prevout.vout,
                prev_height: height.0,
                prev_mediantime: data.median_time_at(height).0,
                prev_coinbase: is_coinbase,
                value: amount.0,
                script_type: type_of(&script),
                script: &script,
                address: address(&script, addresses).as_deref(),
            })?;
        }
        Ok(())
    }
}

impl BlockRows for OutputTable {
    const NEEDS_COINS: bool = false;

    fn each_row(data: &BlockData<'_>, columns: &Columns, mut add: impl AddRow<Self>) -> Result<(), Error> {
        let addresses = columns.has_addresses::<Self>().then_some(data.params.network);
        let mut spent_by = data.spent_by.iter();
        for ((tx, tx_index), txid) in data.block.txs().zip(0..).zip(data.txids) {
            for (output, vout) in tx.outputs().zip(0..) {
                let script = output.script_pubkey();
                let input = spent_by.next().copied().flatten();
                add(OutputRow {
                    height: data.height.0,
                    tx_index,
                    vout,
                    block_time: data.block.header().time.0,
                    txid: txid.0,
                    coinbase: tx_index == 0,
                    value: output.value().0,
                    script_type: type_of(script),
                    script,
                    address: address(script, addresses).as_deref(),
                    spent_height: input.map(|input| input.height.0),
                    spent_tx_index: input.map(|input| input.tx_index),
                    spent_txid: input.and_then(|input| input.txid).map(|txid| txid.0),
                    spent_index: input.map(|input| input.input_index),
                    spent_mediantime: input.map(|input| data.median_time_at(input.height).0),
                })?;
            }
        }
        Ok(())
    }
}

/// Length of an input's witness as serialised, in a transaction that has witnesses.
fn witness_len<'a>(items: impl Iterator<Item = &'a [u8]> + Clone) -> u32 {
    let with_len = |item: &[u8]| compact_size_len(item.len()) + item.len();
    (compact_size_len(items.clone().count()) + items.map(with_len).sum::<usize>()) as u32
}

/// Gives the row of a coin to `add`, with the times of its block if they are known, and the address of a
/// network if there is one.
pub fn with_coin_row<R>(
    coin: &UtxoElement<'_>,
    times: Option<CreationTimes>,
    addresses: Option<Network>,
    add: impl FnOnce(CoinRow<'_>) -> R,
) -> R {
    add(CoinRow {
        txid: coin.outpoint.txid.0,
        vout: coin.outpoint.vout,
        height: coin.height().0,
        coinbase: coin.is_coinbase(),
        value: coin.amount.0,
        script_type: ScriptType::of(Script::from_bytes(coin.script)).name(),
        script: coin.script,
        address: address(coin.script, addresses).as_deref(),
        block_time: times.map(|times| times.block_time.0),
        mediantime: times.map(|times| times.median_time.0),
    })
}

pub fn history_row(entry: &HistoryEntry) -> HistoryRow<'_> {
    HistoryRow {
        script_hash: entry.script_hash,
        height: entry.height.0,
        tx_index: entry.tx_index,
        block_time: entry.block_time.0,
        txid: entry.txid.0,
        input: entry.is_input,
        index: entry.index,
        amount: entry.amount.0,
        balance: entry.balance.0,
    }
}

/// Gives the row of a script to `add`, with its address on a network if it has one.
pub fn with_script_row<R>(
    history: &ScriptHistory,
    network: Network,
    add: impl FnOnce(ScriptRow<'_>) -> R,
) -> R {
    add(ScriptRow {
        script_hash: history.script_hash,
        script: &history.script,
        script_type: type_of(&history.script),
        address: address(&history.script, Some(network)).as_deref(),
        first_height: history.first_height.0,
        rows: history.rows as i64,
        balance: history.balance.0,
    })
}

/// Returns the name of a script's type. Unlike a coin, an output can have an `OP_RETURN`.
fn type_of(script: &[u8]) -> &'static str {
    match script.split_first() {
        Some((&OP_RETURN, data)) if Script::from_bytes(data).is_push_only() => "nulldata",
        _ => ScriptType::of(Script::from_bytes(script)).name(),
    }
}

const OP_RETURN: u8 = bitcoin::opcodes::all::OP_RETURN.to_u8();

fn address(script: &[u8], network: Option<Network>) -> Option<String> {
    network.and_then(|network| script_type::address(Script::from_bytes(script), network))
}

#[cfg(test)]
mod tests {
    use super::*;
    use export::SCRIPT_TYPES;

    #[test]
    fn outputs_with_data_have_a_type_of_their_own() {
        // Core's `Solver`: only pushes may follow.
        for (script, name) in [
            (&[0x6a][..], "nulldata"),
            (&[0x6a, 2, 5, 6], "nulldata"),
            (&[0x6a, 0x51, 0x60, 0x4f], "nulldata"),
            (&[0x6a, 2, 5], "other"),
            (&[0x6a, 0x61], "other"),
            (&[0x51, 0x6a], "other"),
            (&[], "other"),
        ] {
            assert_eq!(type_of(script), name, "{script:?}");
        }
    }

    #[test]
    fn script_types_have_the_names_of_the_dictionary() {
        let of_coins = SCRIPT_TYPES.into_iter().filter(|name| *name != "nulldata");
        assert!(of_coins.eq(ScriptType::ALL.map(ScriptType::name)));
    }
}

//! What Core's `getblockstats` computes of a block.

use pipeline::stages::block_parts::BlockData;
use rules::{SpentCoin, is_bip30_exempt, subsidy};
use wire::{Sats, read::compact_size_len, script::is_unspendable};

/// Bytes that a coin takes besides its output, by Core's measure: outpoint, height and coinbase flag
/// (`PER_UTXO_OVERHEAD`).
const COIN_OVERHEAD: i64 = 36 + 4;
/// Weight of a byte that is not a witness.
const WITNESS_SCALE: i64 = 4;

/// The results of Core's `getblockstats`, with its names: amounts in satoshis, fee rates in satoshis per
/// virtual byte, sizes in bytes. The coinbase counts only in `outs`, `txs` and what begins with `utxo_`;
/// `total_out` is without it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the names are Core's")]
pub struct BlockStats {
    pub avgfee: i64,
    pub avgfeerate: i64,
    pub avgtxsize: i64,
    /// At the 10th, 25th, 50th, 75th and 90th percentile of the weight.
    pub feerate_percentiles: [i64; 5],
    pub ins: i64,
    pub maxfee: i64,
    pub maxfeerate: i64,
    pub maxtxsize: i64,
    pub medianfee: i64,
    pub mediantxsize: i64,
    pub minfee: i64,
    pub minfeerate: i64,
    pub mintxsize: i64,
    pub outs: i64,
    pub subsidy: i64,
    pub swtotal_size: i64,
    pub swtotal_weight: i64,
    pub swtxs: i64,
    pub total_out: i64,
    pub total_size: i64,
    pub total_weight: i64,
    pub totalfee: i64,
    pub txs: i64,
    pub utxo_increase: i64,
    pub utxo_size_inc: i64,
    pub utxo_increase_actual: i64,
    pub utxo_size_inc_actual: i64,
}

impl BlockStats {
    /// Computes the statistics of a block, which must have the coins that it spends.
    pub fn of(data: &BlockData<'_>) -> Self {
        let &BlockData { params, height, ref hash, .. } = data;
        let mut stats = Self { subsidy: subsidy(params, height).0, ..Self::default() };
        let (mut fees, mut sizes, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        let mut created = 0;
        for (tx, spent) in data.txs() {
            let is_coinbase = tx.is_coinbase();
            let no_coins = height.0 == 0 || is_coinbase && is_bip30_exempt(params, height, hash);
            let mut tx_out = 0;
            for output in tx.outputs() {
                tx_out += output.value().0;
                let size = coin_size(output.script_pubkey().len());
                stats.utxo_size_inc += size;
                if !no_coins && !is_unspendable(output.script_pubkey()) {
                    created += 1;
                    stats.utxo_size_inc_actual += size;
                }
            }
            stats.outs += tx.output_count() as i64;
            stats.txs += 1;
            if is_coinbase {
                continue;
            }
            stats.ins += tx.input_count() as i64;
            stats.total_out += tx_out;
            let (size, weight) = (tx.total_size() as i64, tx.weight().0 as i64);
            stats.total_size += size;
            stats.total_weight += weight;
            sizes.push(size);
            if tx.has_witness() {
                stats.swtxs += 1;
                stats.swtotal_size += size;
                stats.swtotal_weight += weight;
            }
            for SpentCoin { script, .. } in spent {
                let size = coin_size(script.script_len());
                stats.utxo_size_inc -= size;
                stats.utxo_size_inc_actual -= size;
            }
            let fee = spent.iter().map(|coin| coin.amount.0).sum::<i64>() - tx_out;
            stats.totalfee += fee;
            fees.push(fee);
            rates.push((fee * WITNESS_SCALE / weight.max(1), weight));
        }
        stats.utxo_increase = stats.outs - stats.ins;
        stats.utxo_increase_actual = created - stats.ins;
        let others = (stats.txs - 1).max(1);
        stats.avgfee = stats.totalfee / others;
        stats.avgtxsize = stats.total_size / others;
        stats.avgfeerate = stats.totalfee * WITNESS_SCALE / stats.total_weight.max(1);
        [stats.minfee, stats.medianfee, stats.maxfee] = min_median_max(&mut fees);
        [stats.mintxsize, stats.mediantxsize, stats.maxtxsize] = min_median_max(&mut sizes);
        rates.sort_unstable();
        stats.minfeerate = rates.first().map_or(0, |&(rate, _)| rate);
        stats.maxfeerate = rates.last().map_or(0, |&(rate, _)| rate);
        stats.feerate_percentiles = percentiles(&rates, stats.total_weight);
        stats
    }
}

/// Returns the size of a coin by Core's measure: its serialised output, and what comes with it.
fn coin_size(script_len: usize) -> i64 {
    (size_of::<Sats>() + compact_size_len(script_len) + script_len) as i64 + COIN_OVERHEAD
}

/// Returns the least, the median and the greatest of some numbers, 0 if there are none (Core
/// `CalculateTruncatedMedian`).
fn min_median_max(numbers: &mut [i64]) -> [i64; 3] {
    numbers.sort_unstable();
    let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) else { return [0; 3] };
    let at = |index: usize| numbers.get(index).copied().unwrap_or_default();
    let middle = numbers.len() / 2;
    let median = if numbers.len().is_multiple_of(2) { (at(middle - 1) + at(middle)) / 2 } else { at(middle) };
    [first, median, last]
}

/// Returns the fee rates at parts of the weight; `rates`, with weights, are sorted (Core
/// `CalculatePercentilesByWeight`).
fn percentiles(rates: &[(i64, i64)], total_weight: i64) -> [i64; 5] {
    // In hundredths, so that nothing is rounded.
    [10, 25, 50, 75, 90].map(|percent| {
        let mut sum = 0;
        let reaches = |&&(_, weight): &&(i64, i64)| {
            sum += weight;
            sum * 100 >= total_weight * percent
        };
        rates.iter().find(reaches).or(rates.last()).map_or(0, |&(rate, _)| rate)
    })
}

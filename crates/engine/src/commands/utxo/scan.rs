//! Finds all coins with given scripts in a chainstate on disk, as Core's `scantxoutset` does.

use api::{
    error::Error,
    event::{CoinProgress, Event, Watch},
    options::ChainOptions,
    stage::Stage,
};
use chain::threads::for_all;
use disk::{chainstate::ChainstateReader, index::IndexRows};
use pipeline::{
    job::stored_chainstate::{StoredChainstate, StoredCoin},
    stages::coin_reader::each_coin,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicU64, Ordering},
};
use vfs::Disk;
use wire::{BlockHash, Coin, Height, Reader, Sats, coin::compressed_output};

/// A coin with one of the scripts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundCoin {
    /// The coin.
    pub coin: StoredCoin,
    /// Index of its script in the request; of equal ones, the first.
    pub script_index: usize,
    /// The block that created it; `None` if the block index does not lead there.
    pub block_hash: Option<BlockHash>,
}

/// Result of [`crate::utxo::scan()`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanReport {
    /// Height of the best block; `None` if the block index does not have it.
    pub height: Option<Height>,
    /// The chainstate's best block.
    pub best_block: BlockHash,
    /// Number of all coins of the chainstate.
    pub txouts: u64,
    /// The coins with one of the scripts, in the order of their outpoints.
    pub found: Vec<FoundCoin>,
    /// Sum of their amounts.
    pub found_amount: Sats,
}

/// Finds all coins whose script is one of `scripts` in the chainstate of a datadir; writes nothing. All coins
/// are read, in parallel.
///
/// # Errors
/// The same errors as [`crate::utxo::stats()`].
pub fn scan<S: AsRef<[u8]>>(
    disk: &dyn Disk,
    options: &ChainOptions,
    scripts: &[S],
    watch: Watch<'_>,
) -> Result<ScanReport, Error> {
    watch.sink.event(Event::Started(Stage::Read));
    let chainstate = StoredChainstate::open(disk, options)?;
    let StoredChainstate { reader, height, .. } = &chainstate;
    let scan = Scan { reader, height: *height, wanted: &wanted(scripts), coins: AtomicU64::new(0), watch };
    let parts = for_all(options.threads.get(), 0..=u8::MAX, |first| scan.range(first))?;
    let parts = parts.into_iter().collect::<Result<Vec<_>, Error>>()?;
    let txouts = parts.iter().map(|(txouts, _)| txouts).sum();
    let mut found: Vec<FoundCoin> = parts.into_iter().flat_map(|(_, found)| found).collect();
    found.sort_unstable_by_key(|found| found.coin.outpoint);
    let mut amounts = found.iter().map(|found| found.coin.amount.0);
    let sum = amounts.try_fold(0i64, i64::checked_add).ok_or_else(|| chainstate.too_large_amounts())?;
    let best_block = reader.best_block();
    // As with the height: without a block index, only the blocks are unknown.
    let blocks = blocks_at(disk, &chainstate, &found).unwrap_or_default();
    for one in &mut found {
        one.block_hash = blocks.get(&one.coin.height).copied();
    }
    Ok(ScanReport { height: *height, best_block, txouts, found, found_amount: Sats(sum) })
}

/// Returns the indices of the scripts by their compressed form: what is compared, so that no coin has to be
/// decompressed.
fn wanted<S: AsRef<[u8]>>(scripts: &[S]) -> HashMap<Vec<u8>, usize> {
    let mut wanted = HashMap::new();
    for (index, script) in scripts.iter().enumerate() {
        let mut out = compressed_output(Sats(0), script.as_ref());
        out.remove(0); // the amount
        wanted.entry(out).or_insert(index);
    }
    wanted
}

struct Scan<'a> {
    reader: &'a ChainstateReader<'a>,
    height: Option<Height>,
    wanted: &'a HashMap<Vec<u8>, usize>,
    /// Number of coins in the ranges that were read.
    coins: AtomicU64,
    watch: Watch<'a>,
}

impl Scan<'_> {
    /// Reads the coins of all txids that begin with `first`. Returns their number, and those with one of the
    /// scripts.
    fn range(&self, first: u8) -> Result<(u64, Vec<FoundCoin>), Error> {
        let (end, mut found) = (first.checked_add(1).map(|end| [end]), Vec::new());
        let mut coins = self.reader.coins_between(&[first], end.as_ref().map(<[u8; 1]>::as_slice))?;
        let txouts = each_coin(&mut coins, 0, self.watch.without_events(), |outpoint, coin| {
            if let Some(&script_index) = self.wanted.get(compressed_script(coin)) {
                let coin = StoredCoin::new(self.reader, self.height, *outpoint, *coin)?;
                found.push(FoundCoin { coin, script_index, block_hash: None });
            }
            Ok(())
        })?;
        let coins = self.coins.fetch_add(txouts, Ordering::Relaxed) + txouts;
        // Txids are uniformly distributed.
        let coins_total = coins * 256 / (u64::from(first) + 1);
        self.watch.sink.event(Event::Coins(CoinProgress { coins, coins_total: coins_total.max(coins) }));
        Ok((txouts, found))
    }
}

/// Returns the compressed script, which follows the amount. The cursor has validated the output.
fn compressed_script<'a>(coin: &Coin<'a>) -> &'a [u8] {
    let mut reader = Reader::new(coin.out);
    let amount = reader.var_int().map(|_| reader.position());
    amount.ok().and_then(|start| coin.out.get(start..)).unwrap_or_default()
}

/// Returns the blocks of the chainstate's chain at the heights of the coins.
fn blocks_at(
    disk: &dyn Disk,
    chainstate: &StoredChainstate<'_>,
    found: &[FoundCoin],
) -> Result<BTreeMap<Height, BlockHash>, Error> {
    let mut blocks: BTreeMap<Height, BlockHash> =
        found.iter().map(|found| (found.coin.height, BlockHash::default())).collect();
    let (Some(best), Some((&lowest, _))) = (chainstate.height, blocks.first_key_value()) else {
        return Ok(BTreeMap::new());
    };
    // In the order of the hashes: 64 bytes for each header.
    let mut links = Vec::new();
    IndexRows::open(disk, &chainstate.index_dir)?.stream_links(|hash, parent| links.push((hash, parent)))?;
    let mut hash = chainstate.reader.best_block();
    for height in (lowest.0..=best.0).rev() {
        blocks.entry(Height(height)).and_modify(|block| *block = hash);
        let parent = links.binary_search_by_key(&hash, |(hash, _)| *hash).ok().and_then(|at| links.get(at));
        let Some((_, parent)) = parent else { break };
        hash = *parent;
    }
    blocks.retain(|_, block| *block != BlockHash::default());
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_scripts_the_first_is_named() {
        let found = wanted(&[vec![0x51], vec![0x52], vec![0x51]]);
        assert_eq!(found, HashMap::from([(vec![7, 0x51], 0), (vec![7, 0x52], 1)]));
    }
}

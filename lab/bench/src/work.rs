//! The work that the micro benchmarks time and whose instructions the guard counts: the same calls in both,
//! as the engine makes them.

use crate::Block;
use coins::{
    Delta, Entry, Join, Merge, SurvivorShard, Survivors,
    merge::{EntrySource, ShardSource},
};
use digest::siphash::SipKey;
use disk::{
    DiskError,
    chainstate::ChainstateReader,
    sorted_run::{SortedRunCursor, SortedRunReader, SortedRunWriter},
    utxo_stats::{StatsPart, UtxoHasher},
};
use std::path::Path;
use vfs::RealDisk;
use wire::{BlockHash, Coin, Network, OutPoint, coin::chainstate_key_order, script::is_unspendable};

/// Key of the join's tables. A random key, as in production, would change the counts.
const JOIN_KEY: SipKey = SipKey(1, 2);
/// Buffer size of a sorted run's writer and of each cursor, in bytes.
const RUN_BUFFER_BYTES: usize = 1 << 20;

/// Adds blocks to a join and returns it with the number of creations and spends, including those within one
/// block.
fn joined(blocks: &[Block<'_>]) -> (Join, u64) {
    let join = Join::new(JOIN_KEY);
    let (mut effects, mut delta, mut operations) = (join.effects(), Delta::default(), 0);
    for block in blocks {
        delta.add(&block.view, &block.txids, block.height, Some(&block.claims), &mut effects);
        let outputs = block.view.txs().flat_map(|tx| tx.outputs());
        let created = outputs.filter(|output| !is_unspendable(output.script_pubkey())).count();
        operations += (created + block.claims.len()) as u64;
    }
    delta.flush(&mut effects);
    drop(effects);
    (join, operations)
}

/// Joins a whole chain. Returns the survivors, and the number of creations and spends.
///
/// # Panics
/// If the chain is not valid.
pub fn join(blocks: &[Block<'_>]) -> (Survivors, u64) {
    let (join, operations) = joined(blocks);
    (join.finish().expect("generated chains are valid"), operations)
}

/// Joins each of `parts` spans of a chain separately. Returns the survivors of each, including spends of
/// earlier spans' coins.
///
/// # Panics
/// If the chain is not valid.
pub fn join_parts(blocks: &[Block<'_>], parts: usize) -> Vec<Vec<SurvivorShard>> {
    let spans = blocks.chunks(blocks.len().div_ceil(parts).max(1));
    let open = spans.map(|span| joined(span).0.finish_spilled().expect("generated chains are valid"));
    open.map(Survivors::into_shards).collect()
}

/// Sorts the survivors of a join and reads them in order; returns the total length of their outputs in bytes.
pub fn sort_and_walk(survivors: Survivors) -> usize {
    let sorted = survivors.into_shards().into_iter().map(SurvivorShard::sort);
    sorted.map(|shard| shard.iter().map(|entry| entry.coin.out.len()).sum::<usize>()).sum()
}

/// Writes the open entries of shards to a sorted run; returns their number.
pub fn write_run(path: &Path, shards: Vec<SurvivorShard>) -> u64 {
    let mut run = SortedRunWriter::create(&RealDisk, path, Network::Regtest, RUN_BUFFER_BYTES).expect(DISK);
    let mut source = ShardSource::new(shards);
    while let Ok(Some(entry)) = source.advance() {
        run.add(&entry).expect(DISK);
    }
    run.finish().expect(DISK).entries
}

const DISK: &str = "the disk works";

pub fn open_run(path: &Path) -> SortedRunReader {
    SortedRunReader::open(&RealDisk, path, Network::Regtest).expect(DISK)
}

/// Reads a whole sorted run; returns the total length of its outputs in bytes.
pub fn read_run(run: &SortedRunReader) -> usize {
    let (mut cursor, mut bytes) = (run.cursor(0..coins::SHARDS, RUN_BUFFER_BYTES), 0);
    while let Some(entry) = cursor.advance().expect(DISK) {
        bytes += entry.coin.out.len();
    }
    bytes
}

pub struct RunSource<'r>(SortedRunCursor<'r>);

impl EntrySource for RunSource<'_> {
    type Error = DiskError;

    #[inline]
    fn advance(&mut self) -> Result<Option<Entry<'_>>, DiskError> {
        self.0.advance()
    }
}

/// Merges sorted runs. Returns the number of remaining coins, and the total length of their outputs in bytes.
///
/// # Panics
/// If the disk fails, or the entries of the runs do not match.
pub fn merge_runs(runs: &[SortedRunReader]) -> (u64, usize) {
    let source = |run| RunSource(SortedRunReader::cursor(run, 0..coins::SHARDS, RUN_BUFFER_BYTES));
    let mut merge = Merge::new(runs.iter().map(source).collect()).expect(DISK);
    let (mut coins, mut bytes) = (0, 0);
    while !merge.is_at_end() {
        let Some(entry) = merge.advance().expect("the parts of a valid chain match") else { continue };
        coins += 1;
        bytes += entry.coin.out.len();
    }
    (coins, bytes)
}

/// Returns all coins that the chain spends, in key order: there are more of them than survivors.
pub fn spent_coins<'a>(blocks: &[Block<'a>]) -> Vec<(OutPoint, Coin<'a>)> {
    let mut coins = Vec::new();
    for block in blocks {
        coins.extend(block.view.prevouts().zip(block.claims.iter().copied()));
    }
    coins.sort_unstable_by(|(a, _), (b, _)| chainstate_key_order(a, b));
    coins
}

/// Writes coins as a chainstate into an empty directory.
///
/// # Panics
/// If the disk fails, or the coins are not in order.
pub fn write_chainstate(dir: &Path, coins: &[(OutPoint, Coin<'_>)]) {
    let (key, best_block) = ([1, 2, 3, 4, 5, 6, 7, 8], BlockHash::default());
    testkit::datadir::write_chainstate(&RealDisk, dir, key, best_block, coins.iter().copied()).expect(DISK);
}

pub fn open_chainstate(dir: &Path) -> ChainstateReader<'static> {
    ChainstateReader::open(&RealDisk, dir).expect(DISK)
}

/// Reads all coins and serialises them for the UTXO hash.
pub fn read_chainstate(reader: &ChainstateReader<'_>) -> StatsPart {
    let (mut rows, mut part) = (reader.coins().expect(DISK), StatsPart::new(false));
    while let Some((outpoint, coin)) = rows.advance().expect(DISK) {
        part.add(&outpoint, &coin).expect("coins are well-formed");
    }
    part
}

/// Returns the statistics of serialised coins, including their hash, as text.
pub fn utxo_hash(part: StatsPart) -> String {
    let mut hasher = UtxoHasher::new(false);
    hasher.merge(part);
    format!("{:?}", hasher.finish())
}

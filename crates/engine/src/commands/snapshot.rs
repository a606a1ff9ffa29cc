//! UTXO snapshots, as Bitcoin Core's `dumptxoutset` writes and `loadtxoutset` reads them: makes one from the
//! blocks, and proves one against them.

mod fetch;
mod load;
mod share;
mod source;

pub use disk::{snapshot::SnapshotMetadata, utxo_tree::CHUNK_LEN};
pub use fetch::{FetchOptions, FetchedSnapshotReport, SourceFault, fetch};
pub use load::{LoadedSnapshotReport, load};
pub use share::{SharedSnapshotReport, scheduled_heights, share, share_file};

use api::{
    disk_need::check_space,
    error::Error,
    event::{Event, Watch},
    machine,
    options::{ChainOptions, UndoPolicy},
    remedy::Remedy,
    size::HumanSize,
    stage::Stage,
    subject::Subject,
    utxo_stats::UtxoStatsReport,
};
use coins::aggregate::{Aggregate, AggregateKey, AggregateKind, Sum};
use disk::{
    datadir::Datadir,
    index::find_height,
    snapshot::{SnapshotReader, SnapshotWriter},
};
use pipeline::{
    job::{
        self, Job,
        read_only_job::{read_live, require_absent, with_read_only_job},
        stored_chainstate::StoredChainstate,
    },
    stages::{
        coin_hash::CoinHash,
        coin_reader::{each_coin, other_network},
        coin_sink::Coins,
        finish::read_back,
        method::{HintMatching, Method},
        unspent::ForEachError,
    },
};
use rules::ChainParams;
use std::path::Path;
use vfs::{Disk, dir_of, unfinished};
use wire::{BlockHash, Height, Network};

api::reported! {
/// Report of a snapshot that was made.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotReport {
    /// The network.
    pub network as "chain": Network,
    /// Height of the last block whose effects it contains.
    pub height: Height,
    /// Hash of that block.
    pub hash as "block_hash": BlockHash,
    /// Number of coins.
    pub coins: u64,
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// `hash_serialized_3` of the set, in internal byte order.
    pub hash_serialized_3 with "api::json::HashText": [u8; 32],
    /// Whether Core's source pins this hash for this block. False if it pins none; if it pins another one,
    /// there is no snapshot.
    pub is_pinned as "matches_core_assumeutxo_hash" with "api::json::TrueOrNull": bool,
}
}

/// Result of [`verify()`].
#[derive(Clone, Copy, Debug)]
pub struct SnapshotVerdict {
    /// The snapshot's metadata.
    pub metadata: SnapshotMetadata,
    /// `hash_serialized_3` of its coins, in internal byte order.
    pub hash_serialized_3: [u8; 32],
    /// Whether Core's source pins the same hash for this block; `None` if it pins none.
    pub pinned: Option<bool>,
    /// Whether the coins are those after the base block; `None` if no datadir was given.
    pub proven: Option<bool>,
}

/// Makes a snapshot of the chain in `options` after its last block.
///
/// # Errors
/// The same errors as [`crate::reindex()`]; nothing is left at `path` then.
pub fn make(
    disk: &dyn Disk,
    options: &ChainOptions,
    path: &Path,
    watch: Watch<'_>,
) -> Result<SnapshotReport, Error> {
    require_absent(disk, path)?;
    with_read_only_job(disk, options, Some(path), watch, |job, clock| {
        job.check_temporary_need()?;
        let matched = job.match_spends(clock)?;
        job.watch.sink.event(Event::Started(Stage::Finish));
        let (report, _) = job.for_each_coin(matched, clock, |coins| write_coins(job, path, coins))?;
        Ok(report)
    })
}

/// Makes a snapshot of the coins of a chainstate on disk, which are read twice: first to count and hash them.
/// No block is read.
///
/// # Errors
/// The same errors as [`crate::utxo::stats()`]; [`api::error::ErrorKind::Damaged`] if the block index does
/// not have the best block, or Core's source pins another hash for it;
/// [`api::error::ErrorKind::Interrupted`]. Nothing is left at `path` then.
pub fn make_of_chainstate(
    disk: &dyn Disk,
    options: &ChainOptions,
    path: &Path,
    watch: Watch<'_>,
) -> Result<SnapshotReport, Error> {
    require_absent(disk, path)?;
    let chainstate = StoredChainstate::open(disk, options)?;
    let (network, hash) = (options.params.network, chainstate.reader.best_block());
    let height = chainstate.height.ok_or_else(|| {
        Error::damaged(format!("the block index does not have the chainstate's best block {hash}"))
            .in_file(&chainstate.index_dir, None)
            .about(Subject::BlockIndex)
    })?;
    let reader = &chainstate.reader;
    let output = unfinished::target(disk, path)?;
    // A table has a key of its own for each coin, and lengths.
    let need = reader.table_bytes() / 4 * 3;
    let needs = format!("the snapshot needs about {}", HumanSize(need));
    check_space(disk, &[(dir_of(&output), need, &[Remedy::OtherOutput])], &needs)?;
    watch.sink.event(Event::Started(Stage::Prove));
    let stats = read_back(reader, None, job::memory::affordable_threads(options), watch)?;
    let stats = UtxoStatsReport::new(&stats, network, Some(height), hash);
    let stats = stats.ok_or_else(|| chainstate.too_large_amounts())?;
    stats.check_pinned()?;
    watch.sink.event(Event::Started(Stage::Finish));
    let magic = options.params.magic;
    let mut writer = SnapshotWriter::create(disk, path, magic, hash, stats.txouts)?;
    each_coin(&mut reader.coins()?, stats.txouts, watch, |outpoint, coin| Ok(writer.add(outpoint, coin)?))?;
    let bytes = writer.finish()?;
    let UtxoStatsReport { txouts: coins, hash_serialized_3, pinned, .. } = stats;
    let is_pinned = pinned == Some(true);
    Ok(SnapshotReport { network, height, hash, coins, bytes, hash_serialized_3, is_pinned })
}

/// Writes the coins of a job as a snapshot at `path`. On a mismatch, nothing is left there.
fn write_coins(job: &Job<'_>, path: &Path, coins: Coins<'_>) -> Result<SnapshotReport, ForEachError> {
    let (height, hash) = (job.plan.chain.tip_height(), job.plan.chain.tip().hash);
    let count = coins.count();
    let mut writer = SnapshotWriter::create(job.work.disk(), path, job.files.params.magic, hash, count)?;
    let mut hashing = CoinHash::new();
    coins.in_sequence(|outpoint, coin| {
        writer.add(outpoint, coin)?;
        hashing.add(outpoint, coin)
    })?;
    let hash_serialized_3 = hashing.finish();
    let is_pinned = job::check_pinned_hash(job.files.params, height, &hash, &hash_serialized_3)?;
    let bytes = writer.finish()?;
    let network = job.options.params.network;
    Ok(SnapshotReport { network, height, hash, coins: count, bytes, hash_serialized_3, is_pinned })
}

/// Reads the metadata of a snapshot.
///
/// # Errors
/// Damage, and any I/O error.
pub fn info(disk: &dyn Disk, path: &Path) -> Result<SnapshotMetadata, Error> {
    Ok(*SnapshotReader::open(disk, path)?.metadata())
}

/// Reads a whole snapshot. With a datadir, proves that its coins are those after its base block: the sum of
/// all coins created, less all coins spent, less all coins of the snapshot must be zero. This needs no hints
/// and almost no memory.
///
/// # Errors
/// Damage; for the blocks, the same errors as [`crate::reindex()`]. Coins that differ are no error; the
/// verdict reports them.
pub fn verify(
    disk: &dyn Disk,
    path: &Path,
    datadir: Option<&ChainOptions>,
    aggregate: AggregateKind,
    watch: Watch<'_>,
) -> Result<SnapshotVerdict, Error> {
    let mut reader = SnapshotReader::open(disk, path)?;
    let metadata = *reader.metadata();
    let from_blocks = |options| aggregate_from_blocks(disk, options, (path, &metadata), aggregate, watch);
    let mut sum = datadir.map(from_blocks).transpose()?;
    let mut hashing = CoinHash::new();
    watch.sink.event(Event::Started(Stage::Prove));
    each_coin(&mut reader, metadata.coins, watch, |outpoint, coin| {
        if let Some(sum) = &mut sum {
            sum.subtract(outpoint, Some(*coin));
        }
        hashing.add(outpoint, coin)
    })?;
    let hash_serialized_3 = hashing.finish();
    let params = ChainParams::of(metadata.network());
    let pinned = params.has_pinned_hash(&metadata.base_block, &hash_serialized_3);
    Ok(SnapshotVerdict { metadata, hash_serialized_3, pinned, proven: sum.as_mut().map(Sum::is_zero) })
}

/// Returns the sum of all coins created less all coins spent. Where undo data is missing, or coinbases
/// repeat, the coins that are left are summed up.
fn aggregate_from_blocks(
    disk: &dyn Disk,
    options: &ChainOptions,
    (path, metadata): (&Path, &SnapshotMetadata),
    aggregate: AggregateKind,
    watch: Watch<'_>,
) -> Result<Sum, Error> {
    if metadata.magic != options.params.magic {
        return Err(other_network(metadata, options.params));
    }
    let datadir = Datadir::open(disk, &options.location())?;
    let find = || Ok(find_height(disk, &datadir.index_dir(), &metadata.base_block)?);
    let height = read_live(options, find)?.ok_or_else(|| {
        Error::usage(format!("the snapshot's base block {} is not in the datadir", metadata.base_block))
    })?;
    metadata.check_height(path, height)?;
    let aggregate = Aggregate::new(aggregate, AggregateKey::new(machine::random()?));
    let hinted_spent = Method::Hints(HintMatching::all_spent(aggregate.clone(), height));
    let options = &ChainOptions { scan: false, stop_at_height: Some(height), ..options.clone() };
    with_read_only_job(disk, options, None, watch, |job, clock| {
        if job.plan.chain.tip().hash != metadata.base_block {
            let base = metadata.base_block;
            return Err(Error::usage(format!(
                "the snapshot's base block {base} is not in the most-work chain"
            )));
        }
        if job.expects_undo() {
            let makes_undo = options.undo == UndoPolicy::Auto;
            let may_go_on = |error: &Error| makes_undo && error.is_about(Subject::UndoData);
            let sum = (Job { method: &hinted_spent, ..*job }).sum(clock).transpose();
            if let Some(sum) = sum.filter(|sum| !sum.as_ref().is_err_and(may_go_on)) {
                return sum;
            }
        }
        job.check_temporary_need()?;
        let matched = job.match_spends(clock)?;
        let (sum, _) = job.for_each_coin(matched, clock, |coins| {
            let mut sum = aggregate.sum();
            coins.in_sequence(|outpoint, coin| {
                sum.add(outpoint, Some(*coin));
                Error::check_interrupt(watch.interrupt)
            })?;
            Ok(sum)
        })?;
        Ok(sum)
    })
}

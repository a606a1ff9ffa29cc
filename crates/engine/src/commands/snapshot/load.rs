//! Makes the chainstate of a snapshot, with which bitcoind starts as after its `loadtxoutset`: it continues
//! from the snapshot's block, and validates the blocks below it in the background.
//!
//! What Core keeps of a loaded snapshot on disk (`ActivateSnapshot`, `PopulateAndValidateSnapshot`):
//!
//! - `chainstate_snapshot`: the coins, and the snapshot's block as the best block.
//! - `chainstate_snapshot/base_blockhash`: the hash of that block. Without it, bitcoind ignores the
//!   directory.
//! - In the block index, all blocks up to that one from the height of BIP-0141 on have the mark that they
//!   were received with witness data. Otherwise bitcoind asks for a `-reindex` when it starts
//!   (`NeedsRedownload`).
//!
//! Everything else is in memory, and is computed when bitcoind starts. Both databases are put in place
//! together.

use api::{
    error::Error,
    event::{Event, EventSink as _, Warnings, Watch},
    hex_reversed, machine,
    note::Warning,
    options::{ChainOptions, ReindexOptions, UndoPolicy},
    remedy::Remedy,
    stage::Stage,
    subject::Subject,
};
use chain::{
    blocks::files::Files,
    commit::Destination,
    plan::{
        best_block::KnownBlock, planner::links_of_index, second_chainstate::SecondChainstate, tree::Tree,
    },
    session::Session,
};
use digest::obfuscation::Obfuscation;
use disk::{
    chainstate::{ChainstateReader, read_best_block},
    datadir::{Datadir, SNAPSHOT_BASE},
    index::{BlockStatus, IndexEntry, PrunedFlag, rewrite_block_index},
    snapshot::{SnapshotMetadata, SnapshotReader},
};
use pipeline::{
    job::{clock::Clock, memory::affordable_threads},
    stages::{
        coin_reader::{each_coin, other_network},
        finish::read_back,
    },
};
use rules::params::PinnedUtxoSet;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use vfs::{Disk, During as _, write_synced};
use wire::{BlockHash, Height, Network};

api::reported! {
/// Result of [`crate::snapshot::load()`].
#[derive(Clone, Debug)]
pub struct LoadedSnapshotReport {
    /// The network.
    pub network as "chain": Network,
    /// Height of the snapshot's block.
    pub height: Height,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// Number of coins.
    pub coins: u64,
    /// `hash_serialized_3` of the coins, in internal byte order: the hash in Core's source.
    pub hash_serialized_3 with "api::json::HashText": [u8; 32],
    /// Path of the new chainstate.
    pub chainstate with "api::json::PathText": PathBuf,
    /// Time from the call to the end.
    pub elapsed as "seconds" with "api::json::Seconds": Duration,
    /// Warnings for the operator.
    pub notes with "api::note::NoteTexts": Vec<Warning>,
}
}

/// Makes the chainstate of the snapshot at `path` in the datadir of `options`, if the coins have the hash
/// that Core's source has for their block. The conditions are those of `loadtxoutset`. On failure, the
/// datadir is as it was.
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] if Core would not load this snapshot into this datadir;
/// [`api::error::ErrorKind::Damaged`] if the snapshot or the block index is damaged, or the hash is another
/// one; [`api::error::ErrorKind::Environment`].
pub fn load(
    disk: &dyn Disk,
    path: &Path,
    options: &ChainOptions,
    watch: Watch<'_>,
) -> Result<LoadedSnapshotReport, Error> {
    Warnings::in_place(watch.sink, |sink| {
        let (clock, watch) = (Clock::start(), Watch { sink, ..watch });
        sink.event(Event::Started(Stage::Plan));
        let reader = SnapshotReader::open(disk, path)?;
        let pinned = pinned(path, reader.metadata(), options)?;
        reader.metadata().check_height(path, pinned.height)?;
        // The block index is replaced.
        let in_place = ReindexOptions::of(ChainOptions { undo: UndoPolicy::Auto, ..options.clone() });
        let (session, datadir) = Session::open_for_change(disk, &in_place, sink)?;
        let below = blocks_below(&session.files()?, pinned)?;
        let target = Destination::of_snapshot(disk, datadir.clone())?;
        let load = Load { disk, datadir: &datadir, options, pinned, target: &target, watch };
        let coins = load.build(reader, path, &below).inspect_err(|_| target.discard())?;
        Ok(LoadedSnapshotReport {
            network: options.params.network,
            height: pinned.height,
            hash: pinned.block_hash,
            coins,
            hash_serialized_3: pinned.hash_serialized_3,
            chainstate: datadir.snapshot_dir(),
            elapsed: clock.started.elapsed(),
            notes: sink.take(),
        })
    })
}

/// Returns what Core's source says of the snapshot's block.
fn pinned(
    path: &Path,
    metadata: &SnapshotMetadata,
    options: &ChainOptions,
) -> Result<&'static PinnedUtxoSet, Error> {
    let params = options.params;
    if metadata.magic != params.magic {
        return Err(other_network(metadata, params).in_file(path, None));
    }
    params.pinned_utxo_set(&metadata.base_block).ok_or_else(|| {
        let heights: Vec<String> = params.assume_utxo.iter().map(|set| set.height.to_string()).collect();
        let detail = format!(
            "bitcoind loads no snapshot of block {}; its source has hashes of snapshots for the heights {}",
            metadata.base_block,
            heights.join(", ")
        );
        Error::usage(detail).in_file(path, None)
    })
}

/// Checks the conditions that Core has for a snapshot of this block, and that bitcoind would start with it.
/// Returns the hashes of the blocks from its block down to the one above genesis, sorted.
fn blocks_below(files: &Files<'_>, pinned: &PinnedUtxoSet) -> Result<Vec<BlockHash>, Error> {
    let Files { disk, datadir, params, .. } = *files;
    let base = pinned.block_hash;
    let second = datadir.snapshot_dir();
    if disk.exists(&second).during("look for", &second)? {
        let detail = "the datadir has a chainstate of a snapshot already";
        // An earlier run can have been interrupted at its end, and be finished since the datadir was opened.
        let is_loaded = disk.read(&second.join(SNAPSHOT_BASE), 32).is_ok_and(|hash| hash == base.0);
        let error = if is_loaded {
            Error::usage(format!(
                "{detail}, and it is of this block; start bitcoind, which continues from it"
            ))
        } else {
            Error::usage(detail).about(Subject::SecondChainstate)
        };
        return Err(error.in_file(second, None));
    }
    let index_dir = datadir.index_dir();
    let in_index = |error: Error| error.in_file(&index_dir, None);
    let mut tree = links_of_index(disk, &index_dir, params)?.0;
    let best_headers = tree.best_headers();
    let locate = |hash: &BlockHash| tree.locate(hash, &best_headers, Height(0));
    let Some(block) = locate(&base).filter(|block| block.known.height == pinned.height) else {
        let detail = format!(
            "the block index has no header of the snapshot's block {base}; start bitcoind until it has \
             synchronised the headers, and stop it"
        );
        return Err(in_index(Error::usage(detail)));
    };
    if tree.failed().binary_search(&base).is_ok() {
        let detail = format!("the block index marks the snapshot's block {base} as invalid");
        return Err(in_index(Error::usage(detail)));
    }
    if block.fork != pinned.height {
        let detail = "another chain of headers than that of the snapshot's block has more work";
        return Err(in_index(Error::usage(detail)));
    }
    let chainstate = datadir.chainstate_dir();
    let best = read_best_block(disk, &chainstate)?;
    if let Some(best) = best {
        let detail = format!("the chainstate's best block {best} is not in the block index");
        let best_block = locate(&best)
            .ok_or_else(|| Error::damaged(detail).in_file(&chainstate, None).about(Subject::BlockIndex))?;
        let KnownBlock { height, work, .. } = best_block.known;
        if work >= block.known.work {
            let detail = format!(
                "the chainstate is at height {height} already; a snapshot of height {} would be of no use",
                pinned.height
            );
            return Err(Error::usage(detail).in_file(&chainstate, None));
        }
        // Otherwise bitcoind would end when it next starts (`Chainstate::ReachedTarget`).
        if best_block.fork != height {
            let detail = format!(
                "the chainstate's best block {best} is not below the snapshot's block: it is on another \
                 branch, and bitcoind could not start with both; start bitcoind until it has left that branch"
            );
            return Err(Error::usage(detail).in_file(&chainstate, None).with_remedies([Remedy::MoveAway]));
        }
    }
    check_start(files, &tree, best, base)?;
    let below = best_headers.iter().skip(1).take(pinned.height.0 as usize);
    let mut below: Vec<BlockHash> = below.map(|&number| tree.hash(number)).collect();
    below.sort_unstable();
    Ok(below)
}

/// Checks that bitcoind would start with the chainstate of a snapshot of the block `base`: it reads those of
/// its last blocks that are stored. `best` is the best block of the chainstate below.
fn check_start(
    files: &Files<'_>,
    tree: &Tree<'_>,
    best: Option<BlockHash>,
    base: BlockHash,
) -> Result<(), Error> {
    let branch = best.map_or_else(Vec::new, |best| tree.branch_to(&best));
    let loaded = SecondChainstate::to_load(files.datadir, base);
    let Some(obstacle) = loaded.obstacle(files, tree, &branch, |_| false)? else { return Ok(()) };
    let detail = format!(
        "bitcoind could not start with the chainstate of this snapshot: {obstacle}; start bitcoind without \
         it, which downloads what is missing and connects all"
    );
    Err(Error::usage(detail).in_file(files.datadir.blocks_dir(), None))
}

struct Load<'a> {
    disk: &'a dyn Disk,
    datadir: &'a Datadir,
    options: &'a ChainOptions,
    pinned: &'a PinnedUtxoSet,
    target: &'a Destination<'a>,
    watch: Watch<'a>,
}

impl Load<'_> {
    /// Writes, proves and puts in place both databases. Returns the number of coins.
    fn build(&self, reader: SnapshotReader, path: &Path, below: &[BlockHash]) -> Result<u64, Error> {
        let Self { disk, target, pinned, watch, .. } = *self;
        let dir = target.building();
        watch.sink.event(Event::Started(Stage::Finish));
        let coins = self.write_coins(reader, path, dir)?;

        watch.sink.event(Event::Started(Stage::Prove));
        let of_written = |error: Error| error.of_written("the new chainstate");
        let written = ChainstateReader::open(disk, dir).map_err(|error| of_written(error.into()))?;
        let threads = affordable_threads(self.options);
        let stats = read_back(&written, Some(coins), threads, watch).map_err(of_written)?;
        if stats.hash_serialized_3 != pinned.hash_serialized_3 {
            let [found, expected] =
                [stats.hash_serialized_3, pinned.hash_serialized_3].map(|hash| hex_reversed(&hash));
            let detail = format!(
                "the coins have the hash {found}, but Bitcoin Core's source has {expected} for this block; \
                 the snapshot is damaged or forged, get it from elsewhere"
            );
            let error = Error::damaged(detail).at_block(pinned.height, pinned.block_hash);
            return Err(error.in_file(path, None));
        }

        watch.sink.event(Event::Started(Stage::Commit));
        let base = dir.join(SNAPSHOT_BASE);
        write_synced(disk, &base, &pinned.block_hash.0)?;
        disk.sync_dir(dir).during("sync", dir)?;
        self.write_index(below)?;
        Error::check_interrupt(watch.interrupt)?;
        target.commit(watch.sink, || ())?;
        Ok(coins)
    }

    /// Writes the coins of the snapshot into a new chainstate in `dir`.
    fn write_coins(&self, mut reader: SnapshotReader, path: &Path, dir: &Path) -> Result<u64, Error> {
        let pinned = self.pinned;
        let key = Obfuscation::from_key(machine::random()?);
        let mut chainstate = ChainstateReader::create(self.disk, dir, key)?;
        let update = chainstate.update(pinned.block_hash)?;
        let (mut range, coins_total) = (update.numbered_range(0, 1), reader.metadata().coins);
        let coins = each_coin(&mut reader, coins_total, self.watch, |outpoint, coin| {
            if coin.height() > pinned.height {
                let (created, height) = (coin.height(), pinned.height);
                let detail =
                    format!("coin {outpoint} of height {created} is above the snapshot's height {height}");
                return Err(Error::damaged(detail).in_file(path, None));
            }
            Ok(range.set(outpoint, Some(coin))?)
        })?;
        let range = range.finish()?;
        update.commit([range])?;
        Ok(coins)
    }

    /// Writes the block index with the marks of the blocks up to the snapshot's.
    fn write_index(&self, below: &[BlockHash]) -> Result<(), Error> {
        let Some(to) = self.target.building_index() else { return Ok(()) };
        let segwit_height = self.options.params.segwit_height;
        let change = |entry: &mut IndexEntry| {
            if entry.height >= segwit_height && below.binary_search(&entry.hash).is_ok() {
                entry.status.0 |= BlockStatus::OPT_WITNESS;
            }
        };
        let old = self.datadir.index_dir();
        Ok(rewrite_block_index(self.disk, &old, to, [], PrunedFlag::Keep, change, |_| ())?)
    }
}

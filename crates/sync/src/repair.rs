//! Downloads the blocks that are damaged or missing, and rebuilds only what needs it.

use crate::{
    fetch::{Fetched, fetch, has_peers},
    new_datadir,
    options::{DownloadReport, PeerOptions, PeerStatus, Shortfall, SyncOptions, SyncSink, SyncWarnings},
    stored_coins::read_all,
};
use api::{
    error::Error,
    event::{Event, EventSink, Warnings, Watch},
    note::{Note, Warning},
    options::{ChainOptions, ReindexOptions, ScriptChecks, SetAsideIndexes},
    remedy::Remedy,
    report::ReindexReport,
    source_report::SourceReport,
    stage::Stage,
};
use chain::{
    blocks::{damage::KnownDamage, files::Files},
    blocks_elsewhere::{self, Source, TakeOptions, TakenBlocks},
    given_blocks,
    invalid_blocks::{InvalidBlock, mark_invalid, unmark},
    plan::{existing_state::DOWNLOAD_WINDOW, indexes::before_moves, planner::tree_of_index},
    session::Session,
    stored_blocks::forget_stale,
};
use disk::{
    chainstate::read_best_block, datadir::Datadir, index::IndexEntry, node_indexes::set_aside,
    replace::KEPT_SUFFIX,
};
use engine::{reindex, undo::MadeUndoReport};
use pipeline::job::{
    damage_survey::find_damage,
    index_by_scan::ensure_index,
    now,
    two_chainstates::{check_start, refuse},
};
use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};
use vfs::{Disk, During as _};
use wire::{BlockHash, Height, Network};

#[derive(Clone, Debug)]
pub struct RepairOptions {
    /// The datadir, and how its blocks are checked.
    pub chain: ChainOptions,
    /// Which indexes of the node are set aside if they would become wrong.
    pub set_aside_indexes: SetAsideIndexes,
    /// Block files, folders with some, or datadirs, from which blocks are taken before peers are asked.
    pub sources: Vec<PathBuf>,
    pub peers: PeerOptions,
}

impl RepairOptions {
    /// The default options, with one thread.
    pub fn new(datadir: &Path, network: Network, scripts: ScriptChecks) -> Self {
        let SyncOptions { chain, peers, .. } = SyncOptions::new(datadir, network, scripts);
        Self { chain, set_aside_indexes: SetAsideIndexes::None, sources: Vec::new(), peers }
    }
}

api::json::written! {
    /// If nothing was downloaded, all numbers are 0.
    Downloaded: Option<DownloadReport> => DownloadReport, |download| download.unwrap_or_default();
}

api::reported! {
/// Result of [`repair`].
#[derive(Clone, Debug)]
pub struct RepairReport {
    /// The network.
    pub network as "chain": Network,
    /// Number of blocks that were damaged, or not in their files.
    pub damaged as "damaged_blocks": u32,
    /// Number of these in files that do not exist.
    pub lost as "blocks_in_missing_files": u32,
    /// Number of these files.
    pub lost_files as "missing_files": u32,
    /// Number of blocks that the block index did not place, below one that it placed.
    pub missing as "missing_blocks": u32,
    /// Number of blocks whose undo data was damaged or missing.
    pub damaged_undo: u32,
    /// What was wrong with the lowest damaged blocks; a file that does not exist is named once.
    pub first with "api::error::ErrorTexts": Vec<Error>,
    /// Number of such errors that `first` leaves out.
    pub others [skip]: u32,
    /// Number of blocks that were taken from block files.
    pub taken: u32,
    /// Their bytes.
    pub taken_bytes: u64,
    /// What was found in each file or folder from which blocks were to be taken.
    pub sources: Vec<SourceReport>,
    /// What was downloaded; `None` if all blocks were sound, or taken from files.
    pub download with "Downloaded" [flatten]: Option<DownloadReport>,
    /// The peers that have sent blocks, the one that has sent the most bytes first.
    pub peers as "senders": Vec<PeerStatus>,
    /// Height of the last block that is stored.
    pub height: Height,
    /// The blocks above it that peers claim to have, if those of the datadir were not known.
    pub shortfall as "ends_below": Option<Shortfall>,
    /// The rebuild of the chainstate; `None` if that was sound.
    pub rebuild: Option<ReindexReport>,
    /// The undo data that was made, if the chainstate was not rebuilt and some was missing.
    pub undo: Option<MadeUndoReport>,
    /// Warnings for the operator.
    pub notes with "api::note::Notes": Vec<Warning>,
}
}

/// Reads all blocks, downloads those that are damaged or missing, and stores them. Then rebuilds the
/// chainstate if it is damaged or cannot be completed by bitcoind, and otherwise makes the undo data that is
/// missing.
///
/// A block index that cannot be read, or lacks the chainstate's best block, is first replaced by what a scan
/// of the block files finds. If they do not have that block either, all blocks of the peers are downloaded;
/// if it is not among those, the chainstate is set aside.
///
/// The block index keeps its entries of damaged blocks until the downloaded ones are stored, and a second
/// call continues, so that an interrupt leaves nothing worse than it was.
///
/// # Errors
/// Those of [`reindex()`], and any error of the network that is not one of a single peer.
pub fn repair(
    disk: &dyn Disk,
    options: &RepairOptions,
    sink: &dyn SyncSink,
    interrupt: &AtomicBool,
) -> Result<RepairReport, Error> {
    Warnings::in_place(sink, |sink| repair_in_place(disk, options, sink, interrupt))
}

fn repair_in_place(
    disk: &dyn Disk,
    options: &RepairOptions,
    sink: &SyncWarnings<'_>,
    interrupt: &AtomicBool,
) -> Result<RepairReport, Error> {
    // The places of blocks are those of the block index, which is mended first; and all blocks count.
    let chain = ChainOptions { scan: false, stop_at_height: None, ..options.chain.clone() };
    let RepairOptions { set_aside_indexes, sources, peers, .. } = options.clone();
    let options = &SyncOptions { set_aside_indexes, peers, ..SyncOptions::of(chain) };
    let (chain, rebuild) = (&options.chain, options.rebuild());
    let (sources, watch) = (&find_sources(disk, options, &sources, sink)?, Watch { sink, interrupt });
    let (session, _) = Session::open_for_change(disk, &rebuild, sink)?;
    let files = &if sources.is_empty() { session.files()? } else { session.files_of_some()? };
    given_blocks::restore_genesis(files)?;
    let mut lost_tips = ensure_index(files, chain, true, watch)?;
    let found = find_damage(files, chain, watch)?;
    lost_tips.extend(best_above(files, found.last_stored)?);
    // How many are missing above the index is not known yet.
    if lost_tips.is_empty() || found.missing > 0 || !found.is_empty() {
        sink.event(Event::Note(note_of(&found)));
    }
    check_second_chainstate(files, &found)?;
    let (taken, left) = take(files, options, (sources, !lost_tips.is_empty()), &found, watch)?;
    let is_tip_lost = lacks_any(files, &lost_tips)?;
    let fetched = download(files, options, &left, is_tip_lost, sink, interrupt)?;
    let height = fetched.as_ref().map_or(taken.height, |fetched| fetched.height);
    let best = best_block(files, chain, watch)?;
    if is_tip_lost && best.is_none() {
        set_chainstate_aside(files, sink)?;
    }
    let on_chain = best.map(|(hash, _)| is_on_best_chain(files, &hash, sink)).transpose()?.unwrap_or(true);
    // A chainstate on a stale branch is of no use without its stale blocks, or if the marks may be wrong.
    let best = best.filter(|_| on_chain || found.stale == 0 && chain.reconsider.is_none());
    let best = best.map(|(_, best)| best).filter(|best| height.0.saturating_sub(best.0) <= DOWNLOAD_WINDOW);
    // What follows locks the datadir itself.
    drop(session);
    let (rebuilt, made) = match best {
        None => (Some(rebuild_chainstate(disk, &rebuild, watch)?), None),
        Some(best) if !on_chain || best > found.last_stored || found.lacks_undo_up_to(best) => {
            let made = engine::undo::make(disk, chain, watch);
            (None, Some(made.map_err(|error| error.but_blocks_are("stored"))?))
        }
        Some(_) => (None, None),
    };
    let stored = taken.hashes.len() as u32 + fetched.as_ref().map_or(0, |fetched| fetched.report.blocks);
    let above = if lost_tips.is_empty() { 0 } else { stored.saturating_sub(found.blocks.len() as u32) };
    let done = fetched.map_or_else(Default::default, |it| (Some(it.report), it.peers, it.shortfall));
    Ok(RepairReport {
        network: chain.params.network,
        damaged: found.blocks.len() as u32,
        lost: found.lost,
        lost_files: found.lost_files,
        missing: found.missing.max(above),
        damaged_undo: found.undo.len() as u32,
        first: found.first,
        others: found.others,
        taken: taken.hashes.len() as u32,
        taken_bytes: taken.bytes,
        sources: taken.sources,
        height,
        download: done.0,
        peers: done.1,
        shortfall: done.2,
        rebuild: rebuilt,
        undo: made,
        notes: sink.take(),
    })
}

/// Rebuilds the chainstate. What is invalid gets the mark back that was taken away.
fn rebuild_chainstate(
    disk: &dyn Disk,
    options: &ReindexOptions,
    watch: Watch<'_>,
) -> Result<ReindexReport, Error> {
    let report = reindex(disk, options, watch).map_err(|error| error.but_blocks_are("stored"))?;
    for note in report.notes.iter().filter(|_| options.chain.reconsider.is_some()) {
        if let Warning::InvalidBlock { hash, error } = note
            && let Some(height) = error.height
        {
            let (session, _) = Session::open_for_change(disk, options, watch.sink)?;
            mark_invalid(&session.files()?, InvalidBlock { height, hash: *hash })?;
        }
    }
    Ok(report)
}

fn note_of(found: &KnownDamage) -> Note {
    let &KnownDamage { lost, lost_files, missing, .. } = found;
    let (blocks, undo) = (found.blocks.len() as u32, found.undo.len() as u32);
    Note::FoundDamage { blocks, lost, lost_files, missing, undo }
}

/// The chainstate's best block, if only its header is stored, and it is above all stored blocks: an
/// interrupted repair has begun to download it.
fn best_above(files: &Files<'_>, last_stored: Height) -> Result<Option<BlockHash>, Error> {
    let dir = files.datadir.chainstate_dir();
    let Ok(Some(best)) = read_best_block(files.disk, &dir) else { return Ok(None) };
    let is_above = |it: &IndexEntry| !it.status.has_data() && it.height > last_stored;
    Ok(files.index_entry(&best)?.filter(is_above).map(|_| best))
}

fn lacks_any(files: &Files<'_>, blocks: &[BlockHash]) -> Result<bool, Error> {
    for hash in blocks {
        if !files.index_entry(hash)?.is_some_and(|entry| entry.status.has_data()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Finds the files from which blocks are taken. If there are any, an empty datadir is prepared so that they
/// can fill it.
fn find_sources(
    disk: &dyn Disk,
    options: &SyncOptions,
    sources: &[PathBuf],
    sink: &dyn EventSink,
) -> Result<Vec<Source>, Error> {
    let SyncOptions { chain, set_aside_indexes: may, .. } = options;
    let find = |path: &PathBuf| Source::find(disk, chain.params, path);
    let found = sources.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let check = |files: &Files<'_>| before_moves(files, |_| None, &[Height(1)], may);
    match !found.is_empty() && disk.exists(&chain.datadir).during("look for", &chain.datadir)? {
        true => new_datadir::create(disk, chain, true, check, sink)?,
        false => new_datadir::complete(disk, &Datadir::of(disk, &chain.location())?, chain.params, sink)?,
    }
    Ok(found)
}

/// Takes blocks from other files. Returns what is still damaged or missing too.
fn take(
    files: &Files<'_>,
    options: &SyncOptions,
    (sources, is_tip_lost): (&[Source], bool),
    found: &KnownDamage,
    watch: Watch<'_>,
) -> Result<(TakenBlocks, KnownDamage), Error> {
    let has_files = !files.datadir.blk_files(files.disk)?.is_empty();
    let own = || Source::find(files.disk, files.params, &files.datadir.blocks_dir());
    let SyncOptions { chain, peers, set_aside_indexes, .. } = options;
    let mut taken = TakenBlocks {
        height: found.last_stored,
        last_stored: found.last_stored,
        still_missing: found.missing,
        ..TakenBlocks::default()
    };
    let mut left = found.clone();
    let mut take_from = |sources: &[Source], extends, is_thorough| -> Result<(), Error> {
        watch.sink.event(Event::Started(Stage::Read));
        let how = &TakeOptions { sources, extends, is_thorough, now: now() };
        let mut more = blocks_elsewhere::take(files, chain, how, &left, set_aside_indexes, watch)?;
        more.hashes.append(&mut taken.hashes);
        more.hashes.sort_unstable();
        more.bytes += taken.bytes;
        taken = more;
        left = found.after(&taken.hashes, taken.still_missing);
        Ok(())
    };
    if has_files && !found.blocks.is_empty() {
        // A false frame, or bytes that were inserted, may be all that is wrong.
        take_from(&[own()?], false, false)?;
    }
    if !sources.is_empty() {
        // Only these files show how high the lost blocks reach; without a chainstate, nothing else shows
        // whether any are lost. In an empty datadir, no block is known yet.
        let best = read_best_block(files.disk, &files.datadir.chainstate_dir());
        let extends = is_tip_lost || found.last_stored == Height(0) || !matches!(best, Ok(Some(_)));
        let own = (has_files && is_tip_lost).then(own).transpose()?;
        let sources: Vec<Source> = sources.iter().cloned().chain(own).collect();
        take_from(&sources, extends, !has_peers(chain, peers))?;
    }
    // The last block can be one that is still damaged.
    left.last_stored = found.last_stored.max(taken.last_stored);
    Ok((taken, left))
}

/// Refuses a repair that a second chainstate forbids.
fn check_second_chainstate(files: &Files<'_>, found: &KnownDamage) -> Result<(), Error> {
    check_start(files)?;
    let why = match found.missing {
        _ if !found.is_empty() => "; a repair would change blocks that the second one could need",
        0 => return Ok(()),
        _ => ", and bitcoind has not yet downloaded all blocks below the snapshot; they are not damaged",
    };
    refuse(files, why)
}

/// Downloads what is damaged or missing, if it is not only stale blocks, or all above it if the last blocks
/// are lost. Takes away the marks of invalid blocks that are not believed, after most refusals.
fn download(
    files: &Files<'_>,
    options: &SyncOptions,
    found: &KnownDamage,
    is_tip_lost: bool,
    sink: &dyn SyncSink,
    interrupt: &AtomicBool,
) -> Result<Option<Fetched>, Error> {
    // Peers need not have stale blocks.
    Ok(match (found.blocks.len() as u32 + found.missing).saturating_sub(found.stale) {
        0 if !is_tip_lost => {
            if let Some(which) = options.chain.reconsider {
                unmark(files, &tree_of_index(files)?.0.reconsider(which)?)?;
            }
            if found.stale > 0 {
                forget_stale(files, &found.blocks, sink)?;
            }
            None
        }
        left if !has_peers(&options.chain, &options.peers) => {
            let what = match left {
                0 => "the last blocks are".to_owned(),
                1 => "1 block is".to_owned(),
                _ => format!("{left} blocks are"),
            };
            let detail = format!("{what} still damaged or missing, and there is no peer to ask for them");
            let help = [Remedy::NamePeer, Remedy::TakeFromFiles, Remedy::EndBelowDamage];
            let error = Error::environment(detail).with_remedies(help);
            // The block index lacks them, so that a rebuild by it would be refused.
            return Err(if is_tip_lost { error.of_scan() } else { error });
        }
        _ => {
            // Only peers know how high the lost blocks reach.
            let stop_at_height = (!is_tip_lost).then_some(found.last_stored);
            let chain = ChainOptions { stop_at_height, ..options.chain.clone() };
            let options = &SyncOptions { chain, ..options.clone() };
            Some(fetch(files, options, Some(found), &mut (), sink, interrupt)?)
        }
    })
}

/// Reads all coins, and returns the chainstate's best block; `None` if that is not stored, or the chainstate
/// is damaged.
fn best_block(
    files: &Files<'_>,
    options: &ChainOptions,
    watch: Watch<'_>,
) -> Result<Option<(BlockHash, Height)>, Error> {
    let Some(best) = read_all(files, options, watch)? else { return Ok(None) };
    let entry = files.index_entry(&best)?.filter(|entry| entry.status.has_data());
    Ok(entry.map(|entry| (best, entry.height)))
}

/// Sets a chainstate aside that opens, if neither the block files nor the peers have its best block: bitcoind
/// starts without it only, and a rebuild does not replace it.
fn set_chainstate_aside(files: &Files<'_>, sink: &SyncWarnings<'_>) -> Result<(), Error> {
    let dir = files.datadir.chainstate_dir();
    let Ok(Some(best)) = read_best_block(files.disk, &dir) else { return Ok(()) };
    if files.index_entry(&best)?.is_none() {
        let kept = set_aside(files.disk, &dir, KEPT_SUFFIX)?;
        sink.event(Event::Warning(Warning::ChainstateSetAside { best, kept }));
    }
    Ok(())
}

/// Whether a block is on the chain with the most work. A chain with more work that the block index marks as
/// invalid is reported.
fn is_on_best_chain(files: &Files<'_>, hash: &BlockHash, sink: &dyn EventSink) -> Result<bool, Error> {
    let (mut tree, _) = tree_of_index(files)?;
    let branch = tree.best_stored_chain();
    if let Some((height, hash, tip)) = tree.marked_invalid(hash) {
        sink.event(Event::Warning(Warning::MarkedInvalid { height, hash, tip }));
    }
    Ok(tree.locate(hash, &branch, Height(0)).is_some_and(|best| best.fork == best.known.height))
}

//! Downloads the blocks that are damaged or missing, and rebuilds only what needs it.

use crate::{
    api::{
        error::{Error, ErrorKind},
        event::{Event, EventSink, Warnings},
        note::{Note, Warning},
        options::{ChainOptions, ReindexOptions, ResumeOptions},
        remedy::Remedy,
        report::ReindexReport,
        stage::Stage,
        sync::{DownloadReport, PeerOptions, PeerStatus, SyncOptions},
    },
    blocks::files::Files,
    commands::{
        reindex::reindex,
        undo::{MadeUndoReport, MakeUndoOptions, make_undo},
    },
    download::{
        fetch::{Fetched, Follower, fetch},
        stored_blocks::forget_stale,
    },
    job::{damage_survey::find_damage, session::Session},
    plan::{dependents::has_snapshot, existing_state::DOWNLOAD_WINDOW},
    stages::finish,
};
use disk::{chainstate::ChainstateReader, index::find_height};
use std::{path::Path, sync::atomic::AtomicBool};
use vfs::Disk;
use wire::{Height, Network};

/// What to repair, and from which peers to download.
#[derive(Clone, Debug)]
pub struct RepairOptions {
    /// The datadir, and how its blocks are checked.
    pub chain: ChainOptions,
    /// What to do about an interrupted rebuild of the chainstate.
    pub resume: ResumeOptions,
    /// Set indexes of the node aside that would become wrong: otherwise, that is an error.
    pub set_aside_indexes: bool,
    /// The peers.
    pub peers: PeerOptions,
}

impl RepairOptions {
    /// The default options, with one thread.
    #[must_use]
    pub fn new(datadir: &Path, network: Network) -> Self {
        let SyncOptions { chain, resume, peers, .. } = SyncOptions::new(datadir, network);
        Self { chain, resume, set_aside_indexes: false, peers }
    }
}

/// Result of [`repair`].
#[derive(Clone, Debug)]
pub struct RepairReport {
    /// The network.
    pub network: Network,
    /// Number of blocks that were damaged, or not in their files.
    pub damaged: u32,
    /// Number of blocks that the block index did not place, below one that it placed.
    pub missing: u32,
    /// Number of blocks whose undo data was damaged.
    pub damaged_undo: u32,
    /// What was wrong with the lowest damaged blocks.
    pub first: Vec<Error>,
    /// What was downloaded; `None` if all blocks were sound.
    pub download: Option<DownloadReport>,
    /// The peers that have sent blocks, the one that has sent the most bytes first.
    pub peers: Vec<PeerStatus>,
    /// Height of the last block that is stored.
    pub height: Height,
    /// The rebuild of the chainstate; `None` if that was sound.
    pub rebuild: Option<ReindexReport>,
    /// The undo data that was made, if the chainstate was not rebuilt and some was missing.
    pub undo: Option<MadeUndoReport>,
    /// Warnings for the operator.
    pub notes: Vec<Warning>,
}

/// Reads all blocks, downloads those that are damaged or missing, and stores them. Then rebuilds the
/// chainstate if it is damaged or cannot be completed by bitcoind, and otherwise makes the undo data that is
/// missing.
///
/// The block index keeps its entries of damaged blocks until the downloaded ones are stored, and a second
/// call continues, so that an interrupt leaves nothing worse than it was.
///
/// # Errors
/// Those of [`reindex`], and any error of the network that is not one of a single peer.
pub fn repair(
    disk: &dyn Disk,
    options: &RepairOptions,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<RepairReport, Error> {
    repair_in_place(disk, options, &Warnings::new(sink), interrupt).map_err(Error::in_place_only)
}

fn repair_in_place(
    disk: &dyn Disk,
    options: &RepairOptions,
    sink: &Warnings<'_>,
    interrupt: &AtomicBool,
) -> Result<RepairReport, Error> {
    let RepairOptions { chain, resume, set_aside_indexes, peers } = options;
    let (datadir, network) = (&chain.datadir, chain.params.network);
    let resume = ResumeOptions { discard_other: true, ..*resume };
    let set_aside_indexes = *set_aside_indexes;
    let rebuild = ReindexOptions {
        chain: chain.clone(),
        resume,
        set_aside_indexes,
        ..ReindexOptions::new(datadir, network)
    };
    let (session, _) = Session::open_for_change(disk, &rebuild, sink)?;
    let files = &session.files()?;
    let found = find_damage(files, chain, false, (sink, interrupt))?;
    let (damaged, damaged_undo) = (found.blocks.len() as u32, found.undo.len() as u32);
    let (missing, last_stored) = (found.missing, found.last_stored);
    sink.event(Event::Note(Note::FoundDamage { blocks: damaged, missing, undo: damaged_undo }));
    if missing > 0 && has_snapshot(disk, files.datadir)? {
        let detail = "this node was started from a UTXO snapshot, and bitcoind has not yet downloaded all \
                      blocks below it; they are not damaged";
        return Err(Error::new(ErrorKind::Usage, detail).with_remedies([Remedy::LetBitcoindFinish]));
    }
    // Peers need not have stale blocks.
    let fetched = match damaged - found.stale + missing {
        0 if found.stale > 0 => forget_stale(files, &found.blocks, sink).map(|()| None)?,
        0 => None,
        _ => {
            let sync = SyncOptions {
                chain: chain.clone(),
                peers: peers.clone(),
                stop_at_height: Some(last_stored),
                set_aside_indexes,
                ..SyncOptions::new(datadir, network)
            };
            Some(fetch(files, (&sync, Some(&found)), &mut Nobody, sink, interrupt)?)
        }
    };
    let height = fetched.as_ref().map_or(last_stored, |fetched| fetched.height);
    let best = best_height(files, chain, (sink, interrupt))?;
    let best = best.filter(|best| height.0.saturating_sub(best.0) <= DOWNLOAD_WINDOW);
    // What follows locks the datadir itself.
    drop(session);
    let (mut rebuilt, mut made) = (None, None);
    match best {
        None => rebuilt = Some(reindex(disk, &rebuild, sink, interrupt).map_err(explain_interrupt)?),
        Some(best) if found.lacks_undo_up_to(best) => {
            let options = MakeUndoOptions { chain: chain.clone(), keep_old: false };
            made = Some(make_undo(disk, &options, sink, interrupt).map_err(explain_interrupt)?);
        }
        Some(_) => {}
    }
    let (download, peers) = match fetched {
        Some(Fetched { report, peers, .. }) => (Some(report), peers),
        None => (None, Vec::new()),
    };
    Ok(RepairReport {
        network,
        damaged,
        missing,
        damaged_undo,
        first: found.first,
        download,
        peers,
        height,
        rebuild: rebuilt,
        undo: made,
        notes: sink.take(),
    })
}

/// Reads all coins, and returns the height of the chainstate's best block; `None` if that is not known, or
/// the chainstate is damaged.
fn best_height(
    files: &Files<'_>,
    options: &ChainOptions,
    (sink, interrupt): (&dyn EventSink, &AtomicBool),
) -> Result<Option<Height>, Error> {
    sink.event(Event::Started(Stage::Prove));
    let read = || {
        let reader = ChainstateReader::open(files.disk, &files.datadir.chainstate_dir())?;
        finish::read_back(&reader, None, options.threads.get(), sink, interrupt)?;
        Ok::<_, Error>(reader.best_block())
    };
    match read() {
        Ok(best) => Ok(find_height(files.disk, &files.datadir.index_dir(), &best)?),
        Err(error) if error.kind == ErrorKind::Damaged => Ok(None),
        Err(error) => Err(error),
    }
}

/// An interrupted rebuild leaves more than there was before.
fn explain_interrupt(mut error: Error) -> Error {
    if error.kind == ErrorKind::Interrupted {
        error.detail = "interrupted; all blocks are stored, the chainstate is unchanged".to_owned();
    }
    error
}

/// Nothing follows the download.
struct Nobody;

impl Follower for Nobody {}

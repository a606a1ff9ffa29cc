//! Initial block download: headers and blocks from peers, then the chainstate and undo data from the blocks.
//! Blocks that the rebuild did not have yet are connected at the end.

use crate::{
    api::{
        error::{Error, ErrorKind},
        event::{Event, EventSink, Warnings},
        note::Warning,
        options::ReindexOptions,
        report::UpdateReport,
        sync::{SyncOptions, SyncReport},
    },
    commands::{
        behind_download::{explain_interrupt, fetch_and_rebuild, is_sooner_connected},
        follow::follow,
        reindex::reindex,
        update::{UpdateOptions, check_one_chainstate, update},
    },
    download::{fetch::Fetched, new_datadir},
    job::{
        hint_copy::{self, with_plain_hints},
        session::Session,
    },
    plan::{dependents::has_snapshot, existing_state::ExistingState},
};
use std::sync::atomic::AtomicBool;
use vfs::Disk;
use wire::Height;

/// Downloads the headers and blocks that a datadir lacks, and brings its chainstate to the last block, by a
/// rebuild or, if few blocks are missing, by connecting them. A datadir that does not exist is created.
///
/// Whenever it ends, also on an error or an interrupt, the datadir is one on which bitcoind starts and
/// continues; a second call continues too, and downloads no block of the best chain that is stored.
///
/// # Errors
/// Those of [`reindex`], and any error of the network that is not one of a single peer.
pub fn sync(
    disk: &dyn Disk,
    options: &SyncOptions,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<SyncReport, Error> {
    sync_in_place(disk, options, &Warnings::new(sink), interrupt).map_err(Error::in_place_only)
}

fn sync_in_place(
    disk: &dyn Disk,
    options: &SyncOptions,
    sink: &Warnings<'_>,
    interrupt: &AtomicBool,
) -> Result<SyncReport, Error> {
    check_follow(options)?;
    new_datadir::create(disk, &options.chain, sink)?;
    let rebuild = options.rebuild();
    let (session, datadir) = Session::open_for_change(disk, &rebuild, sink)?;
    // First of all, so that hints that cannot be had are reported at once.
    let copies = &hint_copy::directory(disk, &options.chain, &datadir);
    let hints = rebuild.hints.as_ref().filter(|_| !options.blocks_only);
    with_plain_hints(copies, hints, rebuild.resume.restart, (sink, interrupt), |hints| {
        let rebuild = ReindexOptions { hints, ..rebuild.clone() };
        sync_session(disk, session, options, &rebuild, sink, interrupt)
    })
}

/// Refuses what would keep the chainstate away from the tip.
fn check_follow(options: &SyncOptions) -> Result<(), Error> {
    let SyncOptions { follow, prune_bytes, blocks_only, stop_at_height, .. } = options;
    if !follow || prune_bytes.is_none() && !blocks_only && stop_at_height.is_none() {
        return Ok(());
    }
    let detail = "a run that stays at the tip needs all blocks and a chainstate: no pruning, no last block, \
                  and not blocks alone";
    Err(Error::new(ErrorKind::Usage, detail))
}

/// Downloads and rebuilds; the hints, if there are any, are a plain file.
fn sync_session(
    disk: &dyn Disk,
    session: Session<'_>,
    options: &SyncOptions,
    rebuild: &ReindexOptions,
    sink: &Warnings<'_>,
    interrupt: &AtomicBool,
) -> Result<SyncReport, Error> {
    let files = &session.files()?;
    if options.follow {
        check_one_chainstate(files)?;
    }
    let (fetched, rebuilt) = fetch_and_rebuild(files, options, rebuild, sink, interrupt)?;
    let Fetched { report: download, height, hash, peers, chain, known } = fetched;
    let best = ExistingState::read(files, false)?.best_block;
    let best = best.and_then(|best| chain.height_of(&best));
    let is_near = best.is_some_and(|best| is_sooner_connected(best, height));
    let (network, header_height) = (options.chain.params.network, chain.tip_height());
    // Only bitcoind can complete two chainstates. With pruning, the last blocks are left to it too.
    let can_connect =
        !options.blocks_only && options.prune_bytes.is_none() && !has_snapshot(disk, files.datadir)?;
    // The rebuild needs the memory, and locks the datadir itself.
    drop((chain, session));
    let is_behind = rebuilt.is_some();
    let rebuild = match rebuilt {
        None if !(options.blocks_only || is_near) => {
            Some(reindex(disk, rebuild, sink, interrupt).map_err(explain_interrupt)?)
        }
        rebuilt => rebuilt,
    };
    let best = rebuild.as_ref().map(|rebuilt| rebuilt.height).or(best);
    // A rebuild after the download had all blocks.
    let may_lag = can_connect && (is_behind || rebuild.is_none());
    let lagging = best.filter(|best| may_lag && *best < height);
    let update =
        lagging.map(|best| connect_stored(disk, options, best, sink, interrupt)).transpose()?.flatten();
    let chainstate_height = update.as_ref().map(|updated| updated.height).or(best);
    let mut report = SyncReport {
        network,
        height,
        hash,
        header_height,
        chainstate_height,
        download,
        peers,
        prune_bytes: options.prune_bytes,
        rebuild,
        update,
        follow: None,
        notes: Vec::new(),
    };
    if options.follow {
        follow(disk, options, known, &mut report, sink, interrupt)?;
    }
    report.notes = sink.take();
    Ok(report)
}

/// Connects the stored blocks above a chainstate that is at height `best`, up to the first invalid block.
/// Returns `None` if there are no others.
fn connect_stored(
    disk: &dyn Disk,
    options: &SyncOptions,
    best: Height,
    sink: &Warnings<'_>,
    interrupt: &AtomicBool,
) -> Result<Option<UpdateReport>, Error> {
    let mut options = UpdateOptions { chain: options.chain.clone(), stop_at_height: options.stop_at_height };
    loop {
        let error = match update(disk, &options, sink, interrupt) {
            Err(error) if error.kind == ErrorKind::Consensus => error,
            done => return done.map(Some),
        };
        let (Some(height), Some(hash)) = (error.height, error.block_hash) else { return Err(error) };
        sink.event(Event::Warning(Warning::InvalidBlock { hash, error }));
        let below = Height(height.0.saturating_sub(1));
        if below <= best {
            return Ok(None);
        }
        options.stop_at_height = Some(below);
    }
}

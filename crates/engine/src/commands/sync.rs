//! Initial block download: headers and blocks from peers, then the chainstate and undo data from the blocks.

use crate::{
    api::{
        error::Error,
        event::{EventSink, Warnings},
        sync::{SyncOptions, SyncReport},
    },
    commands::{
        behind_download::{bitcoind_can_connect, explain_interrupt, fetch_and_rebuild},
        reindex::reindex,
    },
    download::{fetch::Fetched, new_datadir},
    job::session::Session,
    plan::existing_state::ExistingState,
};
use std::sync::atomic::AtomicBool;
use vfs::Disk;

/// Downloads the headers and blocks that a datadir lacks, and rebuilds its chainstate if that is not at the
/// last block. A datadir that does not exist is created.
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
    new_datadir::create(disk, &options.chain.datadir, options.chain.network, sink)?;
    let rebuild = options.rebuild();
    let (session, _) = Session::open_for_change(disk, &rebuild, sink)?;
    let files = &session.files()?;
    let (fetched, rebuilt) = fetch_and_rebuild(files, options, &rebuild, sink, interrupt)?;
    let Fetched { report: download, height, hash, peers, chain } = fetched;
    let best = ExistingState::read(files, false)?.best_block;
    let best = best.and_then(|best| chain.height_of(&best));
    let is_done = best.is_some_and(|best| bitcoind_can_connect(best, height));
    let (network, header_height) = (options.chain.network, chain.tip_height());
    // The rebuild needs the memory, and locks the datadir itself.
    drop((chain, session));
    let rebuild = match rebuilt {
        None if !(options.blocks_only || is_done) => {
            Some(reindex(disk, &rebuild, sink, interrupt).map_err(explain_interrupt)?)
        }
        rebuilt => rebuilt,
    };
    let notes = sink.take();
    let chainstate_height = rebuild.as_ref().map(|rebuilt| rebuilt.height).or(best);
    Ok(SyncReport {
        network,
        height,
        hash,
        header_height,
        chainstate_height,
        download,
        peers,
        rebuild,
        notes,
    })
}

//! Initial block download: headers and blocks from peers, then the chainstate and undo data from the blocks.

use crate::{
    api::{
        error::{Error, ErrorKind},
        event::{EventSink, Warnings},
        options::ReindexOptions,
        sync::{SyncOptions, SyncReport},
    },
    commands::reindex::reindex,
    download::{
        fetch::{Fetched, fetch},
        new_datadir,
    },
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
    let sink = &Warnings::new(sink);
    new_datadir::create(disk, &options.chain.datadir, options.chain.network, sink)?;
    let rebuild = options.rebuild();
    let (fetched, is_done) = download(disk, options, &rebuild, sink, interrupt)?;
    let Fetched { report, height, hash, chain } = fetched;
    let header_height = chain.tip_height();
    // The rebuild needs the memory.
    drop(chain);
    let rebuild = match options.blocks_only || is_done {
        true => None,
        false => Some(reindex(disk, &rebuild, sink, interrupt).map_err(explain_interrupt)?),
    };
    let (network, notes) = (options.chain.network, sink.take());
    Ok(SyncReport { network, height, hash, header_height, download: report, rebuild, notes })
}

/// An interrupted rebuild leaves more than there was before the download.
fn explain_interrupt(mut error: Error) -> Error {
    if error.kind == ErrorKind::Interrupted {
        error.detail = "interrupted; all blocks are downloaded, the chainstate is unchanged".to_owned();
    }
    error
}

/// Downloads blocks. Returns also whether the chainstate is at the last of them, or above.
fn download(
    disk: &dyn Disk,
    options: &SyncOptions,
    rebuild: &ReindexOptions,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<(Fetched, bool), Error> {
    let (session, _) = Session::open_for_change(disk, rebuild, sink)?;
    let files = &session.files()?;
    let fetched = fetch(files, options, sink, interrupt)?;
    let state = ExistingState::read(files, false)?;
    let best_height = state.best_block.and_then(|best| fetched.chain.height_of(&best));
    let is_done = best_height >= Some(fetched.height);
    Ok((fetched, is_done))
}

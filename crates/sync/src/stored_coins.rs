//! Whether the coins of the chainstate can be read, which only reading all of them shows, and whether its
//! last blocks have undo data.

use crate::options::SyncOptions;
use api::{
    error::{Error, ErrorKind},
    event::{Event, Watch},
    options::{ChainOptions, UndoPolicy},
    remedy::Remedy,
    stage::Stage,
};
use chain::{
    blocks::files::Files,
    plan::{best_block::lacks_undo, planner::is_pruned, second_chainstate::CHECKED_AT_START},
};
use disk::{DiskError, chainstate::ChainstateReader};
use pipeline::stages::finish;
use wire::BlockHash;

/// Reads all coins, and returns the chainstate's best block; `None` if it is damaged.
///
/// # Errors
/// Any I/O error; [`ErrorKind::Interrupted`].
pub fn read_all(
    files: &Files<'_>,
    options: &ChainOptions,
    watch: Watch<'_>,
) -> Result<Option<BlockHash>, Error> {
    let read = || {
        let reader = ChainstateReader::open(files.disk, &files.datadir.chainstate_dir())?;
        watch.sink.event(Event::Started(Stage::Prove));
        finish::read_back(&reader, None, options.threads.get(), watch)?;
        Ok::<_, Error>(reader.best_block())
    };
    match read() {
        Ok(best) => Ok(Some(best)),
        Err(error) if error.kind == ErrorKind::Damaged => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether blocks are to be deleted, and coins that were made of them cannot be read, or undo data is missing
/// that could be made only now.
///
/// # Errors
/// The same errors; those of [`lacks_undo`]; [`ErrorKind::Damaged`] after an interrupted flush: to complete
/// it, bitcoind reads blocks again that may be far below the best one (Core `ReplayBlocks`).
pub fn must_be_replaced(files: &Files<'_>, options: &SyncOptions, watch: Watch<'_>) -> Result<bool, Error> {
    if options.prune_bytes.is_none() {
        return Ok(false);
    }
    let dir = files.datadir.chainstate_dir();
    if let Err(error @ DiskError::InterruptedFlush { .. }) = ChainstateReader::open(files.disk, &dir) {
        let detail = "bitcoind was stopped while it wrote the chainstate, and needs blocks to complete it";
        let error = Error::damaged(detail).in_file(dir, None).caused_by(error);
        return Err(error.with_remedies([Remedy::LetBitcoindFinish]));
    }
    let best = read_all(files, &options.chain, watch)?;
    best.map_or(Ok(true), |best| lacks_last_undo(files, &options.chain, best))
}

/// Whether any of the chainstate's last blocks lacks its undo data, of as many as every node keeps. A pruned
/// node would have to download all blocks to get it: there, only those count that bitcoind checks when it
/// starts.
///
/// # Errors
/// Those of [`lacks_undo`].
pub fn lacks_last_undo(files: &Files<'_>, options: &ChainOptions, best: BlockHash) -> Result<bool, Error> {
    let last = if is_pruned(files)? { CHECKED_AT_START } else { options.hooks.undo_blocks as usize };
    Ok(options.undo != UndoPolicy::Trust && lacks_undo(files, best, last)?)
}

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
use disk::{DiskError, chainstate::ChainstateReader, index::find_height};
use pipeline::stages::finish;
use wire::{BlockHash, Height};

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

/// Whether the chainstate cannot stay if blocks are to be deleted: its coins cannot be read, or one of its
/// last blocks, of as many as every node keeps, lacks undo data, which could be made only now. `is_resumed`
/// is whether an earlier run has begun to replace it: what was missing then is missing still.
///
/// # Errors
/// The same errors; those of [`lacks_undo`]; [`ErrorKind::Damaged`] after an interrupted flush: to complete
/// it, bitcoind reads blocks again that may be far below the best one (Core `ReplayBlocks`).
pub fn must_be_replaced(
    files: &Files<'_>,
    options: &SyncOptions,
    is_resumed: bool,
    watch: Watch<'_>,
) -> Result<bool, Error> {
    if options.prune_bytes.is_none() {
        return Ok(false);
    }
    let dir = files.datadir.chainstate_dir();
    let opened = ChainstateReader::open(files.disk, &dir);
    if let Err(error @ DiskError::InterruptedFlush { .. }) = opened {
        let detail = "bitcoind was stopped while it wrote the chainstate, and needs blocks to complete it";
        let error = Error::damaged(detail).in_file(dir, None).caused_by(error);
        return Err(error.with_remedies([Remedy::LetBitcoindFinish]));
    }
    if let Ok(best) = opened.map(|reader| reader.best_block()) {
        // A rebuild up to a lower block, which the user has chosen, would lose those above it.
        let height = find_height(files.disk, &files.datadir.index_dir(), &best)?;
        let ends_lower = |stop: Height| height.is_none_or(|best| stop < best);
        // A pruned node would have to download all blocks again.
        let is_new = is_resumed || !is_pruned(files)?;
        let count = if is_new { options.chain.hooks.undo_blocks as usize } else { CHECKED_AT_START };
        if !options.chain.stop_at_height.is_some_and(ends_lower)
            && lacks_last_undo(files, &options.chain, best, count)?
        {
            return Ok(true);
        }
    }
    Ok(read_all(files, &options.chain, watch)?.is_none())
}

/// Whether any of the chainstate's last blocks lacks its undo data.
///
/// # Errors
/// Those of [`lacks_undo`].
pub fn lacks_last_undo(
    files: &Files<'_>,
    options: &ChainOptions,
    best: BlockHash,
    count: usize,
) -> Result<bool, Error> {
    Ok(options.undo != UndoPolicy::Trust && lacks_undo(files, best, count)?)
}

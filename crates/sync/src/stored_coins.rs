//! Whether the coins of the chainstate can be read, which only reading all of them shows.

use crate::options::SyncOptions;
use api::{
    error::{Error, ErrorKind},
    event::{Event, Watch},
    options::ChainOptions,
    remedy::Remedy,
    stage::Stage,
};
use chain::{
    blocks::files::Files,
    plan::{
        existing_state::{ExistingState, unfinished_flush},
        planner::is_pruned,
    },
};
use disk::{DiskError, chainstate::ChainstateReader, index::find_height};
use pipeline::{job::memory::affordable_threads, stages::finish};
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
        finish::read_back(&reader, None, affordable_threads(options), watch)?;
        Ok::<_, Error>(reader.best_block())
    };
    match read() {
        Ok(best) => Ok(Some(best)),
        Err(error) if error.kind == ErrorKind::Damaged => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the chainstate must be replaced: because bitcoind was stopped while it wrote the coins; or, if
/// blocks are to be deleted, because the coins cannot be read, or because its best block was never stored, so
/// that all blocks below would be stored before one is deleted. Also returns the error for a run that would
/// connect blocks to it, if bitcoind can complete the flush ([`unfinished_flush`]). `is_resumed` is whether
/// an earlier run has begun to replace it, and may have stored its best block, or those that bitcoind lacked.
///
/// # Errors
/// The same errors; if blocks are to be deleted, [`ErrorKind::Damaged`] after an interrupted flush that
/// bitcoind can complete: it reads blocks again that may be far below the best one.
pub fn must_be_replaced(
    files: &Files<'_>,
    options: &SyncOptions,
    is_resumed: bool,
    watch: Watch<'_>,
) -> Result<(bool, Option<Error>), Error> {
    let prunes = options.prune_bytes.is_some();
    if options.blocks_only && !prunes {
        return Ok((false, None));
    }
    let dir = files.datadir.chainstate_dir();
    if let Err(DiskError::InterruptedFlush { .. }) = ChainstateReader::open(files.disk, &dir) {
        let is_replaced = is_resumed || options.unprune && is_pruned(files)?;
        let unfinished = if is_replaced { None } else { unfinished_flush(files)? };
        return match unfinished {
            Some(error) if prunes => Err(error),
            unfinished => Ok((true, unfinished)),
        };
    }
    if !prunes {
        return Ok((false, None));
    }
    let best = read_all(files, &options.chain, watch)?;
    let entry = best.map(|best| files.index_entry(&best)).transpose()?.flatten();
    Ok((entry.is_none_or(|it| it.tx_count == 0 || is_resumed && !it.status.was_connected()), None))
}

/// Checks that the chainstate will not end below the one that cannot stay, whose blocks may be deleted.
///
/// # Errors
/// [`ErrorKind::Usage`] if the last block that the user has chosen is below; any I/O error.
pub fn refuse_lower_end(files: &Files<'_>, options: &SyncOptions) -> Result<(), Error> {
    let Some(best) = ExistingState::read(files, false)?.best_block else { return Ok(()) };
    let height = find_height(files.disk, &files.datadir.index_dir(), &best)?;
    let Some((height, end)) = height.zip(options.chain.stop_at_height).filter(|(height, end)| end < height)
    else {
        return Ok(());
    };
    let detail = format!(
        "the chainstate must be replaced, because its coins cannot be used, or its blocks are lost; it \
         reaches height {height}, and the new one would end at height {end}; nothing was changed"
    );
    let error = Error::usage(detail).in_file(files.datadir.chainstate_dir(), None);
    Err(error.with_remedies([Remedy::StopAtHeight(height)]))
}

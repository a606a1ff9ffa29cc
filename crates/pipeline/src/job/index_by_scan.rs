//! A block index that is of no use is replaced by what a scan of the block files finds, so that a download
//! can complete the blocks: a rebuild by a scan only replaces it once the chain is proven, which takes all
//! blocks.

use crate::job::{check_scan, now, two_chainstates::refuse};
use api::{
    error::{Error, ErrorKind},
    event::{Event, EventSink},
    note::Warning,
    options::ChainOptions,
    remedy::Remedy,
    stage::Stage,
    subject::Subject,
};
use chain::{
    blocks::{damage::KnownDamage, files::Files},
    commit::Destination,
    plan::{
        chain_request::ChainRequest,
        existing_state::ExistingState,
        planner::{Plan, plan, tree_of_index},
        tree::Tree,
    },
};
use disk::{
    datadir::FileKind,
    index::{BlockIndex, IndexEntry, write_block_index},
    made_undo::clear_made_undo,
};
use std::sync::atomic::AtomicBool;
use wire::{BlockHash, FileNo, Height};

/// Replaces a block index that cannot be read, or that places blocks beyond the bytes in use, which the next
/// block would overwrite. With `must_have_best`, also one that lacks the chainstate's best block, if the
/// files have more blocks than it places. Returns the blocks that are lost then: the chainstate's best block,
/// the last one that the old index had connected, or the last of the blocks that are in the files, but a
/// block below them is not, so that the new index knows nothing of them.
///
/// # Errors
/// [`ErrorKind::Usage`] if there are two chainstates, or if the options believe what the index says;
/// [`ErrorKind::Damaged`] if the first block is missing; any I/O error; [`ErrorKind::Interrupted`]. The old
/// index is then in place.
pub fn ensure_index(
    files: &Files<'_>,
    options: &ChainOptions,
    must_have_best: bool,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<Vec<BlockHash>, Error> {
    let best = ExistingState::read(files, false)?.best_block;
    let (flaw, placed) = match tree_of_index(files, files.params) {
        Ok((_, index)) if index.pruned => return Ok(Vec::new()),
        Ok((tree, index)) => match best.filter(|best| !tree.has(best)) {
            Some(best) if must_have_best => {
                let placed = tree.linked().filter(|(number, _)| tree.data_pos(*number).is_some()).count();
                (lacks(files, &best), placed)
            }
            _ if places_beyond_use(files, &tree, &index)? => (too_small(files), 0),
            _ => return Ok(Vec::new()),
        },
        Err(error) if error.is_about(Subject::BlockIndex) => (error, 0),
        Err(error) => return Err(error),
    };
    check_scan(files, options)?;
    refuse(files, ", and a scan of the block files does not find which blocks bitcoind knows besides")?;
    sink.event(Event::Started(Stage::Plan));
    let unusable = Event::Warning(Warning::IndexUnusable { error: flaw.without_remedies() });
    // Files may be missing.
    let damage = Some(&KnownDamage::default());
    let request =
        ChainRequest { scan: true, preferred: best, makes_undo: true, damage, ..ChainRequest::default() };
    let planned = plan(files, &request, None, now(), interrupt).map_err(|error| {
        let is_damage = error.kind == ErrorKind::Damaged;
        error.with_remedies(is_damage.then_some(Remedy::BitcoindDownload))
    })?;
    let existing = ExistingState::read(files, true)?;
    let lost_best = best.filter(|_| planned.best_block.is_none());
    let lower = existing.index_loss(&planned).and_then(|lower| lower.hash);
    let orphans = planned.choice.orphans.map(|orphans| orphans.last);
    let lost = lost_best.into_iter().chain(lower).chain(orphans).collect();
    let mut index = index_of(planned);
    // What a `rev` file has that the scan does not recognize stays: the old index may refer to it.
    for (number, info) in (0..).map(FileNo).zip(&mut index.files) {
        let len = u32::try_from(files.len(FileKind::Rev, number)?).unwrap_or(u32::MAX);
        info.undo_size = info.undo_size.max(len);
    }
    if index.entries.iter().filter(|entry| entry.status.has_data()).count() > placed {
        put_in_place(files, &index, sink)?;
        sink.event(unusable);
    }
    Ok(lost)
}

fn lacks(files: &Files<'_>, best: &BlockHash) -> Error {
    let detail = format!("the block index does not contain the chainstate's best block {best}");
    Error::damaged(detail).in_file(files.datadir.index_dir(), None)
}

/// Whether a block is in its file, but where bitcoind would write the next one.
fn places_beyond_use(files: &Files<'_>, tree: &Tree<'_>, index: &BlockIndex) -> Result<bool, Error> {
    let places = tree.linked().filter_map(|(number, _)| tree.data_pos(number));
    let used = |file: FileNo| index.files.get(file.0 as usize).map_or(0, |info| info.size);
    for (file, pos) in places.filter(|(file, pos)| pos.0 >= used(*file).into()) {
        if pos.0 < files.len(FileKind::Blk, file)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn too_small(files: &Files<'_>) -> Error {
    let detail = "the block index places blocks beyond the bytes that it records as used";
    Error::damaged(detail).in_file(files.datadir.index_dir(), None)
}

/// The block index of a plan by a scan. Nothing was proven, so a block counts as connected only if undo data
/// shows that it was.
fn index_of(plan: Plan) -> BlockIndex {
    let Plan { chain, new_index, never_connected_from, .. } = plan;
    let mut index = new_index.unwrap_or_default();
    let end = never_connected_from.unwrap_or(Height(0));
    let was_connected = |entry: &IndexEntry| entry.height < end && chain.has(entry.height, &entry.hash);
    for entry in index.entries.iter_mut().filter(|entry| !was_connected(entry)) {
        entry.status = entry.status.not_connected();
    }
    index
}

fn put_in_place(files: &Files<'_>, index: &BlockIndex, sink: &dyn EventSink) -> Result<(), Error> {
    let target = Destination::of_index(files.disk, files.datadir.clone(), false)?;
    let commit = || {
        write_block_index(files.disk, target.building(), index)?;
        // It waits for a rebuild to go on that knows other places.
        clear_made_undo(files.disk, files.datadir)?;
        target.commit(sink).map(drop)
    };
    commit().inspect_err(|_| target.discard())
}

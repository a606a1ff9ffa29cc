//! An unusable block index is replaced by what a scan of the block files finds, so that a download can
//! complete the blocks: a rebuild by a scan only replaces it once the chain is proven, which takes all
//! blocks.

use crate::job::{check_scan, memory::affordable_threads, now, two_chainstates::refuse};
use api::{
    error::{Error, ErrorKind},
    event::{Event, EventSink, Watch},
    note::Warning,
    options::ChainOptions,
    remedy::Remedy,
    stage::Stage,
    subject::Subject,
};
use chain::{
    blocks::{damage::KnownDamage, files::Files},
    commit::replace_index,
    plan::{
        chain_request::ChainRequest,
        existing_state::ExistingState,
        planner::{Plan, plan, tree_of_index},
        tree::Tree,
        unconnected::check_unconnected,
    },
};
use disk::{
    DiskError,
    datadir::FileKind,
    index::{BlockIndex, FileInfo, IndexEntry, PrunedFlag, rewrite_block_index, write_block_index},
    made_undo::clear_made_undo,
};
use std::path::Path;
use wire::{BlockHash, FileNo, Height};

/// Replaces a block index that cannot be read, and raises the sizes in one that places blocks beyond the
/// bytes in use. With `must_have_best`, also replaces one that lacks the chainstate's best block, if the
/// files have more blocks than it places. Returns the blocks that are lost then: the chainstate's best block,
/// the last one that the old index had connected, or the last of the blocks that the new index leaves out,
/// because a block below them is in no file.
///
/// # Errors
/// [`ErrorKind::Usage`] if there are two chainstates, or if the options believe what the index says;
/// [`ErrorKind::Damaged`] if the first block is missing; any I/O error; [`ErrorKind::Interrupted`]. The old
/// index is then in place.
pub fn ensure_index(
    files: &Files<'_>,
    options: &ChainOptions,
    must_have_best: bool,
    Watch { sink, interrupt }: Watch<'_>,
) -> Result<Vec<BlockHash>, Error> {
    let best = ExistingState::read(files, false)?.best_block;
    let (flaw, placed) = match tree_of_index(files) {
        Ok((tree, index)) => match best.filter(|best| !tree.has(best)) {
            Some(best) if must_have_best && !index.pruned => {
                let placed = tree.linked().filter(|(number, _)| tree.data_pos(*number).is_some()).count();
                (lacks(files, &best), placed)
            }
            _ => return raise_sizes(files, &tree, &index, sink).map(|()| Vec::new()),
        },
        Err(error) if error.is_about(Subject::BlockIndex) => (error, 0),
        Err(error) => return Err(error),
    };
    check_scan(files, options)?;
    refuse(files, ", and a scan of the block files does not find which blocks bitcoind knows besides")?;
    sink.event(Event::Started(Stage::Plan));
    files.sync_pairs()?;
    let unusable = Event::Warning(Warning::IndexUnusable { error: flaw.without_remedies() });
    // Files may be missing.
    let damage = Some(&KnownDamage::default());
    let request =
        ChainRequest { scan: true, preferred: best, makes_undo: true, damage, ..ChainRequest::default() };
    let planned = plan(files, &request, None, now(), interrupt).map_err(|error| match error.kind {
        ErrorKind::Damaged => error.without_remedies().with_remedies([Remedy::BitcoindDownload]),
        _ => error,
    })?;
    let existing = ExistingState::read(files, true)?;
    let lost_best = best.filter(|_| planned.best_block.is_none());
    let lower = existing.index_loss(&planned).and_then(|lower| lower.hash);
    let orphans = planned.choice.orphans.map(|orphans| orphans.last);
    let lost = lost_best.into_iter().chain(lower).chain(orphans).collect();
    let mut index = index_of(planned);
    check_unconnected(files, &mut index, affordable_threads(options), Watch { sink, interrupt })?;
    // What a `rev` file has that the scan does not recognize stays: the old index may refer to it.
    for (number, info) in (0..).map(FileNo).zip(&mut index.files) {
        let len = u32::try_from(files.len(FileKind::Rev, number)?).unwrap_or(u32::MAX);
        info.undo_size = info.undo_size.max(len);
    }
    if index.entries.iter().filter(|entry| entry.status.has_data()).count() > placed {
        put_in_place(files, sink, |to| write_block_index(files.disk, to, &index))?;
        sink.event(unusable);
    }
    Ok(lost)
}

fn lacks(files: &Files<'_>, best: &BlockHash) -> Error {
    let detail = format!("the block index does not contain the chainstate's best block {best}");
    Error::damaged(detail).in_file(files.datadir.index_dir(), None)
}

/// Counts all bytes of all files as used if a record lies beyond those that the index counts: the next
/// record would overwrite it. All else that the index knows stays.
fn raise_sizes(
    files: &Files<'_>,
    tree: &Tree<'_>,
    index: &BlockIndex,
    sink: &dyn EventSink,
) -> Result<(), Error> {
    if !lies_beyond_use(files, tree, &index.files)? {
        return Ok(());
    }
    let mut infos = index.files.clone();
    for (file, info) in (0..).map(FileNo).zip(&mut infos) {
        for (kind, used) in [(FileKind::Blk, &mut info.size), (FileKind::Rev, &mut info.undo_size)] {
            *used = u32::try_from(files.len(kind, file)?).unwrap_or(u32::MAX).max(*used);
        }
    }
    put_in_place(files, sink, |to| {
        let old = files.datadir.index_dir();
        rewrite_block_index(files.disk, &old, to, [], PrunedFlag::Keep, |_| (), |files| *files = infos)
    })
}

/// Whether a file has a record that the index places beyond the bytes in use.
fn lies_beyond_use(files: &Files<'_>, tree: &Tree<'_>, infos: &[FileInfo]) -> Result<bool, Error> {
    for (number, _) in tree.linked() {
        let Some((file, data)) = tree.data_pos(number) else { continue };
        let Some(info) = infos.get(file.0 as usize) else { continue };
        let undo = tree.undo_pos(number).map(|undo| (FileKind::Rev, undo, info.undo_size));
        for (kind, pos, used) in [Some((FileKind::Blk, data, info.size)), undo].into_iter().flatten() {
            if pos.0 >= used.into() && pos.0 < files.len(kind, file)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
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

fn put_in_place(
    files: &Files<'_>,
    sink: &dyn EventSink,
    write: impl FnOnce(&Path) -> Result<(), DiskError>,
) -> Result<(), Error> {
    replace_index(files.disk, files.datadir, false, |target| {
        write(target.building())?;
        // Undo data that waits for an interrupted rebuild belongs to other places of blocks.
        clear_made_undo(files.disk, files.datadir)?;
        target.commit(sink, || ()).map(drop)
    })
}

//! Takes an index that ends on another branch back to the fork, as bitcoind does (Core `BaseIndex::Rewind`).

use crate::{
    base::Base,
    coin_stats::muhash_row,
    collect::Collected,
    job::{self, IndexJob},
    locator::locator,
    stored::{Position, StoredIndex},
};
use api::{error::Error, remedy::Remedy};
use chain::{
    blocks::chain::{BlockPosition, Chain},
    plan::planner::Plan,
};
use disk::{
    index::IndexRows,
    node_indexes::{BEST_BLOCK, BEST_BLOCK_V2, IndexKind, removed_key},
};
use std::collections::BTreeMap;
use wire::{BlockHash, Height};

/// Opens an index that is to be continued, and returns it with the height of its best block. An index that
/// ends on another branch is taken back first. Returns `None` if the index stays as it is: it is ahead of the
/// chainstate, so that bitcoind takes it back, or it is empty and was not named.
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] if it cannot be continued; what is damaged or cannot be read.
pub fn open_on_chain<'a>(
    job: &IndexJob<'a>,
    kind: IndexKind,
) -> Result<Option<(StoredIndex<'a>, Height)>, Error> {
    let IndexJob { files, plan, options, .. } = *job;
    let open = || StoredIndex::open(files.disk, files.datadir.net_dir(), kind);
    let Some(mut index) = open()? else { return Err(cannot_continue(job, kind, "there is none")) };
    match index.position(files, &plan.chain)? {
        Position::At(best) => Ok(Some((index, best))),
        Position::Beyond(fork) if fork == plan.chain.tip_height() => Ok(None),
        Position::Empty if options.kinds.is_empty() => Ok(None),
        Position::Empty => Err(cannot_continue(job, kind, "it is empty")),
        Position::Elsewhere(hash) => {
            let why = format!("its best block {hash} is not in the block index");
            Err(cannot_continue(job, kind, &why))
        }
        Position::Beyond(fork) => {
            take_back(job, &mut index, fork)?;
            drop(index);
            Ok(open()?.zip(Some(fork)))
        }
    }
}

/// Returns the error for an index that has to be made anew.
fn cannot_continue(job: &IndexJob<'_>, kind: IndexKind, why: &str) -> Error {
    Error::usage(format!("{} cannot be continued: {why}", kind.option()))
        .in_file(job.files.datadir.net_dir().join(kind.replaced_dir()), None)
        .with_remedies([Remedy::MakeIndex(Some(kind))])
}

/// Takes an index back to `fork`, the last block that its own chain has in common with the plan's.
fn take_back(job: &IndexJob<'_>, index: &mut StoredIndex<'_>, fork: Height) -> Result<(), Error> {
    let plan = job.plan;
    let Some(best) = index.best_block() else { return Ok(()) };
    let mut changes = BTreeMap::new();
    if index.kind != IndexKind::Tx {
        let own = &own_plan(job, best, fork)?;
        job::require_stored(own, |height| index.kind != IndexKind::BlockFilter && height > fork.0)?;
        if index.kind == IndexKind::CoinStats {
            job::require_undo(own, &[index.kind], fork.0 + 1)?;
        }
        change_rows(&IndexJob { plan: own, ..*job }, index, (&plan.chain, fork), &mut changes)?;
    }
    let best = if index.is_by_block() { BEST_BLOCK_V2 } else { BEST_BLOCK };
    changes.insert(best.to_vec(), Some(locator(&plan.chain, fork)));
    let update = index.database.update()?;
    let mut range = update.range(&[], None);
    for (key, value) in &changes {
        range.set(key, value.as_deref())?;
    }
    let range = range.finish()?;
    Ok(update.commit([range])?)
}

/// Returns the plan of an index's own chain, which ends with the block `hash`. Its blocks may be marked as
/// invalid.
fn own_plan(job: &IndexJob<'_>, mut hash: BlockHash, fork: Height) -> Result<Plan, Error> {
    let rows = IndexRows::open(job.files.disk, &job.files.datadir.index_dir())?;
    let mut branch = Vec::new();
    while let Some(entry) = rows.entry(&hash)?.filter(|entry| entry.height > fork) {
        let (file, data_pos) = entry.file.zip(entry.data_pos).unwrap_or_default();
        branch.push((hash, BlockPosition::new(file, data_pos, entry.undo_pos)));
        hash = entry.header.prev;
    }
    branch.reverse();
    let chain = job.plan.chain.with_branch(fork, &branch);
    Ok(Plan { block_bytes: job.plan.bytes_of(chain.block_count() as u64), chain, ..job.plan.up_to(fork) })
}

/// Finds the changes that take an index back to the block of `chain` at `fork`. The job's chain is that of
/// the index.
fn change_rows(
    job: &IndexJob<'_>,
    index: &StoredIndex<'_>,
    (chain, fork): (&Chain, Height),
    changes: &mut BTreeMap<Vec<u8>, Option<Vec<u8>>>,
) -> Result<(), Error> {
    let own = &job.plan.chain;
    if index.kind == IndexKind::TxoSpender {
        let rows = collect_branch(job, index, fork)?.rows;
        return rows.iter().try_for_each(|rows| {
            job.give_all(&**rows, &mut |key, _, height| {
                changes.extend(height.map(|_| (key.to_vec(), None)));
                Ok(())
            })
        });
    }
    // The row of a block that is taken back stays, under its hash.
    let (mut rows, mut value) = (index.block_rows(fork), Vec::new());
    for height in (fork.0 + 1..=own.tip_height().0).map(Height) {
        let hash = own.block(height).hash;
        if rows.get(height, &hash, &mut value)?
            && let Some(row) = value.strip_prefix(&hash.0)
        {
            changes.insert(removed_key(&hash), Some(row.to_vec()));
        }
    }
    if index.kind == IndexKind::CoinStats {
        let (_, hash) = index.totals(own, own.tip_height())?;
        let mut muhash = index.muhash(hash)?;
        muhash.divide(&collect_branch(job, index, fork)?.muhash);
        if muhash.clone().finalize() != index.totals(chain, fork)?.1 {
            return Err(index.damaged("the MuHash of the index is not that of its best block"));
        }
        let (key, value) = muhash_row(&muhash);
        changes.insert(key, Some(value));
    }
    Ok(())
}

/// Makes what an index has of the blocks above `fork`, on the chain of the job.
fn collect_branch(job: &IndexJob<'_>, index: &StoredIndex<'_>, fork: Height) -> Result<Collected, Error> {
    let heights = fork.0 + 1..=job.plan.chain.tip_height().0;
    job.collect(&[Base::with_keys_of(index, heights)?], &mut ())
}

//! Continues indexes in place, from their best blocks to that of the chainstate. An index that ends on
//! another branch is first taken back, as bitcoind does it. An index that is ahead of the chainstate stays as
//! it is.
//!
//! A `txindex` and a `txospenderindex` get their rows and their best block at once. A `blockfilterindex` and
//! a `coinstatsindex` get their filters and rows first, which nothing refers to yet, and then the best block.

use crate::{
    base::{Base, base_of},
    collect::Collected,
    job::{self, IndexJob},
    last_rows::has_last_rows,
    options::{IndexOptions, MadeIndex, MadeIndexes, MadeIndexesReport},
    rewind::open_on_chain,
    rows::{Row, TxRows},
    stored::StoredIndex,
    tx::Sequences,
    write::{FilterFiles, InOrderWriter, NewRows, add_rows},
};
use api::{
    error::{Error, ErrorKind},
    event::{Event, Watch},
    stage::Stage,
};
use disk::{lock::LockMode, node_indexes::IndexKind};
use std::path::Path;
use vfs::{Disk, During as _};

/// Continues indexes to the chainstate's best block. If this is interrupted, each index ends where it ended
/// before, or at the new block.
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] if no index is named and none is there, or if one that is named has no
/// best block on the chain; otherwise the same errors as [`make_indexes`](crate::make_indexes).
pub fn update_indexes(
    disk: &dyn Disk,
    options: &IndexOptions,
    watch: Watch<'_>,
) -> Result<MadeIndexesReport, Error> {
    job::run(disk, options, LockMode::Change, watch, update).map_err(|mut error| {
        if error.kind == ErrorKind::Interrupted {
            error.detail = "interrupted; each index is whole, and the next update continues it".to_owned();
        }
        error
    })
}

/// Writes the rows that each index lacks; returns what was written.
fn update(job: &IndexJob<'_>, kinds: &[IndexKind]) -> Result<MadeIndexes, Error> {
    let (mut indexes, mut bases) = (Vec::new(), Vec::new());
    for &kind in kinds {
        if let Some((index, base)) = begin(job, kind)? {
            indexes.push(index);
            bases.push(base);
        }
    }
    let mut spaces: Vec<_> = bases.iter().map(|base| (base.kind, job.space(base))).collect();
    // They are written one after the other, each with its older rows, whose tables go then.
    let merged = indexes.iter().zip(&bases).map(|(index, base)| {
        (index.dir.as_path(), index.database.bytes_merged_with(bytes_of_rows(job, base)))
    });
    let merged = largest_on_each_disk(job.files.disk, &merged.collect::<Vec<_>>())?;
    spaces.iter_mut().zip(merged).for_each(|((_, [added, _]), merged)| *added += merged);
    job.check_space(&spaces)?;
    // The rows of filters and of statistics come in order.
    let (mut in_order, mut others): (Vec<_>, Vec<_>) =
        indexes.into_iter().partition(|index: &StoredIndex<'_>| index.kind.needs_undo());
    let filters = in_order.iter().find(|index| index.kind == IndexKind::BlockFilter);
    let filter_files = filters.zip(base_of(&bases, IndexKind::BlockFilter));
    let filter_files =
        filter_files.map(|(index, base)| FilterFiles::new(job.files.disk, &index.dir, base.place));
    let updates = in_order.iter_mut().map(|index| Ok((index.kind, index.database.update()?)));
    let updates = updates.collect::<Result<Vec<_>, Error>>()?;
    let added = |kind| {
        let (_, update) = updates.iter().find(|(other, _)| *other == kind)?;
        Some(NewRows::new(update.range(&[], None), job.watch.interrupt))
    };
    let mut writer = InOrderWriter {
        filters: filter_files.zip(added(IndexKind::BlockFilter)),
        stats: added(IndexKind::CoinStats),
    };
    let Collected { rows, muhash, blocks_read } = job.collect(&bases, &mut writer)?;

    job.watch.sink.event(Event::Started(Stage::Finish));
    Error::check_interrupt(job.watch.interrupt)?;
    let added = writer.finish(&muhash)?;
    let mut made = Vec::new();
    for index in &mut others {
        made.extend(complete(job, index, &bases, &rows, None)?);
    }
    // Both are in the order of the kinds.
    let mut committed = Vec::new();
    for ((_, update), (range, state)) in updates.into_iter().zip(added.into_values()) {
        let count = range.rows();
        update.commit([range])?;
        committed.push((count, state));
    }
    for (index, (count, state)) in in_order.iter_mut().zip(committed) {
        let of_index = complete(job, index, &bases, &rows, Some(state))?;
        made.extend(of_index.map(|made| MadeIndex { rows: made.rows + count, ..made }));
    }
    Ok(MadeIndexes { indexes: made, blocks_read, kept: Vec::new() })
}

/// Returns how many of these bytes in directories, which are needed one after the other, those before them on
/// the same disk do not cover: in sum, the largest of each disk.
fn largest_on_each_disk(disk: &dyn Disk, bytes_in: &[(&Path, u64)]) -> Result<Vec<u64>, Error> {
    let mut left = Vec::new();
    for (at, (dir, bytes)) in bytes_in.iter().enumerate() {
        let mut before = 0;
        for (other, bytes) in bytes_in.iter().take(at) {
            if disk.share_space(dir, other).during("look at", dir)? {
                before = before.max(*bytes);
            }
        }
        left.push(bytes.saturating_sub(before));
    }
    Ok(left)
}

/// Opens an index, and finds out what its new rows are added to. Returns `None` if it stays as it is.
fn begin<'a>(job: &IndexJob<'a>, kind: IndexKind) -> Result<Option<(StoredIndex<'a>, Base)>, Error> {
    let IndexJob { files, plan, .. } = *job;
    let Some((index, best)) = open_on_chain(job, kind)? else { return Ok(None) };
    let mut base = Base::above(&index, files, &plan.chain, best)?;
    if !has_last_rows(job, &index, &base, best)? {
        return Err(index.damaged("the rows of the last blocks are missing or wrong"));
    }
    job::require_stored(plan, |height| height > best.0)?;
    job::require_undo(plan, &[kind], best.0 + 1)?;
    if base.is_by_block() {
        base.sequences = new_sequences(&index.sequences(&plan.chain, plan.chain.tip_height())?, &base);
    }
    Ok(Some((index, base)))
}

/// Puts the first rows of an index and those of transactions into its database, and so makes the chainstate's
/// best block that of the index. `state` is the row from which bitcoind continues.
fn complete(
    job: &IndexJob<'_>,
    index: &mut StoredIndex<'_>,
    bases: &[Base],
    rows: &[Box<dyn TxRows>],
    state: Option<Row>,
) -> Result<Option<MadeIndex>, Error> {
    let Some(base) = base_of(bases, index.kind) else { return Ok(None) };
    let made = MadeIndex { name: index.kind, from_height: *base.heights.start(), rows: 0, form: base.form() };
    if base.heights.is_empty() {
        // It ends with the chainstate's best block already.
        return Ok(Some(made));
    }
    let chain = &job.plan.chain;
    let rows = rows.iter().find(|rows| rows.kind() == index.kind).map(|rows| &**rows);
    let starts = (1..rows.map_or(1, TxRows::ranges)).filter_map(|range| Some(rows?.bounds(range)));
    let (bytes, threads) = (bytes_of_rows(job, base), job.budget.threads);
    // Where nothing is written anew, one range makes the fewest tables.
    let is_merged = index.database.bytes_merged_with(bytes) > 0;
    let starts: Vec<_> = starts.filter(|_| is_merged).map(|[start, _]| start).collect();
    let rows = add_rows(&mut index.database, bytes, &starts, threads, job.watch.interrupt, |range, sink| {
        if range == 0 {
            base.give_first_rows(chain, state.clone(), sink)?;
        }
        match rows {
            Some(rows) if is_merged => rows.give(chain, range, job.sort_bytes(), sink),
            Some(rows) => job.give_all(rows, sink),
            None => Ok(()),
        }
    })?;
    Ok(Some(MadeIndex { rows, ..made }))
}

/// Returns the bytes of the rows of transactions that an index gets.
fn bytes_of_rows(job: &IndexJob<'_>, base: &Base) -> u64 {
    if base.kind.needs_undo() { 0 } else { job.space(base)[0] }
}

/// Returns a sequence number for each block that gets rows and has no number yet, by height.
fn new_sequences(old: &[Option<u32>], base: &Base) -> Sequences {
    let mut next = base.next_sequence..;
    let is_new = |(height, old): (u32, &Option<u32>)| old.is_none() && base.heights.contains(&height);
    (0..).zip(old).map(|block| is_new(block).then(|| next.next()).flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::RealDisk;

    /// The space was that of the largest index, also if a smaller one is on another disk.
    #[test]
    fn each_disk_needs_space_for_the_largest_index_on_it() {
        let here = tempfile::tempdir().unwrap();
        let [one, other] = [here.path(), Path::new("/dev")];
        let left = |bytes_in: &[(&Path, u64)]| largest_on_each_disk(&RealDisk, bytes_in).unwrap();
        assert_eq!(left(&[(one, 5), (other, 3), (one, 7), (one, 6)]), [5, 3, 2, 0]);
        assert_eq!(left(&[(one, 5), (other, 9)]), [5, 9]);
    }
}

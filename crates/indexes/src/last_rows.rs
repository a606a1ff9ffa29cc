//! Whether an index has the rows of its last blocks. bitcoind erases rows when it disconnects blocks, but
//! records the best block later: after a crash in between, it continues above blocks that have none.

use crate::{base::Base, findings::is_value, job::IndexJob, stored::StoredIndex};
use api::error::Error;
use wire::Height;

/// Number of blocks that are read first; if they have no rows, as many again, and so on.
const BLOCKS: u32 = 16;

/// Whether a `txindex` or `txospenderindex` has the rows of its last blocks up to `best`. `base` has its
/// keys. bitcoind erases the rows of the last block first, so it suffices to look at the last blocks.
///
/// # Errors
/// Blocks that are damaged or missing; any I/O error.
pub fn has_last_rows(
    job: &IndexJob<'_>,
    index: &StoredIndex<'_>,
    base: &Base,
    best: Height,
) -> Result<bool, Error> {
    if index.kind.needs_undo() {
        return Ok(true);
    }
    let chain = &job.plan.chain;
    // Up to there, the rows are older ones by txid.
    let by_txid = if base.is_by_block() { index.position_by_txid(job.files, chain)?.height() } else { None };
    let below = by_txid.map_or(0, |height| height.0);
    let mut end = best.0;
    while end > below {
        let first = end.saturating_sub((best.0 - end).max(BLOCKS)).max(below + 1);
        if !(first..=end).all(|height| chain.was_stored(Height(height))) {
            return Ok(true);
        }
        let mut base = Base { heights: first..=end, ..base.clone() };
        if base.is_by_block() {
            base.sequences = index.sequences(chain, Height(end))?.into();
        }
        if base.sequences.iter().skip(first as usize).any(Option::is_none) {
            return Ok(false);
        }
        let (mut found, mut lookup) = (Vec::new(), index.database.lookup(b"s", Some(b"y")));
        // Numbers of the rows that the blocks give, and of those that the index lacks, or has otherwise.
        let (mut count, mut lacking) = (0, 0);
        for rows in job.collect(&[base], &mut ())?.rows {
            job.give_all(&*rows, &mut |key, value, height| {
                if height.is_some() {
                    let is_there = lookup.get(key, &mut found)? && is_value(&found, value);
                    count += 1;
                    lacking += u64::from(!is_there);
                }
                Ok(())
            })?;
        }
        if count > 0 {
            return Ok(lacking == 0);
        }
        end = first - 1;
    }
    Ok(true)
}

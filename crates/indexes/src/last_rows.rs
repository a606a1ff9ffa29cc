//! Whether an index has the rows of its last blocks. bitcoind erases rows when it disconnects blocks, but
//! records the best block later: after a crash in between, it goes on above blocks that have none.

use crate::{
    findings::is_value,
    job::{InOrderSinks, IndexJob},
    options::TxForm,
    records::CollectedRows,
    rows::{RowForm, RowSet, RowSink},
    starts::{Start, Starts},
    stored::StoredIndex,
};
use api::error::Error;
use disk::node_indexes::IndexKind;
use leveldb::Lookup;
use wire::Height;

/// Number of blocks that are read first; if they have no rows, as many again, and so on.
const BLOCKS: u32 = 16;

/// Whether a `txindex` or `txospenderindex` has the rows of its last blocks up to `best`. `start` has its
/// keys. Blocks are erased from the last one on, so that a look at these suffices.
///
/// # Errors
/// Blocks that are damaged or missing; any I/O error.
pub fn has_last_rows(
    job: &IndexJob<'_>,
    index: &StoredIndex<'_>,
    start: &Start,
    best: Height,
) -> Result<bool, Error> {
    if index.kind.needs_undo() {
        return Ok(true);
    }
    let chain = &job.plan.chain;
    let by_block = index.kind == IndexKind::Tx && start.tx_form == TxForm::ByBlock;
    // Up to there it has rows by txid from before.
    let by_txid = if by_block { index.position_by_txid(job.files, chain)?.height() } else { None };
    let below = by_txid.map_or(0, |height| height.0);
    let mut end = best.0;
    while end > below {
        let first = end.saturating_sub((best.0 - end).max(BLOCKS)).max(below + 1);
        if !(first..=end).all(|height| chain.was_stored(Height(height))) {
            return Ok(true);
        }
        let mut starts = Starts::default();
        starts.add(index.kind, Start { heights: first..=end, ..start.clone() });
        let sequences = if by_block { index.sequences(chain, Height(end))? } else { Vec::new() };
        if sequences.iter().skip(first as usize).any(Option::is_none) {
            return Ok(false);
        }
        let records = job.collect(&starts, sequences, InOrderSinks::default())?.records;
        let mut found = Found { rows: index.database.lookup(b"s", Some(b"y")), count: 0, lacking: 0 };
        match records.into_rows(chain)? {
            CollectedRows { spends: Some(rows), .. } => found.look_for(job, &rows)?,
            CollectedRows { by_txid: Some(rows), .. } => found.look_for(job, &rows)?,
            CollectedRows { by_block: Some(rows), .. } => found.look_for(job, &rows)?,
            _ => {}
        }
        if found.count > 0 {
            return Ok(found.lacking == 0);
        }
        end = first - 1;
    }
    Ok(true)
}

/// Looks for rows in a database.
struct Found<'a> {
    rows: Lookup<'a>,
    /// Number of rows of blocks that have to be there.
    count: u64,
    /// Number of those that are not, or are others.
    lacking: u64,
}

impl Found<'_> {
    fn look_for<F: RowForm<N>, const N: usize>(
        &mut self,
        job: &IndexJob<'_>,
        rows: &RowSet<F, N>,
    ) -> Result<(), Error> {
        (0..rows.ranges()).try_for_each(|range| rows.give(range, job.sort_bytes(), self))
    }
}

impl RowSink for Found<'_> {
    fn row(&mut self, key: &[u8], value: &[u8], height: Option<Height>) -> Result<(), Error> {
        if height.is_some() {
            let mut found = Vec::new();
            let is_there = self.rows.get(key, &mut found)? && is_value(&found, value);
            self.count += 1;
            self.lacking += u64::from(!is_there);
        }
        Ok(())
    }
}

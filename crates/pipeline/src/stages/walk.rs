//! A walk over the blocks of a chain on several threads.

use crate::stages::read::{BlockBuffers, BlockReader};
use api::{
    error::Error,
    event::{BlockMeter, Watch},
};
use chain::threads::each_number;
use std::ops::Range;
use wire::Height;

/// Number of blocks that a thread takes at once.
const BATCH_BLOCKS: u32 = 32;

/// Walks over blocks on several threads.
pub struct BlockWalk<'a> {
    pub reader: BlockReader<'a>,
    pub threads: usize,
    /// Bytes of all blocks of the chain, about, for progress.
    pub bytes_total: u64,
    pub watch: Watch<'a>,
}

impl BlockWalk<'_> {
    /// Calls `each` with all `heights`, and with the buffers and the state of its thread, which begins
    /// with the default. Returns the error of the lowest block that has one.
    ///
    /// # Errors
    /// That error; [`ErrorKind::Interrupted`](api::error::ErrorKind::Interrupted).
    pub fn each<S: Default>(
        &self,
        heights: Range<u32>,
        each: impl Fn(&mut BlockBuffers, &mut S, Height) -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        let blocks_total = self.reader.chain.block_count() as u32;
        let meter = BlockMeter::new(self.watch.sink, blocks_total, self.bytes_total);
        meter.add(heights.start, 0); // Those below count as done.
        let batches = (heights.len() as u32).div_ceil(BATCH_BLOCKS);
        each_number(self.threads, batches, Default::default, |(buffers, state), batch| {
            let first = heights.start + batch * BATCH_BLOCKS;
            let batch = first..heights.end.min(first.saturating_add(BATCH_BLOCKS));
            for height in batch.clone() {
                Error::check_interrupt(self.watch.interrupt)?;
                each(buffers, state, Height(height))?;
            }
            meter.add(batch.len() as u32, 0);
            Ok(())
        })
    }
}

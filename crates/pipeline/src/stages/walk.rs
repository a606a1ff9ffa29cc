//! A walk over the blocks of a chain on several threads.

use crate::stages::read::{BlockBuffers, BlockReader};
use api::{
    error::Error,
    event::{Event, EventSink, Progress, Watch},
};
use chain::threads::each_number;
use std::{
    ops::Range,
    sync::atomic::{AtomicU32, Ordering},
};
use wire::Height;

/// Number of blocks that a thread takes at once.
const BATCH_BLOCKS: u32 = 32;

/// Sends a progress event of a pass over some blocks, which have about this many bytes.
pub fn progress(sink: &dyn EventSink, blocks: u32, blocks_total: u32, bytes_total: u64) {
    let blocks = blocks.min(blocks_total);
    let bytes = bytes_total / u64::from(blocks_total) * u64::from(blocks);
    sink.event(Event::Progress(Progress { blocks, blocks_total, bytes, bytes_total }));
}

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
        let (done, blocks_total) = (AtomicU32::new(0), self.reader.chain.block_count() as u32);
        let batches = (heights.len() as u32).div_ceil(BATCH_BLOCKS);
        each_number(self.threads, batches, Default::default, |(buffers, state), batch| {
            let first = heights.start + batch * BATCH_BLOCKS;
            for height in first..heights.end.min(first.saturating_add(BATCH_BLOCKS)) {
                Error::check_interrupt(self.watch.interrupt)?;
                each(buffers, state, Height(height))?;
            }
            let done = done.fetch_add(BATCH_BLOCKS, Ordering::Relaxed);
            progress(self.watch.sink, done, blocks_total, self.bytes_total);
            Ok(())
        })
    }
}

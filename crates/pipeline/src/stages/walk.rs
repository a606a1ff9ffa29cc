//! A walk over the blocks of a chain on several threads.

use api::error::Error;
use chain::{
    blocks::{chain::Chain, files::Files},
    threads::each_number,
};
use std::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};
use wire::Height;

/// Number of blocks that a thread takes at once.
const BATCH_BLOCKS: u32 = 32;

/// Walks over blocks on several threads.
#[derive(Clone, Copy)]
pub struct BlockWalk<'a> {
    pub chain: &'a Chain,
    pub files: &'a Files<'a>,
    pub threads: usize,
    /// Called now and then with the number of blocks done.
    pub progress: &'a (dyn Fn(u32) + Sync),
    /// Set by the caller to stop.
    pub interrupt: &'a AtomicBool,
}

impl BlockWalk<'_> {
    /// Calls `each` with all `heights` and what `begin` makes for each thread. Returns the error of the
    /// lowest block that has one.
    ///
    /// # Errors
    /// That error; [`ErrorKind::Interrupted`](api::error::ErrorKind::Interrupted).
    pub fn each<S>(
        &self,
        heights: Range<u32>,
        begin: impl Fn() -> S + Sync,
        each: impl Fn(&mut S, Height) -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        let done = AtomicU32::new(0);
        let batches = (heights.len() as u32).div_ceil(BATCH_BLOCKS);
        each_number(self.threads, batches, begin, |state, batch| {
            let first = heights.start + batch * BATCH_BLOCKS;
            for height in first..heights.end.min(first.saturating_add(BATCH_BLOCKS)) {
                if self.interrupt.load(Ordering::Relaxed) {
                    return Err(Error::interrupted());
                }
                each(state, Height(height))?;
            }
            (self.progress)(done.fetch_add(BATCH_BLOCKS, Ordering::Relaxed));
            Ok(())
        })
    }
}

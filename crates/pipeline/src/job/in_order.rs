//! Connects the blocks of a chain in order to coins on disk, window by window: what an update and a rebuild
//! with the coins cache share.

use crate::{
    job::memory::CacheMemory,
    stages::{
        stored_coins::TipCoins,
        window::{CheckedWindow, ConnectedBlock, ConnectedWindow, Window, cache_error},
    },
};
use api::{counts::Counts, error::Error, event::BlockMeter};
use std::{ops::Range, sync::atomic::AtomicBool};
use wire::Height;

/// Coins to which blocks are connected in order, and what else changes with them.
pub trait BlockSink<'d> {
    fn coins(&mut self) -> &mut TipCoins<'d>;

    /// Takes blocks that were connected to the coins, and had these contents.
    fn connected(&mut self, blocks: &[ConnectedBlock], counts: Counts) -> Result<(), Error>;

    /// Writes all changes; `is_last` if no more blocks follow.
    fn commit(&mut self, is_last: bool) -> Result<(), Error>;
}

/// A window that was checked, at most up to the end of these heights; `None` if anything is wrong with it.
struct Ahead(Range<u32>, Option<CheckedWindow>);

/// Connects blocks of a chain in order.
pub struct InOrder<'a> {
    window: Window<'a>,
    /// The blocks from `next` on that are checked already.
    ahead: Option<Ahead>,
    next: u32,
    end: u32,
    /// The heights of the blocks that are connected one by one.
    exactly: Range<u32>,
    meter: BlockMeter<'a>,
}

impl<'a> InOrder<'a> {
    /// Connects the blocks at `heights`; those at the heights of `exactly` are connected one by one.
    pub fn new(window: Window<'a>, heights: Range<u32>, exactly: Range<u32>, meter: BlockMeter<'a>) -> Self {
        Self { window, ahead: None, next: heights.start, end: heights.end, exactly, meter }
    }

    /// Connects all blocks. Commits whenever the coins have used up their `memory`, after the blocks that are
    /// connected one by one, so that a caller who begins again begins above them, and at the end. Returns
    /// the heights of a window in which something is wrong with a block, or with a file: the coins are then
    /// between two blocks, and the caller begins again at the last commit, and connects these blocks one by
    /// one.
    ///
    /// # Errors
    /// The first violation, if its block is connected by itself; damage to the chainstate; any I/O error;
    /// errors of `to`; [`ErrorKind::Interrupted`](api::error::ErrorKind::Interrupted).
    pub fn connect_to<'d>(
        mut self,
        to: &mut impl BlockSink<'d>,
        memory: CacheMemory,
        interrupt: &AtomicBool,
    ) -> Result<Option<Range<u32>>, Error> {
        loop {
            Error::check_interrupt(interrupt)?;
            if self.next >= self.end {
                break;
            }
            let (blocks, counts) = if self.is_single(self.next) {
                let height = Height(self.next);
                let (block, counts) = self.window.connect_exactly(to.coins(), height, cache_error)?;
                (vec![block], counts)
            } else {
                let Ahead(heights, window) = match self.ahead.take() {
                    Some(ahead) => ahead,
                    None => Ahead(self.next..self.next, Some(CheckedWindow::default())),
                };
                let Some(window) = window else { return Ok(Some(heights)) };
                let following = self.heights_from(self.next + window.block_count());
                let connected = self.window.connect(to.coins(), window, following.clone())?;
                let Some(ConnectedWindow { blocks, counts, next }) = connected else {
                    return Ok(Some(heights));
                };
                self.ahead = (!following.is_empty()).then_some(Ahead(following, next));
                (blocks, counts)
            };
            self.next += blocks.len() as u32;
            self.meter.add(blocks.len() as u32, counts.block_bytes);
            to.connected(&blocks, counts)?;
            if to.coins().bytes() > memory.coins || self.next == self.exactly.end {
                to.commit(false)?;
            }
        }
        to.commit(true)?;
        Ok(None)
    }

    /// Whether the block is connected by itself. The coin of the genesis block is not in the UTXO set.
    fn is_single(&self, height: u32) -> bool {
        height == 0 || self.exactly.contains(&height)
    }

    /// Returns the heights of the longest window from `start` on; none if the block there is connected by
    /// itself.
    fn heights_from(&self, start: u32) -> Range<u32> {
        let limit = if start < self.exactly.start { self.exactly.start } else { self.end };
        let end = if self.is_single(start) {
            start
        } else {
            limit.min(self.end).min(start + self.window.buffers.max_blocks())
        };
        start..end.max(start)
    }
}

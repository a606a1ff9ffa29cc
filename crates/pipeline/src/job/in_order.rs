//! Connects the blocks of a chain in order to coins on disk, window by window: what an update and a rebuild
//! with the coins cache share.

use crate::{
    job::memory::MemoryBudget,
    stages::{
        stored_coins::TipCoins,
        window::{BufferPool, CheckedWindow, ConnectedBlock, ConnectedWindow, Window},
    },
};
use api::{
    counts::Counts,
    error::Error,
    event::{Event, EventSink, PROGRESS_INTERVAL, Progress},
};
use chain::plan::planner::Plan;
use std::{ops::Range, time::Instant};
use wire::Height;

/// How the memory for coins is divided: five eighths for those that are kept, an eighth for a sorted list of
/// their changes, one for two windows of blocks, and one for open tables.
#[derive(Clone, Copy)]
pub struct CacheMemory {
    /// Bytes of coins after which their changes are written.
    pub coins: usize,
    /// Bytes of coins that stay when changes are written.
    pub staying: usize,
    /// Bytes of open tables.
    pub tables: u64,
    /// Bytes of the blocks of a window.
    window: usize,
}

impl CacheMemory {
    /// The parts of a budget.
    pub fn of(budget: MemoryBudget) -> Self {
        let part = budget.join_bytes / 8;
        Self { coins: 5 * part, staying: 2 * part, tables: part as u64, window: part / 2 }
    }

    /// The memory for blocks.
    pub const fn buffers(&self) -> BufferPool {
        BufferPool::new(self.window)
    }
}

/// What a step has done.
pub enum Step {
    /// It connected these blocks, which had these contents.
    Connected(Vec<ConnectedBlock>, Counts),
    /// Something is wrong with a block at these heights, or with a file. The coins are between two blocks:
    /// the caller begins again at the last commit, and connects these blocks one by one.
    Suspect(Range<u32>),
    /// All blocks are connected.
    Done,
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
    meter: Meter<'a>,
}

impl<'a> InOrder<'a> {
    /// Connects the blocks at `heights`; those at the heights of `exactly` are connected one by one.
    pub fn new(
        window: Window<'a>,
        plan: &'a Plan,
        heights: Range<u32>,
        exactly: Range<u32>,
        sink: &'a dyn EventSink,
    ) -> Self {
        let Range { start: next, end } = heights;
        Self { window, ahead: None, next, end, exactly, meter: Meter::new(plan, next..end, sink) }
    }

    /// Connects the next window, or the next block.
    ///
    /// # Errors
    /// The first violation, if the block is connected by itself; damage to the chainstate; any I/O error.
    pub fn step(&mut self, coins: &mut TipCoins<'_>) -> Result<Step, Error> {
        if self.next >= self.end {
            return Ok(Step::Done);
        }
        if self.is_single(self.next) {
            let (block, counts) = self.window.connect_exactly(coins, Height(self.next))?;
            return Ok(self.connected(vec![block], counts));
        }
        let Ahead(heights, window) = match self.ahead.take() {
            Some(ahead) => ahead,
            None => Ahead(self.next..self.next, Some(CheckedWindow::default())),
        };
        let Some(window) = window else { return Ok(Step::Suspect(heights)) };
        let following = self.heights_from(self.next + window.block_count());
        match self.window.connect(coins, window, following.clone())? {
            Some(ConnectedWindow { blocks, counts, next }) => {
                self.ahead = (!following.is_empty()).then_some(Ahead(following, next));
                Ok(self.connected(blocks, counts))
            }
            None => Ok(Step::Suspect(heights)),
        }
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

    fn connected(&mut self, blocks: Vec<ConnectedBlock>, counts: Counts) -> Step {
        self.next += blocks.len() as u32;
        self.meter.show(self.next, &counts);
        Step::Connected(blocks, counts)
    }
}

/// Sends progress events.
struct Meter<'a> {
    sink: &'a dyn EventSink,
    heights: Range<u32>,
    bytes: u64,
    bytes_total: u64,
    last: Instant,
}

impl<'a> Meter<'a> {
    /// `heights` are those of the blocks that are connected.
    fn new(plan: &Plan, heights: Range<u32>, sink: &'a dyn EventSink) -> Self {
        let bytes_total = plan.block_bytes / plan.chain.block_count() as u64 * heights.len() as u64;
        Self { sink, heights, bytes: 0, bytes_total, last: Instant::now() }
    }

    /// Counts blocks that were connected; `next` is the height of the next one.
    fn show(&mut self, next: u32, counts: &Counts) {
        self.bytes += counts.block_bytes;
        if self.last.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        self.last = Instant::now();
        let (blocks, blocks_total) = (next - self.heights.start, self.heights.len() as u32);
        let (bytes, bytes_total) = (self.bytes, self.bytes_total.max(self.bytes));
        self.sink.event(Event::Progress(Progress { blocks, blocks_total, bytes, bytes_total }));
    }
}

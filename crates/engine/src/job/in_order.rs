//! Connects the blocks of a chain in order to coins on disk, window by window: what an update and a rebuild
//! with the coins cache share.

use crate::{
    api::{
        counts::Counts,
        error::Error,
        event::{Event, EventSink, PROGRESS_INTERVAL, Progress},
    },
    job::memory::MemoryBudget,
    plan::planner::Plan,
    stages::window::{BlockBuffers, ConnectedBlock, TipCoins, Window},
};
use std::{ops::Range, time::Instant};
use wire::Height;

/// Maximum number of blocks in a window.
const WINDOW_BLOCKS: u32 = 32;
/// Memory that a block of a window can take, in bytes: the block itself, its transactions and coins.
const BLOCK_BYTES: usize = 12 << 20;

/// How the memory for coins is divided: half for those that are kept, of which a sorted list is made in the
/// end; an eighth each for blocks and open tables.
#[derive(Clone, Copy)]
pub struct CacheMemory {
    /// Bytes of coins after which their changes are written.
    pub coins: usize,
    /// Bytes of open tables.
    pub tables: u64,
    /// Number of blocks in a window.
    window_blocks: u32,
}

impl CacheMemory {
    /// The parts of a budget.
    #[must_use]
    pub fn of(budget: MemoryBudget) -> Self {
        let part = budget.join_bytes / 8;
        let window_blocks = (part / BLOCK_BYTES).clamp(1, WINDOW_BLOCKS as usize) as u32;
        Self { coins: budget.join_bytes / 2, tables: part as u64, window_blocks }
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

/// Connects blocks of a chain in order.
pub struct InOrder<'a> {
    window: Window<'a>,
    window_blocks: u32,
    buffers: Vec<BlockBuffers>,
    next: u32,
    end: u32,
    /// The heights of the blocks that are connected one by one.
    exactly: Range<u32>,
    meter: Meter<'a>,
}

impl<'a> InOrder<'a> {
    /// Begins with the block at `next`; those at the heights of `exactly` are connected one by one.
    #[must_use]
    pub fn new(
        window: Window<'a>,
        memory: CacheMemory,
        plan: &'a Plan,
        next: u32,
        exactly: Range<u32>,
        sink: &'a dyn EventSink,
    ) -> Self {
        let end = plan.chain.block_count() as u32;
        let (window_blocks, meter) = (memory.window_blocks, Meter::new(plan, next..end, sink));
        Self { window, window_blocks, buffers: Vec::new(), next, end, exactly, meter }
    }

    /// Connects the next window, or the next block.
    ///
    /// # Errors
    /// The first violation, if the block is connected by itself; damage to the chainstate; any I/O error.
    pub fn step(&mut self, coins: &mut TipCoins<'_>) -> Result<Step, Error> {
        let next = self.next;
        if next >= self.end {
            return Ok(Step::Done);
        }
        // The coin of the genesis block is not in the UTXO set.
        let connected = if next == 0 || self.exactly.contains(&next) {
            let (block, counts) =
                self.window.connect_exactly(coins, Height(next), &mut BlockBuffers::default())?;
            (vec![block], counts)
        } else {
            let limit = if next < self.exactly.start { self.exactly.start } else { self.end };
            let heights = next..limit.min(self.end).min(next + self.window_blocks);
            match self.window.connect(coins, heights.clone(), &mut self.buffers)? {
                Some(connected) => connected,
                None => return Ok(Step::Suspect(heights)),
            }
        };
        let (blocks, counts) = connected;
        self.next += blocks.len() as u32;
        self.meter.show(self.next, &counts);
        Ok(Step::Connected(blocks, counts))
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

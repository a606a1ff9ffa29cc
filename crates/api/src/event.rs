//! What the engine reports while it works. The engine never prints: the caller's [`EventSink`] decides what
//! becomes of events.

use crate::{
    error::Error,
    note::{Note, Warning},
    stage::Stage,
};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};
use std::time::{Duration, Instant};
use wire::{BlockHash, Height};

/// Interval between two progress events.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Something to report.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A stage begins.
    Started(Stage),
    /// The chain to rebuild was chosen. It ends at `height`. `block_bytes` is an upper bound of the bytes of
    /// block files to read (framing and undo data not counted), and `unconnected` the number of blocks of the
    /// best chain above `height` that are on disk but not connected; bitcoind connects them when it starts.
    Planned { height: Height, hash: BlockHash, block_bytes: u64, unconnected: u32 },
    /// How the memory limit of a job is divided.
    Memory(MemoryTable),
    /// Progress; sent a few times a second.
    Progress(Progress),
    /// Progress of a stage that goes through the coins, such as [`Stage::Finish`]; sent a few times a
    /// second.
    Coins(CoinProgress),
    /// Something that the user should know that is not an error.
    Note(Note),
    /// Something that the operator must know; it is also in the report.
    Warning(Warning),
}

/// What the memory limit of a job is divided into: what each part is for, and its bytes.
pub type MemoryTable = [(&'static str, u64); 8];

/// How many blocks have been read and checked, or bytes of a database, which has none.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Number of blocks done.
    pub blocks: u32,
    pub blocks_total: u32,
    /// Bytes of block data, or of the database, done.
    pub bytes: u64,
    /// Bytes of block data in total, as far as known. The block index holds no lengths, so this is an upper
    /// bound, and it falls.
    pub bytes_total: u64,
}

/// How many coins have been merged, written or read back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoinProgress {
    /// Number of coins done.
    pub coins: u64,
    /// Number of coins in total, as far as known.
    pub coins_total: u64,
}

/// Says when progress events are due: the first one at once, and then one in each interval.
pub struct Throttle {
    begun: Instant,
    /// Number of intervals up to the last event.
    intervals: AtomicU32,
}

impl Throttle {
    pub fn begin() -> Self {
        Self { begun: Instant::now(), intervals: AtomicU32::new(0) }
    }

    pub fn is_due(&self) -> bool {
        let now = (self.begun.elapsed().as_millis() / PROGRESS_INTERVAL.as_millis()) as u32 + 1;
        self.intervals.fetch_max(now, Ordering::Relaxed) < now
    }
}

/// Counts the coins that several threads go through, and sends progress events.
pub struct CoinMeter<'a> {
    sink: &'a dyn EventSink,
    coins: AtomicU64,
    coins_total: u64,
    throttle: Throttle,
}

impl<'a> CoinMeter<'a> {
    /// A count that begins now; sends the first event, unless the total is 0, or not known.
    pub fn new(sink: &'a dyn EventSink, coins_total: u64) -> Self {
        let meter = Self { sink, coins: AtomicU64::new(0), coins_total, throttle: Throttle::begin() };
        if coins_total > 0 {
            meter.show(0, coins_total);
        }
        meter
    }

    pub fn add(&self, coins: u64) {
        self.show(self.coins.fetch_add(coins, Ordering::Relaxed) + coins, self.coins_total);
    }

    /// For a caller that counts the coins itself, or does not know their total.
    pub fn show(&self, coins: u64, coins_total: u64) {
        if self.throttle.is_due() {
            self.sink.event(Event::Coins(CoinProgress { coins, coins_total: coins_total.max(coins) }));
        }
    }
}

/// Counts the blocks that several threads go through, and sends progress events: also after the last block.
pub struct BlockMeter<'a> {
    sink: &'a dyn EventSink,
    blocks: AtomicU32,
    blocks_total: u32,
    bytes: AtomicU64,
    bytes_total: u64,
    throttle: Throttle,
}

impl<'a> BlockMeter<'a> {
    pub fn new(sink: &'a dyn EventSink, blocks_total: u32, bytes_total: u64) -> Self {
        let (blocks, bytes, throttle) = (AtomicU32::new(0), AtomicU64::new(0), Throttle::begin());
        Self { sink, blocks, blocks_total, bytes, bytes_total, throttle }
    }

    /// Counts blocks and their bytes. 0 bytes: these are not known, and taken from the mean.
    pub fn add(&self, blocks: u32, bytes: u64) {
        let Self { sink, blocks_total, bytes_total, .. } = *self;
        let mean = bytes_total / u64::from(blocks_total.max(1));
        self.bytes.fetch_add(if bytes == 0 { mean * u64::from(blocks) } else { bytes }, Ordering::Relaxed);
        let blocks = self.blocks.fetch_add(blocks, Ordering::Relaxed) + blocks;
        let is_last = blocks == blocks_total;
        if is_last || self.throttle.is_due() {
            let bytes = self.bytes.load(Ordering::Relaxed);
            let bytes_total = if is_last { bytes } else { bytes_total.max(bytes) };
            sink.event(Event::Progress(Progress { blocks, blocks_total, bytes, bytes_total }));
        }
    }
}

/// Receives events. Called from several threads.
pub trait EventSink: Sync {
    /// Takes one event; must not block for long.
    fn event(&self, event: Event);

    /// Warns of temporary files that could not be removed.
    fn warn_if_left(&self, removed: Result<(), Error>) {
        if let Err(error) = removed {
            self.event(Event::Warning(Warning::WorkFilesRemain { error }));
        }
    }
}

/// Where a run reports what it does, and where it is told to stop.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Receives the events.
    pub sink: &'a dyn EventSink,
    /// True if the run is to end with [`ErrorKind::Interrupted`](crate::error::ErrorKind::Interrupted).
    pub interrupt: &'a AtomicBool,
}

impl Watch<'_> {
    /// The same for a part of a run that reports nothing.
    pub fn without_events(self) -> Self {
        Self { sink: &|_| {}, ..self }
    }
}

/// Forwards all events, and collects the warnings for the report.
pub struct Warnings<'a, S: EventSink + ?Sized = dyn EventSink + 'a> {
    sink: &'a S,
    warnings: Mutex<Vec<Warning>>,
}

impl<'a, S: EventSink + ?Sized> Warnings<'a, S> {
    pub fn new(sink: &'a S) -> Self {
        Self { sink, warnings: Mutex::new(Vec::new()) }
    }

    /// Runs a command that only works in place, whose errors advise no other output.
    ///
    /// # Errors
    /// Those of `run`.
    pub fn in_place<T>(sink: &'a S, run: impl FnOnce(&Self) -> Result<T, Error>) -> Result<T, Error> {
        run(&Self::new(sink)).map_err(Error::in_place_only)
    }

    pub const fn sink(&self) -> &'a S {
        self.sink
    }

    /// Takes the warnings so far, in order.
    pub fn take(&self) -> Vec<Warning> {
        std::mem::take(&mut self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S: EventSink + ?Sized> EventSink for Warnings<'_, S> {
    fn event(&self, event: Event) {
        if let Event::Warning(warning) = &event {
            let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
            // Each plan and each peer shows it again.
            let marked = |warning: &Warning| match warning {
                Warning::MarkedInvalid { hash, .. } => Some(*hash),
                _ => None,
            };
            if marked(warning).is_some() && warnings.iter().any(|other| marked(other) == marked(warning)) {
                return;
            }
            warnings.push(warning.clone());
        }
        self.sink.event(event);
    }
}

impl<F: Fn(Event) + Sync> EventSink for F {
    fn event(&self, event: Event) {
        self(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most stages ended below 100 %: their last blocks were shown only if it was time.
    #[test]
    fn the_first_blocks_and_the_last_are_shown() {
        let shown = Mutex::new(Vec::new());
        let sink = |event: Event| {
            if let Event::Progress(Progress { blocks, blocks_total, bytes, bytes_total }) = event {
                shown.lock().unwrap().push((blocks, blocks_total, bytes, bytes_total));
            }
        };
        let meter = BlockMeter::new(&sink, 4, 400);
        for (blocks, bytes) in [(1, 0), (2, 0), (1, 50)] {
            meter.add(blocks, bytes);
        }
        let shown = shown.lock().unwrap();
        assert_eq!((shown.first(), shown.last()), (Some(&(1, 4, 100, 400)), Some(&(4, 4, 350, 350))));
    }

    /// Once, 0 of 0 coins were shown first.
    #[test]
    fn coins_are_shown_when_their_total_is_known() {
        for (coins_total, expected) in [(7, (0, 7)), (0, (2, 9))] {
            let shown = Mutex::new(Vec::new());
            let sink = |event: Event| {
                if let Event::Coins(CoinProgress { coins, coins_total }) = event {
                    shown.lock().unwrap().push((coins, coins_total));
                }
            };
            CoinMeter::new(&sink, coins_total).show(2, 9);
            assert_eq!(shown.lock().unwrap().first(), Some(&expected));
        }
    }
}

//! What the engine reports while it works. The engine never prints: the caller's [`EventSink`] decides what
//! becomes of events.

use crate::{
    error::Error,
    note::{Note, Warning},
    stage::Stage,
};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
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

/// Counts the coins that several threads go through, and sends progress events.
pub struct CoinMeter<'a> {
    sink: &'a dyn EventSink,
    coins: AtomicU64,
    coins_total: u64,
    last: Mutex<Instant>,
}

impl<'a> CoinMeter<'a> {
    /// A count that begins now; sends the first event.
    pub fn new(sink: &'a dyn EventSink, coins_total: u64) -> Self {
        sink.event(Event::Coins(CoinProgress { coins: 0, coins_total }));
        Self { sink, coins: AtomicU64::new(0), coins_total, last: Mutex::new(Instant::now()) }
    }

    pub fn add(&self, coins: u64) {
        let coins = self.coins.fetch_add(coins, Ordering::Relaxed) + coins;
        let Ok(mut last) = self.last.try_lock() else { return };
        if last.elapsed() >= PROGRESS_INTERVAL {
            *last = Instant::now();
            self.sink.event(Event::Coins(CoinProgress { coins, coins_total: self.coins_total.max(coins) }));
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

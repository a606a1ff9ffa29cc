//! Turns of the parts of a chain: several threads read parts, and their results are written or sent in the
//! order of the chain.

use api::error::Error;
use chain::threads::lock;
use std::{
    ops::RangeInclusive,
    sync::{Condvar, Mutex, PoisonError},
};

/// Which part has its turn. The parts are consecutive.
pub struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The first block of the lowest part that has not ended.
    next: u32,
    /// The first block of the lowest part that has failed.
    failed: u32,
}

/// The turn of a part. If it is dropped before its end, the part has failed: the parts below it are
/// completed, those above it never have their turn.
pub struct Turn<'a> {
    turns: &'a Turns,
    heights: RangeInclusive<u32>,
    has_ended: bool,
}

impl Turns {
    /// The first turn is that of the part that begins at this height.
    pub const fn new(from: u32) -> Self {
        Self { state: Mutex::new(State { next: from, failed: u32::MAX }), changed: Condvar::new() }
    }

    /// Returns the turn of the part with these blocks.
    pub const fn of(&self, heights: RangeInclusive<u32>) -> Turn<'_> {
        Turn { turns: self, heights, has_ended: false }
    }
}

impl Turn<'_> {
    /// Waits for it.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Interrupted`] if a part below has failed, whose error counts.
    pub fn wait(&self) -> Result<(), Error> {
        let first = *self.heights.start();
        let waits = |state: &mut State| state.next != first && state.failed > first;
        let state = self.turns.changed.wait_while(lock(&self.turns.state), waits);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        if state.next == first { Ok(()) } else { Err(Error::interrupted()) }
    }

    /// Gives the turn to the next part.
    pub fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.turns.state);
        match self.has_ended {
            true => state.next = self.heights.end() + 1,
            false => state.failed = state.failed.min(*self.heights.start()),
        }
        self.turns.changed.notify_all();
    }
}

//! Brings what workers have made of parts of the chain into the order of the parts.

use api::error::Error;
use chain::threads::lock;
use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, PoisonError},
};

/// Number of parts that may wait for a lower one, besides one for each worker.
const WAITING_PARTS: u32 = 2;

/// Takes parts in order. Each worker makes one at a time, and then begins the lowest that no worker has
/// begun.
pub struct InOrder<T, S> {
    state: Mutex<State<T, S>>,
    changed: Condvar,
    workers: u32,
}

struct State<T, S> {
    /// Number of the part that is taken next.
    next: u32,
    /// Parts above the next one.
    waiting: BTreeMap<u32, T>,
    /// Whether a part will never come.
    has_failed: bool,
    /// What takes the parts.
    taker: S,
}

impl<T, S> InOrder<T, S> {
    /// Begins with the part `first`.
    pub fn new(first: u32, workers: usize, taker: S) -> Self {
        let state = State { next: first, waiting: BTreeMap::new(), has_failed: false, taker };
        Self { state: Mutex::new(state), changed: Condvar::new(), workers: workers as u32 }
    }

    /// Waits until part `number` may begin, so that not too many parts wait for lower ones. Returns at once
    /// if a part will never come.
    pub fn wait(&self, number: u32) {
        let state = lock(&self.state);
        let may_not_begin = |state: &mut State<T, S>| {
            !state.has_failed && number > state.next.saturating_add(self.workers + WAITING_PARTS)
        };
        drop(self.changed.wait_while(state, may_not_begin).unwrap_or_else(PoisonError::into_inner));
    }

    /// Hands over part `number`, and calls `take` for each part whose turn it is.
    pub fn hand_over(
        &self,
        number: u32,
        part: T,
        mut take: impl FnMut(&mut S, T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut state = lock(&self.state);
        state.waiting.insert(number, part);
        let State { next, waiting, taker, .. } = &mut *state;
        while let Some(part) = waiting.remove(next) {
            take(taker, part)?;
            *next += 1;
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Says that a part will never come, so that nobody waits for it.
    pub fn fail(&self) {
        lock(&self.state).has_failed = true;
        self.changed.notify_all();
    }

    /// Returns what has taken the parts.
    pub fn into_taker(self) -> S {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).taker
    }
}

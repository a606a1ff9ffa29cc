//! Blocks of a chain that are not stored when a job begins, and are stored while it runs.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use wire::{ByteOffset, FileNo, Height};

/// Longest time for which a thread waits before it checks whether it should give up.
const WAIT: Duration = Duration::from_millis(100);

/// Where such blocks are, as they come. One thread places them; others wait for them.
#[derive(Debug)]
pub struct AwaitedBlocks {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// File and position of each block of the chain, by height; the position is 0 if it was stored before, or
    /// has not come.
    positions: Vec<(FileNo, u32)>,
    /// Whether all have come, and the block index has them.
    is_complete: bool,
}

impl AwaitedBlocks {
    /// None of the blocks of a chain has come.
    #[must_use]
    pub fn new(blocks: usize) -> Self {
        let positions = vec![(FileNo(0), 0); blocks];
        Self { state: Mutex::new(State { positions, is_complete: false }), changed: Condvar::new() }
    }

    /// Records where a block was stored. It can be read from now on. Heights above the chain are ignored.
    pub fn place(&self, height: Height, file: FileNo, data_pos: ByteOffset) {
        if let Some(position) = self.state().positions.get_mut(height.0 as usize) {
            *position = (file, data_pos.0 as u32);
        }
        self.changed.notify_all();
    }

    /// Records that all blocks have come, and that the block index has them.
    pub fn complete(&self) {
        self.state().is_complete = true;
        self.changed.notify_all();
    }

    /// Returns where a block was stored, if it has come.
    #[must_use]
    pub fn position(&self, height: Height) -> Option<(FileNo, u32)> {
        self.state().position(height)
    }

    /// Waits until a block is stored. Returns false if `give_up` has returned true.
    pub fn wait_for(&self, height: Height, give_up: &dyn Fn() -> bool) -> bool {
        self.wait_until(|state| state.position(height).is_some(), give_up)
    }

    /// Waits until [`AwaitedBlocks::complete`] is called. Returns false if `give_up` has returned true.
    pub fn wait_for_all(&self, give_up: &dyn Fn() -> bool) -> bool {
        self.wait_until(|state| state.is_complete, give_up)
    }

    fn wait_until(&self, is_met: impl Fn(&State) -> bool, give_up: &dyn Fn() -> bool) -> bool {
        let mut state = self.state();
        while !is_met(&state) {
            if give_up() {
                return false;
            }
            state = self.changed.wait_timeout(state, WAIT).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn position(&self, height: Height) -> Option<(FileNo, u32)> {
        self.positions.get(height.0 as usize).copied().filter(|&(_, pos)| pos > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    #[test]
    fn a_thread_waits_until_a_block_comes_or_it_gives_up() {
        let (awaited, gives_up) = (AwaitedBlocks::new(3), AtomicBool::new(false));
        let give_up = || gives_up.load(Ordering::Relaxed);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| awaited.wait_for(Height(1), &give_up));
            let all = scope.spawn(|| awaited.wait_for_all(&give_up));
            awaited.place(Height(2), FileNo(4), ByteOffset(8));
            awaited.place(Height(7), FileNo(0), ByteOffset(9));
            assert!(!waiting.is_finished());
            awaited.place(Height(1), FileNo(0), ByteOffset(300));
            assert!(waiting.join().unwrap());
            assert_eq!(awaited.position(Height(2)), Some((FileNo(4), 8)));
            assert_eq!((awaited.position(Height(0)), awaited.position(Height(7))), (None, None));
            awaited.complete();
            assert!(all.join().unwrap());
            gives_up.store(true, Ordering::Relaxed);
            assert!(!awaited.wait_for(Height(0), &give_up) && awaited.wait_for(Height(1), &give_up));
        });
    }
}

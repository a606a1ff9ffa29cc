//! Blocks of a chain that are not stored when a job begins, and are stored while it runs.
//!
//! With pruning, block files are deleted behind the job. The download gives blocks out only as long as there
//! is space for them. Where it holds back, all workers of the job stop, at the same height; the job does what
//! is left to do for the blocks below, saves a checkpoint, and says so ([`AwaitedBlocks::settle`]). Then
//! files without higher blocks can be deleted, and the download goes on.

use crate::blocks::{block_check::CheckedBlock, claims::PeerClaims};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use wire::{BlockHash, ByteOffset, FileNo, Height};

/// Longest time for which a thread waits before it checks whether it should give up.
const WAIT: Duration = Duration::from_millis(100);

/// Where these blocks are, as they come. One thread places them; others wait for them.
pub struct AwaitedBlocks {
    /// Maximum memory in bytes of the blocks that are kept.
    kept_bytes_max: u64,
    /// With pruning, bytes of blocks after which the job settles.
    pub settle_bytes: Option<u64>,
    claims: OnceLock<PeerClaims>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// File and position of each block of the chain, by height; the position is 0 if it was stored before, or
    /// has not come.
    positions: Vec<(FileNo, u32)>,
    /// Whether all have come, and the block index has them.
    is_complete: bool,
    /// With pruning, the lowest block that the download has not given out, from the first round on.
    given: Option<Height>,
    /// Whether it holds back until files are deleted.
    is_held: bool,
    /// The lowest block that no worker takes, set once one has come to where the download holds back.
    end: Option<Height>,
    /// The lowest block that the job may read again, until the download has been told.
    settled: Option<Height>,
    /// The same, also after the download has been told.
    settled_to: Height,
    /// Deleted files, until the job has been told.
    deleted: Vec<FileNo>,
    /// Files that got blocks since the job last made sure that they are on the medium.
    unsynced: BTreeSet<FileNo>,
    /// Blocks that have come and that nobody has taken, so that they are not read and hashed again.
    kept: BTreeMap<Height, CheckedBlock>,
    /// Memory in bytes of these blocks.
    kept_bytes: u64,
}

impl AwaitedBlocks {
    /// None of the blocks of a chain has come. `kept_bytes_max` limits the memory in bytes of the blocks that
    /// are kept until they are taken; for `settle_bytes`, see [`AwaitedBlocks::settle_bytes`].
    pub fn new(blocks: usize, kept_bytes_max: u64, settle_bytes: Option<u64>) -> Self {
        let state = State { positions: vec![(FileNo(0), 0); blocks], ..State::default() };
        let (claims, changed) = Default::default();
        Self { kept_bytes_max, settle_bytes, claims, state: Mutex::new(state), changed }
    }

    /// Also takes the spent coins that peers claim. To be called once, before a block is placed.
    pub fn take_claims(&self, claims: PeerClaims) {
        // Claims that are already there stay.
        let _ = self.claims.set(claims);
    }

    /// What peers claim that blocks spend. The claims of a block are added before it is placed.
    pub fn claims(&self) -> Option<&PeerClaims> {
        self.claims.get()
    }

    /// Records where a block was stored. It can be read from now on. As long as the memory suffices, it can
    /// be taken too; the lowest blocks are kept, because they are needed next. Heights above the chain are
    /// ignored.
    pub fn place(&self, height: Height, file: FileNo, data_pos: ByteOffset, block: CheckedBlock) {
        let state = &mut *self.state();
        if let Some(position) = state.positions.get_mut(height.0 as usize) {
            *position = (file, data_pos.0 as u32);
            state.unsynced.insert(file);
            state.keep(height, block, self.kept_bytes_max);
        }
        self.changed.notify_all();
    }

    /// Takes a block with this hash, if it is kept.
    pub fn take(&self, height: Height, hash: &BlockHash) -> Option<CheckedBlock> {
        let block = self.state().take(height)?;
        (block.hash == *hash).then_some(block)
    }

    /// Records that all blocks have come, and that the block index has them.
    pub fn complete(&self) {
        self.state().is_complete = true;
        self.changed.notify_all();
    }

    /// Records that all blocks below `next` are stored or come, and whether the download holds back there.
    pub fn give(&self, next: Height, is_held: bool) {
        let mut state = self.state();
        (state.given, state.is_held) = (Some(next), is_held);
        self.changed.notify_all();
    }

    /// Records that the blocks below `first` need not be read again, also after an interrupt.
    pub fn settle(&self, first: Height) {
        let mut state = self.state();
        // The download decides anew whether it holds back.
        (state.settled, state.settled_to, state.is_held) = (Some(first), first, false);
    }

    /// Returns the lowest block that the job may read again.
    pub fn settled_to(&self) -> Height {
        self.state().settled_to
    }

    /// Returns what was settled since the last call.
    pub fn take_settled(&self) -> Option<Height> {
        self.state().settled.take()
    }

    pub fn add_deleted(&self, files: &[FileNo]) {
        self.state().deleted.extend(files);
    }

    /// Returns the files that were deleted since the last call.
    pub fn take_deleted(&self) -> Vec<FileNo> {
        std::mem::take(&mut self.state().deleted)
    }

    /// Returns the files in which blocks were placed since the last call.
    pub fn take_unsynced(&self) -> BTreeSet<FileNo> {
        std::mem::take(&mut self.state().unsynced)
    }

    /// Returns where a block was stored, if it has come.
    pub fn position(&self, height: Height) -> Option<(FileNo, u32)> {
        self.state().position(height)
    }

    /// With pruning, allows workers to take all blocks that were given out, after all workers have stopped.
    pub fn begin_round(&self) {
        let mut state = self.state();
        state.end = None;
        state.given.get_or_insert_default();
    }

    /// Waits until a block is stored; `was_stored` before the job began. Returns false if `give_up` has
    /// returned true, or if workers stop below the block.
    pub fn wait_for(&self, height: Height, was_stored: bool, give_up: &dyn Fn() -> bool) -> bool {
        let mut is_beyond = false;
        let is_decided = |state: &mut State| {
            let is_given = state.given.is_none_or(|given| height < given);
            if state.is_held && !is_given {
                state.end = state.end.or(state.given);
            }
            is_beyond = state.end.is_some_and(|end| height >= end);
            is_beyond || is_given && (was_stored || state.position(height).is_some())
        };
        self.wait_until(is_decided, give_up) && !is_beyond
    }

    /// Waits until [`AwaitedBlocks::complete`] is called. Returns false if `give_up` has returned true.
    pub fn wait_for_all(&self, give_up: &dyn Fn() -> bool) -> bool {
        self.wait_until(|state| state.is_complete, give_up)
    }

    fn wait_until(&self, mut is_met: impl FnMut(&mut State) -> bool, give_up: &dyn Fn() -> bool) -> bool {
        let mut state = self.state();
        while !is_met(&mut state) {
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

    fn keep(&mut self, height: Height, block: CheckedBlock, bytes_max: u64) {
        let bytes = block.memory_bytes();
        while self.kept_bytes + bytes > bytes_max {
            match self.kept.last_key_value() {
                Some((&last, _)) if last > height => drop(self.take(last)),
                _ => return,
            }
        }
        self.kept_bytes += bytes;
        self.kept.insert(height, block);
    }

    fn take(&mut self, height: Height) -> Option<CheckedBlock> {
        let block = self.kept.remove(&height)?;
        self.kept_bytes -= block.memory_bytes();
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::block_check::BlockFacts;
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };
    use wire::Txid;

    /// A block of 100 bytes with one transaction.
    fn block(number: u8) -> CheckedBlock {
        let (bytes, txids) = (vec![number; 100], vec![Txid([number; 32])]);
        let facts = BlockFacts { txids, legacy_sigops: number.into() };
        CheckedBlock { hash: BlockHash([number; 32]), bytes, facts }
    }

    #[test]
    fn the_lowest_blocks_are_kept() {
        let awaited = AwaitedBlocks::new(9, 300, None);
        let place = |height: u8| {
            awaited.place(Height(height.into()), FileNo(0), ByteOffset(8), block(height));
        };
        let take = |height: u8| {
            let taken = awaited.take(Height(height.into()), &BlockHash([height; 32]));
            taken.map(|block| (block.bytes, block.facts))
        };
        let of = |number: u8| Some((block(number).bytes, block(number).facts));
        // There is space for two.
        [5, 3, 6, 4].into_iter().for_each(place);
        assert_eq!([6, 5, 4, 4].map(take), [None, None, of(4), None]);
        [5, 6, 9].into_iter().for_each(place);
        assert_eq!([9, 6, 5, 3].map(take), [None, None, of(5), of(3)]);
        assert_eq!(awaited.state().kept_bytes, 0);
        place(1);
        assert!(awaited.take(Height(1), &BlockHash([2; 32])).is_none(), "another block");
    }

    #[test]
    fn a_thread_waits_until_a_block_comes_or_it_gives_up() {
        let (awaited, gives_up) = (AwaitedBlocks::new(3, 0, None), AtomicBool::new(false));
        let give_up = || gives_up.load(Ordering::Relaxed);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| awaited.wait_for(Height(1), false, &give_up));
            let all = scope.spawn(|| awaited.wait_for_all(&give_up));
            awaited.place(Height(2), FileNo(4), ByteOffset(8), block(2));
            awaited.place(Height(7), FileNo(0), ByteOffset(9), block(7));
            assert!(!waiting.is_finished());
            awaited.place(Height(1), FileNo(0), ByteOffset(300), block(1));
            assert!(waiting.join().unwrap());
            assert_eq!(awaited.position(Height(2)), Some((FileNo(4), 8)));
            assert_eq!((awaited.position(Height(0)), awaited.position(Height(7))), (None, None));
            awaited.complete();
            assert!(all.join().unwrap());
            gives_up.store(true, Ordering::Relaxed);
            assert!(!awaited.wait_for(Height(0), false, &give_up));
            assert!(awaited.wait_for(Height(1), false, &give_up));
        });
    }

    #[test]
    fn all_workers_stop_where_the_download_holds_back() {
        let awaited = AwaitedBlocks::new(9, 0, Some(1));
        let wait = |height, was_stored| awaited.wait_for(Height(height), was_stored, &|| true);
        assert!(wait(0, true), "before the first round");
        awaited.begin_round();
        assert!(!wait(0, true), "nothing was given out");
        awaited.give(Height(4), false);
        assert!(wait(3, true) && !wait(2, false) && !wait(4, true));
        awaited.give(Height(4), true);
        assert!(!wait(5, true));
        // Another worker must not go on, although the download does.
        awaited.settle(Height(4));
        awaited.give(Height(8), false);
        awaited.place(Height(2), FileNo(0), ByteOffset(8), block(2));
        assert!(!wait(5, true) && !wait(4, true) && wait(2, false));
        awaited.begin_round();
        assert!(wait(5, true));
        assert_eq!((awaited.take_settled(), awaited.take_settled()), (Some(Height(4)), None));
        awaited.add_deleted(&[FileNo(1)]);
        assert_eq!((awaited.take_deleted(), awaited.take_deleted()), (vec![FileNo(1)], Vec::new()));
    }
}

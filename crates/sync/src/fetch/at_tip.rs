//! A download that stays at the tip: new blocks are stored, put into the block index row by row, and handed
//! to the [`Follower`](super::Follower). The datadir is locked from the moment that a block has come
//! until it is connected, or no more blocks come; in between, other processes can take it.

use super::{Fetch, Phase, locator};
use api::{error::Error, event::Event, note::Note};
use chain::stored_blocks::{add_to_index, find_in_index, write_index};
use std::time::{Duration, Instant};
use wire::Height;

/// Time after which all peers are asked for headers although none has announced any. It also shows which
/// connections are dead.
const ASK_INTERVAL: Duration = Duration::from_secs(120);

/// Time without progress after which the datadir is unlocked, although blocks are missing.
const RELEASE_AFTER: Duration = Duration::from_secs(5);

impl Fetch<'_> {
    /// After a reorganisation: finds the blocks of the new branch that were stored when it was the best one
    /// before. If they were downloaded again, the block index would forget their undo data. Returns false if
    /// the datadir cannot be changed any more.
    pub(super) fn look_up_new_branch(&mut self) -> Result<bool, Error> {
        let Some(fork) = self.index.not_looked_up else { return Ok(true) };
        if !self.follower.take_lock()? {
            return Ok(false);
        }
        if self.follower.has_lock() {
            self.index.not_looked_up = None;
            find_in_index(self.files, &self.chain, &mut self.stored, Height(fork.0 + 1))?;
        }
        Ok(true)
    }

    /// All blocks are stored: they are connected, and the datadir is released.
    pub(super) fn at_tip(&mut self) -> Result<(), Error> {
        self.save_new()?;
        let now = Instant::now();
        if self.follower.has_lock() {
            let announced = self.index.announced_at.unwrap_or(now);
            let changed = std::mem::take(&mut self.index.changed_files);
            let invalid = self.follower.connect(&self.chain, &self.stored, &changed, announced)?;
            if let Some(invalid) = invalid {
                if self.chain.hash(invalid.height) == Some(invalid.hash) {
                    self.chain.invalidate(invalid.height);
                    self.leave_branch(self.chain.tip_height());
                }
                return Ok(());
            }
            self.index.announced_at = None;
        }
        match self.phase {
            Phase::AtTip(asked) if asked.elapsed() < ASK_INTERVAL => return Ok(()),
            Phase::AtTip(_) => self.client.headers.restart(locator(&self.chain)),
            _ => {
                let (height, hash) = (self.chain.tip_height(), self.chain.hash(self.chain.tip_height()));
                self.sink.event(Event::Note(Note::AtTip { height, hash: hash.unwrap_or_default() }));
            }
        }
        self.phase = Phase::AtTip(now);
        Ok(())
    }

    /// Unlocks the datadir if no block has come for a while. Returns whether another process uses it: the
    /// download ends.
    pub(super) fn is_over(&mut self) -> Result<bool, Error> {
        let is_silent = self.seen.sources.is_silent(self.client.pool.now(), RELEASE_AFTER);
        if self.follower.stays() && is_silent && self.writing.in_hand == 0 {
            self.save_new()?;
            self.follower.release()?;
        }
        self.follower.is_over()
    }

    /// Writes what is stored to the medium, and then to the block index. Without the lock, nothing is stored
    /// that the index does not have; new headers wait.
    pub(super) fn save_new(&mut self) -> Result<(), Error> {
        if !self.follower.has_lock() || self.index.unsaved == 0 && !self.index.is_behind {
            return Ok(());
        }
        let infos = self.flush()?;
        match self.index.true_to {
            Some(height) => {
                let first = Height(height.0 + 1);
                let changed = add_to_index(self.files, &self.chain, &self.stored, &infos, first)?;
                self.index.changed_files.extend(changed);
            }
            None => write_index(self.files, &self.chain, &self.stored, &infos, self.sink)?,
        }
        (self.index.unsaved, self.index.is_behind) = (0, false);
        self.index.true_to = Some(self.chain.tip_height());
        Ok(())
    }
}

//! Finds out what is wrong if parallel matching did not prove that the chain is valid, within the memory
//! budget.
//!
//! All blocks are checked once more, without undo data: then the coins are those that the chain itself
//! creates, so whatever is still wrong is wrong with the chain. If nothing is, the undo data was false, and
//! the first block whose undo data differs is named.
//!
//! If something is, there is a candidate for the first invalid block: the lowest block that breaks a rule, or
//! the first conflict about a coin ([`first_conflict`]). The chain below the candidate is checked in the same
//! way, which finds a lower candidate, or the coins after it. With these, the candidate is connected as
//! Bitcoin Core does it, and so its first violation is found.

use crate::{
    job::{Job, MatchStats, MatchedCoins, clock::Clock, matching::Unproven},
    stages::{
        block_fault::BlockFaults,
        block_source::UndoReading,
        check::claims_of,
        coin_sink::Coins,
        completed_blocks::CompletedBlocks,
        conflicts::first_conflict,
        make_undo::{PlacedUndo, UndoSink},
        method::Method,
        read::{BlockBuffers, BlockReader, split_checksum},
        unspent::{ForEachError, Unspent},
        window::{BlockResult, BufferPool},
    },
};
use api::{
    counts::Counts,
    error::{Error, ErrorKind},
    event::Event,
    machine::random_key,
    note::Note,
    options::Matching,
    remedy::Remedy,
    stage::Stage,
};
use chain::blocks::{
    awaited::AwaitedBlocks,
    chain::Chain,
    damage::{Damage, UndoDefect},
};
use coins::{FoundCoins, MemoryCoins, NoCoins};
use disk::undo::{UndoArena, UndoView};
use std::{
    collections::HashSet,
    ops::Range,
    sync::{Mutex, PoisonError},
};
use wire::{BlockHash, Height, OutPoint};

/// Keeps the undo data of the lowest block whose undo file has other undo data.
struct FirstDifference<'a> {
    chain: &'a Chain,
    lowest: Mutex<Option<(Height, Vec<u8>)>>,
}

impl UndoSink for FirstDifference<'_> {
    fn write(&self, undo: &PlacedUndo<'_>, _: &mut Vec<u8>) -> Result<(), Error> {
        let mut lowest = self.lowest.lock().unwrap_or_else(PoisonError::into_inner);
        // A rebuild without undo data has none to compare.
        let is_used = self.chain.block(undo.height).undo_pos.is_some();
        if is_used && lowest.as_ref().is_none_or(|(lowest, _)| undo.height < *lowest) {
            *lowest = Some((undo.height, undo.data.to_vec()));
        }
        Ok(())
    }
}

impl Job<'_> {
    /// Checks all blocks without undo data, and returns the coins after the last one if the chain is valid,
    /// and the undo data too if the method needs it.
    ///
    /// # Errors
    /// The first violation of the chain; [`ErrorKind::Damaged`] for false undo data; damage;
    /// [`ErrorKind::Interrupted`].
    pub fn check_without_undo(&self, clock: &mut Clock) -> Result<MatchedCoins, Error> {
        if self.pruned_download().is_some() {
            let detail = "the blocks break a rule, or are damaged; it cannot be said which block is at \
                          fault, because block files were deleted";
            return Err(Error::new(ErrorKind::Damaged, detail).with_remedies([Remedy::WithoutPruning]));
        }
        self.watch.sink.event(Event::Note(Note::CheckingWithoutUndo));
        if let Some(claims) = self.files.awaited.and_then(AwaitedBlocks::claims) {
            claims.close();
        }
        self.work.remove()?;
        let difference = FirstDifference { chain: &self.plan.chain, lowest: Mutex::default() };
        let undo_sink =
            if self.method.makes_undo() { self.undo_sink } else { Some(&difference as &dyn UndoSink) };
        undo_sink.map_or(Ok(()), UndoSink::start_over)?;
        let all = Job { method: &Method::Routed { uses_undo: false }, undo_sink, resume: None, ..*self };
        let candidate = match all.match_in_parallel(clock)? {
            Ok(MatchedCoins { unspent, stats }) => {
                let different = difference.lowest.into_inner().unwrap_or_else(PoisonError::into_inner);
                if let Some((height, undo)) = different {
                    return Err(self.false_undo(height, &undo));
                }
                return Ok(MatchedCoins { unspent, stats });
            }
            Err(unproven) => match all.candidate(unproven)? {
                Some(height) => height,
                None => return self.validate_sequentially(clock),
            },
        };
        if self.goes_on_below(candidate, false) {
            return Err(self.unsettled(candidate));
        }
        Err(all.first_invalid(candidate, clock).unwrap_or_else(|error| error))
    }

    /// Finds out what is wrong after a first pass that did not prove the chain. If no undo data and no claims
    /// of peers had a part in it, that pass says as much as a check without undo data.
    pub fn decide(&self, unproven: Unproven, clock: &mut Clock) -> Result<MatchedCoins, Error> {
        let rests_on_undo = match self.method {
            Method::Routed { uses_undo } => *uses_undo && !self.plan.chain.has_no_undo(),
            _ => true,
        };
        let claims = self.files.awaited.and_then(AwaitedBlocks::claims);
        let rests_on_peers = claims.is_some_and(|claims| claims.are_wanted() && claims.has_any())
            || self.pruned_download().is_none()
                && matches!(unproven, Unproven::Mismatch { is_resumed: true, .. });
        if rests_on_peers || self.goes_on_below.is_none() && rests_on_undo {
            return self.check_without_undo(clock);
        }
        match self.candidate(unproven)? {
            Some(candidate) if self.goes_on_below(candidate, rests_on_undo) => Err(self.unsettled(candidate)),
            Some(candidate) if !rests_on_undo && self.pruned_download().is_none() => {
                Err(self.first_invalid(candidate, clock).unwrap_or_else(|error| error))
            }
            _ => self.check_without_undo(clock),
        }
    }

    fn goes_on_below(&self, candidate: Height, rests_on_undo: bool) -> bool {
        self.goes_on_below.is_some_and(|decides| decides(candidate, rests_on_undo))
    }

    /// The error for a caller that goes on below the candidate.
    fn unsettled(&self, candidate: Height) -> Error {
        let hash = self.plan.chain.block(candidate).hash;
        Error::new(ErrorKind::Consensus, "this block or a lower one breaks a rule").at_block(candidate, hash)
    }

    fn first_invalid(&self, mut candidate: Height, clock: &mut Clock) -> Result<Error, Error> {
        let method = &Method::Routed { uses_undo: false };
        let all = Job { method, undo_sink: None, resume: None, ..*self };
        while let Some(below) = candidate.0.checked_sub(1) {
            let plan = &self.plan.up_to(Height(below));
            let job = Job { plan, ..all };
            self.work.remove()?;
            let unspent = match job.match_in_parallel(clock)? {
                Ok(matched) => matched.unspent,
                Err(unproven) => match job.candidate(unproven)? {
                    Some(height) => {
                        candidate = height;
                        continue;
                    }
                    None => job.validate_sequentially(clock)?.unspent,
                },
            };
            let coins = self.coins_for(candidate, unspent)?;
            return Ok(self.first_violation(candidate, coins, false));
        }
        Ok(self.first_violation(candidate, no_coins(BlockHash::default())?, false))
    }

    /// Returns the height of a block that is invalid, unless a lower one is; `None` if that can be found out
    /// only in order, because coinbase txids repeat.
    fn candidate(&self, unproven: Unproven) -> Result<Option<Height>, Error> {
        let outpoints = match unproven {
            Unproven::Suspect(height) => return Ok(Some(height)),
            Unproven::Mismatch { outpoints, .. } => outpoints,
            Unproven::RepeatedCoinbase => return Ok(None),
        };
        let (chain, faults) = (&self.plan.chain, BlockFaults::default());
        // With pruning, what was matched before may be deleted.
        let first = self.pruned_download().map_or(Height(0), AwaitedBlocks::settled_to);
        let mut matched = CompletedBlocks::none(chain.block_count());
        (0..first.0).for_each(|height| matched.add(Height(height)));
        let undo = UndoReading { from: Height(u32::MAX), skips_damaged: true };
        let source = self.source(&faults, &matched, undo);
        first_conflict(&source, &outpoints, first > Height(0), self.threads(), self.watch.interrupt)
    }

    /// Returns those of the coins after the block before `height` that matter for that block.
    fn coins_for(&self, height: Height, unspent: Unspent) -> Result<MemoryCoins, Error> {
        let mut buffers = BlockBuffers::default();
        let located = BlockReader::new(&self.plan.chain, self.files).read(height, false, &mut buffers)?;
        let BlockBuffers { block, arena, hashes, .. } = &mut buffers;
        let block = located.parse(block.bytes(), arena)?;
        let mut wanted = HashSet::new();
        hashes.without_wtxids(&block, &[]);
        for (tx, &txid) in block.txs().zip(&hashes.txids) {
            wanted.extend(tx.inputs().map(|input| input.prevout()));
            wanted.extend((0..tx.output_count() as u32).map(|vout| OutPoint { txid, vout }));
        }
        let mut coins = no_coins(block.header().prev)?;
        let (hasher, mut found) = (coins.hasher(), FoundCoins::default());
        let done = Coins::new(unspent, self.watch).in_sequence(|outpoint, coin| {
            if wanted.contains(outpoint) {
                found.push(hasher.hash(*outpoint), *coin);
            }
            Ok(())
        });
        done.map_err(ForEachError::without_fallback)?;
        coins.keep(&found);
        Ok(coins)
    }

    /// Connects a block of a range that breaks a rule to the coins that its undo data claims, and returns its
    /// first violation; or what is wrong with that undo data, if it claims other coins of the block itself
    /// than the block creates.
    pub fn violation_by_claims(&self, height: Height) -> Error {
        let found = self.claimed_coins(height).map(|coins| self.first_violation(height, coins, true));
        let mut error = found.unwrap_or_else(|error| error);
        if error.kind == ErrorKind::Consensus {
            error.detail += " (if the coins in its undo data are the right ones)";
            return error.with_remedies([Remedy::Verify]);
        }
        error
    }

    /// Returns the coins that the undo data of a block claims, except those that the block itself creates.
    fn claimed_coins(&self, height: Height) -> Result<MemoryCoins, Error> {
        let mut buffers = BlockBuffers::default();
        let located = BlockReader::new(&self.plan.chain, self.files).read(height, true, &mut buffers)?;
        let BlockBuffers { block, undo, arena, undo_arena, hashes } = &mut buffers;
        let block = located.parse(block.bytes(), arena)?;
        let (data, checksum) = split_checksum(undo.bytes());
        hashes.without_wtxids(&block, data);
        let mut coins = no_coins(block.header().prev)?;
        let mut found = FoundCoins::default();
        if height.0 > 0 {
            let claims = claims_of(&block, data, checksum, undo_arena, &hashes.undo_checksum);
            let claims = claims.map_err(|defect| located.damaged(&Damage::Undo(defect)))?;
            for (prevout, claim) in block.prevouts().zip(&claims) {
                if claim.height() < height {
                    // A block that spends a coin twice claims it twice; the first claim is kept.
                    found.push(coins.hasher().hash(prevout), *claim);
                }
            }
        }
        coins.keep(&found);
        Ok(coins)
    }

    /// Validates the chain in order, with all coins in memory. Returns coins only if the whole chain is
    /// valid.
    ///
    /// It is the second opinion for tests and comparisons. Otherwise, it is needed only if coinbase txids
    /// repeat, which is possible only before BIP-0034.
    ///
    /// # Errors
    /// The first violation, damage, or [`ErrorKind::Interrupted`].
    pub fn validate_sequentially(&self, clock: &mut Clock) -> Result<MatchedCoins, Error> {
        // A parallel pass may have made some of the undo data.
        self.undo_sink.map_or(Ok(()), UndoSink::start_over)?;
        let mut coins = no_coins(BlockHash::default())?;
        let counts = self.connect_exactly(0..self.plan.chain.block_count() as u32, &mut coins, true)?;
        clock.lap(Stage::Sequential);
        let unspent = Unspent::new(coins.into_survivors(), Vec::new());
        Ok(MatchedCoins { unspent, stats: MatchStats::in_order(counts, Matching::Sequential) })
    }

    /// Connects a block that is invalid to the coins before it, and returns its first violation. If
    /// `with_undo`, it must also have spent the coins in its undo data.
    fn first_violation(&self, height: Height, mut coins: MemoryCoins, with_undo: bool) -> Error {
        let Err(error) = self.connect_exactly(height.0..height.0 + 1, &mut coins, with_undo) else {
            let detail = "this block was found invalid by one check and valid by another; check the \
                          memory, or report this bug";
            let hash = self.plan.chain.block(height).hash;
            return Error::new(ErrorKind::Internal, detail).at_block(height, hash);
        };
        error
    }

    /// Connects blocks one by one to coins in memory, as Bitcoin Core does; `with_undo`: also records or
    /// compares their undo data.
    fn connect_exactly(
        &self,
        heights: Range<u32>,
        coins: &mut MemoryCoins,
        with_undo: bool,
    ) -> Result<Counts, Error> {
        self.watch.sink.event(Event::Started(Stage::Sequential));
        let (chain, mut counts) = (&self.plan.chain, Counts::default());
        let meter = self.plan.meter(heights.len(), self.watch.sink);
        let reader = &BlockReader::new(chain, self.files);
        let result = if with_undo { BlockResult::Undo } else { BlockResult::Nothing };
        // The buffers of one block are reused, however large it is.
        let window = self.window(reader, BufferPool::new(usize::MAX), result);
        for height in heights.map(Height) {
            Error::check_interrupt(self.watch.interrupt)?;
            let connected = window.connect_exactly(coins, height, |error| {
                // No valid block creates a coin that exists, but undo data may claim such a coin.
                Error::damaged(error.to_string()).at_block(height, chain.block(height).hash)
            });
            let (block, new) = connected.map_err(|error| self.mark_contested(error))?;
            if with_undo {
                self.record_undo(&block)?;
            }
            counts += new;
            meter.add(1, new.block_bytes);
        }
        Ok(counts)
    }

    /// The error for a block of a valid chain whose undo file has other undo data.
    pub fn false_undo(&self, height: Height, undo: &[u8]) -> Error {
        let mut buffers = BlockBuffers::default();
        let read = BlockReader::new(&self.plan.chain, self.files).read(height, true, &mut buffers);
        let located = match read {
            Ok(located) => located,
            Err(error) => return error,
        };
        let BlockBuffers { block, undo: existing, arena, hashes, .. } = &mut buffers;
        let (existing, _) = split_checksum(existing.bytes());
        // If nothing else does, the checksum differs.
        let defect = different_undo(existing, undo).unwrap_or(UndoDefect::Checksum);
        let block = located.parse(block.bytes(), arena).ok();
        block.iter().for_each(|block| hashes.without_wtxids(block, &[]));
        let txid = if let UndoDefect::Claims(tx) = defect { hashes.txids.get(tx).copied() } else { None };
        located.damaged(&Damage::Undo(defect)).in_tx(txid)
    }
}

/// A cache without coins, to which the blocks above `best_block` can be connected.
fn no_coins(best_block: BlockHash) -> Result<MemoryCoins, Error> {
    Ok(MemoryCoins::new(NoCoins, best_block, random_key()?))
}

/// Returns how undo data differs from that of its block; `None` if it does not.
fn different_undo(found: &[u8], undo: &[u8]) -> Option<UndoDefect> {
    let (mut arena, mut own_arena) = (UndoArena::default(), UndoArena::default());
    let found = match UndoView::parse(found, &mut arena) {
        Ok(found) => found,
        Err(error) => return Some(UndoDefect::Malformed(error)),
    };
    let own = UndoView::parse(undo, &mut own_arena).ok()?;
    if found.tx_count() != own.tx_count() {
        return Some(UndoDefect::TxCount { found: found.tx_count(), expected: own.tx_count() });
    }
    let different = found.txs().zip(own.txs()).position(|(found, own)| !found.eq(own));
    different.map(|index| UndoDefect::Claims(index + 1))
}

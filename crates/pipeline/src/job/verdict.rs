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
    job::{
        Job, MatchedCoins,
        clock::Clock,
        matching::{Attempt, Unproven},
    },
    stages::{
        block_fault::BlockFaults,
        check::claims_of,
        coin_sink::Coins,
        completed_blocks::CompletedBlocks,
        conflicts::first_conflict,
        make_undo::{PlacedUndo, UndoSink},
        method::Method,
        read::{BlockReader, UndoReading, read_block},
        sequential::{SequentialUndo, SequentialValidator, different_undo},
        unspent::{ForEachError, Unspent},
    },
};
use api::{
    error::{Error, ErrorKind},
    event::Event,
    machine::random_key,
    note::Note,
    remedy::Remedy,
    stage::Stage,
};
use chain::blocks::{
    awaited::AwaitedBlocks,
    block_hashes::BlockHashes,
    chain::Chain,
    damage::{Damage, UndoDefect},
    files::LocatedBlock,
};
use coins::{FoundCoins, MemoryCoins, NoCoins};
use disk::{
    block_files::RecordBuffer,
    undo::{CHECKSUM_LEN, UndoArena},
};
use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};
use wire::{BlockArena, BlockHash, ByteOffset, FileNo, Height, OutPoint};

/// Keeps the undo data of the lowest block whose undo file has other undo data.
struct FirstDifference<'a> {
    chain: &'a Chain,
    lowest: Mutex<Option<(Height, Vec<u8>)>>,
}

impl UndoSink for FirstDifference<'_> {
    fn start_over(&self) -> Result<(), Error> {
        *self.lowest.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    fn resume(&self, _: &Chain, _: &[(Height, u32)]) -> Result<bool, Error> {
        Ok(true)
    }

    fn reserve(&self, _: Height, _: FileNo, _: usize) -> Result<ByteOffset, Error> {
        // It is not written anywhere.
        Ok(ByteOffset(0))
    }

    fn write(&self, undo: &PlacedUndo<'_>, _: &mut Vec<u8>) -> Result<(), Error> {
        let mut lowest = self.lowest.lock().unwrap_or_else(PoisonError::into_inner);
        // A rebuild without undo data has none to compare.
        let is_used = self.chain.block(undo.height).undo_pos.is_some();
        if is_used && lowest.as_ref().is_none_or(|(lowest, _)| undo.height < *lowest) {
            *lowest = Some((undo.height, undo.data.to_vec()));
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
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
        self.sink.event(Event::Note(Note::CheckingWithoutUndo));
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
            Attempt::Matched(MatchedCoins { unspent, stats }) => {
                let different = difference.lowest.into_inner().unwrap_or_else(PoisonError::into_inner);
                if let Some((height, undo)) = different {
                    return Err(self.false_undo(height, &undo));
                }
                return Ok(MatchedCoins { unspent, stats });
            }
            Attempt::Unproven(unproven) => match all.candidate(unproven)? {
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

    /// The error if the caller goes on below the candidate.
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
                Attempt::Matched(matched) => matched.unspent,
                Attempt::Unproven(unproven) => match job.candidate(unproven)? {
                    Some(height) => {
                        candidate = height;
                        continue;
                    }
                    None => job.validate_sequentially(clock)?.unspent,
                },
            };
            let coins = self.coins_for(candidate, unspent)?;
            return Ok(self.first_violation(candidate, coins, SequentialUndo::Make(None)));
        }
        let coins = MemoryCoins::new(NoCoins, BlockHash::default(), random_key()?);
        Ok(self.first_violation(candidate, coins, SequentialUndo::Make(None)))
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
        first_conflict(&*source, &outpoints, first > Height(0), self.threads(), self.interrupt)
    }

    /// Returns those of the coins after the block before `height` that matter for that block.
    fn coins_for(&self, height: Height, unspent: Unspent) -> Result<MemoryCoins, Error> {
        let raw = read_block(&self.plan.chain, self.files, height, false)?;
        let mut arena = BlockArena::default();
        let block = raw.parse(&mut arena)?;
        let mut wanted = HashSet::new();
        let mut hashes = BlockHashes::default();
        hashes.of_block(&block, &[]);
        for (tx, &txid) in block.txs().zip(&hashes.txids) {
            wanted.extend(tx.inputs().map(|input| input.prevout()));
            wanted.extend((0..tx.output_count() as u32).map(|vout| OutPoint { txid, vout }));
        }
        let mut coins = MemoryCoins::new(NoCoins, block.header().prev, random_key()?);
        let (hasher, mut found) = (coins.hasher(), FoundCoins::default());
        let done = Coins::new(unspent, self.sink, self.interrupt).in_sequence(|outpoint, coin| {
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
        let found = self
            .claimed_coins(height)
            .map(|coins| self.first_violation(height, coins, SequentialUndo::Compare));
        let mut error = found.unwrap_or_else(|error| error);
        if error.kind == ErrorKind::Consensus {
            error.detail += " (if the coins in its undo data are the right ones)";
            return error.with_remedies([Remedy::Verify]);
        }
        error
    }

    /// Returns the coins that the undo data of a block claims, except those that the block itself creates.
    fn claimed_coins(&self, height: Height) -> Result<MemoryCoins, Error> {
        let raw = read_block(&self.plan.chain, self.files, height, true)?;
        let damaged = |defect| raw.located.damaged(&Damage::Undo(defect));
        let (mut arena, mut undo_arena, mut hashes) = <(BlockArena, UndoArena, BlockHashes)>::default();
        let block = raw.parse(&mut arena)?;
        let (data, checksum) = raw.undo.split_at(raw.undo.len().saturating_sub(CHECKSUM_LEN));
        hashes.of_block(&block, data);
        let mut coins = MemoryCoins::new(NoCoins, block.header().prev, random_key()?);
        let mut found = FoundCoins::default();
        if height.0 > 0 {
            let claims = claims_of(&block, data, checksum, &mut undo_arena, &hashes.undo_checksum);
            let claims = claims.map_err(damaged)?;
            let inputs = block.txs().skip(1).flat_map(|tx| tx.inputs());
            for (input, claim) in inputs.zip(&claims) {
                if claim.height() < height {
                    // A block that spends a coin twice claims it twice; the first claim is kept.
                    found.push(coins.hasher().hash(input.prevout()), *claim);
                }
            }
        }
        coins.keep(&found);
        Ok(coins)
    }

    /// Connects a block that is invalid to the coins before it, and returns its first violation.
    fn first_violation(&self, height: Height, coins: MemoryCoins, undo: SequentialUndo<'_>) -> Error {
        self.sink.event(Event::Started(Stage::Sequential));
        let (chain, params) = (&self.plan.chain, self.files.params);
        let mut validator = SequentialValidator::new(chain, params, self.scripts(), undo, coins);
        let with_undo = matches!(undo, SequentialUndo::Compare);
        let connected = read_block(&self.plan.chain, self.files, height, with_undo)
            .and_then(|raw| validator.connect(&raw, &mut BlockArena::default(), height));
        match connected {
            Err(error) => self.mark_contested(error),
            Ok(()) => {
                let detail = "this block was found invalid by one check and valid by another; check the \
                              memory, or report this bug";
                Error::new(ErrorKind::Internal, detail).at_block(height, self.plan.chain.block(height).hash)
            }
        }
    }

    /// The error for a block of a valid chain whose undo file has other undo data.
    pub fn false_undo(&self, height: Height, undo: &[u8]) -> Error {
        let (chain, files) = (&self.plan.chain, self.files);
        let located = LocatedBlock { chain, files, height };
        let mut existing = RecordBuffer::default();
        if let Err(error) = BlockReader::new(chain, files).read_undo(height, &mut existing) {
            return error.at_block(height, chain.block(height).hash);
        }
        let Some(defect) = different_undo(existing.bytes(), undo) else {
            // Only the checksum differs.
            return located.damaged(&Damage::Undo(UndoDefect::Checksum));
        };
        let tx = if let UndoDefect::Claims(tx) = defect { Some(tx) } else { None };
        let txid = tx.zip(read_block(chain, files, height, false).ok()).and_then(|(tx, raw)| {
            let (mut arena, mut hashes) = (BlockArena::default(), BlockHashes::default());
            hashes.of_block(&raw.parse(&mut arena).ok()?, &[]);
            hashes.txids.get(tx).copied()
        });
        located.damaged(&Damage::Undo(defect)).in_tx(txid)
    }
}

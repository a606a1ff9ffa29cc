//! Stage check: the rules of blocks and spends, on all cores, in any order.
//!
//! A worker reads a block, parses it, hashes header, undo data, txids and wtxids in one batch of SIMD lanes,
//! checks the rules, and sends what the block creates and spends to the join. Spent coins come from undo
//! data, whose claims nothing vouches for yet: if a rule fails on them, the block is a suspect, not yet
//! invalid.

use crate::stages::{
    apply::EffectApplier,
    block_fault::{BlockFault, BlockFaults},
    block_source::{Block, BlockSource, Stop},
    deliveries::Deliveries,
    method::{Method, UndoUse},
    partial_state::{PartialState, RoutedBlock},
    read::split_checksum,
    scripts::ScriptQueue,
    spill::Spill,
};
use api::{
    block_observer::{BlockObserver, ObservedBlock},
    counts::Counts,
    error::Error,
    spend_ages::SpendAges,
};
use chain::blocks::{
    block_check::BlockFacts,
    block_hashes::BlockHashes,
    chain::Chain,
    damage::{Damage, UndoDefect},
    files::{Files, LocatedBlock},
};
use coins::{Join, SipKey};
use disk::undo::{CHECKSUM_LEN, UndoArena, UndoView};
use rules::{BlockSpendContext, ChainParams, SpentCoin, check_block_spends};
use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};
use wire::{BlockArena, BlockView, Coin, Height, Txid};

/// Where the coins of a job are matched and delivered.
#[derive(Clone, Copy)]
pub struct Routing<'a> {
    pub join: &'a Join,
    /// Writes the join to sorted runs when the memory budget is reached.
    pub spill: &'a Spill<'a>,
    /// What matches have delivered, if undo data is made.
    pub deliveries: Option<&'a Deliveries<'a>>,
    pub scripts: Option<&'a ScriptQueue<'a>>,
}

/// What all workers share.
pub struct Shared<'a> {
    pub chain: &'a Chain,
    pub files: &'a Files<'a>,
    pub source: &'a BlockSource<'a>,
    pub method: &'a Method,
    pub routing: Routing<'a>,
    pub observer: Option<&'a dyn BlockObserver>,
    pub faults: &'a BlockFaults,
    /// Set when a worker has failed; the others then stop.
    pub failed: &'a AtomicBool,
    /// Number of blocks done, for progress.
    pub blocks_done: AtomicU32,
    /// Bytes of blocks done, for progress.
    pub bytes_done: AtomicU64,
}

/// The results of a worker.
pub struct Outcome {
    /// What the blocks that it completed amount to.
    pub partial: PartialState,
    pub reading: Duration,
    pub checking: Duration,
    /// Time spent running scripts.
    pub scripting: Duration,
    /// Time spent applying effects.
    pub matching: Duration,
    /// Time in which undo data was made; unlike the others, not a sum over threads.
    pub making_undo: Duration,
    /// Ages of the coins that these blocks spend.
    pub ages: SpendAges,
}

impl Outcome {
    /// An outcome that took no time.
    pub fn new(partial: PartialState) -> Self {
        let (reading, checking, scripting, matching, making_undo, ages) = Default::default();
        Self { partial, reading, checking, scripting, matching, making_undo, ages }
    }

    pub fn merge(mut self, other: Self) -> Result<Self, Error> {
        self.partial = self.partial.merge(other.partial)?;
        self.reading += other.reading;
        self.checking += other.checking;
        self.scripting += other.scripting;
        self.matching += other.matching;
        self.making_undo += other.making_undo;
        self.ages += other.ages;
        Ok(self)
    }
}

/// Processes blocks until none is left, or `stop`, called with the number of blocks read, ends it. `key`
/// is the same for all workers.
pub fn work(shared: &Shared<'_>, stop: &impl Fn(u32) -> Stop, key: SipKey) -> Result<Outcome, Error> {
    let mut worker = Worker {
        shared,
        arena: BlockArena::default(),
        undo_arena: UndoArena::default(),
        hashes: BlockHashes::default(),
        applier: EffectApplier::new(shared.method, shared.routing.join.effects()),
        outcome: Outcome::new(PartialState::empty(shared.chain.block_count(), key, shared.method)),
    };
    worker.work(stop).inspect_err(|_| shared.failed.store(true, Ordering::Relaxed))?;
    let Worker { applier, mut outcome, .. } = worker;
    outcome.checking = outcome.checking.saturating_sub(outcome.scripting);
    if let Some(scripts) = shared.routing.scripts {
        outcome.scripting += scripts.drain_to_end(shared.faults, shared.failed);
    }
    let matching = Instant::now();
    outcome.partial.matching = applier.finish(shared.routing.deliveries)?;
    outcome.matching += matching.elapsed();
    Ok(outcome)
}

struct Worker<'a> {
    shared: &'a Shared<'a>,
    arena: BlockArena,
    undo_arena: UndoArena,
    hashes: BlockHashes,
    applier: EffectApplier<'a>,
    outcome: Outcome,
}

impl Worker<'_> {
    fn work(&mut self, stop: &impl Fn(u32) -> Stop) -> Result<(), Error> {
        let shared = self.shared;
        let mut block = Block::default();
        loop {
            let reading = Instant::now();
            let stop = |read| if shared.failed.load(Ordering::Relaxed) { Stop::Now } else { stop(read) };
            if !shared.source.read(&mut block, &stop)? {
                return Ok(());
            }
            let _busy = shared.routing.scripts.map(ScriptQueue::enter);
            let started = Instant::now();
            self.outcome.reading += started - reading;
            self.process_block(&mut block)?;
            self.outcome.checking += started.elapsed();
        }
    }

    fn process_block(&mut self, block: &mut Block) -> Result<(), Error> {
        let shared = self.shared;
        match self.check(block) {
            Ok(()) => self.outcome.partial.completed.add(block.height),
            Err(fault) => shared.faults.record(block.height, fault),
        }
        if let Some(scripts) = shared.routing.scripts {
            self.outcome.scripting += scripts.drain(shared.faults, shared.failed);
        }
        shared.blocks_done.fetch_add(1, Ordering::Relaxed);
        shared.bytes_done.fetch_add(block.block.bytes().len() as u64, Ordering::Relaxed);
        let matching = Instant::now();
        self.applier.deliver(shared.routing.deliveries)?;
        shared.routing.spill.spill_if_over_budget(shared.routing.join)?;
        self.outcome.matching += matching.elapsed();
        Ok(())
    }

    fn check(&mut self, read: &mut Block) -> Result<(), BlockFault> {
        let Shared { chain, files, .. } = *self.shared;
        let (params, height) = (files.params, read.height);
        let located = LocatedBlock { chain, files, height };
        let block = located.parse(read.block.bytes(), &mut self.arena)?;
        let (undo_data, checksum) = split_checksum(read.undo.bytes());
        let claimed = read.claims.as_deref();

        let legacy_sigops = match read.facts.take() {
            Some(BlockFacts { txids, legacy_sigops }) => {
                self.hashes.txids = txids;
                legacy_sigops
            }
            None => {
                let checked = located.check_view(&block, undo_data, &mut self.hashes)?;
                checked.map_err(|_| BlockFault::Suspect)?
            }
        };
        self.outcome.partial.counts += Counts::of(&block);
        let observed = ObservedBlock {
            params,
            height,
            hash: chain.block(height).hash,
            block: &block,
            txids: &self.hashes.txids,
            claims: &[],
        };
        if height.0 == 0 {
            // The genesis block's coin is not in the UTXO set (Core `ConnectBlock`).
            return observe(self.shared.observer, &observed, true);
        }

        let spends = SpendCheck { located, block: &block, legacy_sigops };
        let (arena, hashes) = (&mut self.undo_arena, &self.hashes);
        let Outcome { scripting, ages, .. } = &mut self.outcome;
        let checked_claims = || -> Result<Vec<Coin<'_>>, BlockFault> {
            let arena = arena;
            let claims = match claimed {
                Some(data) => claims_of_undo(&block, data, arena),
                None => claims_of(&block, undo_data, checksum, arena, &hashes.undo_checksum),
            };
            let claims = claims.map_err(|defect| located.damaged(&Damage::Undo(defect)))?;
            spends.check(&claims, self.shared.routing.scripts, self.shared.faults, scripting)?;
            ages.add(height, &claims);
            Ok(claims)
        };
        let undo_use = self.shared.method.undo_use(height);
        let claims = match undo_use {
            UndoUse::NotNeeded => Some(Vec::new()),
            UndoUse::Required => Some(checked_claims()?),
            // What is wrong with the undo data does not matter, because it is made.
            UndoUse::IfSound => checked_claims().ok(),
            UndoUse::Made => None,
        };
        if claims.is_none() || claimed.is_some() {
            let routed = RoutedBlock::new(height, &read.block, legacy_sigops, claims.is_some());
            self.outcome.partial.routed.push(routed);
        }
        let has_coins = undo_use != UndoUse::NotNeeded && claims.is_some();
        let observed = ObservedBlock { claims: claims.as_deref().unwrap_or_default(), ..observed };
        observe(self.shared.observer, &observed, has_coins)?;
        let txids = &self.hashes.txids;
        apply(self.shared, &mut self.applier, &mut self.outcome, &block, (height, txids), claims.as_deref())
    }
}

/// Gives a block to the observer, unless that needs coins and they are not known.
fn observe(
    observer: Option<&dyn BlockObserver>,
    block: &ObservedBlock<'_>,
    has_coins: bool,
) -> Result<(), BlockFault> {
    let observer = observer.filter(|observer| has_coins || !observer.needs_coins());
    observer.map_or(Ok(()), |observer| observer.take(block).map_err(BlockFault::Error))
}

/// The checks of a block's spends.
pub struct SpendCheck<'a> {
    pub located: LocatedBlock<'a>,
    pub block: &'a BlockView<'a>,
    /// Number of signature operations of its own scripts.
    pub legacy_sigops: u32,
}

impl SpendCheck<'_> {
    /// Checks the rules of the block's spends against claims, one for each input, and queues their scripts.
    /// Adds the time that this takes to `scripting`, because preparing transactions for their scripts counts
    /// as script time too.
    ///
    /// # Errors
    /// [`BlockFault::Suspect`] if a rule is broken; [`Damage::Undo`] if a claim is no coin.
    pub fn check(
        &self,
        claims: &[Coin<'_>],
        scripts: Option<&ScriptQueue<'_>>,
        faults: &BlockFaults,
        scripting: &mut Duration,
    ) -> Result<(), BlockFault> {
        let Self { located, block, legacy_sigops } = *self;
        let LocatedBlock { chain, files, height } = located;
        let hash = &chain.block(height).hash;
        let mut coins = Vec::with_capacity(claims.len());
        for claim in claims {
            let coin = SpentCoin::from_coin(claim);
            coins.push(coin.map_err(|error| located.damaged(&Damage::Undo(UndoDefect::Coin(error))))?);
        }
        check_block_spends(&BlockSpendContext {
            params: files.params,
            height,
            hash,
            block,
            coins: &coins,
            mtp_by_height: chain.median_times(),
            legacy_sigops,
        })
        .map_err(|_| BlockFault::Suspect)?;
        let Some(queue) = scripts else { return Ok(()) };
        let started = Instant::now();
        let queued = queue.push_block(block, height, hash, &coins, faults);
        *scripting += started.elapsed();
        queued
    }
}

/// Applies a block that obeys all rules.
fn apply(
    shared: &Shared<'_>,
    applier: &mut EffectApplier<'_>,
    outcome: &mut Outcome,
    block: &BlockView<'_>,
    (height, txids): (Height, &[Txid]),
    claims: Option<&[Coin<'_>]>,
) -> Result<(), BlockFault> {
    let matching = Instant::now();
    if is_overwritten(shared.files.params, shared.chain, height, shared.chain.tip_height()) {
        // The coinbase is the only transaction of these blocks, so nothing else is left out.
        return match block.tx_count() {
            1 => applier.apply_overwritten(height),
            _ => Err(BlockFault::Suspect),
        };
    }
    if let Some(coinbase) = txids.first() {
        outcome.partial.coinbases.push(coinbase);
    }
    let applied = applier.apply_block(block, txids, height, claims);
    outcome.matching += matching.elapsed();
    applied
}

/// Whether a later block of this chain up to `last` creates the coinbase's coins again, which were not spent:
/// if the chain ends between the two blocks of such a pair, the coins stay.
pub fn is_overwritten(params: &ChainParams, chain: &Chain, height: Height, last: Height) -> bool {
    let block = (height, chain.block(height).hash);
    let mut pairs = params.overwritten_coinbases.iter().zip(params.bip30_exceptions);
    pairs.any(|(first, (again, hash))| *first == block && *again <= last && chain.has(*again, hash))
}

/// Returns the claims of undo data: one for each input of a block.
///
/// # Errors
/// What is wrong with the undo data.
pub fn claims_of<'u>(
    block: &BlockView<'_>,
    data: &'u [u8],
    checksum: &[u8],
    arena: &'u mut UndoArena,
    expected: &[u8; CHECKSUM_LEN],
) -> Result<Vec<Coin<'u>>, UndoDefect> {
    if checksum != expected {
        return Err(UndoDefect::Checksum);
    }
    claims_of_undo(block, data, arena)
}

/// Like [`claims_of`], for undo data that has no checksum.
fn claims_of_undo<'u>(
    block: &BlockView<'_>,
    data: &'u [u8],
    arena: &'u mut UndoArena,
) -> Result<Vec<Coin<'u>>, UndoDefect> {
    let undo = UndoView::parse(data, arena).map_err(UndoDefect::Malformed)?;
    if !has_all_claims(block, &undo) {
        return Err(UndoDefect::Shape);
    }
    Ok(undo.coins().collect())
}

/// Whether undo data has a coin for each input.
fn has_all_claims(block: &BlockView<'_>, undo: &UndoView<'_>) -> bool {
    let txs = block.txs().skip(1);
    undo.tx_count() == txs.len()
        && txs
            .zip(0..)
            .all(|(tx, index)| undo.tx_coins(index).is_some_and(|coins| coins.len() == tx.input_count()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chain::blocks::chain::BlockPosition;
    use wire::{BlockHash, BlockTime, FileNo, Network};

    /// A chain of mainnet up to `tip`, in which only the hashes of blocks with equal coinbases are correct.
    fn chain(tip: u32) -> Chain {
        let params = ChainParams::of(Network::Main);
        let pairs = [params.overwritten_coinbases, params.bip30_exceptions].concat();
        let hash = |height: u32| {
            let known = pairs.iter().find(|(at, _)| at.0 == height);
            known.map_or(BlockHash::default(), |&(_, hash)| hash)
        };
        let hashes: Vec<_> = (0..=tip).map(hash).collect();
        let position = BlockPosition { file: FileNo(0), data_pos: 8, undo_pos: None };
        let (positions, times) = (vec![position; hashes.len()], vec![BlockTime(0); hashes.len()]);
        Chain::from_parts(hashes, positions, times)
    }

    /// Block 91880 overwrites the coins of 91722: a UTXO set of a height in between contains them.
    #[test]
    fn coins_are_left_out_only_if_the_chain_overwrites_them() {
        let params = ChainParams::of(Network::Main);
        let all = chain(91_880);
        let left_out = |chain: &Chain, last: u32| -> Vec<u32> {
            let heights = [91_722, 91_812, 91_842, 91_880].into_iter().filter(|height| *height <= last);
            let is_left_out = |height: &u32| is_overwritten(params, chain, Height(*height), Height(last));
            heights.filter(is_left_out).collect()
        };
        for (last, expected) in
            [(91_880, &[91_722, 91_812][..]), (91_879, &[91_812]), (91_842, &[91_812]), (91_841, &[])]
        {
            assert_eq!(left_out(&chain(last), last), expected, "{last}");
            assert_eq!(left_out(&all, last), expected, "{last}, of a higher chain");
        }
    }
}

//! Makes the undo data of a few blocks without matching all spends.
//!
//! Only what these blocks spend is wanted. They are read first, and then all blocks below them; only the
//! wanted coins are kept. What the blocks get is encoded and checked as in any job that makes undo data
//! ([`crate::stages::make_undo`]).

use crate::{
    job::{Job, clock::Clock},
    stages::{
        block_fault::BlockFault,
        connect::for_each_created,
        deliveries::Deliveries,
        partial_state::RoutedBlock,
        read::{BlockBuffers, BlockReader},
        scripts::ScriptQueue,
        undo_survey::{UndoState, UndoSurvey},
        walk::BlockWalk,
    },
};
use api::{error::Error, stage::Stage};
use coins::{Delivery, Spender};
use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    sync::atomic::{AtomicBool, Ordering},
};
use wire::{BlockView, Coin, Height, OutPoint, Txid, coin::compress_output, script::is_unspendable};

/// Bytes of memory that a wanted coin takes, at most.
const WANTED_BYTES: usize = 96;

/// The coins that some blocks spend and have not created themselves.
#[derive(Default)]
struct WantedCoins {
    /// In order.
    coins: Vec<(OutPoint, Spender)>,
    found: Vec<AtomicBool>,
    /// The first 8 bytes of their txids, which decide for nearly all transactions that they are not wanted.
    txids: HashSet<u64>,
}

fn prefix(txid: &Txid) -> u64 {
    txid.0.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl WantedCoins {
    fn new(mut coins: Vec<(OutPoint, Spender)>) -> Self {
        coins.sort_unstable();
        let txids = coins.iter().map(|(outpoint, _)| prefix(&outpoint.txid)).collect();
        let found = coins.iter().map(|_| AtomicBool::new(false)).collect();
        Self { coins, found, txids }
    }

    /// Delivers a coin if it is wanted. Returns false if it was found before, or is created too late.
    fn deliver(&self, outpoint: &OutPoint, coin: Coin<'_>, deliveries: &mut Vec<u8>) -> bool {
        let Ok(at) = self.coins.binary_search_by(|(wanted, _)| wanted.cmp(outpoint)) else { return true };
        let (spender, found) = (self.coins[at].1, &self.found[at]);
        Delivery::encode(spender, outpoint, coin, deliveries);
        coin.height() < spender.height() && !found.swap(true, Ordering::Relaxed)
    }
}

/// What was found in the blocks whose undo data is made.
#[derive(Default)]
struct SpendingBlocks {
    blocks: Vec<RoutedBlock>,
    wanted: Vec<(OutPoint, Spender)>,
    deliveries: Vec<u8>,
}

impl Job<'_> {
    /// Makes the undo data of all blocks whose undo data is not sound, if what they spend fits into the
    /// memory. Compares the sound undo data with the shape of its blocks on the way. Returns false if too
    /// much is wanted for the memory, or something did not match: all spends must be matched.
    ///
    /// # Errors
    /// Damage to a block; any I/O error; [`api::error::ErrorKind::Interrupted`].
    pub fn make_missing_undo(
        &self,
        walk: &BlockWalk<'_>,
        survey: &UndoSurvey,
        clock: &mut Clock,
    ) -> Result<bool, Error> {
        let mut known = self.flawed(survey);
        loop {
            let deliveries = self.deliveries();
            let Some(mut spending) = self.spending_blocks(&walk.reader, &known)? else {
                return Ok(false);
            };
            deliveries.add(&mut spending.deliveries)?;
            let wanted = WantedCoins::new(spending.wanted);
            if wanted.coins.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b)) {
                return Ok(false); // Two inputs spend the same coin.
            }
            let is_consistent = self.find_coins(walk, survey, &known, &wanted, &deliveries)?;
            let flawed = self.flawed(survey);
            if flawed.len() > known.len() {
                // More undo data is flawed: its shape is not that of its block.
                known = flawed;
                continue;
            }
            if !is_consistent || !wanted.found.iter().all(|found| found.load(Ordering::Relaxed)) {
                return Ok(false);
            }
            clock.lap(Stage::Match);
            if spending.blocks.is_empty() {
                return Ok(true);
            }
            let queue = self.scripts().map(ScriptQueue::new);
            let (_, fault) = self.make_undo(&spending.blocks, &deliveries, queue.as_ref())?;
            return match fault {
                None => Ok(true),
                Some((_, BlockFault::Error(error))) => Err(error),
                Some(_) => Ok(false),
            };
        }
    }

    /// Returns the blocks whose undo data is not sound.
    fn flawed(&self, survey: &UndoSurvey) -> Vec<Height> {
        let all = (0..self.plan.chain.block_count() as u32).map(Height);
        all.filter(|&height| survey.state(height) != UndoState::Sound).collect()
    }

    /// Reads the blocks at `heights`. Returns `None` if they spend more than fits into the memory, or one
    /// breaks a rule.
    fn spending_blocks(
        &self,
        reader: &BlockReader<'_>,
        heights: &[Height],
    ) -> Result<Option<SpendingBlocks>, Error> {
        let (mut buffers, mut spending) = (BlockBuffers::default(), SpendingBlocks::default());
        for &height in heights {
            Error::check_interrupt(self.watch.interrupt)?;
            let located = reader.read(height, false, &mut buffers)?;
            let BlockBuffers { block: record, arena, hashes, .. } = &mut buffers;
            let (block, Ok(legacy_sigops)) = located.check(record.bytes(), arena, hashes)? else {
                return Ok(None);
            };
            let checksum = record.crc32c();
            spending.blocks.push(RoutedBlock { height, checksum, legacy_sigops, is_claimed: false });
            let memory = self.budget.deliveries().max(WANTED_BYTES << 10);
            let is_complete = spending.add_inputs(&block, height, &hashes.txids);
            if !is_complete || spending.wanted.len() * WANTED_BYTES + spending.deliveries.len() > memory {
                return Ok(None);
            }
        }
        Ok(Some(spending))
    }

    /// Reads all blocks, and delivers the wanted coins. Returns whether each was created once, before it is
    /// spent.
    fn find_coins(
        &self,
        walk: &BlockWalk<'_>,
        survey: &UndoSurvey,
        spending: &[Height],
        wanted: &WantedCoins,
        deliveries: &Deliveries<'_>,
    ) -> Result<bool, Error> {
        let is_consistent = AtomicBool::new(true);
        let end = spending.last().copied().unwrap_or_default();
        let count = walk.reader.chain.block_count() as u32;
        walk.each(0..count, |buffers, encoded, height| {
            survey.check_block(&walk.reader, buffers, height, |block, hashes| {
                if height >= end || height.0 == 0 {
                    return Ok(());
                }
                hashes.without_wtxids(block, &[]);
                for ((number, tx), txid) in block.txs().enumerate().zip(&hashes.txids) {
                    if !wanted.txids.contains(&prefix(txid)) {
                        continue;
                    }
                    let code = Coin::code_of(height, number == 0);
                    let Ok(()) =
                        for_each_created(&tx, txid, code, |outpoint, coin| -> Result<(), Infallible> {
                            if !wanted.deliver(&outpoint, coin, encoded) {
                                is_consistent.store(false, Ordering::Relaxed);
                            }
                            Ok(())
                        });
                }
                deliveries.add(encoded)
            })
        })?;
        Ok(is_consistent.into_inner())
    }
}

impl SpendingBlocks {
    /// Adds what a block spends. Returns false for more inputs than a valid block has.
    fn add_inputs(&mut self, block: &BlockView<'_>, height: Height, txids: &[Txid]) -> bool {
        let own: HashMap<&Txid, usize> = txids.iter().zip(0..).collect();
        let mut out = Vec::new();
        let inputs =
            (1..).zip(block.txs().skip(1)).flat_map(|(tx, view)| view.inputs().map(move |input| (tx, input)));
        for ((tx, input), number) in inputs.zip(0..) {
            let Some(spender) = Spender::new(height, number) else { return false };
            let outpoint = input.prevout();
            let created = own.get(&outpoint.txid).filter(|&&creator| creator < tx);
            let output = created.and_then(|&creator| {
                Some((creator, block.tx(creator)?.outputs().nth(outpoint.vout as usize)?))
            });
            match output {
                Some((creator, output)) if !is_unspendable(output.script_pubkey()) => {
                    out.clear();
                    compress_output(&mut out, output.value(), output.script_pubkey());
                    let coin = Coin { code: Coin::code_of(height, creator == 0), out: &out };
                    Delivery::encode(spender, &outpoint, coin, &mut self.deliveries);
                }
                _ => self.wanted.push((outpoint, spender)),
            }
        }
        true
    }
}

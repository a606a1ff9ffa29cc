//! Stage settle: where the effects of a block are applied.
//!
//! | method | coins made | coins spent | proof |
//! | --- | --- | --- | --- |
//! | join | to the join | to the join | each spend meets its coin |
//! | hints | to the join if they stay, else added to a sum | subtracted from the sum | the sum is zero |
//! | places | to a join of outpoints, with their place | likewise | as the join, but for claims |
//!
//! Beyond the last block that hints speak of, effects go to the join, where the coins that stayed wait.

use crate::{
    error::Error,
    report::Counts,
    stages::{block_fault::BlockFault, check::Outcome},
};
use coins::{
    Delta, Effects, Join,
    aggregate::{Aggregate, AggregateKey, Sum},
    hinted::{HintedEffects, Hints, apply_without_undo},
    output_indices::OutputIndices,
};
use disk::hints::{HintReader, Numbering};
use std::sync::atomic::{AtomicU32, Ordering};
use wire::{BlockView, Coin, Height, Txid};

/// How effects are applied.
pub enum Method {
    /// Each spend meets its coin.
    Join,
    /// Hints say which coins stay; a sum proves the rest.
    Hints(HintMatching),
    /// Only where in their blocks coins are counts.
    Positions(PositionMatching),
}

/// A run by hints.
pub struct HintMatching {
    /// The hints. None at all stay, if there is no file.
    pub hints: Option<HintReader>,
    /// What the sum is made of.
    pub aggregate: Aggregate,
    /// The last block that hints speak of.
    pub height: Height,
    /// Whether undo data is used below that, and with it all rules of spends.
    pub with_undo: bool,
    /// SHA-256 of the hint file.
    pub digest: [u8; 32],
}

/// A run for places.
pub struct PositionMatching {
    /// Which outputs indices count.
    pub numbering: Numbering,
    /// How many outputs each block has, by height.
    pub outputs: Vec<AtomicU32>,
}

impl Method {
    /// The first block whose undo data may be needed.
    #[must_use]
    pub fn undo_from(&self) -> Height {
        match self {
            Self::Hints(run) if !run.with_undo => Height(run.height.0 + 1),
            _ => Height(0),
        }
    }

    /// A join for what is applied so.
    #[must_use]
    pub fn join(&self, key: (u64, u64)) -> Join {
        if self.is_exact() { Join::new(key) } else { Join::of_outpoints_only(key) }
    }

    /// Whether spends and coins are compared where they meet.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        !matches!(self, Self::Positions(_))
    }

    /// What makes two runs book alike.
    #[must_use]
    pub fn identity(&self) -> Vec<u8> {
        match self {
            Self::Join => vec![0],
            Self::Hints(run) => {
                let kind = run.aggregate.kind() as u8;
                [&[1, kind, run.with_undo.into()], &run.height.0.to_le_bytes()[..], &run.digest].concat()
            }
            Self::Positions(run) => vec![2, (run.numbering == Numbering::AllOutputs).into()],
        }
    }

    /// What a checkpoint must hold besides the join: the sum, what was destroyed, and the key; or the numbers
    /// of outputs.
    #[must_use]
    pub fn save(&self, outcome: &mut Outcome) -> Vec<u64> {
        match self {
            Self::Join => Vec::new(),
            Self::Hints(run) => {
                let mut words = words_of(run.aggregate.key().as_bytes());
                words.push(outcome.burned);
                words.extend(words_of(&outcome.sum.as_mut().map(Sum::to_bytes).unwrap_or_default()));
                words
            }
            Self::Positions(run) => {
                let outputs = |outputs: &AtomicU32| u64::from(outputs.load(Ordering::Relaxed));
                // The chain may have more blocks when they are taken back: a lone one has its place in the
                // pair.
                let pair = |pair: &[AtomicU32]| outputs(&pair[0]) << 32 | pair.get(1).map_or(0, outputs);
                run.outputs.chunks(2).map(pair).collect()
            }
        }
    }

    /// Takes back what [`Method::save`] told; false if it cannot be.
    #[must_use]
    pub fn restore(&self, saved: &[u64], outcome: &mut Outcome) -> bool {
        match self {
            Self::Join => saved.is_empty(),
            Self::Hints(run) => {
                let Some(([_, _, _, _, burned], sum)) = saved.split_first_chunk::<5>() else { return false };
                let bytes: Vec<u8> = sum.iter().flat_map(|word| word.to_le_bytes()).collect();
                outcome.burned = *burned;
                outcome.sum = run.aggregate.sum_from_bytes(&bytes).ok();
                outcome.sum.is_some()
            }
            Self::Positions(run) => {
                for (pair, &word) in run.outputs.chunks(2).zip(saved) {
                    for (outputs, shift) in pair.iter().zip([32, 0]) {
                        outputs.store((word >> shift) as u32, Ordering::Relaxed);
                    }
                }
                true
            }
        }
    }

    /// A sum of nothing, if there is one.
    #[must_use]
    pub fn sum(&self) -> Option<Sum> {
        match self {
            Self::Hints(run) => Some(run.aggregate.sum()),
            Self::Join | Self::Positions(_) => None,
        }
    }
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

/// The key in what [`Method::save`] told of a run by hints.
#[must_use]
pub fn key_of(saved: &[u64]) -> Option<AggregateKey> {
    let words: &[u64; 4] = saved.first_chunk()?;
    let bytes = words.map(u64::to_le_bytes);
    Some(AggregateKey::new(bytes.as_flattened().try_into().ok()?))
}

/// A worker's book.
pub struct EffectApplier<'a> {
    method: &'a Method,
    delta: Delta,
    effects: Effects<'a>,
    hints: Option<HintReader>,
    unspent: Vec<u32>,
    sum: Option<Sum>,
    burned: u64,
}

impl<'a> EffectApplier<'a> {
    /// An empty one; `effects` is the entrance to the join.
    #[must_use]
    pub fn new(method: &'a Method, effects: Effects<'a>) -> Self {
        let hints = match method {
            Method::Hints(run) => run.hints.as_ref().map(HintReader::fork),
            Method::Join | Method::Positions(_) => None,
        };
        let (delta, unspent) = Default::default();
        Self { method, delta, effects, hints, unspent, sum: method.sum(), burned: 0 }
    }

    /// Books a block; `claims` are of its undo data, where that is needed.
    ///
    /// # Errors
    /// [`BlockFault::Hints`] if hints cannot be this block's; what the file system says of them.
    pub fn apply_block(
        &mut self,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: &[Coin<'_>],
    ) -> Result<(), BlockFault> {
        match (self.method, &mut self.sum) {
            (Method::Hints(run), Some(sum)) if height <= run.height => {
                self.unspent.clear();
                let mut counts_unspendable = false;
                if let Some(reader) = &mut self.hints {
                    counts_unspendable = reader.info().numbering == Numbering::AllOutputs;
                    reader
                        .block(height, &mut self.unspent)
                        .map_err(|error| BlockFault::Damaged(Error::from(error)))?;
                }
                let hints = Hints { unspent: &self.unspent, counts_unspendable };
                let applied = if run.with_undo {
                    let mut hinted = HintedEffects::new(&mut self.effects, sum, hints);
                    self.delta.add(block, txids, height, claims, &mut hinted);
                    self.delta.flush(&mut hinted);
                    hinted.finish()
                } else {
                    apply_without_undo(block, txids, height, hints, &mut self.effects, sum)
                        .map(|burned| self.burned = self.burned.saturating_add(burned))
                };
                applied.map_err(BlockFault::Hints)
            }
            (Method::Positions(run), _) => {
                let mut places =
                    OutputIndices::new(&mut self.effects, run.numbering == Numbering::AllOutputs);
                self.delta.add(block, txids, height, claims, &mut places);
                self.delta.flush(&mut places);
                if let Some(outputs) = run.outputs.get(height.0 as usize) {
                    outputs.store(places.outputs(), Ordering::Relaxed);
                }
                Ok(())
            }
            _ => {
                self.delta.add(block, txids, height, claims, &mut self.effects);
                Ok(())
            }
        }
    }

    /// Books a block whose coins a later one overwrites: none of them may be hinted to stay.
    ///
    /// # Errors
    /// As [`EffectApplier::apply_block`].
    pub fn apply_overwritten(&mut self, height: Height, counts: &Counts) -> Result<(), BlockFault> {
        if let Method::Positions(run) = self.method
            && let Some(outputs) = run.outputs.get(height.0 as usize)
        {
            outputs.store(counts.outputs as u32, Ordering::Relaxed);
        }
        let Some(reader) = &mut self.hints else { return Ok(()) };
        reader.block(height, &mut self.unspent).map_err(|error| BlockFault::Damaged(Error::from(error)))?;
        match self.unspent.first() {
            Some(&index) => Err(BlockFault::Hints(coins::hinted::HintFlaw::Unspendable(index))),
            None => Ok(()),
        }
    }

    /// Puts into the join what is staged, and hands over what was summed up.
    pub fn close(mut self, outcome: &mut Outcome) {
        self.delta.flush(&mut self.effects);
        self.effects.flush();
        outcome.sum = self.sum;
        outcome.burned = self.burned;
    }
}

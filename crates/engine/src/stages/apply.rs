//! Stage match: applies the effects of a block.
//!
//! | method | coins created | coins spent | proof |
//! | --- | --- | --- | --- |
//! | join | to the join | to the join | each spend matches its coin |
//! | hints | to the join if hinted unspent, else added to a sum | subtracted from the sum | the sum is zero |
//! | positions | to a join of outpoints, with their position | likewise | as for the join, but without the
//! claims |
//!
//! Above the hints' last block, effects go to the join, which contains the coins that were hinted unspent.

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
    /// Each spend is matched with its coin.
    Join,
    /// Hints name the unspent coins; an aggregate proves the rest.
    Hints(HintMatching),
    /// Only the positions of the coins within their blocks are matched.
    Positions(PositionMatching),
}

/// Matching with hints.
pub struct HintMatching {
    /// The hints; `None`: all outputs are hinted spent.
    pub hints: Option<HintReader>,
    /// The aggregate.
    pub aggregate: Aggregate,
    /// Height of the last block that the hints cover.
    pub height: Height,
    /// Whether undo data is used up to that height, and so all rules of spends are checked.
    pub with_undo: bool,
    /// SHA-256 of the hint file.
    pub digest: [u8; 32],
}

/// Matching of output positions.
pub struct PositionMatching {
    /// Which outputs are counted by the indices.
    pub numbering: Numbering,
    /// Number of outputs of each block, by height.
    pub outputs: Vec<AtomicU32>,
}

impl Method {
    /// Returns the first block whose undo data may be needed.
    #[must_use]
    pub fn undo_from(&self) -> Height {
        match self {
            Self::Hints(matching) if !matching.with_undo => Height(matching.height.0 + 1),
            _ => Height(0),
        }
    }

    /// Creates the join for this method.
    #[must_use]
    pub fn join(&self, key: (u64, u64)) -> Join {
        if self.is_exact() { Join::new(key) } else { Join::of_outpoints_only(key) }
    }

    /// Whether coins and claims are compared when they are matched.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        !matches!(self, Self::Positions(_))
    }

    /// Identifies the method: jobs with equal bytes apply effects alike.
    #[must_use]
    pub fn identity(&self) -> Vec<u8> {
        match self {
            Self::Join => vec![0],
            Self::Hints(matching) => {
                let kind = matching.aggregate.kind() as u8;
                [
                    &[1, kind, matching.with_undo.into()],
                    &matching.height.0.to_le_bytes()[..],
                    &matching.digest,
                ]
                .concat()
            }
            Self::Positions(matching) => vec![2, (matching.numbering == Numbering::AllOutputs).into()],
        }
    }

    /// Returns what a checkpoint must contain besides the join: with hints the key, the burned amount and the
    /// sum; for positions the numbers of outputs.
    #[must_use]
    pub fn save(&self, outcome: &mut Outcome) -> Vec<u64> {
        match self {
            Self::Join => Vec::new(),
            Self::Hints(matching) => {
                let mut words = to_u64s(matching.aggregate.key().as_bytes());
                words.push(outcome.burned);
                words.extend(to_u64s(&outcome.sum.as_mut().map(Sum::to_bytes).unwrap_or_default()));
                words
            }
            Self::Positions(matching) => {
                let outputs = |outputs: &AtomicU32| u64::from(outputs.load(Ordering::Relaxed));
                // The chain may have more blocks when the checkpoint is restored, so a last block without a
                // pair goes into the same half as it would with one.
                let pair = |pair: &[AtomicU32]| outputs(&pair[0]) << 32 | pair.get(1).map_or(0, outputs);
                matching.outputs.chunks(2).map(pair).collect()
            }
        }
    }

    /// Restores what [`Method::save`] returned; returns false if that is impossible.
    #[must_use]
    pub fn restore(&self, saved: &[u64], outcome: &mut Outcome) -> bool {
        match self {
            Self::Join => saved.is_empty(),
            Self::Hints(matching) => {
                let Some(([_, _, _, _, burned], sum)) = saved.split_first_chunk::<5>() else { return false };
                let bytes: Vec<u8> = sum.iter().flat_map(|word| word.to_le_bytes()).collect();
                outcome.burned = *burned;
                outcome.sum = matching.aggregate.sum_from_bytes(&bytes).ok();
                outcome.sum.is_some()
            }
            Self::Positions(matching) => {
                for (pair, &word) in matching.outputs.chunks(2).zip(saved) {
                    for (outputs, shift) in pair.iter().zip([32, 0]) {
                        outputs.store((word >> shift) as u32, Ordering::Relaxed);
                    }
                }
                true
            }
        }
    }

    /// Returns an empty sum, if the method has one.
    #[must_use]
    pub fn sum(&self) -> Option<Sum> {
        match self {
            Self::Hints(matching) => Some(matching.aggregate.sum()),
            Self::Join | Self::Positions(_) => None,
        }
    }
}

fn to_u64s(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

/// Returns the key from what [`Method::save`] returned for hints.
#[must_use]
pub fn key_of(saved: &[u64]) -> Option<AggregateKey> {
    let words: &[u64; 4] = saved.first_chunk()?;
    let bytes = words.map(u64::to_le_bytes);
    Some(AggregateKey::new(bytes.as_flattened().try_into().ok()?))
}

/// Applies the effects of the blocks of one worker.
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
    /// An applier that sends `effects` to the join.
    #[must_use]
    pub fn new(method: &'a Method, effects: Effects<'a>) -> Self {
        let hints = match method {
            Method::Hints(matching) => matching.hints.as_ref().map(HintReader::fork),
            Method::Join | Method::Positions(_) => None,
        };
        let (delta, unspent) = Default::default();
        Self { method, delta, effects, hints, unspent, sum: method.sum(), burned: 0 }
    }

    /// Applies a block; `claims` are from its undo data, where that is needed.
    ///
    /// # Errors
    /// [`BlockFault::Hints`] if the hints cannot belong to this block; any I/O error when they are read.
    pub fn apply_block(
        &mut self,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: &[Coin<'_>],
    ) -> Result<(), BlockFault> {
        match (self.method, &mut self.sum) {
            (Method::Hints(matching), Some(sum)) if height <= matching.height => {
                self.unspent.clear();
                let mut counts_unspendable = false;
                if let Some(reader) = &mut self.hints {
                    counts_unspendable = reader.info().numbering == Numbering::AllOutputs;
                    reader
                        .block(height, &mut self.unspent)
                        .map_err(|error| BlockFault::HintFile(Error::from(error)))?;
                }
                let hints = Hints { unspent: &self.unspent, counts_unspendable };
                let applied = if matching.with_undo {
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
            (Method::Positions(matching), _) => {
                let mut positions =
                    OutputIndices::new(&mut self.effects, matching.numbering == Numbering::AllOutputs);
                self.delta.add(block, txids, height, claims, &mut positions);
                self.delta.flush(&mut positions);
                if let Some(outputs) = matching.outputs.get(height.0 as usize) {
                    outputs.store(positions.outputs(), Ordering::Relaxed);
                }
                Ok(())
            }
            _ => {
                self.delta.add(block, txids, height, claims, &mut self.effects);
                Ok(())
            }
        }
    }

    /// Applies a block whose coins a later block overwrites: none of them may be hinted unspent.
    ///
    /// # Errors
    /// The same errors as [`EffectApplier::apply_block`].
    pub fn apply_overwritten(&mut self, height: Height, counts: &Counts) -> Result<(), BlockFault> {
        if let Method::Positions(matching) = self.method
            && let Some(outputs) = matching.outputs.get(height.0 as usize)
        {
            outputs.store(counts.outputs as u32, Ordering::Relaxed);
        }
        let Some(reader) = &mut self.hints else { return Ok(()) };
        reader.block(height, &mut self.unspent).map_err(|error| BlockFault::HintFile(Error::from(error)))?;
        match self.unspent.first() {
            Some(&index) => Err(BlockFault::Hints(coins::hinted::HintFlaw::Unspendable(index))),
            None => Ok(()),
        }
    }

    /// Sends staged effects to the join, and moves the sums to `outcome`.
    pub fn finish(mut self, outcome: &mut Outcome) {
        self.delta.flush(&mut self.effects);
        self.effects.flush();
        outcome.sum = self.sum;
        outcome.burned = self.burned;
    }
}

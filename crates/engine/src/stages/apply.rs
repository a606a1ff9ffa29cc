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

use crate::{error::Error, partial_state::MatchState, report::Counts, stages::block_fault::BlockFault};
use coins::{
    Delta, Effects, Join,
    aggregate::Aggregate,
    hinted::{HintedEffects, Hints, apply_without_undo},
    output_indices::OutputIndices,
};
use disk::hints::{HintReader, Numbering};
use wire::{BlockView, Coin, Height, Txid};

/// How effects are applied.
#[expect(clippy::large_enum_variant, reason = "a job has one")]
pub enum Method {
    /// Each spend is matched with its coin.
    Join,
    /// Hints name the unspent coins; an aggregate proves the rest.
    Hints(HintMatching),
    /// Only the positions of the coins within their blocks are matched.
    /// The numbering decides which outputs are counted.
    Positions(Numbering),
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
            Self::Positions(numbering) => vec![2, (*numbering == Numbering::AllOutputs).into()],
        }
    }
}

/// Applies the effects of the blocks of one worker.
pub struct EffectApplier<'a> {
    method: &'a Method,
    delta: Delta,
    effects: Effects<'a>,
    hints: Option<HintReader>,
    unspent: Vec<u32>,
    state: MatchState,
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
        Self { method, delta, effects, hints, unspent, state: MatchState::empty(method) }
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
        match (self.method, &mut self.state) {
            (Method::Hints(matching), MatchState::Hints { sum, burned }) if height <= matching.height => {
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
                        .map(|more| *burned = burned.saturating_add(more))
                };
                applied.map_err(BlockFault::Hints)
            }
            (Method::Positions(numbering), MatchState::Positions { outputs }) => {
                let mut positions =
                    OutputIndices::new(&mut self.effects, *numbering == Numbering::AllOutputs);
                self.delta.add(block, txids, height, claims, &mut positions);
                self.delta.flush(&mut positions);
                outputs.push((height, positions.outputs()));
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
        if let MatchState::Positions { outputs } = &mut self.state {
            outputs.push((height, counts.outputs as u32));
        }
        let Some(reader) = &mut self.hints else { return Ok(()) };
        reader.block(height, &mut self.unspent).map_err(|error| BlockFault::HintFile(Error::from(error)))?;
        match self.unspent.first() {
            Some(&index) => Err(BlockFault::Hints(coins::hinted::HintFlaw::Unspendable(index))),
            None => Ok(()),
        }
    }

    /// Sends staged effects to the join, and returns what the method keeps besides.
    #[must_use]
    pub fn finish(mut self) -> MatchState {
        self.delta.flush(&mut self.effects);
        self.effects.flush();
        self.state
    }
}

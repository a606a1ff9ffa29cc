//! Stage match: applies the effects of a block.
//!
//! | method | coins created | coins spent | proof |
//! | --- | --- | --- | --- |
//! | join | to the join | to the join | each spend matches its coin |
//! | hints | to the join if hinted unspent, else added to a sum | subtracted from the sum | the sum is zero |
//! | positions | to a join of output indices | likewise | as for the join, but without the claims |
//!
//! Above the hints' last block, effects go to the join, which contains the coins that were hinted unspent.

use crate::{error::Error, partial_state::MatchState, report::Counts, stages::block_fault::BlockFault};
use ::hints::{HintReader, Numbering};
use coins::{
    Delta, Effects, FullCoin, OutputIndex, Payload,
    aggregate::Aggregate,
    hinted::{HintedEffects, Hints, apply_without_undo},
    output_indices::OutputIndices,
};
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

/// A payload of a job's join: how the effects of a block become creations and spends that carry it.
pub trait JobPayload: Payload {
    /// Applies a block; `claims` are from its undo data, where that is needed.
    ///
    /// # Errors
    /// [`BlockFault::Hints`] if the hints cannot belong to this block; any I/O error when they are read.
    fn apply_block(
        applier: &mut EffectApplier<'_, Self>,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: &[Coin<'_>],
    ) -> Result<(), BlockFault>;

    /// Pushes what earlier blocks have left in the delta.
    fn flush_delta(applier: &mut EffectApplier<'_, Self>);
}

/// Applies the effects of the blocks of one worker.
pub struct EffectApplier<'a, P: Payload> {
    method: &'a Method,
    delta: Delta,
    effects: Effects<'a, P>,
    hints: Option<HintReader>,
    unspent: Vec<u32>,
    state: MatchState,
}

impl<'a, P: JobPayload> EffectApplier<'a, P> {
    /// An applier that sends `effects` to the join.
    #[must_use]
    pub fn new(method: &'a Method, effects: Effects<'a, P>) -> Self {
        let hints = match method {
            Method::Hints(matching) => matching.hints.as_ref().map(HintReader::fork),
            Method::Join | Method::Positions(_) => None,
        };
        let (delta, unspent) = Default::default();
        Self { method, delta, effects, hints, unspent, state: MatchState::empty(method) }
    }

    /// Applies a block whose coins a later block overwrites: none of them may be hinted unspent.
    ///
    /// # Errors
    /// The same errors as [`JobPayload::apply_block`].
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
        P::flush_delta(&mut self);
        self.effects.flush();
        self.state
    }
}

impl JobPayload for FullCoin {
    fn apply_block(
        applier: &mut EffectApplier<'_, Self>,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: &[Coin<'_>],
    ) -> Result<(), BlockFault> {
        let EffectApplier { method, delta, effects, hints, unspent, state } = applier;
        let (matching, sum, burned) = match (method, state) {
            (Method::Hints(matching), MatchState::Hints { sum, burned }) if height <= matching.height => {
                (matching, sum, burned)
            }
            _ => {
                delta.add(block, txids, height, claims, effects);
                return Ok(());
            }
        };
        unspent.clear();
        let mut counts_unspendable = false;
        if let Some(reader) = hints {
            counts_unspendable = reader.info().numbering == Numbering::AllOutputs;
            reader.block(height, unspent).map_err(|error| BlockFault::HintFile(Error::from(error)))?;
        }
        let hints = Hints { unspent, counts_unspendable };
        let applied = if matching.with_undo {
            let mut hinted = HintedEffects::new(effects, sum, hints);
            delta.add(block, txids, height, claims, &mut hinted);
            delta.flush(&mut hinted);
            hinted.finish()
        } else {
            apply_without_undo(block, txids, height, hints, effects, sum)
                .map(|more| *burned = burned.saturating_add(more))
        };
        applied.map_err(BlockFault::Hints)
    }

    fn flush_delta(applier: &mut EffectApplier<'_, Self>) {
        applier.delta.flush(&mut applier.effects);
    }
}

impl JobPayload for OutputIndex {
    fn apply_block(
        applier: &mut EffectApplier<'_, Self>,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: &[Coin<'_>],
    ) -> Result<(), BlockFault> {
        let EffectApplier { method, delta, effects, state, .. } = applier;
        let (Method::Positions(numbering), MatchState::Positions { outputs }) = (method, state) else {
            // `Job::match_positions` is called only with this method.
            return Err(BlockFault::Suspect);
        };
        let mut positions = OutputIndices::new(effects, *numbering == Numbering::AllOutputs);
        delta.add(block, txids, height, claims, &mut positions);
        delta.flush(&mut positions);
        outputs.push((height, positions.outputs()));
        Ok(())
    }

    /// Does nothing: the delta is empty after each block.
    fn flush_delta(_: &mut EffectApplier<'_, Self>) {}
}

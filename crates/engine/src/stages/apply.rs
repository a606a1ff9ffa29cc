//! Stage match: applies the effects of a block.
//!
//! | method | coins created | coins spent | proof |
//! | --- | --- | --- | --- |
//! | join | to the join | to the join | each spend matches its coin |
//! | hints | to the join if hinted unspent or spent above, else to a sum | out of the sum | the sum is zero |
//! | positions | to a join of output indices | likewise | as for the join, but without the claims |
//! | routed | to the join | to the join, with a claim or the position of the input | as for the join |
//!
//! Above the last block for which hints are used, effects go to the join, which contains the coins that exist
//! there: those that were hinted unspent, and those that blocks above spend.

use crate::{
    api::{counts::Counts, error::Error},
    stages::{block_fault::BlockFault, deliveries::Deliveries, method::Method, partial_state::MatchState},
};
use ::hints::{HintReader, Numbering};
use coins::{
    CoinPayload, Delta, Effects, FullCoin, OutputIndex, Payload, RoutedCoin,
    hinted::{HintedEffects, Hints, apply_without_undo},
    output_indices::OutputIndices,
};
use wire::{BlockView, Coin, Height, Txid};

/// A payload of a job's join: how the effects of a block become creations and spends that carry it.
pub trait JobPayload: Payload {
    /// Applies a block; `claims` are from its undo data, where that is needed. `None`: its undo data is made.
    ///
    /// # Errors
    /// [`BlockFault::Hints`] if the hints cannot belong to this block; any I/O error when they are read.
    fn apply_block(
        applier: &mut EffectApplier<'_, Self>,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: Option<&[Coin<'_>]>,
    ) -> Result<(), BlockFault>;

    /// Pushes what earlier blocks have left in the delta.
    fn flush_delta(applier: &mut EffectApplier<'_, Self>);

    /// Hands over the coins that matches have delivered since the last call.
    ///
    /// # Errors
    /// Any I/O error.
    fn deliver(&mut self, _to: Option<&Deliveries<'_>>) -> Result<(), Error> {
        Ok(())
    }
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
            Method::Join | Method::Positions(_) | Method::Routed { .. } => None,
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
        let Some(reader) = self.hints.as_mut().filter(|_| is_hinted(self.method, height)) else {
            return Ok(());
        };
        reader.block(height, &mut self.unspent).map_err(|error| BlockFault::HintFile(Error::from(error)))?;
        match self.unspent.first() {
            Some(&index) => Err(BlockFault::Hints(coins::hinted::HintFlaw::Unspendable(index))),
            None => Ok(()),
        }
    }

    /// Hands over the coins that this worker's matches have delivered since the last call.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn deliver(&mut self, to: Option<&Deliveries<'_>>) -> Result<(), Error> {
        self.effects.payload().deliver(to)
    }

    /// Sends staged effects to the join, and returns what the method keeps besides.
    ///
    /// # Errors
    /// The same errors as [`EffectApplier::deliver`].
    pub fn finish(mut self, deliveries: Option<&Deliveries<'_>>) -> Result<MatchState, Error> {
        P::flush_delta(&mut self);
        self.effects.flush();
        self.deliver(deliveries)?;
        Ok(self.state)
    }
}

impl JobPayload for FullCoin {
    fn apply_block(
        applier: &mut EffectApplier<'_, Self>,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: Option<&[Coin<'_>]>,
    ) -> Result<(), BlockFault> {
        // Methods that make undo data have another payload.
        let claims = claims.ok_or(BlockFault::Suspect)?;
        if is_hinted(applier.method, height) {
            return apply_hinted(applier, block, txids, height, claims);
        }
        let EffectApplier { delta, effects, .. } = applier;
        delta.add(block, txids, height, claims, effects);
        Ok(())
    }

    fn flush_delta(applier: &mut EffectApplier<'_, Self>) {
        applier.delta.flush(&mut applier.effects);
    }
}

impl JobPayload for RoutedCoin {
    fn apply_block(
        applier: &mut EffectApplier<'_, Self>,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: Option<&[Coin<'_>]>,
    ) -> Result<(), BlockFault> {
        if is_hinted(applier.method, height) {
            return apply_hinted(applier, block, txids, height, claims.unwrap_or_default());
        }
        let EffectApplier { delta, effects, .. } = applier;
        match claims {
            Some(claims) => delta.add(block, txids, height, claims, effects),
            None => delta.add_routed(block, txids, height, effects),
        }
        Ok(())
    }

    fn flush_delta(applier: &mut EffectApplier<'_, Self>) {
        applier.delta.flush(&mut applier.effects);
    }

    fn deliver(&mut self, to: Option<&Deliveries<'_>>) -> Result<(), Error> {
        match to {
            Some(to) => to.add(self.deliveries()),
            None => {
                self.deliveries().clear();
                Ok(())
            }
        }
    }
}

/// Whether hints are used for the block at `height`.
fn is_hinted(method: &Method, height: Height) -> bool {
    matches!(method, Method::Hints(matching) if height <= matching.height)
}

/// Applies a block for which hints are used.
fn apply_hinted<P: CoinPayload>(
    applier: &mut EffectApplier<'_, P>,
    block: &BlockView<'_>,
    txids: &[Txid],
    height: Height,
    claims: &[Coin<'_>],
) -> Result<(), BlockFault> {
    let EffectApplier { method, delta, effects, hints, unspent, state } = applier;
    let (Method::Hints(matching), MatchState::Hints { sum, burned }) = (method, state) else {
        // `EffectApplier::new` has made the state for the method.
        return Err(BlockFault::Suspect);
    };
    unspent.clear();
    let mut counts_unspendable = false;
    if let Some(reader) = hints {
        counts_unspendable = reader.info().numbering == Numbering::AllOutputs;
        reader.block(height, unspent).map_err(|error| BlockFault::HintFile(Error::from(error)))?;
    }
    let hints = Hints { unspent, counts_unspendable, spent_in_join: &matching.spent_above };
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

impl JobPayload for OutputIndex {
    fn apply_block(
        applier: &mut EffectApplier<'_, Self>,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: Option<&[Coin<'_>]>,
    ) -> Result<(), BlockFault> {
        let claims = claims.ok_or(BlockFault::Suspect)?;
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

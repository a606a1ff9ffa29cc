//! Stage match: applies the effects of a block.
//!
//! | method | coins created | coins spent | proof |
//! | --- | --- | --- | --- |
//! | join | to the join | to the join | each spend matches its coin |
//! | hints | to the join if hinted unspent or spent above, else to a sum | out of the sum | the sum is zero |
//! | routed | to the join | to the join, with a claim or the position of the input | as for the join |
//!
//! Above the last block for which hints are used, effects go to the join, which contains the coins that exist
//! there: those that were hinted unspent, and those that blocks above spend.

use crate::stages::{
    block_fault::BlockFault, deliveries::Deliveries, method::Method, partial_state::MatchState,
};
use ::hints::{HintReader, Numbering};
use api::error::Error;
use coins::{
    Delta, Effects,
    hinted::{HintedEffects, Hints, apply_without_undo},
};
use wire::{BlockView, Coin, Height, Txid};

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
    pub fn new(method: &'a Method, effects: Effects<'a>) -> Self {
        let hints = match method {
            Method::Hints(matching) => matching.hints.as_ref().map(HintReader::fork),
            Method::Join | Method::Routed { .. } => None,
        };
        let (delta, unspent) = Default::default();
        Self { method, delta, effects, hints, unspent, state: MatchState::empty(method) }
    }

    /// Applies a block whose coins a later block overwrites: none of them may be hinted unspent.
    pub fn apply_overwritten(&mut self, height: Height) -> Result<(), BlockFault> {
        let Some(reader) = self.hints.as_mut().filter(|_| is_hinted(self.method, height)) else {
            return Ok(());
        };
        reader.block(height, &mut self.unspent).map_err(Error::from)?;
        match self.unspent.first() {
            Some(&index) => Err(BlockFault::Hints(coins::hinted::HintFlaw::Unspendable(index))),
            None => Ok(()),
        }
    }

    /// Applies a block; `claims` are from its undo data, where that is needed. `None`: its undo data is made.
    ///
    /// # Errors
    /// [`BlockFault::Hints`] if the hints cannot belong to this block; any I/O error when they are read.
    pub fn apply_block(
        &mut self,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: Option<&[Coin<'_>]>,
    ) -> Result<(), BlockFault> {
        if is_hinted(self.method, height) {
            return self.apply_hinted(block, txids, height, claims.unwrap_or_default());
        }
        self.delta.add(block, txids, height, claims, &mut self.effects);
        Ok(())
    }

    /// Hands over the coins that this worker's matches have delivered since the last call.
    pub fn deliver(&mut self, to: Option<&Deliveries<'_>>) -> Result<(), Error> {
        to.map_or(Ok(()), |to| to.add(self.effects.deliveries()))
    }

    /// Sends staged effects to the join, and returns what the method keeps besides.
    pub fn finish(mut self, deliveries: Option<&Deliveries<'_>>) -> Result<MatchState, Error> {
        self.delta.flush(&mut self.effects);
        self.effects.flush();
        self.deliver(deliveries)?;
        Ok(self.state)
    }

    /// Applies a block for which hints are used.
    fn apply_hinted(
        &mut self,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: &[Coin<'_>],
    ) -> Result<(), BlockFault> {
        let EffectApplier { method, delta, effects, hints, unspent, state } = self;
        let (Method::Hints(matching), MatchState::Hints { sum, burned }) = (method, state) else {
            // This does not happen: `EffectApplier::new` makes the state that belongs to the method.
            return Err(BlockFault::Suspect);
        };
        let mut counts_unspendable = false;
        if let Some(reader) = hints {
            counts_unspendable = reader.info().format.numbering() == Numbering::AllOutputs;
            reader.block(height, unspent).map_err(Error::from)?;
        }
        let hints = Hints { unspent, counts_unspendable, spent_in_join: &matching.spent_above };
        let applied = if matching.with_undo {
            let mut hinted = HintedEffects::new(effects, sum, hints);
            delta.add(block, txids, height, Some(claims), &mut hinted);
            delta.flush(&mut hinted);
            hinted.finish()
        } else {
            apply_without_undo(block, txids, height, hints, effects, sum)
                .map(|more| *burned = burned.saturating_add(more))
        };
        applied.map_err(BlockFault::Hints)
    }
}

/// Whether hints are used for the block at `height`.
fn is_hinted(method: &Method, height: Height) -> bool {
    matches!(method, Method::Hints(matching) if height <= matching.height)
}

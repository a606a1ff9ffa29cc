//! Finds the unspent outputs of each block, for making hints: coins carry the index of the output in its
//! block instead of amount and script ([`OutputIndex`]).

use crate::{
    delta::{EffectSink, OutputStatus},
    join::Effects,
    mismatch::Mismatch,
    payload::OutputIndex,
};
use digest::siphash::SipHash13Uj;
use wire::{Coin, Height, OutPoint};

/// Receives the effects of one block from [`crate::Delta`].
pub struct OutputIndices<'a, 'j> {
    effects: &'a mut Effects<'j, OutputIndex>,
    counts_unspendable: bool,
    index: u32,
    out: Vec<u8>,
}

impl<'a, 'j> OutputIndices<'a, 'j> {
    /// Creates a sink for one block; `counts_unspendable` is whether indices count outputs that can never be
    /// spent.
    pub const fn new(effects: &'a mut Effects<'j, OutputIndex>, counts_unspendable: bool) -> Self {
        Self { effects, counts_unspendable, index: 0, out: Vec::new() }
    }

    /// Returns the number of outputs counted.
    #[must_use]
    pub const fn outputs(&self) -> u32 {
        self.index
    }
}

impl EffectSink for OutputIndices<'_, '_> {
    #[inline]
    fn hasher(&self) -> &SipHash13Uj {
        self.effects.hasher()
    }

    #[inline]
    fn push_output(&mut self, outpoint: &OutPoint, coin: Coin<'_>, status: OutputStatus) {
        if status == OutputStatus::Unspendable && !self.counts_unspendable {
            return;
        }
        if status == OutputStatus::Unspent {
            let creation = OutputIndex::creation(coin.code, self.index, &mut self.out);
            self.effects.push_creation(outpoint, creation);
        }
        self.index += 1;
    }

    #[inline]
    fn push_spend(&mut self, outpoint: &OutPoint, claim: Coin<'_>, height: Height) {
        self.effects.push_spend(outpoint, OutputIndex::spend(claim.code), height);
    }

    fn push_mismatch(&mut self, mismatch: Mismatch) {
        self.effects.push_mismatch(mismatch);
    }
}

//! Finds the unspent outputs of each block, for making hints: coins carry the index of the output in its
//! block instead of amount and script.
//!
//! The index is encoded as a compressed output (amount: the index; script: empty), so that sorted runs can
//! store it; a join [of outpoints](crate::Join::of_outpoints_only) does not compare it with the claims of
//! undo data.

use crate::{
    delta::{EffectSink, OutputStatus},
    join::Effects,
    mismatch::Mismatch,
};
use digest::siphash::SipHash13Uj;
use wire::{Coin, Height, OutPoint, Reader, read::write_var_int};

/// The compressed form of an empty script: VARINT(0 + 6).
const EMPTY_SCRIPT: u8 = 6;

/// Returns the output index that a coin of such a join encodes, or `None` if it is malformed.
#[must_use]
pub fn index_of(coin: &Coin<'_>) -> Option<u32> {
    u32::try_from(Reader::new(coin.out).var_int().ok()?).ok()
}

/// Receives the effects of one block from [`crate::Delta`].
pub struct OutputIndices<'a, 'j> {
    effects: &'a mut Effects<'j>,
    counts_unspendable: bool,
    index: u32,
    out: Vec<u8>,
}

impl<'a, 'j> OutputIndices<'a, 'j> {
    /// Creates a sink for one block; `counts_unspendable` is whether indices count outputs that can never be
    /// spent.
    pub const fn new(effects: &'a mut Effects<'j>, counts_unspendable: bool) -> Self {
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
            self.out.clear();
            write_var_int(&mut self.out, self.index.into());
            self.out.push(EMPTY_SCRIPT);
            self.effects.push_creation(outpoint, Coin { code: coin.code, out: &self.out });
        }
        self.index += 1;
    }

    #[inline]
    fn push_spend(&mut self, outpoint: &OutPoint, claim: Coin<'_>, height: Height) {
        self.out.clear();
        self.out.extend([0, EMPTY_SCRIPT]);
        self.effects.push_spend(outpoint, Coin { code: claim.code, out: &self.out }, height);
    }

    fn push_mismatch(&mut self, mismatch: Mismatch) {
        self.effects.push_mismatch(mismatch);
    }
}

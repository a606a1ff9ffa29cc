//! The effects of a block whose hints are known: what stays unspent goes to the join, all else into a sum.
//!
//! SwiftSync's bookkeeping. The hint of an output says whether it is unspent at some later height. If so, it
//! is a coin; if not, it is added to an [`crate::aggregate`] here and subtracted where it is spent. At that
//! height the sum is zero if and only if each output that hints call spent was spent once, and no other:
//! wrong hints can make a run fail, never make a wrong set of coins pass.

use crate::{
    aggregate::Sum,
    delta::{EffectSink, OutputStatus},
    join::Effects,
    mismatch::Mismatch,
};
use digest::siphash::SipHash13Uj;
use wire::{BlockView, Coin, Height, OutPoint, Txid, coin::compress_output, script::is_unspendable};

/// The hints of one block.
#[derive(Clone, Copy, Debug)]
pub struct Hints<'h> {
    /// Indices of the unspent outputs, ascending.
    pub unspent: &'h [u32],
    /// Whether indices count outputs that can never be spent.
    pub counts_unspendable: bool,
}

/// Why hints cannot be those of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HintFlaw {
    /// There is no output of that index.
    #[error("hint {0} is beyond the outputs of the block")]
    Beyond(u32),
    /// The output can never be spent, so it is no coin.
    #[error("hint {0} is of an output that can never be spent")]
    Unspendable(u32),
    /// The block itself spends the output.
    #[error("hint {0} is of an output that the block itself spends")]
    SpentInBatch(u32),
}

/// Walks along the hints as outputs come.
struct Walk<'h> {
    hints: Hints<'h>,
    next: usize,
    index: u32,
    flaw: Option<HintFlaw>,
}

impl<'h> Walk<'h> {
    const fn new(hints: Hints<'h>) -> Self {
        Self { hints, next: 0, index: 0, flaw: None }
    }

    /// Whether the next output is hinted to stay unspent.
    #[inline]
    fn is_unspent(&mut self, status: OutputStatus) -> bool {
        if status == OutputStatus::Unspendable && !self.hints.counts_unspendable {
            return false;
        }
        let index = self.index;
        self.index += 1;
        let hinted = self.hints.unspent.get(self.next) == Some(&index);
        if hinted {
            self.next += 1;
            match status {
                OutputStatus::Unspent => {}
                OutputStatus::Unspendable => self.flaw = self.flaw.or(Some(HintFlaw::Unspendable(index))),
                OutputStatus::SpentInBatch => self.flaw = self.flaw.or(Some(HintFlaw::SpentInBatch(index))),
            }
        }
        hinted
    }

    fn finish(self) -> Result<(), HintFlaw> {
        let beyond = self.hints.unspent.get(self.next).map(|&index| HintFlaw::Beyond(index));
        self.flaw.or(beyond).map_or(Ok(()), Err)
    }
}

/// Where [`crate::Delta`] puts the effects of a block with undo data: elements of the sum are whole
/// coins.
pub struct HintedEffects<'a, 'j, 'h> {
    effects: &'a mut Effects<'j>,
    sum: &'a mut Sum,
    walk: Walk<'h>,
}

impl<'a, 'j, 'h> HintedEffects<'a, 'j, 'h> {
    /// For one block.
    pub const fn new(effects: &'a mut Effects<'j>, sum: &'a mut Sum, hints: Hints<'h>) -> Self {
        Self { effects, sum, walk: Walk::new(hints) }
    }

    /// After the block.
    ///
    /// # Errors
    /// [`HintFlaw`], the first one.
    pub fn finish(self) -> Result<(), HintFlaw> {
        self.walk.finish()
    }
}

impl EffectSink for HintedEffects<'_, '_, '_> {
    #[inline]
    fn hasher(&self) -> &SipHash13Uj {
        self.effects.hasher()
    }

    #[inline]
    fn push_output(&mut self, outpoint: &OutPoint, coin: Coin<'_>, status: OutputStatus) {
        let unspent = self.walk.is_unspent(status);
        if status == OutputStatus::Unspent {
            if unspent {
                self.effects.push_creation(outpoint, coin);
            } else {
                self.sum.add(outpoint, Some(coin));
            }
        }
    }

    #[inline]
    fn push_spend(&mut self, outpoint: &OutPoint, claim: Coin<'_>, height: Height) {
        if claim.height() >= height {
            // Spends of coins of the same block have been met before: see `Delta`.
            self.effects.push_mismatch(Mismatch::SpentBeforeCreated(*outpoint));
        }
        self.sum.subtract(outpoint, Some(claim));
    }

    fn push_mismatch(&mut self, mismatch: Mismatch) {
        self.effects.push_mismatch(mismatch);
    }
}

/// Takes in a block without undo data: elements of the sum are outpoints. Gives the amount that its
/// unspendable outputs destroy, in satoshi.
///
/// # Errors
/// [`HintFlaw`], the first one.
pub fn apply_without_undo(
    block: &BlockView<'_>,
    txids: &[Txid],
    height: Height,
    hints: Hints<'_>,
    effects: &mut Effects<'_>,
    sum: &mut Sum,
) -> Result<u64, HintFlaw> {
    let mut walk = Walk::new(hints);
    let (mut burned, mut out) = (0u64, Vec::new());
    for ((tx, &txid), is_coinbase) in
        block.txs().zip(txids).zip(std::iter::once(true).chain(std::iter::repeat(false)))
    {
        if !is_coinbase {
            tx.inputs().for_each(|input| sum.subtract(&input.prevout(), None));
        }
        for (output, vout) in tx.outputs().zip(0..) {
            let script = output.script_pubkey();
            let outpoint = OutPoint { txid, vout };
            let status =
                if is_unspendable(script) { OutputStatus::Unspendable } else { OutputStatus::Unspent };
            let unspent = walk.is_unspent(status);
            if status == OutputStatus::Unspendable {
                burned = burned.saturating_add(output.value().0.max(0) as u64);
            } else if unspent {
                out.clear();
                compress_output(&mut out, output.value(), script);
                effects
                    .push_creation(&outpoint, Coin { code: Coin::code_of(height, is_coinbase), out: &out });
            } else {
                sum.add(&outpoint, None);
            }
        }
    }
    walk.finish().map(|()| burned)
}

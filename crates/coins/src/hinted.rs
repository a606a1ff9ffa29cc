//! The effects of a block with hints (SwiftSync): outputs that stay unspent go to the join, all others into a
//! sum.
//!
//! The hint for an output is whether it is unspent at the hints' last block. If so, it is a coin; if not, it
//! is added to an [`crate::aggregate`] here and subtracted where it is spent. At that block the sum is zero
//! if and only if each output that is spent according to the hints was spent exactly once, and no other
//! output was: wrong hints can make a rebuild fail, but cannot make it accept a wrong set of coins.

use crate::{
    aggregate::{Sum, outpoint_bytes},
    delta::{EffectSink, OutputStatus},
    join::Effects,
    mismatch::Mismatch,
};
use digest::siphash::{SipKey, siphash24_128};
use wire::{BlockView, Coin, Height, OutPoint, Txid, coin::compress_output, script::is_unspendable};

/// Number of leading bits of a hash that select its part of the sorted list in [`OutPointSet`].
const PREFIX_BITS: u32 = 16;

/// A set of outpoints: a sorted list of hashes of 16 bytes, since a hash table of outpoints takes five times
/// as much memory. Nobody else knows the key, so that nobody can choose outpoints with equal hashes.
#[derive(Debug)]
pub struct OutPointSet {
    key: SipKey,
    hashes: Vec<u128>,
    /// Where the hashes with each prefix begin, and the end of all.
    starts: Vec<u32>,
}

impl OutPointSet {
    /// Creates the set of the outpoints that have these hashes under `key`.
    pub fn new(key: SipKey, mut hashes: Vec<u128>) -> Self {
        hashes.sort_unstable();
        hashes.shrink_to_fit();
        let start = |of: usize| hashes.partition_point(|&hash| prefix(hash) < of) as u32;
        let starts = (0..=1usize << PREFIX_BITS).map(start).collect();
        Self { key, hashes, starts }
    }

    /// Returns the hash of an outpoint under a key.
    pub fn hash(SipKey(k0, k1): SipKey, outpoint: &OutPoint) -> u128 {
        siphash24_128(k0, k1, &outpoint_bytes(outpoint))
    }

    fn contains(&self, outpoint: &OutPoint) -> bool {
        if self.hashes.is_empty() {
            return false;
        }
        let hash = Self::hash(self.key, outpoint);
        let (from, to) = (self.starts[prefix(hash)], self.starts[prefix(hash) + 1]);
        self.hashes[from as usize..to as usize].binary_search(&hash).is_ok()
    }
}

fn prefix(hash: u128) -> usize {
    (hash >> (u128::BITS - PREFIX_BITS)) as usize
}

/// The hints of one block.
#[derive(Clone, Copy, Debug)]
pub struct Hints<'h> {
    /// Indices of the unspent outputs, ascending.
    pub unspent: &'h [u32],
    /// Whether indices count outputs that can never be spent.
    pub counts_unspendable: bool,
    /// Coins that go to the join although they are hinted spent: blocks spend them that are matched with the
    /// join.
    pub spent_in_join: &'h OutPointSet,
}

/// The reason why hints cannot be those of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HintFlaw {
    /// The block has no output with that index.
    #[error("hint {0} is beyond the outputs of the block")]
    Beyond(u32),
    /// The output can never be spent, so it is not a coin.
    #[error("hint {0} is for an output that can never be spent")]
    Unspendable(u32),
    /// The block itself spends the output.
    #[error("hint {0} is for an output that the block itself spends")]
    SpentInBatch(u32),
}

/// Looks up the hints of outputs in block order.
struct HintCursor<'h> {
    hints: Hints<'h>,
    next: usize,
    index: u32,
    flaw: Option<HintFlaw>,
}

impl<'h> HintCursor<'h> {
    const fn new(hints: Hints<'h>) -> Self {
        Self { hints, next: 0, index: 0, flaw: None }
    }

    /// Returns whether the next output goes to the join if it is a coin.
    #[inline]
    fn is_for_join(&mut self, outpoint: &OutPoint, status: OutputStatus) -> bool {
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
        hinted || self.hints.spent_in_join.contains(outpoint)
    }

    fn finish(self) -> Result<(), HintFlaw> {
        let beyond = self.hints.unspent.get(self.next).map(|&index| HintFlaw::Beyond(index));
        self.flaw.or(beyond).map_or(Ok(()), Err)
    }
}

/// Receives the effects of a block with undo data from [`crate::Delta`]: elements of the sum are whole coins.
pub struct HintedEffects<'a, 'j, 'h> {
    effects: &'a mut Effects<'j>,
    sum: &'a mut Sum,
    cursor: HintCursor<'h>,
}

impl<'a, 'j, 'h> HintedEffects<'a, 'j, 'h> {
    /// Creates a sink for one block.
    pub const fn new(effects: &'a mut Effects<'j>, sum: &'a mut Sum, hints: Hints<'h>) -> Self {
        Self { effects, sum, cursor: HintCursor::new(hints) }
    }

    /// Checks the hints after the last output of the block.
    pub fn finish(self) -> Result<(), HintFlaw> {
        self.cursor.finish()
    }
}

impl<'j> EffectSink<'j> for HintedEffects<'_, 'j, '_> {
    #[inline]
    fn effects(&mut self) -> &mut Effects<'j> {
        self.effects
    }

    #[inline]
    fn push_output(&mut self, outpoint: &OutPoint, coin: Coin<'_>, status: OutputStatus) {
        let is_for_join = self.cursor.is_for_join(outpoint, status);
        if status == OutputStatus::Unspent {
            if is_for_join {
                self.effects.push_creation(outpoint, coin);
            } else {
                self.sum.add(outpoint, Some(coin));
            }
        }
    }

    #[inline]
    fn push_spend(&mut self, outpoint: &OutPoint, claim: Coin<'_>, height: Height) {
        if claim.height() >= height {
            // Spends of coins of the same block have been matched before: see `Delta`.
            self.effects.push_mismatch(Mismatch::SpentBeforeCreated(*outpoint));
        }
        self.sum.subtract(outpoint, Some(claim));
    }
}

/// Applies a block without undo data: elements of the sum are outpoints. Returns the amount that its
/// unspendable outputs destroy, in satoshis.
pub fn apply_without_undo(
    block: &BlockView<'_>,
    txids: &[Txid],
    height: Height,
    hints: Hints<'_>,
    effects: &mut Effects<'_>,
    sum: &mut Sum,
) -> Result<u64, HintFlaw> {
    let mut cursor = HintCursor::new(hints);
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
            let is_for_join = cursor.is_for_join(&outpoint, status);
            if status == OutputStatus::Unspendable {
                burned = burned.saturating_add(output.value().0.max(0) as u64);
            } else if is_for_join {
                out.clear();
                compress_output(&mut out, output.value(), script);
                effects
                    .push_creation(&outpoint, Coin { code: Coin::code_of(height, is_coinbase), out: &out });
            } else {
                sum.add(&outpoint, None);
            }
        }
    }
    cursor.finish().map(|()| burned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once, it was a hash table of outpoints, which took up to 85 bytes for each.
    #[test]
    fn a_set_has_its_outpoints_only_and_takes_few_bytes_for_each() {
        let outpoint = |vout: u32| OutPoint { txid: Txid([vout as u8; 32]), vout };
        for count in [0, 1, 2, 100_000u32] {
            let key = SipKey(1, 2);
            let mut hashes = Vec::with_capacity(2 * count as usize);
            hashes.extend((0..count).map(|vout| OutPointSet::hash(key, &outpoint(vout))));
            let set = OutPointSet::new(key, hashes);
            assert!((0..2 * count.max(1)).all(|vout| set.contains(&outpoint(vout)) == (vout < count)));
            let bytes = 16 * set.hashes.capacity() + 4 * set.starts.capacity();
            assert!(bytes <= 16 * count as usize + 300_000, "{count} outpoints take {bytes} bytes");
        }
    }
}

//! What creations and spends carry besides their outpoint, and what a match of the two does.
//!
//! The join, sorted runs and merges move entries that carry a number and bytes (`code` and `out` of a
//! [`Coin`]) without reading them. A payload gives them a meaning. It must provide:
//!
//! - *An age.* [`crate::Join::take_oldest`] takes the entries with the lowest codes. A creation and its spend
//!   should have similar codes, or the spend a lower one: a spend whose creation has been taken only waits.
//! - *A form.* `out` is one compressed output, or looks like one, because a sorted run finds its end that
//!   way: VARINT(any number up to 64 bits) and the byte 6, an empty script, will do. Up to 47 bytes fit into
//!   a cell of the join.
//! - *A match.* [`Payload::on_match`] sees both entries before they are dropped. It may compare them, and it
//!   may keep something: each worker and each merge has its own value of the payload. Whatever it keeps is
//!   lost if the merge is repeated or the job resumed, unless the caller saves it with the remaining entries.
//! - *A size*, if it is needed: [`wire::NetSize`] is that of the coins that remain only if a creation and its
//!   spend have `out` of equal length.
//!
//! The payload is a type, so each is compiled separately, and a comparison that it does not need is absent.

use crate::mismatch::Mismatch;
use std::fmt::Debug;
use wire::{Coin, OutPoint, Reader, read::write_var_int};

/// The compressed form of an empty script: VARINT(0 + 6).
pub(crate) const EMPTY_SCRIPT: u8 = 6;

/// The payload of the creations and spends of a join.
pub trait Payload: Debug + Default + Send {
    /// Receives a creation and a spend of the same outpoint, which are dropped afterwards.
    ///
    /// # Errors
    /// A mismatch, if they contradict each other.
    fn on_match(&mut self, outpoint: OutPoint, creation: Coin<'_>, spend: Coin<'_>) -> Result<(), Mismatch>;
}

/// A payload whose creations carry whole coins.
pub trait CoinPayload: Payload {}

/// Whole coins: the claim of a spend must equal the coin, byte for byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct FullCoin;

impl Payload for FullCoin {
    #[inline]
    fn on_match(&mut self, outpoint: OutPoint, coin: Coin<'_>, claim: Coin<'_>) -> Result<(), Mismatch> {
        if coin == claim { Ok(()) } else { Err(Mismatch::ClaimDiffers(outpoint)) }
    }
}

impl CoinPayload for FullCoin {}

/// The index of an output in its block, instead of its amount and script: entries match by outpoint alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputIndex;

impl Payload for OutputIndex {
    #[inline]
    fn on_match(&mut self, _: OutPoint, _: Coin<'_>, _: Coin<'_>) -> Result<(), Mismatch> {
        Ok(())
    }
}

impl OutputIndex {
    /// Returns the payload of a creation, written to `out`.
    pub(crate) fn creation(code: u32, index: u32, out: &mut Vec<u8>) -> Coin<'_> {
        out.clear();
        write_var_int(out, index.into());
        out.push(EMPTY_SCRIPT);
        Coin { code, out }
    }

    /// Returns the payload of a spend, which has no index.
    pub(crate) const fn spend(code: u32) -> Coin<'static> {
        Coin { code, out: &[0, EMPTY_SCRIPT] }
    }

    /// Returns the index that a creation carries, or `None` if it is malformed.
    #[must_use]
    pub fn of(creation: &Coin<'_>) -> Option<u32> {
        u32::try_from(Reader::new(creation.out).var_int().ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Join, Merge, SHARDS,
        merge::{MergeError, ShardSource},
    };
    use wire::{Height, Txid};

    const fn outpoint(vout: u32) -> OutPoint {
        OutPoint { txid: Txid([0; 32]), vout }
    }

    /// Accepts only a creation of this `out` with a spend of that one.
    #[derive(Debug, Default)]
    struct Directed;

    const CREATED: Coin<'_> = Coin { code: 2, out: &[1] };
    const SPENT: Coin<'_> = Coin { code: 4, out: &[2] };

    impl Payload for Directed {
        fn on_match(
            &mut self,
            outpoint: OutPoint,
            creation: Coin<'_>,
            spend: Coin<'_>,
        ) -> Result<(), Mismatch> {
            if (creation, spend) == (CREATED, SPENT) { Ok(()) } else { Err(Mismatch::DoubleSpend(outpoint)) }
        }
    }

    /// Pushes a creation or a spend of the same outpoint.
    fn push(join: &Join<Directed>, spend: bool) {
        let mut effects = join.effects();
        if spend {
            effects.push_spend(&outpoint(0), SPENT, Height(9));
        } else {
            effects.push_creation(&outpoint(0), CREATED);
        }
    }

    #[test]
    fn a_match_has_the_creation_first_whichever_arrives_first() {
        for first in [false, true] {
            let join = Join::with_key((1, 2));
            push(&join, first);
            push(&join, !first);
            assert!(join.finish().is_ok(), "in the join, spend first: {first}");

            let source = |spend| {
                let join = Join::with_key((1, 2));
                push(&join, spend);
                ShardSource::new((0..SHARDS).map(|shard| join.take_oldest(shard, 1.0)).collect())
            };
            let mut merge = Merge::new(vec![source(first), source(!first)]).unwrap();
            assert_eq!(merge.advance(), Ok(None), "in a merge, spend first: {first}");
        }
    }

    #[test]
    fn the_payload_decides_what_a_mismatch_is() {
        let wrong = || {
            let join = Join::<Directed>::with_key((1, 2));
            push(&join, false);
            join
        };
        let join = wrong();
        join.effects().push_spend(&outpoint(0), CREATED, Height(9));
        assert_eq!(join.finish().unwrap_err(), [Mismatch::DoubleSpend(outpoint(0))]);

        let (left, right) = (wrong(), Join::with_key((1, 2)));
        right.effects().push_spend(&outpoint(0), CREATED, Height(9));
        let source = |join: Join<Directed>| ShardSource::new(join.finish_spilled().unwrap().into_shards());
        let mut merge = Merge::new(vec![source(left), source(right)]).unwrap();
        assert_eq!(merge.advance(), Err(MergeError::Mismatch(outpoint(0))));
    }

    #[test]
    fn output_indices_match_by_outpoint_alone() {
        let join = Join::<OutputIndex>::with_key((1, 2));
        let (mut effects, mut out) = (join.effects(), Vec::new());
        for (vout, index) in (0..).zip([7, 0, 127, 128, u32::MAX]) {
            effects.push_creation(&outpoint(vout), OutputIndex::creation(20, index, &mut out));
        }
        effects.push_spend(&outpoint(0), OutputIndex::spend(18), Height(30));
        drop(effects);
        let shard = join.finish().unwrap().into_shards().swap_remove(0).sort();
        let indices: Vec<_> = shard.iter().map(|entry| OutputIndex::of(&entry.coin)).collect();
        assert_eq!(indices, [Some(0), Some(127), Some(128), Some(u32::MAX)]);
        assert_eq!(OutputIndex::of(&Coin { code: 20, out: &[] }), None);
    }
}

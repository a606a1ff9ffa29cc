//! What the match of a creation and a spend does: it compares the coin with the claim, or delivers the coin
//! to the input that spends it.
//!
//! Where undo data is missing, only the outpoints of the spent coins are known. Such a spend is *routed*: in
//! place of a claim it carries the position of its input. What its match delivers is the coin that the input
//! spends: all deliveries to a block are its undo data. Spends with claims, of blocks whose undo data exists,
//! are in the same join.

use crate::mismatch::Mismatch;
use wire::{Coin, Height, OutPoint, Reader, read::write_var_int};

/// The compressed form of an empty script: VARINT(0 + 6).
const EMPTY_SCRIPT: u8 = 6;

/// Bits of the number of an input in its block. A block has at most 24,390 inputs: an input has 41 bytes or
/// more, and a block without witnesses at most 1,000,000.
const INPUT_BITS: u32 = 16;

/// An input that spends a coin. The order of the numbers is that of the chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Spender(u64);

impl Spender {
    /// The input with this index among all inputs of a block, except that of its coinbase; `None` above
    /// 65,535, which no valid block reaches.
    pub const fn new(height: Height, input: u32) -> Option<Self> {
        if input >> INPUT_BITS > 0 {
            return None;
        }
        Some(Self((height.0 as u64) << INPUT_BITS | input as u64))
    }

    pub const fn height(self) -> Height {
        Height((self.0 >> INPUT_BITS) as u32)
    }

    /// Its index among all inputs of its block, except that of the coinbase.
    pub const fn input(self) -> u32 {
        (self.0 & ((1 << INPUT_BITS) - 1)) as u32
    }

    /// Returns what a spend by this input carries in place of a claim, written to `out`. Its code, 0, is that
    /// of no coin. It is also the lowest one: such a spend is taken out of the join first, since its coin,
    /// which was created before, is not there. It looks like a compressed output, because a sorted run finds
    /// its end that way.
    pub(crate) fn carried(self, out: &mut Vec<u8>) -> Coin<'_> {
        out.clear();
        write_var_int(out, self.0);
        out.push(EMPTY_SCRIPT);
        Coin { code: 0, out }
    }

    /// Returns the input that a spend carries; `None` if it carries a claim.
    pub fn of(spend: &Coin<'_>) -> Option<Self> {
        if spend.code > 0 {
            return None;
        }
        Reader::new(spend.out).var_int().ok().map(Self)
    }
}

/// A coin on the way to the input that spends it. Deliveries are lost if the merge is repeated or the job
/// resumed, unless the caller has stored them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery<'a> {
    pub spender: Spender,
    /// [`Delivery::tag_of`] of the coin's outpoint.
    pub tag: u64,
    /// The coin as in undo data ([`Coin::write_undo`]).
    pub undo: &'a [u8],
}

impl<'a> Delivery<'a> {
    /// A delivery that no input accepts.
    pub const NONE: Delivery<'static> = Delivery { spender: Spender(u64::MAX), tag: 0, undo: &[] };

    /// Returns a number by which the receiver of a delivery recognises the outpoint: 64 bits of the txid and
    /// the index.
    #[inline]
    pub fn tag_of(outpoint: &OutPoint) -> u64 {
        let txid = outpoint.txid.0.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        txid ^ u64::from(outpoint.vout)
    }

    /// Splits the first delivery off `bytes`; `None` if they begin with none.
    #[inline]
    pub fn split_first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (spender, rest) = bytes.split_first_chunk()?;
        let (tag, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (undo, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
        let (spender, tag) = (Spender(u64::from_le_bytes(*spender)), u64::from_le_bytes(*tag));
        Some((Self { spender, tag, undo }, rest))
    }

    /// Appends the delivery of a coin to `bytes`.
    #[inline]
    pub fn encode(spender: Spender, outpoint: &OutPoint, coin: Coin<'_>, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&spender.0.to_le_bytes());
        bytes.extend_from_slice(&Self::tag_of(outpoint).to_le_bytes());
        let len_at = bytes.len();
        bytes.extend_from_slice(&[0; 2]);
        coin.write_undo(bytes);
        let len = (bytes.len() - len_at - 2) as u16;
        bytes[len_at..len_at + 2].copy_from_slice(&len.to_le_bytes());
    }
}

/// Matches a coin and a spend of the same outpoint, which are dropped afterwards. If the spend is routed,
/// appends the delivery of the coin to `deliveries`.
///
/// # Errors
/// A mismatch if they contradict each other: a claim must equal the coin, byte for byte.
#[inline]
pub(crate) fn match_spend(
    outpoint: OutPoint,
    coin: Coin<'_>,
    spend: Coin<'_>,
    deliveries: &mut Vec<u8>,
) -> Result<(), Mismatch> {
    match Spender::of(&spend) {
        None if coin == spend => Ok(()),
        None => Err(Mismatch::ClaimDiffers(outpoint)),
        // `Delta` has matched the spends of coins of the same block.
        Some(spender) if coin.height() < spender.height() => {
            Delivery::encode(spender, &outpoint, coin, deliveries);
            Ok(())
        }
        Some(_) => Err(Mismatch::SpentBeforeCreated(outpoint)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Effects, Join, Merge, SHARDS, SipKey, merge::ShardSource};
    use wire::Txid;

    fn outpoint(vout: u32) -> OutPoint {
        OutPoint { txid: Txid([3; 32]), vout }
    }

    fn spender(height: u32, input: u32) -> Spender {
        Spender::new(Height(height), input).unwrap()
    }

    /// Pushes the creation of a coin, or its spend.
    fn push(effects: &mut Effects<'_>, is_spend: bool) {
        let coin = Coin { code: Coin::code_of(Height(4), true), out: &[9, 6] };
        match is_spend {
            true => effects.push_routed_spend(&outpoint(1), spender(7, 2)),
            false => effects.push_creation(&outpoint(1), coin),
        }
    }

    #[test]
    fn spenders_are_in_chain_order_and_round_trip() {
        let all = [(0, 0), (0, 65_535), (1, 0), (900_000, 7), (u32::MAX, 65_535)];
        let spenders = all.map(|(height, input)| spender(height, input));
        assert!(spenders.is_sorted());
        let mut out = Vec::new();
        for (spender, (height, input)) in spenders.into_iter().zip(all) {
            assert_eq!((spender.height(), spender.input()), (Height(height), input));
            assert_eq!(Spender::of(&spender.carried(&mut out)), Some(spender));
        }
        assert_eq!(Spender::new(Height(0), 65_536), None);
        assert_eq!(Spender::of(&Coin { code: 2, out: &[0, 6] }), None);
    }

    #[test]
    fn a_match_delivers_the_coin_whichever_arrives_first() {
        for spend_first in [false, true] {
            let join = Join::new(SipKey(1, 2));
            let mut effects = join.effects();
            push(&mut effects, spend_first);
            push(&mut effects, !spend_first);
            effects.flush();
            let bytes = std::mem::take(effects.deliveries());
            let (delivery, rest) = Delivery::split_first(&bytes).unwrap();
            assert!(rest.is_empty());
            assert_eq!(delivery.spender, spender(7, 2));
            assert_eq!(delivery.tag, Delivery::tag_of(&outpoint(1)));
            assert_eq!(delivery.undo, [9, 0, 9, 6], "code, version, output");
            drop(effects);
            assert!(join.finish().is_ok());
            assert!((0..bytes.len()).all(|len| Delivery::split_first(&bytes[..len]).is_none()));
        }
    }

    #[test]
    fn a_match_in_a_merge_delivers_the_coin_whichever_comes_first() {
        for spend_first in [false, true] {
            let taken = |is_spend| {
                let join = Join::new(SipKey(1, 2));
                push(&mut join.effects(), is_spend);
                ShardSource::new((0..SHARDS).map(|shard| join.take_oldest(shard, 1.0)).collect())
            };
            let mut merge = Merge::new(vec![taken(spend_first), taken(!spend_first)]).unwrap();
            assert_eq!(merge.advance(), Ok(None));
            let delivered = Delivery::split_first(merge.deliveries()).unwrap().0;
            assert_eq!((delivered.spender, delivered.undo), (spender(7, 2), &[9, 0, 9, 6][..]));
        }
    }

    #[test]
    fn claims_and_spenders_share_a_join() {
        let coin = Coin { code: Coin::code_of(Height(4), false), out: &[9, 6] };
        let other = Coin { code: coin.code, out: &[8, 6] };
        let matched = |claim, height| {
            let join = Join::new(SipKey(1, 2));
            let mut effects = join.effects();
            effects.push_creation(&outpoint(0), coin);
            effects.push_creation(&outpoint(1), coin);
            effects.push_spend(&outpoint(0), claim, Height(9));
            effects.push_routed_spend(&outpoint(1), spender(height, 0));
            drop(effects);
            join.finish().map(|survivors| survivors.size().coins)
        };
        assert_eq!(matched(coin, 5), Ok(0));
        assert_eq!(matched(other, 5), Err(vec![Mismatch::ClaimDiffers(outpoint(0))]));
        assert_eq!(matched(coin, 4), Err(vec![Mismatch::SpentBeforeCreated(outpoint(1))]));
    }

    /// A match would take it for a routed spend, and accept any coin.
    #[test]
    #[should_panic(expected = "a claim with code 0")]
    fn a_claim_of_height_0_is_refused() {
        let join = Join::new(SipKey(1, 2));
        join.effects().push_spend(&outpoint(1), Coin { code: 0, out: &[0, EMPTY_SCRIPT] }, Height(7));
    }

    #[test]
    fn a_routed_spend_without_a_coin_is_missing() {
        let join = Join::new(SipKey(1, 2));
        join.effects().push_routed_spend(&outpoint(1), spender(7, 2));
        assert_eq!(join.finish().unwrap_err(), [Mismatch::MissingCoin(outpoint(1))]);
    }
}

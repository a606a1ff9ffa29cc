//! A k-way merge of sorted sources of creations and spends; matched pairs are dropped.
//!
//! It is the merge with a heap of the sources' next entries (Knuth, *The Art of Computer Programming*, vol.
//! 3, 5.4.1), and the heap is std's. A heap of our own took as long with 4 sources, and 13 % longer with 32
//! (medians of 5 runs in turns, 1.9 million entries in memory).
//!
//! It is the join for entries that exceeded the memory. Each source is in the order of the chainstate keys,
//! so a creation and its spend become adjacent, however far apart they were in the chain.
//!
//! # Why this is as exact as the join
//! The join's proof ([`crate::join`]) relies on two facts: for each outpoint the number of spends equals the
//! number of creations or is one less, and the claim of each spend equals the coin of its creation. A merge
//! preserves both. It drops a creation and a spend only together and only if they agree, passes on unmatched
//! entries, and reports anything else. That a spend is later than its creation is checked when it is pushed,
//! from the height in its claim, or when the two match if it is routed.

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, binary_heap::PeekMut},
    convert::Infallible,
};
use wire::{Coin, Entry, OutPoint, coin::chainstate_key_order};

use crate::{
    delivery::match_spend,
    survivors::{SortedShard, SurvivorShard},
};

/// Entries in the order of the chainstate keys.
pub trait EntrySource {
    type Error;

    /// Returns the next entry, which borrows this source's buffer, or `None` at the end.
    ///
    /// # Errors
    /// Any error of reading the source.
    fn advance(&mut self) -> Result<Option<Entry<'_>>, Self::Error>;
}

/// Number of matched pairs after which a merge pauses: what they deliver takes less than a megabyte, unless
/// scripts are large.
const PAIRS_UNTIL_PAUSE: u32 = 4_096;

/// The reason why a merge fails.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError<E> {
    /// A source failed.
    #[error(transparent)]
    EntrySource(#[from] E),
    /// The creations and spends of an outpoint do not match, so the blocks are not a valid chain or the undo
    /// data does not belong to it: sequential validation ([`crate::MemoryCoins`]) finds out which.
    #[error("creations and spends of {0} do not match; sequential validation names the block")]
    Mismatch(OutPoint),
}

/// A copy of an entry.
#[derive(Debug, Default)]
struct Head {
    is_spend: bool,
    outpoint: OutPoint,
    code: u32,
    out: Vec<u8>,
}

impl Head {
    fn set(&mut self, entry: &Entry<'_>) {
        (self.is_spend, self.outpoint, self.code) = (entry.is_spend, entry.outpoint, entry.coin.code);
        self.out.clear();
        self.out.extend_from_slice(entry.coin.out);
    }

    fn entry(&self) -> Entry<'_> {
        let coin = Coin { code: self.code, out: &self.out };
        Entry { is_spend: self.is_spend, outpoint: self.outpoint, coin }
    }
}

/// The next entry of a source. The order is that of the chainstate keys, reversed, since std's heap has the
/// greatest value on top.
#[derive(Debug)]
struct Next {
    /// The first 8 bytes of the key, which nearly always decide.
    prefix: u64,
    source: usize,
    head: Head,
}

impl Next {
    fn set(&mut self, entry: &Entry<'_>) {
        self.prefix = entry.outpoint.txid.0.first_chunk().map_or(0, |&bytes| u64::from_be_bytes(bytes));
        self.head.set(entry);
    }
}

impl Ord for Next {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let by_prefix = other.prefix.cmp(&self.prefix);
        by_prefix.then_with(|| chainstate_key_order(&other.head.outpoint, &self.head.outpoint))
    }
}

impl PartialOrd for Next {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Next {}

/// Returns whether two entries of one outpoint are a creation and its spend, and match.
#[inline]
fn are_matched(deliveries: &mut Vec<u8>, a: &Head, b: &Head) -> bool {
    let (creation, spend) = if a.is_spend { (b, a) } else { (a, b) };
    creation.is_spend != spend.is_spend
        && match_spend(a.outpoint, creation.entry().coin, spend.entry().coin, deliveries).is_ok()
}

/// The sources merged into one, without matched pairs.
#[derive(Debug)]
pub struct Merge<S: EntrySource> {
    deliveries: Vec<u8>,
    sources: Vec<S>,
    /// The next entry of each source that is not at its end.
    heap: BinaryHeap<Next>,
    /// The entry that was returned last.
    current: Head,
    /// Number of matched pairs since the last pause.
    pairs: u32,
}

impl<S: EntrySource> Merge<S> {
    /// Creates a merge and reads the first entry of each source.
    ///
    /// # Errors
    /// Any error of the sources.
    pub fn new(mut sources: Vec<S>) -> Result<Self, S::Error> {
        let mut heap = BinaryHeap::with_capacity(sources.len());
        for (number, source) in sources.iter_mut().enumerate() {
            if let Some(entry) = source.advance()? {
                let mut next = Next { prefix: 0, source: number, head: Head::default() };
                next.set(&entry);
                heap.push(next);
            }
        }
        let (deliveries, current, pairs) = Default::default();
        Ok(Self { deliveries, sources, heap, current, pairs })
    }

    /// Encoded deliveries since they were last cleared, in any order ([`crate::Delivery::split_first`]).
    pub const fn deliveries(&mut self) -> &mut Vec<u8> {
        &mut self.deliveries
    }

    pub fn is_at_end(&self) -> bool {
        self.heap.is_empty()
    }

    /// Returns the next unmatched entry; `None` at the end ([`Merge::is_at_end`]), and also after some
    /// matched pairs, so that the caller can take what they deliver, or stop.
    ///
    /// # Errors
    /// [`MergeError`]; the merge must not be used afterwards.
    pub fn advance(&mut self) -> Result<Option<Entry<'_>>, MergeError<S::Error>> {
        loop {
            let Some(mut top) = self.heap.peek_mut() else { return Ok(None) };
            std::mem::swap(&mut self.current, &mut top.head);
            refill(&mut self.sources, top)?;
            let mut is_unmatched = true;
            while let Some(mut top) = self.heap.peek_mut()
                && top.head.outpoint == self.current.outpoint
            {
                if !is_unmatched {
                    std::mem::swap(&mut self.current, &mut top.head);
                } else if !are_matched(&mut self.deliveries, &self.current, &top.head) {
                    return Err(MergeError::Mismatch(self.current.outpoint));
                }
                is_unmatched = !is_unmatched;
                refill(&mut self.sources, top)?;
            }
            if is_unmatched {
                return Ok(Some(self.current.entry()));
            }
            self.pairs += 1;
            if self.pairs == PAIRS_UNTIL_PAUSE {
                self.pairs = 0;
                return Ok(None);
            }
        }
    }
}

/// Replaces the entry on top of the heap by the next one of its source.
#[inline]
fn refill<S: EntrySource>(sources: &mut [S], mut top: PeekMut<'_, Next>) -> Result<(), S::Error> {
    match sources[top.source].advance()? {
        Some(entry) => top.set(&entry),
        None => drop(PeekMut::pop(top)),
    }
    Ok(())
}

/// A source that reads shards in order. Each is sorted when it is reached and freed after it has been read.
#[derive(Debug)]
pub struct ShardSource {
    shards: std::vec::IntoIter<SurvivorShard>,
    sorted: Option<SortedShard>,
    at: usize,
}

impl ShardSource {
    /// Creates a source from shards, which must be in ascending order.
    pub fn new(shards: Vec<SurvivorShard>) -> Self {
        Self { shards: shards.into_iter(), sorted: None, at: 0 }
    }
}

impl EntrySource for ShardSource {
    type Error = Infallible;

    fn advance(&mut self) -> Result<Option<Entry<'_>>, Infallible> {
        while self.sorted.as_ref().is_none_or(|sorted| self.at == sorted.len()) {
            self.sorted = None;
            let Some(shard) = self.shards.next() else { return Ok(None) };
            (self.sorted, self.at) = (Some(shard.sort()), 0);
        }
        self.at += 1;
        Ok(self.sorted.as_ref().map(|sorted| sorted.entry(self.at - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spender;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use wire::{Height, Txid};

    /// (txid byte, vout, spend, code, out)
    type Row = (u8, u32, bool, u32, Vec<u8>);

    struct Rows(std::vec::IntoIter<Row>, Row);

    impl EntrySource for Rows {
        type Error = &'static str;

        fn advance(&mut self) -> Result<Option<Entry<'_>>, &'static str> {
            let Some(row) = self.0.next() else { return Ok(None) };
            if row.3 == u32::MAX {
                return Err("cannot be read");
            }
            self.1 = row;
            Ok(Some(entry(&self.1)))
        }
    }

    fn outpoint(row: &Row) -> OutPoint {
        OutPoint { txid: Txid([row.0; 32]), vout: row.1 }
    }

    fn entry(row: &Row) -> Entry<'_> {
        Entry { is_spend: row.2, outpoint: outpoint(row), coin: Coin { code: row.3, out: &row.4 } }
    }

    fn merged(sources: Vec<Vec<Row>>) -> Result<Vec<Row>, MergeError<&'static str>> {
        let source = |mut rows: Vec<Row>| {
            rows.sort_by(|a, b| chainstate_key_order(&outpoint(a), &outpoint(b)));
            Rows(rows.into_iter(), Row::default())
        };
        let mut merge = Merge::new(sources.into_iter().map(source).collect())?;
        let mut rows = Vec::new();
        while let Some(Entry { is_spend, outpoint, coin }) = merge.advance()? {
            rows.push((outpoint.txid.0[0], outpoint.vout, is_spend, coin.code, coin.out.to_vec()));
        }
        assert!(merge.is_at_end());
        Ok(rows)
    }

    /// A caller once got what all pairs of a merge deliver at once, however many there were.
    #[test]
    fn a_merge_of_pairs_pauses_so_that_deliveries_can_be_taken() {
        let mut carried = Vec::new();
        Spender::new(Height(3), 0).unwrap().carried(&mut carried);
        let [creations, spends] =
            [(false, 4, vec![7, 6]), (true, 0, carried)].map(|(is_spend, code, out)| {
                let row = |vout| (1, vout, is_spend, code, out.clone());
                Rows((0..10_000).map(row).collect::<Vec<_>>().into_iter(), Row::default())
            });
        let (mut merge, mut largest, mut pauses) = (Merge::new(vec![creations, spends]).unwrap(), 0, 0);
        while !merge.is_at_end() {
            assert_eq!(merge.advance().unwrap(), None);
            largest = largest.max(merge.deliveries().len());
            merge.deliveries().clear();
            pauses += 1;
        }
        assert_eq!(pauses, 3);
        assert!((1..200_000).contains(&largest), "{largest}");
    }

    #[test]
    fn reports_mismatches_and_errors_of_sources() {
        let created = (1, 0, false, 4, vec![7]);
        let spent = (1, 0, true, 4, vec![7]);
        let mismatch = |rows: Vec<Vec<Row>>| merged(rows) == Err(MergeError::Mismatch(outpoint(&created)));
        assert_eq!(merged(vec![vec![created.clone()], vec![spent.clone()]]), Ok(vec![]));
        assert_eq!(merged(vec![vec![spent.clone(), created.clone()]]), Ok(vec![]), "within one source");
        assert!(mismatch(vec![vec![created.clone()], vec![created.clone()]]), "created twice");
        assert!(mismatch(vec![vec![spent.clone()], vec![spent.clone()]]), "spent twice");
        let claimed = |code: u32, out: u8| vec![vec![created.clone()], vec![(1, 0, true, code, vec![out])]];
        assert!(mismatch(claimed(6, 7)), "other height claimed");
        assert!(mismatch(claimed(4, 8)), "other output claimed");
        let unreadable = vec![vec![created], vec![(2, 0, false, u32::MAX, vec![])]];
        assert_eq!(merged(unreadable), Err(MergeError::EntrySource("cannot be read")));
    }

    proptest! {
        /// However entries are distributed over the sources, the result equals that of a map: sorted by key,
        /// without matched pairs.
        #[test]
        fn equals_a_map_without_matched_pairs(
            rows in prop::collection::btree_map(
                (0u8..6, prop_oneof![0u32..4, 16_300..16_600u32]), 0u8..4, 0..60,
            ),
            places in prop::collection::vec(0usize..5, 120),
        ) {
            let mut sources = vec![Vec::new(); 5];
            let mut left = BTreeMap::new();
            let mut places = places.into_iter().cycle();
            for ((txid, vout), kind) in rows {
                let row = |spend| (txid, vout, spend, u32::from(txid) * 2 + 2, vec![vout as u8; 3]);
                for spend in [false, true].into_iter().filter(|&spend| kind & (1 << u8::from(spend)) > 0) {
                    sources[places.next().unwrap()].push(row(spend));
                    if kind != 3 {
                        let mut key = Vec::new();
                        wire::coin::write_chainstate_key(&mut key, &outpoint(&row(spend)));
                        left.insert(key, row(spend));
                    }
                }
            }
            prop_assert_eq!(merged(sources).unwrap(), left.into_values().collect::<Vec<_>>());
        }
    }
}

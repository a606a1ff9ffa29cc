//! A k-way merge, with a binary heap, of sorted sources of creations and spends; matched pairs are dropped
//! (Knuth, *The Art of Computer Programming*, vol. 3, 5.4.1).
//!
//! It is the join for entries that exceeded the memory. Each source is in the order of the chainstate keys,
//! so a creation and its spend become adjacent, however far apart they were in the chain.
//!
//! # Why this is as exact as the join
//! The join's proof ([`crate::join`]) relies on two facts: for each outpoint the number of spends equals the
//! number of creations or is one less, and the claim of each spend equals the coin of its creation. A merge
//! preserves both. It drops a creation and a spend only together and only if they agree, passes on unmatched
//! entries, and reports anything else. That a spend is later than its creation is checked when it is pushed,
//! from the height in its claim.

use std::convert::Infallible;
use wire::{Coin, Entry, OutPoint, coin::chainstate_key_order};

use crate::payload::{FullCoin, Payload};
use crate::survivors::{SortedShard, SurvivorShard};

/// Entries in the order of the chainstate keys.
pub trait EntrySource {
    /// What its entries carry.
    type Payload: Payload;
    /// The error with which the source can fail.
    type Error;

    /// Returns the next entry, which borrows this source's buffer, or `None` at the end.
    ///
    /// # Errors
    /// Any error of reading the source.
    fn advance(&mut self) -> Result<Option<Entry<'_>>, Self::Error>;
}

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

/// A copy of the next entry of a source.
#[derive(Debug, Default)]
struct Head {
    spend: bool,
    outpoint: OutPoint,
    code: u32,
    out: Vec<u8>,
}

impl Head {
    fn set(&mut self, entry: &Entry<'_>) {
        (self.spend, self.outpoint, self.code) = (entry.spend, entry.outpoint, entry.coin.code);
        self.out.clear();
        self.out.extend_from_slice(entry.coin.out);
    }

    fn entry(&self) -> Entry<'_> {
        let coin = Coin { code: self.code, out: &self.out };
        Entry { spend: self.spend, outpoint: self.outpoint, coin }
    }
}

/// Returns whether two entries of one outpoint are a creation and its spend, and match.
#[inline]
fn are_matched(payload: &mut impl Payload, a: &Head, b: &Head) -> bool {
    let (creation, spend) = if a.spend { (b, a) } else { (a, b) };
    creation.spend != spend.spend
        && payload.on_match(a.outpoint, creation.entry().coin, spend.entry().coin).is_ok()
}

/// The sources merged into one, without matched pairs.
#[derive(Debug)]
pub struct Merge<S: EntrySource> {
    payload: S::Payload,
    sources: Vec<S>,
    heads: Vec<Head>,
    /// A binary heap with the smallest key on top: the key's first 8 bytes and the index of the source.
    heap: Vec<(u64, u32)>,
    /// The entry that was returned last.
    current: Head,
}

impl<S: EntrySource> Merge<S> {
    /// Creates a merge and reads the first entry of each source.
    ///
    /// # Errors
    /// Any error of the sources.
    pub fn new(sources: Vec<S>) -> Result<Self, S::Error> {
        let heads = sources.iter().map(|_| Head::default()).collect();
        let (payload, heap, current) = Default::default();
        let mut merge = Self { payload, sources, heads, heap, current };
        for number in 0..merge.sources.len() {
            if let Some(prefix) = merge.pull(number)? {
                merge.heap.push((prefix, number as u32));
            }
        }
        for at in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(at);
        }
        Ok(merge)
    }

    /// Returns the next unmatched entry, or `None` at the end.
    ///
    /// # Errors
    /// [`MergeError`]; the merge must not be used afterwards.
    pub fn advance(&mut self) -> Result<Option<Entry<'_>>, MergeError<S::Error>> {
        loop {
            let Some(&(_, top)) = self.heap.first() else { return Ok(None) };
            std::mem::swap(&mut self.current, &mut self.heads[top as usize]);
            self.replace_top(top as usize)?;
            let mut is_unmatched = true;
            while let Some(&(_, next)) = self.heap.first()
                && self.heads[next as usize].outpoint == self.current.outpoint
            {
                if !is_unmatched {
                    std::mem::swap(&mut self.current, &mut self.heads[next as usize]);
                } else if !are_matched(&mut self.payload, &self.current, &self.heads[next as usize]) {
                    return Err(MergeError::Mismatch(self.current.outpoint));
                }
                is_unmatched = !is_unmatched;
                self.replace_top(next as usize)?;
            }
            if is_unmatched {
                return Ok(Some(self.current.entry()));
            }
        }
    }

    /// Replaces the head of `source`, which is on top of the heap, by the source's next entry.
    fn replace_top(&mut self, source: usize) -> Result<(), S::Error> {
        match self.pull(source)? {
            Some(prefix) => self.heap[0].0 = prefix,
            None => {
                self.heap.swap_remove(0);
            }
        }
        self.sift_down(0);
        Ok(())
    }

    /// Reads the next entry of a source into its head and returns the first 8 bytes of its key.
    fn pull(&mut self, source: usize) -> Result<Option<u64>, S::Error> {
        let Some(entry) = self.sources[source].advance()? else { return Ok(None) };
        self.heads[source].set(&entry);
        Ok(Some(entry.outpoint.txid.0.first_chunk().map_or(0, |&bytes| u64::from_be_bytes(bytes))))
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut smallest = at;
            for child in [left, right] {
                if child < self.heap.len() && self.is_less(child, smallest) {
                    smallest = child;
                }
            }
            if smallest == at {
                return;
            }
            self.heap.swap(at, smallest);
            at = smallest;
        }
    }

    fn is_less(&self, a: usize, b: usize) -> bool {
        let ((a_prefix, a), (b_prefix, b)) = (self.heap[a], self.heap[b]);
        a_prefix.cmp(&b_prefix).then_with(|| {
            chainstate_key_order(&self.heads[a as usize].outpoint, &self.heads[b as usize].outpoint)
        }) == std::cmp::Ordering::Less
    }
}

/// A source that reads shards in order. Each is sorted when it is reached and freed after it has been read.
#[derive(Debug)]
pub struct ShardSource<P = FullCoin> {
    shards: std::vec::IntoIter<SurvivorShard<P>>,
    sorted: Option<SortedShard>,
    at: usize,
}

impl<P> ShardSource<P> {
    /// Creates a source from shards, which must be in ascending order.
    #[must_use]
    pub fn new(shards: Vec<SurvivorShard<P>>) -> Self {
        Self { shards: shards.into_iter(), sorted: None, at: 0 }
    }
}

impl<P: Payload> EntrySource for ShardSource<P> {
    type Payload = P;
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
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use wire::Txid;

    /// (txid byte, vout, spend, code, out)
    type Row = (u8, u32, bool, u32, Vec<u8>);

    struct Rows(std::vec::IntoIter<Row>, Row);

    impl EntrySource for Rows {
        type Payload = FullCoin;
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
        Entry { spend: row.2, outpoint: outpoint(row), coin: Coin { code: row.3, out: &row.4 } }
    }

    fn merged(sources: Vec<Vec<Row>>) -> Result<Vec<Row>, MergeError<&'static str>> {
        let source = |mut rows: Vec<Row>| {
            rows.sort_by(|a, b| chainstate_key_order(&outpoint(a), &outpoint(b)));
            Rows(rows.into_iter(), Row::default())
        };
        let mut merge = Merge::new(sources.into_iter().map(source).collect())?;
        let mut rows = Vec::new();
        while let Some(Entry { spend, outpoint, coin }) = merge.advance()? {
            rows.push((outpoint.txid.0[0], outpoint.vout, spend, coin.code, coin.out.to_vec()));
        }
        Ok(rows)
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
        assert!(
            mismatch(vec![vec![created.clone()], vec![(1, 0, true, 6, vec![7])]]),
            "other height claimed"
        );
        assert!(
            mismatch(vec![vec![created.clone()], vec![(1, 0, true, 4, vec![8])]]),
            "other output claimed"
        );
        assert_eq!(
            merged(vec![vec![created], vec![(2, 0, false, u32::MAX, vec![])]]),
            Err(MergeError::EntrySource("cannot be read"))
        );
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
                let row = |spend| (txid, vout, spend, u32::from(txid) * 2, vec![vout as u8; 3]);
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

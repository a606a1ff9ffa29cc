//! Sorted creations and spends from several places, brought together: what meets, goes.
//!
//! This is the join for what did not fit into memory. Each source is in the order of the chainstate keys, so
//! a creation and the spend of it come up next to each other, however far apart they were in the chain.
//!
//! # Why this is as exact as the join
//! The join's proof ([`crate::join`]) counts: for each outpoint as many spends as creations, or one less, and
//! each spend claims what its creation says. A merge keeps these counts. It drops a creation and a spend only
//! together and only if they agree, passes on what is alone, and reports anything else. That a spend is later
//! than its creation is seen when it is pushed, from the height that it claims.

use std::convert::Infallible;
use wire::{Coin, Entry, OutPoint, coin::chainstate_key_order};

use crate::survivors::{SortedShard, SurvivorShard};

/// Entries in the order of the chainstate keys.
pub trait EntrySource {
    /// Why it can end early.
    type Error;

    /// The next entry, in this source's own buffer.
    ///
    /// # Errors
    /// What keeps it from telling.
    fn advance(&mut self) -> Result<Option<Entry<'_>>, Self::Error>;
}

/// Why a merge ends early.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError<E> {
    /// A source failed.
    #[error(transparent)]
    EntrySource(#[from] E),
    /// The creations and spends of an outpoint do not fit each other, so the blocks are not a valid chain or
    /// the undo data not its: [`crate::ordered`] can tell.
    #[error("creations and spends of {0} do not fit each other; judge the chain in order to name the block")]
    Mismatch(OutPoint),
}

/// What is next in a source, copied out of it.
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

/// The sources as one, without the pairs that cancel.
#[derive(Debug)]
pub struct Merge<S> {
    /// Whether a spend must claim what its creation says.
    exact: bool,
    sources: Vec<S>,
    heads: Vec<Head>,
    /// A heap, smallest key on top: the key's first 8 bytes and the source.
    heap: Vec<(u64, u32)>,
    /// The entry last given.
    held: Head,
}

impl<S: EntrySource> Merge<S> {
    /// Begins with the first entry of each source. `exact` as the join whose entries these are: false for
    /// [`crate::Join::of_outpoints_only`].
    ///
    /// # Errors
    /// As the sources.
    pub fn new(sources: Vec<S>, exact: bool) -> Result<Self, S::Error> {
        let heads = sources.iter().map(|_| Head::default()).collect();
        let mut merge = Self { exact, sources, heads, heap: Vec::new(), held: Head::default() };
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

    /// The next entry that met no other.
    ///
    /// # Errors
    /// [`MergeError`]; the merge is of no use thereafter.
    pub fn advance(&mut self) -> Result<Option<Entry<'_>>, MergeError<S::Error>> {
        loop {
            let Some(&(_, top)) = self.heap.first() else { return Ok(None) };
            std::mem::swap(&mut self.held, &mut self.heads[top as usize]);
            self.replace_top(top as usize)?;
            let mut alone = true;
            while let Some(&(_, next)) = self.heap.first()
                && self.heads[next as usize].outpoint == self.held.outpoint
            {
                let head = &self.heads[next as usize];
                if !alone {
                    std::mem::swap(&mut self.held, &mut self.heads[next as usize]);
                } else if head.spend != self.held.spend
                    && (!self.exact || head.entry().coin == self.held.entry().coin)
                {
                } else {
                    return Err(MergeError::Mismatch(self.held.outpoint));
                }
                alone = !alone;
                self.replace_top(next as usize)?;
            }
            if alone {
                return Ok(Some(self.held.entry()));
            }
        }
    }

    /// Replaces the source's head, which is on top of the heap.
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

    /// Takes the source's next entry as its head.
    fn pull(&mut self, source: usize) -> Result<Option<u64>, S::Error> {
        let Some(entry) = self.sources[source].advance()? else { return Ok(None) };
        self.heads[source].set(&entry);
        Ok(Some(entry.outpoint.txid.0.first_chunk().map_or(0, |&bytes| u64::from_be_bytes(bytes))))
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            for child in [left, right] {
                if child < self.heap.len() && self.is_less(child, least) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }

    fn is_less(&self, a: usize, b: usize) -> bool {
        let ((a_prefix, a), (b_prefix, b)) = (self.heap[a], self.heap[b]);
        a_prefix.cmp(&b_prefix).then_with(|| {
            chainstate_key_order(&self.heads[a as usize].outpoint, &self.heads[b as usize].outpoint)
        }) == std::cmp::Ordering::Less
    }
}

/// Shards in order, each sorted when its turn comes and freed after it.
#[derive(Debug)]
pub struct ShardSource {
    shards: std::vec::IntoIter<SurvivorShard>,
    sorted: Option<SortedShard>,
    at: usize,
}

impl ShardSource {
    /// Of shards that follow each other.
    #[must_use]
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
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use wire::Txid;

    /// (txid byte, vout, spend, code, out)
    type Row = (u8, u32, bool, u32, Vec<u8>);

    struct Rows(std::vec::IntoIter<Row>, Row);

    impl EntrySource for Rows {
        type Error = &'static str;

        fn advance(&mut self) -> Result<Option<Entry<'_>>, &'static str> {
            let Some(row) = self.0.next() else { return Ok(None) };
            if row.3 == u32::MAX {
                return Err("torn");
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
        let mut merge = Merge::new(sources.into_iter().map(source).collect(), true)?;
        let mut rows = Vec::new();
        while let Some(Entry { spend, outpoint, coin }) = merge.advance()? {
            rows.push((outpoint.txid.0[0], outpoint.vout, spend, coin.code, coin.out.to_vec()));
        }
        Ok(rows)
    }

    #[test]
    fn what_does_not_fit_is_reported_and_sources_may_fail() {
        let made = (1, 0, false, 4, vec![7]);
        let spent = (1, 0, true, 4, vec![7]);
        let mismatch = |rows: Vec<Vec<Row>>| merged(rows) == Err(MergeError::Mismatch(outpoint(&made)));
        assert_eq!(merged(vec![vec![made.clone()], vec![spent.clone()]]), Ok(vec![]));
        assert_eq!(merged(vec![vec![spent.clone(), made.clone()]]), Ok(vec![]), "in one source too");
        assert!(mismatch(vec![vec![made.clone()], vec![made.clone()]]), "made twice");
        assert!(mismatch(vec![vec![spent.clone()], vec![spent.clone()]]), "spent twice");
        assert!(mismatch(vec![vec![made.clone()], vec![(1, 0, true, 6, vec![7])]]), "other height claimed");
        assert!(mismatch(vec![vec![made.clone()], vec![(1, 0, true, 4, vec![8])]]), "other output claimed");
        assert_eq!(
            merged(vec![vec![made], vec![(2, 0, false, u32::MAX, vec![])]]),
            Err(MergeError::EntrySource("torn"))
        );
    }

    proptest! {
        /// Whatever lies where, what comes out is what a map says: sorted by key, met pairs gone.
        #[test]
        fn merges_as_a_map(
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

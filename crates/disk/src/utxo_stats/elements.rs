//! Encodes coins as the elements that the hashes cover, and hashes them.

use super::{CoinCounter, UtxoCounts, UtxoStats};
use digest::{muhash::MuHash3072, sha256::Sha256};
use wire::coin::{CoinError, write_utxo_element};
use wire::read::Reader;
use wire::{Coin, OutPoint, UtxoElement};

/// The statistics of a range of txids, and its elements that are not hashed yet.
#[derive(Clone, Debug)]
pub struct StatsPart {
    counter: CoinCounter,
    muhash: Option<MuHash3072>,
    /// Elements in hash order; those from `group_start` are of the current transaction and in key order.
    elements: Vec<u8>,
    group_start: usize,
    last_vout: u32,
    /// Whether key order and numeric order are the same in the current transaction.
    is_sorted: bool,
}

impl StatsPart {
    /// Creates an empty part. `muhash`: whether to compute that hash too (about 3 us per coin).
    pub fn new(muhash: bool) -> Self {
        Self::with_buffer(Vec::new(), muhash)
    }

    /// Creates an empty part that uses `buffer`, which must be empty, for its elements.
    pub(super) fn with_buffer(buffer: Vec<u8>, muhash: bool) -> Self {
        Self {
            counter: CoinCounter::default(),
            muhash: muhash.then(MuHash3072::new),
            elements: buffer,
            group_start: 0,
            last_vout: 0,
            is_sorted: true,
        }
    }

    /// Adds a coin. Coins must be in the order of chainstate keys, those of one transaction in one part.
    ///
    /// # Errors
    /// [`CoinError`] if `out` is not one compressed output; the part is unusable then.
    pub fn add(&mut self, outpoint: &OutPoint, coin: &Coin<'_>) -> Result<(), CoinError> {
        let (amount, script) = coin.output()?;
        if self.counter.add_parsed(outpoint, coin, amount, script.script_len()) {
            self.end_group();
        } else {
            self.is_sorted &= self.last_vout < outpoint.vout;
        }
        self.last_vout = outpoint.vout;
        let start = self.elements.len();
        write_utxo_element(&mut self.elements, outpoint, coin.code, amount, script)?;
        if let Some(muhash) = &mut self.muhash {
            muhash.insert(self.elements.get(start..).unwrap_or_default());
        }
        Ok(())
    }

    /// Number of bytes that [`StatsPart::take_elements`] would return.
    pub const fn ready_len(&self) -> usize {
        self.group_start
    }

    /// Takes the elements of complete transactions, for [`UtxoHasher::hash`]; `buffer` becomes the part's
    /// next buffer.
    pub fn take_elements(&mut self, mut buffer: Vec<u8>) -> Vec<u8> {
        buffer.clear();
        buffer.extend_from_slice(self.elements.get(self.group_start..).unwrap_or_default());
        self.elements.truncate(self.group_start);
        self.group_start = 0;
        std::mem::replace(&mut self.elements, buffer)
    }

    /// Takes the remaining elements, including those of the last transaction.
    pub fn take_rest(&mut self) -> Vec<u8> {
        self.end_group();
        self.take_elements(Vec::new())
    }

    pub const fn counts(&self) -> UtxoCounts {
        self.counter.counts()
    }

    /// Completes the current transaction.
    fn end_group(&mut self) {
        if !self.is_sorted {
            self.sort_group();
        }
        self.is_sorted = true;
        self.group_start = self.elements.len();
    }

    /// Sorts the current transaction's elements by `vout`: key order is not numeric from 16512.
    #[cold]
    fn sort_group(&mut self) {
        let group = self.elements.split_off(self.group_start);
        let (mut reader, mut parts) = (Reader::new(&group), Vec::new());
        while let Ok(element) = UtxoElement::read(&mut reader) {
            parts.push(element);
        }
        parts.sort_unstable_by_key(|element| element.outpoint.vout);
        parts.iter().for_each(|element| element.write(&mut self.elements));
    }
}

/// Hashes elements and adds up the counts of the parts.
#[derive(Clone, Debug)]
pub struct UtxoHasher {
    sha: Sha256,
    counts: UtxoCounts,
    muhash: Option<MuHash3072>,
}

impl UtxoHasher {
    /// Creates the hasher of an empty set; `muhash` as in the parts.
    pub fn new(muhash: bool) -> Self {
        Self { sha: Sha256::new(), counts: UtxoCounts::ZERO, muhash: muhash.then(MuHash3072::new) }
    }

    /// Hashes elements taken from a part. Parts must come in the order of their txids.
    pub fn hash(&mut self, elements: &[u8]) {
        self.sha.update(elements);
    }

    /// Adds a part: hashes its remaining elements, and adds its counts and MuHash.
    pub fn merge(&mut self, mut part: StatsPart) {
        self.hash(&part.take_rest());
        self.counts.merge(part.counts());
        match (&mut self.muhash, part.muhash) {
            (Some(muhash), Some(other)) => muhash.combine(&other),
            (muhash, _) => *muhash = None,
        }
    }

    /// Number of coins in the parts so far.
    pub(super) const fn txouts(&self) -> u64 {
        self.counts.txouts
    }

    pub fn finish(self) -> UtxoStats {
        UtxoStats {
            counts: self.counts,
            hash_serialized_3: self.sha.finalize_double(),
            muhash: self.muhash.map(MuHash3072::finalize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::btree_set, prelude::*};
    use wire::coin::{chainstate_key_order, compressed_output};
    use wire::{Sats, Txid};

    fn coins(outpoints: &[(u8, u32)]) -> Vec<(OutPoint, Vec<u8>)> {
        let mut coins: Vec<_> = outpoints
            .iter()
            .map(|&(byte, vout)| {
                let out = compressed_output(Sats(vout.into()), &vec![byte; byte as usize]);
                (OutPoint { txid: Txid([byte; 32]), vout }, out)
            })
            .collect();
        coins.sort_by(|(a, _), (b, _)| chainstate_key_order(a, b));
        coins
    }

    /// The model: all elements in numeric order, hashed at once.
    fn model_hash(mut coins: Vec<(OutPoint, Vec<u8>)>) -> [u8; 32] {
        coins.sort_by_key(|(outpoint, _)| *outpoint);
        let mut all = Vec::new();
        coins.iter().for_each(|(outpoint, out)| {
            Coin { code: 7, out }.write_utxo_element(outpoint, &mut all).unwrap()
        });
        digest::sha256::sha256d(&all)
    }

    proptest! {
        #[test]
        fn vouts_are_hashed_in_numeric_order_however_elements_are_taken(
            outpoints in btree_set((0u8..5, prop_oneof![0u32..3, 16_500u32..16_520, any::<u32>()]), 0..40),
            drain in 1usize..5,
            split in 0u8..5,
        ) {
            let coins = coins(&outpoints.into_iter().collect::<Vec<_>>());
            let mut hasher = UtxoHasher::new(true);
            let mut parts = [StatsPart::new(true), StatsPart::new(true)];
            for (count, (outpoint, out)) in coins.iter().enumerate() {
                let part = &mut parts[usize::from(outpoint.txid.0[0] >= split)];
                part.add(outpoint, &Coin { code: 7, out }).unwrap();
                // Elements of the second part must not be hashed before the first part is complete.
                if outpoint.txid.0[0] < split && count % drain == 0 {
                    let ready = part.ready_len();
                    let elements = part.take_elements(Vec::new());
                    prop_assert_eq!(elements.len(), ready);
                    hasher.hash(&elements);
                }
            }
            parts.into_iter().for_each(|part| hasher.merge(part));
            let stats = hasher.finish();
            prop_assert_eq!(stats.hash_serialized_3, model_hash(coins.clone()));
            prop_assert_eq!(stats.counts.txouts, coins.len() as u64);
            let script_bytes: u64 = coins.iter().map(|(outpoint, _)| u64::from(outpoint.txid.0[0])).sum();
            prop_assert_eq!(stats.counts.bogosize, 50 * stats.counts.txouts + script_bytes);
            let sum: i64 = coins.iter().map(|(outpoint, _)| i64::from(outpoint.vout)).sum();
            prop_assert_eq!(stats.counts.total_amount, Some(Sats(sum)));
        }
    }

    #[test]
    fn coin_counter_and_stats_part_count_the_same() {
        let coins = coins(&[(1, 0), (1, 16_511), (1, 16_512), (2, 3), (4, 0)]);
        let (mut counter, mut part) = (CoinCounter::default(), StatsPart::new(false));
        for (outpoint, out) in &coins {
            counter.add(outpoint, &Coin { code: 7, out }).unwrap();
            part.add(outpoint, &Coin { code: 7, out }).unwrap();
        }
        assert_eq!(counter.counts(), part.counts());
        assert_eq!((counter.counts().txouts, counter.counts().transactions), (5, 3));
    }
}

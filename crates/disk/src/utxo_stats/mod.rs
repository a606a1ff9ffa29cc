//! The statistics of Core's `gettxoutsetinfo`: the two hashes, counts and sums of a UTXO set.
//!
//! Source: Core `kernel/coinstats.cpp`. `hash_serialized_3` is the SHA-256d of one long string: for each
//! transaction in the order of txid bytes, for each of its coins in numeric order of `vout`, the coin's
//! element (`wire::Coin::write_utxo_element`). MuHash covers the same elements in any order.
//!
//! Only one thread can hash one string, so all other work is done elsewhere: any number of [`StatsPart`]s
//! turn coins into elements, count them, and update MuHash; the [`UtxoHasher`] only hashes bytes, part after
//! part. A [`CoinCounter`] computes, without hashing, what does not depend on the order of ranges.

mod count;
mod elements;
mod read_back;

pub use count::CoinCounter;
pub use elements::{StatsPart, UtxoHasher};
pub use read_back::{ElementSink, READER_BYTES, ReadBackProgress, stats_unless_stopped};

use wire::Sats;

/// The results of `gettxoutsetinfo`. The bytes of hashes are in the order of the hash function; as text they
/// are reversed, as Core prints them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UtxoStats {
    /// What does not depend on the order of ranges.
    pub counts: UtxoCounts,
    pub hash_serialized_3: [u8; 32],
    /// `muhash`, if it was requested.
    pub muhash: Option<[u8; 32]>,
}

/// The statistics that do not depend on the order of ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UtxoCounts {
    /// Number of coins.
    pub txouts: u64,
    /// Number of transactions that have coins.
    pub transactions: u64,
    /// Core's measure of size, independent of the database: 50 bytes and the script for each coin.
    pub bogosize: u64,
    /// Sum of all amounts; `None` if it overflows.
    pub total_amount: Option<Sats>,
    /// Sum of a hash of each coin, to compare two copies; it detects accidents, not forgery.
    pub checksum: u64,
}

impl UtxoCounts {
    pub const ZERO: Self =
        Self { txouts: 0, transactions: 0, bogosize: 0, total_amount: Some(Sats(0)), checksum: 0 };

    pub fn merge(&mut self, other: Self) {
        self.txouts += other.txouts;
        self.transactions += other.transactions;
        self.bogosize += other.bogosize;
        self.checksum = self.checksum.wrapping_add(other.checksum);
        self.add_amount(other.total_amount);
    }

    /// Returns the counts without those of coins that are among them. Which transactions have other coins is
    /// not known: their number is 0.
    #[must_use]
    pub fn without(self, spent: &Self) -> Self {
        let amounts = self.total_amount.zip(spent.total_amount);
        Self {
            txouts: self.txouts - spent.txouts,
            transactions: 0,
            bogosize: self.bogosize - spent.bogosize,
            total_amount: amounts.and_then(|(Sats(all), Sats(spent))| all.checked_sub(spent).map(Sats)),
            checksum: self.checksum.wrapping_sub(spent.checksum),
        }
    }

    fn add_amount(&mut self, amount: Option<Sats>) {
        self.total_amount = match (self.total_amount, amount) {
            (Some(Sats(sum)), Some(Sats(amount))) => sum.checked_add(amount).map(Sats),
            _ => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_amount_is_none_after_an_overflow() {
        let mut counts = UtxoCounts::ZERO;
        counts.add_amount(Some(Sats(i64::MAX)));
        assert_eq!(counts.total_amount, Some(Sats(i64::MAX)));
        counts.add_amount(Some(Sats(1)));
        counts.merge(UtxoCounts::ZERO);
        assert_eq!(counts.total_amount, None);
    }

    #[test]
    fn coins_that_are_added_and_taken_away_leave_the_others() {
        let count = |vouts: std::ops::Range<u32>| {
            let mut counter = CoinCounter::default();
            for vout in vouts {
                let outpoint = wire::OutPoint { txid: wire::Txid([3; 32]), vout };
                let out = wire::coin::compressed_output(Sats(i64::from(vout) + 5), &[vout as u8; 30]);
                counter.add(&outpoint, &wire::Coin { code: 9, out: &out }).unwrap();
            }
            counter.counts()
        };
        let left = count(0..9).without(&count(3..7));
        let mut expected = count(0..3);
        expected.merge(count(7..9));
        assert_eq!(left, UtxoCounts { transactions: 0, ..expected });
    }
}

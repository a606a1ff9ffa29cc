//! What Core's `gettxoutsetinfo` says of a UTXO set: its two hashes, counts and sums.
//!
//! Source: Core `kernel/coinstats.cpp`. `hash_serialized_3` is the SHA-256d of one long string: for each
//! transaction in the order of txid bytes, for each of its coins in numeric order of `vout`, the coin's
//! element (`wire::Coin::write_utxo_element`). MuHash is over the same elements, in no order.
//!
//! One string means one thread for the hashing, so everything else is kept off it: any number of
//! [`StatsPart`]s turn coins into elements, count, and feed MuHash; the [`UtxoHasher`] only hashes bytes,
//! part after part. A [`CoinCounter`] counts without hashing, what has no order of ranges.

mod count;
mod elements;
mod read_back;

pub use count::CoinCounter;
pub use elements::{StatsPart, UtxoHasher};
pub use read_back::{stats_of_chainstate, stats_of_coins, stats_unless_stopped};

use std::fmt;
use std::str::FromStr;
use wire::hash::ParseHashError;
use wire::{BlockHash, Sats};

/// The hash of a set of coins. Bytes are in the order of the hash function; text is reversed, as Core prints
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UtxoHash(pub [u8; 32]);

impl fmt::Display for UtxoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        BlockHash(self.0).fmt(f)
    }
}

impl fmt::Debug for UtxoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for UtxoHash {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Self, ParseHashError> {
        text.parse().map(|BlockHash(bytes)| Self(bytes))
    }
}

/// The answers of `gettxoutsetinfo`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UtxoStats {
    /// Coins.
    pub txouts: u64,
    /// Transactions with coins.
    pub transactions: u64,
    /// Core's measure of size that no database depends on: 50 bytes and the script for each coin.
    pub bogosize: u64,
    /// Sum of all amounts; nothing if it does not fit.
    pub total_amount: Option<Sats>,
    /// Sum of a hash of each coin: whether two copies are the same, against accidents.
    pub checksum: u64,
    /// `hash_serialized_3`.
    pub hash_serialized_3: UtxoHash,
    /// `muhash`, if it was asked for.
    pub muhash: Option<UtxoHash>,
}

impl UtxoStats {
    /// Without the hashes.
    #[must_use]
    pub const fn counts(&self) -> UtxoCounts {
        let Self { txouts, transactions, bogosize, total_amount, checksum, .. } = *self;
        UtxoCounts { txouts, transactions, bogosize, total_amount, checksum }
    }
}

/// What can be told of coins in any order of ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UtxoCounts {
    /// As in [`UtxoStats`].
    pub txouts: u64,
    /// As in [`UtxoStats`].
    pub transactions: u64,
    /// As in [`UtxoStats`].
    pub bogosize: u64,
    /// As in [`UtxoStats`].
    pub total_amount: Option<Sats>,
    /// As in [`UtxoStats`].
    pub checksum: u64,
}

impl UtxoCounts {
    /// Of no coins.
    pub const ZERO: Self =
        Self { txouts: 0, transactions: 0, bogosize: 0, total_amount: Some(Sats(0)), checksum: 0 };

    /// Adds those of another range.
    pub fn merge(&mut self, other: Self) {
        self.txouts += other.txouts;
        self.transactions += other.transactions;
        self.bogosize += other.bogosize;
        self.checksum = self.checksum.wrapping_add(other.checksum);
        self.add_amount(other.total_amount);
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
    fn amounts_that_do_not_fit_have_no_sum() {
        let mut counts = UtxoCounts::ZERO;
        counts.add_amount(Some(Sats(i64::MAX)));
        assert_eq!(counts.total_amount, Some(Sats(i64::MAX)));
        counts.add_amount(Some(Sats(1)));
        counts.merge(UtxoCounts::ZERO);
        assert_eq!(counts.total_amount, None);
    }
}

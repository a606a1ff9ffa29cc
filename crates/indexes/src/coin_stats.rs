//! The rows of `coinstatsindex`: statistics of the UTXO set at each height. Most are sums over all blocks up
//! to it.
//!
//! ```text
//! 't' | height 4, big-endian -> block hash 32 | totals
//! 's' | block hash 32        -> totals                     removed blocks
//! 'M'                        -> numerator 384 | denominator 384     of the MuHash at the best block
//!
//! totals   MuHash 32 | coins 8 | bogosize 8 | amount 8 | subsidies 8
//!          | spent 32 | created without coinbases 32 | created by coinbases 32
//!          | unspendable: genesis 8 | BIP 30 8 | scripts 8 | unclaimed rewards 8
//! ```
//! All numbers are little-endian, amounts in satoshis. Source: Core `index/coinstatsindex.cpp`.

use crate::rows::Row;
use digest::muhash::MuHash3072;
use pipeline::stages::stats_change::{BlockAmounts, StatsChange, UnspendableAmounts};
use std::ops::Range;
use wire::{BlockHash, Reader, Sats};

/// Key of the row with the MuHash of all coins at the best block, and how it is read.
pub use disk::node_indexes::{MUHASH, read_muhash};

/// The numbers of a row, in its order, or what a block adds to them. The MuHash is not among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals([i128; 11]);

impl Totals {
    /// The numbers that have 32 bytes in a row. The others have 8.
    const WIDE: Range<usize> = 4..7;

    /// Length of the bytes in temporary files.
    const BYTES: usize = 11 * 8;

    /// Returns what a block adds that has this subsidy.
    pub fn of_block(change: &StatsChange, subsidy: Sats) -> Self {
        let StatsChange { created, spent, amounts, .. } = change;
        let BlockAmounts { prevout_spent, coinbase, new_outputs_ex_coinbase, unspendable } = *amounts;
        let UnspendableAmounts { genesis_block, bip30, scripts, unclaimed_rewards } = unspendable;
        // The amounts of a block that obeys the rules do not overflow.
        let [more, less] = [created, spent].map(|coins| coins.total_amount.unwrap_or_default().0);
        let numbers = [
            created.txouts.cast_signed() - spent.txouts.cast_signed(),
            created.bogosize.cast_signed() - spent.bogosize.cast_signed(),
            more - less,
            subsidy.0,
            prevout_spent.0,
            new_outputs_ex_coinbase.0,
            coinbase.0,
            genesis_block.0,
            bip30.0,
            scripts.0,
            unclaimed_rewards.0,
        ];
        Self(numbers.map(i128::from))
    }

    /// Adds what the next block adds.
    pub fn add(&mut self, block: &Self) {
        // The row of a damaged index can have any number.
        self.0.iter_mut().zip(block.0).for_each(|(sum, number)| *sum = sum.wrapping_add(number));
    }

    /// Returns the numbers of a block one after the other, for a temporary file.
    pub fn to_bytes(self) -> Vec<u8> {
        self.0.map(|number| (number as i64).to_le_bytes()).concat()
    }

    /// Reads what [`Totals::to_bytes`] wrote.
    pub fn of_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let mut numbers = [0; 11];
        let words = bytes.as_chunks::<8>().0;
        numbers.iter_mut().zip(words).for_each(|(into, word)| *into = i64::from_le_bytes(*word).into());
        Self(numbers)
    }

    pub fn row_value(&self, block: &BlockHash, muhash: &[u8; 32]) -> Vec<u8> {
        let mut value = [block.0, *muhash].concat();
        for (at, number) in self.0.iter().enumerate() {
            match Self::WIDE.contains(&at) {
                true => value.extend([number.to_le_bytes(), [0; 16]].as_flattened()),
                false => value.extend((*number as i64).to_le_bytes()),
            }
        }
        value
    }

    /// Reads the value of the row of a height: the block, the MuHash and the totals. Returns `None` if it is
    /// malformed.
    pub fn read(value: &[u8]) -> Option<(BlockHash, [u8; 32], Self)> {
        let mut reader = Reader::new(value);
        let (block, muhash) = (BlockHash(reader.array().ok()?), reader.array().ok()?);
        let mut totals = Self::default();
        for (at, number) in totals.0.iter_mut().enumerate() {
            if Self::WIDE.contains(&at) {
                *number = i128::from_le_bytes(reader.array().ok()?);
                reader.array().ok().filter(|high| *high == [0; 16])?;
            } else {
                *number = i64::from_le_bytes(reader.array().ok()?).into();
            }
        }
        reader.finish().ok()?;
        Some((block, muhash, totals))
    }
}

pub fn muhash_row(muhash: &MuHash3072) -> Row {
    (MUHASH.to_vec(), muhash.to_bytes().to_vec())
}

//! The rows of `coinstatsindex`: statistics of the UTXO set at each height, most of them as sums from genesis
//! on.
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
use wire::{BlockHash, Reader, Sats};

/// Key of the MuHash of all coins at the best block.
pub const MUHASH: &[u8] = b"M";

/// What a block adds to the totals, but for the MuHash.
#[derive(Clone, Copy, Debug)]
pub struct Changes {
    coins: [u64; 2],
    bogosize: [u64; 2],
    amount: i64,
    subsidy: Sats,
    moved: BlockAmounts,
}

impl Changes {
    /// What a block adds, whose subsidy is known.
    pub fn of(change: &StatsChange, subsidy: Sats) -> Self {
        let StatsChange { created, spent, amounts, .. } = change;
        // The amounts of a block that obeys the rules do not overflow.
        let amount = |sum: Option<Sats>| sum.unwrap_or_default().0;
        Self {
            coins: [created.txouts, spent.txouts],
            bogosize: [created.bogosize, spent.bogosize],
            amount: amount(created.total_amount) - amount(spent.total_amount),
            subsidy,
            moved: *amounts,
        }
    }
}

impl Changes {
    /// Length in bytes of the form in temporary files.
    const BYTES: usize = 13 * 8;

    /// Writes the numbers one after the other.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let Self { coins, bogosize, amount, subsidy, moved } = self;
        let BlockAmounts { prevout_spent, coinbase, new_outputs_ex_coinbase, unspendable } = moved;
        let UnspendableAmounts { genesis_block, bip30, scripts, unclaimed_rewards } = unspendable;
        let amounts = [prevout_spent, coinbase, new_outputs_ex_coinbase, genesis_block, bip30, scripts];
        let numbers = [coins, bogosize].concat().into_iter();
        let numbers = numbers.chain([amount.cast_unsigned(), subsidy.0.cast_unsigned()]);
        let amounts = amounts.into_iter().chain([unclaimed_rewards]).map(|amount| amount.0.cast_unsigned());
        let mut bytes = [0; Self::BYTES];
        let words = bytes.as_chunks_mut::<8>().0.iter_mut();
        words.zip(numbers.chain(amounts)).for_each(|(word, number)| *word = number.to_le_bytes());
        bytes
    }

    /// Reads what [`Changes::to_bytes`] wrote.
    pub fn of_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut next = || words.next().unwrap_or_default();
        let (coins, bogosize) = ([next(), next()], [next(), next()]);
        let mut amount = || Sats(next().cast_signed());
        Self {
            coins,
            bogosize,
            amount: amount().0,
            subsidy: amount(),
            moved: BlockAmounts {
                prevout_spent: amount(),
                coinbase: amount(),
                new_outputs_ex_coinbase: amount(),
                unspendable: UnspendableAmounts {
                    genesis_block: amount(),
                    bip30: amount(),
                    scripts: amount(),
                    unclaimed_rewards: amount(),
                },
            },
        }
    }
}

/// The totals of a height, but for the MuHash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    coins: u64,
    bogosize: u64,
    amount: i64,
    subsidies: i64,
    /// The spent, the created without coinbases, the created by coinbases.
    moved: [u128; 3],
    unspendable: UnspendableAmounts,
}

impl Totals {
    pub fn add(&mut self, block: &Changes) {
        let add = |sum: &mut u64, [more, less]: [u64; 2]| *sum = sum.wrapping_add(more).wrapping_sub(less);
        add(&mut self.coins, block.coins);
        add(&mut self.bogosize, block.bogosize);
        self.amount += block.amount;
        self.subsidies += block.subsidy.0;
        let BlockAmounts { prevout_spent, new_outputs_ex_coinbase, coinbase, unspendable } = block.moved;
        for (sum, amount) in self.moved.iter_mut().zip([prevout_spent, new_outputs_ex_coinbase, coinbase]) {
            *sum += u128::from(amount.0.unsigned_abs());
        }
        self.unspendable.genesis_block.0 += unspendable.genesis_block.0;
        self.unspendable.bip30.0 += unspendable.bip30.0;
        self.unspendable.scripts.0 += unspendable.scripts.0;
        self.unspendable.unclaimed_rewards.0 += unspendable.unclaimed_rewards.0;
    }

    /// The value of the row of a height.
    pub fn row_value(&self, block: &BlockHash, muhash: &[u8; 32]) -> Vec<u8> {
        let mut value = [block.0, *muhash].concat();
        value.extend(self.coins.to_le_bytes());
        value.extend(self.bogosize.to_le_bytes());
        value.extend(self.amount.to_le_bytes());
        value.extend(self.subsidies.to_le_bytes());
        for sum in self.moved {
            value.extend(sum.to_le_bytes());
            value.extend([0; 16]);
        }
        let UnspendableAmounts { genesis_block, bip30, scripts, unclaimed_rewards } = self.unspendable;
        for Sats(sum) in [genesis_block, bip30, scripts, unclaimed_rewards] {
            value.extend(sum.to_le_bytes());
        }
        value
    }

    /// Reads the value of the row of a height: the block, the MuHash and the totals. `None` if it is
    /// malformed.
    pub fn read(value: &[u8]) -> Option<(BlockHash, [u8; 32], Self)> {
        let mut reader = Reader::new(value);
        let (block, muhash) = (BlockHash(reader.array().ok()?), reader.array().ok()?);
        let (coins, bogosize) = (reader.u64().ok()?, reader.u64().ok()?);
        let signed = |reader: &mut Reader<'_>| reader.array().ok().map(i64::from_le_bytes);
        let (amount, subsidies) = (signed(&mut reader)?, signed(&mut reader)?);
        let mut moved = [0; 3];
        for sum in &mut moved {
            *sum = u128::from_le_bytes(reader.array().ok()?);
            reader.array().ok().filter(|high| *high == [0; 16])?;
        }
        let unspendable = UnspendableAmounts {
            genesis_block: Sats(signed(&mut reader)?),
            bip30: Sats(signed(&mut reader)?),
            scripts: Sats(signed(&mut reader)?),
            unclaimed_rewards: Sats(signed(&mut reader)?),
        };
        reader.finish().ok()?;
        Some((block, muhash, Self { coins, bogosize, amount, subsidies, moved, unspendable }))
    }
}

/// The row with the MuHash of all coins.
pub fn muhash_row(muhash: &MuHash3072) -> Row {
    (MUHASH.to_vec(), muhash.to_bytes().to_vec())
}

/// Reads the value of the row with the MuHash of all coins. `None` if it is malformed.
pub fn read_muhash(value: &[u8]) -> Option<MuHash3072> {
    MuHash3072::from_bytes(value.try_into().ok()?)
}

//! Counts coins, and adds up a hash of each.

use super::UtxoCounts;
use wire::coin::CoinError;
use wire::{Coin, OutPoint, Sats, Txid};

/// Core's bogosize of a coin without its script: txid 32, vout 4, code 4, amount 8, script length 2.
const BOGOSIZE: u64 = 50;

/// Counts coins in the order of chainstate keys.
#[derive(Clone, Debug)]
pub struct CoinCounter {
    counts: UtxoCounts,
    /// Txid of the last coin, if there is one.
    txid: Txid,
}

impl Default for CoinCounter {
    fn default() -> Self {
        Self { counts: UtxoCounts::ZERO, txid: Txid([0; 32]) }
    }
}

impl CoinCounter {
    /// Counts a coin. Coins must be in the order of chainstate keys, so those of one transaction are
    /// adjacent.
    ///
    /// # Errors
    /// [`CoinError`] if `out` is not one compressed output.
    #[inline]
    pub fn add(&mut self, outpoint: &OutPoint, coin: &Coin<'_>) -> Result<(), CoinError> {
        let (amount, script) = coin.output()?;
        self.add_parsed(outpoint, coin, amount, script.script_len());
        Ok(())
    }

    /// Like [`CoinCounter::add`], for a parsed coin. Returns whether it is the first of its transaction.
    #[inline]
    pub fn add_parsed(
        &mut self,
        outpoint: &OutPoint,
        coin: &Coin<'_>,
        amount: Sats,
        script_len: usize,
    ) -> bool {
        let counts = &mut self.counts;
        let is_first = counts.txouts == 0 || self.txid != outpoint.txid;
        self.txid = outpoint.txid;
        counts.transactions += u64::from(is_first);
        counts.txouts += 1;
        counts.bogosize += BOGOSIZE + script_len as u64;
        counts.add_amount(Some(amount));
        counts.checksum = counts.checksum.wrapping_add(coin_hash(outpoint, coin));
        is_first
    }

    pub const fn counts(&self) -> UtxoCounts {
        self.counts
    }
}

/// Returns a hash that detects accidental changes: a number for its position is XORed into each word, and the
/// words are multiplied in pairs.
#[inline]
fn coin_hash(outpoint: &OutPoint, coin: &Coin<'_>) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let (mut hash, mut place) = (0u64, STEP);
    let mut add = |a: u64, b: u64| {
        let product = u128::from(a ^ place) * u128::from(b ^ place.rotate_left(32));
        hash = hash.wrapping_add(product as u64 ^ (product >> 64) as u64);
        place = place.wrapping_add(STEP);
    };
    let halves = |pair: [u8; 16]| {
        let pair = u128::from_le_bytes(pair);
        (pair as u64, (pair >> 64) as u64)
    };
    let (pairs, tail) = coin.out.as_chunks::<16>();
    let mut last = [0; 16];
    last.iter_mut().zip(tail).for_each(|(to, from)| *to = *from);
    add(u64::from(outpoint.vout) << 32 | u64::from(coin.code), coin.out.len() as u64);
    for &pair in outpoint.txid.0.as_chunks().0.iter().chain(pairs).chain([&last]) {
        let (a, b) = halves(pair);
        add(a, b);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_of_a_coin_changes_the_checksum() {
        let hash = |txid: [u8; 32], vout, code, out: &[u8]| {
            coin_hash(&OutPoint { txid: Txid(txid), vout }, &Coin { code, out })
        };
        let txid = std::array::from_fn(|at| at as u8);
        let out: Vec<u8> = (0..40).collect();
        let mut seen = vec![hash(txid, 1, 2, &out), hash(txid, 2, 1, &out), hash(txid, 1, 3, &out)];
        for at in 0..32 {
            let mut other = txid;
            other[at] ^= 0x80;
            seen.push(hash(other, 1, 2, &out));
        }
        let mut swapped = txid;
        swapped.rotate_left(16);
        seen.push(hash(swapped, 1, 2, &out));
        for len in 0..out.len() {
            let mut other = out.clone();
            other[len] ^= 1;
            seen.extend([hash(txid, 1, 2, &other), hash(txid, 1, 2, &out[..len])]);
        }
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}

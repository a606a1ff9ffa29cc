//! Hashes of coins: `hash_serialized_3` of those that one thread has in key order, MuHash of those in any
//! order, and one of a coin under a secret key.

use api::error::Error;
use digest::{
    muhash::MuHash3072,
    siphash::{SipKey, siphash24_128},
};
use disk::utxo_stats::{StatsPart, UtxoHasher};
use wire::{Coin, OutPoint, Sats};

/// Bytes of elements that are hashed at once.
const HASH_BYTES: usize = 1 << 20;

/// Computes `hash_serialized_3` of coins as they arrive.
pub struct CoinHash {
    part: StatsPart,
    hasher: UtxoHasher,
    buffer: Vec<u8>,
}

impl CoinHash {
    /// The hash of no coins yet.
    #[expect(clippy::new_without_default, reason = "it is no value that a field could have")]
    pub fn new() -> Self {
        Self { part: StatsPart::new(false), hasher: UtxoHasher::new(false), buffer: Vec::new() }
    }

    /// Adds a coin. Coins must be in key order.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Damaged`] if it cannot be decoded.
    pub fn add(&mut self, outpoint: &OutPoint, coin: &Coin<'_>) -> Result<(), Error> {
        self.part.add(outpoint, coin).map_err(|flaw| Error::damaged(format!("coin {outpoint}: {flaw}")))?;
        if self.part.ready_len() >= HASH_BYTES {
            self.buffer = self.part.take_elements(std::mem::take(&mut self.buffer));
            self.hasher.hash(&self.buffer);
        }
        Ok(())
    }

    /// Returns the hash in internal byte order.
    pub fn finish(mut self) -> [u8; 32] {
        self.hasher.merge(self.part);
        self.hasher.finish().hash_serialized_3
    }
}

/// Sums over coins, in any order.
#[derive(Clone, Debug, Default)]
pub struct CoinSums {
    pub coins: u64,
    pub amount: Sats,
    pub muhash: MuHash3072,
}

impl CoinSums {
    /// Adds a coin, of which `element` is what MuHash covers.
    pub fn add(&mut self, amount: Sats, element: &[u8]) {
        self.coins += 1;
        self.amount.0 = self.amount.0.saturating_add(amount.0);
        self.muhash.insert(element);
    }

    pub fn merge(&mut self, other: &Self) {
        self.coins += other.coins;
        self.amount.0 = self.amount.0.saturating_add(other.amount.0);
        self.muhash.combine(&other.muhash);
    }
}

/// Hashes coins under a secret key. Two coins have the same hash only if they are equal: nobody who does not
/// know the key can do better than chance.
#[derive(Clone)]
pub struct CoinHasher {
    key: SipKey,
    bytes: Vec<u8>,
}

impl CoinHasher {
    /// The hash under this key.
    pub const fn new(key: SipKey) -> Self {
        Self { key, bytes: Vec::new() }
    }

    /// Returns the hash of all of a coin: outpoint, height, whether it is of a coinbase, amount and script.
    pub fn hash(&mut self, outpoint: &OutPoint, coin: &Coin<'_>) -> u128 {
        self.bytes.clear();
        self.bytes.extend_from_slice(&outpoint.txid.0);
        self.bytes.extend_from_slice(&outpoint.vout.to_le_bytes());
        self.bytes.extend_from_slice(&coin.code.to_le_bytes());
        self.bytes.extend_from_slice(coin.out);
        siphash24_128(self.key.0, self.key.1, &self.bytes)
    }
}

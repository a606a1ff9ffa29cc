//! `hash_serialized_3` of coins that one thread has in key order.

use api::error::Error;
use disk::utxo_stats::{StatsPart, UtxoHasher};
use wire::{Coin, OutPoint};

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
    #[must_use]
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
    #[must_use]
    pub fn finish(mut self) -> [u8; 32] {
        self.hasher.merge(self.part);
        self.hasher.finish().hash_serialized_3.0
    }
}

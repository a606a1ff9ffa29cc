//! The naive UTXO set: a map, applied block by block, with nothing of the engine in it.
//!
//! It decodes blocks with the crate `bitcoin` and hashes coins as Core's `kernel/coinstats.cpp` does, so that
//! what the engine says of a generated chain has something to be held against.

use bitcoin::consensus::deserialize;
use digest::sha256::Sha256;
use std::collections::BTreeMap;
use wire::{OutPoint, Txid, read::write_compact_size, script::is_unspendable};

/// A coin, not compressed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelCoin {
    /// height * 2 + coinbase.
    pub code: u32,
    /// Satoshis.
    pub amount: i64,
    /// The output script.
    pub script: Vec<u8>,
}

/// What Core's `gettxoutsetinfo` says of a UTXO set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModelStats {
    /// Unspent coins.
    pub txouts: u64,
    /// Their amounts, in satoshis.
    pub total_amount: u64,
    /// Internal byte order; Core prints it reversed.
    pub hash_serialized_3: [u8; 32],
}

impl ModelStats {
    /// Counts and hashes coins that come in any order.
    #[must_use]
    pub fn of(coins: impl Iterator<Item = (OutPoint, ModelCoin)>) -> Self {
        let mut coins: Vec<_> = coins.collect();
        coins.sort_unstable_by_key(|(outpoint, _)| *outpoint);
        Self::of_sorted(coins.into_iter())
    }

    /// The same of coins that come in the order of their outpoints; holds one at a time.
    #[must_use]
    pub fn of_sorted(coins: impl Iterator<Item = (OutPoint, ModelCoin)>) -> Self {
        let mut hasher = Sha256::new();
        let (mut txouts, mut total_amount) = (0, 0);
        let mut element = Vec::new();
        for (outpoint, coin) in coins {
            element.clear();
            element.extend_from_slice(&outpoint.txid.0);
            element.extend_from_slice(&outpoint.vout.to_le_bytes());
            element.extend_from_slice(&coin.code.to_le_bytes());
            element.extend_from_slice(&coin.amount.to_le_bytes());
            write_compact_size(&mut element, coin.script.len() as u64);
            element.extend_from_slice(&coin.script);
            hasher.update(&element);
            txouts += 1;
            total_amount += coin.amount as u64;
        }
        Self { txouts, total_amount, hash_serialized_3: hasher.finalize_double() }
    }

    /// The hash as Core prints it.
    #[must_use]
    pub fn hash_hex(&self) -> String {
        self.hash_serialized_3.iter().rev().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The coins of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Model {
    /// All unspent coins.
    pub coins: BTreeMap<OutPoint, ModelCoin>,
}

/// An outpoint in our type.
#[must_use]
pub fn outpoint(from: &bitcoin::OutPoint) -> OutPoint {
    OutPoint { txid: Txid(*from.txid.as_ref()), vout: from.vout }
}

impl Model {
    /// Applies a valid block; the genesis block makes no coins.
    ///
    /// # Panics
    /// If a spent coin is missing.
    pub fn apply(&mut self, block: &[u8], height: u32) {
        let block: bitcoin::Block = deserialize(block).expect("a block of ours");
        if height == 0 {
            return;
        }
        for (index, tx) in block.txdata.iter().enumerate() {
            if index > 0 {
                for input in &tx.input {
                    self.coins.remove(&outpoint(&input.previous_output)).expect("the coin is unspent");
                }
            }
            let txid = Txid(*tx.compute_txid().as_ref());
            for (vout, output) in tx.output.iter().enumerate() {
                let script = output.script_pubkey.to_bytes();
                if !is_unspendable(&script) {
                    let code = height << 1 | u32::from(index == 0);
                    let coin = ModelCoin { code, amount: output.value.to_sat() as i64, script };
                    self.coins.insert(OutPoint { txid, vout: vout as u32 }, coin);
                }
            }
        }
    }

    /// Counts and hash.
    #[must_use]
    pub fn stats(&self) -> ModelStats {
        ModelStats::of(self.coins.iter().map(|(outpoint, coin)| (*outpoint, coin.clone())))
    }
}

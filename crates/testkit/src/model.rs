//! A naive UTXO set: a map to which blocks are applied one by one. The tests compare rebuilds with it.
//!
//! It shares no code with the engine: it decodes blocks with the crate `bitcoin`, and hashes coins like
//! Core's `kernel/coinstats.cpp`.

use crate::prelude::*;
use digest::sha256::Sha256;
use wire::script::is_unspendable;

/// An uncompressed coin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelCoin {
    /// height * 2 + coinbase.
    pub code: u32,
    /// Amount in satoshis.
    pub amount: i64,
    pub script: Vec<u8>,
}

impl ModelCoin {
    /// Decompresses a coin.
    ///
    /// # Panics
    /// If the coin is malformed.
    pub fn of(coin: &Coin<'_>) -> Self {
        let (amount, compressed) = coin.output().expect("the coin is well-formed");
        let mut script = Vec::new();
        compressed.decompress(&mut script).expect("the coin is well-formed");
        Self { code: coin.code, amount: amount.0, script }
    }

    /// Its compressed output.
    pub fn compressed(&self) -> Vec<u8> {
        compressed_output(Sats(self.amount), &self.script)
    }

    /// The bytes of an unspent coin that Core hashes (`TxOutSer`).
    pub fn element(&self, outpoint: &OutPoint) -> Vec<u8> {
        let mut element = outpoint.txid.0.to_vec();
        element.extend([outpoint.vout, self.code].iter().flat_map(|number| number.to_le_bytes()));
        element.extend(self.amount.to_le_bytes());
        write_compact_size(&mut element, self.script.len() as u64);
        element.extend(&self.script);
        element
    }
}

/// Changes amount or script of a compressed output.
///
/// # Panics
/// If it is malformed.
pub fn change_output(out: &mut Vec<u8>, change: impl FnOnce(&mut i64, &mut Vec<u8>)) {
    let ModelCoin { mut amount, mut script, .. } = ModelCoin::of(&Coin { code: 0, out: out.as_slice() });
    change(&mut amount, &mut script);
    *out = compressed_output(Sats(amount), &script);
}

/// Appends the undo data of a transaction that spends these coins.
pub fn write_undo<'c>(coins: impl ExactSizeIterator<Item = &'c ModelCoin>, undo: &mut Vec<u8>) {
    write_compact_size(undo, coins.len() as u64);
    for coin in coins {
        Coin { code: coin.code, out: &coin.compressed() }.write_undo(undo);
    }
}

/// The statistics that Core's `gettxoutsetinfo` reports of a UTXO set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModelStats {
    pub txouts: u64,
    /// Sum of their amounts, in satoshis.
    pub total_amount: u64,
    /// The hash in internal byte order; Core prints it reversed.
    pub hash_serialized_3: [u8; 32],
}

impl ModelStats {
    /// Counts and hashes coins in the order of their outpoints. Holds one coin at a time.
    pub fn of_sorted(coins: impl Iterator<Item = (OutPoint, ModelCoin)>) -> Self {
        let mut hasher = Sha256::new();
        let (mut txouts, mut total_amount) = (0, 0);
        for (outpoint, coin) in coins {
            hasher.update(&coin.element(&outpoint));
            txouts += 1;
            total_amount += coin.amount as u64;
        }
        Self { txouts, total_amount, hash_serialized_3: hasher.finalize_double() }
    }

    /// Returns the hash as Core prints it.
    pub fn hash_hex(&self) -> String {
        wire::BlockHash(self.hash_serialized_3).to_string()
    }
}

/// The UTXO set of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Model {
    pub coins: BTreeMap<OutPoint, ModelCoin>,
}

pub fn outpoint(from: &bitcoin::OutPoint) -> OutPoint {
    OutPoint { txid: Txid(*from.txid.as_ref()), vout: from.vout }
}

impl Model {
    /// The coins after these blocks, of which the first one is the genesis block.
    pub fn of<'b>(blocks: impl IntoIterator<Item = &'b GeneratedBlock>) -> Self {
        let mut model = Self::default();
        blocks.into_iter().for_each(|block| model.apply(&block.bytes, block.height));
        model
    }

    /// Applies a valid block. The genesis block creates no coins.
    ///
    /// # Panics
    /// If a spent coin is missing.
    pub fn apply(&mut self, block: &[u8], height: u32) {
        assert_eq!(self.apply_unchecked(block, height), 0, "the coins are unspent");
    }

    /// Applies a block that may be invalid. Returns how many of the coins that it spends are missing.
    pub fn apply_unchecked(&mut self, block: &[u8], height: u32) -> u32 {
        let block: bitcoin::Block = deserialize(block).expect("the block is well-formed");
        let mut missing = 0;
        if height == 0 {
            return missing;
        }
        for (index, tx) in block.txdata.iter().enumerate() {
            if index > 0 {
                for input in &tx.input {
                    let spent = self.coins.remove(&outpoint(&input.previous_output));
                    missing += u32::from(spent.is_none());
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
        missing
    }

    pub fn stats(&self) -> ModelStats {
        ModelStats::of_sorted(self.coins.iter().map(|(outpoint, coin)| (*outpoint, coin.clone())))
    }
}

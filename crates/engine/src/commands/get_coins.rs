//! Looks up coins in a chainstate on disk, as Core's `gettxout` does without the mempool.

use crate::{
    api::{error::Error, options::ChainstateOptions, remedy::Remedy},
    job::stored_chainstate::StoredChainstate,
};
use disk::chainstate::ChainstateReader;
use vfs::Disk;
use wire::{BlockHash, Coin, CoinError, Height, OutPoint, Sats};

/// A coin of a chainstate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredCoin {
    /// Its key.
    pub outpoint: OutPoint,
    /// Its amount.
    pub amount: Sats,
    /// The output script.
    pub script: Vec<u8>,
    /// Height of the block that created it.
    pub height: Height,
    /// Whether a coinbase created it.
    pub is_coinbase: bool,
    /// Number of blocks from the one that created it to the best block, both included; `None` if the height
    /// of the best block is unknown.
    pub confirmations: Option<u32>,
}

impl StoredCoin {
    /// Decodes a coin of the chainstate that `reader` reads; `best` is the height of the best block.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Damaged`] if its output is not one that Core writes.
    pub(crate) fn new(
        reader: &ChainstateReader<'_>,
        best: Option<Height>,
        outpoint: OutPoint,
        coin: Coin<'_>,
    ) -> Result<Self, Error> {
        Self::decode(best, outpoint, coin).map_err(|flaw| {
            let error = Error::damaged(format!("coin {outpoint}: {flaw}")).in_file(reader.dir(), None);
            error.with_remedies([Remedy::RebuildChainstate])
        })
    }

    fn decode(best: Option<Height>, outpoint: OutPoint, coin: Coin<'_>) -> Result<Self, CoinError> {
        let (amount, compressed) = coin.output()?;
        let mut script = Vec::with_capacity(compressed.script_len());
        compressed.decompress(&mut script)?;
        let (height, is_coinbase) = (coin.height(), coin.is_coinbase());
        let confirmations = best.and_then(|best| Some(best.0.checked_sub(height.0)? + 1));
        Ok(Self { outpoint, amount, script, height, is_coinbase, confirmations })
    }
}

/// Result of [`get_coins`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GetReport {
    /// Height of the best block; `None` if the block index does not have it.
    pub height: Option<Height>,
    /// The chainstate's best block.
    pub best_block: BlockHash,
    /// The coins that are unspent after that block, in the order of the request.
    pub coins: Vec<StoredCoin>,
    /// The outpoints that are not unspent: spent, or never created.
    pub not_unspent: Vec<OutPoint>,
}

/// Looks up the coins of `outpoints` in the chainstate of a datadir; writes nothing. For each, a few blocks
/// of the tables are read.
///
/// # Errors
/// The same errors as [`crate::utxo_stats`]. An outpoint without a coin is no error; the report lists it.
pub fn get_coins(
    disk: &dyn Disk,
    options: &ChainstateOptions,
    outpoints: &[OutPoint],
) -> Result<GetReport, Error> {
    let chainstate = StoredChainstate::open(disk, options)?;
    let StoredChainstate { reader, height, .. } = &chainstate;
    // In the order of the keys, so that each table is opened once.
    let mut order: Vec<(usize, &OutPoint)> = outpoints.iter().enumerate().collect();
    order.sort_unstable_by_key(|(_, outpoint)| **outpoint);
    let (mut lookup, mut found) = (reader.lookup(), Vec::with_capacity(outpoints.len()));
    for (at, outpoint) in order {
        let coin = match lookup.coin(outpoint)? {
            Some(coin) => Ok(StoredCoin::new(reader, *height, *outpoint, coin)?),
            None => Err(*outpoint),
        };
        found.push((at, coin));
    }
    found.sort_unstable_by_key(|(at, _)| *at);
    let (mut coins, mut not_unspent) = (Vec::new(), Vec::new());
    for (_, coin) in found {
        match coin {
            Ok(coin) => coins.push(coin),
            Err(outpoint) => not_unspent.push(outpoint),
        }
    }
    Ok(GetReport { height: *height, best_block: reader.best_block(), coins, not_unspent })
}

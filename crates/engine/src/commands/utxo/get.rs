//! Looks up coins in a chainstate on disk, as Core's `gettxout` does without the mempool.

use api::{error::Error, options::ChainOptions};
use pipeline::job::stored_chainstate::{StoredChainstate, StoredCoin};
use vfs::Disk;
use wire::{BlockHash, Height, OutPoint};

/// Result of [`crate::utxo::get()`].
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
/// The same errors as [`crate::utxo::stats()`]. An outpoint without a coin is no error; the report lists it.
pub fn get(disk: &dyn Disk, options: &ChainOptions, outpoints: &[OutPoint]) -> Result<GetReport, Error> {
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

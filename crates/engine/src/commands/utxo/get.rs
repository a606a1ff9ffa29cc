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
    let (mut lookup, mut found) = (reader.lookup(), vec![None; outpoints.len()]);
    for (at, outpoint) in order {
        let coin = lookup.coin(outpoint)?;
        found[at] = coin.map(|coin| StoredCoin::new(reader, *height, *outpoint, coin)).transpose()?;
    }
    let without_coin = outpoints.iter().zip(&found).filter(|(_, coin)| coin.is_none());
    let not_unspent = without_coin.map(|(outpoint, _)| *outpoint).collect();
    let coins = found.into_iter().flatten().collect();
    Ok(GetReport { height: *height, best_block: reader.best_block(), coins, not_unspent })
}

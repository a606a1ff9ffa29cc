//! Disconnects blocks (Core `DisconnectBlock`, `ApplyTxInUndo`).

use super::{ConnectContext, for_each_created};
use coins::{CacheError, CoinSource, CoinsCache};
use disk::undo::UndoView;
use wire::{Coin, OutPoint, coin::CompressedScript, script};

/// Whether the coins were those that connecting the block had left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DisconnectResult {
    /// The coins are now what they were before the block was connected, except for those that it overwrote.
    Ok,
    /// A coin that the block created was missing or another one, or one that it spent was still there. The
    /// block's effects are removed nevertheless: this is normal if the coins on disk belong partly to this
    /// block and partly to earlier or later ones.
    Unclean,
}

/// Why a block was not disconnected; `E` is the error of the coins' source.
#[derive(Debug)]
pub enum DisconnectError<E> {
    /// The undo data does not belong to the block (Core `DISCONNECT_FAILED`).
    Failed(String),
    /// A coin could not be looked up or added.
    Coins(CacheError<E>),
}

/// Disconnects a block, which must not be the genesis block: removes the coins that it created, and restores
/// those that it spent from its undo data.
///
/// There is one difference to Core. Before 0.15, Core left out heights in undo data, and later versions look
/// for them in other coins of the same transaction. [`UndoView::parse`] refuses such data.
///
/// # Errors
/// [`DisconnectError`]; the coins are then between two blocks.
pub fn disconnect_block<S: CoinSource>(
    coins: &mut CoinsCache<S>,
    context: &ConnectContext<'_>,
    undo: &UndoView<'_>,
) -> Result<DisconnectResult, DisconnectError<S::Error>> {
    let &ConnectContext { params, height, hash, block, txids, .. } = context;
    let txs: Vec<_> = block.txs().zip(txids).collect();
    if undo.tx_count() + 1 != txs.len() {
        let flaw = format!("undo data of {} transactions for {} in the block", undo.tx_count(), txs.len());
        return Err(DisconnectError::Failed(flaw));
    }
    // A later block overwrote the coinbase's coins, and was disconnected before.
    let is_overwritten = params.is_overwritten_coinbase(height, hash);
    let mut is_clean = true;
    for (index, (tx, txid)) in txs.iter().enumerate().rev() {
        let is_coinbase = index == 0;
        for_each_created(tx, txid, Coin::code_of(height, is_coinbase), |outpoint, coin| {
            coins.spend_coin(&outpoint).map(|removed| {
                let is_expected = removed.is_some_and(|removed| removed.as_coin() == coin);
                is_clean &= is_expected || is_coinbase && is_overwritten;
            })
        })
        .map_err(DisconnectError::Coins)?;
        if is_coinbase {
            continue;
        }
        let prevouts: Vec<OutPoint> = tx.inputs().map(|input| input.prevout()).collect();
        let spent: Vec<Coin<'_>> = undo.tx_coins(index - 1).into_iter().flatten().collect();
        if spent.len() != prevouts.len() {
            let (spent, inputs) = (spent.len(), prevouts.len());
            let flaw = format!("undo data of {spent} inputs for {inputs} of transaction {index}");
            return Err(DisconnectError::Failed(flaw));
        }
        for (prevout, coin) in prevouts.into_iter().zip(spent).rev() {
            is_clean &= restore_coin(coins, prevout, coin)?;
        }
    }
    coins.set_best_block(block.header().prev);
    Ok(if is_clean { DisconnectResult::Ok } else { DisconnectResult::Unclean })
}

/// Adds a spent coin again. Returns whether it had been spent.
fn restore_coin<S: CoinSource>(
    coins: &mut CoinsCache<S>,
    outpoint: OutPoint,
    coin: Coin<'_>,
) -> Result<bool, DisconnectError<S::Error>> {
    let (_, script) = coin.output().map_err(|error| {
        DisconnectError::Failed(format!("undo data with a malformed coin {outpoint}: {error}"))
    })?;
    let exists = coins.coin(&outpoint).map_err(DisconnectError::Coins)?.is_some();
    // Undo data is not proven: it may claim an output that is no coin, which Core does not add either.
    if !matches!(script, CompressedScript::Raw(script) if script::is_unspendable(script)) {
        coins.add_coin(outpoint, coin, exists).map_err(DisconnectError::Coins)?;
    }
    Ok(!exists)
}

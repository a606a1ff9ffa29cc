//! Connects blocks to coins, and disconnects them again (Core `ConnectBlock`, `DisconnectBlock`).
//!
//! Nothing here knows where blocks, undo data and coins are stored. The coins change step by step: after an
//! error they are between two blocks, so a caller that continues needs a cache that it can drop.

mod disconnect;
#[cfg(test)]
mod tests;

pub use disconnect::{DisconnectError, DisconnectResult, disconnect_block};

use crate::stages::scripts::Scripts;
use coins::{CacheError, CoinSource, CoinsCache, OwnedCoin};
use rules::{
    BIP30, BlockTotals, ChainParams, MISSING_OR_SPENT, RewardContext, SpendContext, SpentCoin, Violation,
    ViolationDetails, check_coinbase_amount, check_tx_spends,
};
use wire::{BlockHash, BlockTime, BlockView, Coin, Height, OutPoint, TxIndex, TxView, Txid, coin, script};

/// The coins that a block spent: those of each transaction but the coinbase, in the order of its inputs (Core
/// `CBlockUndo`).
pub type BlockUndo = Vec<Vec<OwnedCoin>>;

/// A block and its place in the chain.
#[derive(Clone, Copy)]
pub struct ConnectContext<'a> {
    pub params: &'a ChainParams,
    pub height: Height,
    pub hash: &'a BlockHash,
    /// The block, which has passed [`rules::check_block`].
    pub block: &'a BlockView<'a>,
    pub txids: &'a [Txid],
    /// See [`SpendContext::mtp_by_height`].
    pub mtp_by_height: &'a [BlockTime],
    /// See [`rules::bip30_enforced`].
    pub bip34_ancestor: Option<BlockHash>,
}

/// Why a block was not connected; `E` is the error of the coins' source.
#[derive(Debug)]
pub enum ConnectError<E> {
    /// The block is invalid: its first violation in Core's order.
    Violation(Violation),
    /// A coin could not be looked up or added.
    Coins(CacheError<E>),
}

impl<E> From<Violation> for ConnectError<E> {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// Connects a block: checks all rules that depend on coins, then runs `scripts` unless they are `None`.
/// Returns the coins that the block spent, which `disk::undo::write_undo` encodes as Core does.
///
/// # Errors
/// [`ConnectError`]; the coins are then between two blocks.
///
/// # Panics
/// If the best block of the coins is not the block's parent, or `mtp_by_height` does not reach the parent.
pub fn connect_block<S: CoinSource>(
    coins: &mut CoinsCache<S>,
    context: &ConnectContext<'_>,
    scripts: Option<&Scripts<'_>>,
) -> Result<BlockUndo, ConnectError<S::Error>> {
    assert_eq!(coins.best_block(), context.block.header().prev, "a block is connected to its parent");
    // The coin of the genesis block is not in the UTXO set.
    let undo = if context.height.0 == 0 { BlockUndo::new() } else { connect_txs(coins, context)? };
    if let Some(scripts) = scripts {
        check_scripts(scripts, context, &undo)?;
    }
    coins.set_best_block(*context.hash);
    Ok(undo)
}

/// Moves the coins of all transactions, and checks all rules except scripts.
fn connect_txs<S: CoinSource>(
    coins: &mut CoinsCache<S>,
    context: &ConnectContext<'_>,
) -> Result<BlockUndo, ConnectError<S::Error>> {
    let &ConnectContext { params, height, hash, block, txids, mtp_by_height, .. } = context;
    check_bip30(coins, context)?;
    let mut before = BlockTotals::default();
    let mut undo = Vec::with_capacity(block.tx_count().saturating_sub(1));
    for ((tx, txid), index) in block.txs().zip(txids).zip(0..) {
        let (tx_index, is_coinbase) = (TxIndex(index), index == 0);
        let spent = if is_coinbase { Vec::new() } else { spend_coins(coins, &tx, tx_index)? };
        let own = &decoded_coins(spent.iter().map(OwnedCoin::as_coin));
        let spend =
            SpendContext { params, height, hash, tx: &tx, tx_index, coins: own, mtp_by_height, before };
        before = check_tx_spends(&spend)?;
        // Only coinbases can overwrite coins, and only where BIP-0030 is not enforced. Any other transaction
        // can be repeated only after a repeated coinbase whose coin was spent in between, which Core rules
        // out there.
        for_each_created(&tx, txid, Coin::code_of(height, is_coinbase), |outpoint, coin| {
            coins.add_coin(outpoint, coin, is_coinbase)
        })
        .map_err(ConnectError::Coins)?;
        if !is_coinbase {
            undo.push(spent);
        }
    }
    if let Some(coinbase) = block.tx(0) {
        check_coinbase_amount(&RewardContext { params, height, coinbase: &coinbase, fees: before.fees })?;
    }
    Ok(undo)
}

/// BIP-0030: no transaction of the block may create a coin that exists.
fn check_bip30<S: CoinSource>(
    coins: &CoinsCache<S>,
    context: &ConnectContext<'_>,
) -> Result<(), ConnectError<S::Error>> {
    let &ConnectContext { params, height, hash, block, txids, bip34_ancestor, .. } = context;
    if !rules::bip30_enforced(params, height, hash, bip34_ancestor.as_ref()) {
        return Ok(());
    }
    for ((tx, &txid), index) in block.txs().zip(txids).zip(0..) {
        for vout in 0..tx.output_count() as u32 {
            let outpoint = OutPoint { txid, vout };
            if coins.coin(&outpoint).map_err(ConnectError::Coins)?.is_some() {
                let details = ViolationDetails::new(format!("{outpoint} exists and is unspent"));
                return Err(details.at_tx(TxIndex(index)).of(&BIP30).into());
            }
        }
    }
    Ok(())
}

/// Removes the coins that a transaction spends, and returns them.
fn spend_coins<S: CoinSource>(
    coins: &mut CoinsCache<S>,
    tx: &TxView<'_>,
    tx_index: TxIndex,
) -> Result<Vec<OwnedCoin>, ConnectError<S::Error>> {
    let mut spent = Vec::with_capacity(tx.input_count());
    for (input, index) in tx.inputs().zip(0..) {
        let prevout = input.prevout();
        let Some(coin) = coins.spend_coin(&prevout).map_err(ConnectError::Coins)? else {
            let details = ViolationDetails::new(format!("{prevout} was never created, or is already spent"));
            return Err(details.at_tx(tx_index).at_input(index).of(&MISSING_OR_SPENT).into());
        };
        spent.push(coin);
    }
    Ok(spent)
}

/// Calls `each` with each coin that a transaction creates, which leaves out its unspendable outputs.
///
/// # Errors
/// The first error of `each`.
pub fn for_each_created<E>(
    tx: &TxView<'_>,
    txid: &Txid,
    code: u32,
    mut each: impl FnMut(OutPoint, Coin<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut out = Vec::new();
    for (output, vout) in tx.outputs().zip(0..) {
        if script::is_unspendable(output.script_pubkey()) {
            continue;
        }
        out.clear();
        coin::compress_output(&mut out, output.value(), output.script_pubkey());
        each(OutPoint { txid: *txid, vout }, Coin { code, out: &out })?;
    }
    Ok(())
}

/// Runs the scripts of a block whose spends are otherwise valid: Core checks them last.
fn check_scripts(
    scripts: &Scripts<'_>,
    context: &ConnectContext<'_>,
    undo: &[Vec<OwnedCoin>],
) -> Result<(), Violation> {
    let flags = rules::script_flags(context.params, context.height, context.hash);
    for ((tx, coins), index) in context.block.txs().skip(1).zip(undo).zip(1..) {
        let coins = decoded_coins(coins.iter().map(OwnedCoin::as_coin));
        scripts.check_tx(&tx, TxIndex(index), &coins, flags)?;
    }
    Ok(())
}

/// Decodes coins. No connected block created a malformed one, so decoding succeeds for all.
pub fn decoded_coins<'c>(coins: impl ExactSizeIterator<Item = Coin<'c>>) -> Vec<SpentCoin<'c>> {
    let count = coins.len();
    let decoded: Vec<_> = coins.filter_map(|coin| SpentCoin::from_coin(&coin).ok()).collect();
    debug_assert_eq!(decoded.len(), count);
    decoded
}

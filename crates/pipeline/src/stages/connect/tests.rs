//! Connecting and disconnecting hand-made blocks: BIP-0030, all kinds of results and errors.

mod chains;
mod errors;
mod fullblocks;

use super::{
    BlockUndo, ConnectContext, ConnectError, DisconnectError, DisconnectResult, connect_block,
    disconnect_block,
};
use crate::stages::scripts::Scripts;
use coins::{CoinSource, CoinsCache, MemoryCoins, NoCoins, OwnedCoin, SipKey};
use digest::sha256::sha256d;
use disk::undo::{UndoArena, UndoView, write_undo};
use rules::ChainParams;
use std::collections::BTreeMap;
use wire::{
    BlockArena, BlockHash, BlockTime, BlockView, Coin, Header, Height, Network, OutPoint, TxIndex, Txid,
    read::write_compact_size,
};

const BTC: u64 = 100_000_000;
/// `OP_TRUE`
const ANYONE: &[u8] = &[0x51];
/// `OP_RETURN`
const UNSPENDABLE: &[u8] = &[0x6a];
/// Height from which a coinbase of block 1 can be spent.
const MATURE: u32 = 101;

/// A block and its place in the chain; only the fields of the header that are needed are set.
#[derive(Clone)]
struct Block {
    bytes: Vec<u8>,
    height: Height,
    hash: BlockHash,
    bip34_ancestor: Option<BlockHash>,
}

impl Block {
    /// Makes the child of the coins' best block.
    fn next(coins: &MemoryCoins, height: u32, txs: &[Vec<u8>]) -> Self {
        let prev = coins.best_block();
        let (time, merkle_root) = (BlockTime(0), sha256d(&txs.concat()));
        let header = Header { version: 1, prev, merkle_root, time, bits: 0, nonce: 0 };
        let mut bytes = header.to_bytes().to_vec();
        write_compact_size(&mut bytes, txs.len() as u64);
        txs.iter().for_each(|tx| bytes.extend_from_slice(tx));
        Self { bytes, height: Height(height), hash: header.hash(), bip34_ancestor: None }
    }

    fn with_context<T>(
        &self,
        params: &ChainParams,
        median_times: &[BlockTime],
        call: impl FnOnce(&ConnectContext<'_>) -> T,
    ) -> T {
        let mut arena = BlockArena::default();
        let block = arena.parse(&self.bytes).unwrap();
        call(&ConnectContext {
            params,
            height: self.height,
            hash: &self.hash,
            block: &block,
            txids: &testkit::block::ids(&block).0,
            mtp_by_height: median_times,
            bip34_ancestor: self.bip34_ancestor,
        })
    }
}

/// Returns no coins, to which no block has been connected.
fn no_coins() -> MemoryCoins {
    MemoryCoins::new(NoCoins, BlockHash::default(), SipKey(1, 2))
}

/// The best block and all coins after it, to be compared.
type All = (BlockHash, BTreeMap<OutPoint, OwnedCoin>);

fn all(coins: &MemoryCoins) -> All {
    (coins.best_block(), coins.iter().map(|(outpoint, coin)| (outpoint, coin.into())).collect())
}

/// Connects a block and returns its undo data as Core stores it.
fn connect(
    coins: &mut MemoryCoins,
    params: &ChainParams,
    block: &Block,
) -> Result<Vec<u8>, rules::Violation> {
    connect_with(coins, params, block, None).map_err(violation)
}

/// Connects the child of the best block with these transactions. Returns it, and its undo data.
fn add(coins: &mut MemoryCoins, params: &ChainParams, height: u32, txs: &[Vec<u8>]) -> (Block, Vec<u8>) {
    let block = Block::next(coins, height, txs);
    let undo = connect(coins, params, &block).unwrap();
    (block, undo)
}

fn violation<E: std::fmt::Debug>(error: ConnectError<E>) -> rules::Violation {
    match error {
        ConnectError::Violation(violation) => violation,
        ConnectError::Coins(error) => panic!("{error:?}"),
    }
}

fn connect_with<S: CoinSource>(
    coins: &mut CoinsCache<S>,
    params: &ChainParams,
    block: &Block,
    scripts: Option<&Scripts<'_>>,
) -> Result<Vec<u8>, ConnectError<S::Error>> {
    let times = vec![BlockTime(0); block.height.0 as usize];
    block
        .with_context(params, &times, |context| connect_block(coins, context, scripts))
        .map(|undo| encode(&undo))
}

fn encode(undo: &BlockUndo) -> Vec<u8> {
    write_undo(undo.iter().map(|coins| coins.iter().map(OwnedCoin::as_coin)))
}

fn disconnect<S: CoinSource>(
    coins: &mut CoinsCache<S>,
    params: &ChainParams,
    block: &Block,
    undo: &[u8],
) -> Result<DisconnectResult, DisconnectError<S::Error>> {
    let mut arena = UndoArena::default();
    let undo = UndoView::parse(undo, &mut arena).unwrap();
    block.with_context(params, &[], |context| disconnect_block(coins, context, &undo))
}

/// Connects blocks, then disconnects them, and asserts that each step back gives the coins before.
fn assert_reversible(mut coins: MemoryCoins, params: &ChainParams, blocks: &[(u32, Vec<Vec<u8>>)]) {
    let mut connected = Vec::new();
    for (height, txs) in blocks {
        let before = all(&coins);
        let (block, undo) = add(&mut coins, params, *height, txs);
        assert_eq!(coins.best_block(), block.hash);
        connected.push((before, block, undo));
    }
    for (before, block, undo) in connected.into_iter().rev() {
        assert_eq!(disconnect(&mut coins, params, &block, &undo).unwrap(), DisconnectResult::Ok);
        assert_eq!(all(&coins), before, "at height {}", block.height);
    }
}

/// An input: the coin that it spends, its signature script and its sequence number.
type Input<'a> = (OutPoint, &'a [u8], u32);

/// Serialises a transaction without witness.
fn raw_tx(version: u32, inputs: &[Input<'_>], outputs: &[(u64, &[u8])]) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    write_compact_size(&mut bytes, inputs.len() as u64);
    for (prevout, script_sig, sequence) in inputs {
        bytes.extend_from_slice(&prevout.txid.0);
        bytes.extend_from_slice(&prevout.vout.to_le_bytes());
        write_compact_size(&mut bytes, script_sig.len() as u64);
        bytes.extend_from_slice(script_sig);
        bytes.extend_from_slice(&sequence.to_le_bytes());
    }
    write_compact_size(&mut bytes, outputs.len() as u64);
    for (amount, script) in outputs {
        bytes.extend_from_slice(&amount.to_le_bytes());
        write_compact_size(&mut bytes, script.len() as u64);
        bytes.extend_from_slice(script);
    }
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

fn tx(inputs: &[OutPoint], outputs: &[(u64, &[u8])]) -> Vec<u8> {
    let inputs: Vec<Input<'_>> = inputs.iter().map(|&prevout| (prevout, &[][..], u32::MAX)).collect();
    raw_tx(1, &inputs, outputs)
}

/// A coinbase; equal `salt`s make equal coinbases, as was possible before BIP-0034.
fn coinbase_paying(salt: u64, outputs: &[(u64, &[u8])]) -> Vec<u8> {
    raw_tx(1, &[(OutPoint::NULL, &salt.to_le_bytes(), u32::MAX)], outputs)
}

fn coinbase(salt: u64) -> Vec<u8> {
    coinbase_paying(salt, &[(BTC, ANYONE)])
}

fn output(tx: &[u8], vout: u32) -> OutPoint {
    OutPoint { txid: Txid(sha256d(tx)), vout }
}

/// A network on which BIP-0034 is not active, so that coinbases may repeat.
fn params() -> ChainParams {
    ChainParams { bip34_height: Height(1_000), bip34_hash: None, ..ChainParams::of(Network::Regtest).clone() }
}

#[test]
fn a_coinbase_cannot_be_repeated_while_its_coin_is_unspent() {
    let (params, mut coins) = (params(), no_coins());
    add(&mut coins, &params, 1, &[coinbase(7)]);
    let repeated = Block::next(&coins, 2, &[coinbase(7)]);
    let error = connect(&mut coins, &params, &repeated).unwrap_err();
    assert_eq!((error.core.as_ref(), error.tx), ("bad-txns-BIP30", Some(TxIndex(0))));
    add(&mut coins, &params, 2, &[coinbase(8)]);
}

#[test]
fn a_coinbase_can_be_repeated_once_its_coin_is_spent() {
    let (params, mut coins) = (params(), no_coins());
    let made = output(&coinbase(7), 0);
    let blocks = [
        (1, vec![coinbase(7)]),
        (MATURE, vec![coinbase(9), tx(&[made], &[(BTC, ANYONE)])]),
        (102, vec![coinbase(7)]),
    ];
    for (height, txs) in &blocks {
        add(&mut coins, &params, *height, txs);
    }
    let Ok(Some(coin)) = coins.coin(&made) else { panic!("the coinbase has created a coin again") };
    assert_eq!(coin.code, Coin::code_of(Height(102), true));
    assert_reversible(no_coins(), &params, &blocks);
}

/// BIP-0030 is not enforced for the two blocks of mainnet that repeat a coinbase, and above a known
/// BIP-0034 block.
#[test]
fn coins_are_overwritten_where_bip30_is_not_enforced() {
    let known = BlockHash([50; 32]);
    let mut excused = params();
    excused.bip30_exceptions = &[(Height(2), BlockHash([2; 32]))];
    let mut above = params();
    (above.bip34_height, above.bip34_hash) = (Height(50), Some(known));
    let made = output(&coinbase(7), 0);
    let repeat = |params: &ChainParams, height, hash, ancestor| {
        let mut coins = no_coins();
        add(&mut coins, params, 1, &[coinbase(7)]);
        let block = Block::next(&coins, height, &[coinbase(7)]);
        let block = Block { hash, bip34_ancestor: ancestor, ..block };
        connect(&mut coins, params, &block).map(|_| coins)
    };
    for (params, height, ancestor) in [(&excused, 2, None), (&above, 60, Some(known))] {
        let coins = repeat(params, height, BlockHash([2; 32]), ancestor).unwrap();
        assert_eq!(coins.iter().count(), 1);
        let Ok(Some(coin)) = coins.coin(&made) else { panic!("the coinbase has created a coin") };
        let replaced = Coin::code_of(Height(height), true);
        assert_eq!(coin.code, replaced, "the later coin replaces the earlier one");
    }
    // On another chain the block at that height is another one, and BIP-0030 is enforced.
    for (params, height, ancestor) in [(&excused, 2, None), (&above, 60, Some(BlockHash([51; 32])))] {
        let error = repeat(params, height, BlockHash([3; 32]), ancestor).unwrap_err();
        assert_eq!(error.core, "bad-txns-BIP30");
    }
}

/// Blocks 91842 and 91880 of mainnet overwrote the coins of 91812 and 91722: after they are disconnected, the
/// coins of the earlier blocks are missing, which is all right in these two blocks only.
#[test]
fn a_block_whose_coins_were_overwritten_disconnects_without_them() {
    let mut params = params();
    params.bip30_exceptions = &[(Height(2), BlockHash([2; 32]))];
    params.overwritten_coinbases = &[(Height(1), BlockHash([1; 32]))];
    for (hash, expected) in [([1; 32], DisconnectResult::Ok), ([9; 32], DisconnectResult::Unclean)] {
        let mut coins = no_coins();
        let first = Block { hash: BlockHash(hash), ..Block::next(&coins, 1, &[coinbase(7)]) };
        let no_undo = connect(&mut coins, &params, &first).unwrap();
        let repeated = Block { hash: BlockHash([2; 32]), ..Block::next(&coins, 2, &[coinbase(7)]) };
        connect(&mut coins, &params, &repeated).unwrap();
        assert_eq!(disconnect(&mut coins, &params, &repeated, &no_undo).unwrap(), DisconnectResult::Ok);
        assert_eq!(coins.iter().count(), 0);
        assert_eq!(disconnect(&mut coins, &params, &first, &no_undo).unwrap(), expected);
        assert_eq!(all(&coins), all(&no_coins()));
    }
}

/// The exception is for the coinbase alone.
#[test]
fn another_coin_missing_in_an_overwritten_block_is_unclean() {
    let mut params = params();
    params.overwritten_coinbases = &[(Height(MATURE), BlockHash([1; 32]))];
    let mut coins = no_coins();
    add(&mut coins, &params, 1, &[coinbase(7)]);
    let spend = tx(&[output(&coinbase(7), 0)], &[(BTC, ANYONE)]);
    let block = Block::next(&coins, MATURE, &[coinbase(8), spend.clone()]);
    let block = Block { hash: BlockHash([1; 32]), ..block };
    let undo = connect(&mut coins, &params, &block).unwrap();
    coins.spend_coin(&output(&coinbase(8), 0)).unwrap();
    let mut other = coins.clone();
    assert_eq!(disconnect(&mut coins, &params, &block, &undo).unwrap(), DisconnectResult::Ok);
    other.spend_coin(&output(&spend, 0)).unwrap();
    assert_eq!(disconnect(&mut other, &params, &block, &undo).unwrap(), DisconnectResult::Unclean);
    assert_eq!(all(&coins), all(&other));
}

#[test]
fn unspendable_outputs_are_no_coins() {
    let long = vec![0x51; 10_001];
    let first = coinbase_paying(1, &[(BTC, UNSPENDABLE), (BTC, ANYONE), (BTC, &long), (0, &long[1..])]);
    let mut coins = no_coins();
    add(&mut coins, &params(), 1, std::slice::from_ref(&first));
    let is_coin = [0, 1, 2, 3].map(|vout| coins.coin(&output(&first, vout)).unwrap().is_some());
    assert_eq!(is_coin, [false, true, false, true]);
    let spend = tx(&[output(&first, 1)], &[(BTC, UNSPENDABLE)]);
    let blocks = [(1, vec![first]), (MATURE, vec![coinbase(2), spend])];
    assert_reversible(no_coins(), &params(), &blocks);
}

#[test]
fn a_coin_can_be_created_and_spent_in_the_block() {
    let (params, first) = (params(), coinbase(1));
    let parent = tx(&[output(&first, 0)], &[(BTC / 2, ANYONE), (BTC / 2, ANYONE)]);
    let child = tx(&[output(&parent, 1), output(&parent, 0)], &[(BTC, ANYONE)]);
    let grandchild = tx(&[output(&child, 0)], &[(BTC, ANYONE)]);
    let blocks = [(1, vec![first]), (MATURE, vec![coinbase(2), parent, child, grandchild.clone()])];
    let mut coins = no_coins();
    add(&mut coins, &params, 1, &blocks[0].1);
    let (_, undo) = add(&mut coins, &params, MATURE, &blocks[1].1);
    let mut arena = UndoArena::default();
    let undo = UndoView::parse(&undo, &mut arena).unwrap();
    let codes: Vec<Vec<u32>> = undo.txs().map(|coins| coins.map(|coin| coin.code).collect()).collect();
    let (old, new) = (Coin::code_of(Height(1), true), Coin::code_of(Height(MATURE), false));
    assert_eq!(codes, [vec![old], vec![new, new], vec![new]]);
    assert_eq!(coins.iter().count(), 2);
    assert!(coins.coin(&output(&grandchild, 0)).unwrap().is_some());
    assert_reversible(no_coins(), &params, &blocks);
}

//! Stage sequential: connects blocks in order on one thread with real coins, as Bitcoin Core does (ADR 2).
//!
//! Runs if parallel matching could not prove the chain. Its verdict is final: the first invalid block with
//! its first violation in Core's order, or the first undo data whose claims differ from the coins; or, if
//! nothing is wrong, the UTXO set.

use crate::{
    chain::{Chain, FileKind, Files},
    error::Error,
    report::Counts,
    stages::{
        block_fault::{Damage, UndoDefect},
        block_hashes::BlockHashes,
        read::{RawBlock, read_block},
        scripts::Scripts,
    },
};
use coins::{OrderedCoins, OwnedCoin};
use disk::undo::{CHECKSUM_LEN, UndoArena, UndoView};
use rules::{
    BIP30, BlockContext, BlockTotals, ChainParams, Class, MISSING_OR_SPENT, RewardContext, SpendContext,
    SpentCoin, Violation, check_block, check_coinbase_amount, check_tx_spends,
};
use std::sync::atomic::{AtomicBool, Ordering};
use wire::{BlockArena, BlockView, Coin, Height, OutPoint, ScriptFlags, TxIndex, TxView, Txid, coin, script};

/// Which scripts the sequential validation runs.
pub struct SequentialScripts<'a> {
    /// Verifier and options.
    pub scripts: Scripts<'a>,
    /// The first block whose scripts are run: the scripts of lower blocks have been run in parallel, on
    /// claims that are compared with the coins here.
    pub from: Height,
}

/// Validates the chain and returns the coins after it; calls `on_block` after each block.
///
/// # Errors
/// The first violation, damage, or [`crate::ErrorKind::Interrupted`].
pub fn validate(
    chain: &Chain,
    files: &Files<'_>,
    scripts: Option<SequentialScripts<'_>>,
    interrupt: &AtomicBool,
    mut on_block: impl FnMut(&Counts),
) -> Result<(OrderedCoins, Counts), Error> {
    let mut validator = SequentialValidator {
        chain,
        params: ChainParams::of(files.network),
        scripts,
        coins: OrderedCoins::default(),
        hashes: BlockHashes::default(),
        counts: Counts::default(),
    };
    let mut arena = BlockArena::default();
    for height in (0..=chain.tip_height().0).map(Height) {
        if interrupt.load(Ordering::Relaxed) {
            return Err(Error::interrupted());
        }
        let raw = read_block(chain, files, height)?;
        validator.connect(&raw, &mut arena, height)?;
        on_block(&validator.counts);
    }
    Ok((validator.coins, validator.counts))
}

struct SequentialValidator<'a> {
    chain: &'a Chain,
    params: &'static ChainParams,
    scripts: Option<SequentialScripts<'a>>,
    coins: OrderedCoins,
    hashes: BlockHashes,
    counts: Counts,
}

impl SequentialValidator<'_> {
    fn connect(&mut self, raw: &RawBlock<'_>, arena: &mut BlockArena, height: Height) -> Result<(), Error> {
        let hash = self.chain.block(height).hash;
        let block = raw.parse(arena)?;
        self.hashes.of_block(&block, &[]);
        if self.hashes.block != hash {
            return Err(raw.located.damaged(&Damage::OtherBlock(self.hashes.block)));
        }
        let verdict = |violation: &Violation| {
            let txid = violation.tx.and_then(|tx| self.hashes.txids.get(tx.0 as usize)).copied();
            let (path, offset) = raw.located.position(FileKind::Blk);
            Error::violation(violation).at_block(height, hash).in_tx(txid).in_file(path, offset)
        };
        if let Some(SequentialScripts { scripts, .. }) = &self.scripts {
            scripts
                .check_solution(&block, height, &self.hashes.txids)
                .map_err(|violation| verdict(&violation))?;
        }
        let context = BlockContext {
            params: self.params,
            height,
            block: &block,
            txids: &self.hashes.txids,
            wtxids: &self.hashes.wtxids,
            median_time_past_prev: self.chain.median_time_before(height),
        };
        check_block(&context).map_err(|violation| match violation.rule.class {
            Class::Mutated => raw.located.damaged(&Damage::Mutated(violation)),
            _ => verdict(&violation),
        })?;
        if height.0 > 0 {
            let spent =
                connect_spends(self.params, self.chain, &mut self.coins, &self.hashes, &block, height)
                    .map_err(|violation| verdict(&violation))?;
            if let Some(SequentialScripts { scripts, from }) = &self.scripts
                && height >= *from
                && scripts.are_run_at(height)
            {
                let flags = rules::script_flags(self.params, height, &hash);
                check_scripts(scripts, &block, &spent, flags).map_err(|violation| verdict(&violation))?;
                self.counts.scripts += spent.iter().map(|coins| coins.len() as u64).sum::<u64>();
            }
            // A rebuild without undo data has none to compare.
            if self.chain.block(height).undo_pos.is_some() {
                compare_undo(raw, &spent, &self.hashes.txids)?;
            }
        }
        self.counts += Counts::of(&block);
        Ok(())
    }
}

/// Core `ConnectBlock` without scripts: returns the spent coins of each transaction after the coinbase.
fn connect_spends(
    params: &ChainParams,
    chain: &Chain,
    coins: &mut OrderedCoins,
    hashes: &BlockHashes,
    block: &BlockView<'_>,
    height: Height,
) -> Result<Vec<Vec<OwnedCoin>>, Violation> {
    let hash = &chain.block(height).hash;
    check_bip30(params, chain, coins, hashes, block, height)?;
    let mut totals = BlockTotals::default();
    let mut all_spent = Vec::with_capacity(block.tx_count().saturating_sub(1));
    for ((tx, txid), index) in block.txs().zip(&hashes.txids).zip(0..) {
        let tx_index = TxIndex(index);
        let spent = if index == 0 { Vec::new() } else { take_coins(coins, &tx, tx_index)? };
        totals = check_tx_spends(&SpendContext {
            params,
            height,
            hash,
            tx: &tx,
            tx_index,
            coins: &spent_coins(&spent),
            mtp_by_height: chain.median_times(),
            before: totals,
        })?;
        let mut out = Vec::new();
        let code = Coin::code_of(height, index == 0);
        for (output, vout) in tx.outputs().zip(0..) {
            if script::is_unspendable(output.script_pubkey()) {
                continue;
            }
            out.clear();
            coin::compress_output(&mut out, output.value(), output.script_pubkey());
            // `check_bip30` has checked this where BIP-0030 is enforced; elsewhere Core overwrites.
            coins.overwrite(OutPoint { txid: *txid, vout }, Coin { code, out: &out });
        }
        if index > 0 {
            all_spent.push(spent);
        }
    }
    if let Some(coinbase) = block.tx(0) {
        check_coinbase_amount(&RewardContext { params, height, coinbase: &coinbase, fees: totals.fees })?;
    }
    Ok(all_spent)
}

/// Runs the scripts of a block whose spends are otherwise valid: Core checks them last.
fn check_scripts(
    scripts: &Scripts<'_>,
    block: &BlockView<'_>,
    spent: &[Vec<OwnedCoin>],
    flags: ScriptFlags,
) -> Result<(), Violation> {
    for ((tx, coins), index) in block.txs().skip(1).zip(spent).zip(1..) {
        scripts.check_tx(&tx, TxIndex(index), &spent_coins(coins), flags)?;
    }
    Ok(())
}

/// Decodes coins. `compress_output` encoded them, so decoding succeeds for all.
fn spent_coins(coins: &[OwnedCoin]) -> Vec<SpentCoin<'_>> {
    let decoded: Vec<_> =
        coins.iter().filter_map(|coin| SpentCoin::from_coin(&coin.as_coin()).ok()).collect();
    debug_assert_eq!(decoded.len(), coins.len());
    decoded
}

/// BIP-0030: no transaction of the block may create a coin that exists.
fn check_bip30(
    params: &ChainParams,
    chain: &Chain,
    coins: &OrderedCoins,
    hashes: &BlockHashes,
    block: &BlockView<'_>,
    height: Height,
) -> Result<(), Violation> {
    let ancestor =
        Some(params.bip34_height).filter(|&bip34| bip34 < height).map(|bip34| chain.block(bip34).hash);
    if !rules::bip30_enforced(params, height, &chain.block(height).hash, ancestor.as_ref()) {
        return Ok(());
    }
    for ((tx, &txid), index) in block.txs().zip(&hashes.txids).zip(0..) {
        for vout in 0..tx.output_count() as u32 {
            let outpoint = OutPoint { txid, vout };
            if coins.contains(&outpoint) {
                let detail = format!("{outpoint} exists and is unspent");
                return Err(rules::ViolationDetails::new(detail).at_tx(TxIndex(index)).of(&BIP30));
            }
        }
    }
    Ok(())
}

/// Removes the coins that a transaction spends from the set, and returns them.
fn take_coins(
    coins: &mut OrderedCoins,
    tx: &TxView<'_>,
    tx_index: TxIndex,
) -> Result<Vec<OwnedCoin>, Violation> {
    let mut spent = Vec::with_capacity(tx.input_count());
    for (input, index) in tx.inputs().zip(0..) {
        let prevout = input.prevout();
        let Some(taken) = coins.spend(&prevout) else {
            let detail = format!("{prevout} was never created, or is already spent");
            return Err(rules::ViolationDetails::new(detail)
                .at_tx(tx_index)
                .at_input(index)
                .of(&MISSING_OR_SPENT));
        };
        spent.push(taken);
    }
    Ok(spent)
}

/// Compares the undo data of a valid block with the coins that it spent.
fn compare_undo(raw: &RawBlock<'_>, spent: &[Vec<OwnedCoin>], txids: &[Txid]) -> Result<(), Error> {
    let (data, _) =
        raw.undo.split_at_checked(raw.undo.len().saturating_sub(CHECKSUM_LEN)).unwrap_or_default();
    let mut arena = UndoArena::default();
    let damaged = |defect: UndoDefect| raw.located.damaged(&Damage::Undo(defect));
    let undo = UndoView::parse(data, &mut arena).map_err(|error| damaged(UndoDefect::Malformed(error)))?;
    if undo.tx_count() != spent.len() {
        return Err(damaged(UndoDefect::TxCount { found: undo.tx_count(), expected: spent.len() }));
    }
    for (index, coins) in spent.iter().enumerate() {
        let claims = undo.tx_coins(index).into_iter().flatten();
        let coins = coins.iter().map(OwnedCoin::as_coin);
        if !claims.eq(coins) {
            return Err(damaged(UndoDefect::Claims(index + 1)).in_tx(txids.get(index + 1).copied()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::ChainBlock;
    use wire::{BlockHash, BlockTime, ByteOffset, FileNo, Header, Network};

    const REPEATED: Height = Height(1);
    /// Height from which a coinbase of block 1 can be spent.
    const MATURE: Height = Height(101);

    /// A transaction without witness: one input that spends `prevout`, one output of 1 BTC to TRUE.
    fn tx(prevout: &OutPoint, script_sig: &[u8]) -> Vec<u8> {
        let mut bytes = 1u32.to_le_bytes().to_vec();
        bytes.push(1);
        bytes.extend_from_slice(&prevout.txid.0);
        bytes.extend_from_slice(&prevout.vout.to_le_bytes());
        bytes.push(script_sig.len() as u8);
        bytes.extend_from_slice(script_sig);
        bytes.extend_from_slice(&[0xff; 4]);
        bytes.push(1);
        bytes.extend_from_slice(&100_000_000u64.to_le_bytes());
        bytes.extend_from_slice(&[1, 0x51, 0, 0, 0, 0]);
        bytes
    }

    /// A coinbase; equal `salt`s make equal coinbases, as was possible before BIP-0034.
    fn coinbase(salt: u8) -> Vec<u8> {
        tx(&OutPoint { txid: Txid([0; 32]), vout: u32::MAX }, &[1, salt])
    }

    fn chain(height_of_bip34: BlockHash) -> Chain {
        let block = |hash| ChainBlock { hash, file: FileNo(0), data_pos: ByteOffset(8), undo_pos: None };
        let blocks = (0..=MATURE.0 + 1)
            .map(|height| block(if height == 50 { height_of_bip34 } else { BlockHash([height as u8; 32]) }));
        let blocks: Vec<_> = blocks.collect();
        let times = vec![BlockTime(0); blocks.len()];
        Chain::new(blocks, times)
    }

    /// A network on which BIP-0034 is not active, so that coinbases may repeat.
    fn params() -> ChainParams {
        ChainParams {
            bip34_height: Height(1_000),
            bip34_hash: None,
            ..ChainParams::of(Network::Regtest).clone()
        }
    }

    /// Connects a block with these transactions.
    fn connect(
        params: &ChainParams,
        chain: &Chain,
        coins: &mut OrderedCoins,
        height: Height,
        txs: &[Vec<u8>],
    ) -> Result<Vec<Txid>, Violation> {
        let header = Header {
            version: 1,
            prev: BlockHash([0; 32]),
            merkle_root: [0; 32],
            time: BlockTime(0),
            bits: 0,
            nonce: 0,
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.push(txs.len() as u8);
        txs.iter().for_each(|tx| bytes.extend_from_slice(tx));
        let (mut arena, mut hashes) = (BlockArena::default(), BlockHashes::default());
        let block = arena.parse(&bytes).unwrap();
        hashes.of_block(&block, &[]);
        connect_spends(params, chain, coins, &hashes, &block, height)?;
        Ok(hashes.txids)
    }

    #[test]
    fn a_coinbase_cannot_be_repeated_while_its_coin_is_unspent() {
        let (params, chain, mut coins) = (params(), chain(BlockHash([50; 32])), OrderedCoins::default());
        connect(&params, &chain, &mut coins, REPEATED, &[coinbase(7)]).unwrap();
        let error = connect(&params, &chain, &mut coins, Height(2), &[coinbase(7)]).unwrap_err();
        assert_eq!((error.core.as_ref(), error.tx), ("bad-txns-BIP30", Some(TxIndex(0))));
        connect(&params, &chain, &mut coins, Height(2), &[coinbase(8)]).unwrap();
    }

    #[test]
    fn a_coinbase_can_be_repeated_once_its_coin_is_spent() {
        let (params, chain, mut coins) = (params(), chain(BlockHash([50; 32])), OrderedCoins::default());
        let made = connect(&params, &chain, &mut coins, REPEATED, &[coinbase(7)]).unwrap();
        let spend = tx(&OutPoint { txid: made[0], vout: 0 }, &[]);
        connect(&params, &chain, &mut coins, MATURE, &[coinbase(9), spend]).unwrap();
        let again = connect(&params, &chain, &mut coins, Height(102), &[coinbase(7)]).unwrap();
        assert_eq!(made, again);
        let coin = coins.lookup(&OutPoint { txid: made[0], vout: 0 }).unwrap();
        assert_eq!(coin.code, Coin::code_of(Height(102), true));
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
        for (params, height) in [(excused, Height(2)), (above, Height(60))] {
            let (chain, mut coins) = (chain(known), OrderedCoins::default());
            let made = connect(&params, &chain, &mut coins, REPEATED, &[coinbase(7)]).unwrap();
            connect(&params, &chain, &mut coins, height, &[coinbase(7)]).unwrap();
            assert_eq!(coins.len(), 1);
            let coin = coins.lookup(&OutPoint { txid: made[0], vout: 0 }).unwrap();
            assert_eq!(coin.code, Coin::code_of(height, true), "the later coin replaces the earlier one");
        }
        // On another chain the block at that height is another one, and BIP-0030 is enforced.
        let mut params = params();
        (params.bip34_height, params.bip34_hash) = (Height(50), Some(known));
        let (chain, mut coins) = (chain(BlockHash([51; 32])), OrderedCoins::default());
        connect(&params, &chain, &mut coins, REPEATED, &[coinbase(7)]).unwrap();
        let error = connect(&params, &chain, &mut coins, Height(60), &[coinbase(7)]).unwrap_err();
        assert_eq!(error.core, "bad-txns-BIP30");
    }
}

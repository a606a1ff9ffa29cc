//! The judge: blocks in order, one thread, real coins, as Bitcoin Core connects them (ADR 2).
//!
//! Called when the fast path could not prove the chain. Its verdict counts: the first invalid block with the
//! first broken rule in Core's order; or the first undo record that claims a coin which is not so; or that
//! nothing is wrong, and then its coins are the UTXO set.

use crate::{
    chain::{Chain, Files},
    error::Error,
    report::Counts,
    stages::{
        hashes::Hashes,
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

/// Which scripts the judge runs.
pub struct JudgeScripts<'a> {
    /// How.
    pub scripts: Scripts<'a>,
    /// Only those of blocks from here on: the fast path has run the ones below, on claims that the judge
    /// compares with the coins.
    pub from: Height,
}

/// Judges the chain and gives the coins after it; `done` is told after each block.
///
/// # Errors
/// The verdict, damage, or [`crate::ErrorKind::Interrupted`].
pub fn judge(
    chain: &Chain,
    files: &Files<'_>,
    scripts: Option<JudgeScripts<'_>>,
    interrupt: &AtomicBool,
    mut done: impl FnMut(&Counts),
) -> Result<(OrderedCoins, Counts), Error> {
    let mut judge = Judge {
        chain,
        params: ChainParams::of(files.network),
        scripts,
        coins: OrderedCoins::default(),
        hashes: Hashes::default(),
        counts: Counts::default(),
    };
    let mut arena = BlockArena::default();
    for height in (0..=chain.tip_height().0).map(Height) {
        if interrupt.load(Ordering::Relaxed) {
            return Err(Error::interrupted());
        }
        let raw = read_block(chain, files, height)?;
        judge.connect(&raw, &mut arena, height)?;
        done(&judge.counts);
    }
    Ok((judge.coins, judge.counts))
}

struct Judge<'a> {
    chain: &'a Chain,
    params: &'static ChainParams,
    scripts: Option<JudgeScripts<'a>>,
    coins: OrderedCoins,
    hashes: Hashes,
    counts: Counts,
}

impl Judge<'_> {
    fn connect(&mut self, raw: &RawBlock, arena: &mut BlockArena, height: Height) -> Result<(), Error> {
        let hash = self.chain.block(height).hash;
        let block = raw.parse(arena)?;
        self.hashes.of_block(&block, &[]);
        if self.hashes.block != hash {
            return Err(raw.block_error("the block there is another one; the file is damaged".to_owned()));
        }
        let verdict = |violation: &Violation| {
            let txid = violation.tx.and_then(|tx| self.hashes.txids.get(tx.0 as usize)).copied();
            let (path, offset) = raw.place();
            Error::violation(violation).at_block(height, hash).in_tx(txid).in_file(path, Some(offset))
        };
        if let Some(JudgeScripts { scripts, .. }) = &self.scripts {
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
            Class::Mutated => raw.mutated(&violation),
            _ => verdict(&violation),
        })?;
        if height.0 > 0 {
            let spent =
                connect_spends(self.params, self.chain, &mut self.coins, &self.hashes, &block, height)
                    .map_err(|violation| verdict(&violation))?;
            if let Some(JudgeScripts { scripts, from }) = &self.scripts
                && height >= *from
                && scripts.bind(height)
            {
                let flags = rules::script_flags(self.params, height, &hash);
                check_scripts(scripts, &block, &spent, flags).map_err(|violation| verdict(&violation))?;
                self.counts.scripts += spent.iter().map(|coins| coins.len() as u64).sum::<u64>();
            }
            compare_undo(raw, &spent, &self.hashes.txids)?;
        }
        self.counts += Counts::of(&block);
        Ok(())
    }
}

/// Core `ConnectBlock`, but for scripts: gives the spent coins of each transaction after the coinbase.
fn connect_spends(
    params: &ChainParams,
    chain: &Chain,
    coins: &mut OrderedCoins,
    hashes: &Hashes,
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
            // Where BIP-0030 is in force it has been asked; elsewhere Core overwrites.
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

/// Runs the scripts of a block whose spends are all right otherwise: Core waits for them last.
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

/// Decodes coins. What `compress_output` made can be read back: none is lost.
fn spent_coins(coins: &[OwnedCoin]) -> Vec<SpentCoin<'_>> {
    let decoded: Vec<_> =
        coins.iter().filter_map(|coin| SpentCoin::from_coin(&coin.as_coin()).ok()).collect();
    debug_assert_eq!(decoded.len(), coins.len());
    decoded
}

/// BIP-0030: no transaction of the block may make a coin that is there.
fn check_bip30(
    params: &ChainParams,
    chain: &Chain,
    coins: &OrderedCoins,
    hashes: &Hashes,
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
                let detail = format!("{outpoint} exists and is not spent");
                return Err(rules::Finding::new(detail).at_tx(TxIndex(index)).of(&BIP30));
            }
        }
    }
    Ok(())
}

/// Takes the coins a transaction spends out of the set.
fn take_coins(
    coins: &mut OrderedCoins,
    tx: &TxView<'_>,
    tx_index: TxIndex,
) -> Result<Vec<OwnedCoin>, Violation> {
    let mut spent = Vec::with_capacity(tx.input_count());
    for (input, index) in tx.inputs().zip(0..) {
        let prevout = input.prevout();
        let Some(taken) = coins.spend(&prevout) else {
            let detail = format!("{prevout} was never made, or is spent already");
            return Err(rules::Finding::new(detail).at_tx(tx_index).at_input(index).of(&MISSING_OR_SPENT));
        };
        spent.push(taken);
    }
    Ok(spent)
}

/// The block is valid: does its undo data say so too?
fn compare_undo(raw: &RawBlock, spent: &[Vec<OwnedCoin>], txids: &[Txid]) -> Result<(), Error> {
    let (data, _) =
        raw.undo.split_at_checked(raw.undo.len().saturating_sub(CHECKSUM_LEN)).unwrap_or_default();
    let mut arena = UndoArena::default();
    let undo = UndoView::parse(data, &mut arena).map_err(|error| raw.undo_error(error.to_string()))?;
    if undo.tx_count() != spent.len() {
        let detail = format!("undo data of {} transactions, the block has {}", undo.tx_count(), spent.len());
        return Err(raw.undo_error(detail));
    }
    for (index, coins) in spent.iter().enumerate() {
        let claims = undo.tx_coins(index).into_iter().flatten();
        let coins = coins.iter().map(OwnedCoin::as_coin);
        if !claims.eq(coins) {
            let detail = format!(
                "the coins claimed as spent by transaction {} of the block are not those that were made",
                index + 1
            );
            return Err(raw.undo_error(detail).in_tx(txids.get(index + 1).copied()));
        }
    }
    Ok(())
}

//! Stage sequential: connects blocks in order on one thread with real coins, as Bitcoin Core does (ADR 11).
//!
//! `job::verdict` connects the block in question so, which names its first violation in Core's order. Whole
//! chains are connected so only where a coinbase repeats one whose coins are unspent, and in tests.

use crate::stages::{
    connect::{ConnectContext, ConnectError, connect_block},
    make_undo::{PlacedUndo, UndoSink},
    read::{BlockReader, RawBlock, read_block},
    scripts::Scripts,
};
use api::{
    counts::Counts,
    error::{Error, ErrorKind},
    machine::random_key,
};
use chain::blocks::{
    block_hashes::BlockHashes,
    chain::Chain,
    damage::{Damage, UndoDefect},
    files::{Files, LocatedBlock},
};
use coins::{MemoryCoins, NoCoins, OwnedCoin};
use disk::{
    block_files::RecordBuffer,
    undo::{CHECKSUM_LEN, UndoArena, UndoView, checksum, write_undo},
};
use rules::{ChainParams, Violation};
use std::sync::atomic::{AtomicBool, Ordering};
use wire::{BlockArena, BlockHash, Height, Txid};

/// What becomes of the undo data of each block.
#[derive(Clone, Copy)]
pub enum SequentialUndo<'a> {
    /// If the chain has it, it must be that of the block.
    Compare,
    /// If it is not that of the block, it is made.
    Make(Option<&'a dyn UndoSink>),
}

/// Validates the chain and returns the coins after it; calls `on_block` after each block.
///
/// # Errors
/// The first violation, damage, or [`api::error::ErrorKind::Interrupted`].
pub fn validate(
    chain: &Chain,
    files: &Files<'_>,
    scripts: Option<Scripts<'_>>,
    undo: SequentialUndo<'_>,
    interrupt: &AtomicBool,
    mut on_block: impl FnMut(&Counts),
) -> Result<(MemoryCoins, Counts), Error> {
    let coins = MemoryCoins::new(NoCoins, BlockHash::default(), random_key()?);
    let mut validator = SequentialValidator::new(chain, files.params, scripts, undo, coins);
    let mut arena = BlockArena::default();
    for height in (0..=chain.tip_height().0).map(Height) {
        if interrupt.load(Ordering::Relaxed) {
            return Err(Error::interrupted());
        }
        let with_undo = matches!(undo, SequentialUndo::Compare);
        let raw = read_block(chain, files, height, with_undo)?;
        validator.connect(&raw, &mut arena, height)?;
        on_block(&validator.counts);
    }
    Ok((validator.coins, validator.counts))
}

/// Connects blocks to coins in memory.
pub struct SequentialValidator<'a> {
    chain: &'a Chain,
    params: &'static ChainParams,
    scripts: Option<Scripts<'a>>,
    undo: SequentialUndo<'a>,
    coins: MemoryCoins,
    hashes: BlockHashes,
    counts: Counts,
}

impl<'a> SequentialValidator<'a> {
    /// Begins with the coins before the first block that is connected, or those of them that this block can
    /// spend or overwrite.
    pub fn new(
        chain: &'a Chain,
        params: &'static ChainParams,
        scripts: Option<Scripts<'a>>,
        undo: SequentialUndo<'a>,
        coins: MemoryCoins,
    ) -> Self {
        let (hashes, counts) = (BlockHashes::default(), Counts::default());
        Self { chain, params, scripts, undo, coins, hashes, counts }
    }

    /// Connects the next block.
    ///
    /// # Errors
    /// The first violation, or damage.
    pub fn connect(
        &mut self,
        raw: &RawBlock<'_>,
        arena: &mut BlockArena,
        height: Height,
    ) -> Result<(), Error> {
        let hash = self.chain.block(height).hash;
        let block = raw.parse(arena)?;
        let checked = raw.located.check_view(&block, &[], &mut self.hashes)?;
        let verdict = |violation: &Violation| raw.located.verdict(violation, &self.hashes.txids);
        if let Some(scripts) = &self.scripts {
            scripts
                .check_solution(&block, height, &self.hashes.txids)
                .map_err(|violation| verdict(&violation))?;
        }
        checked.map_err(|violation| verdict(&violation))?;
        let scripts = self.scripts.as_ref().filter(|scripts| scripts.are_run_at(height));
        let context = ConnectContext {
            params: self.params,
            height,
            hash: &hash,
            block: &block,
            txids: &self.hashes.txids,
            mtp_by_height: self.chain.median_times(),
            bip34_ancestor: bip34_ancestor(self.params, self.chain, height),
        };
        let undo = connect_block(&mut self.coins, &context, scripts).map_err(|error| match error {
            ConnectError::Violation(violation) => verdict(&violation),
            // No valid block creates a coin that exists, but undo data may claim such a coin.
            ConnectError::Coins(error) => Error::damaged(error.to_string()).at_block(height, hash),
        })?;
        if scripts.is_some() {
            self.counts.scripts += undo.iter().map(|coins| coins.len() as u64).sum::<u64>();
        }
        // The genesis block has no undo data, and a rebuild without undo data has none to compare.
        match self.undo {
            _ if height.0 == 0 => {}
            SequentialUndo::Make(None) => {}
            SequentialUndo::Make(Some(sink)) => self.make_undo(raw, &block.header().prev, &undo, sink)?,
            SequentialUndo::Compare if self.chain.block(height).undo_pos.is_some() => {
                compare_undo(raw, &undo, &self.hashes.txids)?;
            }
            SequentialUndo::Compare => {}
        }
        self.counts += Counts::of(&block);
        Ok(())
    }

    /// Gives the undo data of a block to the sink, unless the undo file has it.
    fn make_undo(
        &self,
        raw: &RawBlock<'_>,
        prev: &BlockHash,
        spent: &[Vec<OwnedCoin>],
        sink: &dyn UndoSink,
    ) -> Result<(), Error> {
        let LocatedBlock { chain, files, height } = raw.located;
        let undo = write_undo(spent.iter().map(|coins| coins.iter().map(OwnedCoin::as_coin)));
        if has_undo(&BlockReader::new(chain, files), height, prev, &undo)? {
            return Ok(());
        }
        let file = files.block(chain, height).file;
        let pos = sink.reserve(height, file, undo.len())?;
        sink.write(&PlacedUndo { height, file, pos, prev, data: &undo }, &mut Vec::new())
    }
}

/// Returns the hash of a block's ancestor at the height of BIP-0034.
pub fn bip34_ancestor(params: &ChainParams, chain: &Chain, height: Height) -> Option<BlockHash> {
    let bip34_height = params.bip34_height;
    (bip34_height < height).then(|| chain.block(bip34_height).hash)
}

/// Whether the undo file has this undo data for the block at `height`; `prev` is the hash of its parent.
pub fn has_undo(
    reader: &BlockReader<'_>,
    height: Height,
    prev: &BlockHash,
    undo: &[u8],
) -> Result<bool, Error> {
    let mut existing = RecordBuffer::default();
    match reader.read_undo(height, &mut existing) {
        Err(error) if error.kind != ErrorKind::Damaged => Err(error),
        _ => Ok(existing.bytes() == [undo, &checksum(prev, undo)].concat()),
    }
}

/// Compares the undo data of a valid block with the coins that it spent.
fn compare_undo(raw: &RawBlock<'_>, spent: &[Vec<OwnedCoin>], txids: &[Txid]) -> Result<(), Error> {
    let undo = write_undo(spent.iter().map(|coins| coins.iter().map(OwnedCoin::as_coin)));
    different_undo(&raw.undo, &undo).map_or(Ok(()), |defect| {
        let tx = if let UndoDefect::Claims(tx) = defect { txids.get(tx).copied() } else { None };
        Err(raw.located.damaged(&Damage::Undo(defect)).in_tx(tx))
    })
}

/// Returns how undo data, which its checksum follows, differs from that of its block; `None` if it does not.
pub fn different_undo(found: &[u8], undo: &[u8]) -> Option<UndoDefect> {
    let (found, _) = found.split_at(found.len().saturating_sub(CHECKSUM_LEN));
    let (mut arena, mut own_arena) = (UndoArena::default(), UndoArena::default());
    let found = match UndoView::parse(found, &mut arena) {
        Ok(found) => found,
        Err(error) => return Some(UndoDefect::Malformed(error)),
    };
    let own = UndoView::parse(undo, &mut own_arena).ok()?;
    if found.tx_count() != own.tx_count() {
        return Some(UndoDefect::TxCount { found: found.tx_count(), expected: own.tx_count() });
    }
    let different = found.txs().zip(own.txs()).position(|(found, own)| !found.eq(own));
    different.map(|index| UndoDefect::Claims(index + 1))
}

//! Stage plan, with a scan: decides to which of several blocks of the same shape an undo record belongs.
//!
//! A record contains, for each coin, its amount and script, and the height of the block that created it. So a
//! block that spends coins is compared with the blocks that created them: a record matches the block if each
//! claim is the output that the input names. Siblings that spend the same coins in the same order, or none,
//! match the same record; nothing on disk records which of them was connected (ADR 8).

use crate::{
    blocks::{block_hashes::BlockHashes, files::Files},
    plan::tree::Tree,
};
use api::error::Error;
use disk::{
    datadir::FileKind,
    scan::{Scan, ScannedBlock, ScannedFile},
    undo::{UndoArena, UndoView},
};
use std::{collections::HashMap, sync::atomic::AtomicBool};
use wire::{
    BlockArena, BlockHash, BlockView, ByteOffset, FileNo, Height, OutPoint, coin::compress_output,
    script::is_unspendable,
};

/// Maximum number of bytes read for this, in addition to the size of the scanned files. This bounds the time
/// that crafted files can waste; a real node has a handful of such blocks.
const EXTRA_READ_BYTES: u64 = 1 << 30;
/// Cost of a step from a block to its parent, in bytes.
const STEP_BYTES: u64 = 64;

pub struct Scanned {
    /// The blocks in the order of the tree's: by hash; copies of a block in file order, but copies with undo
    /// data first, because Core writes undo data for the copy in its index.
    pub blocks: Vec<ScannedBlock>,
    /// Positions of further undo records that match a block, by the file and the hash of the block.
    pub other_undo: HashMap<(FileNo, BlockHash), Vec<ByteOffset>>,
    pub files: Vec<ScannedFile>,
}

impl Scanned {
    pub fn new(scan: Scan) -> Self {
        let Scan { mut blocks, files, .. } = scan;
        let mut other_undo = HashMap::<_, Vec<_>>::new();
        for (number, pos) in scan.other_undo {
            let block = &blocks[number as usize];
            other_undo.entry((block.file, block.hash)).or_default().push(pos);
        }
        blocks
            .sort_unstable_by_key(|block| (block.hash, block.undo_pos.is_none(), block.file, block.data_pos));
        Self { blocks, other_undo, files }
    }
}

/// A scan, and the tree of its blocks.
pub struct Siblings<'a> {
    files: &'a Files<'a>,
    scanned: &'a Scanned,
    budget: u64,
}

/// A coin that undo data says was spent.
struct Claim {
    height: Height,
    is_coinbase: bool,
    prevout: OutPoint,
    out: Vec<u8>,
}

impl<'a> Siblings<'a> {
    /// Takes a scan, whose blocks are those of the tree.
    pub fn new(files: &'a Files<'a>, scanned: &'a Scanned) -> Self {
        let bytes: u64 = scanned.files.iter().map(|file| file.size + file.undo_size).sum();
        Self { files, scanned, budget: bytes.saturating_add(EXTRA_READ_BYTES) }
    }

    /// Assigns to each block of the tree whose undo data is ambiguous the record that matches it, or none.
    /// Returns the numbers, ascending, of blocks whose record also matches a sibling, or was not compared.
    pub fn assign(mut self, tree: &mut Tree<'_>, interrupt: &AtomicBool) -> Result<Vec<u32>, Error> {
        let is_ambiguous = |block: &ScannedBlock| block.shared || !self.other_records(block).is_empty();
        let ambiguous: Vec<(u32, Height)> =
            tree.linked().filter(|&(number, _)| self.block(number).is_some_and(is_ambiguous)).collect();
        let mut contested = Vec::new();
        let mut owners: HashMap<(FileNo, ByteOffset), Vec<u32>> = HashMap::new();
        for (number, height) in ambiguous {
            Error::check_interrupt(interrupt)?;
            let Some(block) = self.block(number) else { continue };
            match self.record_of(tree, number, height)? {
                Some(pos) => {
                    if !tree.set_undo_pos(number, pos) {
                        return Err(Error::damaged("undo data lies above 4 GiB"));
                    }
                    if let Some(pos) = pos {
                        owners.entry((block.file, pos)).or_default().push(number);
                    }
                }
                None => contested.push(number),
            }
        }
        contested.extend(owners.into_values().filter(|owners| owners.len() > 1).flatten());
        contested.sort_unstable();
        Ok(contested)
    }

    fn block(&self, number: u32) -> Option<&'a ScannedBlock> {
        self.scanned.blocks.get(number as usize)
    }

    /// Returns further undo records of a scanned block.
    fn other_records(&self, block: &ScannedBlock) -> &'a [ByteOffset] {
        self.scanned.other_undo.get(&(block.file, block.hash)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the record that matches a block, or `Some(None)` if no record does; `None` if this could not
    /// be determined.
    fn record_of(
        &mut self,
        tree: &Tree<'_>,
        number: u32,
        height: Height,
    ) -> Result<Option<Option<ByteOffset>>, Error> {
        let Some(block) = self.block(number) else { return Ok(None) };
        for pos in block.undo_pos.into_iter().chain(self.other_records(block).iter().copied()) {
            match self.matches(tree, (number, height), block, pos)? {
                Some(true) => return Ok(Some(Some(pos))),
                Some(false) => {}
                None => return Ok(None),
            }
        }
        Ok(Some(None))
    }

    /// Reports whether the record at `pos` has the coins that a block spends; `None` if this could not be
    /// determined.
    fn matches(
        &mut self,
        tree: &Tree<'_>,
        (number, height): (u32, Height),
        block: &ScannedBlock,
        pos: ByteOffset,
    ) -> Result<Option<bool>, Error> {
        let Some(undo) = self.read_undo(block.file, pos)? else { return Ok(None) };
        let Some(bytes) = self.read_block(block)? else { return Ok(None) };
        let (mut arena, mut undo_arena) = (BlockArena::default(), UndoArena::default());
        let Ok(view) = arena.parse_first(&bytes) else { return Ok(None) };
        let Ok(undo) = UndoView::parse(&undo, &mut undo_arena) else { return Ok(Some(false)) };
        let Some(mut claims) = claims(&view, &undo) else { return Ok(Some(false)) };
        claims.sort_by_key(|claim| std::cmp::Reverse(claim.height));
        let (mut at, mut ancestors) = (height, tree.branch(number));
        let mut creator = ancestors.next();
        for claims in claims.chunk_by(|a, b| a.height == b.height) {
            let Some(created_at) = claims.first().map(|claim| claim.height) else { continue };
            if created_at > height {
                return Ok(Some(false));
            }
            let steps = at.0 - created_at.0;
            if steps > 0 {
                creator = ancestors.nth(steps as usize - 1);
                at = created_at;
            }
            if !self.spend(u64::from(steps) * STEP_BYTES) {
                return Ok(None);
            }
            let Some(creator) = creator.and_then(|creator| self.block(creator)) else { return Ok(None) };
            let Some(bytes) = self.read_block(creator)? else { return Ok(None) };
            match creates(&bytes, claims) {
                Some(true) => {}
                other => return Ok(other),
            }
        }
        Ok(Some(true))
    }

    /// Takes bytes from the budget; returns false if it does not suffice.
    fn spend(&mut self, bytes: u64) -> bool {
        let left = self.budget.checked_sub(bytes);
        self.budget = left.unwrap_or(0);
        left.is_some()
    }

    fn read_block(&mut self, block: &ScannedBlock) -> Result<Option<Vec<u8>>, Error> {
        self.read(FileKind::Blk, block.file, block.data_pos.0, block.size as usize)
    }

    /// Reads the undo data of a record whose checksum the scan has verified.
    fn read_undo(&mut self, file: FileNo, pos: ByteOffset) -> Result<Option<Vec<u8>>, Error> {
        if !self.spend(4) {
            return Ok(None);
        }
        let len = self.files.record_len(FileKind::Rev, file, pos.0)?;
        self.read(FileKind::Rev, file, pos.0, len as usize)
    }

    /// Reads bytes of a file, without obfuscation; `None` if the budget does not suffice.
    fn read(&mut self, kind: FileKind, file: FileNo, pos: u64, len: usize) -> Result<Option<Vec<u8>>, Error> {
        if !self.spend(len as u64) {
            return Ok(None);
        }
        let mut bytes = vec![0; len];
        self.files.read(kind, file, pos, &mut bytes)?;
        Ok(Some(bytes))
    }
}

/// Returns the claim for each input of a block; `None` if the record has another shape.
fn claims(block: &BlockView<'_>, undo: &UndoView<'_>) -> Option<Vec<Claim>> {
    if block.tx_count() != undo.tx_count() + 1 {
        return None;
    }
    let mut claims = Vec::with_capacity(undo.coin_count());
    for (tx, coins) in block.txs().skip(1).zip(undo.txs()) {
        if tx.input_count() != coins.len() {
            return None;
        }
        claims.extend(tx.inputs().zip(coins).map(|(input, coin)| Claim {
            height: coin.height(),
            is_coinbase: coin.is_coinbase(),
            prevout: input.prevout(),
            out: coin.out.to_vec(),
        }));
    }
    Some(claims)
}

/// Reports whether a block creates all these coins; `None` if it cannot be parsed.
fn creates(block: &[u8], claims: &[Claim]) -> Option<bool> {
    let (mut arena, mut hashes) = (BlockArena::default(), BlockHashes::default());
    let block = arena.parse_first(block).ok()?;
    hashes.of_block(&block, &[]);
    let by_txid: HashMap<_, _> = hashes.txids.iter().zip(0..).collect();
    let mut out = Vec::new();
    let mut is_created = |claim: &Claim| {
        let index = *by_txid.get(&claim.prevout.txid)?;
        let output = block.tx(index)?.outputs().nth(claim.prevout.vout as usize)?;
        out.clear();
        compress_output(&mut out, output.value(), output.script_pubkey());
        let spendable = !is_unspendable(output.script_pubkey());
        Some(spendable && claim.is_coinbase == (index == 0) && out == claim.out)
    };
    Some(claims.iter().all(|claim| is_created(claim) == Some(true)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{Chain, ChainSpec};

    /// Such a record was not compared, though bitcoind ignores these bytes.
    #[test]
    fn bytes_behind_the_last_transaction_do_not_matter() {
        let chain = Chain::generate(&ChainSpec { blocks: Some(2), ..ChainSpec::new(1, 10_000) });
        let bytes = [&chain.blocks[1].bytes[..], &[0]].concat();
        assert_eq!(creates(&bytes, &[]), Some(true));
    }
}

//! Stage plan, with a scan: which blocks an undo record can be of, where several have its shape.
//!
//! A record says of each coin in which block it was made, with amount and script. So a block that spends
//! something is held against the blocks that made its coins: a record fits it if each claim is the output
//! that the input names. Siblings that spend the same coins in the same order, or none, fit the same record;
//! which of them was connected, nothing on disk tells (ADR 8).

use crate::{
    chain::{FileKind, Files},
    error::Error,
    stages::block_hashes::BlockHashes,
    tree::Tree,
};
use disk::{
    scan::{Scan, ScannedBlock},
    undo::{UndoArena, UndoView},
};
use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
};
use wire::{
    BlockArena, BlockView, ByteOffset, FileNo, Height, OutPoint, coin::compress_output,
    script::is_unspendable,
};

/// Bytes that are read for this at most: as many as the scanned files have, and so many more. Files made to
/// waste time must not succeed; a real node has a handful of such blocks.
const READ_MORE: u64 = 1 << 30;
/// What a step from a block to the one before costs, in bytes.
const STEP_BYTES: u64 = 64;

/// A scan, and the tree of its blocks.
pub struct Siblings<'a> {
    files: &'a Files<'a>,
    scan: &'a Scan,
    /// Positions in the scan of the tree's blocks, by number.
    order: &'a [u32],
    budget: u64,
}

/// A coin that a record says was spent.
struct Claim {
    height: Height,
    is_coinbase: bool,
    prevout: OutPoint,
    out: Vec<u8>,
}

impl<'a> Siblings<'a> {
    /// Of a scan; `order` has the position in it of each block of the tree.
    #[must_use]
    pub fn new(files: &'a Files<'a>, scan: &'a Scan, order: &'a [u32]) -> Self {
        let bytes: u64 = scan.files.iter().map(|file| file.size + file.undo_size).sum();
        Self { files, scan, order, budget: bytes.saturating_add(READ_MORE) }
    }

    /// Gives each block of the tree whose undo data is in doubt the record that fits it, or none. Returns the
    /// numbers, ascending, of blocks whose record fits a sibling as well, or was not compared.
    ///
    /// # Errors
    /// What the file system says; [`crate::ErrorKind::Interrupted`].
    pub fn settle(mut self, tree: &mut Tree<'_>, interrupt: &AtomicBool) -> Result<Vec<u32>, Error> {
        let in_doubt: Vec<(u32, Height)> =
            tree.linked().filter(|&(number, _)| self.is_in_doubt(self.position(number))).collect();
        let mut contested = Vec::new();
        let mut owners: HashMap<(FileNo, ByteOffset), Vec<u32>> = HashMap::new();
        for (number, height) in in_doubt {
            if interrupt.load(Ordering::Relaxed) {
                return Err(Error::interrupted());
            }
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

    fn position(&self, number: u32) -> u32 {
        self.order.get(number as usize).copied().unwrap_or(u32::MAX)
    }

    fn block(&self, number: u32) -> Option<&'a ScannedBlock> {
        self.scan.blocks.get(self.position(number) as usize)
    }

    fn is_in_doubt(&self, position: u32) -> bool {
        let shared = self.scan.blocks.get(position as usize).is_some_and(|block| block.shared);
        shared || self.others(position).next().is_some()
    }

    /// Further records of a scanned block.
    fn others(&self, position: u32) -> impl Iterator<Item = ByteOffset> + use<'a> {
        let others = &self.scan.other_undo;
        let first = others.partition_point(|(block, _)| *block < position);
        let from = others.get(first..).unwrap_or_default().iter();
        from.take_while(move |(block, _)| *block == position).map(|(_, pos)| *pos)
    }

    /// The record that fits a block, or that there is none; nothing if that could not be found out.
    fn record_of(
        &mut self,
        tree: &Tree<'_>,
        number: u32,
        height: Height,
    ) -> Result<Option<Option<ByteOffset>>, Error> {
        let Some(block) = self.block(number) else { return Ok(None) };
        for pos in block.undo_pos.into_iter().chain(self.others(self.position(number))) {
            match self.fits(tree, (number, height), block, pos)? {
                Some(true) => return Ok(Some(Some(pos))),
                Some(false) => {}
                None => return Ok(None),
            }
        }
        Ok(Some(None))
    }

    /// Whether the record at `pos` has the coins that a block spends; nothing if that cannot be told.
    fn fits(
        &mut self,
        tree: &Tree<'_>,
        (number, height): (u32, Height),
        block: &ScannedBlock,
        pos: ByteOffset,
    ) -> Result<Option<bool>, Error> {
        let Some(undo) = self.read_undo(block.file, pos)? else { return Ok(None) };
        let Some(bytes) = self.read_block(block)? else { return Ok(None) };
        let (mut arena, mut undo_arena) = (BlockArena::default(), UndoArena::default());
        let Ok(view) = arena.parse(&bytes) else { return Ok(None) };
        let Ok(undo) = UndoView::parse(&undo, &mut undo_arena) else { return Ok(Some(false)) };
        let Some(mut claims) = claims(&view, &undo) else { return Ok(Some(false)) };
        claims.sort_by_key(|claim| std::cmp::Reverse(claim.height));
        let (mut at, mut line) = (height, tree.branch(number));
        let mut maker = line.next();
        for claims in claims.chunk_by(|a, b| a.height == b.height) {
            let Some(made_at) = claims.first().map(|claim| claim.height) else { continue };
            if made_at > height {
                return Ok(Some(false));
            }
            let steps = at.0 - made_at.0;
            if steps > 0 {
                maker = line.nth(steps as usize - 1);
                at = made_at;
            }
            if !self.spend(u64::from(steps) * STEP_BYTES) {
                return Ok(None);
            }
            let Some(maker) = maker.and_then(|maker| self.block(maker)) else { return Ok(None) };
            let Some(bytes) = self.read_block(maker)? else { return Ok(None) };
            match makes(&bytes, claims) {
                Some(true) => {}
                other => return Ok(other),
            }
        }
        Ok(Some(true))
    }

    /// Takes bytes from the budget; false if they are not there.
    fn spend(&mut self, bytes: u64) -> bool {
        let left = self.budget.checked_sub(bytes);
        self.budget = left.unwrap_or(0);
        left.is_some()
    }

    fn read_block(&mut self, block: &ScannedBlock) -> Result<Option<Vec<u8>>, Error> {
        self.read(FileKind::Blk, block.file, block.data_pos.0, block.size as usize)
    }

    /// The undo data of a record whose checksum the scan has found right.
    fn read_undo(&mut self, file: FileNo, pos: ByteOffset) -> Result<Option<Vec<u8>>, Error> {
        let Some(len) = self.read(FileKind::Rev, file, pos.0.saturating_sub(4), 4)? else { return Ok(None) };
        let len = len.first_chunk().copied().map_or(0, u32::from_le_bytes);
        self.read(FileKind::Rev, file, pos.0, len as usize)
    }

    /// Plain bytes of a file; nothing if the budget does not allow it.
    fn read(&mut self, kind: FileKind, file: FileNo, pos: u64, len: usize) -> Result<Option<Vec<u8>>, Error> {
        if !self.spend(len as u64) {
            return Ok(None);
        }
        let (open, _) = self.files.open(kind, file)?;
        let mut bytes = vec![0; len];
        let failed = |source| Files::io(self.files.path(kind, file), pos, &source);
        open.read_exact_at(&mut bytes, pos).map_err(failed)?;
        self.files.obfuscation.apply(&mut bytes, pos);
        Ok(Some(bytes))
    }
}

/// What a record says of each input of a block; nothing if it has another shape.
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

/// Whether a block makes all these coins; nothing if it cannot be read.
fn makes(block: &[u8], claims: &[Claim]) -> Option<bool> {
    let (mut arena, mut hashes) = (BlockArena::default(), BlockHashes::default());
    let block = arena.parse(block).ok()?;
    hashes.of_block(&block, &[]);
    let by_txid: HashMap<_, _> = hashes.txids.iter().zip(0..).collect();
    let mut out = Vec::new();
    let mut is_made = |claim: &Claim| {
        let index = *by_txid.get(&claim.prevout.txid)?;
        let output = block.tx(index)?.outputs().nth(claim.prevout.vout as usize)?;
        out.clear();
        compress_output(&mut out, output.value(), output.script_pubkey());
        let spendable = !is_unspendable(output.script_pubkey());
        Some(spendable && claim.is_coinbase == (index == 0) && out == claim.out)
    };
    Some(claims.iter().all(|claim| is_made(claim) == Some(true)))
}

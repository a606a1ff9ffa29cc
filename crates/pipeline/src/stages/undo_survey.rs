//! Reads all undo data of a chain, and finds out which is sound.
//!
//! This takes two passes, so that only one kind of file is read at a time, and the second pass can do more
//! with the blocks. The first reads the undo data, and keeps a hash of the numbers of transactions and coins
//! of each record. The second reads the blocks, whose numbers must agree with these.

use crate::stages::{
    read::{BlockBuffers, BlockReader, split_checksum},
    walk::BlockWalk,
};
use api::error::{Error, ErrorKind};
use chain::blocks::{block_hashes::BlockHashes, chain::Chain};
use digest::siphash::siphash24;
use disk::undo::{UndoView, checksum};
use std::sync::atomic::{AtomicU64, Ordering};
use wire::{BlockHash, BlockView, FileNo, Height};

/// Maximum number of blocks of a file that are named; all are counted.
const MAX_NAMED_BLOCKS: usize = 5;

api::reported! {
/// The undo data of the blocks of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UndoFileCheck {
    /// Number of the `blk` and `rev` file.
    pub file with "api::json::RevName": FileNo,
    /// Number of blocks whose undo data is sound.
    pub kept as "sound": u32,
    /// Number of blocks whose undo data is not on disk.
    pub missing: u32,
    /// Number of blocks whose undo data is damaged.
    pub damaged: u32,
    /// The lowest blocks whose undo data is missing or damaged.
    pub first: Vec<FlawedUndo>,
}

/// A block whose undo data is missing or damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlawedUndo {
    /// Its height.
    pub height: Height,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// Whether the undo data is missing; otherwise it is damaged.
    pub is_missing as "state" with "api::json::FlawName": bool,
}
}

/// Counts the states of the undo data of blocks up to `last`, by file.
pub fn by_file(chain: &Chain, survey: &UndoSurvey, last: Height) -> Vec<UndoFileCheck> {
    let of_file = |(file, heights): (FileNo, &[Height])| {
        let mut check = UndoFileCheck { file, kept: 0, missing: 0, damaged: 0, first: Vec::new() };
        let mut heights: Vec<Height> =
            heights.iter().copied().filter(|height| height.0 > 0 && *height <= last).collect();
        heights.sort_unstable();
        for height in heights {
            let is_missing = match survey.state(height) {
                UndoState::Sound => {
                    check.kept += 1;
                    continue;
                }
                state => state == UndoState::Missing,
            };
            *(if is_missing { &mut check.missing } else { &mut check.damaged }) += 1;
            if check.first.len() < MAX_NAMED_BLOCKS {
                check.first.push(FlawedUndo { height, hash: chain.block(height).hash, is_missing });
            }
        }
        check
    };
    chain.by_file().map(of_file).collect()
}

/// The undo data of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UndoState {
    /// It is on disk, and sound as far as its bytes and the block show.
    Sound,
    /// It is not on disk.
    Missing,
    /// What is on disk is not undo data of this block.
    Damaged,
}

/// The state of the undo data of each block.
pub struct UndoSurvey {
    /// By height: [`MISSING`], [`DAMAGED`], [`UNREAD`], or the hash of the shape of sound undo data.
    states: Vec<AtomicU64>,
}

const MISSING: u64 = 0;
const DAMAGED: u64 = 1;
/// Nobody asks about it: it counts as sound.
const UNREAD: u64 = 2;

impl UndoSurvey {
    /// Reads the records of undo data of the blocks from height `from` on.
    pub fn of_records(walk: &BlockWalk<'_>, from: Height) -> Result<Self, Error> {
        let chain = walk.reader.chain;
        // The genesis block has no undo data.
        let count = chain.block_count() as u32;
        let from = from.0.clamp(1, count);
        let state = |height| AtomicU64::new(if height < from { UNREAD } else { MISSING });
        let states: Vec<AtomicU64> = (0..count).map(state).collect();
        walk.each(from..count, |buffers, (), height| {
            if chain.block(height).undo_pos.is_none() {
                return Ok(());
            }
            let prev = chain.block(Height(height.0 - 1)).hash;
            let shape = match walk.reader.read_undo(height, &mut buffers.undo) {
                Ok(()) => shape_of_undo(&prev, buffers),
                Err(error) if error.kind == ErrorKind::Damaged || error.is_of_medium() => None,
                Err(error) => return Err(error),
            };
            states[height.0 as usize].store(shape.unwrap_or(DAMAGED), Ordering::Relaxed);
            Ok(())
        })?;
        Ok(Self { states })
    }

    /// Returns the state of the block at `height`. Those that were not read count as sound, as does the
    /// genesis block.
    pub fn state(&self, height: Height) -> UndoState {
        match self.states.get(height.0 as usize).map(|state| state.load(Ordering::Relaxed)) {
            Some(MISSING) | None => UndoState::Missing,
            Some(DAMAGED) => UndoState::Damaged,
            Some(_) => UndoState::Sound,
        }
    }

    /// Reads the block at `height`, checks that it is that block, and compares it with the shape of its undo
    /// data. Calls `use_block` with the block, and with hashes to be computed.
    ///
    /// # Errors
    /// Damage to the block; any I/O error; errors of `use_block`.
    pub fn check_block(
        &self,
        reader: &BlockReader<'_>,
        buffers: &mut BlockBuffers,
        height: Height,
        use_block: impl FnOnce(&BlockView<'_>, &mut BlockHashes) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let located = reader.read(height, false, buffers)?;
        let BlockBuffers { block, arena, hashes, .. } = buffers;
        let block = &located.parse(block.bytes(), arena)?;
        located.check_hash(block.header().hash())?;
        if let Some(state) = self.states.get(height.0 as usize) {
            let shape = shape_of(block.txs().skip(1).map(|tx| tx.input_count()));
            let recorded = state.load(Ordering::Relaxed);
            if recorded > UNREAD && recorded != shape {
                state.store(DAMAGED, Ordering::Relaxed);
            }
        }
        use_block(block, hashes)
    }
}

/// Returns the shape of the undo data that was read; `None` if it is damaged.
fn shape_of_undo(prev: &BlockHash, buffers: &mut BlockBuffers) -> Option<u64> {
    let (undo, sum) = split_checksum(buffers.undo.bytes());
    if *sum != checksum(prev, undo) {
        return None;
    }
    let view = UndoView::parse(undo, &mut buffers.undo_arena).ok()?;
    Some(shape_of(view.txs().map(|coins| coins.len())))
}

/// Returns a hash, above [`UNREAD`], of the number of inputs or coins of each transaction.
fn shape_of(counts: impl Iterator<Item = usize>) -> u64 {
    let bytes: Vec<u8> = counts.flat_map(|count| (count as u32).to_le_bytes()).collect();
    siphash24(1, 2, &bytes) | (UNREAD << 1)
}

//! Damage to the other files: blocks, undo data and their key; pruned nodes; what is not a node's datadir
//! yet.

use super::{OLDER, Place, Situation, break_file, cut_file, row};
use crate::corrupt::{interrupt_replacement, overwrite};
use disk::index::BlockStatus;
use std::fs;

impl Place {
    /// Marks a block below the chainstate's best block as invalid.
    fn mark_invalid(&self) -> std::io::Result<()> {
        self.edit_index(|index| {
            for entry in index.entries.iter_mut().filter(|entry| entry.height.0 == 100) {
                entry.status = BlockStatus(entry.status.0 | BlockStatus::FAILED_VALID);
            }
        })
    }

    /// Overwrites the last file of a kind with zeros, as after a power cut on a disk that loses writes.
    fn fill_last(&self, kind: &str) -> std::io::Result<()> {
        let path = self.path(&format!("blocks/{kind}{:05}.dat", self.last()?));
        fs::write(&path, vec![0; fs::metadata(&path)?.len() as usize])
    }
}

pub(super) const BLOCKS: &[Situation] = &[
    row("blk: one missing", |at| at.remove("blocks/blk00001.dat")),
    row("blk: one has another name", |at| {
        fs::rename(at.path("blocks/blk00001.dat"), at.path("blocks/bootstrap.dat"))
    }),
    row("blk: one cut", |at| cut_file(&at.path("blocks/blk00001.dat"))),
    row("blk: one with zeros", |at| overwrite(&at.path("blocks/blk00001.dat"), 3_000, &[0; 2_000])),
    row("blk: one is a folder", |at| at.exchange_kind("blocks/blk00001.dat")),
    row("blk: one is a link to nothing", |at| at.unmount("blocks/blk00001.dat")),
    row("blk: the first missing", |at| at.remove("blocks/blk00000.dat")),
    row("blk: the last missing", |at| at.remove(&format!("blocks/blk{:05}.dat", at.last()?))),
    row("blk: the last is zeros", |at| at.fill_last("blk")),
    row("blk: one missing, with its undo data", |at| {
        at.remove("blocks/blk00001.dat")?;
        at.remove("blocks/rev00001.dat")
    }),
    row("blk: a transaction flipped", |at| at.flip_in_block(90, 120)),
    row("blk: a header flipped", |at| at.flip_in_block(90, 40)),
    row("blk: all missing", |at| at.remove_all("blk")),
    row("blk: one missing, and the index", |at| {
        at.remove("blocks/blk00001.dat")?;
        at.remove("blocks/index")
    }),
    row("blocks: gone", |at| at.remove("blocks")),
    row("blocks: a file", |at| at.exchange_kind("blocks")),
    row("blocks: a link to nothing", |at| at.unmount("blocks")),
    row("blocks: in a directory that the log names", |at| {
        at.move_block_files()?;
        at.log(&format!("Command-line arg: blocksdir=\"{}\"", at.other_blocksdir().display()))
    }),
    row("blocks: in a directory that only the user knows", |at| {
        at.move_block_files()?;
        at.remove("debug.log")
    }),
];

pub(super) const OTHERS: &[Situation] = &[
    row("rev: one missing", |at| at.remove("blocks/rev00001.dat")),
    row("rev: all missing", |at| at.remove_all("rev")),
    row("rev: one cut", |at| cut_file(&at.path("blocks/rev00001.dat"))),
    row("rev: one flipped", |at| break_file(&at.path("blocks/rev00001.dat"))),
    row("rev: one is a folder", |at| at.exchange_kind("blocks/rev00001.dat")),
    row("rev: the last missing", |at| at.remove(&format!("blocks/rev{:05}.dat", at.last()?))),
    row("rev: the last is zeros", |at| at.fill_last("rev")),
    row("xor.dat: missing", |at| at.remove("blocks/xor.dat")),
    row("xor.dat: wrong", |at| fs::write(at.path("blocks/xor.dat"), [7; 8])),
    row("xor.dat: a folder", |at| at.exchange_kind("blocks/xor.dat")),
    row("pruned", |at| at.prune().map(drop)),
    row("pruned, with its size in bitcoin.conf", |at| at.prune()?.conf("prune=600\n")),
    row("pruned, and the chainstate is broken", |at| at.prune()?.remove("chainstate/CURRENT")),
    row("pruned, and the last undo file is missing", |at| {
        at.prune()?.remove(&format!("blocks/rev{:05}.dat", at.last()?))
    }),
    row("pruned, and the last block file is missing", |at| {
        at.prune()?.remove(&format!("blocks/blk{:05}.dat", at.last()?))
    }),
    row("pruned, and the last block file is zeros", |at| at.prune_with("prune=600\n")?.fill_last("blk")),
    row("pruned, and the last undo file is zeros", |at| at.prune_with("prune=600\n")?.fill_last("rev")),
    row("pruned, and the index is older", |at| {
        at.prune()?.edit_index(|index| index.entries.retain(|entry| entry.height.0 <= OLDER))
    }),
    row("a block of the chainstate is marked invalid", |at| at.mark_invalid()),
    row("a block of the chainstate is marked invalid, and the last undo file is zeros", |at| {
        at.mark_invalid()?;
        at.fill_last("rev")
    }),
    row("all undo files and the chainstate missing", |at| {
        at.remove_all("rev")?;
        at.remove("chainstate")
    }),
    row("all but block files missing", |at| {
        at.remove_all("rev")?;
        at.remove("chainstate")?;
        at.remove("blocks/index")
    }),
    row("a replacement of both databases was interrupted", |at| interrupt_replacement(&at.net)),
    row("a new folder", |at| {
        fs::remove_dir_all(&at.net)?;
        at.conf("regtest=1\n")
    }),
];

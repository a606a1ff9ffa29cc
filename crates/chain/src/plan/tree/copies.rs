//! Copies of a block: a scan finds a block more than once if it was damaged and stored again, or written
//! twice because of a crash.

use super::Tree;
use crate::blocks::files::Files;
use api::error::{Error, ErrorKind};
use disk::scan::ScannedBlock;
use std::mem::swap;
use wire::Height;

impl Tree<'_> {
    /// If the first of several copies of a block is damaged and another one is not, exchanges them, also in
    /// `blocks`, which the scan has found: those of the tree.
    pub fn prefer_sound_copies(
        &mut self,
        files: &Files<'_>,
        blocks: &mut [ScannedBlock],
    ) -> Result<(), Error> {
        let first = |&(number, _): &(u32, Height)| self.is_copy(number + 1);
        let with_copies: Vec<(u32, Height)> = self.linked().filter(first).collect();
        for (number, height) in with_copies {
            let copies = (number + 1..).take_while(|&copy| self.is_copy(copy));
            for copy in std::iter::once(number).chain(copies) {
                let Some(block) = blocks.get(copy as usize) else { continue };
                match files.check_stored(&block.hash, height, block.file, block.data_pos) {
                    Ok(()) => {
                        self.exchange_places(number, copy);
                        blocks.swap(number as usize, copy as usize);
                        break;
                    }
                    Err(error) if error.kind == ErrorKind::Damaged || error.is_of_medium() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Whether a block is a copy of the one before.
    fn is_copy(&self, number: u32) -> bool {
        (number as usize) < self.nodes.len() && self.hashes.is_repeated(number)
    }

    fn exchange_places(&mut self, first: u32, other: u32) {
        let Some((head, tail)) = self.nodes.split_at_mut_checked(other as usize) else { return };
        if let (Some(a), Some(b)) = (head.get_mut(first as usize), tail.first_mut()) {
            swap(&mut a.file, &mut b.file);
            swap(&mut a.data_pos, &mut b.data_pos);
            swap(&mut a.undo_pos, &mut b.undo_pos);
        }
    }
}

//! The block and undo files of a datadir, in both directions: records are read by their positions, and
//! appended as Bitcoin Core does.
//!
//! The formats of the records are those of [`crate::blk`] and [`crate::undo`]; both begin with the same
//! frame. The block index has the positions of records and, for each pair of files, the bytes in use
//! ([`FileInfo`](crate::index::FileInfo)): that is where appending continues, whatever follows in the file.

mod append;
mod read;

pub use append::{BlockAppender, MAX_BLOCK_FILE_LEN, chunk_len, used_bytes};
pub use read::{RecordBuffer, RecordError, RecordFile, RecordFlaw};

use crate::{
    blk::RECORD_HEADER_LEN,
    datadir::{Datadir, FileKind},
    error::DiskError,
    keyed_search::KeyedSearch,
};
use digest::obfuscation::Obfuscation;
use std::path::{Path, PathBuf};
use vfs::{Disk, During as _};
use wire::{BlockArena, FileNo};

/// The block and undo files of a datadir.
#[derive(Clone)]
pub struct BlockFiles<'a> {
    disk: &'a dyn Disk,
    datadir: Datadir,
    obfuscation: Obfuscation,
}

impl<'a> BlockFiles<'a> {
    /// The files of `datadir`, which are obfuscated with a key that the caller has read.
    pub fn new(disk: &'a dyn Disk, datadir: &Datadir, obfuscation: Obfuscation) -> Self {
        Self { disk, datadir: datadir.clone(), obfuscation }
    }

    pub fn path(&self, kind: FileKind, number: FileNo) -> PathBuf {
        self.datadir.block_file_path(kind, number)
    }

    /// Returns where the whole blocks that follow each other from byte `from` on end; `None` if there are
    /// others beyond, or some with another key.
    fn end_of_blocks(&self, number: FileNo, from: u64) -> Result<Option<u64>, DiskError> {
        let path = self.path(FileKind::Blk, number);
        let len = self.disk.metadata(&path).during("look at", &path)?.map_or(0, |found| found.len);
        if len <= from {
            return Ok(Some(from));
        }
        let file = self.disk.open(&path).during("open for reading", &path)?;
        let mut search = KeyedSearch::new(&*file, &path, self.datadir.magic())?;
        search.skip_to(from);
        let (mut end, mut arena) = (from, BlockArena::default());
        while let Some(record) = search.next_record()? {
            let block = search.read_block(&record, &mut arena)?;
            let Some(block) = block.filter(|block| block.len() == record.size as usize) else { continue };
            let follows = record.data_pos == end + RECORD_HEADER_LEN as u64;
            if !follows || record.obfuscation != self.obfuscation {
                return Ok(None);
            }
            end = record.data_pos + block.len() as u64;
            search.skip_to(end);
        }
        Ok(Some(end))
    }

    /// Whether a file begins with the network's magic under the key, if it is long enough.
    fn begins_with_magic(&self, path: &Path) -> Result<bool, DiskError> {
        let mut start = [0; 4];
        let found = self.disk.metadata(path).during("look at", path)?;
        if found.is_none_or(|found| found.len < start.len() as u64) {
            return Ok(true);
        }
        let file = self.disk.open(path).during("open for reading", path)?;
        file.read_exact_at(&mut start, 0).during("read", path)?;
        self.obfuscation.apply(&mut start, 0);
        Ok(start == self.datadir.magic())
    }
}

#[cfg(test)]
mod tests;

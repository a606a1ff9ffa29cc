//! The block and undo files of a datadir, in both directions: records are read by their positions, and
//! appended as Bitcoin Core does.
//!
//! The formats of the records are those of [`crate::blk`] and [`crate::undo`]; both begin with the same
//! frame. The block index has the positions of records and, for each pair of files, the bytes in use
//! ([`FileInfo`]): that is where appending continues, whatever follows in the file.

mod append;
mod read;

pub use append::{AppendOptions, BlockAppender, MAX_BLOCK_FILE_LEN, chunk_len};
pub use read::{RecordBuffer, RecordError, RecordFile, RecordFlaw};

use crate::{
    datadir::{Datadir, FileKind},
    index::FileInfo,
};
use digest::obfuscation::Obfuscation;
use std::path::PathBuf;
use vfs::{Disk, During as _, FileError};
use wire::FileNo;

/// The block and undo files of a datadir.
#[derive(Clone)]
pub struct BlockFiles<'a> {
    disk: &'a dyn Disk,
    datadir: Datadir,
    obfuscation: Obfuscation,
}

impl<'a> BlockFiles<'a> {
    /// The files of `datadir`, which are obfuscated with a key that the caller has read.
    #[must_use]
    pub fn new(disk: &'a dyn Disk, datadir: &Datadir, obfuscation: Obfuscation) -> Self {
        Self { disk, datadir: datadir.clone(), obfuscation }
    }

    /// Path of a file.
    #[must_use]
    pub fn path(&self, kind: FileKind, number: FileNo) -> PathBuf {
        self.datadir.block_file_path(kind, number)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn open(&self, kind: FileKind, number: FileNo) -> Result<RecordFile, FileError> {
        let path = self.path(kind, number);
        let opened = self.disk.open(&path).and_then(|file| file.len().map(|len| (file, len)));
        let opened = opened.during("open for reading", &path)?;
        Ok(RecordFile::new((kind, number), path, opened, self.datadir.magic(), self.obfuscation))
    }

    /// Returns an appender. `infos` has an entry for each pair of files, from number 0 on, as in the block
    /// index; without entries, the first record creates the first pair.
    #[must_use]
    pub fn append_after(self, infos: Vec<FileInfo>, options: AppendOptions) -> BlockAppender<'a> {
        BlockAppender::new(self, infos, options)
    }
}

#[cfg(test)]
mod tests;

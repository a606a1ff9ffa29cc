//! Makes undo data that is missing or damaged: records of `rev` files, which wait in files of their own until
//! everything is proven.
//!
//! Bytes of a `rev` file that are in use, those below its undo size, are never changed or removed. Made
//! records are appended after them, as Core itself appends. They wait in `blocks/peregrine-undo`, beside the
//! files that they belong to:
//!
//! ```text
//! blocks/peregrine-undo/
//!   peregrine.mark       "PGRN-UD2" | for each pair of files: undo size in the block index u32,
//!                        bytes in use u32 | CRC-32C u32
//!   revNNNNN.dat         what follows the bytes in use of blocks/revNNNNN.dat, obfuscated for that place
//!   peregrine.complete   "PGRN-END" | for each pair of files: undo size u32 | CRC-32C u32
//! ```
//! Numbers are little-endian. For an output elsewhere, which has no `rev` files yet, each file here is a
//! whole one: the bytes in use are finally copied into it.
//!
//! A caller does this, each step on the medium before the next one begins:
//!
//! 1. [`MadeUndo::begin`], then for each record [`MadeUndo::reserve`] and [`MadeUndo::write`], and
//!    [`MadeUndo::sync`] before each checkpoint. After an interrupt, [`MadeUndo::resume`] continues.
//! 2. [`MadeUndo::put_in_place`], when everything is proven. First it writes `peregrine.complete`. Then a
//!    file that does not exist in `blocks` is renamed to its place, and what belongs to an existing one is
//!    copied to the end of its bytes in use. Nothing refers to these bytes yet: Core ignores what is beyond
//!    the undo size, and overwrites it later.
//! 3. The block index that points at the records is put in place ([`crate::replace`]).
//! 4. [`MadeUndo::clean_up`].
//!
//! After a crash before step 3, the datadir opens as before, and records can be added: files that were
//! renamed are renamed back, and step 2 is repeated. After a crash in step 4, [`clear_made_undo`] removes
//! what is left.

mod directory;
mod open_files;
mod place;

pub use directory::{
    UsedBefore, clear_made_undo, clear_stale_made_undo, foreign_made_undo, has_made_undo, made_undo_dir,
};

use crate::{
    blk::RECORD_HEADER_LEN,
    datadir::{Datadir, FileKind},
    error::DiskError,
    index::MAX_FILES,
    undo::{self, CHECKSUM_LEN, MAX_UNDO_LEN},
};
use digest::obfuscation::Obfuscation;
use directory::MadeUndoDir;
use open_files::{OpenFiles, lock};
use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};
use vfs::{Disk, During as _, exists, remove_if_there};
use wire::{BlockHash, ByteOffset, FileNo};

/// The undo data that is made for one `rev` file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MadeUndoFile {
    pub number: FileNo,
    /// Bytes that were in use before, which stay: 0 for a file that is made anew.
    pub used: u32,
    /// Bytes in use afterwards.
    pub undo_size: u32,
    pub records: u32,
}

/// Undo data that is being made.
///
/// Records can be written by any number of threads, in any order. If it is dropped, all files stay, for
/// [`MadeUndo::resume`] or [`clear_made_undo`].
pub struct MadeUndo<'d> {
    disk: &'d dyn Disk,
    /// The datadir with the blocks.
    datadir: Datadir,
    /// The datadir that gets the files.
    result: Datadir,
    /// Whether `result` is another directory than that of the blocks.
    is_elsewhere: bool,
    obfuscation: Obfuscation,
    dir: MadeUndoDir,
    /// For each pair of files, in order of their numbers.
    files: Mutex<Vec<MadeUndoFile>>,
    open: OpenFiles,
}

impl<'d> MadeUndo<'d> {
    /// Begins to make undo data for blocks in `datadir`, whose block files are obfuscated with `obfuscation`.
    /// `result` gets the records: mostly `datadir` itself, otherwise an output elsewhere, whose `blocks` is
    /// created if it is missing, and whose block files must have the same obfuscation.
    ///
    /// `used` has the number of bytes in use for each `rev` file of `datadir`, by number, and need not list
    /// the last ones that have none. It is the undo size of the block index, but at most the length of the
    /// file: of a file that is missing, nothing is in use, and of one that was cut, what is left. So a file
    /// with fewer bytes than `used` is refused.
    ///
    /// Files that an earlier run has left are removed. The directory gets the owner, group and mode of
    /// `blocks`.
    ///
    /// # Errors
    /// [`DiskError::Damaged`] if a file has fewer bytes than are in use; [`DiskError::CallerError`] for more
    /// files than an index can list; [`DiskError::NotReplaceable`] if something that is not Peregrine's is
    /// where the records would wait; [`DiskError::NotOwner`] if this process may not create files for the
    /// owner of `blocks`; [`DiskError::File`]. On error, what was created is removed.
    pub fn begin(
        disk: &'d dyn Disk,
        datadir: &Datadir,
        result: &Datadir,
        obfuscation: Obfuscation,
        mut used: Vec<u32>,
    ) -> Result<Self, DiskError> {
        let blocks = result.blocks_dir();
        if used.len() > MAX_FILES as usize {
            let flaw = format!("{} pairs of files, above the limit of {MAX_FILES}", used.len());
            return Err(DiskError::CallerError { dir: blocks, flaw });
        }
        check_used(disk, datadir, &mut used)?;
        disk.create_dir_all(&blocks).during_creation(&blocks)?;
        let made = Self::new(disk, [datadir, result], obfuscation)?;
        made.dir.withdraw(disk)?;
        made.dir.create(disk, &used)?;
        Ok(made.with_used(&used))
    }

    /// Continues to make undo data after an interrupt, with the same arguments as [`MadeUndo::begin`] except
    /// for the bytes in use, which are taken from the mark: files may have grown since then, by
    /// [`MadeUndo::put_in_place`]. If the block index records other undo data since then, the job must start
    /// over; that of deleted files may be gone. The caller reserves all records again, in the same order, and
    /// writes those again that were not written before the last [`MadeUndo::sync`]. It must know them from
    /// its checkpoint: an index that is read anew may point at made records that are already in place. No
    /// file is cut.
    ///
    /// If files were already being put in place, all records wait again, and others can follow.
    ///
    /// # Errors
    /// [`DiskError::DamagedWorkFile`] if there is nothing to continue, so that the job starts over;
    /// [`DiskError::Damaged`] if a file has fewer bytes than are in use; [`DiskError::File`].
    pub fn resume(
        disk: &'d dyn Disk,
        datadir: &Datadir,
        result: &Datadir,
        obfuscation: Obfuscation,
    ) -> Result<Self, DiskError> {
        let made = Self::new(disk, [datadir, result], obfuscation)?;
        let mut used = made.dir.read_used(disk)?;
        check_used(disk, datadir, &mut used)?;
        made.dir.take_back(disk)?;
        Ok(made.with_used(&used))
    }

    fn new(
        disk: &'d dyn Disk,
        [datadir, result]: [&Datadir; 2],
        obfuscation: Obfuscation,
    ) -> Result<Self, DiskError> {
        let dir = MadeUndoDir::find(disk, datadir, result)?;
        let blocks = datadir.blocks_dir();
        let is_elsewhere = disk.resolve(&blocks).during("follow the links to", &blocks)? != dir.blocks;
        Ok(Self {
            disk,
            datadir: datadir.clone(),
            result: result.clone(),
            is_elsewhere,
            obfuscation,
            dir,
            files: Mutex::default(),
            open: OpenFiles::default(),
        })
    }

    fn with_used(self, used: &[u32]) -> Self {
        let file = |(number, &used)| MadeUndoFile { number, used, undo_size: used, records: 0 };
        *lock(&self.files) = (0..).map(FileNo).zip(used).map(file).collect();
        self
    }

    /// Reserves the place of a record with `undo_len` bytes of undo data at the end of `rev` file `file`, and
    /// returns the position of the undo data in the file that results. Positions depend only on the order of
    /// the calls for each file.
    ///
    /// # Errors
    /// [`DiskError::CallerError`] if the file would have 4 GiB or more, for undo data that could not be read
    /// back, and for a file that no index can list.
    pub fn reserve(&self, file: FileNo, undo_len: usize) -> Result<ByteOffset, DiskError> {
        let FileNo(number) = file;
        if undo_len > MAX_UNDO_LEN {
            return Err(self.caller_error(file, &format!("a record of {undo_len} bytes")));
        }
        if number >= MAX_FILES {
            return Err(self.caller_error(file, "the number is above that of the last possible file"));
        }
        let mut files = lock(&self.files);
        for number in files.len() as u32..=number {
            files.push(MadeUndoFile { number: FileNo(number), ..MadeUndoFile::default() });
        }
        let Some(made) = files.get_mut(number as usize) else {
            return Err(self.caller_error(file, "it is not listed"));
        };
        let start = u64::from(made.undo_size);
        let Ok(end) = u32::try_from(start + record_len(undo_len)) else {
            return Err(self.caller_error(file, "more than 4 GiB"));
        };
        made.undo_size = end;
        made.records += 1;
        Ok(ByteOffset(start + RECORD_HEADER_LEN as u64))
    }

    /// Writes the record of the undo data `undo` at the position `pos` that [`MadeUndo::reserve`] returned
    /// for it; `prev` is the hash of the block's parent. `record` is a buffer that is reused.
    ///
    /// Nothing is on the medium before the next [`MadeUndo::sync`]. After an error, the same record can be
    /// written again.
    ///
    /// # Errors
    /// [`DiskError::CallerError`] for a place that was not reserved; [`DiskError::File`], also if another
    /// file that was written before cannot be synced.
    pub fn write(
        &self,
        file: FileNo,
        pos: ByteOffset,
        prev: &BlockHash,
        undo: &[u8],
        record: &mut Vec<u8>,
    ) -> Result<(), DiskError> {
        let made = lock(&self.files).get(file.0 as usize).copied().unwrap_or_default();
        let start = pos.0.checked_sub(RECORD_HEADER_LEN as u64).filter(|&start| {
            start >= made.used.into() && start.saturating_add(record_len(undo.len())) <= made.undo_size.into()
        });
        let Some(start) = start else {
            return Err(self.caller_error(file, &format!("the record at byte {} is not reserved", pos.0)));
        };
        record.clear();
        undo::write_record(record, self.result.magic(), prev, undo);
        self.obfuscation.apply(record, start);
        let path = self.dir.waiting(file);
        self.open.write(self.disk, &path, record, start - self.first_byte(&made))
    }

    /// Removes the records that wait for a `rev` file which was deleted together with its `blk` file.
    pub fn forget(&self, file: FileNo) -> Result<(), DiskError> {
        if let Some(made) = lock(&self.files).get_mut(file.0 as usize) {
            *made = MadeUndoFile { number: file, ..MadeUndoFile::default() };
        }
        let path = self.dir.waiting(file);
        self.open.forget(&path);
        remove_if_there(self.disk, &path)?;
        Ok(())
    }

    /// Returns when all that was written is on the medium.
    ///
    /// # Errors
    /// [`DiskError::File`]; what was written since the sync before is then in doubt.
    pub fn sync(&self) -> Result<(), DiskError> {
        self.open.sync()?;
        Ok(self.disk.sync_dir(&self.dir.path).during("sync", &self.dir.path)?)
    }

    /// Returns the bytes in use of each `rev` file once all records are in place, by number: what the block
    /// index must record.
    pub fn undo_sizes(&self) -> Vec<u32> {
        lock(&self.files).iter().map(|file| file.undo_size).collect()
    }

    /// Returns the files for which records are made, in order of their numbers.
    pub fn made(&self) -> Vec<MadeUndoFile> {
        lock(&self.files).iter().copied().filter(|file| file.records > 0).collect()
    }

    /// Removes the directory in which the records waited, after the block index was put in place.
    ///
    /// # Errors
    /// [`DiskError::File`]; what is left is removed by [`clear_made_undo`].
    pub fn clean_up(&self) -> Result<(), DiskError> {
        self.dir.clear(self.disk).map(drop)
    }

    /// Offset, in the resulting file, of the first byte of the file in which records wait.
    const fn first_byte(&self, made: &MadeUndoFile) -> u64 {
        if self.is_elsewhere { 0 } else { made.used as u64 }
    }

    /// Path of a file of the result, with `blocks` resolved.
    fn path_in_blocks(&self, kind: FileKind, file: FileNo) -> PathBuf {
        self.dir.blocks.join(kind.file_name(file))
    }

    fn caller_error(&self, file: FileNo, flaw: &str) -> DiskError {
        let flaw = format!("undo data of file {}: {flaw}", file.0);
        DiskError::CallerError { dir: self.dir.path.clone(), flaw }
    }
}

const fn record_len(undo_len: usize) -> u64 {
    (RECORD_HEADER_LEN + undo_len + CHECKSUM_LEN) as u64
}

/// Checks that the `rev` files of `datadir` have the bytes in use; none are where pruning has deleted both
/// files of a pair since they were listed.
fn check_used(disk: &dyn Disk, datadir: &Datadir, used: &mut [u32]) -> Result<(), DiskError> {
    for (number, used) in (0..).map(FileNo).zip(used).filter(|(_, used)| **used > 0) {
        let path = datadir.rev_path(number);
        let found = disk.metadata(&path).during("look at", &path)?;
        if found.is_none() && !exists(disk, &datadir.blk_path(number))? {
            *used = 0;
        }
        check_len(&path, found.map_or(0, |found| found.len), *used)?;
    }
    Ok(())
}

/// Checks that a `rev` file of `len` bytes has the bytes in use.
pub(crate) fn check_len(path: &Path, len: u64, used: u32) -> Result<(), DiskError> {
    if len >= used.into() {
        return Ok(());
    }
    let flaw = format!("{used} bytes of the file are in use, but it has {len}; restore it");
    Err(DiskError::Damaged { path: path.to_owned(), offset: len, flaw })
}

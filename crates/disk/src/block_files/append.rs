//! Appends records, as Core's `BlockManager` does (`WriteBlock`, `WriteBlockUndo`, `FlatFileSeq`).
//!
//! Blocks go to the last `blk` file. When it is full, the next pair of files begins; the full file is cut to
//! the bytes in use. Undo data goes to the `rev` file with the number of its block's file, often later than
//! blocks of later files; that file is cut when the undo data of its highest block has been written after the
//! next pair began, or by the appender that begins it. At the tip, where that is another one, it is not cut.
//!
//! Nothing that was appended is safe before [`BlockAppender::flush`] returns. A caller flushes first and then
//! writes the positions to the block index, so after a crash the index points only at complete records:
//! appending from the index's sizes on overwrites torn records and preallocated zeros. It does not overwrite
//! whole blocks that lie there, which the index may have lost: what is appended comes after them, or into the
//! next pair of files if they have another key, or something else is before them.

use super::BlockFiles;
use crate::{
    blk::{self, MAX_RECORD_LEN, RECORD_HEADER_LEN},
    datadir::FileKind,
    error::DiskError,
    index::FileInfo,
    made_undo::check_len,
    undo::{self, MAX_UNDO_LEN},
};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    path::PathBuf,
};
use vfs::{During as _, WriteAt};
use wire::{BlockHash, BlockTime, ByteOffset, FileNo, Height};

/// Length in bytes that a `blk` file stays below (Core `MAX_BLOCKFILE_SIZE`).
pub const MAX_BLOCK_FILE_LEN: u32 = 128 << 20;

/// Bytes of blocks that are appended before they are written to the medium, so that few files are open.
const FLUSH_BYTES: u64 = 1 << 30;

/// Space for the files of a kind is reserved in chunks of this many bytes (Core `BLOCKFILE_CHUNK_SIZE`,
/// `UNDOFILE_CHUNK_SIZE`).
pub const fn chunk_len(kind: FileKind) -> u64 {
    match kind {
        FileKind::Blk => 16 << 20,
        FileKind::Rev => 1 << 20,
    }
}

/// Bytes in use in a file, as the block index records them.
pub fn used_bytes(infos: &[FileInfo], kind: FileKind, file: FileNo) -> u32 {
    let info = infos.get(file.0 as usize).copied().unwrap_or_default();
    match kind {
        FileKind::Blk => info.size,
        FileKind::Rev => info.undo_size,
    }
}

/// A file that was written since the last flush.
struct OpenFile {
    path: PathBuf,
    file: Box<dyn WriteAt>,
}

/// Appends blocks and undo data to the files of a datadir.
///
/// After an error, nothing of that call is in use, and the same call can be made again; after an error of
/// [`BlockAppender::flush`], all that was appended since the flush before is in doubt, and no later flush
/// succeeds. Files stay open until the next flush.
pub struct BlockAppender<'a> {
    files: BlockFiles<'a>,
    max_file_len: u32,
    /// Whether space is reserved in chunks, so that files are in few pieces on the medium; small files of
    /// tests need none.
    pub preallocate: bool,
    infos: Vec<FileInfo>,
    /// The `blk` file that was examined last, and whether it can be appended to.
    examined: Option<(FileNo, bool)>,
    /// Height of the highest block of the last file whose undo data was appended.
    undo_height: Option<Height>,
    open: BTreeMap<(FileKind, FileNo), OpenFile>,
    /// Bytes of blocks that were appended since the last flush.
    unflushed: u64,
    /// Whether a flush has failed. What was appended before it may be lost, although a second flush would
    /// succeed: the system reports a failed write once.
    is_in_doubt: bool,
    /// The record being written, reused.
    record: Vec<u8>,
}

impl<'a> BlockFiles<'a> {
    /// Returns an appender. `infos` has an entry for each pair of files, from number 0 on, as in the block
    /// index; without entries, the first record creates the first pair. A `blk` file stays below
    /// `max_file_len` bytes; a longer record gets a file of its own.
    pub fn append_after(self, infos: Vec<FileInfo>, max_file_len: u32) -> BlockAppender<'a> {
        BlockAppender {
            files: self,
            max_file_len,
            preallocate: true,
            infos,
            examined: None,
            undo_height: None,
            open: BTreeMap::new(),
            unflushed: 0,
            is_in_doubt: false,
            record: Vec::new(),
        }
    }
}

impl BlockAppender<'_> {
    /// Returns what the block index must record about each pair of files.
    pub fn infos(&self) -> &[FileInfo] {
        &self.infos
    }

    /// What the block index must record about each pair of files, for blocks that were found in them.
    pub const fn infos_mut(&mut self) -> &mut Vec<FileInfo> {
        &mut self.infos
    }

    /// Appends a block, and returns its file and its position there. Flushes after each GiB of blocks; for an
    /// error of that, see [`BlockAppender::flush`].
    ///
    /// # Errors
    /// Any I/O error; [`DiskError::Damaged`] if a file has fewer bytes than are in use;
    /// [`DiskError::CallerError`] for a block that could not be read back.
    pub fn append_block(
        &mut self,
        height: Height,
        time: BlockTime,
        block: &[u8],
    ) -> Result<(FileNo, ByteOffset), DiskError> {
        self.check_len(block.len(), MAX_RECORD_LEN)?;
        let len = (RECORD_HEADER_LEN + block.len()) as u64;
        let max = u64::from(self.max_file_len);
        let is_full = |info: &FileInfo| info.size > 0 && u64::from(info.size) + len >= max;
        while !self.examine_last()? || self.infos.last().is_none_or(is_full) {
            self.begin_next_pair()?;
        }
        let number = FileNo(self.infos.len() as u32 - 1);
        self.record.clear();
        blk::write_record(&mut self.record, self.files.datadir.magic(), block);
        let pos = self.append_record(FileKind::Blk, number, false)?;
        if let Some(info) = self.infos.last_mut() {
            info.add_block(height, time.0.into());
        }
        self.unflushed += len;
        if self.unflushed >= FLUSH_BYTES {
            self.flush()?;
        }
        Ok((number, pos))
    }

    /// Appends the undo data of a block in file `number`, and returns its position; `prev` is the hash of the
    /// block's parent.
    pub fn append_undo(
        &mut self,
        number: FileNo,
        height: Height,
        prev: &BlockHash,
        undo: &[u8],
    ) -> Result<ByteOffset, DiskError> {
        self.check_len(undo.len(), MAX_UNDO_LEN)?;
        let Some(&info) = self.infos.get(number.0 as usize) else {
            return Err(self.caller_error(format!("undo data for the pair of files {}", number.0)));
        };
        self.record.clear();
        undo::write_record(&mut self.record, self.files.datadir.magic(), prev, undo);
        let is_of_last_pair = number.0 as usize + 1 == self.infos.len();
        let is_last_of_file = !is_of_last_pair && info.height_last == height.0;
        let pos = self.append_record(FileKind::Rev, number, is_last_of_file)?;
        if is_of_last_pair {
            self.undo_height = self.undo_height.max(Some(height));
        }
        Ok(pos)
    }

    /// Records that a pair of files, which is not the last one, was deleted: nothing in them is in use.
    pub fn forget(&mut self, number: FileNo) {
        self.open.remove(&(FileKind::Blk, number));
        self.open.remove(&(FileKind::Rev, number));
        self.infos.get_mut(number.0 as usize).into_iter().for_each(|info| *info = FileInfo::default());
    }

    /// Returns when all that was appended is on the medium.
    ///
    /// # Errors
    /// Any I/O error, also of an earlier flush: the block index must not be changed then.
    pub fn flush(&mut self) -> Result<(), DiskError> {
        let dir = self.files.datadir.blocks_dir();
        if std::mem::replace(&mut self.is_in_doubt, true) {
            let doubt = "blocks may not have reached the disk, so the block index is not changed; the next \
                         run finds those that have";
            Err(io::Error::other(doubt)).during("sync", &dir)?;
        }
        for open in self.open.values_mut() {
            open.file.sync().during("sync", &open.path)?;
        }
        if !self.open.is_empty() {
            self.files.disk.sync_dir(&dir).during("sync", &dir)?;
        }
        self.open.clear();
        self.unflushed = 0;
        self.is_in_doubt = false;
        Ok(())
    }

    /// Counts whole blocks beyond the bytes in use of the last `blk` file as in use. Returns whether it can
    /// be appended to: what it holds must have the key of `xor.dat`.
    fn examine_last(&mut self) -> Result<bool, DiskError> {
        let Some(number) = self.infos.len().checked_sub(1).map(|last| FileNo(last as u32)) else {
            return Ok(true);
        };
        if let Some((_, is_usable)) = self.examined.filter(|(examined, _)| *examined == number) {
            return Ok(is_usable);
        }
        let used = used_bytes(&self.infos, FileKind::Blk, number);
        let path = self.files.path(FileKind::Blk, number);
        let end = self.files.end_of_blocks(number, used.into())?;
        let new_used = end.and_then(|end| u32::try_from(end).ok());
        let is_usable = new_used.is_some() && (used == 0 || self.files.begins_with_magic(&path)?);
        if let (Some(info), Some(new_used), true) = (self.infos.last_mut(), new_used, is_usable) {
            info.size = new_used;
        }
        self.examined = Some((number, is_usable));
        Ok(is_usable)
    }

    /// Begins the next pair of files, and creates both.
    fn begin_next_pair(&mut self) -> Result<(), DiskError> {
        let next = FileNo(self.infos.len() as u32);
        let can_cut = self.examined.is_none_or(|(_, is_usable)| is_usable);
        let last = next.0.checked_sub(1).map(FileNo).filter(|_| can_cut);
        if let (Some(info), Some(last)) = (self.infos.last(), last) {
            let has_all_undo = self.undo_height == Some(Height(info.height_last));
            self.cut(FileKind::Blk, last)?;
            if has_all_undo {
                self.cut(FileKind::Rev, last)?;
            }
        }
        self.file(FileKind::Blk, next)?;
        self.file(FileKind::Rev, next)?;
        // Undo data of blocks that the index has lost stays too.
        let path = self.files.path(FileKind::Rev, next);
        let undo_len = self.files.disk.metadata(&path).during("look at", &path)?.map_or(0, |found| found.len);
        let undo_size = u32::try_from(undo_len).unwrap_or(u32::MAX);
        self.infos.push(FileInfo { undo_size, ..FileInfo::default() });
        self.undo_height = None;
        Ok(())
    }

    /// Writes `self.record` after the bytes in use of a file, and returns the position of its data. Cuts the
    /// file after the record if it is the last one.
    fn append_record(
        &mut self,
        kind: FileKind,
        number: FileNo,
        is_last: bool,
    ) -> Result<ByteOffset, DiskError> {
        let used = used_bytes(&self.infos, kind, number);
        let end = u64::from(used) + self.record.len() as u64;
        let Ok(new_used) = u32::try_from(end) else {
            return Err(self.caller_error(format!("pair of files {}: more than 4 GiB", number.0)));
        };
        let mut record = std::mem::take(&mut self.record);
        self.files.obfuscation.apply(&mut record, used.into());
        let chunk_len = chunk_len(kind);
        // As in Core, a file that was cut inside a chunk grows unreserved until that chunk is full.
        let is_new_chunk = end.div_ceil(chunk_len) > u64::from(used).div_ceil(chunk_len);
        let allocated = Some(end.next_multiple_of(chunk_len)).filter(|_| self.preallocate && is_new_chunk);
        let open = self.file(kind, number)?;
        if let Some(len) = allocated {
            open.file.allocate(len).during("reserve space", &open.path)?;
        }
        open.file.write_all_at(&record, used.into()).during("write", &open.path)?;
        // A disk that is slower than the download is not left idle until the next flush.
        let [full_before, full] = [u64::from(used), end].map(|len| len - len % chunk_len);
        if full > full_before {
            open.file.begin_to_sync(full_before, full - full_before);
        }
        if is_last {
            open.file.truncate(end).during("truncate", &open.path)?;
        }
        self.record = record;
        if let Some(info) = self.infos.get_mut(number.0 as usize) {
            match kind {
                FileKind::Blk => info.size = new_used,
                FileKind::Rev => info.undo_size = new_used,
            }
        }
        Ok(ByteOffset(u64::from(used) + RECORD_HEADER_LEN as u64))
    }

    /// Cuts a file to the bytes in use.
    fn cut(&mut self, kind: FileKind, number: FileNo) -> Result<(), DiskError> {
        let used = used_bytes(&self.infos, kind, number);
        let open = self.file(kind, number)?;
        open.file.truncate(used.into()).during("truncate", &open.path)?;
        Ok(())
    }

    /// Returns an open file; opens it, and creates it if it is missing and none of its bytes are in use.
    fn file(&mut self, kind: FileKind, number: FileNo) -> Result<&mut OpenFile, DiskError> {
        let used = used_bytes(&self.infos, kind, number);
        match self.open.entry((kind, number)) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(place) => {
                let (disk, path) = (self.files.disk, self.files.path(kind, number));
                let len = disk.metadata(&path).during("look at", &path)?.map_or(0, |found| found.len);
                check_len(&path, len, used)?;
                let file = disk.open_for_writing(&path).during("open for writing", &path)?;
                Ok(place.insert(OpenFile { path, file }))
            }
        }
    }

    /// Refuses data that a reader would refuse.
    fn check_len(&self, len: usize, longest: usize) -> Result<(), DiskError> {
        if len <= longest {
            return Ok(());
        }
        Err(self.caller_error(format!("a record of {len} bytes, above the limit of {longest}")))
    }

    fn caller_error(&self, flaw: String) -> DiskError {
        DiskError::CallerError { dir: self.files.datadir.blocks_dir(), flaw }
    }
}

//! The directory `blocks/peregrine-undo`, its mark, and what an earlier run has left there.

use crate::{
    datadir::{Datadir, FileKind, file_no, is_dir},
    error::{DiskError, Obstacle},
    index::{FileInfo, IndexRows, MAX_FILES},
    pack::put_all,
    replace::{MARK, lock_of, needs_recovery, owner_of, refuse, set_owner, without_links},
    sealed::{with_checksum, without_checksum},
};
use leveldb::LevelDbError;
use std::{
    ffi::OsStr,
    iter,
    path::{Path, PathBuf},
    sync::PoisonError,
};
use vfs::{Disk, During as _, IO_ERROR, exists, remove_if_there, write_synced};
use wire::FileNo;

/// Name of the directory in `blocks`.
const DIR: &str = "peregrine-undo";
/// First bytes of the mark. For each pair of files, the undo size in the block index and the bytes in use
/// follow. The marks of earlier versions begin with `PGRN-UND`.
const MARK_MAGIC: [u8; 8] = *b"PGRN-UD2";
/// Name of the file that exists once all records are complete and files are being put in place.
const COMPLETE: &str = "peregrine.complete";
/// First bytes of that file. The undo sizes follow.
const COMPLETE_MAGIC: [u8; 8] = *b"PGRN-END";
/// Upper limit of the length in bytes of both files.
const LEN_LIMIT: u64 = 8 + 8 * MAX_FILES as u64 + 4;

/// The directory in which records wait.
pub struct MadeUndoDir {
    /// `blocks`, links followed: renames from the directory stay on one file system.
    pub blocks: PathBuf,
    pub path: PathBuf,
    /// The datadir with the blocks.
    datadir: Datadir,
    /// The datadir that gets the records.
    result: Datadir,
}

/// Whether an earlier run has left records that wait in `datadir`, for [`super::MadeUndo::resume`] or for
/// [`clear_made_undo`].
pub fn has_made_undo(disk: &dyn Disk, datadir: &Datadir) -> Result<bool, DiskError> {
    MadeUndoDir::find(disk, datadir, datadir)?.is_own(disk)
}

/// Returns the directory in which undo data of `datadir` is made, whether it exists or not.
pub fn made_undo_dir(disk: &dyn Disk, datadir: &Datadir) -> Result<PathBuf, DiskError> {
    Ok(MadeUndoDir::find(disk, datadir, datadir)?.path)
}

/// Returns the directory in which undo data of `datadir` would be made, if something there was not created by
/// a run. Then no undo data can be made.
pub fn foreign_made_undo(disk: &dyn Disk, datadir: &Datadir) -> Result<Option<PathBuf>, DiskError> {
    let dir = MadeUndoDir::find(disk, datadir, datadir)?;
    Ok((exists(disk, &dir.path)? && !dir.is_own(disk)?).then_some(dir.path))
}

/// The bytes in use of each `rev` file when an unfinished job began, by number; `None` if no such job can be
/// continued. What follows these bytes may be what the job has put in place: every later run finds the same
/// undo data missing, or it would overwrite what it has read.
pub struct UsedBefore(Option<Vec<u32>>);

impl UsedBefore {
    /// Reads what the job has recorded.
    pub fn read(disk: &dyn Disk, datadir: &Datadir) -> Result<Self, DiskError> {
        let dir = MadeUndoDir::find(disk, datadir, datadir)?;
        match dir.read_used(disk) {
            Err(DiskError::DamagedWorkFile { .. }) => Ok(Self(None)),
            used => Ok(Self(Some(used?))),
        }
    }

    /// The bytes of a file that later runs may read. Of a file that is not listed, nothing was in use.
    pub fn limit(&self, file: FileNo) -> u64 {
        let used = |used: &Vec<u32>| used.get(file.0 as usize).copied().unwrap_or(0).into();
        self.0.as_ref().map_or(u64::MAX, used)
    }
}

/// Removes the records that an earlier run has left in `datadir`, and returns whether there were any. Records
/// that are in place stay, except for files that were made anew where there is no block index. The datadir
/// must be locked. Files of other programs stay, and so does the directory if there are any.
pub fn clear_made_undo(disk: &dyn Disk, datadir: &Datadir) -> Result<bool, DiskError> {
    MadeUndoDir::find(disk, datadir, datadir)?.withdraw(disk)
}

/// The same, if other undo data of `datadir` is in use than when the records were made, so that no run can
/// continue with them: bitcoind has written some, or the run itself, if it was killed after its commit. If
/// the index cannot be read, they stay: it may be readable again.
pub fn clear_stale_made_undo(disk: &dyn Disk, datadir: &Datadir) -> Result<(), DiskError> {
    let dir = MadeUndoDir::find(disk, datadir, datadir)?;
    let is_stale = dir.is_own(disk)?
        && dir.files(disk).is_ok_and(|files| !files.is_empty())
        && matches!(dir.read_used(disk), Err(DiskError::DamagedWorkFile { .. }));
    if is_stale {
        dir.withdraw(disk)?;
    }
    Ok(())
}

/// Whether the index is missing or damaged here, so that reading it again would not help.
fn is_damage(error: &DiskError) -> bool {
    let (DiskError::File(error) | DiskError::LevelDb(LevelDbError::File(error))) = error else { return true };
    error.is_damage() || error.source.raw_os_error() == Some(IO_ERROR)
}

/// Whether a pair of files was deleted by pruning.
const fn is_deleted(info: &FileInfo) -> bool {
    info.size == 0 && info.undo_size == 0
}

impl MadeUndoDir {
    /// Returns the directory in `result`, whether it exists or not. `datadir` has the block index that the
    /// run began with.
    pub fn find(disk: &dyn Disk, datadir: &Datadir, result: &Datadir) -> Result<Self, DiskError> {
        let blocks = without_links(disk, result.blocks_dir())?;
        Ok(Self { path: blocks.join(DIR), blocks, datadir: datadir.clone(), result: result.clone() })
    }

    /// Returns what the block index records about the files; nothing if it is missing or damaged. Another
    /// thread may be replacing it.
    fn files(&self, disk: &dyn Disk) -> Result<Vec<FileInfo>, DiskError> {
        let lock = lock_of(self.datadir.net_dir());
        let _alone = lock.lock().unwrap_or_else(PoisonError::into_inner);
        match IndexRows::open(disk, &self.datadir.index_dir()).and_then(|rows| rows.files(false)) {
            Err(error) if is_damage(&error) => Ok(Vec::new()),
            files => files,
        }
    }

    /// Path of the file in which the records for a `rev` file wait.
    pub fn waiting(&self, file: FileNo) -> PathBuf {
        self.path.join(FileKind::Rev.file_name(file))
    }

    /// Creates the directory, with its mark. On error, what was created is removed.
    pub fn create(&self, disk: &dyn Disk, used: &[u32]) -> Result<(), DiskError> {
        if exists(disk, &self.path)? {
            return refuse(&self.path, Obstacle::ForeignFiles);
        }
        let create = || {
            disk.create_dir_all(&self.path).during_creation(&self.path)?;
            set_owner(disk, &self.path, owner_of(disk, &self.blocks)?, &self.blocks)?;
            let infos = self.files(disk)?;
            let numbers = (0..infos.len().max(used.len())).flat_map(|at| {
                let undo_size = infos.get(at).map_or(0, |info| info.undo_size);
                [undo_size, used.get(at).copied().unwrap_or(0)]
            });
            self.write_numbers(disk, MARK, &MARK_MAGIC, &numbers.collect::<Vec<_>>())
        };
        create().inspect_err(|_| {
            let _ = self.clear(disk);
        })
    }

    /// Reads the bytes in use from the mark; none are in files that were deleted since. In all other files,
    /// the block index must record the same undo data as then, and not that of the run itself.
    pub fn read_used(&self, disk: &dyn Disk) -> Result<Vec<u32>, DiskError> {
        let mark = if self.is_own(disk)? { self.read_mark(disk)? } else { None };
        let complete = self.read_complete(disk)?;
        let used = match mark {
            Some(mark) => used_since(&mark, &self.files(disk)?, complete.as_deref()),
            None => None,
        };
        used.ok_or_else(|| {
            let flaw = "there is no undo data of an unfinished job, or other undo data is in use now";
            let flaw = flaw.to_owned();
            DiskError::DamagedWorkFile { path: self.path.join(MARK), offset: 0, flaw }
        })
    }

    /// Reads the mark: for each pair of files, the undo size in the block index and the bytes in use.
    fn read_mark(&self, disk: &dyn Disk) -> Result<Option<Vec<[u32; 2]>>, DiskError> {
        let numbers = self.read_numbers(disk, MARK, &MARK_MAGIC)?;
        Ok(numbers.map(|numbers| numbers.as_chunks::<2>().0.to_vec()))
    }

    /// Returns the undo sizes with which files began to be put in place; `None` if none was put in place.
    pub fn read_complete(&self, disk: &dyn Disk) -> Result<Option<Vec<u32>>, DiskError> {
        self.read_numbers(disk, COMPLETE, &COMPLETE_MAGIC)
    }

    /// Records that all records are complete.
    pub fn write_complete(&self, disk: &dyn Disk, undo_sizes: &[u32]) -> Result<(), DiskError> {
        // If it is there, a crash has interrupted its writing, and nothing was put in place.
        remove_if_there(disk, &self.path.join(COMPLETE))?;
        self.write_numbers(disk, COMPLETE, &COMPLETE_MAGIC, undo_sizes)
    }

    fn write_numbers(
        &self,
        disk: &dyn Disk,
        name: &str,
        head: &[u8],
        numbers: &[u32],
    ) -> Result<(), DiskError> {
        let mut bytes = head.to_vec();
        put_all(numbers, &mut bytes);
        write_synced(disk, &self.path.join(name), &with_checksum(bytes))?;
        Ok(disk.sync_dir(&self.path).during("sync", &self.path)?)
    }

    /// Reads numbers; `None` if the file is missing, begins differently, or a crash has interrupted its
    /// writing.
    fn read_numbers(&self, disk: &dyn Disk, name: &str, head: &[u8]) -> Result<Option<Vec<u32>>, DiskError> {
        let path = self.path.join(name);
        let found = disk.metadata(&path).during("look for", &path)?;
        if found.is_none_or(|found| found.is_dir || found.len > LEN_LIMIT) {
            return Ok(None);
        }
        let bytes = disk.read(&path, LEN_LIMIT).during("read", &path)?;
        let numbers = without_checksum(&bytes).and_then(|content| content.strip_prefix(head));
        let Some((numbers, rest)) = numbers.map(|numbers| numbers.as_chunks()) else { return Ok(None) };
        Ok(rest.is_empty().then(|| numbers.iter().map(|number| u32::from_le_bytes(*number)).collect()))
    }

    /// Whether a run has created the directory: it has a mark, which a crash may have torn, or is empty.
    fn is_own(&self, disk: &dyn Disk) -> Result<bool, DiskError> {
        let mark = self.path.join(MARK);
        if !is_dir(disk, &self.path)? || disk.is_link(&self.path).during("look at", &self.path)? {
            return Ok(false);
        }
        if disk.list(&self.path).during("list", &self.path)?.is_empty() {
            return Ok(true);
        }
        let found = disk.metadata(&mark).during("look for", &mark)?;
        let is_link = disk.is_link(&mark).during("look at", &mark)?;
        Ok(found.is_some_and(|found| !found.is_dir) && !is_link)
    }

    /// Like [`MadeUndoDir::clear`], after a job that did not complete.
    pub fn withdraw(&self, disk: &dyn Disk) -> Result<bool, DiskError> {
        // Without a block index, what is in place would be in the way of another run.
        if self.is_own(disk)? && !exists(disk, &self.result.index_dir())? {
            self.take_back(disk)?;
        }
        self.clear(disk)
    }

    /// Moves the files that were made anew and put in place back to where they waited, so that records can be
    /// added to them. No block index may refer to them. If a commit could put one there that does, they stay.
    pub fn take_back(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        if needs_recovery(disk, self.result.net_dir(), &[] as &[&Path])? {
            return Ok(());
        }
        let Some((undo_sizes, mark)) = self.read_complete(disk)?.zip(self.read_mark(disk)?) else {
            return Ok(());
        };
        let used = mark.into_iter().map(|[_, used]| used).chain(iter::repeat(0));
        let has_index = exists(disk, &self.result.index_dir())?;
        for (number, (undo_size, used)) in (0..).map(FileNo).zip(undo_sizes.into_iter().zip(used)) {
            let (path, waiting) = (self.result.rev_path(number), self.waiting(number));
            // Records that were appended to a file still wait. Where there are block files or their index,
            // only a file of which nothing was in use was made anew.
            let has_blocks = has_index || exists(disk, &self.result.blk_path(number))?;
            let was_renamed = used == 0 || !has_blocks;
            let is_in_place = undo_size > used && was_renamed && !exists(disk, &waiting)?;
            let found = disk.metadata(&path).during("look at", &path)?;
            if is_in_place && found.is_some_and(|found| !found.is_dir && found.len == u64::from(undo_size)) {
                disk.rename(&path, &waiting).during("take back", &path)?;
            }
        }
        for dir in [&self.path, &self.blocks] {
            disk.sync_dir(dir).during("sync", dir)?;
        }
        remove_if_there(disk, &self.path.join(COMPLETE))?;
        Ok(disk.sync_dir(&self.path).during("sync", &self.path)?)
    }

    /// Removes the files of an earlier run and, if nothing else is there, the directory. Returns whether
    /// there was one. No run can continue with what is left.
    pub fn clear(&self, disk: &dyn Disk) -> Result<bool, DiskError> {
        if !self.is_own(disk)? {
            return Ok(false);
        }
        let mark = self.path.join(MARK);
        let has_mark = exists(disk, &mark)?;
        if has_mark {
            let mut file = disk.open_for_writing(&mark).during("open for writing", &mark)?;
            file.truncate(0).during("truncate", &mark)?;
            file.sync().during("sync", &mark)?;
        }
        let mut is_empty = true;
        for name in disk.list(&self.path).during("list", &self.path)? {
            let path = self.path.join(&name);
            if is_made_file(&name) && !is_dir(disk, &path)? {
                disk.remove_file(&path).during("remove", &path)?;
            } else {
                is_empty &= name == MARK;
            }
        }
        // The mark goes last: without it, files that are left would be taken for foreign ones.
        disk.sync_dir(&self.path).during("sync", &self.path)?;
        if has_mark {
            disk.remove_file(&mark).during("remove", &mark)?;
        }
        if is_empty {
            disk.remove_dir(&self.path).during("remove", &self.path)?;
            disk.sync_dir(&self.blocks).during("sync", &self.blocks)?;
        } else {
            disk.sync_dir(&self.path).during("sync", &self.path)?;
        }
        Ok(true)
    }
}

/// Whether a run gives files in the directory this name, besides the mark.
fn is_made_file(name: &OsStr) -> bool {
    name == COMPLETE || file_no(FileKind::Rev, name).is_some()
}

/// Returns the bytes in use of each file, if these entries of the block index record the same undo data as
/// the mark. Returns `None` if they record other undo data, or that of the run itself: then each file ends
/// where the run has put it.
fn used_since(mark: &[[u32; 2]], infos: &[FileInfo], complete: Option<&[u32]>) -> Option<Vec<u32>> {
    let marked = |at: usize| mark.get(at).copied().unwrap_or_default();
    let undo_size = |at: usize| infos.get(at).map_or(0, |info| info.undo_size);
    let was_deleted = |at: usize| infos.get(at).is_some_and(is_deleted);
    let is_same = |at: usize| was_deleted(at) || undo_size(at) == marked(at)[0];
    let is_in_place = |(at, &end): (usize, &u32)| end <= marked(at)[1] || end == undo_size(at);
    let refers = complete.is_some_and(|complete| complete.iter().enumerate().all(is_in_place));
    if refers || !(0..mark.len().max(infos.len())).all(is_same) {
        return None;
    }
    let used = mark.iter().enumerate().map(|(at, &[_, used])| if was_deleted(at) { 0 } else { used });
    Some(used.collect())
}

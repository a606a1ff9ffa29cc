//! The directory `blocks/peregrine-undo`, its mark, and what an earlier run has left there.

use crate::{
    datadir::{Datadir, FileKind, file_no, is_dir},
    error::{DiskError, Obstacle},
    index::MAX_FILES,
    pack::put_all,
    replace::{MARK, fingerprint, lock_of, needs_recovery, owner_of, set_owner, without_links},
    sealed::{with_checksum, without_checksum},
};
use digest::sha256::Sha256;
use std::{
    ffi::OsStr,
    iter,
    path::{Path, PathBuf},
    sync::{OnceLock, PoisonError},
};
use vfs::{Disk, During as _, each_piece, exists, remove_if_there, write_synced};
use wire::FileNo;

/// Name of the directory in `blocks`.
const DIR: &str = "peregrine-undo";
/// First bytes of the mark. A digest of the state of the block index follows, then the bytes in use.
const MARK_MAGIC: [u8; 8] = *b"PGRN-UND";
/// Length of that digest in bytes.
const DIGEST_LEN: usize = 32;
/// Name of a mark for the next block index, until that is in place.
const NEW_MARK: &str = "peregrine.mark.new";
/// Name of the file that exists once all records are complete and files are being put in place.
const COMPLETE: &str = "peregrine.complete";
/// First bytes of that file. The undo sizes follow.
const COMPLETE_MAGIC: [u8; 8] = *b"PGRN-END";
/// Upper limit of the length in bytes of both files.
const LEN_LIMIT: u64 = 8 + DIGEST_LEN as u64 + 4 * MAX_FILES as u64 + 4;

/// The directory in which records wait.
pub struct MadeUndoDir {
    /// `blocks`, links followed: renames from the directory stay on one file system.
    pub blocks: PathBuf,
    pub path: PathBuf,
    /// The datadir that gets the records.
    result: Datadir,
    /// The block index that the run began with.
    index: PathBuf,
    /// What [`MadeUndoDir::mark_head`] has returned.
    head: OnceLock<Vec<u8>>,
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
        match dir.alone(|| dir.read_used(disk)) {
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
    let dir = MadeUndoDir::find(disk, datadir, datadir)?;
    dir.alone(|| dir.withdraw(disk))
}

/// The same, if `datadir` has another block index than when the records were made, so that no run can
/// continue with them: that of the run itself, if it was killed after its commit.
pub fn clear_stale_made_undo(disk: &dyn Disk, datadir: &Datadir) -> Result<(), DiskError> {
    let dir = MadeUndoDir::find(disk, datadir, datadir)?;
    dir.alone(|| {
        let is_stale = exists(disk, &datadir.index_dir())?
            && dir.is_own(disk)?
            && matches!(dir.read_used(disk), Err(DiskError::DamagedWorkFile { .. }));
        if is_stale {
            dir.withdraw(disk)?;
        }
        Ok(())
    })
}

/// Calls `replace_index`, which replaces the block index of `datadir` by `new_index`. The new index records
/// the same bytes of `rev` files as used, but none of the `deleted` files. Records that wait in `datadir`
/// stay usable, wherever the power fails. The datadir must be locked.
///
/// # Errors
/// Those of `replace_index`. If the mark cannot be read or written, the records are of no use.
pub fn keep_made_undo<T, E: From<DiskError>>(
    disk: &dyn Disk,
    datadir: &Datadir,
    new_index: &Path,
    deleted: &[FileNo],
    replace_index: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let dir = MadeUndoDir::find(disk, datadir, datadir)?;
    dir.alone(|| {
        let used = dir.read_used(disk).ok();
        // While the index is replaced, there are marks for the old and the new one.
        let is_marked = used.is_some_and(|used| dir.mark_next(disk, new_index, used, deleted).is_ok());
        let replaced = replace_index();
        if is_marked && replaced.is_ok() {
            let _ = dir.take_next_mark(disk);
        }
        replaced
    })
}

/// Returns a digest of the state of a block index. Two that this program has written can have files of the
/// same names and lengths, so it is also one of the contents.
fn state_of(disk: &dyn Disk, index: &Path) -> Result<[u8; DIGEST_LEN], DiskError> {
    let mut sha = Sha256::new();
    if !is_dir(disk, index)? {
        return Ok([0; DIGEST_LEN]);
    }
    sha.update(&fingerprint(disk, index)?);
    let with_rows = ["ldb", "sst", "log"].map(OsStr::new);
    for name in disk.list(index).during("list", index)? {
        let path = index.join(name);
        if path.extension().is_none_or(|end| !with_rows.contains(&end)) {
            continue;
        }
        let file = disk.open(&path).during("open for reading", &path)?;
        let len = file.len().during("measure", &path)?;
        each_piece(&*file, len, |piece| sha.update(piece)).during("read", &path)?;
    }
    Ok(sha.finalize())
}

impl MadeUndoDir {
    /// Returns the directory in `result`, whether it exists or not. `datadir` has the block index that the
    /// run began with.
    pub fn find(disk: &dyn Disk, datadir: &Datadir, result: &Datadir) -> Result<Self, DiskError> {
        let blocks = without_links(disk, result.blocks_dir())?;
        let (index, head) = (datadir.index_dir(), OnceLock::new());
        Ok(Self { path: blocks.join(DIR), blocks, result: result.clone(), index, head })
    }

    /// Calls `work` while no other thread does so: while one replaces the block index, another may begin to
    /// make records, which reads the index, or remove them. `work` must not call it again.
    pub fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        let lock = lock_of(&self.path);
        let _alone = lock.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    /// First bytes of the mark of a run that works on the datadir as it was at the first call. A bitcoind
    /// that opens the block index changes them, so that no run continues after it.
    fn mark_head(&self, disk: &dyn Disk) -> Result<&[u8], DiskError> {
        if self.head.get().is_none() {
            let _ = self.head.set([&MARK_MAGIC[..], &state_of(disk, &self.index)?].concat());
        }
        Ok(self.head.get().map_or(&[], Vec::as_slice))
    }

    /// Path of the file in which the records for a `rev` file wait.
    pub fn waiting(&self, file: FileNo) -> PathBuf {
        self.path.join(FileKind::Rev.file_name(file))
    }

    /// Creates the directory, with its mark. On error, what was created is removed.
    pub fn create(&self, disk: &dyn Disk, used: &[u32]) -> Result<(), DiskError> {
        if exists(disk, &self.path)? {
            let obstacle = Obstacle::ForeignFiles;
            return Err(DiskError::NotReplaceable { path: self.path.clone(), obstacle });
        }
        let create = || {
            disk.create_dir_all(&self.path).during_creation(&self.path)?;
            set_owner(disk, &self.path, owner_of(disk, &self.blocks)?, &self.blocks)?;
            self.write_numbers(disk, MARK, self.mark_head(disk)?, used)
        };
        create().inspect_err(|_| {
            let _ = self.clear(disk);
        })
    }

    /// Writes a second mark, for another block index, with which none of the bytes in `deleted` files are in
    /// use.
    fn mark_next(
        &self,
        disk: &dyn Disk,
        index: &Path,
        mut used: Vec<u32>,
        deleted: &[FileNo],
    ) -> Result<(), DiskError> {
        for file in deleted {
            used.get_mut(file.0 as usize).into_iter().for_each(|used| *used = 0);
        }
        if self.read_numbers(disk, MARK, self.mark_head(disk)?)?.is_none() {
            // A run was killed when the present index was in place: its second mark is the one that counts.
            self.take_next_mark(disk)?;
        }
        let head = [&MARK_MAGIC[..], &state_of(disk, index)?].concat();
        remove_if_there(disk, &self.path.join(NEW_MARK))?;
        self.write_numbers(disk, NEW_MARK, &head, &used)
    }

    /// Puts the second mark in the place of the first.
    fn take_next_mark(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        let (mark, next) = (self.path.join(MARK), self.path.join(NEW_MARK));
        disk.rename(&next, &mark).during("rename to its final name", &next)?;
        Ok(disk.sync_dir(&self.path).during("sync", &self.path)?)
    }

    /// Reads the bytes in use from the mark of a run that began with the block index as it is now, or has put
    /// it there.
    pub fn read_used(&self, disk: &dyn Disk) -> Result<Vec<u32>, DiskError> {
        let mut used = None;
        if self.is_own(disk)? {
            let head = self.mark_head(disk)?;
            used = self.read_numbers(disk, MARK, head)?;
            if used.is_none() {
                used = self.read_numbers(disk, NEW_MARK, head)?;
            }
        }
        used.ok_or_else(|| {
            let flaw = "there is no undo data of an unfinished job, or the block index was used since";
            let flaw = flaw.to_owned();
            DiskError::DamagedWorkFile { path: self.path.join(MARK), offset: 0, flaw }
        })
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
        let is_own = self.is_own(disk)?;
        if is_own {
            self.take_back(disk)?;
        }
        Ok(is_own && self.clear(disk)?)
    }

    /// Removes the files that were made anew and put in place, if there is no block index that could refer to
    /// them, and no commit that could put one there: otherwise they would be in the way of another run.
    fn take_back(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        let is_committing = needs_recovery(disk, self.result.net_dir(), &[] as &[&Path])?;
        let sizes = match is_committing || exists(disk, &self.result.index_dir())? {
            true => None,
            false => self.read_complete(disk)?.zip(self.read_numbers(disk, MARK, &MARK_MAGIC)?),
        };
        let Some((undo_sizes, mark)) = sizes else { return Ok(()) };
        // The digest is of a block index that may be another one now.
        let used = mark.into_iter().skip(DIGEST_LEN / 4).chain(iter::repeat(0));
        for (number, (undo_size, used)) in (0..).zip(undo_sizes.into_iter().zip(used)) {
            let path = self.result.rev_path(FileNo(number));
            let waiting = self.waiting(FileNo(number));
            // Records that were appended to a file still wait: `clear` removes them after it has emptied the
            // mark, without which nothing is taken back.
            let is_in_place = undo_size > used && !exists(disk, &waiting)?;
            let found = disk.metadata(&path).during("look at", &path)?;
            if is_in_place && found.is_some_and(|found| !found.is_dir && found.len == u64::from(undo_size)) {
                disk.remove_file(&path).during("remove", &path)?;
            }
        }
        Ok(disk.sync_dir(&self.blocks).during("sync", &self.blocks)?)
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
    name == COMPLETE || name == NEW_MARK || file_no(FileKind::Rev, name).is_some()
}

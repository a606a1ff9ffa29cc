//! Puts made records in place. Each step can be repeated after a crash: it writes the same bytes.

use super::{MadeUndo, MadeUndoFile, check_len, lock, record_len};
use crate::{
    blk::RECORD_HEADER_LEN,
    datadir::FileKind,
    error::DiskError,
    replace::{owner_of, set_owner},
    undo,
};
use std::path::{Path, PathBuf};
use vfs::{Disk, During as _, WriteAt, dir_of, exists};
use wire::{BlockHash, ByteOffset, FileNo};

/// Bytes that are copied at once.
const CHUNK_LEN: u64 = 1 << 20;

/// How records get to their place.
///
/// In this order: a copy can fail because the disk is full, and then no new file was put in place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Step {
    /// They are copied to the end of a `rev` file, or to where a link leads that has no file yet.
    Append,
    /// There is no `rev` file, or an empty one, which a download creates beside each `blk` file: the file in
    /// which the records wait becomes it.
    Rename,
    /// The file was already renamed.
    Done,
}

/// A file that is put in place.
struct Place {
    made: MadeUndoFile,
    /// Where the records wait.
    source: PathBuf,
    /// The `rev` file, links followed.
    target: PathBuf,
    step: Step,
}

impl MadeUndo<'_> {
    /// Puts all records in place, and returns when they are on the medium. Bytes in use are not changed, and
    /// no file is cut: Core ignores what follows a file's last record, and overwrites it later. A file that
    /// is made anew gets owner, group and mode of its `blk` file. The records also stay where they waited,
    /// except in files that were renamed.
    ///
    /// After an error or a crash this can be called again, also after [`MadeUndo::resume`] and the same calls
    /// of [`MadeUndo::reserve`].
    ///
    /// # Errors
    /// Before anything is changed: [`DiskError::Damaged`] if a file has fewer bytes than are in use;
    /// [`DiskError::DamagedWorkFile`] if records are missing, or if other places were reserved than when
    /// files began to be put in place; [`DiskError::Refused`] if an output elsewhere has a `rev` file that
    /// would be made. Later: [`DiskError::NotOwner`] if this process may not create files for the owner of
    /// the `blk` file; [`DiskError::File`].
    pub fn put_in_place(&self) -> Result<(), DiskError> {
        self.open.close()?;
        let undo_sizes = self.undo_sizes();
        if self.complete.get().is_some_and(|complete| *complete != undo_sizes) {
            let flaw = "the files that were put in place end elsewhere than those of this run".to_owned();
            return Err(DiskError::DamagedWorkFile { path: self.dir.path.clone(), offset: 0, flaw });
        }
        let places = self.made().into_iter().map(|made| self.place_of(made));
        let mut places = places.collect::<Result<Vec<_>, _>>()?;
        places.sort_by_key(|place| place.step);
        if self.complete.get().is_none() {
            for place in &places {
                sync(self.disk, &place.source)?;
            }
            self.dir.write_complete(self.disk, &undo_sizes)?;
            let _ = self.complete.set(undo_sizes);
        }
        for place in &places {
            match place.step {
                Step::Rename => self.rename(place)?,
                Step::Append => self.append(place)?,
                Step::Done => {}
            }
        }
        for dir in [&self.dir.blocks, &self.dir.path] {
            self.disk.sync_dir(dir).during("sync", dir)?;
        }
        Ok(())
    }

    /// Determines how records get to their place, and refuses what cannot be done.
    fn place_of(&self, made: MadeUndoFile) -> Result<Place, DiskError> {
        let disk = self.disk;
        let source = self.dir.waiting(made.number);
        let name = self.path_in_blocks(FileKind::Rev, made.number);
        let is_link = disk.is_link(&name).during("look at", &name)?;
        let len_at = |path: &Path| {
            Ok::<_, DiskError>(disk.metadata(path).during("look at", path)?.map(|found| found.len))
        };
        let is_taken = is_link || len_at(&name)?.is_some_and(|len| len > 0 || self.is_elsewhere);
        let has_begun = self.complete.get().is_some();
        if self.is_elsewhere && is_taken && !has_begun {
            let flaw = "undo data of the output must be written here, but there is a file; move it away";
            return Err(DiskError::Refused { path: name, flaw: flaw.to_owned() });
        }
        let target = if is_link && !self.is_elsewhere {
            disk.resolve(&name).during("follow the link", &name)?
        } else {
            name
        };
        let (waiting, found) = (len_at(&source)?, len_at(&target)?);
        let is_new = self.is_elsewhere || made.used == 0;
        let is_renamed = has_begun && is_new && found.is_some_and(|len| len >= made.undo_size.into());
        let step = match waiting {
            None if is_renamed => Step::Done,
            Some(len) if self.first_byte(&made) + len >= made.undo_size.into() => {
                if !self.is_elsewhere {
                    check_len(&target, found.unwrap_or(0), made.used)?;
                }
                if self.is_elsewhere || !is_taken { Step::Rename } else { Step::Append }
            }
            _ => {
                let (offset, expected) =
                    (waiting.unwrap_or(0), u64::from(made.undo_size) - self.first_byte(&made));
                let flaw = format!("{expected} bytes of undo data were made, but the file has {offset}");
                return Err(DiskError::DamagedWorkFile { path: source, offset, flaw });
            }
        };
        Ok(Place { made, source, target, step })
    }

    fn rename(&self, place: &Place) -> Result<(), DiskError> {
        let disk = self.disk;
        let blk = self.path_in_blocks(FileKind::Blk, place.made.number);
        if self.is_elsewhere && place.made.used > 0 {
            let kept = self.datadir.rev_path(place.made.number);
            let mut file = disk.open_for_writing(&place.source).during("open for writing", &place.source)?;
            copy(disk, (&kept, 0), (&mut *file, &place.source, 0), place.made.used.into())?;
            file.sync().during("sync", &place.source)?;
        }
        // bitcoind may have left an empty file.
        let like = if exists(disk, &place.target)? { &place.target } else { &blk };
        self.take_owner_of(like, &place.source)?;
        Ok(disk.rename(&place.source, &place.target).during("put in place as", &place.target)?)
    }

    fn append(&self, place: &Place) -> Result<(), DiskError> {
        let (disk, target) = (self.disk, &place.target);
        let is_new = !exists(disk, target)?;
        let mut file = disk.open_for_writing(target).during("open for writing", target)?;
        if is_new {
            self.take_owner_of(&self.path_in_blocks(FileKind::Blk, place.made.number), target)?;
            let dir = dir_of(target);
            disk.sync_dir(dir).during("sync", dir)?;
        }
        let (first, end) = (u64::from(place.made.used), u64::from(place.made.undo_size));
        copy(disk, (&place.source, 0), (&mut *file, target, first), end - first)?;
        file.sync().during("sync", target)?;
        Ok(())
    }

    /// Gives `path` the owner, the group and the mode of the file `like`. Without that file, which only an
    /// output elsewhere can lack, it keeps those that it was created with.
    fn take_owner_of(&self, like: &Path, path: &Path) -> Result<(), DiskError> {
        if self.disk.exists(like).during("look for", like)? {
            set_owner(self.disk, path, owner_of(self.disk, like)?, like)?;
        }
        Ok(())
    }

    /// Returns the file in which records are now, waiting or in place, and the offset of its first byte in
    /// the resulting file.
    fn location(&self, made: &MadeUndoFile) -> Result<(PathBuf, u64), DiskError> {
        let waiting = self.dir.waiting(made.number);
        Ok(match exists(self.disk, &waiting)? {
            true => (waiting, self.first_byte(made)),
            false => (self.path_in_blocks(FileKind::Rev, made.number), 0),
        })
    }

    /// Compares a record with what an earlier run has written at `start` of the resulting file.
    pub(super) fn compare(&self, made: &MadeUndoFile, start: u64, record: &[u8]) -> Result<(), DiskError> {
        let disk = self.disk;
        let (path, first) = self.location(made)?;
        let offset = start - first;
        let file = disk.open(&path).during("open for reading", &path)?;
        let mut found = vec![0; record.len()];
        if file.len().during("measure", &path)? >= offset + record.len() as u64 {
            file.read_exact_at(&mut found, offset).during("read", &path)?;
            if found == record {
                return Ok(());
            }
        }
        let flaw = "the undo data that was made here differs from that of this run".to_owned();
        Err(DiskError::DamagedWorkFile { path, offset, flaw })
    }

    /// Checks records of a file that an earlier run has written: for each, the position of its undo data, the
    /// hash of the block's parent, and the length of the undo data.
    ///
    /// # Errors
    /// [`DiskError::DamagedWorkFile`] if a record is not as it was written; [`DiskError::File`].
    pub fn check(&self, file: FileNo, records: &[(ByteOffset, BlockHash, usize)]) -> Result<(), DiskError> {
        let made = lock(&self.files).get(file.0 as usize).copied().unwrap_or_default();
        let (path, first) = self.location(&made)?;
        let damaged = |offset| {
            let flaw = "the undo data that an interrupted run has made is damaged or lost".to_owned();
            DiskError::DamagedWorkFile { path: path.clone(), offset, flaw }
        };
        if !exists(self.disk, &path)? {
            return Err(damaged(0));
        }
        let open = self.disk.open(&path).during("open for reading", &path)?;
        let len = open.len().during("measure", &path)?;
        let (mut found, mut record) = (Vec::new(), Vec::new());
        for &(pos, prev, undo_len) in records {
            let start = pos.0 - RECORD_HEADER_LEN as u64;
            let offset = start.saturating_sub(first);
            found.resize(record_len(undo_len) as usize, 0);
            if start < first || len < offset + found.len() as u64 {
                return Err(damaged(offset));
            }
            open.read_exact_at(&mut found, offset).during("read", &path)?;
            self.obfuscation.apply(&mut found, start);
            let undo = found.get(RECORD_HEADER_LEN..RECORD_HEADER_LEN + undo_len).unwrap_or_default();
            record.clear();
            undo::write_record(&mut record, self.result.magic(), &prev, undo);
            if record != found {
                return Err(damaged(offset));
            }
        }
        Ok(())
    }
}

/// Syncs a file if it exists: an earlier run may have written it.
fn sync(disk: &dyn Disk, path: &Path) -> Result<(), DiskError> {
    if exists(disk, path)? {
        disk.open_for_writing(path).during("open for writing", path)?.sync().during("sync", path)?;
    }
    Ok(())
}

/// Copies `len` bytes from a byte of one file to a byte of another.
fn copy(
    disk: &dyn Disk,
    (from, from_offset): (&Path, u64),
    (to, to_path, to_offset): (&mut dyn WriteAt, &Path, u64),
    len: u64,
) -> Result<(), DiskError> {
    let file = disk.open(from).during("open for reading", from)?;
    let mut chunk = Vec::new();
    let mut done = 0;
    while done < len {
        chunk.resize(CHUNK_LEN.min(len - done) as usize, 0);
        file.read_exact_at(&mut chunk, from_offset + done).during("read", from)?;
        to.write_all_at(&chunk, to_offset + done).during("write", to_path)?;
        done += chunk.len() as u64;
    }
    Ok(())
}

//! Puts made records in place. After a crash, all can be done again: nothing refers to what is in place yet.

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
    /// After an error or a crash this can be called again, also after [`MadeUndo::resume`] and at least the
    /// same calls of [`MadeUndo::reserve`].
    ///
    /// # Errors
    /// Before anything is changed: [`DiskError::Damaged`] if a file has fewer bytes than are in use;
    /// [`DiskError::DamagedWorkFile`] if records are missing; [`DiskError::Refused`] if an output elsewhere
    /// has a `rev` file that would be made. Later: [`DiskError::NotOwner`] if this process may not create
    /// files for the owner of the `blk` file; [`DiskError::File`].
    pub fn put_in_place(&self) -> Result<(), DiskError> {
        self.open.close()?;
        // An attempt that has failed may have put some in place.
        self.dir.take_back(self.disk)?;
        let places = self.made().into_iter().map(|made| self.place_of(made));
        let mut places = places.collect::<Result<Vec<_>, _>>()?;
        places.sort_by_key(|place| place.step);
        for Place { source, .. } in &places {
            // An earlier run may have written it.
            self.disk.sync_file(source).during("sync", source)?;
        }
        self.dir.write_complete(self.disk, &self.undo_sizes())?;
        for place in &places {
            match place.step {
                Step::Rename => self.rename(place)?,
                Step::Append => self.append(place)?,
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
        if self.is_elsewhere && is_taken {
            let flaw = "undo data of the output must be written here, but there is a file; move it away";
            return Err(DiskError::Refused { path: name, flaw: flaw.to_owned() });
        }
        let target = if is_link && !self.is_elsewhere {
            disk.resolve(&name).during("follow the link", &name)?
        } else {
            name
        };
        let (waiting, found) = (len_at(&source)?, len_at(&target)?);
        let step = match waiting {
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

    /// Checks records of a file that an earlier run has written: for each, the position of its undo data, the
    /// hash of the block's parent, and the length of the undo data.
    ///
    /// # Errors
    /// [`DiskError::DamagedWorkFile`] if a record is not as it was written; [`DiskError::File`].
    pub fn check(&self, file: FileNo, records: &[(ByteOffset, BlockHash, usize)]) -> Result<(), DiskError> {
        let made = lock(&self.files).get(file.0 as usize).copied().unwrap_or_default();
        let (path, first) = (self.dir.waiting(file), self.first_byte(&made));
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

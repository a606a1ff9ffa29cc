//! A file that is complete under its name, or not there.

use super::{Disk, During as _, FileError, WriteFile, remove_if_there, rename_new, sync_dir_of};
use std::io;
use std::path::{Path, PathBuf};

/// A new file that is written under a temporary name and renamed when all of it is on the medium: after a
/// crash, its final name has the old content, or none, or all of the new.
///
/// If it is dropped before [`AtomicFile::commit`], the temporary file is removed: a job that fails or is
/// interrupted leaves none. A crash leaves it, and the caller must remove it before it creates the file
/// again: only the caller knows whether a file of that name can belong to another program.
pub struct AtomicFile<'d> {
    disk: &'d dyn Disk,
    temporary: PathBuf,
    path: PathBuf,
    file: Box<dyn WriteFile>,
    /// Whether the temporary file exists.
    is_temporary: bool,
    /// Whether it must not replace a file: see [`crate::unfinished::create_new`].
    pub(crate) is_new: bool,
}

impl<'d> AtomicFile<'d> {
    /// Writes a whole file, replacing the one that has its name. A temporary file that a crash has left is
    /// replaced too: its name must be one that only this program uses.
    ///
    /// # Errors
    /// The errors of [`AtomicFile::create`], [`AtomicFile::write_all`] and [`AtomicFile::commit`].
    pub fn write(disk: &'d dyn Disk, temporary: PathBuf, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        remove_if_there(disk, &temporary)?;
        let mut file = Self::create(disk, temporary, path)?;
        file.write_all(bytes)?;
        file.commit()
    }

    /// Creates the file `temporary`, which must not exist, to become `path` in the same directory.
    ///
    /// # Errors
    /// The errors of [`Disk::create`].
    pub fn create(disk: &'d dyn Disk, temporary: PathBuf, path: &Path) -> Result<Self, FileError> {
        let file = disk.create(&temporary).during_creation(&temporary)?;
        Ok(Self::new(disk, temporary, path, file))
    }

    /// Continues a file that was just created as `temporary` and is still empty.
    pub fn new(disk: &'d dyn Disk, temporary: PathBuf, path: &Path, file: Box<dyn WriteFile>) -> Self {
        debug_assert_eq!(temporary.parent(), path.parent(), "a rename keeps the directory");
        Self { disk, temporary, path: path.to_owned(), file, is_temporary: true, is_new: false }
    }

    /// The path under which the file is written.
    pub fn temporary_path(&self) -> &Path {
        &self.temporary
    }

    /// Appends all of `bytes`. Writes are not buffered: write in large pieces.
    ///
    /// # Errors
    /// The errors of [`WriteFile::write_all`].
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.file.write_all(bytes).during("write", &self.temporary)
    }

    /// Gives the file its final name, replacing the file there, unless [`crate::unfinished::create_new`] has
    /// created it. When it returns, content and name are on the medium.
    ///
    /// # Errors
    /// Any I/O error, also if the temporary name is that of another file by now. The final name then has its
    /// old content, or the new one if only the last sync failed.
    pub fn commit(self) -> Result<(), FileError> {
        self.commit_held().map(drop)
    }

    /// The same, but a file that is locked stays so until what is returned is dropped.
    ///
    /// # Errors
    /// The errors of [`AtomicFile::commit`].
    pub fn commit_held(mut self) -> Result<Self, FileError> {
        self.file.sync().during("sync", &self.temporary)?;
        if !self.file.is_at(&self.temporary).during("look for", &self.temporary)? {
            let flaw = io::Error::other("another program has removed or replaced it; run again");
            return Err(flaw).during("rename to its final name", &self.temporary);
        }
        let Self { disk, temporary, path, .. } = &self;
        match self.is_new {
            true => rename_new(*disk, temporary, path)?,
            false => disk.rename(temporary, path).during("rename to its final name", temporary)?,
        }
        self.is_temporary = false;
        sync_dir_of(self.disk, &self.path)?;
        Ok(self)
    }

    /// Removes the file.
    ///
    /// # Errors
    /// The errors of [`Disk::remove_file`].
    pub fn discard(mut self) -> Result<(), FileError> {
        self.disk.remove_file(&self.temporary).during("remove", &self.temporary)?;
        self.is_temporary = false;
        Ok(())
    }
}

impl Drop for AtomicFile<'_> {
    fn drop(&mut self) {
        if self.is_temporary && self.file.is_at(&self.temporary).unwrap_or_default() {
            // The error that ended the writing is the one to report.
            let _ = self.disk.remove_file(&self.temporary);
        }
    }
}

//! A folder that is complete under its name, or not there.

use crate::{Disk, During as _, FileError, UnfinishedError, sync_dir_of, unfinished};
use std::path::{Path, PathBuf};

/// A new folder that is filled under a temporary name and renamed when all of its files are on the medium.
///
/// If it is dropped before [`AtomicDir::commit`], its files are removed, and so is it; files of others stay.
/// A crash leaves it, and [`AtomicDir::create`] removes what is in it.
pub struct AtomicDir<'d> {
    disk: &'d dyn Disk,
    path: PathBuf,
    temporary: PathBuf,
    is_own: fn(&str) -> bool,
    is_temporary: bool,
}

impl<'d> AtomicDir<'d> {
    /// Begins the folder `path`. `is_own` tells which names its files have. `begin_first` gets the path of
    /// the file `first`, which it creates with [`unfinished::create`]. While it is locked, no other job fills
    /// the folder: the caller completes it last, with [`crate::AtomicFile::commit_held`].
    ///
    /// # Errors
    /// [`UnfinishedError::Refused`] if the temporary name is taken, or a file in the folder is not its own.
    pub fn create<F>(
        disk: &'d dyn Disk,
        path: &Path,
        is_own: fn(&str) -> bool,
        first: &str,
        begin_first: impl FnOnce(&Path) -> Result<F, UnfinishedError>,
    ) -> Result<(Self, F), UnfinishedError> {
        let temporary = unfinished::temporary(path, unfinished::SUFFIX);
        let found = disk.metadata(&temporary).during("look for", &temporary)?;
        if found.is_some_and(|found| !found.is_dir) {
            let flaw =
                "a file has the name of a temporary directory; move it away, or write another directory";
            return Err(UnfinishedError::Refused { path: temporary, flaw });
        }
        disk.create_dir_all(&temporary).during_creation(&temporary)?;
        let begun = temporary.join(first);
        // The job that has completed the first file locks it until the folder has its name.
        let lock_complete = || -> Result<_, UnfinishedError> {
            let is_complete = disk.exists(&begun).during("look for", &begun)?;
            is_complete.then(|| unfinished::lock(disk, &begun, unfinished::IN_USE)).transpose()
        };
        let begin = || {
            drop(lock_complete()?);
            Ok((begin_first(&begun)?, lock_complete()?))
        };
        // It stays if there is something in it.
        let (first, _lock) = begin().inspect_err(|_: &UnfinishedError| drop(disk.remove_dir(&temporary)))?;
        let dir = Self { disk, path: path.to_owned(), temporary, is_own, is_temporary: true };
        dir.clear(Some(&unfinished::temporary(&begun, unfinished::SUFFIX)))?;
        Ok((dir, first))
    }

    /// The path under which it is filled.
    pub fn temporary_path(&self) -> &Path {
        &self.temporary
    }

    /// Gives the folder its name. When it returns, the name is on the medium. The caller has synced all
    /// files.
    ///
    /// # Errors
    /// Any I/O error. The folder does not have its name then, unless only the last sync has failed.
    pub fn commit(mut self) -> Result<(), FileError> {
        self.disk.rename(&self.temporary, &self.path).during("rename to its final name", &self.temporary)?;
        self.is_temporary = false;
        sync_dir_of(self.disk, &self.path)
    }

    /// Removes the files of the folder, all but one, and refuses others.
    fn clear(&self, kept: Option<&Path>) -> Result<(), UnfinishedError> {
        let mut foreign = None;
        for name in self.disk.list(&self.temporary).during("list", &self.temporary)? {
            let (path, text) = (self.temporary.join(&name), name.to_str().unwrap_or_default());
            if !(self.is_own)(text.strip_suffix(unfinished::SUFFIX).unwrap_or(text)) {
                foreign = Some(path);
            } else if kept != Some(&path) {
                self.disk.remove_file(&path).during("remove the file left by a crash", &path)?;
            }
        }
        let flaw =
            "this is not of the directory that is written here; move it away, or write another directory";
        foreign.map_or(Ok(()), |path| Err(UnfinishedError::Refused { path, flaw }))
    }
}

impl Drop for AtomicDir<'_> {
    fn drop(&mut self) {
        if self.is_temporary {
            // The error that ended the writing is the one to report.
            let _ = self.clear(None);
            let _ = self.disk.remove_dir(&self.temporary);
        }
    }
}

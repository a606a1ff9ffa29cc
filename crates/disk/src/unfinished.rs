//! A file that is written under a temporary name, beside the name that it gets when it is complete.

use crate::error::DiskError;
use crate::fs::{Disk, During as _, Lock, WriteFile};
use std::path::{Path, PathBuf};

/// Suffix of the temporary name. No other program uses it, so that a file of that name is a leftover of
/// Peregrine.
pub(crate) const SUFFIX: &str = ".peregrine-part";

/// Locks the file, and removes it when dropped unless [`Unfinished::keep`] was called: a job that fails or is
/// interrupted leaves no file. What a crash leaves is removed by the next job that writes the same file.
pub(crate) struct Unfinished<'d> {
    disk: &'d dyn Disk,
    /// `None` once the file is kept.
    path: Option<PathBuf>,
    lock: Option<Box<dyn Lock>>,
}

impl<'d> Unfinished<'d> {
    /// Creates the temporary file at `path` plus `suffix`; returns it with its path.
    ///
    /// # Errors
    /// [`DiskError::Locked`] if another process writes it; [`DiskError::Refused`] if something else has this
    /// name; [`DiskError::File`].
    pub(crate) fn create(
        disk: &'d dyn Disk,
        path: &Path,
        suffix: &str,
    ) -> Result<(PathBuf, Box<dyn WriteFile>, Self), DiskError> {
        let mut name = path.as_os_str().to_os_string();
        name.push(suffix);
        let path = PathBuf::from(name);
        if let Some(found) = disk.metadata(&path).during("look for", &path)? {
            if found.is_dir {
                let flaw =
                    "a directory has the name of a temporary file; move it away, or write another file";
                return Err(DiskError::Refused { path, flaw: flaw.to_owned() });
            }
            let _lock = lock(disk, &path)?;
            disk.remove_file(&path).during("remove the file left by a crash", &path)?;
        }
        let file = disk.create(&path).during("create", &path)?;
        let mut unfinished = Self { disk, path: Some(path.clone()), lock: None };
        unfinished.lock = Some(lock(disk, &path)?);
        Ok((path, file, unfinished))
    }

    /// Does not remove the file: it has its final name now, or was removed already.
    pub(crate) fn keep(mut self) {
        self.path = None;
    }
}

fn lock(disk: &dyn Disk, path: &Path) -> Result<Box<dyn Lock>, DiskError> {
    let lock = disk.lock(path).during("lock", path)?;
    lock.ok_or_else(|| {
        let flaw = "another peregrine writes this file; let it end, or write another file".to_owned();
        DiskError::Refused { path: path.to_owned(), flaw }
    })
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // The error that ended the writing is the one to report. The next job tries again.
            let _ = self.disk.remove_file(&path);
        }
    }
}

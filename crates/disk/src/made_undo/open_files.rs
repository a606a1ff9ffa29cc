//! The files that records were written to and that are still open: a bounded number of them, for any number
//! of threads.

use crate::error::DiskError;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use vfs::{Disk, During as _, WriteAt};

/// Number of files that stay open, besides those that are being written: blocks come about in chain order, so
/// that records go to few files at a time.
const MAX_OPEN: usize = 16;

type SharedFile = Arc<Mutex<Box<dyn WriteAt>>>;

#[derive(Default)]
pub struct OpenFiles {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    files: BTreeMap<PathBuf, OpenFile>,
    uses: u64,
}

struct OpenFile {
    file: SharedFile,
    last_use: u64,
}

/// Locks a mutex. What it guards is consistent even if a thread has panicked.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpenFiles {
    /// Writes `bytes` at `offset` of the file `path`, which is created if it is missing.
    pub fn write(&self, disk: &dyn Disk, path: &Path, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        let file = lock(&self.inner).file(disk, path)?;
        Ok(lock(&file).write_all_at(bytes, offset).during("write", path)?)
    }

    /// Returns when all that was written to any of the files is on the medium. They stay open.
    pub fn sync(&self) -> Result<(), DiskError> {
        let files: Vec<(PathBuf, SharedFile)> = {
            let inner = lock(&self.inner);
            inner.files.iter().map(|(path, open)| (path.clone(), Arc::clone(&open.file))).collect()
        };
        for (path, file) in files {
            lock(&file).sync().during("sync", &path)?;
        }
        Ok(())
    }

    /// Closes a file that is to be removed.
    pub fn forget(&self, path: &Path) {
        lock(&self.inner).files.remove(path);
    }

    /// Syncs all files and closes them.
    pub fn close(&self) -> Result<(), DiskError> {
        self.sync()?;
        lock(&self.inner).files.clear();
        Ok(())
    }
}

impl Inner {
    fn file(&mut self, disk: &dyn Disk, path: &Path) -> Result<SharedFile, DiskError> {
        self.uses += 1;
        if let Some(open) = self.files.get_mut(path) {
            open.last_use = self.uses;
            return Ok(Arc::clone(&open.file));
        }
        while self.files.len() >= MAX_OPEN && self.close_one()? {}
        let file = disk.open_for_writing(path).during("open for writing", path)?;
        let file = Arc::new(Mutex::new(file));
        let open = OpenFile { file: Arc::clone(&file), last_use: self.uses };
        self.files.insert(path.to_owned(), open);
        Ok(file)
    }

    /// Closes the file that was not used for the longest time, among those that no thread writes or syncs.
    /// Returns false if there is none. It is synced first, so that [`OpenFiles::sync`] need not know it.
    fn close_one(&mut self) -> Result<bool, DiskError> {
        // Threads get files only by `&mut self`, so one that is not shared now stays so.
        let idle = self.files.iter().filter(|(_, open)| Arc::strong_count(&open.file) == 1);
        let Some((path, open)) = idle.min_by_key(|(_, open)| open.last_use) else {
            return Ok(false);
        };
        let path = path.clone();
        lock(&open.file).sync().during("sync", &path)?;
        self.files.remove(&path);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::RealDisk;

    #[test]
    fn a_file_that_was_removed_is_opened_again() {
        let (dir, open) = (tempfile::tempdir().unwrap(), OpenFiles::default());
        let path = dir.path().join("rev00000.dat");
        open.write(&RealDisk, &path, b"old", 0).unwrap();
        open.forget(&path);
        std::fs::remove_file(&path).unwrap();
        open.write(&RealDisk, &path, b"new", 0).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }
}

//! The folder for what a run writes besides its result: runs of spilled coins, and the checkpoint.
//!
//! It is made when there is something to put into it, and goes when the work is done.

use crate::{
    error::{Error, ErrorKind},
    options::ReindexOptions,
    stages::commit::WORK_DIR,
};
use disk::{
    checkpoint::Checkpoint,
    fs::{Disk, During as _, Lock},
};
use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Whoever holds it owns the folder.
const LOCK_NAME: &str = "lock";

/// The folder, there or not.
pub struct WorkDir<'a> {
    disk: &'a dyn Disk,
    path: PathBuf,
    lock: Mutex<Option<Box<dyn Lock>>>,
}

impl<'a> WorkDir<'a> {
    /// The folder at `path`. Nothing is touched.
    #[must_use]
    pub fn new(disk: &'a dyn Disk, path: PathBuf) -> Self {
        Self { disk, path, lock: Mutex::new(None) }
    }

    /// The folder of work whose result goes `beside` it; where there is none, one of this process alone.
    #[must_use]
    pub fn of(disk: &'a dyn Disk, options: &ReindexOptions, beside: Option<&Path>) -> Self {
        let path = match (&options.work_dir, beside) {
            (Some(dir), Some(_)) => dir.join(WORK_DIR),
            (None, Some(beside)) => beside.with_file_name(WORK_DIR),
            (dir, None) => {
                let home = dir.clone().unwrap_or_else(std::env::temp_dir);
                home.join(format!("{WORK_DIR}-{}", std::process::id()))
            }
        };
        Self::new(disk, path)
    }

    /// The file system.
    #[must_use]
    pub fn disk(&self) -> &'a dyn Disk {
        self.disk
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is there.
    ///
    /// # Errors
    /// What the file system says.
    pub fn exists(&self) -> Result<bool, Error> {
        Ok(self.disk.exists(&self.path).during("look for", &self.path)?)
    }

    /// Makes the folder, if it is missing, and takes it for this process.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`] if another process works there, or what the file system says.
    pub fn take(&self) -> Result<(), Error> {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(());
        }
        if !self.exists()? {
            self.disk.create_dir_all(&self.path).during("create", &self.path)?;
            // Else a power cut could take a checkpoint away with the folder.
            let parent = self.path.parent().unwrap_or(&self.path);
            self.disk.sync_dir(parent).during("sync", parent)?;
        }
        let path = self.path.join(LOCK_NAME);
        *held = self.disk.lock(&path).during("lock", &path)?;
        if held.is_none() {
            let detail = "another peregrine works there: wait for it, or name another --work-dir";
            return Err(Error::new(ErrorKind::Environment, detail).in_file(path, None));
        }
        Ok(())
    }

    /// Removes the folder with all that is in it.
    ///
    /// # Errors
    /// As [`WorkDir::take`].
    pub fn remove(&self) -> Result<(), Error> {
        if self.exists()? {
            self.take()?;
            // First of all: a checkpoint whose runs are gone in part could not be gone on from.
            Checkpoint::remove(self.disk, &self.path)?;
            self.disk.remove_dir_all(&self.path).during("remove", &self.path)?;
            *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        Ok(())
    }
}

//! The folder for what a run writes besides its result: runs of spilled coins, and the checkpoint.
//!
//! It is made when there is something to put into it, and goes when the work is done.

use crate::{
    error::{Error, ErrorKind},
    options::ReindexOptions,
    stages::commit::WORK_DIR,
};
use disk::{
    checkpoint::{Checkpoint, is_work_file},
    fs::{Disk, During as _, Lock},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Whoever holds it owns the folder.
const LOCK_NAME: &str = "peregrine.lock";

/// How the name of a folder begins that a process has for itself. Its number follows.
const ALONE: &str = "peregrine-work-";

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

    /// A folder of this process alone, below `home`. Removes those there that other processes were killed
    /// over.
    #[must_use]
    pub fn alone(disk: &'a dyn Disk, home: &Path) -> Self {
        for name in disk.list(home).unwrap_or_default() {
            let is_alone = name.to_str().is_some_and(|name| name.starts_with(ALONE));
            if is_alone && disk.exists(&home.join(&name).join(LOCK_NAME)).unwrap_or_default() {
                // Whatever is wrong with it, or whoever works in it, this run does without.
                let _ = Self::new(disk, home.join(&name)).remove();
            }
        }
        Self::new(disk, home.join(format!("{ALONE}{}", std::process::id())))
    }

    /// The folder of work whose result goes `beside` it; where there is none, one of this process alone.
    #[must_use]
    pub fn of(disk: &'a dyn Disk, options: &ReindexOptions, beside: Option<&Path>) -> Self {
        let path = match (&options.work_dir, beside) {
            (Some(dir), Some(_)) => dir.join(WORK_DIR),
            (None, Some(beside)) => beside.with_file_name(WORK_DIR),
            (dir, None) => {
                return Self::alone(disk, &dir.clone().unwrap_or_else(std::env::temp_dir));
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
        let found = self.disk.metadata(&self.path).during("look for", &self.path)?;
        if found.is_some_and(|found| !found.is_dir) {
            let detail = "temporary files would go here, but this is not a folder; move it away, or name \
                          another --work-dir";
            return Err(Error::new(ErrorKind::Environment, detail).in_file(&self.path, None));
        }
        if found.is_none() {
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

    /// Removes the files of a run, and the folder if nothing else is in it.
    ///
    /// # Errors
    /// As [`WorkDir::take`].
    pub fn remove(&self) -> Result<(), Error> {
        if !self.exists()? {
            return Ok(());
        }
        self.take()?;
        // First of all: a checkpoint whose runs are gone in part could not be gone on from.
        Checkpoint::remove(self.disk, &self.path)?;
        for name in self.disk.list(&self.path).during("list", &self.path)? {
            let path = self.path.join(&name);
            if is_work_file(self.disk, &path)? {
                self.disk.remove_file(&path).during("remove", &path)?;
            }
        }
        let lock = self.path.join(LOCK_NAME);
        self.disk.remove_file(&lock).during("remove", &lock)?;
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
        match self.disk.remove_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            done => Ok(done.during("remove", &self.path)?),
        }
    }
}

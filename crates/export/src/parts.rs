//! A directory of files that are written one by one, in any order, and that a later run can complete.
//!
//! The files can be in folders of the directory.
//!
//! The directory has a temporary name until it is complete. It has a file that states what it is for: a run
//! that wants the same keeps the files that are complete, and one that wants something else is refused,
//! unless it continues a directory, of which it keeps some files.

use crate::DIRECTORY_IN_USE;
use crate::columns::Columns;
use crate::rows::{FileFormat, RowFile};
use crate::table::Table;
use std::path::{Path, PathBuf};
use vfs::{Disk, During as _, FileError, Lock, UnfinishedError, dir_of, unfinished};

/// The file that states what a directory is for.
const REQUEST: &str = "dataset.json";
/// Maximum length of that file, in bytes.
const REQUEST_LEN: u64 = 1 << 24;

/// Why a directory cannot be begun or continued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartsError {
    /// The disk failed, or another process writes the directory.
    #[error(transparent)]
    Unfinished(#[from] UnfinishedError),
    /// The directory exists and is complete.
    #[error("{}: it exists already", .0.display())]
    Exists(PathBuf),
    /// An earlier run for something else has left a part of its directory.
    #[error("{}: an interrupted run that wanted something else has left this", .0.display())]
    OtherRequest(PathBuf),
}

impl From<FileError> for PartsError {
    fn from(error: FileError) -> Self {
        Self::Unfinished(error.into())
    }
}

/// See the module.
pub struct Parts<'d> {
    disk: &'d dyn Disk,
    path: PathBuf,
    temporary: PathBuf,
    _lock: Box<dyn Lock>,
}

impl<'d> Parts<'d> {
    /// Begins the directory `path`, or continues it if an earlier run with the same `request` has begun it.
    /// `request` determines all files.
    ///
    /// # Errors
    /// [`PartsError`]
    pub fn open(disk: &'d dyn Disk, path: &Path, request: &str) -> Result<Self, PartsError> {
        if disk.exists(path).during("look for", path)? {
            return Err(PartsError::Exists(path.to_owned()));
        }
        let temporary = unfinished::temporary(path, unfinished::SUFFIX);
        disk.create_dir_all(&temporary).during_creation(&temporary)?;
        let file = temporary.join(REQUEST);
        if disk.exists(&file).during("look for", &file)? {
            let lock = unfinished::lock(disk, &file, DIRECTORY_IN_USE)?;
            let found = disk.read(&file, REQUEST_LEN).during("read", &file)?;
            return match found == request.as_bytes() {
                true => Ok(Self { disk, path: path.to_owned(), temporary, _lock: lock }),
                false => Err(PartsError::OtherRequest(temporary)),
            };
        }
        // A crash may have left the request without its name, but nothing else.
        let leftover = format!("{REQUEST}{}", unfinished::SUFFIX);
        if disk.list(&temporary).during("list", &temporary)?.iter().any(|name| *name != *leftover) {
            return Err(PartsError::OtherRequest(temporary));
        }
        Self::with_request(disk, path, temporary, request)
    }

    /// Begins the directory `path`, or continues it if it is there, complete or not, whatever it was for:
    /// `outdated` gets that and returns the names of its files that do not stay; `None`: it cannot be
    /// continued. Until the directory is complete again, it has its temporary name.
    ///
    /// # Errors
    /// [`PartsError`]
    pub fn append(
        disk: &'d dyn Disk,
        path: &Path,
        request: &str,
        outdated: impl FnOnce(&[u8]) -> Option<Vec<String>>,
    ) -> Result<Self, PartsError> {
        let temporary = unfinished::temporary(path, unfinished::SUFFIX);
        let is_complete = disk.exists(path).during("look for", path)?;
        let dir = if is_complete { path } else { &temporary };
        let file = dir.join(REQUEST);
        if !disk.exists(&file).during("look for", &file)? {
            return if is_complete {
                Err(PartsError::Exists(path.to_owned()))
            } else {
                Self::open(disk, path, request)
            };
        }
        let lock = unfinished::lock(disk, &file, DIRECTORY_IN_USE)?;
        let found = disk.read(&file, REQUEST_LEN).during("read", &file)?;
        let other = || PartsError::OtherRequest(dir.to_owned());
        let outdated = outdated(&found).ok_or_else(other)?;
        if is_complete {
            if disk.exists(&temporary).during("look for", &temporary)? {
                return Err(PartsError::OtherRequest(temporary));
            }
            disk.rename(path, &temporary).during("rename", path)?;
            disk.sync_dir(dir_of(path)).during("sync", dir_of(path))?;
        }
        for path in outdated.iter().map(|name| temporary.join(name)) {
            if disk.exists(&path).during("look for", &path)? {
                disk.remove_file(&path).during("remove", &path)?;
            }
        }
        drop(lock);
        Self::with_request(disk, path, temporary, request)
    }

    /// Writes what a directory is for, and locks it.
    fn with_request(
        disk: &'d dyn Disk,
        path: &Path,
        temporary: PathBuf,
        request: &str,
    ) -> Result<Self, PartsError> {
        let file = temporary.join(REQUEST);
        let mut unnamed = unfinished::create(disk, &file, unfinished::SUFFIX)?;
        unnamed.write_all(request.as_bytes())?;
        unnamed.commit()?;
        let lock = unfinished::lock(disk, &file, DIRECTORY_IN_USE)?;
        Ok(Self { disk, path: path.to_owned(), temporary, _lock: lock })
    }

    /// Returns the size in bytes of a file, if it is complete.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn complete_len(&self, name: &str) -> Result<Option<u64>, FileError> {
        let path = self.temporary.join(name);
        Ok(self.disk.metadata(&path).during("look for", &path)?.map(|found| found.len))
    }

    /// Begins a file. In its name, slashes divide the names of folders, which are created.
    ///
    /// # Errors
    /// [`UnfinishedError`]
    pub fn begin<T: Table>(
        &self,
        name: &str,
        format: FileFormat,
        columns: &Columns,
    ) -> Result<RowFile<'d, T>, UnfinishedError> {
        let path = self.temporary.join(name);
        let folder = dir_of(&path);
        if !self.disk.exists(folder).during("look for", folder)? {
            self.disk.create_dir_all(folder).during_creation(folder)?;
            // A file that is complete must not be lost with its folder.
            for above in folder.ancestors().skip(1).take_while(|above| above.starts_with(&self.temporary)) {
                self.disk.sync_dir(above).during("sync", above)?;
            }
        }
        RowFile::create(self.disk, &path, format, columns)
    }

    /// Gives the directory its name, when all files are complete.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn finish(self) -> Result<(), FileError> {
        let Self { disk, path, temporary, .. } = &self;
        disk.rename(temporary, path).during("rename to its final name", temporary)?;
        let parent = dir_of(path);
        disk.sync_dir(parent).during("sync", parent)
    }
}

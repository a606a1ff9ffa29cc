//! Files of the user that are written under a temporary name, beside the name that they get.

use crate::{AtomicFile, Disk, During as _, FileError, Lock, with_suffix};
use std::io;
use std::path::{Path, PathBuf};

/// Why a file cannot be created under its temporary name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnfinishedError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another job writes the file, or something else has the temporary name. `flaw` also says what to do.
    #[error("{}: {flaw}", path.display())]
    Refused { path: PathBuf, flaw: &'static str },
    /// The output exists.
    #[error("{}: it exists already", .0.display())]
    Exists(PathBuf),
}

/// Suffix of the temporary name. No other program uses it, so that a file of that name is a leftover of
/// Peregrine.
pub const SUFFIX: &str = ".peregrine-part";

/// Returns the temporary name of a file or directory, also if `path` ends with a slash.
pub fn temporary(path: &Path, suffix: &str) -> PathBuf {
    with_suffix(path.components().as_path(), suffix)
}

/// Returns the path to which the links at a path lead, also if nothing is there yet.
pub fn target(disk: &dyn Disk, path: &Path) -> Result<PathBuf, FileError> {
    let path = path.components().as_path();
    match disk.resolve(path) {
        // The directory may be created later.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        found => found.during_creation(path),
    }
}

/// Creates a file that is written and locked under the name `path` plus `suffix`. What a crash has left there
/// is removed. If `path` is a symbolic link, the file that it leads to is written.
pub fn create<'d>(disk: &'d dyn Disk, path: &Path, suffix: &str) -> Result<AtomicFile<'d>, UnfinishedError> {
    // No file could be renamed to a name with a slash at its end.
    let path = path.components().as_path();
    let is_link = disk.is_link(path).during_creation(path)?;
    let target = if is_link { disk.resolve(path).during_creation(path)? } else { path.to_owned() };
    let temporary = self::temporary(&target, suffix);
    if let Some(found) = disk.metadata(&temporary).during("look for", &temporary)? {
        if found.is_dir {
            let flaw = "a directory has the name of a temporary file; move it away, or write another file";
            return Err(UnfinishedError::Refused { path: temporary, flaw });
        }
        let _lock = lock(disk, &temporary, IN_USE)?;
        disk.remove_file(&temporary).during("remove the file left by a crash", &temporary)?;
    }
    match disk.create_locked(&temporary).during_creation(&temporary)? {
        Some(file) => Ok(AtomicFile::new(disk, temporary, &target, file)),
        None => Err(UnfinishedError::Refused { path: temporary, flaw: IN_USE }),
    }
}

/// The same for a file that must not exist. This is checked under the lock of the temporary name: another
/// process may have completed the file since the caller looked. A file that is made later is not replaced.
pub fn create_new<'d>(
    disk: &'d dyn Disk,
    path: &Path,
    suffix: &str,
) -> Result<AtomicFile<'d>, UnfinishedError> {
    let path = path.components().as_path();
    let mut file = create(disk, path, suffix)?;
    if disk.exists(path).during("look for", path)? {
        return Err(UnfinishedError::Exists(path.to_owned()));
    }
    file.is_new = true;
    Ok(file)
}

/// Writes a whole file, as [`create`] does.
pub fn write(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), UnfinishedError> {
    let mut file = create(disk, path, SUFFIX)?;
    file.write_all(bytes)?;
    Ok(file.commit()?)
}

/// The obstacle and the remedy if another process writes a file.
pub const IN_USE: &str = "another peregrine writes this file; let it end, or write another file";

/// Locks a file. `in_use` says what to do if another process has locked it.
pub fn lock(disk: &dyn Disk, path: &Path, in_use: &'static str) -> Result<Box<dyn Lock>, UnfinishedError> {
    let lock = disk.lock(path).during("lock", path)?;
    lock.ok_or_else(|| UnfinishedError::Refused { path: path.to_owned(), flaw: in_use })
}

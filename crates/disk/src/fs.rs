//! The one door to files: every read, write, rename and sync of the project goes through [`Disk`].
//!
//! A trait, and not `std::fs`, because crash safety can only be tested on a disk that fails on demand: the
//! test kit has a disk in memory and one that breaks at the n-th operation, and each writer is run against
//! them. The trait is object-safe and small; it returns plain [`io::Error`], and callers add path and
//! action with [`During::during`].

mod real;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

pub use real::{NotRegular, RealDisk, limit_remedy, open_regular};

/// Suffix of the name under which [`Disk::exchange`] parks its first path when the file system cannot swap.
pub const PARKED_SUFFIX: &str = ".exchange";

/// A file operation that failed, with the place and what was tried.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {action}: {source}", path.display())]
pub struct FileError {
    /// The file or directory.
    pub path: PathBuf,
    /// What was tried, as it follows "cannot": `open for reading`.
    pub action: &'static str,
    /// What the operating system said.
    pub source: io::Error,
}

/// Names place and action of an [`io::Error`].
pub trait During<T> {
    /// Wraps the error of `self` as "`path`: cannot `action`: ...".
    ///
    /// # Errors
    /// The wrapped error, if `self` is one.
    fn during(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError { path: path.to_path_buf(), action, source })
    }
}

/// An open file that is read at explicit offsets, by any number of threads.
pub trait ReadAt: Send + Sync {
    /// Fills `buf` from byte `offset` of the file.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends inside the range; else what the medium says.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Length in bytes now.
    ///
    /// # Errors
    /// What the medium says.
    fn len(&self) -> io::Result<u64>;

    /// Tells the system that a range will be read soon, so that it may begin. Nothing depends on it.
    fn read_ahead(&self, _offset: u64, _len: u64) {}

    /// Whether the file has no bytes now.
    ///
    /// # Errors
    /// As [`ReadAt::len`].
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A new file that is written from its first byte to its last.
pub trait WriteFile: Send {
    /// Appends all of `bytes`. There is no buffer in between: write in large pieces.
    ///
    /// # Errors
    /// What the medium says, a full disk included; how much was written is then unknown.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when all bytes written are on the medium. The file's name needs [`Disk::sync_dir`] besides.
    ///
    /// # Errors
    /// What the medium says; the bytes written are then in doubt and the file must be made anew.
    fn sync(&mut self) -> io::Result<()>;
}

/// What [`Disk::metadata`] and [`Disk::list`] tell of a path. Symbolic links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Whether the path is a directory.
    pub is_dir: bool,
    /// Length in bytes; of no meaning for a directory.
    pub len: u64,
    /// When the content was last changed, in nanoseconds since 1970; negative before.
    pub modified: i64,
}

/// Who owns a file or a directory, and who may do what with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The owner's user number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// The permission bits (`0o7777` at most).
    pub mode: u32,
}

/// Permission bits of the directories that Bitcoin Core creates, whose umask is `0o077`.
pub const CORE_DIR_MODE: u32 = 0o700;

/// A held lock, given back when dropped.
pub trait Lock: Send {}

/// All that the project does with files. Paths are used as they are given. A disk without symbolic links,
/// mounts and owners keeps the default methods for these.
pub trait Disk: Send + Sync {
    /// Opens an existing regular file for reads at offsets. Opening anything else (a pipe, a device, a
    /// socket, a directory) could wait for ever, or has no end: it is refused at once.
    ///
    /// # Errors
    /// `InvalidInput` with [`NotRegular`] inside if it is no regular file; else what the medium says.
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>>;

    /// Creates a file that does not exist yet. It belongs to the owner and the group of its folder, where the
    /// system lets this process give it away, and others may do with it at most what they may do with the
    /// folder.
    ///
    /// # Errors
    /// `AlreadyExists` if there is one; else what the medium says.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;

    /// As [`Disk::create`], for a file that holds a secret: only its owner may read it, where the system can
    /// say so.
    ///
    /// # Errors
    /// As [`Disk::create`].
    fn create_private(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.create(path)
    }

    /// The whole of a small file.
    ///
    /// # Errors
    /// `FileTooLarge` if it has more than `limit` bytes (nothing is read then); else what the medium says.
    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let file = self.open(path)?;
        let len = file.len()?;
        if len > limit {
            let text = format!("it has {len} bytes, more than the {limit} that are read at once");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Names in a directory, without `.` and `..`, sorted.
    ///
    /// # Errors
    /// What the medium says.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Kind and length of a path, `None` if nothing is there.
    ///
    /// # Errors
    /// What the medium says, absence excepted.
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>>;

    /// Whether something is at `path`.
    ///
    /// # Errors
    /// As [`Disk::metadata`].
    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.metadata(path)?.is_some())
    }

    /// Creates a directory and the missing ones above it. Each belongs to the owner and the group of the
    /// folder above, where the system allows it, and is for the owner alone ([`CORE_DIR_MODE`]).
    ///
    /// # Errors
    /// What the medium says.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// The path that `path` stands for once all symbolic links are followed. The last name may be missing,
    /// also where a link leads to it.
    ///
    /// # Errors
    /// What the medium says; `NotFound` if a folder above the last name is missing.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    /// Whether `path` is itself a symbolic link.
    ///
    /// # Errors
    /// What the medium says, absence excepted.
    fn is_link(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }

    /// Whether a file system is mounted at the directory `dir`, which can then be neither renamed nor
    /// exchanged.
    ///
    /// # Errors
    /// What the medium says.
    fn is_mount_point(&self, _dir: &Path) -> io::Result<bool> {
        Ok(false)
    }

    /// Owner, group and mode of what is at `path`.
    ///
    /// # Errors
    /// What the medium says.
    fn ownership(&self, _path: &Path) -> io::Result<Ownership> {
        Ok(Ownership { uid: self.user(), gid: 0, mode: CORE_DIR_MODE })
    }

    /// Gives what is at `path` this owner, group and mode.
    ///
    /// # Errors
    /// `PermissionDenied` if this process may not do so; else what the medium says.
    fn set_ownership(&self, _path: &Path, _ownership: Ownership) -> io::Result<()> {
        Ok(())
    }

    /// The user number that this process acts as: what it creates belongs to that user.
    fn user(&self) -> u32 {
        0
    }

    /// Gives `from` the name `to` in one step; a file at `to` is replaced, a directory only if it is empty.
    ///
    /// # Errors
    /// `CrossesDevices` between file systems; else what the medium says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Swaps what the names `a` and `b` stand for; both must exist, on one file system.
    ///
    /// One step where the system can (Linux `renameat2` with `RENAME_EXCHANGE`, macOS `renameatx_np`). Else
    /// three renames: `a` to `a` + [`PARKED_SUFFIX`], `b` to `a`, the parked one to `b`. After a crash in between,
    /// [`finish_exchange`] puts the names right.
    ///
    /// # Errors
    /// What the medium says; the names are then as before, if they could be put back.
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the medium says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory. Nothing here removes a directory with all that is in it: whoever wants
    /// that names each file, and so never takes what belongs to somebody else.
    ///
    /// # Errors
    /// `DirectoryNotEmpty` if something is in it; else what the medium says.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Returns when the names in `dir` (made, renamed, removed) are on the medium.
    ///
    /// # Errors
    /// What the medium says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Bytes that this user can still write to the file system of `path`.
    ///
    /// # Errors
    /// What the medium says.
    fn free_space(&self, path: &Path) -> io::Result<u64>;

    /// Whether a rename from `a` to `b` stays on one file system; both must exist.
    ///
    /// # Errors
    /// What the medium says.
    fn same_file_system(&self, a: &Path, b: &Path) -> io::Result<bool>;

    /// Takes the exclusive lock of the file `path` without waiting; the file is made if it is missing.
    /// `None` if another process holds it.
    ///
    /// The kind of lock is the one Bitcoin Core takes on `.lock` and LevelDB on `LOCK`: a POSIX record lock
    /// over the whole file. Such a lock belongs to the process and ends when the process closes the file
    /// anywhere, so the file must not be opened otherwise while the lock is held.
    ///
    /// # Errors
    /// What the medium says.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>>;

    /// Takes a shared lock of the existing file `path`, which may be on a read-only file system, without
    /// waiting. It keeps off those who want the exclusive one, not other readers. `None` if another process
    /// holds the exclusive lock.
    ///
    /// As [`Disk::lock`] otherwise; a disk without shared locks takes that one.
    ///
    /// # Errors
    /// What the medium says, `NotFound` for a missing file.
    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.lock(path)
    }
}

/// Puts the names right after a crash inside [`Disk::exchange`]; does nothing if there was none.
///
/// Returns whether something was repaired. If `b` had not yet taken the name `a`, the exchange is undone,
/// else done.
///
/// # Errors
/// What the medium says.
pub fn finish_exchange(disk: &dyn Disk, a: &Path, b: &Path) -> io::Result<bool> {
    let parked = parked(a);
    if !disk.exists(&parked)? {
        return Ok(false);
    }
    let name = if disk.exists(a)? { b } else { a };
    disk.rename(&parked, name)?;
    Ok(true)
}

/// The three renames that stand for an exchange where the file system cannot swap names.
///
/// # Errors
/// As [`Disk::exchange`].
pub fn exchange_in_steps(disk: &dyn Disk, a: &Path, b: &Path) -> io::Result<()> {
    let parked = parked(a);
    disk.rename(a, &parked)?;
    if let Err(error) = disk.rename(b, a) {
        disk.rename(&parked, a)?;
        return Err(error);
    }
    disk.rename(&parked, b)
}

/// The name beside `path` under which it waits.
fn parked(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(PARKED_SUFFIX);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;

//! File access: every read, write, rename and sync of the project goes through [`Disk`].
//!
//! It is a trait, and not `std::fs`, because crash safety can only be tested on a disk that fails on demand:
//! the test kit has a disk in memory and one that fails at the n-th operation, and each writer is tested with
//! both. The trait is object-safe and small; it returns plain [`io::Error`], and callers add path and action
//! with [`During::during`].
//!
//! ```
//! use peregrine_vfs::{Disk, During as _, FileError, RealDisk};
//! use std::path::Path;
//!
//! fn first_bytes(disk: &dyn Disk, path: &Path) -> Result<[u8; 4], FileError> {
//!     let mut bytes = [0; 4];
//!     let file = disk.open(path).during("open for reading", path)?;
//!     file.read_exact_at(&mut bytes, 0).during("read", path)?;
//!     Ok(bytes)
//! }
//!
//! let error = first_bytes(&RealDisk, Path::new("no-such-directory/file")).unwrap_err();
//! assert!(error.to_string().starts_with("no-such-directory/file: cannot open for reading: "));
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod atomic_dir;
mod atomic_file;
mod real;
pub mod unfinished;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fmt, io};

pub use atomic_dir::AtomicDir;
pub use atomic_file::AtomicFile;
pub use real::{Limit, NotRegular, RealDisk, lacks_locks, open_regular, unsynced_dir};
pub use unfinished::UnfinishedError;

/// Suffix of the temporary name that [`Disk::exchange`] gives its first path if the file system cannot swap.
pub const PARKED_SUFFIX: &str = ".exchange";

/// The system's number of the error of a medium, such as a bad sector (`EIO`).
pub const IO_ERROR: i32 = 5;

/// Bytes that [`each_piece`] reads at once.
const PIECE_LEN: u64 = 1 << 20;

/// A file operation that failed, with its path and action.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {action}: {source}", path.display())]
pub struct FileError {
    pub path: PathBuf,
    /// The attempted operation, worded to follow "cannot": `open for reading`.
    pub action: &'static str,
    /// Whether the operation was to create the file or directory, so that a missing directory above it is
    /// the reason for `NotFound`.
    pub is_creation: bool,
    pub source: io::Error,
}

impl FileError {
    /// Whether what was to be read is missing, ends early, or is not a regular file.
    pub fn is_damage(&self) -> bool {
        use io::ErrorKind::{IsADirectory, NotADirectory, NotFound, UnexpectedEof};
        matches!(self.source.kind(), NotFound | NotADirectory | IsADirectory | UnexpectedEof)
            || NotRegular::is_cause_of(&self.source)
    }
}

/// Adds path and action to an [`io::Error`].
pub trait During<T> {
    /// Wraps the error of `self` as "`path`: cannot `action`: ...".
    ///
    /// # Errors
    /// The wrapped error, if `self` is an error.
    fn during(self, action: &'static str, path: &Path) -> Result<T, FileError>;

    /// Wraps the error of an operation that was to create `path`.
    ///
    /// # Errors
    /// The wrapped error, if `self` is an error.
    fn during_creation(self, path: &Path) -> Result<T, FileError>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError { path: path.to_path_buf(), action, is_creation: false, source })
    }

    fn during_creation(self, path: &Path) -> Result<T, FileError> {
        self.during("create", path).map_err(|error| FileError { is_creation: true, ..error })
    }
}

/// An open file that is read at explicit offsets, by any number of threads.
pub trait ReadAt: Send + Sync {
    /// Fills `buf` from byte `offset` of the file.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends inside the range; any other I/O error.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Returns the current length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Advises the system that a range will be read soon, so that it can start reading. Only speed depends on
    /// it.
    fn read_ahead(&self, _offset: u64, _len: u64) {}

    /// Whether the file is empty at present.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// Bytes in memory, read like a file.
impl ReadAt for Vec<u8> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|start| self.get(start..));
        let bytes = from.and_then(|from| from.get(..buf.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// A new file that is written from its first byte to its last.
pub trait WriteFile: Send {
    /// Appends all of `bytes`. Writes are not buffered: write in large pieces.
    ///
    /// # Errors
    /// Any I/O error, including a full disk; how much was written is then unknown.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when all bytes written are on the medium. The file's name also needs [`Disk::sync_dir`].
    ///
    /// # Errors
    /// Any I/O error; the bytes written are then in doubt and the file must be written again.
    fn sync(&mut self) -> io::Result<()>;

    /// Whether `path` still is this file: somebody may have removed it, or put another one there.
    fn is_at(&self, path: &Path) -> io::Result<bool>;
}

/// An open file that is written at explicit offsets, over its content and beyond its end.
pub trait WriteAt: Send {
    /// Writes all of `bytes` from byte `offset`. Writes are not buffered: write in large pieces.
    ///
    /// # Errors
    /// Any I/O error, including a full disk; how much was written is then unknown.
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Asks the operating system to begin to write these bytes to the medium, so that a later sync takes
    /// less time. Does not wait for it; where this is not possible, it does nothing.
    fn begin_to_sync(&self, _offset: u64, _len: u64) {}

    /// Extends the file with zeros if it has fewer than `len` bytes, and reserves space for all of them where
    /// the file system can do so.
    ///
    /// # Errors
    /// Any I/O error, including a full disk; the content is unchanged then.
    fn allocate(&mut self, len: u64) -> io::Result<()>;

    /// Cuts the file, which has at least `len` bytes, to `len` bytes.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Returns when all bytes written are on the medium. A new file's name also needs [`Disk::sync_dir`].
    ///
    /// # Errors
    /// Any I/O error; what was written since the last sync is then in doubt.
    fn sync(&mut self) -> io::Result<()>;
}

/// The result of [`Disk::metadata`] for a path. Symbolic links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub is_dir: bool,
    /// Length in bytes; meaningless for a directory.
    pub len: u64,
    /// When the content was last changed, in nanoseconds since 1970; negative for earlier times.
    pub modified: i64,
}

/// Owner, group and permissions of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    pub uid: u32,
    pub gid: u32,
    /// The permission bits (`0o7777` at most).
    pub mode: u32,
}

/// Permission bits of the directories that Bitcoin Core creates, whose umask is `0o077`.
pub const CORE_DIR_MODE: u32 = 0o700;

/// A held lock, released on drop.
pub trait Lock: Send + Sync {}

/// The process that holds a lock, as far as the system reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockHolder {
    /// Its process id; `None` for a process of another container or machine.
    pub pid: Option<u32>,
    /// The name of its program.
    pub program: Option<String>,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program.as_deref().unwrap_or("another program"))?;
        self.pid.map_or(Ok(()), |pid| write!(f, " (process {pid})"))
    }
}

/// Everything that the project does with files. Paths are used as they are given. A disk without symbolic
/// links, mounts and owners keeps the default methods for these.
pub trait Disk: Send + Sync {
    /// Opens an existing regular file for reads at offsets. Anything else (a pipe, a device, a socket, a
    /// directory) is refused at once: opening it could block forever, or reading it never end.
    ///
    /// # Errors
    /// `InvalidInput` that contains [`NotRegular`] if it is not a regular file; any other I/O error.
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>>;

    /// Creates a file that does not exist yet. It gets the owner and the group of its directory, if the
    /// system lets this process change them, and grants others at most the permissions that they have on the
    /// directory.
    ///
    /// # Errors
    /// `AlreadyExists` if the path exists; any other I/O error.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;

    /// Like [`Disk::create`], for a file that holds a secret: only its owner may read it, where the system
    /// has such permissions.
    fn create_private(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.create(path)
    }

    /// Like [`Disk::create`], for a file that stays locked, as by [`Disk::lock`], until it is closed. Returns
    /// `None` if another process has locked the new file, or removed it, before this one could lock it. On a
    /// file system without locks it is not locked.
    ///
    /// A disk without locks keeps the default.
    fn create_locked(&self, path: &Path) -> io::Result<Option<Box<dyn WriteFile>>> {
        self.create(path).map(Some)
    }

    /// Opens a regular file for writes at offsets, with its content as it is. Creates it, as
    /// [`Disk::create`] does, if it is missing.
    ///
    /// A disk on which no file is written twice keeps the default, which refuses.
    ///
    /// # Errors
    /// `InvalidInput` that contains [`NotRegular`] if it is not a regular file; any other I/O error.
    fn open_for_writing(&self, _path: &Path) -> io::Result<Box<dyn WriteAt>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Reads the whole of a small file.
    ///
    /// # Errors
    /// `FileTooLarge` if it has more than `limit` bytes (nothing is read then); any other I/O error.
    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let file = self.open(path)?;
        let len = file.len()?;
        if len > limit {
            let text = format!("it has {len} bytes, more than the limit of {limit}");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Returns the names in a directory, without `.` and `..`, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Returns kind, length and modification time; `None` if the path does not exist.
    ///
    /// # Errors
    /// Any I/O error except `NotFound`.
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>>;

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.metadata(path)?.is_some())
    }

    /// Creates a directory and its missing parents. Each gets the owner and the group of its parent, where
    /// the system allows it, and grants access to the owner only ([`CORE_DIR_MODE`]). When it returns, the
    /// names of those that it has created are on the medium.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Returns `path` with all symbolic links followed. The last name may be missing, also if a link leads to
    /// it.
    ///
    /// # Errors
    /// Any I/O error; `NotFound` if a directory above the last name is missing.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    /// Whether `path` is itself a symbolic link.
    ///
    /// # Errors
    /// Any I/O error except `NotFound`.
    fn is_link(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }

    /// Whether a file system is mounted at the directory `dir`, which can then be neither renamed nor
    /// exchanged.
    fn is_mount_point(&self, _dir: &Path) -> io::Result<bool> {
        Ok(false)
    }

    /// Returns owner, group and mode of `path`.
    fn ownership(&self, _path: &Path) -> io::Result<Ownership> {
        Ok(Ownership { uid: self.user(), gid: 0, mode: CORE_DIR_MODE })
    }

    /// Returns the id of the user to whom `path` belongs: the link itself, if it is one.
    fn owner_of_link(&self, _path: &Path) -> io::Result<u32> {
        Ok(self.user())
    }

    /// Sets owner, group and mode of `path`.
    ///
    /// # Errors
    /// `PermissionDenied` if this process may not do so; any other I/O error.
    fn set_ownership(&self, _path: &Path, _ownership: Ownership) -> io::Result<()> {
        Ok(())
    }

    /// Returns the effective user id of this process: what it creates belongs to that user.
    fn user(&self) -> u32 {
        0
    }

    /// Renames `from` to `to` atomically; replaces a file at `to`, a directory only if it is empty.
    ///
    /// # Errors
    /// `CrossesDevices` between file systems; any other I/O error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Like [`Disk::rename`], but replaces nothing. Where the system or the file system cannot do that in one
    /// step, [`rename_after_look`] does it in two.
    ///
    /// # Errors
    /// `AlreadyExists` if there is something at `to`; the errors of [`Disk::rename`].
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Swaps what is at `a` and `b`; both must exist, on one file system.
    ///
    /// This is atomic where the system can swap (Linux `renameat2` with `RENAME_EXCHANGE`, macOS
    /// `renameatx_np`). Elsewhere it takes three renames: `a` to `a` + [`PARKED_SUFFIX`], `b` to `a`, the
    /// parked one to `b`. After a crash between them, [`repair_exchange`] repairs the names.
    ///
    /// # Errors
    /// Any I/O error; the names are then as before, unless restoring them failed too.
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()>;

    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory. There is no method that removes a directory with its content: callers
    /// remove files by name, and so never a file of another program.
    ///
    /// # Errors
    /// `DirectoryNotEmpty` if it is not empty; any other I/O error.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Returns when all changes to the names in `dir` (created, renamed, removed) are on the medium, if the
    /// file system can sync directories: if not, there is no error, and [`unsynced_dir`] names the first one.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Returns when all that any process has written to the existing file `path` is on the medium. A file
    /// system that cannot sync is no error. One that is mounted read-only has nothing to sync; if the system
    /// has made it read-only after a fault, that is an error.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// Makes later reads of `path` come from the medium: after a sync that has failed, the system may still
    /// have bytes in memory that the medium lacks. Advice only.
    fn forget_cached(&self, _path: &Path) {}

    /// Whether the file system of `path` is mounted read-only.
    ///
    /// # Errors
    /// Any error of the file system.
    fn is_read_only(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }

    /// Returns how many bytes this user can still write to the file system of `path`.
    fn free_space(&self, path: &Path) -> io::Result<u64>;

    /// Whether files at `a` and `b`, which must exist, take their space from one disk, as far as is known.
    fn share_space(&self, a: &Path, b: &Path) -> io::Result<bool>;

    /// Takes the exclusive lock of the file `path` without waiting; creates the file if it is missing.
    /// Returns `None` if another process or thread holds the lock, or has meanwhile removed or replaced the
    /// file.
    ///
    /// It is the kind of lock that Bitcoin Core takes on `.lock` and LevelDB on `LOCK`: a POSIX record lock
    /// over the whole file. Such a lock ends when the process closes any descriptor of the file, so no other
    /// code may open the file while the lock is held.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>>;

    /// Takes a shared lock of the existing file `path`, which may be on a read-only file system, without
    /// waiting. It excludes exclusive locks, not other shared ones. Returns `None` if another process or
    /// thread holds the exclusive lock.
    ///
    /// Otherwise like [`Disk::lock`], which a disk without shared locks uses instead.
    ///
    /// # Errors
    /// Any I/O error, including `NotFound` for a missing file.
    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.lock(path)
    }

    /// Closes the file `path` if this process holds its lock, which ends. On network shares, a directory with
    /// an open file cannot be renamed (SMB), or not be removed (NFS).
    fn unlock(&self, _path: &Path) {}

    /// Returns which process holds a lock of the existing file `path`, exclusive or shared; `None` if none
    /// does. No lock is taken, so no other process is hindered.
    ///
    /// # Errors
    /// Any I/O error, including `NotFound` for a missing file.
    fn lock_holder(&self, _path: &Path) -> io::Result<Option<LockHolder>> {
        Ok(None)
    }
}

/// Repairs the names after a crash inside [`Disk::exchange`]; does nothing if there was none.
///
/// Returns whether anything was repaired. If `b` had not been renamed to `a` yet, the exchange is undone,
/// otherwise completed.
pub fn repair_exchange(disk: &dyn Disk, a: &Path, b: &Path) -> io::Result<bool> {
    let parked = with_suffix(a, PARKED_SUFFIX);
    if !disk.exists(&parked)? {
        return Ok(false);
    }
    let name = if disk.exists(a)? { b } else { a };
    disk.rename(&parked, name)?;
    Ok(true)
}

/// Renames `from` to `to` if nothing is there, for file systems that cannot do that in one step.
pub fn rename_after_look(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<()> {
    if disk.exists(to)? || disk.is_link(to)? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    disk.rename(from, to)
}

/// Exchanges `a` and `b` by three renames, for file systems that cannot swap names.
pub fn exchange_in_steps(disk: &dyn Disk, a: &Path, b: &Path) -> io::Result<()> {
    let parked = with_suffix(a, PARKED_SUFFIX);
    disk.rename(a, &parked)?;
    if let Err(error) = disk.rename(b, a) {
        disk.rename(&parked, a)?;
        return Err(error);
    }
    disk.rename(&parked, b)
}

/// Returns the directory that `path` is in: `.` for a name without one, whose parent is an empty path.
pub fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Syncs the directory that `path` is in, so that a change of that name is on the medium.
pub fn sync_dir_of(disk: &dyn Disk, path: &Path) -> Result<(), FileError> {
    let dir = dir_of(path);
    disk.sync_dir(dir).during("sync", dir)
}

/// Calls `each` with the first `len` bytes of a file, a piece at a time.
pub fn each_piece(file: &dyn ReadAt, len: u64, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let (mut piece, mut at) = (Vec::new(), 0);
    while at < len {
        piece.resize((len - at).min(PIECE_LEN) as usize, 0);
        file.read_exact_at(&mut piece, at)?;
        each(&piece);
        at += piece.len() as u64;
    }
    Ok(())
}

/// Creates a file with these bytes. When it returns, they are on the medium; the file's name also needs
/// [`Disk::sync_dir`].
pub fn write_synced(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut file = disk.create(path).during_creation(path)?;
    file.write_all(bytes).during("write", path)?;
    file.sync().during("sync", path)
}

/// Whether there is something of that name, be it a link that leads nowhere.
pub fn exists(disk: &dyn Disk, path: &Path) -> Result<bool, FileError> {
    let exists = disk.exists(path).and_then(|exists| Ok(exists || disk.is_link(path)?));
    exists.during("look for", path)
}

/// Removes the file or the link `path`, if there is one. Returns whether there was.
pub fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<bool, FileError> {
    let is_there = exists(disk, path)?;
    if is_there {
        disk.remove_file(path).during("remove", path)?;
    }
    Ok(is_there)
}

/// Renames a complete file to `path`, unless something else has that name by now.
pub fn rename_new(disk: &dyn Disk, temporary: &Path, path: &Path) -> Result<(), FileError> {
    let renamed = disk.rename_new(temporary, path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            io::Error::new(error.kind(), "something else has that name by now; write another file")
        }
        _ => error,
    });
    renamed.during("rename to its final name", temporary)
}

/// Returns a path whose last name ends with `suffix` in addition.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests;

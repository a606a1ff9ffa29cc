//! The one door to files: every read, write, rename and sync of the project goes through [`Disk`].
//!
//! A trait, and not `std::fs`, because crash safety can only be tested on a disk that fails on demand: the
//! test kit has a disk in memory and one that breaks at the n-th operation, and each writer is run against
//! them. The trait is object-safe and small; it returns plain [`io::Error`], and callers add path and
//! action with [`During::during`].

use std::ffi::OsString;
use std::fs::{self, File, FileType, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

/// Suffix of the name under which [`Disk::exchange`] parks its first path when the file system cannot swap.
pub const PARKED: &str = ".exchange";

const NANOSECONDS: i64 = 1_000_000_000;

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

/// Most symbolic links that are followed one after the other, as in Linux.
const MAX_LINKS: usize = 40;

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
    /// three renames: `a` to `a` + [`PARKED`], `b` to `a`, the parked one to `b`. After a crash in between,
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
    name.push(PARKED);
    PathBuf::from(name)
}

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl ReadAt for File {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    #[cfg(target_os = "linux")]
    fn read_ahead(&self, offset: u64, len: u64) {
        // A hint: whether it is followed, or cannot be, makes no difference but in time.
        let _ = rustix::fs::fadvise(self, offset, NonZeroU64::new(len), rustix::fs::Advice::WillNeed);
    }
}

impl WriteFile for File {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::Write::write_all(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Lock for File {}

impl Disk for RealDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        Ok(Box::new(open_regular(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(create_in(path, 0o666)?))
    }

    fn create_private(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(create_in(path, 0o600)?))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let mut names: Vec<_> =
            fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
        names.sort_unstable();
        Ok(names)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        match fs::metadata(path) {
            Ok(found) => {
                let modified = found.mtime().saturating_mul(NANOSECONDS).saturating_add(found.mtime_nsec());
                Ok(Some(Metadata { is_dir: found.is_dir(), len: found.len(), modified }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        if let Some(above) = dir.parent().filter(|above| !above.as_os_str().is_empty()) {
            self.create_dir_all(above)?;
        }
        match fs::DirBuilder::new().mode(CORE_DIR_MODE).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => return Ok(()),
            done => done?,
        }
        give_to_owner_of_folder(&File::open(dir)?, dir)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            match fs::canonicalize(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => return done,
            }
            let above = folder_of(&path);
            match fs::read_link(&path) {
                Ok(target) => path = above.join(target),
                Err(_) => {
                    let name = path.file_name().ok_or(io::ErrorKind::NotFound)?;
                    return Ok(fs::canonicalize(above)?.join(name));
                }
            }
        }
        Err(rustix::io::Errno::LOOP.into())
    }

    fn is_link(&self, path: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(found) => Ok(found.is_symlink()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn is_mount_point(&self, dir: &Path) -> io::Result<bool> {
        let (inside, above) = (fs::metadata(dir)?, fs::metadata(dir.join(".."))?);
        Ok(inside.dev() != above.dev() || is_mount_root(dir))
    }

    fn ownership(&self, path: &Path) -> io::Result<Ownership> {
        let found = fs::metadata(path)?;
        Ok(Ownership { uid: found.uid(), gid: found.gid(), mode: found.mode() & 0o7777 })
    }

    fn set_ownership(&self, path: &Path, ownership: Ownership) -> io::Result<()> {
        let now = self.ownership(path)?;
        if (now.uid, now.gid) != (ownership.uid, ownership.gid) {
            std::os::unix::fs::chown(path, Some(ownership.uid), Some(ownership.gid))?;
        }
        if now.mode != ownership.mode {
            fs::set_permissions(path, fs::Permissions::from_mode(ownership.mode))?;
        }
        Ok(())
    }

    fn user(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        match swap_names(a, b) {
            Err(error) if cannot_swap(&error) => exchange_in_steps(self, a, b),
            done => done,
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let flags = (OFlags::DIRECTORY | OFlags::NONBLOCK).bits() as i32;
        OpenOptions::new().read(true).custom_flags(flags).open(dir)?.sync_all()
    }

    fn free_space(&self, path: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(path)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn same_file_system(&self, a: &Path, b: &Path) -> io::Result<bool> {
        Ok(fs::metadata(a)?.dev() == fs::metadata(b)?.dev())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).truncate(false);
        let file = match open_at_once(path, &mut options) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mode = fs::metadata(folder_of(path))?.mode() & 0o666;
                let file = open_at_once(path, options.create(true).mode(mode))?;
                give_to_owner_of_folder(&file, path)?;
                file
            }
            opened => opened?,
        };
        take_lock(file, FlockOperation::NonBlockingLockExclusive)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        take_lock(open_regular(path)?, FlockOperation::NonBlockingLockShared)
    }
}

/// Opens an existing regular file for reading, at once, as [`Disk::open`] does: for files that are no data of
/// the project, such as logs.
///
/// # Errors
/// As [`Disk::open`].
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_at_once(path, OpenOptions::new().read(true))
}

/// Opens a regular file without waiting: a named pipe would else wait for its other end, and a program that
/// waits in `open` does not hear signals.
fn open_at_once(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Has no effect on regular files.
    let opened = options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
    let file = match opened {
        Ok(file) => file,
        // The system's own words for a socket, and for a pipe or device without another end, say nothing.
        Err(error) => {
            let found = fs::metadata(path).map(|found| found.file_type());
            return Err(found.ok().and_then(not_regular).unwrap_or(error));
        }
    };
    match not_regular(file.metadata()?.file_type()) {
        Some(error) => Err(error),
        None => Ok(file),
    }
}

/// What to do about a limit of this process or user that a file operation has hit; nothing if it was none.
#[must_use]
pub fn limit_remedy(error: &io::Error) -> Option<&'static str> {
    Some(match Errno::from_io_error(error)? {
        Errno::FBIG => "; files may not be so large: raise the limit (ulimit -f unlimited) and run again",
        Errno::MFILE => "; the process may not have so many files open: raise the limit (ulimit -n 1024)",
        Errno::NFILE => "; the system may not have so many files open: end other programs and run again",
        Errno::DQUOT => "; the quota of this user is used up: make room and run again",
        _ => return None,
    })
}

/// The refusal of what is no regular file.
fn not_regular(found: FileType) -> Option<io::Error> {
    let what = match found {
        found if found.is_file() => return None,
        found if found.is_dir() => "a directory",
        found if found.is_fifo() => "a named pipe (FIFO)",
        found if found.is_socket() => "a socket",
        found if found.is_char_device() => "a character device",
        found if found.is_block_device() => "a block device",
        _ => "of an unknown kind",
    };
    Some(io::Error::new(io::ErrorKind::InvalidInput, NotRegular(what)))
}

/// What was to be read is no regular file: the error inside that of [`Disk::open`].
#[derive(Debug, thiserror::Error)]
#[error("it is {0}, not a regular file; put the file there, or name another one")]
pub struct NotRegular(&'static str);

impl NotRegular {
    /// Whether this is why an operation failed.
    #[must_use]
    pub fn is_cause_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// The folder that `path` is in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a file on which others have at most the permissions `most`, and those that they have on the folder.
fn create_in(path: &Path, most: u32) -> io::Result<File> {
    let mode = fs::metadata(folder_of(path))?.mode() & most;
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    give_to_owner_of_folder(&file, path)?;
    Ok(file)
}

/// A root shell must not leave files that the node cannot open: gives what was just created at `path` to the
/// owner and the group of its folder. Where that is not allowed the file stays as the system has made it.
fn give_to_owner_of_folder(file: &File, path: &Path) -> io::Result<()> {
    let (folder, created) = (fs::metadata(folder_of(path))?, file.metadata()?);
    if (folder.uid(), folder.gid()) == (created.uid(), created.gid()) {
        return Ok(());
    }
    match std::os::unix::fs::fchown(file, Some(folder.uid()), Some(folder.gid())) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
        _ => Ok(()),
    }
}

/// Whether `dir` is the root of a mount, a bind mount of the same file system included; false where the
/// system cannot say so.
#[cfg(target_os = "linux")]
fn is_mount_root(dir: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    statx(CWD, dir, AtFlags::empty(), StatxFlags::BASIC_STATS)
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(not(target_os = "linux"))]
fn is_mount_root(_: &Path) -> bool {
    false
}

fn take_lock(file: File, operation: FlockOperation) -> io::Result<Option<Box<dyn Lock>>> {
    match rustix::fs::fcntl_lock(&file, operation) {
        Ok(()) => Ok(Some(Box::new(file))),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "macos"))]
fn swap_names(a: &Path, b: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE)?)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "macos")))]
fn swap_names(_: &Path, _: &Path) -> io::Result<()> {
    Err(Errno::NOSYS.into())
}

/// Whether the error says that this system or file system has no exchange (`EINVAL` from file systems on
/// Linux).
fn cannot_swap(error: &io::Error) -> bool {
    [Errno::NOSYS, Errno::INVAL, Errno::OPNOTSUPP]
        .into_iter()
        .any(|e| error.raw_os_error() == Some(e.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    /// A named pipe that nobody writes to would hold its reader in `open` for ever, deaf to signals.
    #[test]
    fn what_is_no_regular_file_is_refused_at_once_and_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let [pipe, socket, link] = ["pipe", "socket", "link"].map(|name| dir.path().join(name));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        for (path, what) in [
            (&*pipe, "a named pipe (FIFO)"),
            (&*link, "a named pipe (FIFO)"),
            (&*socket, "a socket"),
            (Path::new("/dev/zero"), "a character device"),
            (dir.path(), "a directory"),
        ] {
            for error in [
                RealDisk.open(path).err(),
                RealDisk.read(path, 8).err(),
                RealDisk.lock_shared(path).err(),
                open_regular(path).err(),
            ] {
                let text = error.unwrap().to_string();
                assert!(text.starts_with(&format!("it is {what}, not a regular file; ")), "{text}");
            }
        }
        for path in [&pipe, &socket] {
            let text = RealDisk.lock(path).err().unwrap().to_string();
            assert!(text.contains("not a regular file"), "{text}");
        }
        assert!(RealDisk.sync_dir(&pipe).is_err());
        assert_eq!(RealDisk.open(&dir.path().join("no")).err().unwrap().kind(), io::ErrorKind::NotFound);
    }

    fn write(disk: &dyn Disk, path: &Path, bytes: &[u8]) {
        let mut file = disk.create(path).unwrap();
        file.write_all(bytes).unwrap();
        file.sync().unwrap();
    }

    #[test]
    fn files_are_made_once_read_at_offsets_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, path) = (RealDisk, dir.path().join("a"));
        assert_eq!(disk.metadata(&path).unwrap(), None);
        write(&disk, &path, b"0123456789");
        assert_eq!(disk.create(&path).err().unwrap().kind(), io::ErrorKind::AlreadyExists);

        let file = disk.open(&path).unwrap();
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 6).unwrap();
        assert_eq!((&bytes, file.len().unwrap()), (b"6789", 10));
        assert_eq!(file.read_exact_at(&mut bytes, 7).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);

        assert_eq!(disk.read(&path, 10).unwrap(), b"0123456789");
        assert_eq!(disk.read(&path, 9).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        let found = disk.metadata(&path).unwrap().unwrap();
        assert_eq!((found.is_dir, found.len), (false, 10));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
        assert!((now - 60 * NANOSECONDS..=now).contains(&found.modified), "{found:?} at {now}");
        assert_eq!(disk.list(dir.path()).unwrap(), ["a"]);
        assert!(disk.metadata(dir.path()).unwrap().unwrap().is_dir);
        assert!(disk.free_space(dir.path()).unwrap() > 0);
        assert!(disk.same_file_system(dir.path(), &path).unwrap());
        disk.sync_dir(dir.path()).unwrap();
    }

    #[test]
    fn errors_name_path_and_action() {
        let error = RealDisk
            .open(Path::new("no/blk00000.dat"))
            .during("open for reading", Path::new("no/blk00000.dat"));
        let text = error.err().unwrap().to_string();
        assert!(text.starts_with("no/blk00000.dat: cannot open for reading: No such file"), "{text}");
    }

    #[test]
    fn exchange_swaps_directories_in_one_step_or_three() {
        for exchange in [
            |a: &Path, b: &Path| RealDisk.exchange(a, b),
            |a: &Path, b: &Path| exchange_in_steps(&RealDisk, a, b),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
            for (path, text) in [(&a, b"old"), (&b, b"new")] {
                RealDisk.create_dir_all(path).unwrap();
                write(&RealDisk, &path.join("file"), text);
            }
            exchange(&a, &b).unwrap();
            assert_eq!(RealDisk.read(&a.join("file"), 9).unwrap(), b"new");
            assert_eq!(RealDisk.read(&b.join("file"), 9).unwrap(), b"old");
            assert!(!finish_exchange(&RealDisk, &a, &b).unwrap());
            fs::remove_dir_all(&b).unwrap();
            assert!(exchange(&a, &b).is_err());
            assert_eq!(
                RealDisk.read(&a.join("file"), 9).unwrap(),
                b"new",
                "a failed exchange changes nothing"
            );
        }
    }

    #[test]
    fn an_exchange_cut_short_is_undone_or_done() {
        // (names left by the crash, names after the repair), each name holding the text of the file it was
        // at first.
        for (left, want) in [
            ([("a.exchange", "a"), ("b", "b")], [("a", "a"), ("b", "b")]),
            ([("a.exchange", "a"), ("a", "b")], [("a", "b"), ("b", "a")]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in left {
                write(&RealDisk, &dir.path().join(name), text.as_bytes());
            }
            assert!(finish_exchange(&RealDisk, &dir.path().join("a"), &dir.path().join("b")).unwrap());
            for (name, text) in want {
                assert_eq!(RealDisk.read(&dir.path().join(name), 9).unwrap(), text.as_bytes());
            }
            assert_eq!(RealDisk.list(dir.path()).unwrap(), ["a", "b"]);
        }
    }

    /// A POSIX lock binds processes, not threads, so this test runs itself once more as the other process.
    #[test]
    fn a_lock_is_held_against_other_processes() {
        const OTHER: &str = "PEREGRINE_TEST_LOCK";
        if let Some(path) = std::env::var_os(OTHER) {
            let free = RealDisk.lock(Path::new(&path)).unwrap().is_some();
            std::process::exit(if free { 10 } else { 11 });
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let other = || {
            let name = "fs::tests::a_lock_is_held_against_other_processes";
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", name]).env(OTHER, &path).output().unwrap().status.code()
        };
        let lock = RealDisk.lock(&path).unwrap();
        assert!(lock.is_some());
        assert_eq!(RealDisk.list(dir.path()).unwrap(), ["LOCK"]);
        assert_eq!(other(), Some(11));
        drop(lock);
        assert_eq!(other(), Some(10));
    }
}

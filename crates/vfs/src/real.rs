//! [`Disk`] for the file system of this machine.

use super::{
    CORE_DIR_MODE, Disk, Lock, LockHolder, Metadata, Ownership, ReadAt, WriteAt, WriteFile, dir_of,
    exchange_in_steps, rename_after_look,
};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, FileType, OpenOptions};
use std::io;
use std::num::NonZeroU64;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, Resource, getrlimit};

const NANOSECONDS: i64 = 1_000_000_000;

/// Maximum number of symbolic links followed one after the other, as in Linux.
const MAX_LINKS: usize = 40;

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
        // Advice only: if it fails or is ignored, reading takes longer.
        let _ = rustix::fs::fadvise(self, offset, NonZeroU64::new(len), rustix::fs::Advice::WillNeed);
    }
}

impl WriteAt for File {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, offset)
    }

    #[cfg(target_os = "linux")]
    fn begin_to_sync(&self, offset: u64, len: u64) {
        // Linux begins to write what it is advised to forget, and keeps what is not written yet.
        let _ = rustix::fs::fadvise(self, offset, NonZeroU64::new(len), rustix::fs::Advice::DontNeed);
    }

    fn allocate(&mut self, len: u64) -> io::Result<()> {
        reserve(self, len)?;
        // Some systems reserve space without changing the length.
        if self.metadata()?.len() < len { self.set_len(len) } else { Ok(()) }
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        Ok(Box::new(open_regular(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(NewFile { file: Arc::new(create_with_mode(path, 0o666)?), _lock: None }))
    }

    fn create_private(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(NewFile { file: Arc::new(create_with_mode(path, 0o600)?), _lock: None }))
    }

    fn create_locked(&self, path: &Path) -> io::Result<Option<Box<dyn WriteFile>>> {
        let mut own = own_locks();
        let file = Arc::new(create_with_mode(path, 0o666)?);
        let is_locked = lock_if_possible(lock_at(&file, path)).inspect_err(|_| {
            let _ = fs::remove_file(path);
        })?;
        if !is_locked {
            return Ok(None);
        }
        let lock = hold(&mut own, &file, false)?;
        Ok(Some(Box::new(NewFile { file, _lock: Some(lock) })))
    }

    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn WriteAt>> {
        match open_nonblocking(path, OpenOptions::new().write(true)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Box::new(create_with_mode(path, 0o666)?))
            }
            opened => Ok(Box::new(opened?)),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let mut names: Vec<_> =
            fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
        names.sort_unstable();
        Ok(names)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        Ok(if_there(fs::metadata(path))?.map(|found| {
            let modified = found.mtime().saturating_mul(NANOSECONDS).saturating_add(found.mtime_nsec());
            Metadata { is_dir: found.is_dir(), len: found.len(), modified }
        }))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        match dir_of(dir) {
            // It is the current directory, which this process may not search.
            above if above == dir => fs::metadata(dir).map(drop)?,
            above => self.create_dir_all(above)?,
        }
        match fs::DirBuilder::new().mode(CORE_DIR_MODE).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => return Ok(()),
            done => done.map_err(|error| explain_full(error, dir))?,
        }
        let given = File::open(dir).and_then(|opened| give_to_owner_of_dir(&opened, dir));
        given.and_then(|()| self.sync_dir(dir_of(dir))).inspect_err(|_| {
            let _ = fs::remove_dir(dir);
        })
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            match fs::canonicalize(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => return done,
            }
            let above = dir_of(&path);
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
        Ok(if_there(fs::symlink_metadata(path))?.is_some_and(|found| found.is_symlink()))
    }

    fn is_mount_point(&self, dir: &Path) -> io::Result<bool> {
        // The device tells less: a subvolume of btrfs has one of its own, and can be exchanged.
        match is_mount_root(dir) {
            Some(is_root) => Ok(is_root),
            None => Ok(fs::metadata(dir)?.dev() != fs::metadata(dir.join(".."))?.dev()),
        }
    }

    fn ownership(&self, path: &Path) -> io::Result<Ownership> {
        let found = fs::metadata(path)?;
        Ok(Ownership { uid: found.uid(), gid: found.gid(), mode: found.mode() & 0o7777 })
    }

    fn owner_of_link(&self, path: &Path) -> io::Result<u32> {
        Ok(fs::symlink_metadata(path)?.uid())
    }

    fn set_ownership(&self, path: &Path, ownership: Ownership) -> io::Result<()> {
        let now = self.ownership(path)?;
        if (now.uid, now.gid) != (ownership.uid, ownership.gid) {
            std::os::unix::fs::chown(path, Some(ownership.uid), Some(ownership.gid)).map_err(chown_error)?;
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

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match rename_specially(from, to, false) {
            Err(error) if is_unsupported(&error) => rename_after_look(self, from, to),
            done => done,
        }
    }

    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        match rename_specially(a, b, true) {
            Err(error) if is_unsupported(&error) => exchange_in_steps(self, a, b),
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
        let synced = OpenOptions::new().read(true).custom_flags(flags).open(dir)?.sync_all();
        match synced {
            // Some network file systems cannot sync directories. LevelDB ignores EINVAL too, Core any error.
            Err(error) if is_unsupported(&error) => {
                let _ = UNSYNCED_DIR.set(dir.to_owned());
                Ok(())
            }
            done => done,
        }
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        match open_regular(path)?.sync_all() {
            // It is on a file system to which nothing was written, or which can only be believed.
            Err(error) if is_unsupported(&error) => Ok(()),
            done => done,
        }
    }

    #[cfg(target_os = "linux")]
    fn forget_cached(&self, path: &Path) {
        let open = open_regular(path);
        let _ = open.map(|file| rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed));
    }

    fn free_space(&self, path: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(path)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn is_read_only(&self, path: &Path) -> io::Result<bool> {
        Ok(rustix::fs::statvfs(path)?.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    }

    fn share_space(&self, a: &Path, b: &Path) -> io::Result<bool> {
        let [a_device, b_device] = [fs::metadata(a)?.dev(), fs::metadata(b)?.dev()];
        let can_share = can_share([a_device, b_device]);
        Ok(a_device == b_device || can_share && self.free_space(a)? == self.free_space(b)?)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let mut own = own_locks();
        if own_lock(&mut own, path)?.is_some() {
            return Ok(None);
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).truncate(false);
        let file = match open_nonblocking(path, &mut options) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match create_with_mode(path, 0o666) {
                // Another process was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    open_nonblocking(path, &mut options)?
                }
                created => created?,
            },
            opened => opened?,
        };
        Ok(if lock_at(&file, path)? { Some(hold(&mut own, &Arc::new(file), false)?) } else { None })
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let mut own = own_locks();
        if let Some(lock) = own_lock(&mut own, path)? {
            if !lock.is_shared {
                return Ok(None);
            }
            lock.holders += 1;
            return Ok(Some(Box::new(HeldLock(Arc::downgrade(&lock.file)))));
        }
        let file = open_regular(path)?;
        let is_taken = take_lock(&file, FlockOperation::NonBlockingLockShared)?;
        Ok(if is_taken { Some(hold(&mut own, &Arc::new(file), true)?) } else { None })
    }

    fn unlock(&self, path: &Path) {
        let mut own = own_locks();
        if let Ok(Some(id)) = own_lock(&mut own, path).map(|lock| Some(lock?.id)) {
            own.retain(|lock| lock.id != id);
        }
    }

    fn lock_holder(&self, path: &Path) -> io::Result<Option<LockHolder>> {
        let mut own = own_locks();
        if own_lock(&mut own, path)?.is_some() {
            let pid = std::process::id();
            return Ok(Some(LockHolder { pid: Some(pid), program: program_name(pid) }));
        }
        let wanted = Flock::from(FlockType::WriteLock);
        let Some(held) = rustix::process::fcntl_getlk(open_regular(path)?, &wanted)? else { return Ok(None) };
        let pid = held.pid.map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
        Ok(Some(LockHolder { pid, program: pid.and_then(program_name) }))
    }
}

/// Whether an error means that a file system has no locks.
pub fn lacks_locks(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
        || error.raw_os_error() == Some(rustix::io::Errno::NOLCK.raw_os_error())
}

/// Opens an existing regular file for reading, without blocking, as [`Disk::open`] does: for files that are
/// not data of the project, such as logs.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_nonblocking(path, OpenOptions::new().read(true))
}

/// Opens a regular file without blocking: opening a named pipe would wait for its other end, and a program
/// that blocks in `open` does not react to signals.
fn open_nonblocking(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // The flag has no effect on regular files.
    let opened = options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
    let file = match opened {
        Ok(file) => file,
        // The system's error for a socket, and for a pipe or device without another end, explains nothing.
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

/// A limit of this process, user, system or file system that a file operation has reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Limit {
    /// The size of a file that this process may write.
    FileSize,
    /// The size of a file that the file system can hold.
    LargestFile,
    /// The number of files that this process has open.
    #[default]
    OpenFiles,
    /// The number of files that all processes have open.
    SystemOpenFiles,
    /// The disk quota of this user.
    Quota,
    /// The number of files on a file system.
    Inodes,
}

impl Limit {
    /// Returns the limit that caused an error; `None` for other errors.
    pub fn of(error: &io::Error) -> Option<Self> {
        if error.get_ref().is_some_and(|inner| inner.is::<NoInodes>()) {
            return Some(Self::Inodes);
        }
        Some(match Errno::from_io_error(error)? {
            Errno::FBIG if getrlimit(Resource::Fsize).current.is_none() => Self::LargestFile,
            Errno::FBIG => Self::FileSize,
            Errno::MFILE => Self::OpenFiles,
            Errno::NFILE => Self::SystemOpenFiles,
            Errno::DQUOT => Self::Quota,
            _ => return None,
        })
    }
}

impl fmt::Display for Limit {
    /// Writes which limit it is and what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FileSize => {
                "the limit of file size is reached: raise it (ulimit -f unlimited) and run again"
            }
            Self::LargestFile => {
                "this file system holds no larger files (FAT32 none of 4 GiB): use another one and run again"
            }
            Self::OpenFiles => {
                "the process has reached its limit of open files: raise it (ulimit -n 65536, or \
                 LimitNOFILE=65536 in a systemd unit) and run again"
            }
            Self::SystemOpenFiles => {
                "the system has reached its limit of open files: end other programs and run again"
            }
            Self::Quota => "the disk quota of this user is used up: free space and run again",
            Self::Inodes => "remove files there that are not needed (df -i counts them) and run again",
        })
    }
}

/// The error for anything but a regular file.
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

/// The path is not a regular file: the error inside the one of [`Disk::open`].
#[derive(Debug, thiserror::Error)]
#[error("it is {0}, not a regular file; put the file there, or name another one")]
pub struct NotRegular(&'static str);

impl NotRegular {
    /// Whether an operation failed for this reason.
    pub fn is_cause_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// The file system has space, but cannot hold another file: the error inside the one of an operation that was
/// to create a file or a directory.
#[derive(Debug, thiserror::Error)]
#[error("the file system has as many files as it can hold (no inodes are free)")]
struct NoInodes;

/// Replaces the system's error for a file system that cannot hold another file: it is the same as for one
/// without space. `path` was to be created.
fn explain_full(error: io::Error, path: &Path) -> io::Error {
    // File systems without a fixed number of files report 0 of 0.
    let is_full =
        || rustix::fs::statvfs(dir_of(path)).is_ok_and(|found| found.f_files > 0 && found.f_favail == 0);
    match error.kind() {
        io::ErrorKind::StorageFull if is_full() => io::Error::new(io::ErrorKind::StorageFull, NoInodes),
        _ => error,
    }
}

/// Creates a file with the permissions that are both in `mode_max` and in the mode of its directory, to read
/// and write it. It belongs to the owner of the directory.
fn create_with_mode(path: &Path, mode_max: u32) -> io::Result<File> {
    let dir = fs::metadata(dir_of(path))?;
    let mode = dir.mode() & mode_max;
    if (dir.uid(), dir.gid()) != (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()) {
        match create_for_owner_of_dir(path, mode) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {}
            done => return done,
        }
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(mode);
    let file = options.open(path).map_err(|error| explain_full(error, path))?;
    give_to_owner_of_dir(&file, path).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })?;
    Ok(file)
}

/// Creates a file that has its name only when it belongs to the owner of its directory: if this process,
/// which may be root's, is killed before, it leaves nothing that the node cannot open. Not all file systems
/// can do it.
#[cfg(target_os = "linux")]
fn create_for_owner_of_dir(path: &Path, mode: u32) -> io::Result<File> {
    use rustix::fs::{AtFlags, CWD, linkat};
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(mode).custom_flags(OFlags::TMPFILE.bits() as i32);
    let file = options.open(dir_of(path))?;
    give_to_owner_of_dir(&file, path)?;
    let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, descriptor, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
    Ok(file)
}

#[cfg(not(target_os = "linux"))]
fn create_for_owner_of_dir(_: &Path, _: u32) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Gives what was just created at `path` to the owner and the group of its directory, so that a root shell
/// leaves no files that the node cannot open. If that is not allowed, the file keeps the owner that the
/// system gave it.
fn give_to_owner_of_dir(file: &File, path: &Path) -> io::Result<()> {
    let (dir, created) = (fs::metadata(dir_of(path))?, file.metadata()?);
    if (dir.uid(), dir.gid()) == (created.uid(), created.gid()) {
        return Ok(());
    }
    match std::os::unix::fs::fchown(file, Some(dir.uid()), Some(dir.gid())).map_err(chown_error) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
        _ => Ok(()),
    }
}

/// Turns an error of a change of owner into a lack of permission if the owner is unknown here, as in a user
/// namespace or to an NFS server (both `EINVAL`), or if the file system cannot change owners.
fn chown_error(error: io::Error) -> io::Error {
    if is_unsupported(&error) { io::Error::new(io::ErrorKind::PermissionDenied, error) } else { error }
}

/// Whether one of the devices is no disk's: subvolumes of btrfs, datasets of ZFS and overlays have such
/// devices of their own, and share the free space.
pub(crate) fn can_share(devices: [u64; 2]) -> bool {
    devices.into_iter().any(|device| rustix::fs::major(device as _) == 0) // The type differs between systems.
}

/// Whether `dir` is the root of a mount, including a bind mount of the same file system; `None` where the
/// system does not report it.
#[cfg(target_os = "linux")]
fn is_mount_root(dir: &Path) -> Option<bool> {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let found = statx(CWD, dir, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
    let is_reported = found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
    is_reported.then(|| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(not(target_os = "linux"))]
fn is_mount_root(_: &Path) -> Option<bool> {
    None
}

/// Reserves space for the first `len` bytes of a file, if the file system can do so.
#[cfg(target_os = "linux")]
fn reserve(file: &File, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_: &File, _: u64) -> io::Result<()> {
    Ok(())
}

/// Returns the name of a running program, where the system has it in a file.
fn program_name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// A file that this process has locked.
struct OwnLock {
    /// Its device and inode.
    id: (u64, u64),
    file: Arc<File>,
    is_shared: bool,
    holders: u32,
}

/// The locks of this process. Those of the system belong to the whole process: another thread would get them
/// too, and closing any descriptor of the file ends them. So a file that is listed here is opened only by the
/// job that holds it, and closed when it needs the lock no more.
static OWN_LOCKS: Mutex<Vec<OwnLock>> = Mutex::new(Vec::new());

fn own_locks() -> MutexGuard<'static, Vec<OwnLock>> {
    OWN_LOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock of this process on the file at `path`.
fn own_lock<'o>(own: &'o mut [OwnLock], path: &Path) -> io::Result<Option<&'o mut OwnLock>> {
    let Some(found) = if_there(fs::metadata(path))? else { return Ok(None) };
    Ok(own.iter_mut().find(|lock| lock.id == (found.dev(), found.ino())))
}

/// Lists a file that was locked.
fn hold(own: &mut Vec<OwnLock>, file: &Arc<File>, is_shared: bool) -> io::Result<Box<dyn Lock>> {
    let found = file.metadata()?;
    let id = (found.dev(), found.ino());
    own.push(OwnLock { id, file: Arc::clone(file), is_shared, holders: 1 });
    Ok(Box::new(HeldLock(Arc::downgrade(file))))
}

/// A lock of this process, by its open file: once that is closed, another one can get its device and inode.
struct HeldLock(Weak<File>);

impl Lock for HeldLock {}

impl Drop for HeldLock {
    fn drop(&mut self) {
        let mut own = own_locks();
        for lock in own.iter_mut().filter(|lock| Arc::as_ptr(&lock.file) == self.0.as_ptr()) {
            lock.holders -= 1;
        }
        own.retain(|lock| lock.holders > 0);
    }
}

/// A new file, and its lock while it is open, if it is locked.
pub(crate) struct NewFile {
    // Before the lock, whose end closes it: while it is open, it is listed.
    pub(crate) file: Arc<File>,
    pub(crate) _lock: Option<Box<dyn Lock>>,
}

impl WriteFile for NewFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::Write::write_all(&mut &*self.file, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        is_at(&self.file, path)
    }
}

fn take_lock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match rustix::fs::fcntl_lock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Takes the exclusive lock of a file that was opened at `path`. Returns false if another process holds it,
/// or has removed the file or put another one there before the lock was taken.
pub(crate) fn lock_at(file: &File, path: &Path) -> io::Result<bool> {
    Ok(take_lock(file, FlockOperation::NonBlockingLockExclusive)? && is_at(file, path)?)
}

/// A new file on a file system without locks counts as locked: other jobs can neither create nor lock it.
pub(crate) fn lock_if_possible(locked: io::Result<bool>) -> io::Result<bool> {
    locked.or_else(|error| if lacks_locks(&error) { Ok(true) } else { Err(error) })
}

/// Whether the file at `path` is the one that is open.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    let found = if_there(fs::metadata(path))?;
    Ok(found.is_some_and(|found| (found.dev(), found.ino()) == (open.dev(), open.ino())))
}

/// Returns what was found; `None` if nothing is at the path.
fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first directory that could not be synced, because its file system cannot do that.
static UNSYNCED_DIR: OnceLock<PathBuf> = OnceLock::new();

/// Returns the first directory that this process could not sync, because its file system syncs files only: a
/// power cut can take back the names of files there that are written already.
pub fn unsynced_dir() -> Option<&'static Path> {
    UNSYNCED_DIR.get().map(PathBuf::as_path)
}

/// Swaps two names, or renames `a` to `b` if nothing is there.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "macos"))]
fn rename_specially(a: &Path, b: &Path, swaps: bool) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let flags = if swaps { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
    Ok(renameat_with(CWD, a, CWD, b, flags)?)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "macos")))]
fn rename_specially(_: &Path, _: &Path, _: bool) -> io::Result<()> {
    Err(Errno::NOSYS.into())
}

/// Whether the error means that this system or file system does not have the operation, such as special
/// renames or syncs (`EINVAL` from file systems on Linux).
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    [Errno::NOSYS, Errno::INVAL, Errno::NOTSUP, Errno::OPNOTSUPP]
        .into_iter()
        .any(|e| error.raw_os_error() == Some(e.raw_os_error()))
}

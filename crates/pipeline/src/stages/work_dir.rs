//! The work directory: sorted runs of spilled coins, the checkpoint, and a chainstate that is only temporary.
//!
//! It is created when the first file is written to it, and removed when the job is done.

use api::{error::Error, hex_reversed, machine, options::ChainOptions, remedy::Remedy, subject::Subject};
use chain::{commit::WORK_DIR, threads::lock};
use digest::sha256::sha256;
use disk::{
    checkpoint::{Checkpoint, is_work_file},
    replace::remove_database,
};
use std::{
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
    time::Duration,
};
use vfs::{Disk, During as _, FileError, Lock, dir_of};

/// Name of the temporary chainstate in it.
const CHAINSTATE: &str = "chainstate";

/// Lock file; the process that holds the lock owns the directory.
const LOCK_NAME: &str = "peregrine.lock";

/// Maximum number of attempts to lock a directory that belongs to one job, and the pause after each.
const LOCK_ATTEMPTS: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The bit of the mode of a directory in which all users may create files, but each only removes its own.
const STICKY: u32 = 0o1000;

/// Prefix of the name of a directory that belongs to one job. The process id and a number follow.
const EXCLUSIVE_PREFIX: &str = "peregrine-work-";

/// Prefix of the name of a copy of hints. Digits of the digest of their origin follow.
const HINT_COPY_PREFIX: &str = "hints-";
const HINT_COPY_DIGITS: usize = 16;

/// Returns the name for a copy of the hints that have this name elsewhere.
pub fn hint_copy_name(origin: &str) -> String {
    let digest = hex_reversed(&sha256(origin.as_bytes()));
    format!("{HINT_COPY_PREFIX}{}", digest.get(..HINT_COPY_DIGITS).unwrap_or_default())
}

/// Whether a path has the name of a copy of hints, complete or not.
pub fn is_hint_copy(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let digits = name.strip_suffix(".part").unwrap_or(name).strip_prefix(HINT_COPY_PREFIX);
    digits.is_some_and(|digits| {
        digits.len() == HINT_COPY_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Whether `path` itself, even if it is a link, can be trusted. In a directory where all users may create
/// files, such as `/tmp`, it must belong to this user or to the owner of that directory, who also owns what
/// the superuser creates there. Elsewhere any owner is accepted: a file server may assign another one.
fn is_own(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    let (owner, above) = (disk.owner_of_link(path)?, disk.ownership(dir_of(path))?);
    Ok(above.mode & STICKY == 0 || owner == disk.user() || owner == above.uid)
}

/// The work directory, which need not exist.
pub struct WorkDir<'a> {
    disk: &'a dyn Disk,
    path: PathBuf,
    /// Whether it belongs to this job alone.
    is_exclusive: bool,
    lock: Mutex<Option<Box<dyn Lock>>>,
}

/// Returns the system's directory for temporary files that may be large: that of the environment variable
/// `TMPDIR`, or the one that is kept on a disk, since the usual one may be kept in memory.
pub fn temp_dir(disk: &dyn Disk) -> PathBuf {
    let on_disk = PathBuf::from("/var/tmp");
    let is_there = || disk.metadata(&on_disk).ok().flatten().is_some_and(|found| found.is_dir);
    match std::env::var_os("TMPDIR").is_none() && is_there() {
        true => on_disk,
        false => std::env::temp_dir(),
    }
}

impl<'a> WorkDir<'a> {
    /// The directory at `path`. Does not touch the file system.
    pub fn new(disk: &'a dyn Disk, path: PathBuf) -> Self {
        Self { disk, path, is_exclusive: false, lock: Mutex::new(None) }
    }

    /// The directory at `path`, in which a later job can resume. Removes what killed processes have left
    /// beside it.
    pub fn shared(disk: &'a dyn Disk, path: PathBuf) -> Self {
        Self::remove_left(disk, dir_of(&path));
        Self::new(disk, path)
    }

    /// A directory for this job alone, below `home`. Removes those there that killed processes have left
    /// behind.
    pub fn exclusive(disk: &'a dyn Disk, home: &Path) -> Self {
        Self::remove_left(disk, home);
        // Another user cannot guess it and take the name first, and a process of another container, which can
        // have the same id, gets another one.
        let number = machine::random().map_or(0, u64::from_le_bytes);
        let path = home.join(format!("{EXCLUSIVE_PREFIX}{}-{number}", std::process::id()));
        Self { is_exclusive: true, ..Self::new(disk, path) }
    }

    /// Returns the directories below `home` that belong to one job each. An empty one is that of a job that
    /// was killed before it locked it, unless this process has just created it; if another one has, that one
    /// creates it again ([`WorkDir::take`]).
    pub fn left(disk: &dyn Disk, home: &Path) -> Vec<PathBuf> {
        let names = disk.list(home).unwrap_or_default().into_iter();
        let is_left = |name: &str| {
            let Some(job) = name.strip_prefix(EXCLUSIVE_PREFIX) else { return false };
            let path = home.join(name);
            // In this order: what belongs to this user cannot become a link of another one.
            if !is_own(disk, &path).unwrap_or_default() || disk.is_link(&path).unwrap_or(true) {
                return false;
            }
            let process = job.split_once('-').filter(|(_, number)| number.parse::<u64>().is_ok());
            let process = process.and_then(|(process, _)| process.parse::<u32>().ok());
            disk.exists(&path.join(LOCK_NAME)).unwrap_or_default()
                || process.is_some_and(|process| process != std::process::id())
                    && disk.list(&path).is_ok_and(|names| names.is_empty())
        };
        names.filter(|name| name.to_str().is_some_and(is_left)).map(|name| home.join(name)).collect()
    }

    /// Removes those of them that killed processes have left behind. Returns whether there were any.
    pub fn remove_left(disk: &'a dyn Disk, home: &Path) -> bool {
        // If that fails, or another job works there, nothing depends on it.
        let remove = |path| Self::new(disk, path).remove().is_ok();
        Self::left(disk, home).into_iter().map(remove).fold(false, |any, is_removed| any | is_removed)
    }

    /// The work directory for a job whose result is the file `file`, which no job with another result uses;
    /// without a file, a directory for this job alone.
    pub fn for_file(disk: &'a dyn Disk, options: &ChainOptions, file: Option<&Path>) -> Self {
        let Some(file) = file else {
            return Self::exclusive(disk, &options.work_dir.clone().unwrap_or_else(|| temp_dir(disk)));
        };
        let name = format!("{}.{WORK_DIR}", file.file_name().unwrap_or_default().to_string_lossy());
        let beside = || file.with_file_name(&name);
        Self::shared(disk, options.work_dir.as_ref().map_or_else(beside, |dir| dir.join(&name)))
    }

    pub fn disk(&self) -> &'a dyn Disk {
        self.disk
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a chainstate that is removed with the other files of the job.
    pub fn chainstate(&self) -> PathBuf {
        self.path.join(CHAINSTATE)
    }

    pub fn exists(&self) -> Result<bool, Error> {
        Ok(self.disk.exists(&self.path).during("look for", &self.path)?)
    }

    /// Creates the directory if it is missing, and locks it for this process.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Environment`] if another process works there, or it belongs to another user;
    /// any I/O error.
    pub fn take(&self) -> Result<(), Error> {
        use io::ErrorKind::{AlreadyExists, NotFound};
        let mut held = lock(&self.lock);
        let path = self.path.join(LOCK_NAME);
        let mut attempts = if self.is_exclusive { LOCK_ATTEMPTS } else { 1 };
        while held.is_none() {
            attempts -= 1;
            let found = self.disk.metadata(&self.path).during("look for", &self.path)?;
            let created = if found.is_none() { self.disk.create_dir_all(&self.path) } else { Ok(()) };
            let created = created.during_creation(&self.path);
            let is_own =
                created.and_then(|()| is_own(self.disk, &self.path).during("find the owner of", &self.path));
            if found.is_some_and(|found| !found.is_dir) || matches!(is_own, Ok(false)) {
                let detail = "temporary files should go here, but this is a file, or belongs to another user";
                return Err(Error::environment(detail)
                    .in_file(&self.path, None)
                    .with_remedies([Remedy::MoveAway, Remedy::OtherWorkDir]));
            }
            let locked = is_own.and_then(|_| self.disk.lock(&path).during("lock", &path));
            // Before it is locked, another job that begins can take the directory for that of a killed one.
            // That job removes the lock file under the lock: a directory that was locked here stays.
            let is_in_the_way = |error: &FileError| matches!(error.source.kind(), NotFound | AlreadyExists);
            let is_removed = locked.as_ref().map_or_else(is_in_the_way, Option::is_none);
            if is_removed && attempts > 0 {
                thread::sleep(LOCK_PAUSE);
                continue;
            }
            *held = locked?;
            if held.is_none() {
                return Err(Error::environment("another peregrine process works there")
                    .in_file(path, None)
                    .with_remedies([Remedy::Wait, Remedy::OtherWorkDir]));
            }
        }
        Ok(())
    }

    /// Returns the error of a job, with what helps if its temporary files do not fit.
    pub fn explain(&self, error: Error) -> Error {
        let is_here = error.file.as_ref().is_some_and(|file| file.starts_with(&self.path));
        let is_full = is_here && error.is_about(Subject::DiskSpace);
        error.with_remedies(is_full.then_some(Remedy::OtherWorkDir))
    }

    /// Whether there may be a checkpoint from which another job can resume.
    pub fn may_have_checkpoint(&self) -> bool {
        // If it cannot be read, the next job reports that.
        !matches!(Checkpoint::read(self.disk, &self.path), Ok(None))
    }

    /// Removes the files of a job, and the directory if nothing else is in it.
    pub fn remove(&self) -> Result<(), Error> {
        if !self.exists()? {
            return Ok(());
        }
        self.take()?;
        // The checkpoint goes first: a job could not resume from one whose sorted runs are partly removed.
        Checkpoint::remove(self.disk, &self.path)?;
        for name in self.disk.list(&self.path).during("list", &self.path)? {
            let path = self.path.join(&name);
            if is_hint_copy(&path) || is_work_file(self.disk, &path)? {
                self.disk.remove_file(&path).during("remove", &path)?;
            }
        }
        let chainstate = self.chainstate();
        // No job makes a link: what one leads to stays.
        let is_link = self.disk.is_link(&chainstate).during("look at", &chainstate)?;
        if !is_link && self.disk.exists(&chainstate).during("look for", &chainstate)? {
            remove_database(self.disk, &chainstate)?;
        }
        let lock_path = self.path.join(LOCK_NAME);
        self.disk.remove_file(&lock_path).during("remove", &lock_path)?;
        *lock(&self.lock) = None;
        use io::ErrorKind::{DirectoryNotEmpty, NotADirectory, NotFound, PermissionDenied, ResourceBusy};
        match self.disk.remove_dir(&self.path).map_err(|error| (error.kind(), error)) {
            // Other files are in it, or it is a link, a mount point or in a directory of another user; or
            // another job has removed it, after the lock file.
            Err((DirectoryNotEmpty | NotADirectory | ResourceBusy | PermissionDenied | NotFound, _)) => {
                Ok(())
            }
            done => Ok(done.map_err(|(_, error)| error).during("remove", &self.path)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt as _, chown, symlink},
        sync::atomic::{AtomicBool, Ordering},
        time::Instant,
    };
    use testkit::fault::FaultDisk;
    use vfs::RealDisk;

    /// Makes what a killed job leaves.
    fn leave(path: &Path) {
        fs::create_dir(path).unwrap();
        fs::write(path.join(LOCK_NAME), []).unwrap();
    }

    /// Once, a database was emptied to which a link led, in what any user can put into the directory for
    /// temporary files.
    #[test]
    fn what_links_in_a_work_directory_lead_to_stays() {
        for disk in [&RealDisk as &dyn Disk, &FaultDisk::healthy()] {
            let home = tempfile::tempdir().unwrap();
            let [node, left, link] =
                ["node", "peregrine-work-0-1", "peregrine-work-0-2"].map(|name| home.path().join(name));
            [&node, &left].into_iter().for_each(|dir| leave(dir));
            let database = node.join(CHAINSTATE);
            fs::create_dir(&database).unwrap();
            fs::write(database.join("CURRENT"), "MANIFEST-000002\n").unwrap();
            symlink(&database, left.join(CHAINSTATE)).unwrap();
            symlink(&node, &link).unwrap();
            assert_eq!(WorkDir::left(disk, home.path()), [&*left]);
            WorkDir::exclusive(disk, home.path());
            assert!(!left.join(LOCK_NAME).exists() && left.join(CHAINSTATE).is_symlink());
            assert!(link.is_symlink() && database.join("CURRENT").exists() && node.join(LOCK_NAME).exists());
        }
    }

    /// Once, it was removed, or got the sorted runs.
    #[test]
    fn a_directory_of_another_user_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), Permissions::from_mode(0o1777)).unwrap();
        let planted = home.path().join("peregrine-work-0-1");
        leave(&planted);
        if chown(&planted, Some(4242), None).is_err() {
            return testdata::skip("only root can give a directory to another user");
        }
        assert_eq!(WorkDir::left(&RealDisk, home.path()), [] as [PathBuf; 0]);
        let error = WorkDir::new(&RealDisk, planted.clone()).take().unwrap_err();
        assert!(error.to_string().contains("or belongs to another user"), "{error}");
        // Elsewhere, a server may give what is created to other users.
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(WorkDir::left(&RealDisk, home.path()), [planted]);
        fs::set_permissions(home.path(), Permissions::from_mode(0o1777)).unwrap();
        // What the superuser creates belongs to the owner of the directory above.
        chown(home.path(), Some(4242), None).unwrap();
        assert!(WorkDir::remove_left(&RealDisk, home.path()));
    }

    #[test]
    fn a_job_keeps_its_directory_when_another_begins_in_the_same_process() {
        let home = tempfile::tempdir().unwrap();
        let of_killed_process = WorkDir::new(&RealDisk, home.path().join("peregrine-work-0-7"));
        of_killed_process.take().unwrap();
        fs::create_dir(of_killed_process.chainstate()).unwrap();
        fs::write(of_killed_process.chainstate().join("000005.ldb"), "rows").unwrap();
        drop(of_killed_process.lock.lock().unwrap().take());
        // Another one was killed before it had locked its directory.
        fs::create_dir(home.path().join("peregrine-work-0-8")).unwrap();
        let first = WorkDir::exclusive(&RealDisk, home.path());
        first.take().unwrap();
        let second = WorkDir::exclusive(&RealDisk, home.path());
        second.take().unwrap();
        assert_ne!(first.path(), second.path());
        assert!(first.exists().unwrap() && second.exists().unwrap());
        assert!(!of_killed_process.exists().unwrap() && !home.path().join("peregrine-work-0-8").exists());
        first.remove().unwrap();
        second.remove().unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    /// Of two processes with the same directory for temporary files, one ended with "cannot lock: no such
    /// file", as if something were damaged.
    #[test]
    fn a_job_whose_new_directory_is_taken_for_that_of_a_killed_one_creates_it_again() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("peregrine-work-0-7");
        let work = WorkDir { is_exclusive: true, ..WorkDir::new(&RealDisk, path) };
        let is_over = AtomicBool::new(false);
        let done = thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut removals = 0;
                while removals < LOCK_ATTEMPTS / 4 && !is_over.load(Ordering::Relaxed) {
                    if WorkDir::remove_left(&RealDisk, home.path()) {
                        removals += 1;
                        thread::sleep(3 * LOCK_PAUSE);
                    }
                }
            });
            let mut done = Ok(());
            // On some machines, the other thread never comes in between.
            let begun = Instant::now();
            while done.is_ok() && !other.is_finished() && begun.elapsed() < Duration::from_secs(3) {
                done = work.take().and_then(|()| work.remove());
            }
            is_over.store(true, Ordering::Relaxed);
            done
        });
        done.unwrap();
        assert!(!work.exists().unwrap());
    }
}

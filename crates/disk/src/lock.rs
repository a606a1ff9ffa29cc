//! The locks by which Peregrine and bitcoind never use the same datadir at the same time.
//!
//! Core locks the file `.lock` in the network's folder and, because blocks can be shared, `blocks/.lock`
//! (`init.cpp` `LockDirectories`); LevelDB locks `LOCK` in each open database. All are POSIX record locks
//! (`fcntl` `F_SETLK`) over the whole of an empty file, which is never removed. They belong to the process
//! and end with it, even after kill -9; they also end when the process closes *any* descriptor of the file,
//! so no other code may open these files while a lock is held. `vfs` lets them exclude threads too.

use crate::datadir::Datadir;
use crate::error::DiskError;
use std::path::PathBuf;
use vfs::{Disk, During as _, Lock, LockHolder};

/// Whether the datadir is changed or only read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    /// The datadir is changed. Missing lock files are created, as Core does.
    Change,
    /// The datadir is only read, and can be on a read-only file system. The lock files that exist are locked
    /// shared, which excludes bitcoind but not other readers. Where one is missing (a copy made without it),
    /// a bitcoind that starts later is not excluded: the databases' checksums then reveal the change, and
    /// block files only grow.
    Read,
}

/// The held locks of a datadir, released on drop. That of a database ends when it is replaced: the others
/// exclude bitcoind and Peregrine.
pub struct DatadirLock {
    _locks: Vec<Box<dyn Lock>>,
}

impl DatadirLock {
    /// Takes all locks, or none.
    ///
    /// # Errors
    /// [`DiskError::Locked`] if another process holds one; [`DiskError::File`] if a lock file cannot be
    /// created or opened.
    pub fn take(disk: &dyn Disk, datadir: &Datadir, mode: LockMode) -> Result<Self, DiskError> {
        let mut locks = Vec::new();
        for (dir, name) in lock_files(datadir) {
            let path = dir.join(name);
            let needed = match mode {
                LockMode::Change => &dir,
                LockMode::Read => &path,
            };
            if !disk.exists(needed).during("look at", needed)? {
                continue;
            }
            let lock = match mode {
                LockMode::Change => disk.lock(&path),
                LockMode::Read => disk.lock_shared(&path),
            };
            match lock.during("lock", &path)? {
                Some(lock) => locks.push(lock),
                None => {
                    let holder = disk.lock_holder(&path).ok().flatten();
                    return Err(DiskError::Locked { path, holder });
                }
            }
        }
        Ok(Self { _locks: locks })
    }

    /// Returns which process uses the datadir, and the lock file that it holds, without taking a lock;
    /// `None` if none does, or if lock files are missing.
    ///
    /// # Errors
    /// [`DiskError::File`] if a lock file cannot be opened.
    pub fn holder(disk: &dyn Disk, datadir: &Datadir) -> Result<Option<(LockHolder, PathBuf)>, DiskError> {
        for (dir, name) in lock_files(datadir) {
            let path = dir.join(name);
            if disk.exists(&path).during("look at", &path)?
                && let Some(holder) = disk.lock_holder(&path).during("lock", &path)?
            {
                return Ok(Some((holder, path)));
            }
        }
        Ok(None)
    }
}

/// The directories and names of the lock files of a datadir.
fn lock_files(datadir: &Datadir) -> [(PathBuf, &'static str); 4] {
    [
        (datadir.net_dir().to_owned(), ".lock"),
        (datadir.blocks_dir(), ".lock"),
        (datadir.index_dir(), "LOCK"),
        (datadir.chainstate_dir(), "LOCK"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use vfs::RealDisk;
    use wire::Network;

    const ROOT: &str = "PEREGRINE_TEST_DATADIR";
    const MODE: &str = "PEREGRINE_TEST_LOCK_MODE";

    /// Record locks exclude processes, not threads, so the test starts itself again as the other process.
    fn another_process_gets(root: &Path, mode: &str) -> bool {
        let name = "lock::tests::a_datadir_is_locked_against_other_processes";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let status = command.args(["--exact", name]).env(ROOT, root).env(MODE, mode).output().unwrap().status;
        match status.code() {
            Some(10) => true,
            Some(11) => false,
            code => panic!("the other process ended with {code:?}"),
        }
    }

    #[test]
    fn a_datadir_is_locked_against_other_processes() {
        if let Some(root) = std::env::var_os(ROOT) {
            let datadir = Datadir::at(Path::new(&root), Network::Signet);
            let mode = if std::env::var(MODE).unwrap() == "read" { LockMode::Read } else { LockMode::Change };
            let code = match DatadirLock::take(&RealDisk, &datadir, mode) {
                Ok(_) => 10,
                Err(DiskError::Locked { .. }) => 11,
                Err(error) => panic!("{error}"),
            };
            std::process::exit(code);
        }
        let root = tempfile::tempdir().unwrap();
        let datadir = Datadir::at(root.path(), Network::Signet);
        RealDisk.create_dir_all(&datadir.index_dir()).unwrap();
        drop(DatadirLock::take(&RealDisk, &datadir, LockMode::Read).unwrap());
        assert_eq!(RealDisk.list(datadir.net_dir()).unwrap(), ["blocks"], "a reader creates no files");

        for (mode, reads, changes) in [(LockMode::Change, false, false), (LockMode::Read, true, false)] {
            let lock = DatadirLock::take(&RealDisk, &datadir, mode).unwrap();
            assert_eq!(RealDisk.list(datadir.net_dir()).unwrap(), [".lock", "blocks"]);
            assert_eq!(RealDisk.list(&datadir.index_dir()).unwrap(), ["LOCK"]);
            assert_eq!(another_process_gets(root.path(), "read"), reads);
            assert_eq!(another_process_gets(root.path(), "change"), changes);
            drop(lock);
            assert!(another_process_gets(root.path(), "change"));
        }
    }
}

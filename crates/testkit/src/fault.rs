//! A disk that fails on demand: what every writer is run against, at each operation in turn.
//!
//! [`FaultDisk`] hands everything to the real disk, counts operations, and fails the chosen one: once, as a
//! bad sector does, or from then on, as a dead disk or a killed process looks to the files. A write that
//! fails has written half, a removal that fails has removed a part. Syncs are not passed on, which makes
//! tests fast; they are noted instead, so that [`FaultDisk::lose_unsynced`] can do to file contents what a
//! power cut may do: cut each file to what was synced.

use disk::fs::{Disk, Lock, Metadata, ReadAt, RealDisk, WriteFile, exchange_in_steps};
use std::{
    ffi::OsString,
    fs::OpenOptions,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// How long a fault lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// One operation fails.
    Once,
    /// It and all after it fail.
    Sticky,
}

/// Which operations count, and may fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operations {
    /// All.
    All,
    /// Those that need room or change something: a full or read-only disk refuses only these.
    Changes,
}

/// The real disk, with a fault.
#[derive(Debug)]
pub struct FaultDisk {
    state: Arc<State>,
    /// Whether names are swapped by three renames, as where the file system cannot do it in one step.
    exchange_in_steps: bool,
}

#[derive(Debug)]
struct State {
    /// Number of the operation that fails, counted from 0; `u64::MAX`: none.
    at: u64,
    fault: Fault,
    operations: Operations,
    kind: io::ErrorKind,
    count: AtomicU64,
    healed: AtomicBool,
    /// Files made through this disk, with how many of their bytes are synced.
    synced: Mutex<Vec<(PathBuf, u64)>>,
}

impl FaultDisk {
    /// A disk without a fault, whose syncs cost nothing.
    #[must_use]
    pub fn healthy() -> Self {
        Self::fail_at(u64::MAX, Fault::Once, Operations::All, io::ErrorKind::Other)
    }

    /// A disk on which operation `at` (from 0, of those that count) fails with `kind`.
    #[must_use]
    pub fn fail_at(at: u64, fault: Fault, operations: Operations, kind: io::ErrorKind) -> Self {
        let state = State {
            at,
            fault,
            operations,
            kind,
            count: AtomicU64::new(0),
            healed: AtomicBool::new(false),
            synced: Mutex::new(Vec::new()),
        };
        Self { state: Arc::new(state), exchange_in_steps: false }
    }

    /// The same on a file system that cannot swap names in one step: each of the three renames counts.
    #[must_use]
    pub fn without_exchange(self) -> Self {
        Self { exchange_in_steps: true, ..self }
    }

    /// Ends the fault.
    pub fn heal(&self) {
        self.state.healed.store(true, Ordering::Relaxed);
    }

    /// Whether the fault has struck.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.state.count.load(Ordering::Relaxed) > self.state.at
    }

    /// Does what a power cut may do to file contents: cuts each file made through this disk to its synced
    /// length. (Names that are not synced may be lost as well; that is not shown here.)
    ///
    /// # Errors
    /// The first I/O error.
    pub fn lose_unsynced(&self) -> io::Result<()> {
        for (path, synced) in self.state.synced().iter() {
            match OpenOptions::new().write(true).open(path) {
                Ok(file) if file.metadata()?.len() > *synced => file.set_len(*synced)?,
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl State {
    /// Counts an operation; fails if it is its turn.
    fn step(&self, changes: bool) -> io::Result<()> {
        if self.operations == Operations::Changes && !changes {
            return Ok(());
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let strikes = number == self.at || number > self.at && self.fault == Fault::Sticky;
        if strikes && !self.healed.load(Ordering::Relaxed) {
            return Err(io::Error::new(self.kind, "the test disk's fault"));
        }
        Ok(())
    }

    fn look(&self) -> io::Result<()> {
        self.step(false)
    }

    fn change(&self) -> io::Result<()> {
        self.step(true)
    }

    fn synced(&self) -> MutexGuard<'_, Vec<(PathBuf, u64)>> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows files below `from` to their new place.
    fn moved(&self, moves: &[(&Path, &Path)]) {
        for (path, _) in self.synced().iter_mut() {
            let target = moves.iter().find_map(|(from, to)| Some((to, path.strip_prefix(from).ok()?)));
            if let Some((to, below)) = target {
                // Joining nothing would make a file's name a folder's.
                *path = if below.as_os_str().is_empty() { to.to_path_buf() } else { to.join(below) };
            }
        }
    }
}

struct FaultRead(Box<dyn ReadAt>, Arc<State>);

impl ReadAt for FaultRead {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.1.look()?;
        self.0.read_exact_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.1.look()?;
        self.0.len()
    }
}

struct FaultWrite {
    file: Box<dyn WriteFile>,
    state: Arc<State>,
    /// Its place in [`State::synced`].
    number: usize,
    len: u64,
}

impl WriteFile for FaultWrite {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.state.change() {
            self.file.write_all(&bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        self.len += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.state.change()?;
        if let Some((_, synced)) = self.state.synced().get_mut(self.number) {
            *synced = self.len;
        }
        Ok(())
    }
}

impl Disk for FaultDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        self.state.look()?;
        Ok(Box::new(FaultRead(RealDisk.open(path)?, Arc::clone(&self.state))))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.state.change()?;
        let file = RealDisk.create(path)?;
        let mut synced = self.state.synced();
        synced.push((path.to_owned(), 0));
        let (number, state) = (synced.len() - 1, Arc::clone(&self.state));
        Ok(Box::new(FaultWrite { file, state, number, len: 0 }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.state.look()?;
        RealDisk.list(dir)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        self.state.look()?;
        RealDisk.metadata(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.state.change()?;
        RealDisk.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state.change()?;
        RealDisk.rename(from, to)?;
        self.state.moved(&[(from, to)]);
        Ok(())
    }

    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        if self.exchange_in_steps {
            return exchange_in_steps(self, a, b);
        }
        self.state.change()?;
        RealDisk.exchange(a, b)?;
        self.state.moved(&[(a, b), (b, a)]);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.state.change()?;
        RealDisk.remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        if let Err(error) = self.state.change() {
            if let Some(first) = RealDisk.list(dir)?.first() {
                RealDisk.remove_file(&dir.join(first))?;
            }
            return Err(error);
        }
        RealDisk.remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.state.change()?;
        RealDisk.metadata(dir).map(|_| ())
    }

    fn free_space(&self, path: &Path) -> io::Result<u64> {
        self.state.look()?;
        RealDisk.free_space(path)
    }

    fn same_file_system(&self, a: &Path, b: &Path) -> io::Result<bool> {
        self.state.look()?;
        RealDisk.same_file_system(a, b)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.state.change()?;
        RealDisk.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.state.look()?;
        RealDisk.lock_shared(path)
    }
}

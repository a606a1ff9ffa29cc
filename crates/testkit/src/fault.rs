//! A disk that fails on demand. Every writer is tested against it, with a fault at each operation in turn.
//!
//! [`FaultDisk`] passes operations to the real disk, counts them, and fails the chosen one: once, like a bad
//! sector, or from then on, like a dead disk or a killed process; or it fails after a number of bytes was
//! written, like a full disk. A write that fails has written half of its bytes. Syncs are not passed on,
//! which makes tests fast; they are recorded instead, so that a power cut can be simulated:
//! [`FaultDisk::lose_unsynced`] truncates each file to its synced length, [`FaultDisk::cut_power`] loses or
//! tears any part of what was not synced, including names. [`FaultDisk::with_lie`] makes a disk that returns
//! other bytes than were written, without an error.

mod crash;
mod files;
mod names;

use crate::rng::Rng;
pub use crash::{Crash, Crashes, explore};
use files::{FaultRead, FaultWrite, FaultWriteAt};
use names::{Names, follow};
use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use vfs::{
    Disk, Lock, Metadata, Ownership, ReadAt, RealDisk, WriteAt, WriteFile, dir_of, exchange_in_steps,
    rename_after_look,
};

/// How long an injected fault lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InjectedFault {
    /// One operation fails.
    Once,
    /// That operation and all later ones fail.
    Sticky,
}

/// Which operations are counted, and may fail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub enum Operations {
    All,
    /// Those that need free space or change something: a full or read-only disk refuses only these.
    Changes,
    /// Those of the latter that create a file to write it.
    NewFiles,
}

/// Called before each change, and at the end.
type Watcher = Box<dyn FnMut(&State, bool) + Send>;

/// Turns the bytes of a file that were written into those that are read.
pub type Lie = fn(&mut Vec<u8>);

/// The real disk, with an injected fault.
pub struct FaultDisk {
    state: Arc<State>,
    /// Whether names are swapped with three renames, as on file systems that cannot do it in one step.
    exchange_in_steps: bool,
    /// A path that is reported as a mount point.
    mounted: Option<PathBuf>,
    /// A directory in a lower layer of an overlay file system, which cannot be renamed.
    lower: Option<PathBuf>,
    /// A file that the process may not open.
    denied: Option<PathBuf>,
    /// A file, and a byte of it that cannot be read.
    unreadable: Option<(PathBuf, u64)>,
    /// The end of a path, and what is returned of such a file if it was written through this disk.
    lie: Option<(&'static str, Lie)>,
    /// The user that is reported as the process's.
    user: Option<u32>,
    /// A group that the process is not in.
    foreign_group: Option<u32>,
    /// A directory that is reported as a file system of its own, and the bytes that are free there.
    free: Option<(PathBuf, u64)>,
    /// A directory whose file system is reported as mounted read-only.
    frozen: Option<PathBuf>,
}

struct State {
    /// Number of the operation that fails, counted from 0; `u64::MAX` for none.
    at: u64,
    fault: InjectedFault,
    /// Another operation that fails.
    second: Option<(u64, InjectedFault)>,
    operations: Operations,
    kind: io::ErrorKind,
    count: AtomicU64,
    healed: AtomicBool,
    /// Free space in bytes.
    free: AtomicU64,
    /// If present, it is set at operation `at`, which then does not fail.
    signal: Option<Arc<AtomicBool>>,
    /// Files written through this disk, with the number of their first bytes that a power cut leaves as they
    /// are. The path is empty if the file was removed.
    synced: Mutex<Vec<(PathBuf, u64)>>,
    /// The names that a power cut may take back; `None` if it keeps all names.
    names: Option<Mutex<Names>>,
    /// A file, and the number of its first bytes that the medium has: the others are only in memory.
    in_memory: Mutex<Option<(PathBuf, u64)>>,
    /// What sees the disk between two changes. Held during a change, so that each is whole.
    watcher: Mutex<Option<Watcher>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of bytes that are lost or kept together.
const SECTOR: u64 = 512;

impl FaultDisk {
    /// A disk without a fault, whose syncs cost nothing.
    pub fn healthy() -> Self {
        Self::fail_at(u64::MAX, InjectedFault::Once, Operations::All, io::ErrorKind::Other)
    }

    /// The same, which counts the operations that change something.
    pub fn counting_changes() -> Self {
        Self::failing_at(u64::MAX)
    }

    /// A disk on which operation number `at`, from 0 and among those counted, fails with `kind`.
    pub fn fail_at(at: u64, fault: InjectedFault, operations: Operations, kind: io::ErrorKind) -> Self {
        let state = State {
            at,
            fault,
            second: None,
            operations,
            kind,
            count: AtomicU64::new(0),
            healed: AtomicBool::new(false),
            free: AtomicU64::new(u64::MAX),
            signal: None,
            synced: Mutex::new(Vec::new()),
            names: None,
            in_memory: Mutex::default(),
            watcher: Mutex::default(),
        };
        Self {
            state: Arc::new(state),
            exchange_in_steps: false,
            mounted: None,
            lower: None,
            denied: None,
            unreadable: None,
            lie: None,
            user: None,
            foreign_group: None,
            free: None,
            frozen: None,
        }
    }

    /// A disk on which change number `at` fails, once.
    pub fn failing_at(at: u64) -> Self {
        Self::fail_at(at, InjectedFault::Once, Operations::Changes, io::ErrorKind::Other)
    }

    /// A disk on which change number `at` and all later ones fail, as for a process that is killed there.
    pub fn killed_at(at: u64) -> Self {
        Self::fail_at(at, InjectedFault::Sticky, Operations::Changes, io::ErrorKind::Other)
    }

    /// A disk with `bytes` bytes of free space. A write beyond it, and all later ones, fail with
    /// `StorageFull`. Removals do not free any space.
    pub fn full_after(bytes: u64) -> Self {
        let disk = Self::healthy();
        disk.state.free.store(bytes, Ordering::Relaxed);
        disk
    }

    /// A disk without a fault that sets `signal` at operation number `at` among those that change something:
    /// an event at the same moment on every machine.
    pub fn signal_at(at: u64, signal: &Arc<AtomicBool>) -> Self {
        Self::signal_at_operation(at, Operations::Changes, signal)
    }

    /// The same, where the signal is [`FaultDisk::interrupt`].
    pub fn interrupting_at(at: u64) -> Self {
        Self::signal_at(at, &Arc::default())
    }

    /// The same when file number `at`, from 0, is created.
    pub fn interrupting_at_file(at: u64) -> Self {
        Self::signal_at_operation(at, Operations::NewFiles, &Arc::default())
    }

    /// Returns what interrupts a run on this disk: the signal, or what is never set.
    pub fn interrupt(&self) -> &AtomicBool {
        static NEVER: AtomicBool = AtomicBool::new(false);
        self.state.signal.as_deref().unwrap_or(&NEVER)
    }

    fn signal_at_operation(at: u64, operations: Operations, signal: &Arc<AtomicBool>) -> Self {
        let mut disk = Self::fail_at(at, InjectedFault::Once, operations, io::ErrorKind::Other);
        Arc::get_mut(&mut disk.state).expect("it is new").signal = Some(Arc::clone(signal));
        disk
    }

    /// Makes changes of names reversible by [`FaultDisk::cut_power`]. Removed files are kept in a folder
    /// below `place`, which must be on the same file system.
    ///
    /// # Panics
    /// If the disk is in use, or the folder cannot be created.
    pub fn with_names_at_risk(mut self, place: &Path) -> Self {
        let names = Names::new(place).expect("a folder can be made");
        Arc::get_mut(&mut self.state).expect("it is not in use").names = Some(Mutex::new(names));
        self
    }

    /// Returns the number of counted operations so far.
    pub fn count(&self) -> u64 {
        self.state.count.load(Ordering::Relaxed)
    }

    /// Makes the file system unable to swap names in one step: each of the three renames counts.
    pub fn without_exchange(self) -> Self {
        Self { exchange_in_steps: true, ..self }
    }

    pub fn with_mount(self, path: &Path) -> Self {
        Self { mounted: Some(path.to_owned()), ..self }
    }

    /// Moves the directory at `path` to a lower layer of an overlay file system.
    pub fn with_lower(self, path: &Path) -> Self {
        Self { lower: Some(path.to_owned()), ..self }
    }

    /// Denies the process permission to open the file at `path`.
    pub fn with_denied(self, path: &Path) -> Self {
        Self { denied: Some(path.to_owned()), ..self }
    }

    /// Fails to read one byte of the file at `path`, as of a bad sector.
    pub fn with_unreadable(self, path: &Path, at: u64) -> Self {
        Self { unreadable: Some((path.to_owned(), at)), ..self }
    }

    /// Lies about files whose path ends in `name` and that were written through this disk.
    pub fn with_lie(self, name: &'static str, lie: Lie) -> Self {
        Self { lie: Some((name, lie)), ..self }
    }

    /// Leaves all but the first `len` bytes of the file at `path` in memory, as after a sync that has failed:
    /// they are lost when the file is forgotten there.
    pub fn with_end_in_memory(self, path: &Path, len: u64) -> Self {
        *locked(&self.state.in_memory) = Some((path.to_owned(), len));
        self
    }

    pub fn with_user(self, user: u32) -> Self {
        Self { user: Some(user), ..self }
    }

    /// Calls `watch` before each change while `path` exists, as another program that acts meanwhile. It must
    /// not use this disk.
    pub fn watched(self, path: PathBuf, mut watch: impl FnMut() + Send + 'static) -> Self {
        *locked(&self.state.watcher) = Some(Box::new(move |_: &State, _: bool| {
            if path.exists() {
                watch();
            }
        }));
        self
    }

    /// Gives no rights to `group`, as a process that is not in it.
    pub fn with_foreign_group(self, group: u32) -> Self {
        Self { foreign_group: Some(group), ..self }
    }

    /// Reports the directory `path` as a file system of its own with so many free bytes. Writes succeed.
    pub fn with_free_space(self, path: &Path, bytes: u64) -> Self {
        Self { free: Some((path.to_owned(), bytes)), ..self }
    }

    pub fn with_read_only(self, path: &Path) -> Self {
        Self { frozen: Some(path.to_owned()), ..self }
    }

    /// Returns the free bytes of the directory that is reported as a file system, if a path is in it.
    fn free_at(&self, path: &Path) -> io::Result<Option<u64>> {
        let Some((dir, bytes)) = &self.free else { return Ok(None) };
        Ok(RealDisk.resolve(path)?.starts_with(RealDisk.resolve(dir)?).then_some(*bytes))
    }

    /// Lets another operation fail too.
    ///
    /// # Panics
    /// If the disk is in use.
    pub fn failing_again(mut self, at: u64, fault: InjectedFault) -> Self {
        Arc::get_mut(&mut self.state).expect("it is not in use").second = Some((at, fault));
        self
    }

    /// Ends the fault.
    pub fn heal(&self) {
        self.state.healed.store(true, Ordering::Relaxed);
    }

    pub fn has_failed(&self) -> bool {
        self.state.count.load(Ordering::Relaxed) > self.state.at
    }

    /// Simulates the mildest power cut: truncates each file written through this disk to its synced length.
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

    /// Simulates a power cut, depending on `seed`: in each file written through this disk, the unsynced bytes
    /// are lost, kept, truncated, or zeroed sector by sector. With [`FaultDisk::with_names_at_risk`], the
    /// last changes of each directory since its sync are taken back.
    pub fn cut_power(&self, seed: u64) -> io::Result<()> {
        let mut rng = Rng::new(seed, "power cut");
        for (path, synced) in self.state.synced().drain(..) {
            match OpenOptions::new().write(true).open(path) {
                Ok(file) => tear(&file, synced, &mut rng)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        self.state.names().map_or(Ok(()), |mut names| names.lose(&mut rng))
    }
}

/// Simulates a power cut on a file with `synced` synced bytes.
fn tear(file: &File, synced: u64, rng: &mut Rng) -> io::Result<()> {
    let len = file.metadata()?.len();
    let unsynced = len.saturating_sub(synced);
    match rng.below(4) {
        0 => file.set_len(len - unsynced),
        1 => Ok(()),
        2 => file.set_len(len - rng.below(unsynced + 1)),
        _ => {
            let zeros = [0; SECTOR as usize];
            let mut at = len - unsynced;
            // The first sector may begin with synced bytes, which stay.
            while at < len {
                let until = len.min((at + 1).next_multiple_of(SECTOR));
                if rng.chance(1, 2) {
                    file.write_all_at(zeros.get(..(until - at) as usize).unwrap_or(&zeros), at)?;
                }
                at = until;
            }
            Ok(())
        }
    }
}

impl State {
    /// Counts an operation, and fails if it is the chosen one.
    fn step(&self, kind: Operations) -> io::Result<()> {
        if kind < self.operations {
            return Ok(());
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let strikes_at = |(at, fault)| number == at || number > at && fault == InjectedFault::Sticky;
        let strikes = strikes_at((self.at, self.fault)) || self.second.is_some_and(strikes_at);
        if let Some(signal) = &self.signal {
            signal.fetch_or(strikes, Ordering::Relaxed);
            return Ok(());
        }
        if strikes && !self.healed.load(Ordering::Relaxed) {
            return Err(io::Error::new(self.kind, "the test disk's fault"));
        }
        Ok(())
    }

    fn read(&self) -> io::Result<()> {
        self.step(Operations::All)
    }

    /// Begins a change, which lasts as long as the guard.
    fn change(&self) -> io::Result<MutexGuard<'_, Option<Watcher>>> {
        self.change_of(Operations::Changes)
    }

    fn change_of(&self, kind: Operations) -> io::Result<MutexGuard<'_, Option<Watcher>>> {
        let mut watcher = locked(&self.watcher);
        self.step(kind)?;
        if let Some(watch) = watcher.as_mut() {
            watch(self, false);
        }
        Ok(watcher)
    }

    fn synced(&self) -> MutexGuard<'_, Vec<(PathBuf, u64)>> {
        locked(&self.synced)
    }

    fn names(&self) -> Option<MutexGuard<'_, Names>> {
        self.names.as_ref().map(locked)
    }

    /// A disk for a copy of what this one has written: each folder of `moves` is copied to the second one.
    fn moved_to(&self, moves: &[(&Path, &Path)]) -> FaultDisk {
        let mut synced = self.synced().clone();
        synced.iter_mut().for_each(|(path, _)| follow(path, moves));
        let names = self.names().map(|names| Mutex::new(names.moved_to(moves)));
        let mut disk = FaultDisk::healthy();
        let state = Arc::get_mut(&mut disk.state).expect("it is new");
        (state.synced, state.names) = (Mutex::new(synced), names);
        disk
    }

    /// Reserves free space for `bytes` bytes.
    fn take_space(&self, bytes: u64) -> io::Result<()> {
        let take = |free: u64| Some(free.saturating_sub(bytes));
        let free = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or(0);
        if free < bytes && !self.healed.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the test disk is full"));
        }
        Ok(())
    }

    /// Updates the paths of files that were moved.
    fn moved(&self, moves: &[(&Path, &Path)]) {
        self.synced().iter_mut().for_each(|(path, _)| follow(path, moves));
    }

    /// Removes a file or a directory, or keeps it aside if a power cut may restore it.
    fn remove(&self, path: &Path, really: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        let kept = match self.names() {
            Some(mut names) => Some(names.remove(path)?),
            None => really(path).map(|()| None)?,
        };
        self.removed(path, kept.as_deref());
        Ok(())
    }

    /// Records that everything at or below `path` was removed, or moved aside to `kept`.
    fn removed(&self, path: &Path, kept: Option<&Path>) {
        // Comparing paths by component is slow, and long tests have many files that are gone.
        let at_or_below = |file: &Path| {
            file.as_os_str().as_encoded_bytes().starts_with(path.as_os_str().as_encoded_bytes())
                && file.starts_with(path)
        };
        for (file, _) in self.synced().iter_mut().filter(|(file, _)| at_or_below(file)) {
            match kept {
                Some(kept) => follow(file, &[(path, kept)]),
                None => file.clear(),
            }
        }
    }
}

impl FaultDisk {
    /// Refuses to rename a database that is locked, as a network share does, and the directory of a lower
    /// layer.
    fn refuse_rename(&self, path: &Path) -> io::Result<()> {
        if self.lower.as_deref() == Some(path) {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        match RealDisk.lock_holder(&path.join("LOCK")) {
            Ok(Some(_)) => Err(io::Error::new(io::ErrorKind::PermissionDenied, "a file in it is open")),
            _ => Ok(()),
        }
    }

    /// Records a file that was created.
    fn created(&self, path: &Path, file: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        if let Some(mut names) = self.state.names() {
            names.made(path);
        }
        let mut synced = self.state.synced();
        synced.push((path.to_owned(), 0));
        let (number, state) = (synced.len() - 1, Arc::clone(&self.state));
        Box::new(FaultWrite { file, state, number, len: 0 })
    }
}

impl Disk for FaultDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        self.state.read()?;
        if self.denied.as_deref() == Some(path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let unreadable = self.unreadable.as_ref().filter(|(bad, _)| bad == path).map(|(_, at)| *at);
        let mut file = RealDisk.open(path)?;
        if let Some((name, lie)) = self.lie
            && path.ends_with(name)
            && self.state.synced().iter().any(|(written, _)| written == path)
        {
            let mut bytes = fs::read(path)?;
            lie(&mut bytes);
            file = Box::new(bytes);
        }
        Ok(Box::new(FaultRead { file, state: Arc::clone(&self.state), unreadable }))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let _change = self.state.change_of(Operations::NewFiles)?;
        Ok(self.created(path, RealDisk.create(path)?))
    }

    fn create_locked(&self, path: &Path) -> io::Result<Option<Box<dyn WriteFile>>> {
        let _change = self.state.change_of(Operations::NewFiles)?;
        Ok(RealDisk.create_locked(path)?.map(|file| self.created(path, file)))
    }

    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn WriteAt>> {
        let _change = self.state.change()?;
        let found = RealDisk.metadata(path)?;
        let file = RealDisk.open_for_writing(path)?;
        if let (None, Some(mut names)) = (found, self.state.names()) {
            names.made(path);
        }
        let len = found.map_or(0, |found| found.len);
        let mut synced = self.state.synced();
        let known = synced.iter().position(|(file, _)| file == path);
        let number = known.unwrap_or_else(|| {
            synced.push((path.to_owned(), len));
            synced.len() - 1
        });
        Ok(Box::new(FaultWriteAt { file, state: Arc::clone(&self.state), number, len }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.state.read()?;
        RealDisk.list(dir)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        self.state.read()?;
        RealDisk.metadata(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let _change = self.state.change()?;
        let missing: Vec<&Path> = dir.ancestors().take_while(|above| !above.exists()).collect();
        RealDisk.create_dir_all(dir)?;
        if let Some(mut names) = self.state.names() {
            missing.into_iter().for_each(|made| names.synced(dir_of(made)));
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.refuse_rename(from)?;
        let is_taken = || from.is_dir() && RealDisk.list(to).is_ok_and(|names| !names.is_empty());
        if fs::symlink_metadata(from).is_err() || is_taken() {
            // This fails for certain, and changes nothing.
            return RealDisk.rename(from, to);
        }
        let _change = self.state.change()?;
        let replaced = match self.state.names() {
            Some(mut names) => names.rename(from, to)?,
            None => RealDisk.rename(from, to).map(|()| None)?,
        };
        self.state.removed(to, replaced.as_deref());
        self.state.moved(&[(from, to)]);
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        rename_after_look(self, from, to)
    }

    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        if self.exchange_in_steps {
            return exchange_in_steps(self, a, b);
        }
        [a, b].into_iter().try_for_each(|path| self.refuse_rename(path))?;
        let _change = self.state.change()?;
        match self.state.names() {
            Some(mut names) => names.exchange(a, b)?,
            None => RealDisk.exchange(a, b)?,
        }
        self.state.moved(&[(a, b), (b, a)]);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let _change = self.state.change()?;
        self.state.remove(path, |path| RealDisk.remove_file(path))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let _change = self.state.change()?;
        if !RealDisk.list(dir)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.state.remove(dir, |dir| RealDisk.remove_dir(dir))
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.state.read()?;
        RealDisk.resolve(path)
    }

    fn is_link(&self, path: &Path) -> io::Result<bool> {
        self.state.read()?;
        RealDisk.is_link(path)
    }

    fn is_mount_point(&self, dir: &Path) -> io::Result<bool> {
        self.state.read()?;
        if self.mounted.as_ref().is_some_and(|path| RealDisk.resolve(path).is_ok_and(|path| path == dir)) {
            return Ok(true);
        }
        RealDisk.is_mount_point(dir)
    }

    fn ownership(&self, path: &Path) -> io::Result<Ownership> {
        self.state.read()?;
        RealDisk.ownership(path)
    }

    fn owner_of_link(&self, path: &Path) -> io::Result<u32> {
        self.state.read()?;
        RealDisk.owner_of_link(path)
    }

    fn set_ownership(&self, path: &Path, ownership: Ownership) -> io::Result<()> {
        let _change = self.state.change()?;
        if self.foreign_group == Some(ownership.gid) && ownership.mode & 0o070 != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        RealDisk.set_ownership(path, ownership)
    }

    fn user(&self) -> u32 {
        self.user.unwrap_or_else(|| RealDisk.user())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let _change = self.state.change()?;
        if let Some(mut names) = self.state.names() {
            names.synced(dir);
        }
        RealDisk.metadata(dir).map(|_| ())
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let _change = self.state.change()?;
        let len = RealDisk.open(path)?.len()?;
        self.state.synced().iter_mut().filter(|(file, _)| file == path).for_each(|(_, synced)| *synced = len);
        Ok(())
    }

    fn forget_cached(&self, path: &Path) {
        if let Some((_, len)) = locked(&self.state.in_memory).take_if(|file| file.0 == path) {
            crate::corrupt::truncate(path, len).expect("the file can be cut");
        }
    }

    fn is_read_only(&self, path: &Path) -> io::Result<bool> {
        Ok(self.frozen.as_deref() == Some(path))
    }

    fn free_space(&self, path: &Path) -> io::Result<u64> {
        self.state.read()?;
        self.free_at(path)?.map_or_else(|| RealDisk.free_space(path), Ok)
    }

    fn share_space(&self, a: &Path, b: &Path) -> io::Result<bool> {
        self.state.read()?;
        Ok(self.free_at(a)? == self.free_at(b)? && RealDisk.share_space(a, b)?)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let _change = self.state.change()?;
        RealDisk.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.state.read()?;
        RealDisk.lock_shared(path)
    }

    fn unlock(&self, path: &Path) {
        RealDisk.unlock(path);
    }
}

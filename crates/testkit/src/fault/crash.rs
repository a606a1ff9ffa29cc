//! All states in which a crash can leave a folder during one run.
//!
//! The run is made once. Before each of its changes the folder is copied: as a killed process leaves it, as
//! the mildest power cut does, and as others do. Equal states are checked once.

use super::{FaultDisk, State, locked};
use crate::prelude::*;
use std::{
    collections::HashSet,
    fs::File,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Sender},
    },
};

/// Number of threads that check states.
const CHECKERS: usize = 4;

/// A state in which a crash has left a folder.
pub struct Crash {
    /// A copy of the folder.
    pub dir: TempDir,
    /// How it crashed, for messages.
    pub what: String,
    /// Number of changes before.
    pub changes: u64,
    /// Whether the run had succeeded before.
    pub is_done: bool,
}

/// Which crashes are tried.
#[derive(Clone, Copy, Debug)]
pub struct Crashes {
    /// Distance between the changes before which it crashes.
    pub stride: u64,
    /// Number of power cuts, each of which tears and loses anything that is not synced, before each of them.
    pub cuts: u64,
    /// The file system cannot exchange names in one step.
    pub in_steps: bool,
    /// The power fails again in the run that follows.
    pub twice: bool,
}

impl Default for Crashes {
    fn default() -> Self {
        Self { stride: 1, cuts: 1, in_steps: false, twice: true }
    }
}

/// Runs `run` on a disk without faults, and calls `check` for each state in which a crash can leave `folder`,
/// on several threads. Returns the number of different states.
///
/// # Panics
/// If a check does, or if a copy fails.
pub fn explore(
    folder: &Path,
    crashes: Crashes,
    run: impl FnOnce(&FaultDisk),
    check: impl Fn(Crash) + Sync,
) -> u64 {
    let aside = TempDir::new_in(folder.parent().unwrap_or(folder)).expect("a folder can be made");
    let (found_in, found) = mpsc::channel();
    let (found, states) = (Mutex::new(found), AtomicU64::new(0));
    thread::scope(|scope| {
        // The run cannot wait for a check, which may need what it has locked.
        for _ in 0..CHECKERS {
            scope.spawn(|| {
                loop {
                    let Ok(crash) = locked(&found).recv() else { break };
                    check(crash);
                    states.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut disk = FaultDisk::counting_changes().with_names_at_risk(aside.path());
        disk.exchange_in_steps = crashes.in_steps;
        let (folder, aside) = (folder.to_owned(), aside.path().to_owned());
        let mut copier = Copier { folder, aside, crashes, seen: HashSet::new(), found_in };
        let watch =
            move |state: &State, is_done: bool| copier.watch(state, is_done).expect("a copy can be made");
        *locked(&disk.state.watcher) = Some(Box::new(watch));
        run(&disk);
        if let Some(mut watch) = locked(&disk.state.watcher).take() {
            watch(&disk.state, true);
        }
    });
    states.into_inner()
}

/// Copies a folder again and again, with what a power cut may bring back to it.
struct Copier {
    folder: PathBuf,
    aside: PathBuf,
    crashes: Crashes,
    seen: HashSet<u64>,
    found_in: Sender<Crash>,
}

impl Copier {
    /// Sends all states in which a crash can leave the folder now, unless they were sent before.
    fn watch(&mut self, state: &State, is_done: bool) -> io::Result<()> {
        let number = state.count.load(Ordering::Relaxed);
        if !is_done && !number.is_multiple_of(self.crashes.stride) {
            return Ok(());
        }
        let cuts = (0..self.crashes.cuts).map(|cut| Some(Some(number * self.crashes.cuts + cut)));
        for cut in [None, Some(None)].into_iter().chain(cuts) {
            let (dir, aside) = (copy_of(&self.folder)?, copy_of(&self.aside)?);
            let disk = state.moved_to(&[(&self.folder, dir.path()), (&self.aside, aside.path())]);
            let how = match cut {
                None => "a kill".to_owned(),
                Some(None) => disk.lose_unsynced().map(|()| "a mild power cut".to_owned())?,
                Some(Some(seed)) => disk.cut_power(seed).map(|()| format!("power cut {seed}"))?,
            };
            let mut hasher = DefaultHasher::new();
            is_done.hash(&mut hasher);
            hash(dir.path(), &mut hasher)?;
            if self.seen.insert(hasher.finish()) {
                let (what, changes) = (format!("{how} after {number} changes"), number);
                // If all checks have failed, nobody receives it.
                let _ = self.found_in.send(Crash { dir, what, changes, is_done });
            }
        }
        Ok(())
    }
}

/// Copies a folder beside it, with the times of all files: a checkpoint knows those of block files.
fn copy_of(folder: &Path) -> io::Result<TempDir> {
    let copy = TempDir::new_in(folder.parent().unwrap_or(folder))?;
    copy_contents(folder, copy.path())?;
    Ok(copy)
}

fn copy_contents(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            fs::create_dir(&target)?;
            fs::set_permissions(&target, entry.metadata()?.permissions())?;
            copy_contents(&path, &target)?;
        } else {
            fs::copy(&path, &target)?;
            File::options().write(true).open(&target)?.set_modified(entry.metadata()?.modified()?)?;
        }
    }
    Ok(())
}

fn hash(dir: &Path, hasher: &mut DefaultHasher) -> io::Result<()> {
    let mut paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    paths.len().hash(hasher);
    for path in paths {
        path.file_name().hash(hasher);
        match path.is_dir() {
            true => hash(&path, hasher)?,
            false => fs::read(&path)?.hash(hasher),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Replaces the contents of a file, with or without a sync of the new one before it gets the name.
    fn states_of_a_replacement(is_synced: bool) -> BTreeSet<String> {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "old").unwrap();
        let found = Mutex::new(BTreeSet::new());
        let replace = |disk: &FaultDisk| {
            let mut file = disk.create(&at("new")).unwrap();
            file.write_all(b"NEW").unwrap();
            if is_synced {
                file.sync().unwrap();
            }
            disk.rename(&at("new"), &at("file")).unwrap();
            disk.sync_dir(folder.path()).unwrap();
        };
        let crashes = Crashes { cuts: 8, ..Crashes::default() };
        let states = explore(folder.path(), crashes, replace, |crash| {
            let text = fs::read(crash.dir.path().join("file")).unwrap();
            locked(&found).insert(format!("{}, {}", String::from_utf8_lossy(&text), crash.is_done));
        });
        assert!(states >= 4, "{states}");
        found.into_inner().unwrap()
    }

    #[test]
    fn each_state_of_a_replaced_file_is_seen() {
        let expected = ["NEW, false", "NEW, true", "old, false"].map(str::to_owned);
        assert_eq!(states_of_a_replacement(true), expected.into());
        let unsynced = states_of_a_replacement(false);
        assert!(unsynced.contains(", true") && unsynced.contains("\0\0\0, true"), "{unsynced:?}");
    }
}

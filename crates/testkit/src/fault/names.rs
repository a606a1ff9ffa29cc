//! Changes of names that a power cut may take back: names that were created, removed or renamed in a
//! directory since its last sync.
//!
//! Removed files are kept aside, so that they can be restored. The model is harsher than a journal: each
//! directory loses any number of its changes, the last ones first, independently of other directories. Only
//! [`Names::synced`] makes the changes of a directory durable.

use crate::prelude::*;

/// A change of names that is not yet durable.
#[derive(Clone, Debug)]
enum Change {
    Made(PathBuf),
    /// Path, and where the removed file or directory is kept.
    Removed(PathBuf, PathBuf),
    /// From, to, and where a file that was replaced is kept.
    Moved(PathBuf, PathBuf, Option<PathBuf>),
    Swapped(PathBuf, PathBuf),
}

/// All changes of names in order, each with the directory whose sync makes it durable.
pub struct Names {
    kept: PathBuf,
    /// Removes the folder `kept`, except for a copy.
    _guard: Option<TempDir>,
    kept_count: u64,
    /// Paths are current: they are updated when what they name is moved.
    changes: Vec<(PathBuf, Change)>,
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_owned()
}

/// Updates `path` if it is at or below the source of one of `moves`.
pub fn follow(path: &mut PathBuf, moves: &[(&Path, &Path)]) {
    let target = moves.iter().find_map(|(from, to)| Some((to, path.strip_prefix(from).ok()?)));
    if let Some((to, below)) = target {
        // Joining an empty path would append a separator.
        *path = if below.as_os_str().is_empty() { to.to_path_buf() } else { to.join(below) };
    }
}

/// Updates a name that is no longer in use: it moves only with its directory.
fn follow_name(path: &mut PathBuf, moves: &[(&Path, &Path)]) {
    let mut dir = parent(path);
    follow(&mut dir, moves);
    *path = dir.join(path.file_name().unwrap_or_default());
}

/// Ignores that a file does not exist.
fn ignore_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

impl Names {
    /// Creates an empty list of changes. Removed files are kept in a new folder below `place`, which must be
    /// on the same file system.
    pub fn new(place: &Path) -> io::Result<Self> {
        let guard = TempDir::new_in(place)?;
        Ok(Self { kept: guard.path().to_owned(), _guard: Some(guard), kept_count: 0, changes: Vec::new() })
    }

    /// The same changes in copies of folders.
    pub fn moved_to(&self, moves: &[(&Path, &Path)]) -> Self {
        let mut changes = self.changes.clone();
        for (dir, change) in &mut changes {
            let paths = match change {
                Change::Made(path) => vec![path],
                Change::Removed(path, kept) => vec![path, kept],
                Change::Moved(from, to, replaced) => vec![from, to].into_iter().chain(replaced).collect(),
                Change::Swapped(a, b) => vec![a, b],
            };
            paths.into_iter().chain([dir]).for_each(|path| follow(path, moves));
        }
        let mut kept = self.kept.clone();
        follow(&mut kept, moves);
        Self { kept, _guard: None, kept_count: self.kept_count, changes }
    }

    /// Returns a new path for keeping a removed file.
    fn new_kept_path(&mut self) -> PathBuf {
        self.kept_count += 1;
        self.kept.join(self.kept_count.to_string())
    }

    /// Records that a file or a directory was created.
    pub fn made(&mut self, path: &Path) {
        self.changes.push((parent(path), Change::Made(path.to_owned())));
    }

    /// Removes a file or a directory so that it can be restored. Returns the path where it is kept.
    pub fn remove(&mut self, path: &Path) -> io::Result<PathBuf> {
        let kept = self.new_kept_path();
        RealDisk.rename(path, &kept)?;
        self.moved(&[(path, &kept)]);
        self.changes.push((parent(path), Change::Removed(path.to_owned(), kept.clone())));
        Ok(kept)
    }

    /// Renames so that it can be undone. Returns the path where a replaced file is kept.
    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<Option<PathBuf>> {
        let mut replaced = None;
        if to.is_file() {
            let kept = self.new_kept_path();
            std::fs::hard_link(to, &kept)?;
            self.moved(&[(to, &kept)]);
            replaced = Some(kept);
        }
        RealDisk.rename(from, to)?;
        self.moved(&[(from, to)]);
        self.changes.push((parent(to), Change::Moved(from.to_owned(), to.to_owned(), replaced.clone())));
        Ok(replaced)
    }

    /// Swaps two names so that it can be undone.
    pub fn exchange(&mut self, a: &Path, b: &Path) -> io::Result<()> {
        RealDisk.exchange(a, b)?;
        self.moved(&[(a, b), (b, a)]);
        self.changes.push((parent(a), Change::Swapped(a.to_owned(), b.to_owned())));
        Ok(())
    }

    /// Makes the changes in `dir` so far durable.
    pub fn synced(&mut self, dir: &Path) {
        self.changes.retain(|(of, _)| of != dir);
    }

    /// Updates the paths in all changes after a move.
    fn moved(&mut self, moves: &[(&Path, &Path)]) {
        for (dir, change) in &mut self.changes {
            follow(dir, moves);
            match change {
                Change::Made(path) => follow(path, moves),
                Change::Removed(free, _) => follow_name(free, moves),
                Change::Moved(free, path, _) => {
                    follow_name(free, moves);
                    follow(path, moves);
                }
                Change::Swapped(a, b) => {
                    follow(a, moves);
                    follow(b, moves);
                }
            }
        }
    }

    /// Takes back a random number of the last changes of each directory.
    pub fn lose(&mut self, rng: &mut Rng) -> io::Result<()> {
        let mut counts: BTreeMap<&Path, u64> = BTreeMap::new();
        for (dir, _) in &self.changes {
            *counts.entry(dir).or_default() += 1;
        }
        let mut stay: BTreeMap<PathBuf, u64> =
            counts.into_iter().map(|(dir, count)| (dir.to_owned(), rng.below(count + 1))).collect();
        let mut is_lost = Vec::new();
        for (dir, _) in &self.changes {
            let stay = stay.entry(dir.clone()).or_default();
            is_lost.push(*stay == 0);
            *stay = stay.saturating_sub(1);
        }
        while let (Some((_, change)), Some(is_lost)) = (self.changes.pop(), is_lost.pop()) {
            if is_lost {
                self.undo(change, rng)?;
            }
        }
        Ok(())
    }

    fn undo(&mut self, change: Change, rng: &mut Rng) -> io::Result<()> {
        match change {
            Change::Made(path) if path.is_dir() => std::fs::remove_dir_all(&path),
            Change::Made(path) => ignore_missing(RealDisk.remove_file(&path)),
            Change::Removed(path, kept) => {
                if kept.is_dir() {
                    // Some files of a restored directory may be missing nevertheless.
                    for name in RealDisk.list(&kept)? {
                        let file = kept.join(name);
                        if file.is_file() && rng.chance(1, 2) {
                            RealDisk.remove_file(&file)?;
                        }
                    }
                }
                self.moved(&[(&kept, &path)]);
                ignore_missing(RealDisk.rename(&kept, &path))
            }
            Change::Moved(from, to, replaced) => {
                self.moved(&[(&to, &from)]);
                ignore_missing(RealDisk.rename(&to, &from))?;
                let Some(kept) = replaced else { return Ok(()) };
                self.moved(&[(&kept, &to)]);
                ignore_missing(RealDisk.rename(&kept, &to))
            }
            Change::Swapped(a, b) => {
                self.moved(&[(&a, &b), (&b, &a)]);
                RealDisk.exchange(&a, &b)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all states that power cuts with 40 seeds leave of a replaced file, a removed folder and two
    /// swapped folders.
    fn outcomes(is_synced: bool) -> std::collections::BTreeSet<String> {
        let mut outcomes = std::collections::BTreeSet::new();
        for seed in 0..40 {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            for (name, text) in [("file", "old"), ("a/in", "a"), ("b/in", "b"), ("c/in", "c")] {
                fs::create_dir_all(at(name).parent().unwrap()).unwrap();
                fs::write(at(name), text).unwrap();
            }
            let kept = tempfile::tempdir().unwrap();
            let mut names = Names::new(kept.path()).unwrap();
            fs::write(at("new"), "new").unwrap();
            names.made(&at("new"));
            names.rename(&at("new"), &at("file")).unwrap();
            names.exchange(&at("a"), &at("b")).unwrap();
            names.remove(&at("c")).unwrap();
            if is_synced {
                names.synced(dir.path());
            }
            names.lose(&mut Rng::new(seed, "names")).unwrap();
            let text = |name: &str| fs::read_to_string(at(name)).unwrap_or("-".to_owned());
            outcomes
                .insert([text("new"), text("file"), text("a/in"), at("c").is_dir().to_string()].join(" "));
        }
        outcomes
    }

    #[test]
    fn unsynced_directories_lose_their_last_changes() {
        let expected = ["- new b false", "- new b true", "- new a true", "new old a true", "- old a true"];
        assert_eq!(outcomes(false), expected.map(str::to_owned).into());
        assert_eq!(outcomes(true), ["- new b false".to_owned()].into());
    }
}

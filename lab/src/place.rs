//! Where measurements happen: a scratch folder, a copy of the blocks that is put right before each run, and
//! the page cache in a known state.

use cli::output::print_message;
use disk::datadir::Datadir;
use engine::{Error, ErrorKind, Network, open_regular};
use rustix::{
    fs::{Advice, FlockOperation, fadvise, fcntl_lock},
    io::{Errno, ReadWriteFlags, preadv2},
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, IoSliceMut},
    path::{Path, PathBuf},
    time::SystemTime,
};
use tempfile::TempDir;

/// Number of pages of each file that are sampled for whether they are in the page cache.
const SAMPLES: u64 = 64;

/// Creates a directory of this process in `parent`, which need not exist; it is removed when dropped.
///
/// # Errors
/// [`ErrorKind::Environment`] if one of them cannot be created.
pub fn scratch(parent: &Path) -> Result<TempDir, Error> {
    let create = || {
        fs::create_dir_all(parent)?;
        let name = format!("peregrine-bench-{}", std::process::id());
        tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir_in(parent.canonicalize()?)
    };
    create().map_err(|error| environment("create a directory in", parent, error))
}

/// Returns all files below a directory, sorted by name. Lock files are left out: they are empty, and a copy
/// must not look locked.
pub fn files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let found_there = fs::metadata(&path)?;
            if found_there.is_dir() {
                open.push(path);
            } else if !path.ends_with("LOCK") && !path.ends_with(".lock") {
                if !found_there.is_file() {
                    // Reading a named pipe could block for ever.
                    let text = format!("{} is not a regular file; remove it", path.display());
                    return Err(io::Error::other(text));
                }
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the total length of the files, in bytes.
pub fn bytes(files: &[PathBuf]) -> io::Result<u64> {
    files.iter().map(|path| Ok(fs::metadata(path)?.len())).sum()
}

/// A copy of a directory that programs may write to.
pub struct Copy {
    from: PathBuf,
    /// The root of the copy; the copied directory is below it.
    root: PathBuf,
    folder: PathBuf,
    /// The copied files, relative to `folder`, with their length and modification time.
    files: BTreeMap<PathBuf, Option<(u64, SystemTime)>>,
}

impl Copy {
    /// Plans a copy of `from` as `folder`, which is below `root`; [`Self::restore`] makes it.
    pub fn new(from: &Path, root: &Path, folder: PathBuf) -> io::Result<Self> {
        let relative = |path: PathBuf| path.strip_prefix(from).map(Path::to_owned).map_err(io::Error::other);
        let files = files(from)?.into_iter().map(|path| Ok((relative(path)?, None)));
        let files = files.collect::<io::Result<_>>()?;
        Ok(Self { from: from.to_owned(), root: root.to_owned(), folder, files })
    }

    /// Restores the copy: removes files that were added, and copies again those that were changed. All is on
    /// disk when this returns, so that no run pays for it.
    pub fn restore(&mut self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        for path in files(&self.root)? {
            let known = path.strip_prefix(&self.folder).is_ok_and(|name| self.files.contains_key(name));
            if !known {
                fs::remove_file(path)?;
            }
        }
        for (name, state) in &mut self.files {
            let (from, to) = (self.from.join(name), self.folder.join(name));
            if state.is_some() && *state == self::state(&to) {
                continue;
            }
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::copy(&from, &to)?;
            File::open(&to)?.sync_all()?;
            *state = self::state(&to);
        }
        Ok(())
    }
}

/// Copies the `blocks` folder of a datadir, with the datadir locked, into another datadir.
pub fn copy_blocks(from: &Path, network: Network, to: &Path) -> Result<Copy, Error> {
    let [source, target] = [from, to].map(|root| Datadir::at(root, network));
    let (locked, blocks) = (source.net_dir(), source.blocks_dir());
    let _lock =
        lock(locked).map_err(|error| environment("lock (is a node running on it?)", locked, error))?;
    print_message("copying the blocks");
    let copy = Copy::new(&blocks, to, target.blocks_dir());
    let copy = copy.and_then(|mut copy| copy.restore().map(|()| copy));
    copy.map_err(|error| environment("copy", &blocks, error))
}

/// An error of the machine, or of a program that is measured.
pub fn failed(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Environment, detail)
}

/// An error about a file or folder.
pub fn environment(what: &str, path: &Path, error: io::Error) -> Error {
    failed(format!("cannot {what} this: {error}")).in_file(path, None)
}

fn state(path: &Path) -> Option<(u64, SystemTime)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

/// Takes Bitcoin Core's lock, shared: a running node must not change files while they are copied.
fn lock(network_folder: &Path) -> io::Result<Option<File>> {
    let file = match open_regular(&network_folder.join(".lock")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    fcntl_lock(&file, FlockOperation::NonBlockingLockShared)?;
    Ok(Some(file))
}

/// Reads files once, so that as much of them as possible is in the page cache.
pub fn warm(files: &[PathBuf]) -> io::Result<()> {
    files.iter().try_for_each(|path| io::copy(&mut File::open(path)?, &mut io::sink()).map(drop))
}

/// Asks the system to drop files from its page cache. It may keep pages that other processes use.
pub fn evict(files: &[PathBuf]) -> io::Result<()> {
    files.iter().try_for_each(|path| {
        let file = File::open(path)?;
        // Pages that are not written yet cannot be dropped.
        file.sync_all()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    })
}

/// Returns which share of some pages, spread over the files, is in the page cache, in percent; `None` if the
/// system does not report it.
pub fn cached_percent(files: &[PathBuf]) -> Option<f64> {
    let (mut asked, mut there) = (0_u64, 0_u64);
    for path in files {
        let file = File::open(path).ok()?;
        let length = file.metadata().ok()?.len();
        // No read-ahead, so that sampling does not load other pages.
        fadvise(&file, 0, None, Advice::Random).ok()?;
        for offset in (0..length).step_by((length / SAMPLES).max(4096) as usize) {
            let mut byte = [0];
            let mut into = [IoSliceMut::new(&mut byte)];
            asked += 1;
            there += match preadv2(&file, &mut into, offset, ReadWriteFlags::NOWAIT) {
                Ok(_) => 1,
                Err(Errno::AGAIN) => 0,
                Err(_) => return None,
            };
        }
    }
    (asked > 0).then(|| there as f64 * 100.0 / asked as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_put_right_again() {
        let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        fs::create_dir(from.path().join("index")).unwrap();
        for (name, text) in [("a", "first"), ("index/b", "second"), ("LOCK", "")] {
            fs::write(from.path().join(name), text).unwrap();
        }
        let below = to.path().join("regtest/blocks");
        let mut copy = Copy::new(from.path(), to.path(), below.clone()).unwrap();
        copy.restore().unwrap();
        let texts = || {
            let read = |path: PathBuf| fs::read_to_string(path).unwrap();
            files(to.path()).unwrap().into_iter().map(read).collect::<Vec<_>>()
        };
        assert_eq!(texts(), ["first", "second"]);
        fs::write(below.join("a"), "changed").unwrap();
        fs::remove_file(below.join("index/b")).unwrap();
        fs::create_dir(to.path().join("regtest/chainstate")).unwrap();
        fs::write(to.path().join("regtest/chainstate/new"), "new").unwrap();
        copy.restore().unwrap();
        assert_eq!(texts(), ["first", "second"]);
    }

    #[test]
    fn a_named_pipe_among_the_blocks_is_refused_by_name() {
        let dir = TempDir::new().unwrap();
        let pipe = dir.path().join("blk00000.dat");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let error = files(dir.path()).unwrap_err().to_string();
        assert!(error.contains("blk00000.dat is not a regular file"), "{error}");
    }

    #[test]
    fn files_that_were_read_are_in_the_page_cache() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let files = [path];
        warm(&files).unwrap();
        match cached_percent(&files) {
            Some(percent) => assert_eq!(percent, 100.0),
            None => println!("skipped: this system does not say what it caches"),
        }
        // The system decides whether pages are dropped (a file system in memory keeps them).
        evict(&files).unwrap();
        assert!(cached_percent(&files).is_none_or(|percent| percent <= 100.0));
    }
}

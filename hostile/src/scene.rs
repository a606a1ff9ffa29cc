//! The datadir of one case, and operations on it that damages use.

use crate::prelude::*;
use std::os::unix::fs::FileExt;

/// The user that owns datadirs that do not belong to root.
pub const NODE_USER: u32 = 4242;

/// A datadir that is about to be damaged.
pub struct Scene<'a> {
    /// The folder with `datadir` and everything outside of it: targets of links, hints, outputs.
    pub live: PathBuf,
    pub paths: Datadir,
    /// The base that it was copied from.
    pub base: &'a Base,
    pub bases: &'a [Base],
    pub rng: Rng,
    /// Whether this process is root.
    pub root: bool,
    /// The user that `peregrine` runs as.
    pub peregrine_user: Option<u32>,
    /// The user that `bitcoind` runs as.
    pub node_user: Option<u32>,
    /// Files of the user, which belong to neither Core nor Peregrine, relative to `live`, with their content.
    /// After [`Scene::resolve_foreign`], no part of a path is a link.
    pub foreign: BTreeMap<PathBuf, Vec<u8>>,
    /// Mount points that were added.
    pub mounts: Vec<PathBuf>,
    /// The path for `--hints`, if a damage put a special file there.
    pub hints: Option<PathBuf>,
    /// Whether a file was replaced by a FIFO, on which opening a file would block.
    pub fifo: bool,
}

/// A record of a `blk` or `rev` file.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Offset of its header in the file.
    pub at: usize,
    /// Its length in bytes, with header and checksum.
    pub len: usize,
}

impl Scene<'_> {
    pub fn datadir(&self) -> PathBuf {
        self.live.join("datadir")
    }

    pub fn net(&self) -> PathBuf {
        self.paths.net_dir().to_owned()
    }

    pub fn blocks(&self) -> PathBuf {
        self.paths.blocks_dir()
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    /// Returns a random element.
    pub fn pick<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        let at = self.below(all.len());
        all.get(at).cloned()
    }

    /// Returns a random one of some paths, if it is a folder and not a link to one.
    pub fn pick_dir(&mut self, all: &[PathBuf]) -> Option<PathBuf> {
        self.pick(all).filter(|dir| is_dir(dir))
    }

    /// Returns the regular files `blk*.dat` or `rev*.dat`, sorted by number.
    pub fn numbered(&self, kind: &str) -> Vec<PathBuf> {
        self.named(kind).into_iter().filter(|path| is_file(path)).collect()
    }

    /// Returns a random one of these.
    pub fn any(&mut self, kind: &str) -> Option<PathBuf> {
        let all = self.numbered(kind);
        self.pick(&all)
    }

    /// Returns the `blk` and `rev` files, links to files among them, sorted by number.
    pub fn block_files(&self) -> Vec<PathBuf> {
        let all = ["blk", "rev"].into_iter().flat_map(|kind| self.named(kind));
        all.filter(|path| path.is_file()).collect()
    }

    /// Returns all paths with the name of a `blk` or `rev` file, sorted by number, also where a situation has
    /// moved them.
    fn named(&self, kind: &str) -> Vec<PathBuf> {
        let other = Datadir::at(&self.live.join("store/other"), self.base.network).blocks_dir();
        let dirs = [self.blocks(), other].into_iter().filter_map(|dir| fs::read_dir(dir).ok());
        let mut paths: Vec<PathBuf> = dirs.flatten().flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.len() == 12 && name.starts_with(kind) && name.ends_with(".dat")
        });
        paths.sort();
        paths
    }

    /// Returns the regular files in a database's folder, without `LOCK`.
    pub fn database_files(&self, dir: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| is_file(path)).collect();
        paths.retain(|path| path.file_name().is_some_and(|name| name != "LOCK"));
        paths.sort();
        paths
    }

    /// Returns the key in `xor.dat`; zeros if there is none.
    pub fn key(&self) -> [u8; 8] {
        let path = self.blocks().join("xor.dat");
        let bytes = if is_file(&path) { fs::read(path).unwrap_or_default() } else { Vec::new() };
        bytes.try_into().unwrap_or_default()
    }

    /// Reads a file and removes its obfuscation.
    pub fn read_plain(&self, path: &Path) -> Res<Vec<u8>> {
        let mut bytes = fs::read(path)?;
        xor(&mut bytes, self.key(), 0);
        Ok(bytes)
    }

    /// Returns the consecutive records at the start of a file.
    pub fn records(&self, path: &Path) -> Res<Vec<Record>> {
        let bytes = self.read_plain(path)?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let checksum = if name.starts_with("rev") { 32 } else { 0 };
        let (magic, mut at, mut found) = (self.base.network.magic(), 0, Vec::new());
        while let Some(&[a, b, c, d, e, f, g, h]) = bytes.get(at..at + 8) {
            let len = 8 + u32::from_le_bytes([e, f, g, h]) as usize + checksum;
            if [a, b, c, d] != magic || at + len > bytes.len() {
                break;
            }
            found.push(Record { at, len });
            at += len;
        }
        Ok(found)
    }

    /// Obfuscates bytes and writes them into a file.
    pub fn write_plain(&self, path: &Path, at: usize, bytes: &[u8]) -> Res<()> {
        let mut bytes = bytes.to_vec();
        xor(&mut bytes, self.key(), at);
        let file = fs::OpenOptions::new().write(true).open(path)?;
        Ok(file.write_all_at(&bytes, at as u64)?)
    }

    /// Writes a file that belongs to the user. Returns false if the path is already in use.
    pub fn put_foreign(&mut self, path: &Path) -> Res<bool> {
        if fs::symlink_metadata(path).is_ok() {
            return Ok(false);
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let content = format!("notes of the user, number {}\n", self.rng.next_u64()).into_bytes();
        fs::write(path, &content)?;
        let name = path.strip_prefix(&self.live)?.to_owned();
        self.foreign.insert(name, content);
        if let Some(user) = self.node_user {
            let _ = std::os::unix::fs::chown(path, Some(user), Some(user));
        }
        Ok(true)
    }

    /// Writes a file that belongs to the user. Returns a description of the damage; `None` if the path is in
    /// use, or an earlier damage has removed its folder.
    pub fn add_note(&mut self, path: &Path) -> Res<Option<String>> {
        match self.put_foreign(path) {
            Ok(true) => Ok(Some(format!("{}", path.strip_prefix(&self.live)?.display()))),
            _ => Ok(None),
        }
    }

    /// Follows the links in the paths of the user's files, and forgets files that a later damage has removed.
    pub fn resolve_foreign(&mut self) {
        self.foreign = resolve(&self.live, std::mem::take(&mut self.foreign));
    }

    /// Replaces a folder by a small file system in memory with the same contents. Returns false if that is
    /// not possible.
    pub fn mount(&mut self, dir: &Path) -> Res<bool> {
        if !self.root || !fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir()) {
            return Ok(false);
        }
        let aside = self.live.join("aside");
        fs::rename(dir, &aside)?;
        fs::create_dir(dir)?;
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=256m", "tmpfs"]).arg(dir).output()?;
        if !done.status.success() {
            fs::remove_dir(dir)?;
            fs::rename(&aside, dir)?;
            return Ok(false);
        }
        self.mounts.push(dir.to_owned());
        let done =
            Command::new("cp").args(["-a", "--sparse=always"]).arg(aside.join(".")).arg(dir).output()?;
        fs::remove_dir_all(aside)?;
        if done.status.success() { Ok(true) } else { Err("cp into the mount fails".into()) }
    }
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        for dir in self.mounts.iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(dir).output();
        }
    }
}

/// Follows the links in paths relative to `live`, which itself contains none. Drops what does not exist.
fn resolve(live: &Path, files: BTreeMap<PathBuf, Vec<u8>>) -> BTreeMap<PathBuf, Vec<u8>> {
    let real =
        |name: &Path| Some(fs::canonicalize(live.join(name)).ok()?.strip_prefix(live).ok()?.to_owned());
    files.into_iter().filter_map(|(name, content)| Some((real(&name)?, content))).collect()
}

pub fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// Returns whether the path is a folder, not a link to one.
pub fn is_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Adds or removes the obfuscation of bytes that start at offset `at`.
pub fn xor(bytes: &mut [u8], key: [u8; 8], at: usize) {
    for (number, byte) in bytes.iter_mut().enumerate() {
        *byte ^= key[(at + number) % 8];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a note behind a linked `blocks` was known by its path through the link only. So nobody
    /// noticed when it was gone, and its folder counted as a leftover of Peregrine.
    #[test]
    fn a_file_of_the_user_is_known_by_its_path_without_links() -> Res<()> {
        let live = std::env::temp_dir().join(format!("hostile-{}", std::process::id()));
        fs::create_dir_all(live.join("elsewhere/blocks"))?;
        let live = fs::canonicalize(live)?;
        std::os::unix::fs::symlink("elsewhere/blocks", live.join("blocks"))?;
        fs::write(live.join("blocks/notes.txt"), "notes")?;
        let named = ["blocks/notes.txt", "blocks/gone.txt"];
        let files = named.map(|name| (name.into(), b"notes".to_vec()));
        let resolved = resolve(&live, files.into());
        fs::remove_dir_all(&live)?;
        assert_eq!(resolved, [("elsewhere/blocks/notes.txt".into(), b"notes".to_vec())].into());
        Ok(())
    }
}

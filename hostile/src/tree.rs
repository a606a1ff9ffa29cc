//! What is in a folder: names, bytes, owners and modes; and what it is to Peregrine.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    hash::Hasher,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// What stands under a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A regular file, with its length in bytes and a hash of its bytes.
    File(u64, u64),
    /// A folder.
    Dir,
    /// A symbolic link and where it leads.
    Link(PathBuf),
    /// A FIFO, a device, a socket.
    Special,
}

/// A name's owner, mode and what stands under it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// What stands there.
    pub what: What,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
}

/// All names below a folder, relative to it. Links are not followed.
pub type Tree = BTreeMap<PathBuf, Seen>;

/// Looks at all that is below `root`.
pub fn look(root: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let Ok(found) = fs::symlink_metadata(&path) else { continue };
            let what = if found.is_dir() {
                open.push(path.clone());
                What::Dir
            } else if found.is_symlink() {
                What::Link(fs::read_link(&path)?)
            } else if found.is_file() {
                What::File(found.len(), hash_file(&path).unwrap_or(0))
            } else {
                What::Special
            };
            let name = path.strip_prefix(root).map_err(io::Error::other)?.to_owned();
            tree.insert(name, Seen { what, uid: found.uid(), gid: found.gid(), mode: found.mode() & 0o7777 });
        }
    }
    Ok(tree)
}

/// A hash of the file's bytes: SipHash, for files that nobody forges.
pub fn hash_file(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut hasher = std::hash::DefaultHasher::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            count => hasher.write(&buffer[..count]),
        }
    }
}

/// What a name is to Peregrine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// `blk`, `rev` and `xor.dat`: nobody's to change.
    Block,
    /// The chainstate and the block index, which a run may replace.
    Database,
    /// Locks, which a run may make.
    Lock,
    /// What Peregrine makes and removes.
    Ours,
    /// All else.
    Other,
}

/// What a name below the datadir's parent is to Peregrine, if it is not foreign.
pub fn class(path: &Path) -> Class {
    let names: Vec<&str> = path.iter().filter_map(|name| name.to_str()).collect();
    let last = names.last().copied().unwrap_or_default();
    if names.iter().any(|name| name.contains("peregrine")) {
        Class::Ours
    } else if matches!(last, ".lock" | "LOCK") {
        Class::Lock
    } else if names.iter().any(|name| matches!(*name, "chainstate" | "index")) {
        Class::Database
    } else if last == "xor.dat"
        || (last.starts_with("blk") || last.starts_with("rev")) && last.ends_with(".dat")
    {
        Class::Block
    } else {
        Class::Other
    }
}

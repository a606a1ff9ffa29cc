//! Captures the contents of a folder (names, bytes, owners and modes), and classifies paths.

use crate::prelude::*;
use std::{
    fs::File,
    hash::Hasher,
    io::{self, Read},
    os::unix::fs::MetadataExt,
};

/// What a path is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A regular file, with its length in bytes and a hash of its bytes.
    File(u64, u64),
    Dir,
    /// A symbolic link and its target.
    Link(PathBuf),
    /// A FIFO, a device, a socket.
    Special,
}

/// A path's owner and mode, and what it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub what: What,
    pub uid: u32,
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
}

/// All paths below a folder, relative to it. Links are not followed.
pub type Tree = BTreeMap<PathBuf, Seen>;

/// Captures everything below `root`.
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

/// Returns a hash of the file's bytes. SipHash is enough, because no file is forged.
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

/// What Peregrine may do with a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// `blk` and `rev` files and `xor.dat`, which no run may change, except that some may append to `rev`
    /// files or add one.
    Block,
    /// The chainstate and the block index, which a run may replace.
    Database,
    /// The other indexes of the node, which a run may set aside if it says so.
    Index,
    /// Locks, which a run may create.
    Lock,
    /// What Peregrine creates and removes.
    Peregrine,
    Other,
}

/// Classifies a path below the datadir's parent, if it is not a file of the user.
pub fn class(path: &Path) -> Class {
    let names: Vec<&str> = path.iter().filter_map(|name| name.to_str()).collect();
    let last = names.last().copied().unwrap_or_default();
    if names.iter().any(|name| name.contains("peregrine")) {
        Class::Peregrine
    } else if matches!(last, ".lock" | "LOCK") {
        Class::Lock
    } else if names.contains(&"indexes") {
        Class::Index
    } else if names.iter().any(|name| matches!(*name, "chainstate" | "index" | "unmounted")) {
        // The last is where a link to nothing leads (`testkit::situation`): a rebuild makes it.
        Class::Database
    } else if last == "xor.dat"
        || (last.starts_with("blk") || last.starts_with("rev")) && last.ends_with(".dat")
    {
        Class::Block
    } else {
        Class::Other
    }
}

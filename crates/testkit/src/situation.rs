//! Datadirs as people have them: damaged, moved, or with settings with which bitcoind does not start.
//!
//! This is one list for all that wants to see what becomes of each: a test of the advice, a page that names
//! what is advised, random damage. A new row needs nothing but a name, a public report, if there is one, and
//! what brings a sound datadir of regtest into that state.

mod blocks;
mod databases;
mod settings;

use crate::{
    corrupt::{edit_index, flip_bit},
    prelude::*,
};
use disk::index::FileInfo;
use std::os::unix::fs::symlink;

/// Height of the chainstate `older` in a store.
pub const OLDER: u32 = 60;
/// Height of the last block of the chain for which rows are written: some damage it at a height near that.
pub const TIP: u32 = 130;

/// What a datadir can be like.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// Its name, which begins with what is damaged.
    pub name: &'static str,
    /// A public report of it; empty if there is none.
    pub report: &'static str,
    /// Brings a sound datadir into this state. It fails if there is nothing that can be changed in this way.
    pub cause: fn(&Place) -> io::Result<()>,
}

/// A situation that nobody has reported.
const fn row(name: &'static str, cause: fn(&Place) -> io::Result<()>) -> Situation {
    Situation { name, report: "", cause }
}

/// A situation that a public report describes.
const fn reported(
    name: &'static str,
    report: &'static str,
    cause: fn(&Place) -> io::Result<()>,
) -> Situation {
    Situation { name, report, cause }
}

pub fn all() -> impl Iterator<Item = &'static Situation> {
    of_files().chain(settings::SETTINGS)
}

/// Returns the situations in which something other than a setting is not as it should be.
pub fn of_files() -> impl Iterator<Item = &'static Situation> {
    [databases::CHAINSTATE, databases::INDEX, blocks::BLOCKS, blocks::OTHERS].into_iter().flatten()
}

/// Brings the datadir at `root` into a situation; `store` is a folder outside of it.
///
/// # Panics
/// If there is none with this name, or it cannot be had there.
pub fn cause(name: &str, root: &Path, store: &Path) {
    let found = all().find(|situation| situation.name == name);
    let done = found.map(|situation| (situation.cause)(&Place::new(root, store)));
    assert!(matches!(done, Some(Ok(()))), "{name}: {done:?}");
}

/// Where the datadir of a situation is.
#[derive(Clone, Debug)]
pub struct Place {
    /// The datadir.
    pub root: PathBuf,
    /// The folder of the network in it.
    pub net: PathBuf,
    /// A folder outside of the datadir: with the chainstates `older` and `foreign`, that of another chain,
    /// and room for what a situation moves away.
    pub store: PathBuf,
}

impl Place {
    /// A datadir of regtest, and its store.
    pub fn new(root: &Path, store: &Path) -> Self {
        Self { root: root.to_owned(), net: root.join("regtest"), store: store.to_owned() }
    }

    /// Where situations put what a user restores.
    pub fn away(&self) -> PathBuf {
        self.store.join("away")
    }

    /// The directory for `-blocksdir` to which situations move block files.
    pub fn other_blocksdir(&self) -> PathBuf {
        self.store.join("other")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.net.join(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        fs::write(self.path(name), text)
    }

    /// Writes `bitcoin.conf`.
    fn conf(&self, text: &str) -> io::Result<()> {
        fs::write(self.root.join("bitcoin.conf"), text)
    }

    fn index(&self) -> io::Result<BlockIndex> {
        read_block_index(&RealDisk, &self.path("blocks/index")).map_err(io::Error::other)
    }

    fn edit_index(&self, edit: impl FnOnce(&mut BlockIndex)) -> io::Result<()> {
        edit_index(&self.path("blocks/index"), edit)
    }

    /// The number of the last block file.
    fn last(&self) -> io::Result<u32> {
        Ok(self.index()?.last_file.0)
    }

    /// Moves something away and puts a link to nothing in its place.
    fn unmount(&self, name: &str) -> io::Result<()> {
        fs::rename(self.path(name), self.away())?;
        symlink("unmounted", self.path(name))
    }

    /// Puts a directory in the place of a file, or a file in that of a directory.
    fn exchange_kind(&self, name: &str) -> io::Result<()> {
        let is_dir = self.path(name).is_dir();
        self.remove(name)?;
        if is_dir { self.write(name, "a file") } else { fs::create_dir(self.path(name)) }
    }

    /// Puts a directory in the place of a file that bitcoind creates.
    fn put_folder(&self, name: &str) -> io::Result<()> {
        if self.path(name).exists() {
            self.remove(name)?;
        }
        fs::create_dir(self.path(name))
    }

    /// The largest table of a database.
    fn largest(&self, dir: &str) -> io::Result<PathBuf> {
        let all = fs::read_dir(self.path(dir))?.flatten().map(|entry| entry.path());
        let all = all.filter(|path| path.to_string_lossy().ends_with(".ldb"));
        let largest = all.max_by_key(|path| fs::metadata(path).map_or(0, |found| found.len()));
        largest.ok_or_else(|| io::Error::other("there is no such file"))
    }

    /// The file and the place of the block at this height that was connected.
    ///
    /// # Errors
    /// If the block index cannot be read, or has no such block.
    pub fn block(&self, height: u32) -> io::Result<(FileNo, u64)> {
        let index = self.index()?;
        let mut of_height = index.entries.iter().filter(|entry| entry.height.0 == height);
        let entry = of_height.find(|entry| entry.undo_pos.is_some());
        let place = entry.and_then(|entry| Some((entry.file?, entry.data_pos?.0)));
        place.ok_or_else(|| io::Error::other("there is no such block"))
    }

    /// Changes a bit in the record of the block at this height, so many bytes behind its beginning.
    ///
    /// # Errors
    /// If there is no such block, or its file cannot be changed.
    pub fn flip_in_block(&self, height: u32, offset: u64) -> io::Result<()> {
        let (file, pos) = self.block(height)?;
        flip_bit(&self.path(&format!("blocks/blk{:05}.dat", file.0)), pos + offset, 1)
    }

    /// Writes a log that ends with these lines after a start of bitcoind.
    fn log(&self, text: &str) -> io::Result<()> {
        self.write("debug.log", &format!("2026 Bitcoin Core version v31.99.0\n2026 {text}\n"))
    }

    /// Marks the node as pruned, without its first pair of files.
    fn prune(&self) -> io::Result<&Self> {
        self.edit_index(|index| {
            index.pruned = true;
            for entry in index.entries.iter_mut().filter(|entry| entry.file == Some(FileNo(0))) {
                entry.status = entry.status.without_data();
                (entry.file, entry.data_pos, entry.undo_pos) = (None, None, None);
            }
            index.files[0] = FileInfo::default();
        })?;
        self.remove("blocks/blk00000.dat")?;
        self.remove("blocks/rev00000.dat").map(|()| self)
    }

    /// The same, with this `bitcoin.conf`.
    fn prune_with(&self, conf: &str) -> io::Result<&Self> {
        self.prune()?.conf(conf).map(|()| self)
    }

    /// Adds an index of filters that bitcoind cannot open.
    fn damage_filters(&self) -> io::Result<()> {
        fs::create_dir_all(self.path("indexes/blockfilter/basic/db"))?;
        self.write("indexes/blockfilter/basic/db/CURRENT", "MANIFEST-000007\n")
    }

    /// Moves block files to the directory for `-blocksdir`.
    fn move_block_files(&self) -> io::Result<()> {
        let blocks = self.other_blocksdir().join("regtest/blocks");
        fs::create_dir_all(&blocks)?;
        for entry in fs::read_dir(self.path("blocks"))?.flatten() {
            if entry.file_type()?.is_file() {
                fs::rename(entry.path(), blocks.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    fn remove_all(&self, begin: &str) -> io::Result<()> {
        let all = fs::read_dir(self.path("blocks"))?.flatten();
        all.filter(|entry| entry.file_name().to_string_lossy().starts_with(begin))
            .try_for_each(|entry| fs::remove_file(entry.path()))
    }
}

fn break_file(path: &Path) -> io::Result<()> {
    flip_bit(path, fs::metadata(path)?.len() / 2, 3)
}

fn cut_file(path: &Path) -> io::Result<()> {
    truncate(path, fs::metadata(path)?.len() / 2)
}

//! Damages files, for tests of how damage is handled.

use crate::{fault::FaultDisk, prelude::*};
use disk::{
    datadir::{CHAINSTATE, INDEX},
    index::{IndexRows, write_block_index},
    replace::{Replacement, recover},
};
use leveldb::{Database, write_database};
use std::{fs::OpenOptions, os::unix::fs::FileExt};

pub fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    std::fs::set_permissions(to, std::fs::metadata(from)?.permissions())
}

/// Replaces the block index and the chainstate in the directory of a network by copies of themselves, and is
/// interrupted when only the block index is in place.
///
/// # Panics
/// If a replacement cannot be interrupted there.
pub fn interrupt_replacement(net_dir: &Path) -> io::Result<()> {
    let names = [INDEX, CHAINSTATE].map(Path::new);
    for at in 0.. {
        let disk = FaultDisk::killed_at(at);
        let begun = Replacement::begin(&disk, net_dir, &names, [7; 16], false).map_err(io::Error::other);
        // If it was not the disk, something is in its way.
        if let Some(replacement) = if disk.has_failed() { begun.ok() } else { Some(begun?) } {
            for (number, name) in names.iter().enumerate() {
                copy_dir(&net_dir.join(name), replacement.building(number))?;
            }
            assert!(replacement.commit(|| ()).is_err(), "the replacement was not interrupted");
        }
        let is_new = |name: &Path| net_dir.join(name).join("peregrine.mark").exists();
        if names.map(is_new) == [true, false] && net_dir.join("chainstate.peregrine").exists() {
            return Ok(());
        }
        recover(&FaultDisk::healthy(), net_dir, &names, |_| Ok(())).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Changes the block index in `dir`, which is written anew.
///
/// # Errors
/// Any I/O error; damage of the index.
pub fn edit_index(dir: &Path, edit: impl FnOnce(&mut BlockIndex)) -> io::Result<()> {
    let mut index = read_block_index(&RealDisk, dir).map_err(io::Error::other)?;
    edit(&mut index);
    std::fs::remove_dir_all(dir)?;
    write_block_index(&FaultDisk::healthy(), dir, &index).map_err(io::Error::other)
}

/// Gives the MANIFEST of a database another name, as LevelDB does whenever it opens the database.
pub fn reopen(dir: &Path) -> io::Result<()> {
    let (current, name) = (dir.join("CURRENT"), "MANIFEST-000077");
    let old = std::fs::read_to_string(&current)?;
    std::fs::rename(dir.join(old.trim_end()), dir.join(name))?;
    std::fs::write(current, format!("{name}\n"))
}

/// The rows of a database.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Reads all rows of a database.
///
/// # Panics
/// If it is no whole database.
pub fn rows(dir: &Path) -> Rows {
    let database = Database::open(&RealDisk, dir).expect("there is a database");
    let (mut cursor, mut rows) = (database.range(&[], None).expect("it is whole"), Rows::new());
    while cursor.advance().expect("it is whole") {
        rows.insert(cursor.key().to_vec(), cursor.value().to_vec());
    }
    rows
}

/// Replaces a database by one with these rows.
///
/// # Panics
/// After an I/O error.
pub fn write_rows(dir: &Path, rows: &Rows) {
    std::fs::remove_dir_all(dir).expect("the old one can be removed");
    std::fs::create_dir_all(dir).expect("folders can be made");
    write_database(&FaultDisk::healthy(), dir, rows).expect("it can be written");
}

/// Changes the rows of a database.
///
/// # Panics
/// Like [`rows`].
pub fn edit_rows(dir: &Path, edit: impl FnOnce(&mut Rows)) {
    let mut rows = rows(dir);
    edit(&mut rows);
    write_rows(dir, &rows);
}

/// Adds a table with one row to a database, as a flush of bitcoind does. Returns its path.
///
/// # Panics
/// Like [`rows`].
pub fn add_table(dir: &Path, key: &[u8], value: &[u8]) -> PathBuf {
    let disk = FaultDisk::healthy();
    let mut database = Database::open(&disk, dir).expect("there is a database");
    let update = database.update().expect("it is whole");
    // One range of all keys could become a log.
    let (mut low, high) = (update.range(b"", Some(b"\xff")), update.range(b"\xff", None));
    low.set(key, Some(value)).expect("it can be written");
    let ranges = [low, high].map(|range| range.finish().expect("it can be written"));
    update.commit(ranges).expect("it can be written");
    let files = std::fs::read_dir(dir).expect("it is a folder").flatten().map(|entry| entry.path());
    files.filter(|path| path.extension() == Some("ldb".as_ref())).max().expect("there is a table")
}

/// Adds to the block index in `dir` what `invalidateblock` leaves: the header of the next block, marked as
/// invalid.
///
/// # Errors
/// Any I/O error; damage of the index.
pub fn mark_next(dir: &Path, block: &GeneratedBlock) -> io::Result<()> {
    let mut entry = IndexEntry::of_header(block.hash, block.header, Height(block.height));
    entry.status.0 |= BlockStatus::FAILED_VALID;
    let mut rows = IndexRows::open(&RealDisk, dir).map_err(io::Error::other)?;
    rows.update(&[entry], &[]).map_err(io::Error::other)
}

/// Inverts bit `bit` (0..8) of the byte at `offset`.
///
/// # Errors
/// Any I/O error; also if the file is shorter.
pub fn flip_bit(path: &Path, offset: u64, bit: u32) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset)?;
    byte[0] ^= 1 << bit;
    file.write_all_at(&byte, offset)
}

/// Truncates or extends a file to `len` bytes.
pub fn truncate(path: &Path, len: u64) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.set_len(len)
}

/// Appends `len` zero bytes to a file.
pub fn pad(path: &Path, len: u64) -> io::Result<()> {
    truncate(path, std::fs::metadata(path)?.len() + len)
}

pub fn overwrite(path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all_at(bytes, offset)
}

/// The files of a folder, by their names below it.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Reads all files below `dir`: if two snapshots are equal, no file has changed.
pub fn snapshot(dir: &Path) -> io::Result<Files> {
    let (mut files, mut open) = (Files::new(), vec![PathBuf::new()]);
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(dir.join(&next))? {
            let name = next.join(entry?.file_name());
            let path = dir.join(&name);
            if path.is_dir() {
                open.push(name);
            } else {
                files.insert(name, std::fs::read(path)?);
            }
        }
    }
    Ok(files)
}

/// Reads all files below `dir` but lock files.
///
/// # Panics
/// After an I/O error.
pub fn unlocked_files(dir: &Path) -> Files {
    let mut files = snapshot(dir).expect("files can be read");
    files.retain(|path, _| !path.ends_with(".lock") && !path.ends_with("LOCK"));
    files
}

/// Writes files into `dir`, which is created if it is missing.
pub fn write_files(files: &Files, dir: &Path) -> io::Result<()> {
    for (name, bytes) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(dir))?;
        std::fs::write(path, bytes)?;
    }
    Ok(())
}

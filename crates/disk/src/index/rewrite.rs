//! Writes block indexes: new ones, and those that differ from an existing one in some rows. An index has a
//! million rows, so only those of files are kept in memory.

use super::{BLOCK, BlockIndex, FILE, FileInfo, IndexEntry, IndexRows, LAST_FILE, PRUNED, REINDEXING};
use crate::{error::DiskError, xor::OBFUSCATION_ROW};
use leveldb::{Database, write_database};
use std::{collections::BTreeMap, path::Path};
use vfs::{Disk, During as _};
use wire::FileNo;

/// Whether the new index says that block files have been deleted (Core's flag `prunedblockfiles`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrunedFlag {
    /// The same as the old one.
    Keep,
    /// They have.
    Set,
    /// They have not, or all blocks are stored again.
    Clear,
}

/// The first key after those of files.
const AFTER_FILES: &[u8] = &[FILE + 1];

/// Writes a new block index into `dir`, which is created if it is missing and must not contain a database.
///
/// Entries may be in any order and must differ in their hashes. When the function returns, everything but the
/// name of `dir` itself is on the medium; a crash before that leaves no database there.
///
/// # Errors
/// [`DiskError::LevelDb`] if the disk fails, `dir` contains a database, or two entries have the same hash.
///
/// # Panics
/// In the same cases as [`IndexEntry::encode`].
pub fn write_block_index(disk: &dyn Disk, dir: &Path, index: &BlockIndex) -> Result<(), DiskError> {
    disk.create_dir_all(dir).during_creation(dir)?;
    let flags = [(PRUNED, index.pruned), (REINDEXING, index.reindexing)];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| (key.to_vec(), b"1".to_vec()));
    let mut entries: Vec<&IndexEntry> = index.entries.iter().collect();
    entries.sort_unstable_by_key(|entry| entry.hash);
    let files: Rows = (0..).map(FileNo).zip(&index.files).map(|(number, info)| info.row(number)).collect();
    let last_file = (LAST_FILE.to_vec(), index.last_file.0.to_le_bytes().to_vec());
    let entries = entries.into_iter().map(IndexEntry::row);
    Ok(write_database(disk, dir, flags.chain(entries).chain(files).chain([last_file]))?)
}

/// Writes a changed copy of the block index in `from` into `to`, which is created if it is missing and must
/// not contain a database. The database in `from` is not changed. `added` are entries in the byte order of
/// their hashes: those whose hash the old index contains are left out, and `change` gets the old entry.
///
/// `change` gets each entry, in the byte order of their hashes, and may change all of it but the header and
/// its hash. Blocks of another chain ([`crate::departed`]) are left out. After that, `files` gets what
/// [`super::BlockIndex::files`] contains, and may change it and append to it: the last appended file with
/// blocks becomes the one to which bitcoind appends. All other rows are copied as they are, also those that
/// Peregrine does not use, and so are entries and files that stay the same: older versions of Core wrote some
/// bytes differently. The copy is not obfuscated, even if the database in `from` is.
///
/// Entries are read, changed and written one by one. When the function returns, everything but the name of
/// `to` itself is on the medium; a crash before that leaves no database there.
///
/// # Errors
/// The same errors as [`super::read_block_index`] and [`write_block_index`];
/// [`DiskError::CallerError`] if `change` changes a header or a hash, or `files` removes a file.
///
/// # Panics
/// In the same cases as [`IndexEntry::encode`].
pub fn rewrite_block_index(
    disk: &dyn Disk,
    from: &Path,
    to: &Path,
    added: impl IntoIterator<Item = IndexEntry>,
    pruned: PrunedFlag,
    mut change: impl FnMut(&mut IndexEntry),
    files: impl FnOnce(&mut Vec<FileInfo>),
) -> Result<(), DiskError> {
    let old = IndexRows::open(disk, from)?;
    disk.create_dir_all(to).during_creation(to)?;
    let mut new = Database::new(disk, to);
    let update = new.update()?;
    let mut rows = update.range(&[], None);
    let mut add = |key: &[u8], value: &[u8]| rows.set(key, Some(value)).map_err(DiskError::from);
    let mut has_entries = false;
    let mut added = added.into_iter().peekable();
    let mut lacks_flag = pruned == PrunedFlag::Set;
    old.each(&[], Some(&[FILE]), |key, value| {
        if key == OBFUSCATION_ROW {
            return Ok(());
        }
        if key >= PRUNED && std::mem::take(&mut lacks_flag) {
            add(PRUNED, b"1")?;
        }
        if pruned != PrunedFlag::Keep && key == PRUNED {
            return Ok(());
        }
        if key.first() != Some(&BLOCK) {
            return add(key, value);
        }
        has_entries = true;
        let Some(before) = IndexEntry::of_row(from, key, value)? else { return Ok(()) };
        while let Some(entry) = added.next_if(|entry| entry.hash <= before.hash) {
            if entry.hash != before.hash {
                let (key, value) = entry.row();
                add(&key, &value)?;
            }
        }
        let mut entry = before;
        change(&mut entry);
        if (entry.hash, entry.header) != (before.hash, before.header) {
            let flaw = format!("the header of block {} cannot change", before.hash);
            return Err(DiskError::CallerError { dir: to.to_owned(), flaw });
        }
        if entry == before { add(key, value) } else { add(key, &entry.row().1) }
    })?;
    if lacks_flag {
        add(PRUNED, b"1")?;
    }
    let (file_rows, new_last_file) = changed_files(&old, to, has_entries, files)?;
    added.map(|entry| entry.row()).chain(file_rows).try_for_each(|(key, value)| add(&key, &value))?;
    old.each(AFTER_FILES, None, |key, value| match new_last_file {
        Some(number) if key == LAST_FILE => add(key, &number.0.to_le_bytes()),
        _ => add(key, value),
    })?;
    let rows = rows.finish()?;
    Ok(update.commit([rows])?)
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns all rows whose keys begin like those of files, after `change`, and the number of the last file if
/// `change` appended it.
fn changed_files(
    old: &IndexRows<'_>,
    to: &Path,
    has_entries: bool,
    change: impl FnOnce(&mut Vec<FileInfo>),
) -> Result<(Rows, Option<FileNo>), DiskError> {
    let mut rows = Rows::new();
    old.each(&[FILE], Some(AFTER_FILES), |key, value| {
        rows.insert(key.to_vec(), value.to_vec());
        Ok(())
    })?;
    let before = old.files(has_entries)?;
    let mut after = before.clone();
    change(&mut after);
    if after.len() < before.len() {
        let flaw = format!("{} of {} files are left", after.len(), before.len());
        return Err(DiskError::CallerError { dir: to.to_owned(), flaw });
    }
    // A file without a row is like one with zeros: it gets a row only if it changes.
    let unchanged = before.iter().copied().chain(std::iter::repeat_with(FileInfo::default));
    let changed =
        (0..).map(FileNo).zip(&after).zip(unchanged).filter(|((_, after), before)| *after != before);
    rows.extend(changed.map(|((number, info), _)| info.row(number)));
    let with_blocks = after.iter().rposition(|info| info.blocks > 0);
    let new_last_file = with_blocks.filter(|&last| last >= before.len()).map(|last| FileNo(last as u32));
    Ok((rows, new_last_file))
}

#[cfg(test)]
mod tests;

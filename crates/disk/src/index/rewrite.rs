//! Writes a new block index that differs from an existing one in some rows. An index has a million rows, so
//! only those of files are kept in memory.

use super::{BLOCK, FILE, FileInfo, IndexEntry, LAST_FILE, PRUNED, files_by_number, read_last_file};
use crate::{
    error::DiskError,
    table_run::TableRun,
    xor::{OBFUSCATION_ROW, read_database_obfuscation},
};
use digest::obfuscation::Obfuscation;
use leveldb::{Database, write_database};
use std::{collections::BTreeMap, path::Path};
use vfs::{Disk, During as _};
use wire::FileNo;

/// What the new index says of whether block files have been deleted (Core's flag `prunedblockfiles`).
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

/// Writes a changed copy of the block index in `from` into `to`, which is created if it is missing and must
/// not contain a database. The database in `from` is not changed.
///
/// `change` gets each entry, in the byte order of their hashes, and may change all of it but the header and
/// its hash. Blocks of another chain ([`crate::departed`]) are left out. After that, `files` gets what
/// [`super::BlockIndex::files`] contains, and may change it and append to it. All other rows are copied as
/// they are, also those that Peregrine does not know, and so are entries and files that stay the same: older
/// versions of Core wrote some bytes differently. The copy is not obfuscated, even if the database in `from`
/// is.
///
/// Entries are read, changed and written one by one. When the function returns, everything but the name of
/// `to` itself is on the medium; a crash before that leaves no database there.
///
/// # Errors
/// The same errors as [`super::read_block_index`] and [`super::write_block_index`];
/// [`DiskError::CallerError`] if `change` changes a header or a hash, or `files` removes a file.
///
/// # Panics
/// In the same cases as [`IndexEntry::encode`].
pub fn rewrite_block_index(
    disk: &dyn Disk,
    from: &Path,
    to: &Path,
    change: impl FnMut(&mut IndexEntry),
    files: impl FnOnce(&mut Vec<FileInfo>),
) -> Result<(), DiskError> {
    extend_block_index(disk, from, to, std::iter::empty(), PrunedFlag::Keep, change, files)
}

/// Like [`rewrite_block_index`], and adds `added`: entries in the byte order of their hashes. Those whose
/// hash the index in `from` contains are left out: `change` gets the old entry. If `files` appends files with
/// blocks, the last of them becomes the one to which bitcoind appends.
///
/// # Panics
/// In the same cases as [`IndexEntry::encode`].
pub fn extend_block_index(
    disk: &dyn Disk,
    from: &Path,
    to: &Path,
    added: impl Iterator<Item = IndexEntry>,
    pruned: PrunedFlag,
    mut change: impl FnMut(&mut IndexEntry),
    files: impl FnOnce(&mut Vec<FileInfo>),
) -> Result<(), DiskError> {
    let database = Database::open(disk, from)?;
    let obfuscation = read_database_obfuscation(&database, from)?;
    disk.create_dir_all(to).during_creation(to)?;
    let old = OldIndex { database, dir: from, obfuscation };
    let mut rows = TableRun::new(disk, to, 1, 1);
    let (mut has_entries, mut encoded) = (false, Vec::new());
    let mut added = added.peekable();
    let mut lacks_flag = pruned == PrunedFlag::Set;
    old.for_each(&[], Some(&[FILE]), |key, value| {
        if key == OBFUSCATION_ROW {
            return Ok(());
        }
        if key >= PRUNED && std::mem::take(&mut lacks_flag) {
            rows.add(PRUNED, b"1")?;
        }
        if pruned != PrunedFlag::Keep && key == PRUNED {
            return Ok(());
        }
        if key.first() != Some(&BLOCK) {
            return Ok(rows.add(key, value)?);
        }
        has_entries = true;
        let Some(before) = IndexEntry::of_known_row(from, key, value)? else { return Ok(()) };
        while let Some(entry) = added.next_if(|entry| entry.hash <= before.hash) {
            if entry.hash != before.hash {
                add_entry(&mut rows, &entry, &mut encoded)?;
            }
        }
        let mut entry = before;
        change(&mut entry);
        if (entry.hash, entry.header) != (before.hash, before.header) {
            let flaw = format!("the header of block {} cannot change", before.hash);
            return Err(DiskError::CallerError { dir: to.to_owned(), flaw });
        }
        if entry == before {
            return Ok(rows.add(key, value)?);
        }
        add_entry(&mut rows, &entry, &mut encoded)
    })?;
    if lacks_flag {
        rows.add(PRUNED, b"1")?;
    }
    for entry in added {
        add_entry(&mut rows, &entry, &mut encoded)?;
    }
    let (file_rows, new_last_file) = old.file_rows(to, has_entries, files)?;
    for (key, value) in file_rows {
        rows.add(&key, &value)?;
    }
    old.for_each(AFTER_FILES, None, |key, value| match new_last_file {
        Some(number) if key == LAST_FILE => Ok(rows.add(key, &number.0.to_le_bytes())?),
        _ => Ok(rows.add(key, value)?),
    })?;
    let tables = rows.finish()?;
    Ok(write_database(disk, to, &tables)?)
}

/// Adds the row of a block; `value` is a buffer.
fn add_entry(rows: &mut TableRun<'_>, entry: &IndexEntry, value: &mut Vec<u8>) -> Result<(), DiskError> {
    value.clear();
    entry.encode(value);
    Ok(rows.add(&[&[BLOCK][..], &entry.hash.0].concat(), value)?)
}

/// Rows by their keys.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The index that is copied.
struct OldIndex<'a> {
    database: Database<'a>,
    dir: &'a Path,
    obfuscation: Obfuscation,
}

impl OldIndex<'_> {
    /// Calls `row` with each key from `start`, and below `end` if there is one, and its value without
    /// obfuscation.
    fn for_each(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        mut row: impl FnMut(&[u8], &[u8]) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let (mut cursor, mut plain) = (self.database.range(start, end)?, Vec::new());
        while cursor.advance()? {
            plain.clear();
            plain.extend_from_slice(cursor.value());
            self.obfuscation.apply(&mut plain, 0);
            row(cursor.key(), &plain)?;
        }
        Ok(())
    }

    /// Returns all rows whose keys begin like those of files, after `change`, and the number of the last file
    /// if `change` appended it.
    fn file_rows(
        &self,
        to: &Path,
        has_entries: bool,
        change: impl FnOnce(&mut Vec<FileInfo>),
    ) -> Result<(Rows, Option<FileNo>), DiskError> {
        let (mut rows, mut by_number) = (Rows::new(), BTreeMap::new());
        self.for_each(&[FILE], Some(AFTER_FILES), |key, value| {
            if let Some((number, info)) = FileInfo::of_row(self.dir, key, value)? {
                by_number.insert(number, info);
            }
            rows.insert(key.to_vec(), value.to_vec());
            Ok(())
        })?;
        let mut last_file = FileNo(0);
        self.for_each(LAST_FILE, Some(&[LAST_FILE, &[0]].concat()), |key, value| {
            last_file = read_last_file(self.dir, key, value)?;
            Ok(())
        })?;
        let before = files_by_number(self.dir, &by_number, last_file, has_entries)?;
        let mut after = before.clone();
        change(&mut after);
        if after.len() < before.len() {
            let flaw = format!("{} of {} files are left", after.len(), before.len());
            return Err(DiskError::CallerError { dir: to.to_owned(), flaw });
        }
        for (number, info) in (0u32..).zip(&after) {
            // A file without a row is like one with zeros: it gets a row only if it changes.
            if before.get(number as usize).copied().unwrap_or_default() != *info {
                let mut value = Vec::new();
                info.encode(&mut value);
                rows.insert([&[FILE][..], &number.to_le_bytes()].concat(), value);
            }
        }
        let with_blocks = after.iter().rposition(|info| info.blocks > 0);
        let new_last_file = with_blocks.filter(|&last| last >= before.len()).map(|last| FileNo(last as u32));
        Ok((rows, new_last_file))
    }
}

#[cfg(test)]
mod tests;

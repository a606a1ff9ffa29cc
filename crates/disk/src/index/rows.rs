//! The database of a block index: its rows are looked up, read in order, and changed in place.

use super::{BLOCK, BlockIndex, FILE, FileInfo, IndexEntry, LAST_FILE, MAX_FILES, PRUNED, REINDEXING};
use crate::{
    departed,
    error::DiskError,
    row_kinds::{OF_BLOCK_INDEX, refuse_unknown},
    xor::read_database_obfuscation,
};
use digest::obfuscation::Obfuscation;
use leveldb::Database;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use vfs::Disk;
use wire::{BlockHash, FileNo, Header, Height, Reader};

/// A block index whose rows are read and changed.
pub struct IndexRows<'d> {
    database: Database<'d>,
    pub(super) dir: PathBuf,
    obfuscation: Obfuscation,
}

impl<'d> IndexRows<'d> {
    /// Opens the block index in `dir`.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if the database is damaged, [`DiskError::Refused`] if a newer Core wrote it.
    pub fn open(disk: &'d dyn Disk, dir: &Path) -> Result<Self, DiskError> {
        let database = Database::open(disk, dir)?;
        refuse_unknown(&database, dir, OF_BLOCK_INDEX)?;
        let obfuscation = read_database_obfuscation(&database, dir)?;
        Ok(Self { database, dir: dir.to_owned(), obfuscation })
    }

    /// Returns the entry of a block; `None` if the index does not contain it. Only a few blocks of the
    /// database are read.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if the database is damaged, [`DiskError::IndexRow`] if the row is not what Core
    /// writes.
    pub fn entry(&self, hash: &BlockHash) -> Result<Option<IndexEntry>, DiskError> {
        let key = IndexEntry::key(hash);
        let row = self.row(&key)?;
        row.map_or(Ok(None), |value| IndexEntry::of_row(&self.dir, &key, &value))
    }

    /// Returns what the index records about a pair of files; `None` if it does not contain it.
    pub fn file(&self, number: FileNo) -> Result<Option<FileInfo>, DiskError> {
        let key = FileInfo::key(number);
        let row = self.row(&key)?;
        let decoded = row.map(|value| FileInfo::of_row(&self.dir, &key, &value)).transpose()?;
        Ok(decoded.flatten().map(|(_, info)| info))
    }

    /// Returns whether block files have been deleted by pruning.
    pub fn is_pruned(&self) -> Result<bool, DiskError> {
        Ok(self.row(PRUNED)?.is_some_and(|value| value == b"1"))
    }

    /// Streams each entry to `entry`, instead of collecting about 150 MB. Entries come in the byte order of
    /// their hashes, each hash once. The returned index has no entries.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if the database is damaged; [`DiskError::IndexRow`] if a row is not what Core
    /// writes, or if the hash of a header is not its key.
    pub fn stream(&self, mut entry: impl FnMut(IndexEntry)) -> Result<BlockIndex, DiskError> {
        let (mut departed, mut is_empty) = (0, true);
        // Core stops loading at a row that it cannot read.
        self.each(&[BLOCK], Some(&[BLOCK + 1]), |key, value| {
            match IndexEntry::of_row(&self.dir, key, value)? {
                Some(found) => {
                    is_empty = false;
                    entry(found);
                }
                None => departed += 1,
            }
            Ok(())
        })?;
        // Rows of older versions (a transaction index, flags) are ignored.
        Ok(BlockIndex {
            entries: Vec::new(),
            files: self.files(!is_empty)?,
            last_file: self.last_file()?,
            pruned: self.is_pruned()?,
            reindexing: self.row(REINDEXING)?.is_some(),
            departed,
        })
    }

    /// Calls `link` with each block's hash and its parent's, in the order of [`IndexRows::stream`]: a caller
    /// that has all hashes from there can store parents by index. Hashes are taken from the keys, not
    /// checked.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if the database is damaged, [`DiskError::IndexRow`] if a row is too short for a
    /// header.
    pub fn stream_links(&self, mut link: impl FnMut(BlockHash, BlockHash)) -> Result<(), DiskError> {
        self.each(&[BLOCK], Some(&[BLOCK + 1]), |key, value| {
            let hash = key.split_first().and_then(|(_, hash)| hash.try_into().ok());
            let Some(hash) = hash.filter(|_| !departed::is_row(value)) else { return Ok(()) };
            let header = value.last_chunk::<{ Header::LEN }>();
            let header = header.and_then(|header| Header::read(&mut Reader::new(header)).ok());
            let header = header.ok_or_else(|| DiskError::index_row(&self.dir, key, "no header"))?;
            link(BlockHash(hash), header.prev);
            Ok(())
        })
    }

    /// Calls `row` with each key from `start`, and below `end` if there is one, and its value without
    /// obfuscation.
    pub(super) fn each(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        mut row: impl FnMut(&[u8], &[u8]) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let (mut cursor, mut plain) = (self.database.range(start, end)?, Vec::new());
        while cursor.advance()? {
            self.obfuscation.apply_into(cursor.value(), &mut plain);
            row(cursor.key(), &plain)?;
        }
        Ok(())
    }

    /// Returns all files up to the last one, all zeros where there is no row. If the index has no entries,
    /// the row with the number of the last file does not count.
    pub(crate) fn files(&self, has_entries: bool) -> Result<Vec<FileInfo>, DiskError> {
        let mut files = BTreeMap::new();
        self.each(&[FILE], Some(&[FILE + 1]), |key, value| {
            files.extend(FileInfo::of_row(&self.dir, key, value)?);
            Ok(())
        })?;
        let by_last_file = self.last_file()?.0.saturating_add(1);
        let by_rows = files.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        let count = by_rows.max(if has_entries { by_last_file } else { 0 });
        if count > MAX_FILES {
            let flaw = format!("the index lists {count} block files");
            return Err(DiskError::index_row(&self.dir, LAST_FILE, flaw));
        }
        Ok((0..count).map(|number| files.get(&number).copied().unwrap_or_default()).collect())
    }

    fn last_file(&self) -> Result<FileNo, DiskError> {
        let Some(value) = self.row(LAST_FILE)? else { return Ok(FileNo(0)) };
        let number = <[u8; 4]>::try_from(value);
        let flaw = |_| DiskError::index_row(&self.dir, LAST_FILE, "not a file number");
        number.map(|number| FileNo(u32::from_le_bytes(number))).map_err(flaw)
    }

    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, DiskError> {
        let mut value = self.database.get(key)?;
        value.iter_mut().for_each(|value| self.obfuscation.apply(value, 0));
        Ok(value)
    }

    /// Sets the rows of these blocks and pairs of files; rows that stay the same are not written. After a
    /// crash, the index has all of the change or nothing of it.
    ///
    /// The caller has locked the datadir for changes, and what the rows refer to is on the medium.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if the disk fails. If only the last sync failed, the change may be in place;
    /// otherwise, the index is as it was.
    ///
    /// # Panics
    /// In the same cases as [`IndexEntry::encode`].
    pub fn update(&mut self, entries: &[IndexEntry], files: &[(FileNo, FileInfo)]) -> Result<(), DiskError> {
        let file_rows = files.iter().map(|(number, info)| info.row(*number));
        let mut rows: BTreeMap<_, _> = entries.iter().map(IndexEntry::row).chain(file_rows).collect();
        if let Some(last) = files.iter().map(|(number, _)| *number).max()
            && self.last_file()? < last
        {
            rows.insert(LAST_FILE.to_vec(), last.0.to_le_bytes().to_vec());
        }
        let mut changed = Vec::new();
        for (key, mut value) in rows {
            if self.row(&key)?.as_ref() != Some(&value) {
                self.obfuscation.apply(&mut value, 0);
                changed.push((key, value));
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        self.database.merge_if_many(|| false)?;
        let update = self.database.update()?;
        let mut rows = update.range(&[], None);
        for (key, value) in changed {
            rows.set(&key, Some(&value))?;
        }
        let tables = rows.finish()?;
        Ok(update.commit([tables])?)
    }
}

/// Returns the height of a block; `None` if the index does not contain it.
///
/// # Errors
/// Those of [`IndexRows::open`] and [`IndexRows::entry`].
pub fn find_height(disk: &dyn Disk, dir: &Path, hash: &BlockHash) -> Result<Option<Height>, DiskError> {
    Ok(IndexRows::open(disk, dir)?.entry(hash)?.map(|entry| entry.height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{BlockIndex, read_block_index, tests::stored_entry, write_block_index};
    use testkit::fault::FaultDisk;
    use vfs::RealDisk;
    use wire::ByteOffset;

    #[test]
    fn changed_rows_replace_the_old_ones_and_all_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let mut entries: Vec<_> = (0..300).map(stored_entry).collect();
        entries.sort_by_key(|entry| entry.hash);
        let files = vec![FileInfo { blocks: 300, size: 9, ..FileInfo::default() }];
        let mut index = BlockIndex { entries, files, ..BlockIndex::default() };
        write_block_index(&RealDisk, dir.path(), &index).unwrap();

        let mut rows = IndexRows::open(&RealDisk, dir.path()).unwrap();
        assert_eq!(rows.entry(&BlockHash([7; 32])).unwrap(), None);
        for at in [3, 200] {
            let entry = &mut index.entries[at];
            assert_eq!(rows.entry(&entry.hash).unwrap().as_ref(), Some(&*entry));
            (entry.status, entry.undo_pos) = (entry.status.connected(), Some(ByteOffset(77)));
        }
        index.files[0].undo_size = 1000;
        rows.update(&[index.entries[200], index.entries[3]], &[(FileNo(0), index.files[0])]).unwrap();
        assert_eq!(rows.entry(&index.entries[3].hash).unwrap(), Some(index.entries[3]));
        assert_eq!(read_block_index(&RealDisk, dir.path()).unwrap(), index);
        let files = [0, 1].map(|number| rows.file(FileNo(number)).unwrap());
        assert_eq!(files, [Some(index.files[0]), None]);

        index.files.push(FileInfo { blocks: 1, size: 7, ..FileInfo::default() });
        index.last_file = FileNo(1);
        rows.update(&[], &[(FileNo(1), index.files[1]), (FileNo(0), index.files[0])]).unwrap();
        assert_eq!(read_block_index(&RealDisk, dir.path()).unwrap(), index, "the last file is another one");

        let before = RealDisk.list(dir.path()).unwrap();
        rows.update(&[index.entries[200]], &[(FileNo(0), index.files[0])]).unwrap();
        assert_eq!(RealDisk.list(dir.path()).unwrap(), before, "rows that stay the same are not written");
    }

    /// A merge for which there was no space once failed the change, and each one after it.
    #[test]
    fn tables_stay_as_they_are_if_there_is_no_space_to_merge_them() {
        let dir = tempfile::tempdir().unwrap();
        let entries = vec![stored_entry(1)];
        write_block_index(&RealDisk, dir.path(), &BlockIndex { entries, ..BlockIndex::default() }).unwrap();
        let tables_after = |disk: &FaultDisk, tx_count| {
            let mut rows = IndexRows::open(disk, dir.path()).unwrap();
            rows.update(&[IndexEntry { tx_count, ..stored_entry(1) }], &[]).unwrap();
            let names = RealDisk.list(dir.path()).unwrap();
            names.iter().filter(|name| name.as_encoded_bytes().ends_with(b".ldb")).count()
        };
        let full = FaultDisk::healthy().with_free_space(dir.path(), 0);
        // Of thirteen changes, twelve are logs.
        let tables = (2..302).map(|tx_count| tables_after(&full, tx_count)).max().unwrap();
        assert!(tables > 20, "{tables} tables");
        assert!(tables_after(&FaultDisk::healthy(), 302) < 12);
    }
}

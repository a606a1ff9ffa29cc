//! Single rows of a block index: looked up by the hash of their block, and changed in place.

use super::{BLOCK, FILE, FileInfo, IndexEntry, LAST_FILE, PRUNED, read_last_file};
use crate::{
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
use wire::{BlockHash, FileNo, Height};

/// A block index whose rows are looked up and changed.
pub struct IndexRows<'d> {
    database: Database<'d>,
    dir: PathBuf,
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

    /// Returns the entry of a block; `None` if the index does not contain it.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if the database is damaged, [`DiskError::IndexRow`] if the row is not what Core
    /// writes.
    pub fn entry(&self, hash: &BlockHash) -> Result<Option<IndexEntry>, DiskError> {
        let key = [&[BLOCK][..], &hash.0].concat();
        let row = self.row(&key)?;
        row.map_or(Ok(None), |value| IndexEntry::of_known_row(&self.dir, &key, &value))
    }

    /// Returns what the index records about a pair of files; `None` if it does not contain it.
    pub fn file(&self, number: FileNo) -> Result<Option<FileInfo>, DiskError> {
        let key = [&[FILE][..], &number.0.to_le_bytes()].concat();
        let row = self.row(&key)?;
        let decoded = row.map(|value| FileInfo::of_row(&self.dir, &key, &value)).transpose()?;
        Ok(decoded.flatten().map(|(_, info)| info))
    }

    /// Returns whether block files have been deleted by pruning.
    pub fn is_pruned(&self) -> Result<bool, DiskError> {
        Ok(self.row(PRUNED)?.is_some_and(|value| value == b"1"))
    }

    /// Number of the last pair of files.
    fn last_file(&self) -> Result<u32, DiskError> {
        let row = self.row(LAST_FILE)?;
        Ok(row
            .map(|value| read_last_file(&self.dir, LAST_FILE, &value))
            .transpose()?
            .map_or(0, |last| last.0))
    }

    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, DiskError> {
        let mut value = self.database.get(key)?;
        if let Some(value) = &mut value {
            self.obfuscation.apply(value, 0);
        }
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
        let mut rows = BTreeMap::new();
        for entry in entries {
            let mut value = Vec::new();
            entry.encode(&mut value);
            rows.insert([&[BLOCK][..], &entry.hash.0].concat(), value);
        }
        for (number, info) in files {
            let mut value = Vec::new();
            info.encode(&mut value);
            rows.insert([&[FILE][..], &number.0.to_le_bytes()].concat(), value);
        }
        if let Some((last, _)) = files.iter().max_by_key(|(number, _)| *number)
            && self.last_file()? < last.0
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
        self.database.merge_if_many()?;
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
/// [`DiskError::LevelDb`] if the database is damaged, [`DiskError::IndexRow`] if the row is not what Core
/// writes.
pub fn find_height(disk: &dyn Disk, dir: &Path, hash: &BlockHash) -> Result<Option<Height>, DiskError> {
    Ok(find_entry(disk, dir, hash)?.map(|entry| entry.height))
}

/// Returns the entry of a block; `None` if the index does not contain it. Only a few blocks of the database
/// are read.
pub fn find_entry(disk: &dyn Disk, dir: &Path, hash: &BlockHash) -> Result<Option<IndexEntry>, DiskError> {
    IndexRows::open(disk, dir)?.entry(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{BlockIndex, BlockStatus, read_block_index, write_block_index};
    use vfs::RealDisk;
    use wire::{ByteOffset, Header, Height};

    #[test]
    fn changed_rows_replace_the_old_ones_and_all_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let entry = |nonce: u32| {
            let header = Header { nonce, ..Header::default() };
            let status = BlockStatus::stored(true);
            let (file, data_pos) = (Some(FileNo(0)), Some(ByteOffset(8)));
            let of_header = IndexEntry::of_header(header.hash(), header, Height(nonce));
            IndexEntry { status, tx_count: 1, file, data_pos, ..of_header }
        };
        let mut entries: Vec<_> = (0..300).map(entry).collect();
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
}

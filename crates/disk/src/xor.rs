//! The keys with which Core obfuscates files: `blocks/xor.dat` for blk and rev files, a row in a database
//! for its values.
//!
//! `xor.dat` is 8 bytes, written by Core `node/blockstorage.cpp` `InitBlocksdirXorKey` when the blocks
//! folder is new; folders from before Core 28 have a key of zeros or no file, which both mean plain bytes.
//! Byte `n` of a file is XORed with byte `n % 8` of the key.
//!
//! A database has the row `0e 00 "obfuscate_key"` (a string with its length first) with the value `08` | key
//! 8, itself not obfuscated; byte `n` of any other value is XORed with byte `n % 8` of the key, keys are
//! plain (Core `dbwrapper.cpp`). Core makes the row when it creates a chainstate; the block index has none.
//! Without the row values are plain. Losing either key makes everything it covers unreadable, so neither is
//! ever written over.

use crate::error::DiskError;
use crate::fs::{Disk, During as _};
use crate::leveldb::Database;
use digest::obfuscation::Obfuscation;
use std::path::Path;

/// Key of a database's row that holds its obfuscation key (Core `CDBWrapper::OBFUSCATION_KEY`).
pub const OBFUSCATION_ROW: &[u8] = b"\x0e\x00obfuscate_key";

/// Reads `xor.dat` in the folder `blocks_dir`; plain if there is none.
///
/// # Errors
/// [`DiskError::Damaged`] if it has not 8 bytes, [`DiskError::File`] if it cannot be read.
pub fn read_block_obfuscation(disk: &dyn Disk, blocks_dir: &Path) -> Result<Obfuscation, DiskError> {
    let path = blocks_dir.join("xor.dat");
    let Some(found) = disk.metadata(&path).during("look at", &path)? else {
        return Ok(Obfuscation::default());
    };
    if found.len != 8 {
        let flaw = format!(
            "the key has {} bytes instead of 8; restore it, block files cannot be read without it",
            found.len
        );
        return Err(DiskError::Damaged { path, offset: 0, flaw });
    }
    let bytes = disk.read(&path, 8).during("read", &path)?;
    let mut key = [0; 8];
    key.copy_from_slice(&bytes);
    Ok(Obfuscation::from_key(key))
}

/// Reads the obfuscation key of a database; plain if it has none.
pub(crate) fn read_database_obfuscation(
    database: &Database<'_>,
    dir: &Path,
) -> Result<Obfuscation, DiskError> {
    match database.get(OBFUSCATION_ROW)?.as_deref() {
        None => Ok(Obfuscation::default()),
        Some([8, key @ ..]) if key.len() == 8 => {
            Ok(Obfuscation::from_key(key.first_chunk().copied().unwrap_or_default()))
        }
        Some(_) => Err(DiskError::row(
            dir,
            OBFUSCATION_ROW,
            "the obfuscation key has not 8 bytes; rebuild the database",
        )),
    }
}

/// The value of [`OBFUSCATION_ROW`].
pub(crate) fn obfuscation_row_value(obfuscation: Obfuscation) -> [u8; 9] {
    let mut value = [8; 9];
    for (to, from) in value.iter_mut().skip(1).zip(obfuscation.key()) {
        *to = from;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::RealDisk;

    #[test]
    fn absent_is_plain_and_a_wrong_length_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let read = || read_block_obfuscation(&RealDisk, dir.path());
        assert!(read().unwrap().is_zero());
        let path = dir.path().join("xor.dat");
        for len in [0, 7, 9] {
            RealDisk.create(&path).unwrap().write_all(&[1; 9][..len]).unwrap();
            let error = read().unwrap_err().to_string();
            assert!(error.contains("xor.dat") && error.contains("restore"), "{error}");
            RealDisk.remove_file(&path).unwrap();
        }
        let key = [1, 2, 3, 4, 5, 6, 7, 8];
        RealDisk.create(&path).unwrap().write_all(&key).unwrap();
        assert_eq!(read().unwrap().key(), key);
        assert_eq!(obfuscation_row_value(read().unwrap()), [8, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}

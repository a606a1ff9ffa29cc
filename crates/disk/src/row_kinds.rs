//! Refuses databases with rows of kinds that this version does not know: a newer Core has written them, and
//! a program that changed or replaced the database would lose what they mean.
//!
//! The first byte of a key is the kind of its row (Core `node/blockstorage.cpp` and `txdb.cpp`).

use crate::error::DiskError;
use leveldb::{Database, LevelDbError};
use std::path::Path;

/// Kinds of rows in a chainstate: the obfuscation key, then others; `c` is the coins of Core before 0.15.
pub(crate) const OF_CHAINSTATE: &[u8] = b"\x0eBCHc";

/// Kinds of rows in a block index, likewise; `t` and `T` are the `txindex` of Core before 0.17, and `I` the
/// work of an invalid chain, which the first releases noted and later ones ignore.
pub(crate) const OF_BLOCK_INDEX: &[u8] = b"\x0eFIRTbflt";

/// Returns an error if the database in `dir` has a row whose kind is not among `known`, which are in
/// ascending order.
///
/// # Errors
/// [`DiskError::Refused`] if there is such a row, [`DiskError::LevelDb`] if the database is damaged.
pub(crate) fn refuse_unknown(database: &Database<'_>, dir: &Path, known: &[u8]) -> Result<(), DiskError> {
    let Some(kind) = other_kind(database, known)? else { return Ok(()) };
    let flaw = format!(
        "a row of kind {kind:02x} (hexadecimal), which this version of Peregrine does not know: a newer \
         Bitcoin Core wrote it; use a newer version of Peregrine, or let that bitcoind do the work"
    );
    Err(DiskError::Refused { path: dir.to_owned(), flaw })
}

/// Returns the kind of a row that is not among `known`, which are in ascending order; `None` if all rows are
/// of these kinds. Takes one look-up for each kind.
pub(crate) fn other_kind(database: &Database<'_>, known: &[u8]) -> Result<Option<u8>, LevelDbError> {
    let mut start = 0;
    for end in known.iter().map(Some).chain([None]) {
        let after = end.map(|end| [*end]);
        let mut rows = database.range(&[start], after.as_ref().map(|end| &end[..]))?;
        if rows.advance()? {
            return Ok(rows.key().first().copied());
        }
        start = end.map_or(0, |end| end + 1);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        chainstate::ChainstateReader,
        chainstate::read_best_block,
        index::{IndexRows, read_block_index},
    };
    use leveldb::write_database;
    use vfs::RealDisk;

    /// A database whose rows have these keys.
    fn database(keys: &[&[u8]]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        write_database(&RealDisk, dir.path(), keys.iter().map(|key| (key, [0; 32]))).unwrap();
        dir
    }

    fn is_refused<T>(result: Result<T, DiskError>) -> bool {
        matches!(result, Err(DiskError::Refused { .. }))
    }

    #[test]
    fn a_row_of_an_unknown_kind_is_refused_wherever_it_is() {
        for keys in [[&b"\x01"[..], b"B"], [b"A", b"B"], [b"B", b"D"], [b"B", b"d"], [b"B", b"\xff"]] {
            let dir = database(&keys);
            assert!(is_refused(ChainstateReader::open(&RealDisk, dir.path())), "{keys:?}");
            assert!(is_refused(read_best_block(&RealDisk, dir.path())), "{keys:?}");
        }
        assert!(!is_refused(ChainstateReader::open(&RealDisk, database(&[b"B", b"C1", b"C2"]).path())));
        for keys in [[&b"\x01"[..], b"l"], [b"B", b"l"], [b"c", b"l"], [b"l", b"m"], [b"l", b"\xff"]] {
            let dir = database(&keys);
            assert!(is_refused(read_block_index(&RealDisk, dir.path())), "{keys:?}");
            assert!(is_refused(IndexRows::open(&RealDisk, dir.path())), "{keys:?}");
        }
        assert!(IndexRows::open(&RealDisk, database(&[b"T", b"f1", b"l", b"t1"]).path()).is_ok());
    }
}

//! `chainstate`: the LevelDB that contains the UTXO set.
//!
//! Core writes it incrementally with `CCoinsViewDB::BatchWrite` (`txdb.cpp`); this module writes all coins in
//! one pass, in key order, or adds the changes of some blocks to them, all at once.
//!
//! ```text
//! 0e 00 "obfuscate_key"          -> 08 | key 8      written when the database is created     (xor)
//! 'B'                            -> block hash 32   the best block: the coins are those after it
//! 'C' | txid 32 | VARINT(vout)   -> coin            (wire::coin)
//! 'H'                            -> two hashes      in place of 'B' while a flush is in progress
//! ```
//! All values but the first are obfuscated. Keys sort by bytes: by txid, then by VARINT(vout), which from
//! 16512 on is not numeric order (`wire::coin::chainstate_key_order`). A mainnet set has 180 million rows of
//! about 65 bytes, 12 GB in tables of 32 MiB.
//!
//! Core flushes in several batches: a crash between them leaves 'H' instead of 'B', and coins of two blocks
//! mixed, from which Core replays blocks. Peregrine does not: [`DiskError::InterruptedFlush`]. This module
//! writes `CURRENT` only when everything else is on the medium, so a crash leaves a directory that is not a
//! database yet.
//!
//! The tables, their numbers and their bytes depend only on the coins, their division into ranges and the
//! obfuscation key.

use crate::error::DiskError;
use crate::row_kinds::{OF_CHAINSTATE, refuse_unknown};
use crate::xor::{OBFUSCATION_ROW, obfuscation_row_value, read_database_obfuscation};
use digest::obfuscation::Obfuscation;
use leveldb::{Cursor, Database, DatabaseUpdate, Lookup, OPEN_TABLE_BYTES, RangeUpdate};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};
use vfs::{Disk, During as _};
use wire::coin::{COIN_KEY_PREFIX, split_chainstate_key, write_chainstate_key};
use wire::{BlockHash, Coin, CoinError, OutPoint, Reader, Txid};

pub use leveldb::{ChangedRange, UnsyncedRange};

const BEST_BLOCK: &[u8] = b"B";
const HEAD_BLOCKS: &[u8] = b"H";
/// Prefix of coins in the format of Core before 0.15: one row for all outputs of a transaction.
const OLD_COINS: u8 = b'c';

/// Maximum length of a coin's key: prefix, txid, VARINT of 32 bits.
const COIN_KEY_LEN_MAX: usize = 1 + 32 + 5;

/// Returns the best block of the chainstate in `dir`, without reading coins; `None` if there is no database.
/// After an interrupted flush, it is the block that Core was flushing to: Core completes the flush at its
/// next start.
///
/// # Errors
/// The same errors as [`ChainstateReader::open`], except [`DiskError::InterruptedFlush`].
pub fn read_best_block(disk: &dyn Disk, dir: &Path) -> Result<Option<BlockHash>, DiskError> {
    Ok(read_heads(disk, dir)?.first().copied())
}

/// Returns the best block; after an interrupted flush, the block to which Core was flushing, and the one from
/// which (zeros if there was none). Empty if there is no chainstate.
///
/// # Errors
/// Those of [`read_best_block`].
pub fn read_heads(disk: &dyn Disk, dir: &Path) -> Result<Vec<BlockHash>, DiskError> {
    let current = dir.join("CURRENT");
    if !disk.exists(&current).during("look for", &current)? {
        return Ok(Vec::new());
    }
    let database = Database::open(disk, dir)?;
    refuse_unknown(&database, dir, OF_CHAINSTATE)?;
    let obfuscation = read_database_obfuscation(&database, dir)?;
    let heads = database.get(HEAD_BLOCKS)?;
    let Some(mut value) = heads.or(database.get(BEST_BLOCK)?) else { return Ok(Vec::new()) };
    obfuscation.apply(&mut value, 0);
    // Two hashes after their number, or one hash.
    let hashes = if value.len() == 65 { value.split_off(1) } else { value };
    Ok(hashes.as_chunks().0.iter().copied().map(BlockHash).collect())
}

/// A chainstate, open for reading by any number of threads. Only [`ChainstateReader::update`] changes it.
pub struct ChainstateReader<'d> {
    database: Database<'d>,
    dir: PathBuf,
    best_block: BlockHash,
    obfuscation: Obfuscation,
}

impl<'d> ChainstateReader<'d> {
    /// Opens the chainstate in `dir`.
    ///
    /// # Errors
    /// [`DiskError::InterruptedFlush`] if Core was stopped while it wrote; [`DiskError::Row`] if it has no
    /// best block or is from before Core 0.15; [`DiskError::Refused`] if it is of a newer kind than known;
    /// [`DiskError::LevelDb`] if it is not a database or damaged.
    pub fn open(disk: &'d dyn Disk, dir: &Path) -> Result<Self, DiskError> {
        let database = Database::open(disk, dir)?;
        refuse_unknown(&database, dir, OF_CHAINSTATE)?;
        let obfuscation = read_database_obfuscation(&database, dir)?;
        if database.get(HEAD_BLOCKS)?.is_some() {
            return Err(DiskError::InterruptedFlush { dir: dir.to_owned() });
        }
        if database.range(&[OLD_COINS], Some(&[OLD_COINS + 1]))?.advance()? {
            let flaw = "a coin in the format of Bitcoin Core before 0.15; rebuild the chainstate";
            return Err(DiskError::row(dir, &[OLD_COINS], flaw));
        }
        let mut hash = database.get(BEST_BLOCK)?.unwrap_or_default();
        obfuscation.apply(&mut hash, 0);
        let Ok(hash) = <[u8; 32]>::try_from(hash) else {
            let flaw = "no best block: the chainstate is empty or damaged, rebuild it";
            return Err(DiskError::row(dir, BEST_BLOCK, flaw));
        };
        Ok(Self { database, dir: dir.to_owned(), best_block: BlockHash(hash), obfuscation })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The best block: the coins are those after it.
    pub const fn best_block(&self) -> BlockHash {
        self.best_block
    }

    pub const fn obfuscation(&self) -> Obfuscation {
        self.obfuscation
    }

    /// Total size of the database's tables, in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.database.table_bytes()
    }

    pub fn coins(&self) -> Result<CoinCursor<'_>, DiskError> {
        self.coins_between(&[], None)
    }

    /// Returns a cursor over the coins whose txid (internal byte order) is at least `first` and below `end`,
    /// compared as bytes; both may be prefixes. Threads can read adjacent ranges in parallel.
    pub fn coins_between(&self, first: &[u8], end: Option<&[u8]>) -> Result<CoinCursor<'_>, DiskError> {
        let start = [&[COIN_KEY_PREFIX], first].concat();
        let end = end.map_or_else(|| vec![COIN_KEY_PREFIX + 1], |end| [&[COIN_KEY_PREFIX], end].concat());
        let rows = self.database.range(&start, Some(&end))?;
        Ok(CoinCursor {
            rows,
            dir: &self.dir,
            obfuscation: self.obfuscation,
            outpoint: OutPoint { txid: Txid([0; 32]), vout: 0 },
            code: 0,
            value: Vec::new(),
            out_start: 0,
        })
    }

    /// Returns a [`CoinLookup`], for use on one thread.
    pub fn lookup(&self) -> CoinLookup<'_> {
        let rows = self.database.lookup(&[COIN_KEY_PREFIX], Some(&[COIN_KEY_PREFIX + 1]));
        let (dir, obfuscation) = (&self.dir, self.obfuscation);
        let (key, value) = (Vec::with_capacity(COIN_KEY_LEN_MAX), Vec::new());
        CoinLookup { rows, dir, obfuscation, key, value }
    }
}

/// Looks up coins, at the least cost if they are in the order of keys.
pub struct CoinLookup<'a> {
    rows: Lookup<'a>,
    dir: &'a Path,
    obfuscation: Obfuscation,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl CoinLookup<'_> {
    /// Whether the chainstate surely has no coins.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the coin at `outpoint`; `None` if there is no such coin.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if the database is damaged, [`DiskError::Row`] if the row is not a coin.
    pub fn coin(&mut self, outpoint: &OutPoint) -> Result<Option<Coin<'_>>, DiskError> {
        self.key.clear();
        write_chainstate_key(&mut self.key, outpoint);
        if !self.rows.get(&self.key, &mut self.value)? {
            return Ok(None);
        }
        self.obfuscation.apply(&mut self.value, 0);
        let coin = Coin::read_chainstate_value(&self.value).and_then(|coin| coin.output().map(|_| coin));
        let damaged = |flaw| DiskError::row(self.dir, &self.key, format!("{flaw}; rebuild the chainstate"));
        coin.map(Some).map_err(damaged)
    }
}

impl<'d> ChainstateReader<'d> {
    /// Lets look-ups use about this much memory for tables that stay open.
    pub fn keep_open(&mut self, bytes: u64) {
        self.database.keep_open(usize::try_from(bytes / OPEN_TABLE_BYTES).unwrap_or(usize::MAX));
    }

    /// Begins a new chainstate in `dir`, which is created if it is missing and must not contain a database.
    /// Its values are obfuscated with `obfuscation`, which the caller chooses at random. There is no database
    /// until the first change is committed ([`ChainstateUpdate::numbered_range`]).
    ///
    /// # Errors
    /// [`DiskError::File`] if the directory cannot be created.
    pub fn create(disk: &'d dyn Disk, dir: &Path, obfuscation: Obfuscation) -> Result<Self, DiskError> {
        disk.create_dir_all(dir).during_creation(dir)?;
        let (database, best_block) = (Database::new(disk, dir), BlockHash::default());
        Ok(Self { database, dir: dir.to_owned(), best_block, obfuscation })
    }

    /// Begins a change of the database: `best_block` becomes the best block, and coins are set or deleted.
    /// After a crash, the database has all of the change or nothing of it. The obfuscation stays.
    ///
    /// The caller has locked the datadir for changes.
    pub fn update(&mut self, best_block: BlockHash) -> Result<ChainstateUpdate<'_, 'd>, DiskError> {
        let Self { database, dir, best_block: best, obfuscation } = self;
        let (rows, expected) = (database.update()?, AtomicU32::new(0));
        Ok(ChainstateUpdate { rows, dir, best, best_block, obfuscation: *obfuscation, expected })
    }

    /// Whether LevelDB would compact tables for long when it opens the database, unless they are merged.
    pub fn has_full_level(&self) -> bool {
        self.database.has_full_level()
    }

    /// Whether look-ups are slow because level 0 has many tables.
    pub fn has_many_tables(&self) -> bool {
        self.database.has_many_tables()
    }

    /// Begins to merge tables, so that look-ups stay fast after many changes; `None` if there is nothing to
    /// merge. The coins stay the same.
    pub fn begin_merge(&mut self) -> Result<Option<DatabaseUpdate<'_, 'd>>, DiskError> {
        Ok(self.database.begin_merge()?)
    }
}

/// A change of a chainstate that is being written, by any number of threads, none of which waits for another.
/// If it is dropped before [`ChainstateUpdate::commit`], the chainstate is as it was.
pub struct ChainstateUpdate<'a, 'd> {
    rows: DatabaseUpdate<'a, 'd>,
    dir: &'a Path,
    best: &'a mut BlockHash,
    best_block: BlockHash,
    obfuscation: Obfuscation,
    /// Number of ranges that the change consists of.
    expected: AtomicU32,
}

/// Number of the table of a new chainstate that has all other rows; the tables of coins have higher numbers.
const META_TABLE: u64 = 1;

impl ChainstateUpdate<'_, '_> {
    /// Begins the changes of the coins from `start` on, below `end`, in the order of keys; `None` for the
    /// first and the last range. Ranges must not overlap, and together contain all coins.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if the disk fails.
    pub fn range(
        &self,
        start: Option<&OutPoint>,
        end: Option<&OutPoint>,
    ) -> Result<CoinRange<'_>, DiskError> {
        let mut rows = self.rows.range(&key_of(start).unwrap_or_default(), key_of(end).as_deref());
        if start.is_none() {
            rows.set(BEST_BLOCK, Some(&self.best_row()))?;
        }
        self.expected.fetch_add(1, Ordering::Relaxed);
        Ok(self.coins(rows))
    }

    /// Begins the range `index` of `count` ranges of a new chainstate. The caller divides the keys; ranges
    /// must not overlap.
    ///
    /// # Panics
    /// If `index` is not below `count`: table numbers would collide; if the chainstate is not new.
    pub fn numbered_range(&self, index: u32, count: u32) -> CoinRange<'_> {
        assert!(index < count, "range {index} of {count}");
        self.expected.fetch_max(count, Ordering::Relaxed);
        self.coins(self.rows.numbered_range(META_TABLE + 1 + u64::from(index), count as usize))
    }

    fn coins<'u>(&self, rows: RangeUpdate<'u>) -> CoinRange<'u> {
        let (key, value) = (Vec::with_capacity(COIN_KEY_LEN_MAX), Vec::new());
        CoinRange { rows, obfuscation: self.obfuscation, key, value }
    }

    /// The value of the row of the best block.
    fn best_row(&self) -> [u8; 32] {
        let mut hash = self.best_block.0;
        self.obfuscation.apply(&mut hash, 0);
        hash
    }

    /// Puts the change in place; `ranges` are all ranges, in any order. When it returns, everything but the
    /// name of the directory itself is on the medium.
    ///
    /// # Errors
    /// [`DiskError::CallerError`] if a range is missing; [`DiskError::LevelDb`] if ranges overlap or the disk
    /// fails. If only the last sync failed, the change may be in place; otherwise, the database is as it was.
    pub fn commit(self, ranges: impl IntoIterator<Item = ChangedRange>) -> Result<(), DiskError> {
        let mut ranges: Vec<ChangedRange> = ranges.into_iter().collect();
        let (finished, expected) = (ranges.len(), self.expected.load(Ordering::Relaxed));
        if finished != expected as usize {
            let flaw = format!("{finished} of {expected} ranges are finished");
            return Err(DiskError::CallerError { dir: self.dir.to_owned(), flaw });
        }
        if self.rows.is_of_new() {
            let mut meta = self.rows.numbered_range(META_TABLE, 1);
            meta.set(OBFUSCATION_ROW, Some(&obfuscation_row_value(self.obfuscation)))?;
            meta.set(BEST_BLOCK, Some(&self.best_row()))?;
            ranges.push(meta.finish()?);
        }
        self.rows.commit(ranges)?;
        *self.best = self.best_block;
        Ok(())
    }
}

/// Writes the coins of one range. It needs an output buffer of 1 MiB, and about 2 MiB of memory for filter
/// and index of the open table.
pub struct CoinRange<'u> {
    rows: RangeUpdate<'u>,
    obfuscation: Obfuscation,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl CoinRange<'_> {
    /// Sets a coin, or deletes it if it is `None`; outpoints must ascend in key order.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if they do not, or the disk fails.
    #[inline]
    pub fn set(&mut self, outpoint: &OutPoint, coin: Option<&Coin<'_>>) -> Result<(), DiskError> {
        self.key.clear();
        write_chainstate_key(&mut self.key, outpoint);
        self.value.clear();
        if let Some(coin) = coin {
            coin.write_chainstate_value(&mut self.value);
            self.obfuscation.apply(&mut self.value, 0);
        }
        Ok(self.rows.set(&self.key, coin.is_some().then_some(&self.value[..]))?)
    }

    /// Completes the range, which may be empty, and syncs its tables.
    pub fn finish(self) -> Result<ChangedRange, DiskError> {
        Ok(self.rows.finish()?)
    }

    /// Completes the range; the caller syncs its tables.
    pub fn complete(self) -> Result<UnsyncedRange, DiskError> {
        Ok(self.rows.complete()?)
    }
}

fn key_of(outpoint: Option<&OutPoint>) -> Option<Vec<u8>> {
    outpoint.map(|outpoint| {
        let mut key = Vec::with_capacity(COIN_KEY_LEN_MAX);
        write_chainstate_key(&mut key, outpoint);
        key
    })
}

/// A cursor over coins in key order.
pub struct CoinCursor<'a> {
    rows: Cursor<'a>,
    dir: &'a Path,
    obfuscation: Obfuscation,
    outpoint: OutPoint,
    code: u32,
    /// The row's value without obfuscation; the output, which follows the code, begins at `out_start`.
    value: Vec<u8>,
    out_start: usize,
}

impl CoinCursor<'_> {
    /// Returns the next coin, which borrows the cursor's buffer; `None` after the last.
    ///
    /// # Errors
    /// [`DiskError::Row`] if a row is not a coin; [`DiskError::LevelDb`] if the database is damaged.
    pub fn advance(&mut self) -> Result<Option<(OutPoint, Coin<'_>)>, DiskError> {
        if !self.step()? {
            return Ok(None);
        }
        self.coin().output().map_err(|flaw| self.flaw(flaw))?;
        Ok(Some((self.outpoint, self.coin())))
    }

    /// Moves to the next coin without validating its output. Returns false after the last.
    #[inline]
    pub(crate) fn step(&mut self) -> Result<bool, DiskError> {
        if !self.rows.advance()? {
            return Ok(false);
        }
        self.obfuscation.apply_into(self.rows.value(), &mut self.value);
        self.split_row().map_err(|flaw| self.flaw(flaw))?;
        Ok(true)
    }

    #[inline]
    fn split_row(&mut self) -> Result<(), CoinError> {
        let (txid, vout) = split_chainstate_key(self.rows.key())?;
        self.outpoint.txid.0 = *txid;
        self.outpoint.vout = vout;
        let mut reader = Reader::new(&self.value);
        let code = reader.var_int()?;
        self.code = u32::try_from(code).map_err(|_| CoinError::Code(code))?;
        self.out_start = reader.position();
        Ok(())
    }

    pub(crate) const fn outpoint(&self) -> &OutPoint {
        &self.outpoint
    }

    pub(crate) fn coin(&self) -> Coin<'_> {
        Coin { code: self.code, out: self.value.get(self.out_start..).unwrap_or_default() }
    }

    /// Returns the error for the current row.
    #[cold]
    pub(crate) fn flaw(&self, flaw: CoinError) -> DiskError {
        DiskError::row(self.dir, self.rows.key(), format!("{flaw}; rebuild the chainstate"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leveldb::write_database;
    use proptest::{collection::btree_set, collection::vec, prelude::*};
    use vfs::RealDisk;
    use wire::Sats;
    use wire::coin::{chainstate_key_order, compressed_output};

    const KEY: [u8; 8] = [0xde, 0xad, 0xbe, 0xef, 0, 1, 2, 3];
    const BEST: BlockHash = BlockHash([5; 32]);

    type Coins = Vec<(OutPoint, u32, Vec<u8>)>;

    fn write(dir: &Path, coins: &Coins, splits: &[u8]) {
        let ranges = splits.len() as u32 + 1;
        let mut new = ChainstateReader::create(&RealDisk, dir, Obfuscation::from_key(KEY)).unwrap();
        let update = new.update(BEST).unwrap();
        let mut open: Vec<_> = (0..ranges).map(|index| update.numbered_range(index, ranges)).collect();
        for (outpoint, code, out) in coins {
            let range = splits.iter().filter(|&&split| split <= outpoint.txid.0[0]).count();
            open[range].set(outpoint, Some(&Coin { code: *code, out })).unwrap();
        }
        let finished: Vec<_> = open.into_iter().rev().map(|range| range.finish().unwrap()).collect();
        update.commit(finished).unwrap();
    }

    fn read(dir: &Path) -> Coins {
        let reader = ChainstateReader::open(&RealDisk, dir).unwrap();
        assert_eq!((reader.best_block(), reader.obfuscation().key()), (BEST, KEY));
        let (mut cursor, mut coins) = (reader.coins().unwrap(), Vec::new());
        while let Some((outpoint, coin)) = cursor.advance().unwrap() {
            coins.push((outpoint, coin.code, coin.out.to_vec()));
        }
        for (outpoint, code, out) in &coins {
            assert_eq!(reader.lookup().coin(outpoint).unwrap(), Some(Coin { code: *code, out }));
        }
        coins
    }

    fn arb_coins() -> impl Strategy<Value = Coins> {
        // Few transactions with many outputs, around the vout from which key order is not numeric order.
        let vout = prop_oneof![0u32..4, 16_510u32..16_515, any::<u32>()];
        let coin = (any::<u32>(), 0i64..Sats::MAX_MONEY.0, vec(any::<u8>(), 0..40));
        (btree_set((0u8..=255, vout), 0..40), vec(coin, 40)).prop_map(|(outpoints, coins)| {
            let mut outpoints: Vec<_> =
                outpoints.into_iter().map(|(byte, vout)| OutPoint { txid: Txid([byte; 32]), vout }).collect();
            outpoints.sort_by(chainstate_key_order);
            let compress = |(outpoint, (code, amount, script)): (OutPoint, (u32, i64, Vec<u8>))| {
                (outpoint, code, compressed_output(Sats(amount), &script))
            };
            outpoints.into_iter().zip(coins).map(compress).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn coins_round_trip_however_they_are_divided(
            coins in arb_coins(), mut splits in vec(any::<u8>(), 0..4)
        ) {
            splits.sort_unstable();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("chainstate");
            write(&path, &coins, &splits);
            prop_assert_eq!(read(&path), coins);
        }
    }

    #[test]
    fn each_unusable_chainstate_has_its_own_error() {
        for (rows, want) in [
            (
                vec![(&b"B"[..], vec![0; 32]), (b"H", vec![2])],
                "bitcoind was stopped while it wrote the chainstate",
            ),
            (vec![(b"C", vec![0; 3])], "no best block"),
            (vec![(b"B", vec![0; 31])], "no best block"),
            (vec![(b"B", vec![0; 32]), (b"c", vec![0])], "before 0.15"),
            (
                vec![(OBFUSCATION_ROW, vec![7; 8]), (b"B", vec![0; 32])],
                "obfuscation key does not have 8 bytes",
            ),
        ] {
            let dir = tempfile::tempdir().unwrap();
            write_database(&RealDisk, dir.path(), rows).unwrap();
            let error = ChainstateReader::open(&RealDisk, dir.path()).err().unwrap().to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn reports_a_damaged_row_by_its_key_and_a_missing_range() {
        let dir = tempfile::tempdir().unwrap();
        let coin = (OutPoint { txid: Txid([0xab; 32]), vout: 0 }, 4, vec![0, 9]);
        write(dir.path(), &vec![coin], &[]);
        let reader = ChainstateReader::open(&RealDisk, dir.path()).unwrap();
        let error = reader.coins().unwrap().advance().unwrap_err().to_string();
        assert!(error.contains("row 43abab") && error.contains("ends early"), "{error}");
        assert_eq!(reader.lookup().coin(&OutPoint::NULL).unwrap(), None);

        let path = dir.path().join("other");
        let mut new = ChainstateReader::create(&RealDisk, &path, Obfuscation::default()).unwrap();
        let update = new.update(BEST).unwrap();
        let one = update.numbered_range(0, 2).finish().unwrap();
        assert_eq!(one.rows(), 0);
        let error = update.commit([one]).unwrap_err().to_string();
        assert!(error.contains("1 of 2 ranges"), "{error}");
        assert!(!path.join("CURRENT").exists());
    }
}

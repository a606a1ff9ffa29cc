//! `chainstate`: the LevelDB that holds the UTXO set.
//!
//! Written by Core `CCoinsViewDB::BatchWrite` (`txdb.cpp`), and here bottom-up, in one go.
//!
//! ```text
//! 0e 00 "obfuscate_key"          -> 08 | key 8      written when the database is made     (xor)
//! 'B'                            -> block hash 32   the coins are those after this block
//! 'C' | txid 32 | VARINT(vout)   -> coin            (wire::coin)
//! 'H'                            -> two hashes      in place of 'B' while a flush is under way
//! ```
//! All values but the first are obfuscated. Keys sort by bytes: by txid, then by VARINT(vout), which from
//! 16512 on is not numeric order (`wire::coin::chainstate_key_order`). A mainnet set has 180 million rows of
//! about 65 bytes, 12 GB in tables of 32 MiB.
//!
//! Core flushes in several batches: a crash in between leaves 'H' instead of 'B', coins of two blocks mixed,
//! and Core replays blocks from there. We do not: [`DiskError::InterruptedFlush`]. What is written here has
//! no `CURRENT` before all of it is on the medium, so a crash leaves a directory that is no database yet.
//!
//! Which tables there are, their numbers and bytes depend on the coins, their division into ranges and the
//! key only.

use crate::error::DiskError;
use crate::fs::{Disk, During as _};
use crate::leveldb::{Cursor, Database, TableMeta, UnsyncedTable, write_database};
use crate::table_run::TableRun;
use crate::xor::{OBFUSCATION_ROW, obfuscation_row_value, read_database_obfuscation};
use digest::obfuscation::Obfuscation;
use std::path::{Path, PathBuf};
use wire::coin::{COIN_KEY_PREFIX, split_chainstate_key, write_chainstate_key};
use wire::{BlockHash, Coin, CoinError, OutPoint, Reader, Txid};

const BEST_BLOCK: &[u8] = b"B";
const HEAD_BLOCKS: &[u8] = b"H";
/// Prefix of the coins of Core before 0.15: one row for all outputs of a transaction.
const OLD_COINS: u8 = b'c';

/// Longest key of a coin: prefix, txid, VARINT of 32 bits.
const COIN_KEY_LEN: usize = 1 + 32 + 5;

/// The best block of the chainstate in `dir`, without looking at its coins; `None` if there is no database.
/// Where Core was stopped while it wrote, the block that it was going to: it ends the work at its next start.
///
/// # Errors
/// As [`ChainstateReader::open`], but for [`DiskError::InterruptedFlush`].
pub fn read_best_block(disk: &dyn Disk, dir: &Path) -> Result<Option<BlockHash>, DiskError> {
    let current = dir.join("CURRENT");
    if !disk.exists(&current).during("look for", &current)? {
        return Ok(None);
    }
    let database = Database::open(disk, dir)?;
    let obfuscation = read_database_obfuscation(&database, dir)?;
    let heads = database.get(HEAD_BLOCKS)?;
    let Some(mut value) = heads.or(database.get(BEST_BLOCK)?) else { return Ok(None) };
    obfuscation.apply(&mut value, 0);
    // Two hashes, with their number before them, or one.
    let hashes = if value.len() == 65 { value.get(1..) } else { value.get(..) };
    Ok(hashes.and_then(|hashes| hashes.first_chunk()).copied().map(BlockHash))
}

/// A chainstate, open for reading by any number of threads; it is left as it is.
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
    /// [`DiskError::InterruptedFlush`] if Core was stopped while it wrote; [`DiskError::Row`] if it names no
    /// block or is from before Core 0.15; [`DiskError::LevelDb`] if it is no database or damaged.
    pub fn open(disk: &'d dyn Disk, dir: &Path) -> Result<Self, DiskError> {
        let database = Database::open(disk, dir)?;
        let obfuscation = read_database_obfuscation(&database, dir)?;
        if database.get(HEAD_BLOCKS)?.is_some() {
            return Err(DiskError::InterruptedFlush { dir: dir.to_owned() });
        }
        if database.range(&[OLD_COINS], Some(&[OLD_COINS + 1]))?.advance()? {
            let flaw = "a coin in the form of Bitcoin Core before 0.15; rebuild the chainstate";
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

    /// The database's folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The block after which these coins exist.
    #[must_use]
    pub const fn best_block(&self) -> BlockHash {
        self.best_block
    }

    /// The key that the values are obfuscated with.
    #[must_use]
    pub const fn obfuscation(&self) -> Obfuscation {
        self.obfuscation
    }

    /// Bytes of the database's tables.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.database.table_bytes()
    }

    /// All coins in key order.
    ///
    /// # Errors
    /// As [`CoinCursor::advance`].
    pub fn coins(&self) -> Result<CoinCursor<'_>, DiskError> {
        self.coins_between(&[], None)
    }

    /// The coins whose txid (internal byte order) is at least `first` and below `end`, compared as bytes;
    /// prefixes will do. Ranges that meet can be walked by threads side by side.
    ///
    /// # Errors
    /// As [`CoinCursor::advance`].
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

    /// The coin at `outpoint` as the value of its row without obfuscation ([`Coin::read_chainstate_value`]),
    /// if unspent.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if the database is damaged.
    pub fn coin_value(&self, outpoint: &OutPoint) -> Result<Option<Vec<u8>>, DiskError> {
        let mut key = Vec::with_capacity(COIN_KEY_LEN);
        write_chainstate_key(&mut key, outpoint);
        let mut value = self.database.get(&key)?;
        if let Some(value) = &mut value {
            self.obfuscation.apply(value, 0);
        }
        Ok(value)
    }
}

/// Walks over coins in key order.
pub struct CoinCursor<'a> {
    rows: Cursor<'a>,
    dir: &'a Path,
    obfuscation: Obfuscation,
    outpoint: OutPoint,
    code: u32,
    /// The row's value without obfuscation; what follows the code begins at `out_start`.
    value: Vec<u8>,
    out_start: usize,
}

impl CoinCursor<'_> {
    /// The next coin, or `None` behind the last; it borrows the cursor's buffer.
    ///
    /// # Errors
    /// [`DiskError::Row`] if a row is no coin, [`DiskError::LevelDb`] if the database is damaged.
    pub fn advance(&mut self) -> Result<Option<(OutPoint, Coin<'_>)>, DiskError> {
        if !self.step()? {
            return Ok(None);
        }
        self.coin().output().map_err(|flaw| self.flaw(flaw))?;
        Ok(Some((self.outpoint, self.coin())))
    }

    /// Goes to the next coin, whose output is not looked at; false behind the last.
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

    /// What to say of the current row.
    #[cold]
    pub(crate) fn flaw(&self, flaw: CoinError) -> DiskError {
        DiskError::row(self.dir, self.rows.key(), format!("{flaw}; rebuild the chainstate"))
    }
}

/// Writes a new chainstate, by any number of threads: each takes a range of keys, none needs to wait for
/// another.
pub struct ChainstateWriter<'d> {
    disk: &'d dyn Disk,
    dir: PathBuf,
    obfuscation: Obfuscation,
    ranges: u32,
}

/// Number of the table with the rows before the coins; those of the coins follow.
const META_TABLE: u64 = 1;

impl<'d> ChainstateWriter<'d> {
    /// Begins a chainstate in `dir`, which is made if it is missing and must not hold a database. Its values
    /// will be obfuscated with `obfuscation`, which the caller draws at random. `ranges` is how many ranges
    /// of keys there are.
    ///
    /// # Errors
    /// [`DiskError::File`] if the directory cannot be made.
    pub fn create(
        disk: &'d dyn Disk,
        dir: &Path,
        obfuscation: Obfuscation,
        ranges: u32,
    ) -> Result<Self, DiskError> {
        disk.create_dir_all(dir).during("create", dir)?;
        Ok(Self { disk, dir: dir.to_owned(), obfuscation, ranges })
    }

    /// Begins the range with number `index`. The caller divides the keys; ranges must not overlap.
    ///
    /// # Panics
    /// If `index` is not below the number of ranges: table numbers would collide.
    #[must_use]
    pub fn range(&self, index: u32) -> RangeWriter<'d> {
        assert!(index < self.ranges, "range {index} of {}", self.ranges);
        let first = META_TABLE + 1 + u64::from(index);
        let tables = TableRun::new(self.disk, &self.dir, first, self.ranges.into());
        let (key, value) = (Vec::with_capacity(COIN_KEY_LEN), Vec::new());
        RangeWriter { tables, obfuscation: self.obfuscation, key, value }
    }

    /// Completes the database: `ranges` are what the writers of all ranges returned, in any order. When it
    /// returns, everything but the name of the directory itself is on the medium.
    ///
    /// # Errors
    /// [`DiskError::CallerError`] if a range is missing, [`DiskError::LevelDb`] if ranges overlap or the disk
    /// fails.
    pub fn finish(
        self,
        best_block: BlockHash,
        ranges: impl IntoIterator<Item = RangeTables>,
    ) -> Result<(), DiskError> {
        let mut meta = TableRun::new(self.disk, &self.dir, META_TABLE, 1);
        meta.add(OBFUSCATION_ROW, &obfuscation_row_value(self.obfuscation))?;
        let mut hash = best_block.0;
        self.obfuscation.apply(&mut hash, 0);
        meta.add(BEST_BLOCK, &hash)?;
        let mut tables = meta.finish()?;
        let mut finished = 0;
        for range in ranges {
            finished += 1;
            tables.extend(range.0);
        }
        if finished != self.ranges {
            let flaw = format!("{finished} of {} ranges are finished", self.ranges);
            return Err(DiskError::CallerError { dir: self.dir, flaw });
        }
        write_database(self.disk, &self.dir, &tables)?;
        Ok(())
    }
}

/// The finished and synced tables of a range, for [`ChainstateWriter::finish`].
#[must_use]
#[derive(Debug)]
pub struct RangeTables(Vec<TableMeta>);

impl RangeTables {
    /// Bytes of the tables.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|table| table.size).sum()
    }
}

/// The finished tables of a range, to be synced by whoever has time to wait for the medium.
#[must_use = "tables must be synced before the chainstate is finished"]
pub struct UnsyncedRange(Vec<UnsyncedTable>);

impl UnsyncedRange {
    /// Returns when all tables of the range are on the medium.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if the disk fails.
    pub fn sync(self) -> Result<RangeTables, DiskError> {
        Ok(RangeTables(self.0.into_iter().map(UnsyncedTable::sync).collect::<Result<_, _>>()?))
    }
}

/// Writes the coins of one range. Besides its output buffer of 1 MiB a range keeps filter and index of one
/// table in memory, about 2 MiB.
pub struct RangeWriter<'d> {
    tables: TableRun<'d>,
    obfuscation: Obfuscation,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl RangeWriter<'_> {
    /// Appends a coin; outpoints must ascend in key order.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if they do not or the disk fails.
    #[inline]
    pub fn add(&mut self, outpoint: &OutPoint, coin: &Coin<'_>) -> Result<(), DiskError> {
        self.key.clear();
        write_chainstate_key(&mut self.key, outpoint);
        self.value.clear();
        coin.write_chainstate_value(&mut self.value);
        self.obfuscation.apply(&mut self.value, 0);
        Ok(self.tables.add(&self.key, &self.value)?)
    }

    /// Completes the range, which may be empty, and syncs its tables.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if the disk fails.
    pub fn finish(self) -> Result<RangeTables, DiskError> {
        self.complete()?.sync()
    }

    /// Completes the range and leaves it to the caller to sync it.
    ///
    /// # Errors
    /// As [`RangeWriter::finish`].
    pub fn complete(self) -> Result<UnsyncedRange, DiskError> {
        Ok(UnsyncedRange(self.tables.complete()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::RealDisk;
    use proptest::{collection::btree_set, collection::vec, prelude::*};
    use wire::Sats;
    use wire::coin::{chainstate_key_order, compress_output, read_chainstate_key};

    const KEY: [u8; 8] = [0xde, 0xad, 0xbe, 0xef, 0, 1, 2, 3];
    const BEST: BlockHash = BlockHash([5; 32]);

    type Coins = Vec<(OutPoint, u32, Vec<u8>)>;

    fn write(dir: &Path, coins: &Coins, splits: &[u8]) {
        let ranges = splits.len() as u32 + 1;
        let writer = ChainstateWriter::create(&RealDisk, dir, Obfuscation::from_key(KEY), ranges).unwrap();
        let mut open: Vec<_> = (0..ranges).map(|index| writer.range(index)).collect();
        for (outpoint, code, out) in coins {
            let range = splits.iter().filter(|&&split| split <= outpoint.txid.0[0]).count();
            open[range].add(outpoint, &Coin { code: *code, out }).unwrap();
        }
        writer.finish(BEST, open.into_iter().rev().map(|range| range.finish().unwrap())).unwrap();
    }

    fn read(dir: &Path) -> Coins {
        let reader = ChainstateReader::open(&RealDisk, dir).unwrap();
        assert_eq!((reader.best_block(), reader.obfuscation().key()), (BEST, KEY));
        let (mut cursor, mut coins) = (reader.coins().unwrap(), Vec::new());
        while let Some((outpoint, coin)) = cursor.advance().unwrap() {
            coins.push((outpoint, coin.code, coin.out.to_vec()));
        }
        for (outpoint, code, out) in &coins {
            let value = reader.coin_value(outpoint).unwrap().unwrap();
            assert_eq!(Coin::read_chainstate_value(&value), Ok(Coin { code: *code, out }));
        }
        coins
    }

    fn arb_coins() -> impl Strategy<Value = Coins> {
        // Few transactions with many outputs, around the place where key order leaves numeric order.
        let vout = prop_oneof![0u32..4, 16_510u32..16_515, any::<u32>()];
        let coin = (any::<u32>(), 0i64..Sats::MAX_MONEY.0, vec(any::<u8>(), 0..40));
        (btree_set((0u8..=255, vout), 0..40), vec(coin, 40)).prop_map(|(outpoints, coins)| {
            let mut outpoints: Vec<_> =
                outpoints.into_iter().map(|(byte, vout)| OutPoint { txid: Txid([byte; 32]), vout }).collect();
            outpoints.sort_by(chainstate_key_order);
            let compress = |(outpoint, (code, amount, script)): (OutPoint, (u32, i64, Vec<u8>))| {
                let mut out = Vec::new();
                compress_output(&mut out, Sats(amount), &script);
                (outpoint, code, out)
            };
            outpoints.into_iter().zip(coins).map(compress).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn coins_come_back_however_they_are_divided(
            coins in arb_coins(), mut splits in vec(any::<u8>(), 0..4)
        ) {
            splits.sort_unstable();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("chainstate");
            write(&path, &coins, &splits);
            prop_assert_eq!(read(&path), coins);
        }

        #[test]
        fn a_row_that_is_no_coin_never_panics(
            value in vec(any::<u8>(), 0..50), key in vec(any::<u8>(), 0..40)
        ) {
            let row = read_chainstate_key(&key).and_then(|_| Coin::read_chainstate_value(&value));
            if let Ok(coin) = row {
                let mut again = Vec::new();
                coin.write_chainstate_value(&mut again);
                prop_assert_eq!(again, value);
            }
        }
    }

    #[test]
    fn what_is_no_finished_chainstate_is_told_apart() {
        for (rows, want) in [
            (vec![(&b"B"[..], vec![0; 32]), (b"H", vec![2])], "interrupted flush, run reindex"),
            (vec![(b"C", vec![0; 3])], "no best block"),
            (vec![(b"B", vec![0; 31])], "no best block"),
            (vec![(b"B", vec![0; 32]), (b"c", vec![0])], "before 0.15"),
            (
                vec![(OBFUSCATION_ROW, vec![7; 8]), (b"B", vec![0; 32])],
                "obfuscation key does not have 8 bytes",
            ),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let mut tables = TableRun::new(&RealDisk, dir.path(), 1, 1);
            rows.iter().for_each(|(key, value)| tables.add(key, value).unwrap());
            write_database(&RealDisk, dir.path(), &tables.finish().unwrap()).unwrap();
            let error = ChainstateReader::open(&RealDisk, dir.path()).err().unwrap().to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn a_damaged_row_is_named_and_a_missing_range_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let coin = (OutPoint { txid: Txid([0xab; 32]), vout: 0 }, 4, vec![0, 9]);
        write(dir.path(), &vec![coin], &[]);
        let reader = ChainstateReader::open(&RealDisk, dir.path()).unwrap();
        let error = reader.coins().unwrap().advance().unwrap_err().to_string();
        assert!(error.contains("row 43abab") && error.contains("ends early"), "{error}");
        assert_eq!(reader.coin_value(&OutPoint::NULL).unwrap(), None);

        let path = dir.path().join("other");
        let writer = ChainstateWriter::create(&RealDisk, &path, Obfuscation::default(), 2).unwrap();
        let one = writer.range(0).finish().unwrap();
        assert_eq!(one.bytes(), 0);
        let error = writer.finish(BEST, [one]).unwrap_err().to_string();
        assert!(error.contains("1 of 2 ranges"), "{error}");
        assert!(!path.join("CURRENT").exists());
    }
}

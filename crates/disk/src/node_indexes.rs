//! `indexes/`: what bitcoind keeps besides the block index (`-txindex`, `-txospenderindex`,
//! `-blockfilterindex`, `-coinstatsindex`). Only what tells whether an index stays right is read; nothing is
//! written.
//!
//! Each index is a LevelDB database without obfuscation (Core `src/index/`):
//! ```text
//! txindex                  't' | txid 32           -> file, position, offset   releases up to 31
//!                          'x', 's', 'h', 0e ..    -> ..                       from 32 on: by block hash
//! txospenderindex/db       's' | hash 8 | file, position, offset -> marker
//! blockfilter/basic/db     't' | height, 's' | hash -> hashes, place in fltr files
//! coinstatsindex/db        't' | height, 's' | hash -> running sums            coinstats/db before 30
//! each                     'B', or 0d "best_block_v2" -> locator: version 4 | CompactSize | block hashes 32
//! ```
//! Rows with a file and a position lead to the bytes of a block without the block index: if a block is stored
//! again at another place, they stay as they are, and bitcoind, which checks only the best block when it
//! starts, does not notice.

use crate::{
    datadir::is_dir,
    error::DiskError,
    replace::{KEPT_SUFFIX, NEW_SUFFIX, free_name, owner_of, refuse_mount_point, remove_database, set_owner},
    row_kinds::other_kind,
};
use digest::{
    muhash::MuHash3072,
    siphash::{SipKey, siphash24},
};
use leveldb::{Database, LevelDbError};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};
use vfs::{Disk, During as _, dir_of, exists, with_suffix};
use wire::{BlockHash, BlockView, ByteOffset, FileNo, Header, Height, OutPoint, Reader, read::write_var_int};

/// Name of the directory with all indexes, in that of the network.
pub const INDEXES_DIR: &str = "indexes";

/// Suffix of an index that will be made anew. It contains [`KEPT_SUFFIX`], so this is no index either.
const REPLACED_SUFFIX: &str = ".old-replaced";

/// Key of the best block.
pub const BEST_BLOCK: &[u8] = b"B";
/// The best block of the rows of a `txindex` that name blocks by their hashes.
pub const BEST_BLOCK_V2: &[u8] = b"\x0dbest_block_v2";
/// The row of a `txospenderindex` that has the same prefix as the others.
pub const SPENDER_KEY: &[u8] = b"siphash_key\0";
/// The row of coin statistics with the MuHash of all coins at the best block.
pub const MUHASH: &[u8] = b"M";
/// Name of the folder of the coin statistics of releases up to 29.
pub const OLD_COIN_STATS: &str = "coinstats";
/// Distance between the first hash bytes of two rows in a sample.
const SAMPLE_STEP: usize = 4;

/// First bytes of the keys of a `txindex` that have no positions, in ascending order.
const TXINDEX_WITHOUT_POSITIONS: &[u8] = b"\x0d\x0eBhsx";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum IndexKind {
    /// `-txindex`.
    Tx,
    /// `-blockfilterindex`.
    BlockFilter,
    /// `-coinstatsindex`, of this and of earlier releases.
    CoinStats,
    /// `-txospenderindex`.
    TxoSpender,
    /// None that is known.
    Unknown,
}

/// Checks the tables of the database in `dir`, if there is one: [`Database::check_tables`].
pub fn check_tables(
    disk: &dyn Disk,
    dir: &Path,
    read_up_to: u64,
    should_stop: impl Fn(u64, u64) -> bool,
) -> Result<(), DiskError> {
    match exists(disk, &dir.join("CURRENT"))? {
        true => Ok(Database::open(disk, dir)?.check_tables(read_up_to, should_stop)?),
        false => Ok(()),
    }
}

/// Reads all blocks of a table of any database. Returns whether it is part of that database.
pub fn check_table(disk: &dyn Disk, path: &Path) -> Result<bool, DiskError> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
    Ok(Database::open(disk, dir)?.check_table(name)?)
}

impl IndexKind {
    /// Those that are known.
    pub const ALL: [Self; 4] = [Self::Tx, Self::BlockFilter, Self::CoinStats, Self::TxoSpender];

    /// The option of bitcoind that keeps it, without the dash.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Tx => "txindex",
            Self::TxoSpender => "txospenderindex",
            Self::BlockFilter => "blockfilterindex",
            Self::CoinStats => "coinstatsindex",
            Self::Unknown => "index",
        }
    }

    /// The name of its directory, of today's release.
    pub const fn dir_name(self) -> &'static str {
        match self {
            Self::BlockFilter => "blockfilter",
            other => other.option(),
        }
    }

    /// Whether it is made from undo data too.
    pub const fn needs_undo(self) -> bool {
        matches!(self, Self::BlockFilter | Self::CoinStats)
    }

    /// Whether bitcoind reads blocks to take it back.
    pub const fn needs_blocks_to_take_back(self) -> bool {
        matches!(self, Self::CoinStats | Self::TxoSpender)
    }

    /// The directory of its database, in that of the network.
    pub fn database_dir(self) -> PathBuf {
        let dir = Path::new(INDEXES_DIR).join(self.dir_name());
        // Joined with nothing, a path would get a slash at its end.
        if self.database().is_empty() { dir } else { dir.join(self.database()) }
    }

    /// The directory with all of it, which is replaced as a whole, in that of the network.
    pub fn replaced_dir(self) -> PathBuf {
        match self {
            Self::BlockFilter => Path::new(INDEXES_DIR).join(self.dir_name()).join("basic"),
            _ => self.database_dir(),
        }
    }

    /// Whether the directory of a network has a database of it. An empty folder does not count: setting an
    /// index aside leaves one.
    pub fn is_in(self, disk: &dyn Disk, net_dir: &Path) -> Result<bool, DiskError> {
        Ok(exists(disk, &net_dir.join(self.database_dir()).join("CURRENT"))?)
    }

    /// Returns the directories of indexes of this kind that were set aside to be replaced, in the directory
    /// of a network.
    pub fn replaced(self, disk: &dyn Disk, net_dir: &Path) -> Result<Vec<PathBuf>, DiskError> {
        let dir = net_dir.join(INDEXES_DIR).join(self.dir_name());
        let live = disk.resolve(&dir).during("follow the links to", &dir)?;
        let prefix = with_suffix(&live, REPLACED_SUFFIX);
        let (home, prefix) = (dir_of(&live), prefix.as_os_str().as_encoded_bytes());
        let roots = disk.list(home).during("list", home)?.into_iter().map(|name| home.join(name));
        Ok(roots.filter(|root| root.as_os_str().as_encoded_bytes().starts_with(prefix)).collect())
    }

    /// Removes these indexes. Files that do not belong to an index stay.
    pub fn remove_replaced(self, disk: &dyn Disk, net_dir: &Path) -> Result<(), DiskError> {
        let nested: PathBuf = self.replaced_dir().components().skip(2).collect();
        for root in self.replaced(disk, net_dir)? {
            for part in [root.join(&nested), root] {
                if exists(disk, &part)? {
                    remove_database(disk, &part)?;
                }
            }
        }
        Ok(())
    }

    fn of_name(name: &OsStr) -> Self {
        match name.to_str() {
            Some("txindex") => Self::Tx,
            Some("txospenderindex") => Self::TxoSpender,
            Some("blockfilter") => Self::BlockFilter,
            Some("coinstatsindex" | "coinstats") => Self::CoinStats,
            _ => Self::Unknown,
        }
    }

    /// The directory of the database, relative to that of the index.
    fn database(self) -> &'static str {
        match self {
            Self::Tx | Self::Unknown => "",
            Self::TxoSpender | Self::CoinStats => "db",
            Self::BlockFilter => "basic/db",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IndexContents {
    /// The block up to which it has rows: bitcoind continues it there.
    pub best_block: Option<BlockHash>,
    /// The block up to which rows can have positions. A `txindex` that was continued by block has none above.
    pub positions_to: Option<BlockHash>,
    /// Whether any row has, or may have, the position of a block in the block files.
    pub has_positions: bool,
}

/// An index that bitcoind keeps.
#[derive(Clone, Debug)]
pub struct NodeIndex {
    /// The name of its directory.
    pub name: String,
    pub path: PathBuf,
    pub kind: IndexKind,
}

impl NodeIndex {
    /// Finds the indexes in the directory of a network, by name. Those that were set aside, or are
    /// being built, are left out.
    pub fn find(disk: &dyn Disk, net_dir: &Path) -> Result<Vec<Self>, DiskError> {
        let dir = net_dir.join(INDEXES_DIR);
        if !is_dir(disk, &dir)? {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for name in disk.list(&dir).during("list", &dir)? {
            let path = dir.join(&name);
            let text = name.to_string_lossy().into_owned();
            let is_other = [KEPT_SUFFIX, NEW_SUFFIX].iter().any(|suffix| text.contains(suffix));
            if is_dir(disk, &path)? && !is_other {
                found.push(Self { name: text, path, kind: IndexKind::of_name(&name) });
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Whether it has the coin statistics of releases up to 29, beside those of later ones, which leave it
    /// alone. Without the later ones, the node may be of an old release, and still continue it.
    pub fn is_superseded(&self, disk: &dyn Disk) -> Result<bool, DiskError> {
        Ok(self.name == OLD_COIN_STATS && is_dir(disk, &self.path.with_file_name(self.kind.dir_name()))?)
    }

    /// Reads what the index has rows for, in a few look-ups.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if its database is damaged; any I/O error.
    pub fn read(&self, disk: &dyn Disk) -> Result<IndexContents, DiskError> {
        let dir = self.path.join(self.kind.database());
        let current = dir.join("CURRENT");
        if !exists(disk, &current)? {
            let is_empty = disk.list(&self.path).during("list", &self.path)?.is_empty();
            // An index of an unknown kind may have positions in any of its files.
            let has_positions = self.kind == IndexKind::Unknown && !is_empty;
            return Ok(IndexContents { has_positions, ..IndexContents::default() });
        }
        let database = Database::open(disk, &dir)?;
        let best = |key| Ok::<_, DiskError>(database.get(key)?.and_then(|row| first_of_locator(&row)));
        let (positions_to, by_block) = (best(BEST_BLOCK)?, best(BEST_BLOCK_V2)?);
        let has_positions = match self.kind {
            IndexKind::Tx => other_kind(&database, TXINDEX_WITHOUT_POSITIONS)?.is_some(),
            IndexKind::TxoSpender => has_spender(&database)?,
            IndexKind::BlockFilter | IndexKind::CoinStats => false,
            IndexKind::Unknown => true,
        };
        Ok(IndexContents { best_block: by_block.or(positions_to), positions_to, has_positions })
    }

    /// Whether the MuHash with which bitcoind continues coin statistics is that of the row of their best
    /// block: otherwise, it does not start (Core `CoinStatsIndex::CustomInit`).
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if its database is damaged; any I/O error.
    pub fn has_muhash_of(
        &self,
        disk: &dyn Disk,
        best: &BlockHash,
        height: Height,
    ) -> Result<bool, DiskError> {
        let database = Database::open(disk, &self.path.join(self.kind.database()))?;
        let muhash = database.get(MUHASH)?.and_then(|row| read_muhash(&row));
        let of_height = database.get(&height_key(height))?;
        let totals = match of_height.filter(|row| row.starts_with(&best.0)) {
            Some(row) => row.get(best.0.len()..).map(<[u8]>::to_vec),
            None => database.get(&removed_key(best))?,
        };
        Ok(totals.zip(muhash).is_some_and(|(totals, muhash)| totals.starts_with(&muhash.finalize())))
    }

    /// What is wrong with filters that end with this block: bitcoind does not start without the row by height
    /// that it reads then (Core `BlockFilterIndex::CustomInit`), even if there is one by hash. `with_files`:
    /// whether a missing file counts, which bitcoind needs only when it is asked for a filter.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if its database is damaged; any I/O error.
    pub fn flaw_of_filters(
        &self,
        disk: &dyn Disk,
        best: &BlockHash,
        height: Height,
        with_files: bool,
    ) -> Result<Option<String>, DiskError> {
        let dir = self.path.join(self.kind.database());
        let row = Database::open(disk, &dir)?.get(&height_key(height))?;
        let row = row.as_deref().filter(|row| row.starts_with(&best.0));
        // The number of the file follows three hashes.
        let last = row.and_then(|row| Reader::new(row.get(96..)?).var_int().ok()?.try_into().ok());
        let Some(last) = last else {
            let detail = "the row of its best block, which bitcoind reads when it starts, is missing";
            return Ok(Some(detail.to_owned()));
        };
        if !with_files {
            return Ok(None);
        }
        for name in (0..=last).map(filter_file) {
            if !exists(disk, &dir.with_file_name(&name))? {
                return Ok(Some(format!("{name} is missing, and with it the filters of its blocks")));
            }
        }
        Ok(None)
    }

    /// Whether a `txospenderindex` has the rows of all inputs of a block that is stored at this place.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if its database is damaged; any I/O error.
    pub fn has_spenders(
        &self,
        disk: &dyn Disk,
        block: &BlockView<'_>,
        file: FileNo,
        pos: ByteOffset,
    ) -> Result<bool, DiskError> {
        let database = Database::open(disk, &self.path.join(self.kind.database()))?;
        let row = database.get(SPENDER_KEY)?;
        let Some(hash_key) = row.as_deref().and_then(read_key) else { return Ok(false) };
        for tx in block.txs().skip(1) {
            for input in tx.inputs() {
                let mut key = [&b"s"[..], &spender_hash(hash_key, &input.prevout())].concat();
                write_disk_pos(file, pos, tx.offset() as u32, &mut key);
                if database.get(&key)?.is_none() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Returns some of the places in block files that its rows have: file and position.
    ///
    /// # Errors
    /// [`DiskError::LevelDb`] if its database is damaged; any I/O error.
    pub fn sample_places(&self, disk: &dyn Disk) -> Result<Vec<(u64, u64)>, DiskError> {
        let database = Database::open(disk, &self.path.join(self.kind.database()))?;
        let first = if self.kind == IndexKind::Tx { b't' } else { b's' };
        let mut places = Vec::new();
        for start in (0..=u8::MAX).step_by(SAMPLE_STEP) {
            let mut rows = database.range(&[first, start], Some(&[first + 1]))?;
            while rows.advance()? {
                let place = match self.kind {
                    IndexKind::Tx => rows.value(),
                    _ if rows.key() == SPENDER_KEY => continue,
                    _ => rows.key().get(9..).unwrap_or_default(),
                };
                let mut reader = Reader::new(place);
                places.extend(reader.var_int().ok().zip(reader.var_int().ok()));
                break;
            }
        }
        Ok(places)
    }

    /// Renames the directory of the index, and leaves an empty one of the same owner and mode in its place,
    /// in one step: bitcoind builds the index again. Links stay. If the index will be made anew,
    /// [`IndexKind::remove_replaced`] removes the old one then. Returns the new name.
    pub fn set_aside(&self, disk: &dyn Disk, will_be_made: bool) -> Result<PathBuf, DiskError> {
        set_aside(disk, &self.path, if will_be_made { REPLACED_SUFFIX } else { KEPT_SUFFIX })
    }
}

/// Returns the name of a file of `blockfilterindex`.
pub fn filter_file(number: u32) -> String {
    format!("fltr{number:05}.dat")
}

/// Returns the key of the row of a height, in `blockfilterindex` and `coinstatsindex`.
pub fn height_key(height: Height) -> [u8; 5] {
    let [a, b, c, d] = height.0.to_be_bytes();
    [b't', a, b, c, d]
}

/// Returns the key of the row of a block that another one has replaced at its height, in `blockfilterindex`
/// and `coinstatsindex`.
pub fn removed_key(block: &BlockHash) -> Vec<u8> {
    [&b"s"[..], &block.0].concat()
}

/// Reads the value of the row with a key of SipHash.
pub fn read_key(value: &[u8]) -> Option<SipKey> {
    let (words, rest) = value.as_chunks::<8>();
    match words {
        [k0, k1] if rest.is_empty() => Some(SipKey(u64::from_le_bytes(*k0), u64::from_le_bytes(*k1))),
        _ => None,
    }
}

/// Reads the value of the row with the MuHash of all coins. Returns `None` if it is malformed.
pub fn read_muhash(value: &[u8]) -> Option<MuHash3072> {
    MuHash3072::from_bytes(value.try_into().ok()?)
}

/// Returns the hash of a spent output in the key of a row of `txospenderindex`.
pub fn spender_hash(SipKey(k0, k1): SipKey, spent: &OutPoint) -> [u8; 8] {
    let mut bytes = [0; 36];
    let (txid, vout) = bytes.split_at_mut(32);
    txid.copy_from_slice(&spent.txid.0);
    vout.copy_from_slice(&spent.vout.to_le_bytes());
    siphash24(k0, k1, &bytes).to_le_bytes()
}

/// Appends Core's `CDiskTxPos` of a transaction at this offset in a block.
pub fn write_disk_pos(file: FileNo, pos: ByteOffset, offset: u32, out: &mut Vec<u8>) {
    write_var_int(out, file.0.into());
    write_var_int(out, pos.0);
    write_var_int(out, u64::from(offset.saturating_sub(Header::LEN as u32)));
}

/// Puts an empty directory in the place of another, in one step, which gets a name beside it with this
/// suffix. Links stay. Returns the new name.
pub fn set_aside(disk: &dyn Disk, dir: &Path, suffix: &str) -> Result<PathBuf, DiskError> {
    let live = disk.resolve(dir).during("follow the links to", dir)?;
    refuse_mount_point(disk, &live)?;
    let kept = free_name(disk, with_suffix(&live, suffix))?;
    disk.create_dir_all(&kept).during_creation(&kept)?;
    let exchange = || {
        set_owner(disk, &kept, owner_of(disk, &live)?, &live)?;
        disk.unlock(&live.join("LOCK"));
        Ok::<_, DiskError>(disk.exchange(&kept, &live).during("set aside", &live)?)
    };
    exchange().inspect_err(|_| drop(disk.remove_dir(&kept)))?;
    disk.sync_dir(dir_of(&live)).during("sync", dir_of(&live))?;
    Ok(kept)
}

/// The first hash of a locator; `None` if there is none.
pub fn first_of_locator(row: &[u8]) -> Option<BlockHash> {
    let mut reader = Reader::new(row);
    reader.bytes(4).ok()?;
    let count = reader.compact_size().ok()?;
    let hash = reader.array().ok().filter(|_| count > 0)?;
    Some(BlockHash(hash))
}

/// Whether a `txospenderindex` has a row with the prefix of [`SPENDER_KEY`] besides that one.
fn has_spender(database: &Database<'_>) -> Result<bool, LevelDbError> {
    let mut rows = database.range(b"s", Some(b"t"))?;
    while rows.advance()? {
        if rows.key() != SPENDER_KEY {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;

//! Opens the indexes of a datadir, and reads where they end and what continues from there.

use crate::{
    block_filter::{FilterHashes, FilterPlace, NEXT_PLACE},
    coin_stats::{MUHASH, Totals, read_muhash},
    filter_reader::FilterReader,
    options::{IndexOptions, TxForm},
    tx::{NEXT_SEQUENCE, SPENDER_KEY, TXID_SALT, hash_key, read_key},
};
use api::{
    error::{Error, ErrorKind},
    remedy::Remedy,
};
use chain::{
    blocks::{chain::Chain, files::Files},
    plan::best_block::fork_of,
};
use digest::{muhash::MuHash3072, sha256::sha256d, siphash::SipKey};
use disk::{
    datadir::Datadir,
    index::IndexRows,
    node_indexes::{BEST_BLOCK, BEST_BLOCK_V2, IndexKind, first_of_locator, height_key, removed_key},
};
use leveldb::{Database, Lookup};
use std::path::{Path, PathBuf};
use vfs::Disk;
use wire::{BlockHash, Height};

/// An index whose database can be opened.
pub struct StoredIndex<'d> {
    pub kind: IndexKind,
    /// The directory of the database; that of the filters for `blockfilterindex`.
    pub dir: PathBuf,
    pub database: Database<'d>,
    /// The best block. For a `txindex`, this is the best block of its rows by txid.
    best: Option<BlockHash>,
    /// The best block of the rows by block of a `txindex`.
    best_by_block: Option<BlockHash>,
}

/// Where an index ends on a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// It has no best block.
    Empty,
    At(Height),
    /// Its best block is on another branch, or above the last block of the chain. This is the height of the
    /// last block that both have in common, to which bitcoind takes the index back.
    Beyond(Height),
    /// The block index does not know its best block.
    Elsewhere(BlockHash),
}

impl Position {
    /// The height of the last block of the chain that the index has rows of, if it is known.
    pub const fn height(self) -> Option<Height> {
        match self {
            Self::At(height) | Self::Beyond(height) => Some(height),
            Self::Empty | Self::Elsewhere(_) => None,
        }
    }
}

impl IndexOptions {
    /// The same with the form of the rows of the `txindex` that is there now, since it may be set aside.
    pub fn with_old_form(mut self, disk: &dyn Disk) -> Self {
        let datadir = Datadir::new(&self.chain.location());
        self.tx_form = self.form_of_new(disk, &datadir).ok();
        self
    }

    /// The form of the rows of a new `txindex`: that of the old one, unless the caller chose it.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the old one is damaged.
    pub fn form_of_new(&self, disk: &dyn Disk, datadir: &Datadir) -> Result<TxForm, Error> {
        if let Some(form) = self.tx_form {
            return Ok(form);
        }
        let old = StoredIndex::open(disk, datadir.net_dir(), IndexKind::Tx).map_err(|error| {
            if error.kind != ErrorKind::Damaged {
                return error;
            }
            let detail = "the old index is damaged, so the form of its rows is not known";
            Error::usage(detail).caused_by(error).with_remedies([Remedy::ChooseTxForm])
        })?;
        // One that an interrupted run has set aside counts, unless it cannot be read.
        let aside = |dir: &PathBuf| StoredIndex::open_at(disk, IndexKind::Tx, dir, dir).ok();
        let replaced = || IndexKind::Tx.replaced(disk, datadir.net_dir()).unwrap_or_default();
        let old = old.or_else(|| replaced().iter().find_map(aside));
        Ok(old.map_or(TxForm::ByTxid, |index| index.tx_form()))
    }
}

impl<'d> StoredIndex<'d> {
    /// Opens an index of the network whose directory is `net_dir`. Returns `None` if there is none.
    pub fn open(disk: &'d dyn Disk, net_dir: &Path, kind: IndexKind) -> Result<Option<Self>, Error> {
        if !kind.is_in(disk, net_dir)? {
            return Ok(None);
        }
        let (database, dir) = (net_dir.join(kind.database_dir()), net_dir.join(kind.replaced_dir()));
        Self::open_at(disk, kind, &database, &dir).map(Some)
    }

    fn open_at(disk: &'d dyn Disk, kind: IndexKind, database: &Path, dir: &Path) -> Result<Self, Error> {
        let database = Database::open(disk, database).map_err(|error| {
            let error = Error::from(error);
            let is_damaged = error.kind == ErrorKind::Damaged;
            error.with_remedies(is_damaged.then_some(Remedy::MakeIndex(Some(kind))))
        })?;
        let best = |key: &[u8]| Ok::<_, Error>(database.get(key)?.and_then(|row| first_of_locator(&row)));
        let (best, best_by_block) = (best(BEST_BLOCK)?, best(BEST_BLOCK_V2)?);
        Ok(Self { kind, dir: dir.to_owned(), database, best, best_by_block })
    }

    pub fn best_block(&self) -> Option<BlockHash> {
        self.best_by_block.or(self.best)
    }

    /// Finds out where the index ends.
    pub fn position(&self, files: &Files<'_>, chain: &Chain) -> Result<Position, Error> {
        position_of(self.best_block(), files, chain)
    }

    /// Finds out where the rows by txid of a `txindex` end.
    pub fn position_by_txid(&self, files: &Files<'_>, chain: &Chain) -> Result<Position, Error> {
        position_of(self.best, files, chain)
    }

    /// Whether it is a `txindex` to which bitcoind adds rows by block.
    pub const fn is_by_block(&self) -> bool {
        self.best_by_block.is_some()
    }

    /// The form of the rows that bitcoind adds, if it is a `txindex`.
    pub const fn tx_form(&self) -> TxForm {
        if self.is_by_block() { TxForm::ByBlock } else { TxForm::ByTxid }
    }

    /// Returns an error about what is in the database.
    pub fn damaged(&self, detail: impl Into<String>) -> Error {
        Error::damaged(detail).in_file(&self.dir, None).with_remedies([Remedy::MakeIndex(Some(self.kind))])
    }

    fn row<T>(&self, key: &[u8], what: &str, read: impl Fn(&[u8]) -> Option<T>) -> Result<T, Error> {
        let value = self.database.get(key)?;
        let value = value.ok_or_else(|| self.damaged(format!("the index has no {what}")))?;
        read(&value).ok_or_else(|| self.damaged(format!("the index has a malformed {what}")))
    }

    /// Returns the key of the hashes in the rows of transactions. Rows by txid, of filters and of statistics
    /// need none.
    pub fn key_of_hashes(&self) -> Result<SipKey, Error> {
        match self.kind {
            IndexKind::Tx if self.is_by_block() => self.row(TXID_SALT, "salt of its hashes", read_key),
            IndexKind::TxoSpender => self.row(SPENDER_KEY, "key of its hashes", read_key),
            _ => Ok(SipKey(0, 0)),
        }
    }

    /// Returns the next sequence number. If no row has it, it is 0, as for bitcoind.
    pub fn next_sequence(&self) -> Result<u32, Error> {
        let Some(value) = self.database.get(NEXT_SEQUENCE)? else { return Ok(0) };
        let number = value.try_into().map_err(|_| self.damaged("the next sequence number is malformed"))?;
        Ok(u32::from_le_bytes(number))
    }

    /// Returns the sequence number of each block of the chain up to `end`, by height. Blocks that the index
    /// lacks have none.
    pub fn sequences(&self, chain: &Chain, end: Height) -> Result<Vec<Option<u32>>, Error> {
        let mut value = Vec::new();
        let mut sequences = vec![None; end.0 as usize + 1];
        let mut by_hash: Vec<Height> = (0..=end.0).map(Height).collect();
        by_hash.sort_unstable_by_key(|height| chain.block(*height).hash.0);
        let mut rows = self.database.lookup(b"h", Some(b"i"));
        for height in by_hash {
            let hash = chain.block(height).hash;
            if rows.get(&hash_key(&hash), &mut value)?
                && let Some(entry) = sequences.get_mut(height.0 as usize)
            {
                let flaw = || self.damaged("a sequence number is malformed").at_block(height, hash);
                *entry = Some(u32::from_le_bytes(value[..].try_into().map_err(|_| flaw())?));
            }
        }
        Ok(sequences)
    }

    pub fn next_place(&self) -> Result<FilterPlace, Error> {
        self.row(NEXT_PLACE, "place of the next filter", |value| {
            let (place, rest) = FilterPlace::read(value)?;
            rest.is_empty().then_some(place)
        })
    }

    /// Begins to look up the rows of blocks in a `blockfilterindex` or `coinstatsindex` whose best block is
    /// at `best`.
    pub fn block_rows(&self, best: Height) -> BlockRows<'_> {
        let last = (self.kind == IndexKind::BlockFilter).then_some(best);
        BlockRows { database: &self.database, at_heights: self.database.lookup(b"t", Some(b"u")), last }
    }

    fn block_row<T>(
        &self,
        (height, hash): (Height, BlockHash),
        read: impl Fn(&[u8]) -> Option<(BlockHash, T)>,
        rows: &mut BlockRows<'_>,
    ) -> Result<T, Error> {
        let mut value = Vec::new();
        let row = rows.get(height, &hash, &mut value)?.then(|| read(&value)).flatten();
        let row = row.filter(|(block, _)| *block == hash).map(|(_, row)| row);
        row.ok_or_else(|| self.damaged("the index has no sound row of this block").at_block(height, hash))
    }

    /// Returns the hashes of the filter of the chain's block at `best`. Checks that all blocks up to it have
    /// rows, and that the next filter would not be written over any of theirs.
    pub fn last_filter(&self, disk: &dyn Disk, chain: &Chain, best: Height) -> Result<FilterHashes, Error> {
        let read = |value: &[u8]| FilterPlace::of_row(value).map(|(hash, of, place)| (hash, (of, place)));
        let (mut rows, mut last) = (self.block_rows(best), None);
        let mut highest: Option<(FilterPlace, BlockHash, [u8; 32])> = None;
        for height in (0..=best.0).map(Height) {
            let hash = chain.block(height).hash;
            let (hashes, place) = self.block_row((height, hash), read, &mut rows)?;
            last = Some(hashes);
            highest = highest.filter(|(other, ..)| *other > place).or(Some((place, hash, hashes.hash)));
        }
        let (Some((place, hash, digest)), Some(last)) = (highest, last) else {
            return Err(Error::panicked());
        };
        let filter = FilterReader::new(disk, &self.dir).read(&hash, place)?;
        let Some(filter) = filter.filter(|filter| sha256d(filter) == digest) else {
            return Err(self.damaged("the filter of a block is not where its row says"));
        };
        match self.next_place()? >= place.after(filter.len()) {
            true => Ok(last),
            false => Err(self.damaged("the next filter would be written over one that is needed")),
        }
    }

    /// Returns the totals at the chain's block at `height`, and the hash of the MuHash.
    pub fn totals(&self, chain: &Chain, height: Height) -> Result<(Totals, [u8; 32]), Error> {
        let read = |value: &[u8]| Totals::read(value).map(|(block, hash, totals)| (block, (totals, hash)));
        self.block_row((height, chain.block(height).hash), read, &mut self.block_rows(height))
    }

    /// Returns the MuHash from which bitcoind continues, with denominator 1. Checks that its hash is this
    /// one.
    pub fn muhash(&self, hash: [u8; 32]) -> Result<MuHash3072, Error> {
        let mut muhash = self.row(MUHASH, "MuHash", read_muhash)?;
        MuHash3072::divide_all(std::slice::from_mut(&mut muhash));
        if muhash.clone().finalize() != hash {
            return Err(self.damaged("the MuHash of the index is not that of its best block"));
        }
        Ok(muhash)
    }
}

/// Looks up the rows of blocks where bitcoind does (Core `index_util::LookUpOne`).
pub struct BlockRows<'a> {
    database: &'a Database<'a>,
    at_heights: Lookup<'a>,
    /// The height of the best block of a `blockfilterindex`. bitcoind looks for its row at the height only,
    /// and does not start if it is not there (Core `BlockFilterIndex::ReadFilterHeader`).
    last: Option<Height>,
}

impl BlockRows<'_> {
    /// Reads the row of a block into `value`, in the form that it has at its height. It is at its height, or,
    /// if another block has taken that place, under its hash. If the row is in neither place, `value` is that
    /// of the other block. Returns whether there is a row.
    pub fn get(&mut self, height: Height, hash: &BlockHash, value: &mut Vec<u8>) -> Result<bool, Error> {
        let is_there = self.at_heights.get(&height_key(height), value)?;
        if is_there && (value.starts_with(&hash.0) || self.last == Some(height)) {
            return Ok(true);
        }
        let Some(row) = self.database.get(&removed_key(hash))? else { return Ok(is_there) };
        *value = [&hash.0[..], &row].concat();
        Ok(true)
    }
}

fn position_of(best: Option<BlockHash>, files: &Files<'_>, chain: &Chain) -> Result<Position, Error> {
    let Some(best) = best else { return Ok(Position::Empty) };
    // The best block is most often one of the last.
    let mut heights = (0..chain.block_count() as u32).rev().map(Height);
    if let Some(height) = heights.find(|&height| chain.block(height).hash == best) {
        return Ok(Position::At(height));
    }
    let rows = IndexRows::open(files.disk, &files.datadir.index_dir())?;
    let hash_at = |height| (height <= chain.tip_height()).then(|| chain.block(height).hash);
    Ok(fork_of(&rows, best, hash_at, |_| true)?.map_or(Position::Elsewhere(best), Position::Beyond))
}

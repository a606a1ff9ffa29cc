//! An index in a datadir: which block it has rows up to, and what continues from there.

use crate::{
    block_filter::{FilterHashes, FilterPlace, NEXT_PLACE, height_key},
    coin_stats::{MUHASH, Totals, read_muhash},
    tx::{NEXT_SEQUENCE, SPENDER_KEY, TXID_SALT, hash_key, read_key},
};
use api::{
    error::{Error, ErrorKind},
    remedy::Remedy,
};
use chain::blocks::chain::Chain;
use digest::{muhash::MuHash3072, siphash::SipKey};
use disk::node_indexes::{BEST_BLOCK, BEST_BLOCK_V2, IndexKind, first_of_locator};
use leveldb::Database;
use std::path::{Path, PathBuf};
use vfs::{Disk, During as _};
use wire::{BlockHash, Height};

/// An index whose database can be opened.
pub struct StoredIndex<'d> {
    /// Which index it is.
    pub kind: IndexKind,
    /// Its directory, or, of `blockfilterindex`, that of its files.
    pub dir: PathBuf,
    /// The database.
    pub database: Database<'d>,
    /// The best block; of a `txindex`, that of the rows by txid.
    best: Option<BlockHash>,
    /// Of a `txindex`, the best block of the rows by block.
    best_by_block: Option<BlockHash>,
}

/// Where an index ends on a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// It has no best block.
    Empty,
    /// At this height.
    At(Height),
    /// Its best block is not one of the chain.
    Elsewhere(BlockHash),
}

impl<'d> StoredIndex<'d> {
    /// Opens the index of the network whose directory is `net_dir`; `None` if it has none.
    ///
    /// # Errors
    /// What is damaged or cannot be read.
    pub fn open(disk: &'d dyn Disk, net_dir: &Path, kind: IndexKind) -> Result<Option<Self>, Error> {
        let current = net_dir.join(kind.database_dir()).join("CURRENT");
        if !disk.exists(&current).during("look for", &current)? {
            return Ok(None);
        }
        let database = Database::open(disk, &net_dir.join(kind.database_dir())).map_err(|error| {
            let error = Error::from(error);
            let is_damaged = error.kind == ErrorKind::Damaged;
            error.with_remedies(is_damaged.then_some(Remedy::MakeIndex))
        })?;
        let best = |key: &[u8]| Ok::<_, Error>(database.get(key)?.and_then(|row| first_of_locator(&row)));
        let (best, best_by_block) = (best(BEST_BLOCK)?, best(BEST_BLOCK_V2)?);
        Ok(Some(Self { kind, dir: net_dir.join(kind.replaced_dir()), database, best, best_by_block }))
    }

    /// Where it ends.
    pub fn position(&self, chain: &Chain) -> Position {
        position_of(self.best_by_block.or(self.best), chain)
    }

    /// Of a `txindex`, where its rows by txid end.
    pub fn position_by_txid(&self, chain: &Chain) -> Position {
        position_of(self.best, chain)
    }

    /// Whether it is a `txindex` to which bitcoind adds rows by block.
    pub const fn is_by_block(&self) -> bool {
        self.best_by_block.is_some()
    }

    /// An error about what is in the database.
    pub fn damaged(&self, detail: impl Into<String>) -> Error {
        Error::damaged(detail).in_file(&self.dir, None).with_remedies([Remedy::MakeIndex])
    }

    fn row<T>(&self, key: &[u8], what: &str, read: impl Fn(&[u8]) -> Option<T>) -> Result<T, Error> {
        let value = self.database.get(key)?;
        let value = value.ok_or_else(|| self.damaged(format!("the index has no {what}")))?;
        read(&value).ok_or_else(|| self.damaged(format!("the index has a malformed {what}")))
    }

    /// The key of the hashes of outpoints.
    ///
    /// # Errors
    /// What is damaged or cannot be read.
    pub fn spender_key(&self) -> Result<SipKey, Error> {
        self.row(SPENDER_KEY, "key of its hashes", read_key)
    }

    /// The salt of the hashes of txids.
    ///
    /// # Errors
    /// What is damaged or cannot be read.
    pub fn txid_salt(&self) -> Result<SipKey, Error> {
        self.row(TXID_SALT, "salt of its hashes", read_key)
    }

    /// The next sequence number: 0 if there is no row with it, as for bitcoind.
    ///
    /// # Errors
    /// What is damaged or cannot be read.
    pub fn next_sequence(&self) -> Result<u32, Error> {
        let Some(value) = self.database.get(NEXT_SEQUENCE)? else { return Ok(0) };
        let number = value.try_into().map_err(|_| self.damaged("the next sequence number is malformed"))?;
        Ok(u32::from_le_bytes(number))
    }

    /// The sequence number of each block of the chain up to `end`, by height.
    ///
    /// # Errors
    /// What is damaged or cannot be read.
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

    /// The place of the next filter.
    ///
    /// # Errors
    /// What is damaged or cannot be read.
    pub fn next_place(&self) -> Result<FilterPlace, Error> {
        self.row(NEXT_PLACE, "place of the next filter", |value| {
            let (place, rest) = FilterPlace::read(value)?;
            rest.is_empty().then_some(place)
        })
    }

    /// The hashes and the place of the filter of the block at `height`.
    ///
    /// # Errors
    /// What is damaged or cannot be read.
    pub fn filter(&self, height: Height) -> Result<(BlockHash, FilterHashes, FilterPlace), Error> {
        self.row(&height_key(height), "row of its best block", FilterPlace::of_row)
    }

    /// The totals and the MuHash at the best block, which is at `height`.
    ///
    /// # Errors
    /// What is damaged or cannot be read.
    pub fn totals(&self, height: Height) -> Result<(Totals, MuHash3072), Error> {
        let (_, hash, totals) = self.row(&height_key(height), "row of its best block", Totals::read)?;
        let mut muhash = self.row(MUHASH, "MuHash", read_muhash)?;
        MuHash3072::divide_all(std::slice::from_mut(&mut muhash));
        if muhash.clone().finalize() != hash {
            return Err(self.damaged("the MuHash of the index is not that of its best block"));
        }
        Ok((totals, muhash))
    }
}

fn position_of(best: Option<BlockHash>, chain: &Chain) -> Position {
    let Some(best) = best else { return Position::Empty };
    // Most often it is one of the last blocks.
    let mut heights = (0..chain.block_count() as u32).rev().map(Height);
    heights.find(|&height| chain.block(height).hash == best).map_or(Position::Elsewhere(best), Position::At)
}

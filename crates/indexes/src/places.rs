//! Finds out which block is at a place in the block files, to judge rows that no block of the chain gives.

use crate::options::IndexFlaw;
use api::error::Error;
use chain::{
    blocks::{chain::Chain, files::Files},
    threads::lock,
};
use disk::index::{FileInfo, IndexRows, is_free_space};
use std::sync::{Arc, Mutex};
use wire::{BlockHash, FileNo, Height, Reader};

/// The places of all stored blocks. They are read when they are first needed.
pub struct Places<'a> {
    files: &'a Files<'a>,
    chain: &'a Chain,
    /// The last block that the index has in common with the chain.
    best: Height,
    /// The best block of a `txindex`: bitcoind writes the rows of its blocks above `best` anew.
    end: Option<BlockHash>,
    found: Mutex<Option<Arc<Stored>>>,
}

/// What the block index has about the block files.
struct Stored {
    /// The blocks, sorted.
    blocks: Vec<StoredBlock>,
    files: Vec<FileInfo>,
    /// The numbers of the block files, ascending.
    on_disk: Vec<FileNo>,
    /// Whether a block that bitcoind writes the rows of anew is not stored, so that their places are unknown.
    has_lost: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StoredBlock {
    file: u64,
    pos: u64,
    /// Its height, if the block is on the chain and not above the best one.
    indexed: Option<Height>,
}

impl<'a> Places<'a> {
    /// Judges the rows of an index that has the blocks of `chain` up to `best`. `end`: the best block of a
    /// `txindex`.
    pub fn new(files: &'a Files<'a>, chain: &'a Chain, best: Height, end: Option<BlockHash>) -> Self {
        Self { files, chain, best, end, found: Mutex::default() }
    }

    /// Returns what is wrong with a row that has this place and that no block gives, if anything is. Nothing
    /// is if the place is that of a block outside the chain or above the best block, or of a block that a
    /// crash has lost or that bitcoind will download again.
    pub fn judge(&self, place: &[u8]) -> Result<Option<IndexFlaw>, Error> {
        let flaw = |height, detail: &str| Ok(Some(IndexFlaw { height, detail: detail.to_owned() }));
        let mut reader = Reader::new(place);
        let (file, pos) = (reader.var_int(), reader.var_int());
        let (Ok(file), Ok(pos), Ok(_), 0) = (file, pos, reader.var_int(), reader.remaining()) else {
            return flaw(None, "a row is malformed");
        };
        let Stored { blocks, files, on_disk, has_lost } = &*self.stored()?;
        let Ok(at) = blocks.binary_search_by_key(&(file, pos), |block| (block.file, block.pos)) else {
            if *has_lost || is_free_space(files, on_disk, file, pos) {
                return Ok(None);
            }
            return flaw(None, "a row has a place where no block is");
        };
        let indexed = blocks.get(at).and_then(|block| block.indexed);
        indexed.map_or(Ok(None), |height| flaw(Some(height), "a row is not of a transaction of its block"))
    }

    fn stored(&self) -> Result<Arc<Stored>, Error> {
        let found = &mut *lock(&self.found);
        if let Some(found) = found {
            return Ok(Arc::clone(found));
        }
        let (mut blocks, mut has_lost, mut above) = (Vec::new(), false, self.end);
        let rows = IndexRows::open(self.files.disk, &self.files.datadir.index_dir())?;
        while let Some(hash) = above.take()
            && let Some(entry) = rows.entry(&hash)?.filter(|entry| entry.height > self.best)
        {
            has_lost |= !entry.status.has_data();
            above = Some(entry.header.prev);
        }
        let index = rows.stream(|entry| {
            if let Some((file, pos)) = entry.file.zip(entry.data_pos) {
                let is_indexed = entry.height <= self.best && self.chain.has(entry.height, &entry.hash);
                let indexed = is_indexed.then_some(entry.height);
                blocks.push(StoredBlock { file: file.0.into(), pos: pos.0, indexed });
            }
        })?;
        blocks.sort_unstable();
        let on_disk = self.files.datadir.blk_files(self.files.disk)?;
        let stored = Arc::new(Stored { blocks, files: index.files, on_disk, has_lost });
        *found = Some(Arc::clone(&stored));
        Ok(stored)
    }
}

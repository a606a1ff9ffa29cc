//! The times of the blocks of a chain, from the block index.

use super::IndexRows;
use crate::error::DiskError;
use wire::{BlockHash, BlockTime, Height};

/// What links a block to its parent. 64 bits of a hash tell it from its siblings.
struct Link {
    height: Height,
    hash: u64,
    parent: u64,
    time: BlockTime,
}

impl IndexRows<'_> {
    /// Returns the times of a block and of its ancestors, by height; `None` if the index does not contain all
    /// of them. While the index is read, each of its blocks takes 24 bytes of memory.
    ///
    /// # Errors
    /// Those of [`IndexRows::stream`].
    pub fn chain_times(&self, last: &BlockHash) -> Result<Option<Vec<BlockTime>>, DiskError> {
        let mut links = Vec::new();
        self.stream(|entry| {
            let (hash, parent) = (start(&entry.hash), start(&entry.header.prev));
            links.push(Link { height: entry.height, hash, parent, time: entry.header.time });
        })?;
        let key = |link: &Link| (link.height, link.hash);
        links.sort_unstable_by_key(key);
        let mut link = links.iter().find(|link| link.hash == start(last));
        let mut times = Vec::new();
        while let Some(&Link { height, parent, time, .. }) = link {
            times.push(time);
            let Some(below) = height.0.checked_sub(1) else {
                times.reverse();
                return Ok(Some(times));
            };
            let found = links.binary_search_by_key(&(Height(below), parent), key);
            link = found.ok().and_then(|at| links.get(at));
        }
        Ok(None)
    }
}

/// The first bytes of a hash, which the proof of work leaves random.
fn start(hash: &BlockHash) -> u64 {
    hash.0.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{BlockIndex, IndexEntry, write_block_index};
    use tempfile::TempDir;
    use vfs::RealDisk;
    use wire::Header;

    #[test]
    fn times_are_those_of_the_branch_and_missing_without_an_ancestor() {
        let block = |height: u32, prev: BlockHash, time: u32| {
            let header = Header { prev, time: BlockTime(time), ..Header::default() };
            IndexEntry::of_header(header.hash(), header, Height(height))
        };
        let genesis = block(0, BlockHash::default(), 100);
        let (one, stale) = (block(1, genesis.hash, 110), block(1, genesis.hash, 120));
        let (two, on_stale) = (block(2, one.hash, 105), block(2, stale.hash, 130));
        let entries = vec![genesis, one, stale, two, on_stale];
        let times = |entries: &[IndexEntry], last: &IndexEntry| {
            let dir = TempDir::new().unwrap();
            let index = BlockIndex { entries: entries.to_vec(), ..BlockIndex::default() };
            write_block_index(&RealDisk, dir.path(), &index).unwrap();
            let times = IndexRows::open(&RealDisk, dir.path()).unwrap().chain_times(&last.hash).unwrap();
            times.map(|times| times.iter().map(|time| time.0).collect::<Vec<_>>())
        };
        assert_eq!(times(&entries, &two), Some(vec![100, 110, 105]));
        assert_eq!(times(&entries, &on_stale), Some(vec![100, 120, 130]));
        assert_eq!(times(&entries, &one), Some(vec![100, 110]));
        assert_eq!(times(&entries, &genesis), Some(vec![100]));
        assert_eq!(times(&entries[1..], &two), None, "without the genesis block");
        assert_eq!(times(&entries[..2], &two), None, "without the block itself");
        let nowhere = TempDir::new().unwrap();
        assert!(IndexRows::open(&RealDisk, nowhere.path()).is_err(), "without an index");
    }
}

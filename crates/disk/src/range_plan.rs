//! `*.blocks`: a plan that cuts a chain into ranges, each of which another machine can check.
//!
//! Peregrine's own format. The machine that has the block index writes it, and all others read it, so that
//! nothing is left for them to decide: which block has which height, where it is stored, which scripts are
//! run, and how deltas ([`crate::delta`]) are cut.
//!
//! ```text
//! magic 8 "PGRN-PLN" | version 4 | network 4: magic of its messages | magic of the block files 4
//! | rules: length 1, text | activation heights: length 1, text | scripts 1: 0 (none are run) or 1
//! | heights + 1 up to which scripts are not run 4, 4, or 0 | key of the coinbase hashes 8, 8 | shards 4
//! | number of ranges 4 | ranges: height after the last block 4 each | number of blocks 4
//! | blocks: hash 32, median time past 4, file 4, position 4, position of the undo data 4, or 0
//! | checksum 4: CRC-32C of all before
//! ```
//! Integers are little-endian. A plan of mainnet has 46 MB. Its SHA-256 identifies it.

use crate::error::DiskError;
use crate::pack::pack_fields;
use crate::sealed::{Seal, Sealed};
use digest::sha256::sha256;
use digest::siphash::SipKey;
use std::ops::Range;
use std::path::Path;
use vfs::{Disk, During as _, unfinished};
use wire::{BlockHash, BlockTime, FileNo, Height, Network};

/// Number of shards of a delta, at most: a coin's shard follows from the first byte of its txid.
pub const MAX_SHARDS: u32 = 256;
/// Number of ranges, at most.
pub const MAX_RANGES: u32 = 1 << 16;

/// Maximum length of a plan, which is read at once, in bytes: enough for a chain with 20 million blocks.
const MAX_LEN: u64 = 1 << 30;

/// A block of the chain, and where it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedBlock {
    pub hash: BlockHash,
    pub median_time: BlockTime,
    pub file: FileNo,
    /// Position of its first byte in the `blk` file, after the record's frame.
    pub data_pos: u32,
    /// Position of its undo data in the `rev` file, after the record's frame; 0 if it has none.
    pub undo_pos: u32,
}

pack_fields!(PlannedBlock { hash, median_time, file, data_pos, undo_pos });

/// A chain that is cut into ranges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangePlan {
    pub network: Network,
    /// The magic of its block files: that of the network, unless it is a signet with a challenge of its own.
    pub magic: [u8; 4],
    /// The rules by which blocks are checked: a version of Bitcoin Core.
    pub rules: String,
    /// The heights from which on they apply, of which all networks but main can have others.
    pub activation_heights: String,
    pub scripts: bool,
    /// Height up to which they are not run, because of the assumed-valid block.
    pub assumed_valid_to: Option<Height>,
    /// Height above it up to which they are not run, because the block index says that they were.
    pub checked_to: Option<Height>,
    /// Key of the hashes of coinbase txids. It was drawn after the blocks were made, so that none of them can
    /// have been made for it.
    pub coinbase_key: SipKey,
    /// Number of shards into which a delta is cut, 1 to [`MAX_SHARDS`].
    pub shards: u32,
    /// For each range, the height after its last block. The first one begins with the genesis block.
    pub ends: Vec<u32>,
    /// All blocks of the chain, by height.
    pub blocks: Vec<PlannedBlock>,
}

impl RangePlan {
    /// The heights of a range; `None` if there is no such range.
    pub fn heights(&self, range: u32) -> Option<Range<u32>> {
        let end = *self.ends.get(range as usize)?;
        let start = range.checked_sub(1).and_then(|before| self.ends.get(before as usize));
        Some(start.copied().unwrap_or(0)..end)
    }

    /// The first bytes of the txids in a shard.
    pub fn first_bytes(&self, shard: u32) -> Range<usize> {
        let start = |shard: u32| (shard * MAX_SHARDS / self.shards) as usize;
        start(shard)..start(shard + 1)
    }

    /// Writes the plan, and returns its digest. A file at `path` is refused.
    ///
    /// # Errors
    /// [`DiskError::CallerError`] if the plan is inconsistent; [`DiskError::Unfinished`];
    /// [`DiskError::File`].
    pub fn write(&self, disk: &dyn Disk, path: &Path) -> Result<[u8; 32], DiskError> {
        let bytes = self.seal(path)?;
        let mut file = unfinished::create_new(disk, path, unfinished::SUFFIX)?;
        file.write_all(&bytes)?;
        file.commit()?;
        Ok(sha256(&bytes))
    }

    /// Reads a plan, and returns its digest too.
    ///
    /// # Errors
    /// [`DiskError::Damaged`] if the file is not a plan, of another version, or not as it was written;
    /// [`DiskError::File`].
    pub fn read(disk: &dyn Disk, path: &Path) -> Result<(Self, [u8; 32]), DiskError> {
        let bytes = disk.read(path, MAX_LEN).during("read", path)?;
        let plan = Self::unseal(&bytes).map_err(|flaw| {
            flaw.in_range_file(path, "the plan is damaged: copy it again, or make another one")
        })?;
        Ok((plan, sha256(&bytes)))
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        self.sealed()
    }
}

pack_fields!(RangePlan {
    network,
    magic,
    rules,
    activation_heights,
    scripts,
    assumed_valid_to,
    checked_to,
    coinbase_key,
    shards,
    ends,
    blocks
});

impl Sealed for RangePlan {
    const SEAL: Seal = Seal { magic: *b"PGRN-PLN", version: 4, what: "a plan of ranges" };

    fn check(&self) -> Result<(), &'static str> {
        let is_ascending =
            self.ends.is_sorted_by(|a, b| a < b) && self.ends.first().is_some_and(|end| *end > 0);
        let is_whole = self.ends.last().is_some_and(|end| *end as usize == self.blocks.len());
        if !(is_ascending && is_whole) || self.ends.len() > MAX_RANGES as usize {
            return Err("its ranges are not those of its blocks");
        }
        if !(1..=MAX_SHARDS).contains(&self.shards) {
            return Err("its number of shards is impossible");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hex_conservative::DisplayHex as _;
    use vfs::RealDisk;

    /// A plan of 100 blocks in four ranges.
    fn plan() -> RangePlan {
        let block = |number: u32| PlannedBlock {
            hash: BlockHash([number as u8; 32]),
            median_time: BlockTime(1_600_000_000 + number),
            file: FileNo(number / 30),
            data_pos: 8 + number,
            undo_pos: if number == 0 { 0 } else { 9 + number },
        };
        RangePlan {
            network: Network::Signet,
            magic: [1, 2, 3, 4],
            rules: "31.99".to_owned(),
            activation_heights: "segwit@1 csv@1".to_owned(),
            scripts: true,
            assumed_valid_to: Some(Height(0)),
            checked_to: Some(Height(7)),
            coinbase_key: SipKey(5, u64::MAX),
            shards: 5,
            ends: vec![1, 50, 51, 100],
            blocks: (0..100).map(block).collect(),
        }
    }

    #[test]
    fn a_plan_comes_back_and_has_its_digest() {
        let (dir, path) = testkit::fresh_path("p.blocks");
        let digest = plan().write(&RealDisk, &path).unwrap();
        assert_eq!(RangePlan::read(&RealDisk, &path).unwrap(), (plan(), digest));
        assert_eq!(digest, sha256(&std::fs::read(&path).unwrap()));
        let other = RangePlan { coinbase_key: SipKey(6, 0), checked_to: None, ..plan() };
        assert!(other.write(&RealDisk, &path).unwrap_err().to_string().contains("it exists already"));
        assert_eq!(RangePlan::read(&RealDisk, &path).unwrap().0, plan());
        let path = dir.path().join("other.blocks");
        assert_ne!(other.write(&RealDisk, &path).unwrap(), digest);
        assert_eq!(RangePlan::read(&RealDisk, &path).unwrap().0, other);
    }

    #[test]
    fn the_bytes_of_a_plan_are_those_of_its_version() {
        let found = sha256(&plan().to_bytes()).to_lower_hex_string();
        assert_eq!(found, "cd7d8bfa926e43fb9626a58262acd978b84e462a94d4e6d65bb18eb691a9a097");
    }

    #[test]
    fn ranges_and_shards_divide_what_there_is() {
        let plan = plan();
        let heights: Vec<_> = (0..5).map(|range| plan.heights(range)).collect();
        assert_eq!(heights, [Some(0..1), Some(1..50), Some(50..51), Some(51..100), None]);
        for shards in [1, 3, 5, 64, 255, 256] {
            let plan = RangePlan { shards, ..plan.clone() };
            let all: Vec<usize> = (0..shards).flat_map(|shard| plan.first_bytes(shard)).collect();
            assert!(all.into_iter().eq(0..256), "{shards} shards");
        }
    }

    #[test]
    fn an_impossible_plan_is_neither_written_nor_read() {
        let (_dir, path) = testkit::fresh_path("p.blocks");
        let wrong: [fn(&mut RangePlan); 6] = [
            |plan| plan.shards = 0,
            |plan| plan.shards = 257,
            |plan| plan.ends = vec![50, 50, 100],
            |plan| plan.ends = vec![0, 100],
            |plan| plan.ends = vec![100, 101],
            |plan| plan.ends.clear(),
        ];
        for change in wrong {
            let mut plan = plan();
            change(&mut plan);
            let error = plan.write(&RealDisk, &path).unwrap_err();
            assert!(matches!(error, DiskError::CallerError { .. }), "{error}");
            std::fs::write(&path, plan.to_bytes()).unwrap();
            let error = RangePlan::read(&RealDisk, &path).unwrap_err();
            assert!(matches!(error, DiskError::Damaged { .. }), "{error}");
        }
        let mut bytes = plan().to_bytes();
        bytes[8] += 1;
        std::fs::write(&path, &bytes).unwrap();
        let error = RangePlan::read(&RealDisk, &path).unwrap_err().to_string();
        assert!(error.contains("written by another version of peregrine (format 5"), "{error}");
    }
}

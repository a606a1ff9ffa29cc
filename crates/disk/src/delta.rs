//! `delta`: what a range of blocks, or several, change about the UTXO set; the list of a directory's files.
//!
//! Peregrine's own format. Machines that check ranges of a plan ([`crate::range_plan`]) write such a
//! directory, and so do those that merge several. It has the coins that the ranges create and do not spend,
//! and the spends of coins that they do not create, in a sorted run ([`crate::sorted_run`]) for each shard,
//! and this list:
//!
//! ```text
//! magic 8 "PGRN-DLT" | version 4 | plan 32: its SHA-256 | number of ranges 4
//! | ranges, ascending: number 4 | content 32 | compared 1 | seconds 4
//!   | checker: length 1, text | program: length 1, text
//! | number of shards 4
//! | shards, ascending: number 4 | entries 8 | spends 8 | bytes of the file 8 | its SHA-256 32
//! | blocks 8 | transactions 8 | inputs 8 | outputs 8 | bytes of blocks 8 | inputs whose scripts were run 8
//! | number of coinbases 4
//! | coinbases: 8 each, ascending: keyed hashes of their txids; none when all ranges of the plan are merged
//! | checksum 4: CRC-32C of all before
//! ```
//! Integers are little-endian. `content` identifies what a range amounts to: it is the same on each machine
//! that checks the range with the same plan. A merged directory repeats what it says of each range, so that
//! the last merge knows whether all shards are made of the same deltas. Version 2 did not say which of these
//! contents the merge had compared.
//!
//! The list is written last. Without it, the directory is what an interrupted run has left.

use crate::error::DiskError;
use crate::pack::{Pack as _, pack_fields, put_all};
use crate::sealed::{Seal, Sealed};
use crate::sorted_run::SortedRunReader;
use digest::sha256::Sha256;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use vfs::{Disk, During as _, each_piece, unfinished};
use wire::Network;

/// Name of the list.
const NAME: &str = "delta";
/// Maximum length of a list, which is read at once, in bytes: enough for a chain with 20 million blocks.
const MAX_LEN: u64 = 256 << 20;

/// Maximum number of bits of each number of a shard, and of a count: more than any chain needs. With so few,
/// no sum over all shards and all ranges overflows.
const SHARD_BITS: u32 = 40;
const COUNT_BITS: u32 = 48;

/// A range that a machine has checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedRange {
    pub number: u32,
    /// Identifies what the range amounts to ([`Delta::content`]).
    pub content: [u8; 32],
    /// Whether the machine that wrote the list had the whole delta of this range alone, with that content. If
    /// not, it has repeated what a merged list says.
    pub is_compared: bool,
    /// Seconds that the check took.
    pub seconds: u32,
    /// Name of the machine, as its operator calls it.
    pub checker: String,
    /// The program that has checked it, with its version.
    pub program: String,
}

pack_fields!(CheckedRange { number, content, is_compared, seconds, checker, program });

/// One of the sorted runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeltaShard {
    pub number: u32,
    /// Number of entries: creations and spends.
    pub entries: u64,
    pub spends: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Digest of the file.
    pub sha256: [u8; 32],
}

pack_fields!(DeltaShard { number, entries, spends, bytes, sha256 });

/// The list of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delta {
    /// Digest of the plan.
    pub plan: [u8; 32],
    /// The ranges, in ascending order.
    pub ranges: Vec<CheckedRange>,
    /// The shards, in ascending order.
    pub shards: Vec<DeltaShard>,
    /// Numbers of blocks, transactions, inputs, outputs, bytes of blocks, and inputs whose scripts were run.
    pub counts: [u64; 6],
    /// Keyed hashes of the coinbase txids of the blocks, in ascending order; empty when all ranges of the
    /// plan are merged, which has shown that they differ.
    pub coinbases: Vec<u64>,
}

impl DeltaShard {
    /// Describes the file of a shard in the directory `dir`, which has these numbers of entries and spends.
    pub fn of_file(
        disk: &dyn Disk,
        dir: &Path,
        number: u32,
        entries: u64,
        spends: u64,
    ) -> Result<Self, DiskError> {
        let path = shard_path(dir, number);
        let file = disk.open(&path).during("open", &path)?;
        let bytes = file.len().during("read", &path)?;
        let mut sha = Sha256::new();
        each_piece(&*file, bytes, |piece| sha.update(piece)).during("read", &path)?;
        Ok(Self { number, entries, spends, bytes, sha256: sha.finalize() })
    }
}

/// Returns the path of a shard in the directory `dir`.
pub fn shard_path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("shard-{number:03}.run"))
}

/// Whether a path has a name that only files of a delta have, complete or not.
pub fn is_delta_file(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let name = name.strip_suffix(unfinished::SUFFIX).unwrap_or(name);
    let shard = name.strip_prefix("shard-").and_then(|rest| rest.strip_suffix(".run"));
    name == NAME || shard.is_some_and(|digits| digits.parse::<u32>().is_ok())
}

impl Delta {
    /// Returns what identifies this delta, and is the same on each machine: the digest of its plan, of the
    /// numbers of its ranges, its shards, counts and coinbases.
    pub fn content(&self) -> [u8; 32] {
        let mut sha = Sha256::new();
        sha.update(&self.plan);
        self.ranges.iter().for_each(|range| sha.update(&range.number.to_le_bytes()));
        let mut rest = Vec::new();
        put_all(&self.shards, &mut rest);
        self.counts.put(&mut rest);
        put_all(&self.coinbases, &mut rest);
        sha.update(&rest);
        sha.finalize()
    }

    /// Writes the list of the directory `dir`.
    ///
    /// # Errors
    /// [`DiskError::CallerError`] if it is inconsistent; [`DiskError::Unfinished`]; [`DiskError::File`].
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
        let path = dir.join(NAME);
        Ok(unfinished::write(disk, &path, &self.seal(&path)?)?)
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        self.sealed()
    }

    /// Whether the directory `dir` has a list.
    pub fn exists(disk: &dyn Disk, dir: &Path) -> Result<bool, DiskError> {
        let path = dir.join(NAME);
        Ok(disk.exists(&path).during("look for", &path)?)
    }

    /// Reads the list of the directory `dir`.
    ///
    /// # Errors
    /// [`DiskError::Damaged`] if the file is not a list, of another version, or not as it was written;
    /// [`DiskError::File`].
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Self, DiskError> {
        let path = dir.join(NAME);
        let bytes = disk.read(&path, MAX_LEN).during("read", &path)?;
        Self::unseal(&bytes).map_err(|flaw| {
            flaw.in_range_file(&path, "the delta is damaged: copy it again, or check its range again")
        })
    }

    /// Opens a shard of the directory `dir`, after comparing it with the list.
    ///
    /// # Errors
    /// [`DiskError::Damaged`] if it is not the file that the list names; those of [`SortedRunReader::open`].
    pub fn open_shard(
        disk: &dyn Disk,
        dir: &Path,
        network: Network,
        shard: &DeltaShard,
    ) -> Result<SortedRunReader, DiskError> {
        let path = shard_path(dir, shard.number);
        let found = DeltaShard::of_file(disk, dir, shard.number, shard.entries, shard.spends)?;
        let run = SortedRunReader::open(disk, &path, network)?;
        if found != *shard || (run.meta().entries, run.meta().spends) != (shard.entries, shard.spends) {
            let flaw = "this is not the file that the list of its directory names: copy the directory again, \
                        or check its range again";
            return Err(DiskError::Damaged { path, offset: 0, flaw: flaw.to_owned() });
        }
        Ok(run)
    }
}

pack_fields!(Delta { plan, ranges, shards, counts, coinbases });

impl Sealed for Delta {
    const SEAL: Seal = Seal { magic: *b"PGRN-DLT", version: 3, what: "the list of a delta" };

    fn check(&self) -> Result<(), &'static str> {
        let is_ascending = self.ranges.is_sorted_by(|a, b| a.number < b.number)
            && self.shards.is_sorted_by(|a, b| a.number < b.number)
            && self.coinbases.is_sorted();
        if self.ranges.is_empty() || self.shards.is_empty() || !is_ascending {
            return Err("its ranges, shards or coinbases are not in order");
        }
        if self.shards.iter().any(|shard| shard.spends > shard.entries) {
            return Err("a shard has more spends than entries");
        }
        if self.shards.iter().any(|shard| (shard.entries | shard.bytes) >> SHARD_BITS > 0)
            || self.counts.iter().any(|count| count >> COUNT_BITS > 0)
        {
            return Err("a number in it is impossible");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sorted_run::SortedRunWriter;
    use digest::sha256::sha256;
    use hex_conservative::DisplayHex as _;
    use vfs::RealDisk;

    fn delta() -> Delta {
        let range = |number: u32| CheckedRange {
            number,
            content: [number as u8; 32],
            is_compared: number == 5,
            seconds: number * 60,
            checker: format!("machine {number}"),
            program: "a test".to_owned(),
        };
        let shard = |number: u32| DeltaShard { number, entries: 9, spends: 4, bytes: 99, sha256: [3; 32] };
        Delta {
            plan: [7; 32],
            ranges: [0, 5, 6].map(range).to_vec(),
            shards: [2, 3].map(shard).to_vec(),
            counts: [1, 2, 3, 4, 5, 6],
            coinbases: vec![1, 1, u64::MAX],
        }
    }

    #[test]
    fn a_list_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!Delta::exists(&RealDisk, dir.path()).unwrap());
        delta().write(&RealDisk, dir.path()).unwrap();
        assert!(Delta::exists(&RealDisk, dir.path()).unwrap());
        assert_eq!(Delta::read(&RealDisk, dir.path()).unwrap(), delta());
        // A long name ends after a character.
        let mut long = delta();
        long.ranges[0].checker = "é".repeat(200);
        long.write(&RealDisk, dir.path()).unwrap();
        assert_eq!(Delta::read(&RealDisk, dir.path()).unwrap().ranges[0].checker, "é".repeat(127));
    }

    #[test]
    fn the_bytes_of_a_list_are_those_of_its_version() {
        let hashes = [sha256(&delta().to_bytes()), delta().content()];
        let expected = [
            "31cf582554abc29c583c4cd8d769f1ac5a85a17b29c4f9d25bbac956fa7ceb25",
            "89dcfccd25874ba3e37eb5429171cd968a8387e27f720ecc16b83dde86d2abd7",
        ];
        assert_eq!(hashes.map(|hash| hash.to_lower_hex_string()), expected);
    }

    #[test]
    fn the_content_is_what_ranges_amount_to_and_not_who_has_checked_them() {
        let content = delta().content();
        let mut other = delta();
        (other.ranges[0].checker, other.ranges[1].seconds, other.ranges[2].content) =
            ("someone".to_owned(), 1, [1; 32]);
        assert_eq!(other.content(), content);
        let changes: [fn(&mut Delta); 5] = [
            |delta| delta.plan[0] ^= 1,
            |delta| delta.ranges[1].number = 4,
            |delta| delta.shards[1].sha256[31] ^= 1,
            |delta| delta.counts[5] += 1,
            |delta| delta.coinbases[0] = 0,
        ];
        for change in changes {
            let mut other = delta();
            change(&mut other);
            assert_ne!(other.content(), content);
        }
    }

    #[test]
    fn an_impossible_list_is_neither_written_nor_read() {
        let dir = tempfile::tempdir().unwrap();
        let wrong: [fn(&mut Delta); 9] = [
            // Sums of these overflowed.
            |delta| delta.shards[1].entries = 1 << 40,
            |delta| delta.shards[0].bytes = u64::MAX,
            |delta| delta.counts[5] = 1 << 48,
            |delta| delta.ranges.clear(),
            |delta| delta.shards.clear(),
            |delta| delta.ranges.swap(0, 1),
            |delta| delta.shards[1].number = 2,
            |delta| delta.shards[0].spends = 10,
            |delta| delta.coinbases.reverse(),
        ];
        for change in wrong {
            let mut delta = delta();
            change(&mut delta);
            let error = delta.write(&RealDisk, dir.path()).unwrap_err();
            assert!(matches!(error, DiskError::CallerError { .. }), "{error}");
            std::fs::write(dir.path().join(NAME), delta.to_bytes()).unwrap();
            let error = Delta::read(&RealDisk, dir.path()).unwrap_err();
            assert!(matches!(error, DiskError::Damaged { .. }), "{error}");
        }
    }

    #[test]
    fn a_shard_is_compared_with_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let path = shard_path(dir.path(), 3);
        SortedRunWriter::create(&RealDisk, &path, Network::Regtest, 0).unwrap().finish().unwrap();
        let listed = DeltaShard::of_file(&RealDisk, dir.path(), 3, 0, 0).unwrap();
        let open = |listed| Delta::open_shard(&RealDisk, dir.path(), Network::Regtest, &listed);
        assert_eq!(open(listed).unwrap().meta().entries, 0);
        for wrong in [
            DeltaShard { entries: 1, ..listed },
            DeltaShard { bytes: listed.bytes + 1, ..listed },
            DeltaShard { sha256: [0; 32], ..listed },
        ] {
            let Err(DiskError::Damaged { path: named, .. }) = open(wrong) else { panic!("{wrong:?}") };
            assert_eq!(named, path);
        }
        assert!(is_delta_file(&path) && is_delta_file(&dir.path().join(NAME)));
        let others = ["deltas", "shard-.run", "shard-x.run", "run-00000001.run"];
        assert!(!others.iter().any(|name| is_delta_file(name.as_ref())));
    }
}

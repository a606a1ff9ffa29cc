//! How much disk space a run will need: an estimate on the safe side, before it starts.
//! `docs/adr/0005-bounded-memory.md` explains the numbers.

use crate::{error::Error, remedy::Remedy, size::HumanSize, subject::Subject};
use std::{fmt, path::Path};
use vfs::{Disk, During as _};
use wire::Network;

/// Undo data is made once deliveries and new sorted runs have this many bytes, unless more memory is allowed,
/// or the coins take more than twice as much.
pub const MIN_EPOCH_BYTES: u64 = 256 << 20;
/// Block bytes per byte of the chainstate's rows, at least: on mainnet they are 70.
const BLOCK_BYTES_PER_ROW_BYTE_ON_MAINNET: u64 = 50;
/// The same on other chains, which may spend less.
const BLOCK_BYTES_PER_ROW_BYTE: u64 = 15;
/// Bytes of a coin's row in the chainstate, at least on average: on mainnet 66.
const BYTES_PER_COIN: u64 = 60;
/// Memory that coins take in the join, as a ratio to the bytes of their rows.
const MEMORY_PER_ROW: (u64, u64) = (5, 3);
/// Block bytes per byte of sorted runs that exist at one time, at least, if memory is small.
const BLOCK_BYTES_PER_RUN_BYTE: u64 = 7;
/// Block bytes per byte of undo data, at least: on mainnet 7.
const BLOCK_BYTES_PER_UNDO_BYTE: u64 = 5;

reported! {
/// Disk space needed, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskNeed {
    /// For the new chainstate, which is written beside the old one.
    pub chainstate as "chainstate_bytes": u64,
    /// For temporary files.
    pub temporary as "temporary_bytes": u64,
    /// For undo data that is made.
    pub undo as "undo_bytes": u64,
}
}

impl DiskNeed {
    /// The sum, if everything is on one disk.
    pub const fn total(&self) -> u64 {
        self.chainstate + self.temporary + self.undo
    }

    /// The need for `block_bytes` of a network's blocks; `old` is the size of the existing chainstate, `None`
    /// if there is none.
    pub fn estimate(network: Network, block_bytes: u64, old: Option<u64>, join_bytes: usize) -> Self {
        let rows = match network {
            Network::Main => block_bytes / BLOCK_BYTES_PER_ROW_BYTE_ON_MAINNET,
            _ => block_bytes / BLOCK_BYTES_PER_ROW_BYTE,
        };
        // The size of a chainstate that was never completed is no guide.
        let old = old.filter(|&old| old > rows / 8);
        let chainstate = old.map_or(rows, |old| old + old / 8).min(rows);
        let fits = in_memory(chainstate) <= join_bytes as u64;
        let temporary = if fits { 0 } else { block_bytes / BLOCK_BYTES_PER_RUN_BYTE };
        Self { chainstate, temporary, undo: 0 }
    }

    /// The same need with hints that call `coins` outputs unspent (false hints: any number) and end below
    /// `bytes_above` of blocks. Temporary files get only these blocks' effects, and the coins.
    #[must_use]
    pub fn with_hinted_coins(self, coins: u64, bytes_above: u64, join_bytes: usize) -> Self {
        // What a hint file says may be any number: the sums below must not overflow.
        let rows = coins.saturating_mul(BYTES_PER_COIN).min(u64::MAX >> 4);
        let coins = if in_memory(rows) <= join_bytes as u64 { 0 } else { 2 * rows };
        let temporary = coins + self.temporary.min(bytes_above / BLOCK_BYTES_PER_RUN_BYTE);
        Self { chainstate: self.chainstate.max(rows), temporary, ..self }
    }

    /// The same need with checkpoints, even if all coins fit into the memory: each checkpoint contains all of
    /// them, and the one before is removed only when the next is complete.
    #[must_use]
    pub fn with_checkpoints(self) -> Self {
        Self { temporary: self.temporary.max(2 * self.chainstate), ..self }
    }

    /// The same need with undo data made for `block_bytes` of blocks (all of them if `is_of_all`). Coins on
    /// the way to their spenders are temporary too: about as many bytes as the undo data, up to a limit set
    /// by `memory` and the coins. If all blocks get undo data, the coins limit the sorted runs too
    /// ([ADR 10](../../../../docs/adr/0010-coins-are-delivered-to-their-spenders.md)).
    #[must_use]
    pub fn with_undo(self, block_bytes: u64, is_of_all: bool, memory: u64) -> Self {
        let undo = block_bytes / BLOCK_BYTES_PER_UNDO_BYTE;
        let deliveries = undo.min(memory.max(MIN_EPOCH_BYTES).max(self.chainstate));
        let runs = if is_of_all { self.temporary.min(3 * self.chainstate) } else { self.temporary };
        Self { undo, temporary: runs + deliveries, ..self }
    }

    /// The same need, less what the interrupted run has already written.
    #[must_use]
    pub const fn without_written(self, temporary: u64, undo: u64) -> Self {
        let temporary = self.temporary.saturating_sub(temporary);
        Self { temporary, undo: self.undo.saturating_sub(undo), ..self }
    }

    /// The same need with the coins cache: without temporary files, but while tables of the chainstate are
    /// merged, both the old and the new ones exist.
    #[must_use]
    pub const fn with_cache(self) -> Self {
        Self { chainstate: 2 * self.chainstate, temporary: 0, ..self }
    }

    /// Checks that enough disk space is free in these directories; in that of the blocks, `to_come` bytes are
    /// downloaded meanwhile. A chainstate in the work directory is a temporary file, not a result.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Environment`] if it is not; any I/O error.
    pub fn check(
        &self,
        disk: &dyn Disk,
        chainstate_dir: &Path,
        work_dir: &Path,
        blocks_dir: &Path,
        to_come: u64,
    ) -> Result<(), Error> {
        let mut help = vec![Remedy::OtherWorkDir];
        help.extend((self.temporary > 0).then_some(Remedy::MoreMemory));
        let mut need = *self;
        if chainstate_dir == work_dir {
            need = Self { chainstate: 0, temporary: self.chainstate + self.temporary, ..need };
        }
        let in_dirs: [(&Path, u64, &[Remedy]); 3] = [
            (chainstate_dir, need.chainstate, &[Remedy::OtherOutput]),
            (work_dir, need.temporary, &help),
            (blocks_dir, need.undo + to_come, &[]),
        ];
        let blocks = match to_come {
            0 => String::new(),
            bytes => format!(", beside {} of blocks that are downloaded", HumanSize(bytes)),
        };
        check_space(disk, &in_dirs, &format!("the run {need}{blocks}"))
    }
}

/// Checks that enough disk space is free for these numbers of bytes in these directories, some of which may
/// be on the same disk. `needs` says in the error what is needed.
///
/// # Errors
/// [`crate::error::ErrorKind::Environment`] if it is not, with the remedies of the directories on the full
/// disk; any I/O error.
pub fn check_space(disk: &dyn Disk, bytes_in: &[(&Path, u64, &[Remedy])], needs: &str) -> Result<(), Error> {
    let used = || bytes_in.iter().filter(|(_, bytes, _)| *bytes > 0);
    for (dir, ..) in used() {
        let dir = nearest_existing(disk, dir)?;
        let (mut need, mut remedies) = (0, Vec::<Remedy>::new());
        for (other, bytes, help) in used() {
            let other_dir = nearest_existing(disk, other)?;
            if disk.share_space(dir, other_dir).during("look at", other_dir)? {
                need += bytes;
                remedies.extend(*help);
            }
        }
        let free = disk.free_space(dir).during("find the free space of", dir)?;
        if free < need {
            let detail = format!("not enough disk space: {needs}, and {} are free", HumanSize(free));
            let error = Error::environment(detail).in_file(dir, None).about(Subject::DiskSpace);
            return Err(error.with_remedies(remedies));
        }
    }
    Ok(())
}

impl fmt::Display for DiskNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needs = [
            (self.chainstate, "about", "the new chainstate"),
            (self.undo, "up to", "undo data"),
            (self.temporary, "up to", "temporary files"),
        ];
        let (mut start, mut of_what) = ("needs ", " of disk space");
        for (bytes, bound, what) in needs.into_iter().filter(|(bytes, ..)| *bytes > 0) {
            write!(f, "{start}{bound} {}{of_what} for {what}", HumanSize(bytes))?;
            (start, of_what) = (", and ", "");
        }
        if self.total() == 0 { f.write_str("needs no disk space") } else { Ok(()) }
    }
}

/// Returns the bytes of memory that the coins of so many bytes of rows take.
const fn in_memory(rows: u64) -> u64 {
    rows / MEMORY_PER_ROW.1 * MEMORY_PER_ROW.0
}

fn nearest_existing<'p>(disk: &dyn Disk, dir: &'p Path) -> Result<&'p Path, Error> {
    for above in dir.ancestors().filter(|above| !above.as_os_str().is_empty()) {
        if disk.exists(above).during("look for", above)? {
            return Ok(above);
        }
    }
    Ok(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn the_estimate_depends_on_the_old_chainstate_and_the_memory() {
        const GB: u64 = 1_000_000_000;
        let estimate = |bytes, old, join_bytes| DiskNeed::estimate(Network::Main, bytes, old, join_bytes);
        let mainnet = estimate(860 * GB, Some(12 * GB), 900 << 20);
        assert_eq!(mainnet, DiskNeed { chainstate: 13_500_000_000, temporary: 860 * GB / 7, undo: 0 });
        let undo = mainnet.with_undo(860 * GB, false, 1 << 30);
        assert_eq!((undo.undo, undo.temporary - mainnet.temporary), (172 * GB, 13_500_000_000));
        let all_undo = mainnet.with_undo(860 * GB, true, 1 << 30);
        assert_eq!(all_undo, DiskNeed { temporary: 4 * 13_500_000_000, ..undo });
        let resumed = all_undo.without_written(50 * GB, 180 * GB);
        assert_eq!(resumed, DiskNeed { temporary: 4 * GB, undo: 0, ..all_undo });
        let cache = undo.with_cache();
        assert_eq!((cache.chainstate, cache.temporary, cache.undo), (27_000_000_000, 0, undo.undo));
        let large = estimate(860 * GB, Some(12 * GB), 35 << 30);
        assert_eq!((large.temporary, large.with_checkpoints().temporary), (0, 27_000_000_000));
        assert_eq!(mainnet.with_checkpoints(), mainnet);
        // The hints of mainnet's coins, and hints that call all outputs unspent.
        let hinted = mainnet.with_hinted_coins(173_676_464, 7 * GB, 900 << 20);
        assert_eq!(hinted, DiskNeed { temporary: 2 * 60 * 173_676_464 + GB, ..mainnet });
        let all = mainnet.with_hinted_coins(3_400_000_000, 0, 900 << 20);
        assert_eq!((all.chainstate, all.temporary), (204 * GB, 408 * GB));
        assert!(large.with_hinted_coins(u64::MAX, GB, 35 << 30).total() > u64::MAX >> 4);
        let few = large.with_hinted_coins(300_000_000, GB, 35 << 30);
        assert_eq!(few, DiskNeed { chainstate: 18 * GB, ..large });
        let empty = [Network::Main, Network::Regtest];
        let empty = empty.map(|network| DiskNeed::estimate(network, 750 * GB, None, 900 << 20).chainstate);
        assert_eq!(empty, [15 * GB, 50 * GB]);
    }

    #[test]
    fn insufficient_disk_space_is_an_error_before_the_work_starts() {
        let dir = std::env::temp_dir();
        let need = |chainstate| DiskNeed { chainstate, temporary: 0, undo: 0 };
        need(1).check(&vfs::RealDisk, &dir.join("no/such"), &dir, &dir, 0).unwrap();
        let error = need(u64::MAX / 2).check(&vfs::RealDisk, &dir, &dir, &dir, 0).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Environment);
        assert!(error.remedies.contains(&Remedy::OtherWorkDir), "{error}");
        // Was once reported as "needs about 0 MB".
        assert!(need(900_000).to_string().starts_with("needs about 900 kB of disk"));
        let all = DiskNeed { chainstate: 0, temporary: 5_000_000, undo: 3_000_000 };
        let expected = "needs up to 3 MB of disk space for undo data, and up to 5 MB for temporary files";
        assert_eq!(all.to_string(), expected);
    }

    /// It was once to use more memory, or another directory for temporary files or for the result, whatever
    /// the space was for.
    #[test]
    fn the_advice_depends_on_what_the_space_is_for() {
        use Remedy::{FreeDiskSpace, MoreMemory, OtherOutput, OtherWorkDir};
        let (work, result, much) = (std::env::temp_dir(), std::env::temp_dir().join("new"), u64::MAX / 8);
        let lacking = |chainstate, temporary, chainstate_dir: &Path| {
            let need = DiskNeed { chainstate, temporary, undo: 0 };
            need.check(&vfs::RealDisk, chainstate_dir, &work, &work, 0).unwrap_err()
        };
        let of_statistics = lacking(much, 0, &work);
        assert_eq!(of_statistics.remedies, [FreeDiskSpace, OtherWorkDir]);
        assert!(of_statistics.detail.contains(" for temporary files, and "), "{of_statistics}");
        assert_eq!(lacking(much, 0, &result).remedies, [FreeDiskSpace, OtherOutput]);
        assert_eq!(lacking(0, much, &result).remedies, [FreeDiskSpace, OtherWorkDir, MoreMemory]);
    }
}

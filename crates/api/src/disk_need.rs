//! How much disk space a run will need: an estimate on the safe side, before it starts.
//! `docs/adr/0005-bounded-memory.md` explains the numbers.

use crate::{
    error::{Error, ErrorKind},
    remedy::Remedy,
    size::HumanSize,
    subject::Subject,
};
use std::{fmt, path::Path};
use vfs::{Disk, During as _};

/// Bytes of deliveries and of new sorted runs from which on undo data is made, unless more memory is allowed
/// than this, or the coins take more than twice as much.
pub const MIN_EPOCH_BYTES: u64 = 256 << 20;
/// Block bytes per byte of the chainstate's rows, at least: on mainnet 70, on chains that spend less 15.
const BLOCK_BYTES_PER_ROW_BYTE: u64 = 15;
/// Bytes of a coin's row in the chainstate, at least on average: on mainnet 66.
const BYTES_PER_COIN: u64 = 60;
/// Bytes of memory per bytes of rows, of coins in the join.
const MEMORY_PER_ROW: (u64, u64) = (5, 3);
/// Block bytes per byte of sorted runs that exist at one time, at least, if memory is small.
const BLOCK_BYTES_PER_RUN_BYTE: u64 = 7;
/// Block bytes per byte of undo data, at least: on mainnet 7.
const BLOCK_BYTES_PER_UNDO_BYTE: u64 = 5;

reported! {
/// Disk space needed, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    /// All of it, if it is all on one disk.
    pub const fn total(&self) -> u64 {
        self.chainstate + self.temporary + self.undo
    }

    /// The need for `block_bytes` of blocks; `old` is the size of the existing chainstate, `None` if there is
    /// none.
    pub fn estimate(block_bytes: u64, old: Option<u64>, join_bytes: usize) -> Self {
        let rows = block_bytes / BLOCK_BYTES_PER_ROW_BYTE;
        // The size of a chainstate that was never completed is no guide.
        let old = old.filter(|&old| old > rows / 8);
        let chainstate = old.map_or(rows, |old| old + old / 8).min(rows);
        let fits = in_memory(chainstate) <= join_bytes as u64;
        let temporary = if fits { 0 } else { block_bytes / BLOCK_BYTES_PER_RUN_BYTE };
        Self { chainstate, temporary, undo: 0 }
    }

    /// The same need, if hints call so many outputs unspent: more than there can be if the hints are false.
    #[must_use]
    pub fn with_hinted_coins(self, coins: u64, join_bytes: usize) -> Self {
        let rows = coins.saturating_mul(BYTES_PER_COIN);
        let fits = rows <= self.chainstate || in_memory(rows) <= join_bytes as u64;
        let temporary = if fits { self.temporary } else { self.temporary.max(rows) };
        Self { chainstate: self.chainstate.max(rows), temporary, ..self }
    }

    /// The same need and that of making undo data for `block_bytes` of blocks. Coins on the way to their
    /// spenders are temporary too, about as many bytes as the undo data, but at most what `memory` and the
    /// coins determine ([ADR 10](../../../../docs/adr/0010-coins-are-delivered-to-their-spenders.md)).
    #[must_use]
    pub fn with_undo(self, block_bytes: u64, memory: u64) -> Self {
        let undo = block_bytes / BLOCK_BYTES_PER_UNDO_BYTE;
        let deliveries = undo.min(memory.max(MIN_EPOCH_BYTES).max(self.chainstate));
        Self { undo, temporary: self.temporary + deliveries, ..self }
    }

    /// The same need with the coins cache: without temporary files, but while tables of the chainstate are
    /// merged, both the old and the new ones exist.
    #[must_use]
    pub const fn with_cache(self) -> Self {
        Self { chainstate: 2 * self.chainstate, temporary: 0, ..self }
    }

    /// Checks that enough disk space is free.
    pub fn check(
        &self,
        disk: &dyn Disk,
        chainstate_dir: &Path,
        work_dir: &Path,
        blocks_dir: &Path,
    ) -> Result<(), Error> {
        let needs = [(chainstate_dir, self.chainstate), (work_dir, self.temporary), (blocks_dir, self.undo)];
        for (dir, _) in needs.into_iter().filter(|(_, need)| *need > 0) {
            let dir = nearest_existing(disk, dir)?;
            let mut need = 0;
            for (other, bytes) in needs {
                let other_dir = nearest_existing(disk, other)?;
                if disk.same_file_system(dir, other_dir).during("look at", other_dir)? {
                    need += bytes;
                }
            }
            let free = disk.free_space(dir).during("find the free space of", dir)?;
            if free < need {
                let detail =
                    format!("not enough disk space: the run {self}, and {} are free", HumanSize(free));
                return Err(Error::new(ErrorKind::Environment, detail)
                    .in_file(dir, None)
                    .about(Subject::DiskSpace)
                    .with_remedies([Remedy::MoreMemory, Remedy::OtherWorkDir, Remedy::OtherOutput]));
            }
        }
        Ok(())
    }
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

/// Returns the nearest existing ancestor directory.
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

    #[test]
    fn the_estimate_depends_on_the_old_chainstate_and_the_memory() {
        const GB: u64 = 1_000_000_000;
        let mainnet = DiskNeed::estimate(860 * GB, Some(12 * GB), 900 << 20);
        assert_eq!(mainnet, DiskNeed { chainstate: 13_500_000_000, temporary: 860 * GB / 7, undo: 0 });
        let undo = mainnet.with_undo(860 * GB, 1 << 30);
        assert_eq!((undo.undo, undo.temporary - mainnet.temporary), (172 * GB, 13_500_000_000));
        let cache = undo.with_cache();
        assert_eq!((cache.chainstate, cache.temporary, cache.undo), (27_000_000_000, 0, undo.undo));
        let large = DiskNeed::estimate(860 * GB, Some(12 * GB), 35 << 30);
        assert_eq!(large.temporary, 0);
        // The hints of mainnet's coins, and hints that call all outputs unspent.
        assert_eq!(mainnet.with_hinted_coins(173_676_464, 900 << 20), mainnet);
        let all = mainnet.with_hinted_coins(3_400_000_000, 900 << 20);
        assert_eq!((all.chainstate, all.temporary), (204 * GB, 204 * GB));
        assert_eq!(large.with_hinted_coins(300_000_000, 35 << 30), DiskNeed { chainstate: 18 * GB, ..large });
        let broken = DiskNeed::estimate(15 * GB, None, 900 << 20);
        assert_eq!(broken.chainstate, GB);
    }

    #[test]
    fn insufficient_disk_space_is_an_error_before_the_work_starts() {
        let dir = std::env::temp_dir();
        let need = |chainstate| DiskNeed { chainstate, temporary: 0, undo: 0 };
        need(1).check(&vfs::RealDisk, &dir.join("no/such"), &dir, &dir).unwrap();
        let error = need(u64::MAX / 2).check(&vfs::RealDisk, &dir, &dir, &dir).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Environment);
        assert!(error.remedies.contains(&Remedy::OtherWorkDir), "{error}");
        // Was once reported as "needs about 0 MB".
        assert!(need(900_000).to_string().starts_with("needs about 900 kB of disk"));
        let all = DiskNeed { chainstate: 0, temporary: 5_000_000, undo: 3_000_000 };
        assert_eq!(
            all.to_string(),
            "needs up to 3 MB of disk space for undo data, and up to 5 MB for temporary files"
        );
    }
}

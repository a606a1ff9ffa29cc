//! Estimates, on the safe side, how much disk space a rebuild will need, before it starts.
//! `docs/adr/0005-bounded-memory.md` explains the numbers.

use crate::api::{
    error::{Error, ErrorKind},
    note::DiskNeed,
    remedy::Remedy,
    size::HumanSize,
};
use std::path::Path;
use vfs::{Disk, During as _};

/// Block bytes per byte of the chainstate's rows, at least: on mainnet 70, on chains that spend less 15.
const BLOCK_BYTES_PER_ROW_BYTE: u64 = 15;
/// Bytes of memory per bytes of rows, of coins in the join.
const MEMORY_PER_ROW: (u64, u64) = (5, 3);
/// Block bytes per byte of sorted runs that exist at one time, at least, if memory is small.
const BLOCK_BYTES_PER_RUN_BYTE: u64 = 7;

impl DiskNeed {
    /// The need for `block_bytes` of blocks; `old` is the size of the existing chainstate, `None` if there is
    /// none.
    #[must_use]
    pub(crate) fn estimate(block_bytes: u64, old: Option<u64>, join_bytes: usize) -> Self {
        let rows = block_bytes / BLOCK_BYTES_PER_ROW_BYTE;
        // The size of a chainstate that was never completed is no guide.
        let old = old.filter(|&old| old > rows / 8);
        let chainstate = old.map_or(rows, |old| old + old / 8).min(rows);
        let in_memory = chainstate / MEMORY_PER_ROW.1 * MEMORY_PER_ROW.0;
        let temporary =
            if in_memory <= join_bytes as u64 { 0 } else { block_bytes / BLOCK_BYTES_PER_RUN_BYTE };
        Self { chainstate, temporary }
    }

    /// Checks that enough disk space is free.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`] if it is not.
    pub(crate) fn check(&self, disk: &dyn Disk, chainstate_dir: &Path, work_dir: &Path) -> Result<(), Error> {
        let (target, work) = (nearest_existing(disk, chainstate_dir)?, nearest_existing(disk, work_dir)?);
        let same = disk.same_file_system(target, work).during("look at", work)?;
        let needs = if same {
            [(target, self.chainstate + self.temporary), (target, 0)]
        } else {
            [(target, self.chainstate), (work, self.temporary)]
        };
        for (dir, need) in needs.into_iter().filter(|(_, need)| *need > 0) {
            let free = disk.free_space(dir).during("find the free space of", dir)?;
            if free < need {
                let detail = format!("the run {self}, but only {} are free there", HumanSize(free));
                return Err(Error::new(ErrorKind::Environment, detail).in_file(dir, None).with_remedies([
                    Remedy::FreeDiskSpace,
                    Remedy::MoreMemory,
                    Remedy::OtherWorkDir,
                    Remedy::OtherOutput,
                ]));
            }
        }
        Ok(())
    }
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

/// Size of the files in a directory; `None` if it is missing or cannot be read.
#[must_use]
pub fn directory_bytes(disk: &dyn Disk, dir: &Path) -> Option<u64> {
    let names = disk.list(dir).ok()?;
    let len = |name| Some(disk.metadata(&dir.join(name)).ok()??.len);
    Some(names.into_iter().filter_map(len).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_depends_on_the_old_chainstate_and_the_memory() {
        const GB: u64 = 1_000_000_000;
        let mainnet = DiskNeed::estimate(860 * GB, Some(12 * GB), 900 << 20);
        assert_eq!(mainnet, DiskNeed { chainstate: 13_500_000_000, temporary: 860 * GB / 7 });
        let large = DiskNeed::estimate(860 * GB, Some(12 * GB), 35 << 30);
        assert_eq!(large.temporary, 0);
        let broken = DiskNeed::estimate(15 * GB, None, 900 << 20);
        assert_eq!(broken.chainstate, GB);
    }

    #[test]
    fn insufficient_disk_space_is_an_error_before_the_work_starts() {
        let dir = std::env::temp_dir();
        let need = |chainstate| DiskNeed { chainstate, temporary: 0 };
        need(1).check(&vfs::RealDisk, &dir.join("no/such"), &dir).unwrap();
        let error = need(u64::MAX / 2).check(&vfs::RealDisk, &dir, &dir).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Environment);
        assert!(error.remedies.contains(&Remedy::OtherWorkDir), "{error}");
        // Was once reported as "needs about 0 MB".
        assert!(need(900_000).to_string().starts_with("needs about 900 kB of disk"));
    }
}

//! What a rebuild will need on disk, before it starts. An estimate, on the safe side:
//! `docs/adr/0005-bounded-memory.md` says where the numbers come from.

use crate::{
    error::{Error, ErrorKind},
    size::HumanSize,
};
use disk::fs::{Disk, During as _};
use std::{fmt, path::Path};

/// Of the bytes of blocks, the part that the rows of the coins take which they leave: on mainnet a
/// seventieth, on chains that spend less a fifteenth.
const BLOCK_BYTES_PER_ROW_BYTE: u64 = 15;
/// Bytes of a coin in memory for each byte of its row.
const MEMORY_PER_ROW: (u64, u64) = (5, 3);
/// Of the bytes of blocks, the part that runs may take at a time if the memory is small.
const BLOCK_BYTES_PER_RUN_BYTE: u64 = 7;

/// What is needed, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskNeed {
    /// For the new chainstate, which lies beside the old one until it takes its place.
    pub chainstate: u64,
    /// For temporary files.
    pub temporary: u64,
}

impl fmt::Display for DiskNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "needs about {} of disk for the new chainstate", HumanSize(self.chainstate))?;
        match self.temporary {
            0 => Ok(()),
            temporary => write!(f, ", and up to {} for temporary files", HumanSize(temporary)),
        }
    }
}

impl DiskNeed {
    /// For so many bytes of blocks; `old` are the bytes of the chainstate that is there, if it is a whole
    /// one.
    #[must_use]
    pub fn estimate(block_bytes: u64, old: Option<u64>, join_bytes: usize) -> Self {
        let rows = block_bytes / BLOCK_BYTES_PER_ROW_BYTE;
        // One that was being written when it broke says nothing.
        let old = old.filter(|&old| old > rows / 8);
        let chainstate = old.map_or(rows, |old| old + old / 8).min(rows);
        let in_memory = chainstate / MEMORY_PER_ROW.1 * MEMORY_PER_ROW.0;
        let temporary =
            if in_memory <= join_bytes as u64 { 0 } else { block_bytes / BLOCK_BYTES_PER_RUN_BYTE };
        Self { chainstate, temporary }
    }

    /// Sees that there is so much room.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`] if there is not.
    pub fn check(&self, disk: &dyn Disk, chainstate_dir: &Path, work_dir: &Path) -> Result<(), Error> {
        let (target, work) = (existing(disk, chainstate_dir)?, existing(disk, work_dir)?);
        let same = disk.same_file_system(target, work).during("look at", work)?;
        let needs = if same {
            [(target, self.chainstate + self.temporary), (target, 0)]
        } else {
            [(target, self.chainstate), (work, self.temporary)]
        };
        for (dir, need) in needs.into_iter().filter(|(_, need)| *need > 0) {
            let free = disk.free_space(dir).during("find the free space of", dir)?;
            if free < need {
                let detail = format!(
                    "the run {self}, but only {} are free there: make room, give more --memory, or write \
                     elsewhere with --work-dir or --output",
                    HumanSize(free)
                );
                return Err(Error::new(ErrorKind::Environment, detail).in_file(dir, None));
            }
        }
        Ok(())
    }
}

/// The nearest folder above that is there.
fn existing<'p>(disk: &dyn Disk, dir: &'p Path) -> Result<&'p Path, Error> {
    for above in dir.ancestors().filter(|above| !above.as_os_str().is_empty()) {
        if disk.exists(above).during("look for", above)? {
            return Ok(above);
        }
    }
    Ok(Path::new("."))
}

/// Bytes of the files in a folder; nothing if it is not there or cannot be read.
#[must_use]
pub fn folder_bytes(disk: &dyn Disk, dir: &Path) -> Option<u64> {
    let names = disk.list(dir).ok()?;
    let len = |name| Some(disk.metadata(&dir.join(name)).ok()??.len);
    Some(names.into_iter().filter_map(len).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_knows_the_old_chainstate_and_the_memory() {
        const GB: u64 = 1_000_000_000;
        let memory_consumers = crate::memory::MemoryConsumers { threads: 2, scripts: false, blocks: 900_000 };
        let join = |memory| crate::memory::join_bytes(memory, 1 << 20, memory_consumers);
        let mainnet = DiskNeed::estimate(860 * GB, Some(12 * GB), join(1 << 30));
        assert_eq!(mainnet, DiskNeed { chainstate: 13_500_000_000, temporary: 860 * GB / 7 });
        let large = DiskNeed::estimate(860 * GB, Some(12 * GB), join(40 << 30));
        assert_eq!(large.temporary, 0);
        let broken = DiskNeed::estimate(15 * GB, None, join(1 << 30));
        assert_eq!(broken.chainstate, GB);
    }

    #[test]
    fn a_full_disk_is_refused_before_the_work() {
        let dir = std::env::temp_dir();
        let need = |chainstate| DiskNeed { chainstate, temporary: 0 };
        need(1).check(&disk::fs::RealDisk, &dir.join("no/such"), &dir).unwrap();
        let error = need(u64::MAX / 2).check(&disk::fs::RealDisk, &dir, &dir).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Environment);
        assert!(error.detail.contains("--work-dir"), "{error}");
        // It was "needs about 0 MB".
        assert!(need(900_000).to_string().starts_with("needs about 900 kB of disk"));
    }
}

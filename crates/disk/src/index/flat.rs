//! The block index as flat files, with which Bitcoin Core's pull request 32427 replaces the database: such a
//! Core turns the database into them when it first starts, and deletes it.
//!
//! ```text
//! blocks/index/headers.dat      magic 4 | ..   the blocks
//! blocks/index/blockfiles.dat   magic 4 | ..   the files
//! blocks/index/log.dat          magic 4 | ..   what is being written
//! ```
//! Magics are little-endian. Source: <https://github.com/bitcoin/bitcoin/pull/32427>.

use crate::error::DiskError;
use std::path::Path;
use vfs::Disk;

const FILES: [(&str, u32); 3] =
    [("headers.dat", 0x1d5e_2eb2), ("blockfiles.dat", 0x6e2e_2f44), ("log.dat", 0xa034_6f91)];

/// Returns an error if the block index in `dir` consists of flat files.
///
/// # Errors
/// [`DiskError::Refused`] if it does.
pub fn refuse_flat(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    for (name, magic) in FILES {
        let path = dir.join(name);
        let (mut start, file) = ([0; 4], disk.open(&path));
        if file.is_ok_and(|file| file.read_exact_at(&mut start, 0).is_ok()) && start == magic.to_le_bytes() {
            let flaw = "a block index of flat files, which a newer Bitcoin Core (pull request 32427) has \
                        made of the database, and which this version of Peregrine does not read: let that \
                        bitcoind do the work";
            return Err(DiskError::Refused { path, flaw: flaw.to_owned() });
        }
    }
    Ok(())
}

//! Finds the real data that some tests read, and records that they are skipped if it is missing.

use crate::prelude::*;
use disk::datadir::Location;
use std::fs::File;
pub use testdata::{core_sources, shared_data, skip};

/// Unpacks `core-datadirs/NAME.tar.xz` into a new temporary folder. If the archive is missing, the test is
/// skipped.
///
/// # Panics
/// If the archive is damaged.
#[must_use]
pub fn unpack_core_datadir(name: &str) -> Option<TempDir> {
    let path = shared_data(&format!("core-datadirs/{name}.tar.xz"))?;
    let dir = TempDir::new().expect("temporary folders can be made");
    unpack(&path, dir.path()).expect("the archive is whole");
    Some(dir)
}

/// Unpacks an archive into a folder, which is created. Zeros at the end of its files, which Core allocates in
/// advance, take no space: the tests of several datadirs run side by side.
///
/// # Errors
/// Any I/O error, also if the archive is damaged.
pub fn unpack(archive: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut archive = tar::Archive::new(liblzma::read::XzDecoder::new(File::open(archive)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        entry.unpack_in(to)?;
        let path = to.join(entry.path()?);
        if path.is_file() {
            let bytes = fs::read(&path)?;
            let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            truncate(&path, used as u64)?;
            truncate(&path, bytes.len() as u64)?;
        }
    }
    Ok(())
}

/// Returns the lines of `core-datadirs/NAME.known.jsonl`: Core's statistics of the chain at some heights.
pub fn known_answers(name: &str) -> Option<Vec<serde_json::Value>> {
    let path = shared_data(&format!("core-datadirs/{name}.known.jsonl"))?;
    let text = fs::read_to_string(path).ok()?;
    text.lines().map(|line| serde_json::from_str(line).ok()).collect()
}

/// The line of [`known_answers`] about the tip.
pub fn known_tip(name: &str) -> Option<serde_json::Value> {
    known_answers(name)?.into_iter().max_by_key(|line| line["height"].as_u64())
}

/// An unpacked datadir of Core, removed when dropped.
pub struct CoreDatadir {
    pub datadir: Datadir,
    /// Core's statistics at its tip.
    pub known: serde_json::Value,
    _root: TempDir,
}

impl CoreDatadir {
    /// Unpacks a datadir. If the archive is missing, the test is skipped.
    ///
    /// # Panics
    /// If it is no datadir of this network.
    #[must_use]
    pub fn unpack(name: &str, network: Network) -> Option<Self> {
        let root = unpack_core_datadir(name)?;
        let datadir =
            Datadir::open(&RealDisk, &Location::new(root.path(), network)).expect("it is a datadir");
        let known = known_tip(name)?;
        Some(Self { datadir, known, _root: root })
    }
}

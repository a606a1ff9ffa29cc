//! `peregrine-commit`: the journal of a replacement of databases, in the directory of the network.
//!
//! ```text
//! magic 8 "PGRN-JNL" | version 4 | id of the replacement 16 | phase 1 | keep the old ones 1
//! | number of databases 1 | for each database: length of its name 2 | name, relative to the directory
//!   | there was an old one 1 | digest of the old one 32 (zeros if there was none) | digest of the new one 32
//! | checksum 4: CRC-32C of all before
//! ```
//! Integers are little-endian. The journal is written under another name, synced, renamed, and its directory
//! is synced: after a crash it is complete or absent.

use crate::error::DiskError;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use vfs::{AtomicFile, Disk, During as _};
use wire::{Reader, WireError};

const NAME: &str = "peregrine-commit";
const UNFINISHED: &str = "peregrine-commit.new";
const MAGIC: [u8; 8] = *b"PGRN-JNL";
const VERSION: u32 = 1;
/// Maximum length in bytes. A journal lists a few databases, so it is always shorter.
const MAX_LEN: u64 = 64 << 10;
const CHECKSUM_LEN: usize = 4;

/// The phase of a replacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalPhase {
    /// Names are being exchanged.
    Exchanging = 1,
    /// All new databases are in place.
    Exchanged = 2,
}

/// A database that is replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalEntry {
    /// Its path, relative to the directory of the journal.
    pub name: PathBuf,
    /// Digest of the old database; `None` if there was none.
    pub before: Option<[u8; 32]>,
    /// Digest of the new database.
    pub after: [u8; 32],
}

/// The journal of a replacement in progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Journal {
    /// Id of the replacement, which the marks contain.
    pub id: [u8; 16],
    pub phase: JournalPhase,
    /// Whether the old databases are kept.
    pub keep_old: bool,
    /// The databases, in the order in which they are put in place.
    pub entries: Vec<JournalEntry>,
}

/// Whether a replacement of the database `name` below `home` was interrupted.
///
/// # Errors
/// [`DiskError::Damaged`] if the journal cannot be decoded; [`DiskError::File`].
pub fn is_of_journal(disk: &dyn Disk, home: &Path, name: &Path) -> Result<bool, DiskError> {
    Ok(Journal::read(disk, home)?.is_some_and(|journal| journal.entries.iter().any(|it| it.name == name)))
}

impl Journal {
    /// The path of the journal in `home`.
    pub fn path(home: &Path) -> PathBuf {
        home.join(NAME)
    }

    /// Whether `home` contains a journal.
    pub fn exists(disk: &dyn Disk, home: &Path) -> Result<bool, DiskError> {
        let path = Self::path(home);
        Ok(disk.exists(&path).during("look for", &path)?)
    }

    /// Replaces the journal in `home` by this one. When it returns, the journal is on the medium.
    pub fn write(&self, disk: &dyn Disk, home: &Path) -> Result<(), DiskError> {
        Self::remove_unfinished(disk, home)?;
        let mut file = AtomicFile::create(disk, home.join(UNFINISHED), &home.join(NAME))?;
        file.write_all(&self.encode())?;
        Ok(file.commit()?)
    }

    /// Finds out whether a journal can be written in `home`.
    pub fn try_to_create(disk: &dyn Disk, home: &Path) -> Result<(), DiskError> {
        Self::remove_unfinished(disk, home)?;
        let path = home.join(UNFINISHED);
        disk.create(&path).during_creation(&path)?;
        Self::remove_unfinished(disk, home)
    }

    /// Reads the journal in `home`; `None` if there is none.
    pub fn read(disk: &dyn Disk, home: &Path) -> Result<Option<Self>, DiskError> {
        if !Self::exists(disk, home)? {
            return Ok(None);
        }
        let path = home.join(NAME);
        let bytes = disk.read(&path, MAX_LEN).during("read", &path)?;
        let damaged = |flaw: &str| DiskError::Damaged {
            path: path.clone(),
            offset: 0,
            flaw: format!(
                "{flaw}; this file records how to finish an interrupted exchange of databases: find out \
                 which databases are intact, move this file away, and run again"
            ),
        };
        if !bytes.starts_with(&MAGIC) {
            return Err(damaged("not a peregrine journal"));
        }
        let (content, checksum) =
            bytes.split_last_chunk::<CHECKSUM_LEN>().ok_or_else(|| damaged("truncated"))?;
        if crc32c::crc32c(content) != u32::from_le_bytes(*checksum) {
            return Err(damaged("checksum mismatch"));
        }
        let journal = Self::decode(content).map_err(|error| damaged(&error.to_string()))?;
        journal.map(Some).ok_or_else(|| damaged("written by another version of peregrine"))
    }

    /// Removes the journal in `home`. When it returns, the removal is on the medium.
    pub fn remove(disk: &dyn Disk, home: &Path) -> Result<(), DiskError> {
        let path = home.join(NAME);
        if Self::exists(disk, home)? {
            disk.remove_file(&path).during("remove", &path)?;
            disk.sync_dir(home).during("sync", home)?;
        }
        Ok(())
    }

    /// Removes a journal that a crash has left under its temporary name.
    pub fn remove_unfinished(disk: &dyn Disk, home: &Path) -> Result<(), DiskError> {
        let path = home.join(UNFINISHED);
        let found = disk.metadata(&path).during("look for", &path)?;
        if found.is_some_and(|found| !found.is_dir && found.len <= MAX_LEN) {
            let bytes = disk.read(&path, MAX_LEN).during("read", &path)?;
            let begins = bytes.iter().zip(&MAGIC).all(|(byte, magic)| byte == magic);
            // A power cut can leave zeros where bytes were not synced.
            if begins || bytes.iter().all(|&byte| byte == 0) {
                disk.remove_file(&path).during("remove", &path)?;
            }
        }
        Ok(())
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &self.id].concat();
        bytes.extend([self.phase as u8, self.keep_old.into(), self.entries.len() as u8]);
        for entry in &self.entries {
            let name = entry.name.as_os_str().as_bytes();
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend(name);
            bytes.push(entry.before.is_some().into());
            bytes.extend(entry.before.unwrap_or_default());
            bytes.extend(entry.after);
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes all but the checksum. Returns `None` for what this version does not know.
    fn decode(content: &[u8]) -> Result<Option<Self>, WireError> {
        let mut reader = Reader::new(content);
        reader.array::<8>()?;
        let version = reader.u32()?;
        let id = reader.array()?;
        let phase = match reader.u8()? {
            1 => JournalPhase::Exchanging,
            2 => JournalPhase::Exchanged,
            _ => return Ok(None),
        };
        let (keep_old, count) = (reader.u8()? != 0, reader.u8()?);
        let mut entries = Vec::new();
        for _ in 0..count {
            let len = u16::from_le_bytes(reader.array()?);
            let name = PathBuf::from(OsStr::from_bytes(reader.bytes(len.into())?));
            let had = reader.u8()? != 0;
            let before = Some(reader.array()?).filter(|_| had);
            entries.push(JournalEntry { name, before, after: reader.array()? });
        }
        reader.finish()?;
        // A name must not lead out of the directory.
        let is_below =
            |entry: &JournalEntry| entry.name.components().all(|part| matches!(part, Component::Normal(_)));
        let known = version == VERSION && entries.iter().all(is_below);
        Ok(known.then_some(Self { id, phase, keep_old, entries }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest::sha256::sha256;
    use hex_conservative::DisplayHex as _;
    use vfs::RealDisk;

    fn journal() -> Journal {
        let entry = |name: &str, before| JournalEntry { name: name.into(), before, after: [9; 32] };
        Journal {
            id: [7; 16],
            phase: JournalPhase::Exchanging,
            keep_old: true,
            entries: vec![entry("blocks/index", Some([3; 32])), entry("chainstate", None)],
        }
    }

    #[test]
    fn the_bytes_of_a_journal_are_those_of_its_version_and_come_back() {
        let home = tempfile::tempdir().unwrap();
        let exchanged =
            Journal { phase: JournalPhase::Exchanged, keep_old: false, entries: Vec::new(), ..journal() };
        for (journal, expected) in [
            (journal(), "55ee21b93caf15a4a561504a3012beca0400d9a6d03f855f4de5ffcc379cdd81"),
            (exchanged, "4d90889e6b6b8600417ff9d5b446510222bf9701965cec5494775dffb232d0f7"),
        ] {
            journal.write(&RealDisk, home.path()).unwrap();
            let bytes = std::fs::read(Journal::path(home.path())).unwrap();
            assert_eq!(sha256(&bytes).to_lower_hex_string(), expected);
            assert_eq!(Journal::read(&RealDisk, home.path()).unwrap(), Some(journal));
        }
    }

    #[test]
    fn a_journal_that_names_a_database_elsewhere_is_refused() {
        let home = tempfile::tempdir().unwrap();
        for name in ["../chainstate", "/chainstate"] {
            let entries = vec![JournalEntry { name: name.into(), before: None, after: [9; 32] }];
            Journal { entries, ..journal() }.write(&RealDisk, home.path()).unwrap();
            let error = Journal::read(&RealDisk, home.path()).unwrap_err().to_string();
            assert!(error.contains("move this file away, and run again"), "{error}");
        }
    }
}

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

use super::nested_database;
use crate::error::DiskError;
use crate::pack::{Malformed, Pack, put_all, take_all};
use crate::sealed::{Seal, Sealed};
use digest::sha256::Sha256;
use leveldb::is_database_file;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use vfs::{AtomicFile, Disk, During as _, remove_if_there};
use wire::Reader;

const NAME: &str = "peregrine-commit";
const UNFINISHED: &str = "peregrine-commit.new";
const MAGIC: [u8; 8] = *b"PGRN-JNL";
/// Maximum length in bytes. A journal lists a few databases, so it is always shorter.
const MAX_LEN: u64 = 64 << 10;
/// Upper limit, in bytes, of LevelDB's file `CURRENT`, which names the live manifest.
const CURRENT_LEN_LIMIT: u64 = 4096;

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
    pub keep_old: bool,
    /// The databases, in the order in which they are put in place.
    pub entries: Vec<JournalEntry>,
}

/// Whether a replacement of databases below `home` was interrupted.
pub fn is_interrupted(disk: &dyn Disk, home: &Path) -> Result<bool, DiskError> {
    let path = Journal::path(home);
    Ok(disk.exists(&path).during("look for", &path)?)
}

/// Returns the path of the journal if a replacement of databases below `home` was interrupted before all were
/// in place, so that one may be under another name.
///
/// # Errors
/// [`DiskError::Damaged`] if the journal cannot be decoded; [`DiskError::File`].
pub fn interrupted_exchange(disk: &dyn Disk, home: &Path) -> Result<Option<PathBuf>, DiskError> {
    let journal = Journal::read(disk, home)?;
    let is_exchanging = journal.is_some_and(|journal| journal.phase == JournalPhase::Exchanging);
    Ok(is_exchanging.then(|| Journal::path(home)))
}

/// Returns what keeps other threads away from what is in a directory, such as the journal of a commit that is
/// going on: it must not be taken for one that an earlier job has left.
pub fn lock_of(dir: &Path) -> Arc<Mutex<()>> {
    static LOCKS: Mutex<BTreeMap<PathBuf, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(locks.entry(dir.to_owned()).or_default())
}

impl Journal {
    pub fn path(home: &Path) -> PathBuf {
        home.join(NAME)
    }

    /// Replaces the journal in `home` by this one. When it returns, the journal is on the medium.
    pub fn write(&self, disk: &dyn Disk, home: &Path) -> Result<(), DiskError> {
        Self::remove_unfinished(disk, home)?;
        let mut file = AtomicFile::create(disk, home.join(UNFINISHED), &home.join(NAME))?;
        file.write_all(&self.sealed())?;
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
        if !is_interrupted(disk, home)? {
            return Ok(None);
        }
        let path = home.join(NAME);
        let bytes = disk.read(&path, MAX_LEN).during("read", &path)?;
        let journal = Self::unseal(&bytes).map_err(|flaw| DiskError::Damaged {
            path,
            offset: 0,
            flaw: format!(
                "{flaw}; this file records how to finish an interrupted exchange of databases: find out \
                 which databases are intact, move this file away, and run again"
            ),
        });
        journal.map(Some)
    }

    /// Removes the journal in `home`. When it returns, the removal is on the medium.
    pub fn remove(disk: &dyn Disk, home: &Path) -> Result<(), DiskError> {
        if remove_if_there(disk, &home.join(NAME))? {
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
}

impl Pack for Journal {
    fn put(&self, bytes: &mut Vec<u8>) {
        let Self { id, phase, keep_old, entries } = self;
        id.put(bytes);
        [*phase as u8, (*keep_old).into(), entries.len() as u8].put(bytes);
        put_all(entries, bytes);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let id = Pack::take(reader)?;
        let phase = match reader.u8()? {
            1 => JournalPhase::Exchanging,
            2 => JournalPhase::Exchanged,
            _ => return Err(Malformed::Value("its phase is unknown")),
        };
        let (keep_old, count) = (Pack::take(reader)?, reader.u8()?);
        Ok(Self { id, phase, keep_old, entries: take_all(reader, count.into())? })
    }
}

impl Sealed for Journal {
    const SEAL: Seal = Seal { magic: MAGIC, version: 1, what: "a peregrine journal" };

    fn check(&self) -> Result<(), &'static str> {
        let is_below =
            |entry: &JournalEntry| entry.name.components().all(|part| matches!(part, Component::Normal(_)));
        match self.entries.iter().all(is_below) {
            true => Ok(()),
            false => Err("a name in it leads out of the directory"),
        }
    }
}

impl Pack for JournalEntry {
    fn put(&self, bytes: &mut Vec<u8>) {
        let name = self.name.as_os_str().as_bytes();
        (name.len() as u16).put(bytes);
        bytes.extend(name);
        self.before.is_some().put(bytes);
        [self.before.unwrap_or_default(), self.after].put(bytes);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let len = u16::take(reader)?;
        let name = PathBuf::from(OsStr::from_bytes(reader.bytes(len.into())?));
        let had = bool::take(reader)?;
        let [before, after] = Pack::take(reader)?;
        Ok(Self { name, before: had.then_some(before), after })
    }
}

/// Returns a digest of what changes whenever LevelDB opens a database for writing: the name of its manifest,
/// and the names and lengths of its files.
///
/// # Errors
/// [`DiskError::File`] if a file cannot be read.
pub fn fingerprint(disk: &dyn Disk, dir: &Path) -> Result<[u8; 32], DiskError> {
    let mut sha = Sha256::new();
    let is_state_file =
        |name: &OsString| is_database_file(name) && !["LOCK", "LOG", "LOG.old"].iter().any(|n| name == n);
    for name in disk.list(dir).during("list", dir)?.iter().filter(|name| is_state_file(name)) {
        let path = dir.join(name);
        let len = disk.metadata(&path).during("look at", &path)?.map_or(0, |found| found.len);
        sha.update(name.as_encoded_bytes());
        sha.update(&[0]);
        sha.update(&len.to_le_bytes());
        if name == "CURRENT" && len < CURRENT_LEN_LIMIT {
            sha.update(&disk.read(&path, CURRENT_LEN_LIMIT).during("read", &path)?);
        }
    }
    if let Some(nested) = nested_database(disk, dir)? {
        sha.update(&fingerprint(disk, &nested)?);
    }
    Ok(sha.finalize())
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

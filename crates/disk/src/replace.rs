//! Replaces databases by newly built ones: all of them, or none.
//!
//! A new database is built in a folder beside the one that it replaces: `chainstate.peregrine` beside
//! `chainstate`, and where `chainstate` is a symbolic link, beside the folder that the link leads to. The
//! folder holds a mark, by which it is known to be ours. When all new databases are complete, they take the
//! places of the old ones in this order, each step synced before the next one begins:
//!
//! 1. The journal is written: which databases are replaced, and what their folders hold.
//! 2. Each new folder and the old one exchange their names ([`Disk::exchange`]).
//! 3. The journal says that all are exchanged. From here on the replacement stands.
//! 4. The marks are removed, and the old databases are removed or kept as `chainstate.old`.
//! 5. The journal is removed.
//!
//! An error before step 3 undoes the exchanges. After a crash [`recover`] finds the journal: behind step 3 it
//! does what is left, before step 3 it exchanges the remaining names, which the marks tell. If a database has
//! been used in between, by a `bitcoind` that was started before [`recover`] was, it exchanges them back, and
//! where the new one was used too, it keeps what is in use.
//!
//! Folders can lie on different file systems: each exchange stays on one.

mod journal;

use crate::error::DiskError;
use crate::fs::{CORE_DIR_MODE, Disk, During as _, Ownership, PARKED_SUFFIX, finish_exchange};
use crate::leveldb::is_database_file;
use digest::sha256::Sha256;
use journal::{Entry, Journal, JournalPhase};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// What is appended to the name of a database for the folder in which its successor is built.
const BUILDING: &str = ".peregrine";
/// What is appended to the name of a database that is kept after it was replaced.
const KEPT: &str = ".old";
/// Name of the file that marks a folder as one of ours.
const MARK: &str = "peregrine.mark";
/// How the mark begins. The number of the replacement follows, 16 bytes.
const MARK_MAGIC: [u8; 8] = *b"PGRN-NEW";
/// LevelDB's file that names the live manifest has less than so many bytes.
const CURRENT_MAX: u64 = 4096;

/// A database that is replaced, links followed.
#[derive(Clone, Debug)]
struct ReplacedDatabase {
    /// The database in use.
    live: PathBuf,
    /// Where its successor is built. After the exchange the old database has this name.
    beside: PathBuf,
    /// The name of the old database if it is kept.
    kept: PathBuf,
}

/// Where the new database of a place is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Where it was built.
    Beside,
    /// In the place of the old one.
    Live,
    /// Neither here nor there: somebody has removed it.
    Gone,
}

/// What [`recover`] did with a replacement that a crash had cut short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// All new databases are in place.
    Finished,
    /// All old databases are in place, since one of them was used after the crash.
    Undone,
    /// Databases were used after the crash that belong partly to the old and partly to the new ones: what is
    /// in use stays.
    Abandoned,
}

/// Databases that are built to replace others.
pub struct Replacement<'d> {
    disk: &'d dyn Disk,
    /// The folder with the journal, to which the names of the databases are relative.
    home: PathBuf,
    names: Vec<PathBuf>,
    places: Vec<ReplacedDatabase>,
    id: [u8; 16],
    keep_old: bool,
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

impl ReplacedDatabase {
    fn new(disk: &dyn Disk, home: &Path, name: &Path) -> Result<Self, DiskError> {
        let path = home.join(name);
        let live = match disk.resolve(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => path,
            found => found.during("follow the links to", &path)?,
        };
        let (beside, kept) = (with_suffix(&live, BUILDING), with_suffix(&live, KEPT));
        Ok(Self { live, beside, kept })
    }

    fn parent(&self) -> &Path {
        self.live.parent().unwrap_or(&self.live)
    }

    /// Refuses what could not be exchanged in the end.
    fn check(&self, disk: &dyn Disk, keep_old: bool) -> Result<(), DiskError> {
        let refuse = |path: &Path, flaw: &str| Err(DiskError::refused(path, flaw));
        if let Some(found) = disk.metadata(&self.live).during("look at", &self.live)? {
            if !found.is_dir {
                return refuse(&self.live, "a database should be here, but it is not a folder; move it away");
            }
            if disk.is_mount_point(&self.live).during("look at", &self.live)? {
                return refuse(
                    &self.live,
                    "a file system is mounted here, and a mounted folder cannot be exchanged for a new one; \
                     mount it one level higher and put a symbolic link here, or write elsewhere with \
                     --output",
                );
            }
        }
        if exists(disk, &self.beside)? {
            return refuse(
                &self.beside,
                "the new database must be built here, but what is here does not come from peregrine, or \
                 holds files of others; move it away",
            );
        }
        if keep_old && exists(disk, &self.kept)? {
            return refuse(
                &self.kept,
                "the old database would be kept under this name; move away what is here, or leave out \
                 --keep-old",
            );
        }
        Ok(())
    }

    /// Creates the folder for the new database, with its mark.
    fn begin(&self, disk: &dyn Disk, id: &[u8; 16]) -> Result<(), DiskError> {
        disk.create_dir_all(&self.beside).during("create", &self.beside)?;
        // As the old one. Where there is none, as it was created, with the mode that Core would give it.
        let ownership = match exists(disk, &self.live)? {
            true => owner_of(disk, &self.live)?,
            false => Ownership { mode: CORE_DIR_MODE, ..owner_of(disk, &self.beside)? },
        };
        match disk.set_ownership(&self.beside, ownership) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(DiskError::NotOwner { path: self.live.clone(), owner: ownership.uid });
            }
            done => done.during("set owner and mode of", &self.beside)?,
        }
        let path = self.beside.join(MARK);
        let mut file = disk.create(&path).during("create", &path)?;
        file.write_all(&mark(id)).during("write", &path)?;
        file.sync().during("sync", &path)?;
        disk.sync_dir(&self.beside).during("sync", &self.beside)?;
        Ok(disk.sync_dir(self.parent()).during("sync", self.parent())?)
    }

    /// Removes the folder in which an earlier run has built, if it is one.
    fn clear(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        if is_work_file(disk, &self.beside)? {
            remove_database(disk, &self.beside)?;
        }
        Ok(())
    }

    /// Gives the new database the old one's name, and the other way round if there is an old one.
    fn exchange(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        if exists(disk, &self.live)? {
            disk.exchange(&self.beside, &self.live).during("put the new database in place of", &self.live)?;
        } else {
            disk.rename(&self.beside, &self.live).during("put the new database in place as", &self.live)?;
        }
        Ok(disk.sync_dir(self.parent()).during("sync", self.parent())?)
    }

    /// Takes back [`ReplacedDatabase::exchange`].
    fn undo(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        if exists(disk, &self.beside)? {
            disk.exchange(&self.beside, &self.live).during("put the old database back as", &self.live)?;
        } else {
            disk.rename(&self.live, &self.beside).during("take the new database away from", &self.live)?;
        }
        Ok(disk.sync_dir(self.parent()).during("sync", self.parent())?)
    }

    fn position(&self, disk: &dyn Disk, id: &[u8; 16]) -> Result<Position, DiskError> {
        if has_mark(disk, &self.beside, id)? {
            return Ok(Position::Beside);
        }
        Ok(if has_mark(disk, &self.live, id)? { Position::Live } else { Position::Gone })
    }

    /// Ends an exchange in three steps that a crash has cut short.
    fn end_exchange(&self, disk: &dyn Disk, id: &[u8; 16]) -> Result<(), DiskError> {
        if has_mark(disk, &with_suffix(&self.beside, PARKED_SUFFIX), id)? {
            finish_exchange(disk, &self.beside, &self.live).during("put back", &self.live)?;
            disk.sync_dir(self.parent()).during("sync", self.parent())?;
        }
        Ok(())
    }

    /// Removes or keeps the old database, now that the new one is in place. Files that are not LevelDB's
    /// move to the new one.
    fn settle(&self, disk: &dyn Disk, keep_old: bool) -> Result<(), DiskError> {
        let path = self.live.join(MARK);
        if exists(disk, &path)? {
            disk.remove_file(&path).during("remove", &path)?;
            disk.sync_dir(&self.live).during("sync", &self.live)?;
        }
        if exists(disk, &self.beside)? {
            if !keep_old {
                self.move_foreign(disk)?;
                remove_files(disk, &self.beside)?;
            }
            // What is not empty then holds something of others whose name is taken in the new database.
            let is_empty = disk.list(&self.beside).during("list", &self.beside)?.is_empty();
            if is_empty {
                disk.remove_dir(&self.beside).during("remove", &self.beside)?;
            } else {
                let kept = self.free_name(disk)?;
                disk.rename(&self.beside, &kept).during("keep the old database as", &kept)?;
            }
        }
        Ok(disk.sync_dir(self.parent()).during("sync", self.parent())?)
    }

    /// The name under which the old database is kept, or, if that is taken, one like it.
    fn free_name(&self, disk: &dyn Disk) -> Result<PathBuf, DiskError> {
        let mut name = self.kept.clone();
        for number in 2.. {
            if !exists(disk, &name)? {
                break;
            }
            name = with_suffix(&self.kept, &format!("-{number}"));
        }
        Ok(name)
    }

    fn move_foreign(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        for name in disk.list(&self.beside).during("list", &self.beside)? {
            let (from, to) = (self.beside.join(&name), self.live.join(&name));
            if !is_file_of_database(disk, &from)? && !exists(disk, &to)? {
                disk.rename(&from, &to).during("move to the new database", &from)?;
            }
        }
        Ok(disk.sync_dir(&self.live).during("sync", &self.live)?)
    }
}

impl<'d> Replacement<'d> {
    /// Creates a folder for the successor of each database in `names`, which are relative to `home`. The
    /// first one is the first that is put in place. What is created belongs to the owner and the group of the
    /// old database, with its mode. `id` is a random number that tells this replacement from others.
    ///
    /// # Errors
    /// [`DiskError::Refused`] for what could not be exchanged in the end: a mount point, something that is in
    /// the way. [`DiskError::NotOwner`] if this process may not create files for the owner.
    /// [`DiskError::File`] for the rest. Nothing of ours is left then.
    pub fn begin(
        disk: &'d dyn Disk,
        home: &Path,
        names: &[&Path],
        id: [u8; 16],
        keep_old: bool,
    ) -> Result<Self, DiskError> {
        let places = names
            .iter()
            .map(|name| ReplacedDatabase::new(disk, home, name))
            .collect::<Result<Vec<_>, _>>()?;
        places.iter().try_for_each(|place| place.check(disk, keep_old))?;
        let names = names.iter().map(|name| name.to_path_buf()).collect();
        let replacement = Self { disk, home: home.to_owned(), names, places, id, keep_old };
        for place in &replacement.places {
            if let Err(error) = place.begin(disk, &id) {
                replacement.discard();
                return Err(error);
            }
        }
        Ok(replacement)
    }

    /// The folder in which the new database with this number, in the order of [`Replacement::begin`], is
    /// built.
    ///
    /// # Panics
    /// If there is no such number.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "documented: the caller numbers its own databases")]
    pub fn building(&self, number: usize) -> &Path {
        &self.places[number].beside
    }

    /// Removes what was built so far, so that it can be built again.
    ///
    /// # Errors
    /// [`DiskError::File`].
    pub fn start_over(&self) -> Result<(), DiskError> {
        self.places.iter().try_for_each(|place| remove_files(self.disk, &place.beside))
    }

    /// Removes what was built, after a failure. What cannot be removed now is removed by [`recover`].
    pub fn discard(&self) {
        for place in &self.places {
            let _ = place.clear(self.disk);
        }
    }

    /// Puts all new databases in place. Returns the paths of the old ones that are kept.
    ///
    /// # Errors
    /// [`DiskError::File`]: all old databases are in place then, or, if even that failed, [`recover`] puts
    /// them right. [`CommitError::InPlace`]: the new ones are in place, but not all that is left of the old
    /// ones could be removed; [`recover`] does it.
    pub fn commit(&self) -> Result<Vec<PathBuf>, CommitError> {
        let mut journal = self.journal()?;
        let had: Vec<bool> = journal.entries.iter().map(|entry| entry.before.is_some()).collect();
        self.exchange_all(&mut journal).inspect_err(|_| {
            if self.places.iter().try_for_each(|place| undo_if_live(self.disk, place, &self.id)).is_ok() {
                // If it stays, the next run finds all old databases in place, and finishes or undoes anew.
                let _ = Journal::remove(self.disk, &self.home);
            }
        })?;
        finish(self.disk, &self.home, &self.places, self.keep_old).map_err(CommitError::InPlace)?;
        let kept = self.places.iter().zip(had).filter(|(_, had)| self.keep_old && *had);
        Ok(kept.map(|(place, _)| place.kept.clone()).collect())
    }

    fn journal(&self) -> Result<Journal, DiskError> {
        let entry = |(name, place): (&PathBuf, &ReplacedDatabase)| {
            let before = exists(self.disk, &place.live)?.then(|| fingerprint(self.disk, &place.live));
            let after = fingerprint(self.disk, &place.beside)?;
            Ok(Entry { name: name.clone(), before: before.transpose()?, after })
        };
        let entries = self.names.iter().zip(&self.places).map(entry).collect::<Result<_, DiskError>>()?;
        Ok(Journal { id: self.id, stage: JournalPhase::Exchanging, keep_old: self.keep_old, entries })
    }

    fn exchange_all(&self, journal: &mut Journal) -> Result<(), DiskError> {
        journal.write(self.disk, &self.home)?;
        self.places.iter().try_for_each(|place| place.exchange(self.disk))?;
        journal.stage = JournalPhase::Exchanged;
        journal.write(self.disk, &self.home)
    }
}

/// Why [`Replacement::commit`] did not end as it should.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The old databases are in place, or will be after [`recover`].
    #[error(transparent)]
    Failed(#[from] DiskError),
    /// The new databases are in place. Something that is not needed any more could not be removed.
    #[error(transparent)]
    InPlace(DiskError),
}

/// Refuses a process that cannot create files for the owner of the databases `names` below `home`, or, where
/// one is missing, of the folder that it belongs in: what it writes would not open for the node. The
/// superuser can.
///
/// # Errors
/// [`DiskError::NotOwner`]; [`DiskError::File`].
pub fn check_owner(disk: &dyn Disk, home: &Path, names: &[&Path]) -> Result<(), DiskError> {
    let user = disk.user();
    for name in names {
        let place = ReplacedDatabase::new(disk, home, name)?;
        let replaced = if exists(disk, &place.live)? { &place.live } else { place.parent() };
        let owner = owner_of(disk, replaced)?.uid;
        if user != 0 && user != owner {
            return Err(DiskError::NotOwner { path: place.live, owner });
        }
    }
    Ok(())
}

/// Whether an earlier run has left something below `home` that [`recover`] would put right.
///
/// # Errors
/// [`DiskError::File`].
pub fn needs_recovery(disk: &dyn Disk, home: &Path, names: &[&Path]) -> Result<bool, DiskError> {
    if Journal::exists(disk, home)? {
        return Ok(true);
    }
    for name in names {
        if is_work_file(disk, &ReplacedDatabase::new(disk, home, name)?.beside)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Finishes or undoes a replacement that a crash has cut short, and removes what an earlier run has built and
/// not put in place. `names` are all databases below `home` that any run may replace. The datadir must be
/// locked. Returns `None` if there was no such replacement.
///
/// # Errors
/// [`DiskError::Damaged`] if the journal is not readable; [`DiskError::File`].
pub fn recover(disk: &dyn Disk, home: &Path, names: &[&Path]) -> Result<Option<Recovery>, DiskError> {
    let recovery = match Journal::read(disk, home)? {
        Some(journal) => Some(recover_from(disk, home, journal)?),
        None => None,
    };
    Journal::remove_unfinished(disk, home)?;
    for name in names {
        ReplacedDatabase::new(disk, home, name)?.clear(disk)?;
    }
    Ok(recovery)
}

fn recover_from(disk: &dyn Disk, home: &Path, mut journal: Journal) -> Result<Recovery, DiskError> {
    let place = |entry: &Entry| ReplacedDatabase::new(disk, home, &entry.name);
    let places = journal.entries.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    if journal.stage == JournalPhase::Exchanged {
        finish(disk, home, &places, journal.keep_old)?;
        return Ok(Recovery::Finished);
    }
    let (mut live, mut live_names, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    let (mut unused_old, mut unused_new) = (true, true);
    for (place, entry) in places.iter().zip(&journal.entries) {
        place.end_exchange(disk, &journal.id)?;
        let now = exists(disk, &place.live)?.then(|| fingerprint(disk, &place.live)).transpose()?;
        match place.position(disk, &journal.id)? {
            Position::Beside => {
                unused_old &= now == entry.before;
                beside.push(place.clone());
            }
            Position::Live => {
                unused_new &= now == Some(entry.after);
                live.push(place.clone());
                live_names.push(entry.name.clone());
            }
            Position::Gone => unused_old = false,
        }
    }
    if unused_old {
        beside.iter().try_for_each(|place| place.exchange(disk))?;
        journal.stage = JournalPhase::Exchanged;
        journal.write(disk, home)?;
        finish(disk, home, &places, journal.keep_old)?;
        return Ok(Recovery::Finished);
    }
    if unused_new {
        live.iter().try_for_each(|place| place.undo(disk))?;
        Journal::remove(disk, home)?;
        return Ok(Recovery::Undone);
    }
    beside.iter().try_for_each(|place| place.clear(disk))?;
    // From now on the journal speaks of those alone whose old database must still be removed.
    journal.entries.retain(|entry| live_names.contains(&entry.name));
    journal.stage = JournalPhase::Exchanged;
    journal.write(disk, home)?;
    finish(disk, home, &live, journal.keep_old)?;
    Ok(Recovery::Abandoned)
}

/// Steps 4 and 5.
fn finish(
    disk: &dyn Disk,
    home: &Path,
    places: &[ReplacedDatabase],
    keep_old: bool,
) -> Result<(), DiskError> {
    places.iter().try_for_each(|place| place.settle(disk, keep_old))?;
    Journal::remove(disk, home)
}

fn undo_if_live(disk: &dyn Disk, place: &ReplacedDatabase, id: &[u8; 16]) -> Result<(), DiskError> {
    place.end_exchange(disk, id)?;
    match place.position(disk, id)? {
        Position::Live => place.undo(disk),
        _ => Ok(()),
    }
}

fn owner_of(disk: &dyn Disk, path: &Path) -> Result<Ownership, DiskError> {
    Ok(disk.ownership(path).during("find the owner of", path)?)
}

fn exists(disk: &dyn Disk, path: &Path) -> Result<bool, DiskError> {
    // A link that leads nowhere is there all the same.
    let is_there = disk.exists(path).and_then(|is_there| Ok(is_there || disk.is_link(path)?));
    Ok(is_there.during("look for", path)?)
}

fn mark(id: &[u8; 16]) -> Vec<u8> {
    [&MARK_MAGIC[..], id].concat()
}

fn has_mark(disk: &dyn Disk, dir: &Path, id: &[u8; 16]) -> Result<bool, DiskError> {
    let (path, mark) = (dir.join(MARK), mark(id));
    let is_there = disk.metadata(&path).during("look for", &path)?;
    if is_there.is_none_or(|found| found.is_dir || found.len != mark.len() as u64) {
        return Ok(false);
    }
    Ok(disk.read(&path, mark.len() as u64).during("read", &path)? == mark)
}

/// Whether `dir` is a folder in which a run has built: a mark and a database's files, or nothing at all.
fn is_work_file(disk: &dyn Disk, dir: &Path) -> Result<bool, DiskError> {
    let found = disk.metadata(dir).during("look for", dir)?;
    if found.is_none_or(|found| !found.is_dir) || disk.is_link(dir).during("look at", dir)? {
        return Ok(false);
    }
    let names = disk.list(dir).during("list", dir)?;
    let marked = names.is_empty() || names.iter().any(|name| name == MARK);
    Ok(marked && names.iter().all(|name| name == MARK || is_database_file(name)))
}

/// Removes a database's files, the mark last, and the folder if that was all.
fn remove_database(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    remove_files(disk, dir)?;
    let mark = dir.join(MARK);
    if exists(disk, &mark)? {
        disk.remove_file(&mark).during("remove", &mark)?;
    }
    Ok(disk.remove_dir(dir).during("remove", dir)?)
}

fn remove_files(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    for name in disk.list(dir).during("list", dir)? {
        let path = dir.join(&name);
        if is_file_of_database(disk, &path)? {
            disk.remove_file(&path).during("remove", &path)?;
        }
    }
    Ok(())
}

/// Whether `path` has the name of a database's file, and is not a folder.
fn is_file_of_database(disk: &dyn Disk, path: &Path) -> Result<bool, DiskError> {
    let is_dir = disk.metadata(path).during("look at", path)?.is_some_and(|found| found.is_dir);
    let is_link = disk.is_link(path).during("look at", path)?;
    Ok(path.file_name().is_some_and(is_database_file) && (!is_dir || is_link))
}

/// A digest of what changes whenever LevelDB opens a database for writing: the name of its manifest, and
/// which files there are.
fn fingerprint(disk: &dyn Disk, dir: &Path) -> Result<[u8; 32], DiskError> {
    let mut sha = Sha256::new();
    let is_of_state =
        |name: &OsString| is_database_file(name) && !["LOCK", "LOG", "LOG.old"].iter().any(|n| name == n);
    for name in disk.list(dir).during("list", dir)?.iter().filter(|name| is_of_state(name)) {
        let path = dir.join(name);
        let len = disk.metadata(&path).during("look at", &path)?.map_or(0, |found| found.len);
        sha.update(name.as_encoded_bytes());
        sha.update(&[0]);
        sha.update(&len.to_le_bytes());
        if name == "CURRENT" && len < CURRENT_MAX {
            sha.update(&disk.read(&path, CURRENT_MAX).during("read", &path)?);
        }
    }
    Ok(sha.finalize())
}

#[cfg(test)]
mod tests;

//! Replaces databases with newly built ones: all of them, or none.
//!
//! A new database is built in a directory beside the one that it replaces: `chainstate.peregrine` beside
//! `chainstate`, or, if `chainstate` is a symbolic link, beside the directory that the link leads to. The
//! directory contains a mark that identifies it as Peregrine's. When all new databases are complete, they
//! take the places of the old ones in this order, each step synced before the next one begins:
//!
//! 1. The journal is written: which databases are replaced, and what their directories contain.
//! 2. Each new directory and the old one exchange their names ([`Disk::exchange`]).
//! 3. The journal records that all are exchanged. From here on the replacement is final.
//! 4. The marks are removed, and the old databases are removed or kept as `chainstate.old`.
//! 5. The journal is removed.
//!
//! An error before step 3 undoes the exchanges. After a crash, [`recover`] finds the journal: after step 3 it
//! does what is left; before step 3 it exchanges the remaining names, which the marks identify. If a
//! `bitcoind` has used a database between the crash and [`recover`], it exchanges them back; if a new
//! database has been used too, it keeps what is in use.
//!
//! The directories can be on different file systems: each exchange stays on one.

mod journal;

use crate::datadir::{FILTER_DATABASE, FIRST_FILTERS, SNAPSHOT_BASE, is_dir, is_filter_file};
use crate::error::{DiskError, Obstacle};
pub(crate) use journal::lock_of;
use journal::{Journal, JournalEntry, JournalPhase};
pub use journal::{fingerprint, interrupted_exchange, is_interrupted};
use leveldb::is_database_file;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use vfs::{
    CORE_DIR_MODE, Disk, During as _, Ownership, PARKED_SUFFIX, dir_of, exists, remove_if_there,
    repair_exchange, sync_dir_of, with_suffix, write_synced,
};

/// Suffix of the directory in which the new database is built.
pub(crate) const NEW_SUFFIX: &str = ".peregrine";
/// Suffix of an old database that is kept.
pub const KEPT_SUFFIX: &str = ".old";
/// Name of the file that marks a directory as Peregrine's.
pub(crate) const MARK: &str = "peregrine.mark";
/// First bytes of the mark. The id of the replacement follows, 16 bytes.
const MARK_MAGIC: [u8; 8] = *b"PGRN-NEW";

/// Paths of a database that is replaced, links followed.
#[derive(Clone, Debug)]
struct ReplacedDatabase {
    /// Its path, relative to the directory of the journal.
    name: PathBuf,
    /// The database in use.
    live: PathBuf,
    /// Where the new database is built. After the exchange, this is the path of the old one.
    beside: PathBuf,
    /// The path of the old database if it is kept.
    kept: PathBuf,
}

/// Where the new database is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NewLocation {
    /// Where it was built.
    Beside,
    /// In place of the old one.
    Live,
    /// In neither place: another program has removed it.
    Gone,
}

/// The outcome of [`recover`] for a replacement that a crash had interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// All new databases are in place.
    Finished,
    /// All old databases are in place, because one of them was used after the crash.
    Undone,
    /// Both old and new databases were used after the crash: what is in use was kept.
    Abandoned,
}

/// A set of databases that are built to replace others.
pub struct Replacement<'d> {
    disk: &'d dyn Disk,
    /// The directory with the journal, to which the names of the databases are relative.
    home: PathBuf,
    databases: Vec<ReplacedDatabase>,
    id: [u8; 16],
    keep_old: bool,
}

/// Returns what the links to `path` lead to; `path` itself if there is nothing.
pub(crate) fn without_links(disk: &dyn Disk, path: PathBuf) -> Result<PathBuf, DiskError> {
    match disk.resolve(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path),
        found => Ok(found.during("follow the links to", &path)?),
    }
}

impl ReplacedDatabase {
    fn new(disk: &dyn Disk, home: &Path, name: &Path) -> Result<Self, DiskError> {
        let live = without_links(disk, home.join(name))?;
        let (beside, kept) = (with_suffix(&live, NEW_SUFFIX), with_suffix(&live, KEPT_SUFFIX));
        Ok(Self { name: name.to_owned(), live, beside, kept })
    }

    /// The name under which an exchange in three steps keeps a database in between.
    fn parked(&self) -> PathBuf {
        with_suffix(&self.beside, PARKED_SUFFIX)
    }

    /// Refuses what could not be exchanged later.
    fn check(&self, disk: &dyn Disk, keep_old: bool) -> Result<(), DiskError> {
        if let Some(found) = disk.metadata(&self.live).during("look at", &self.live)? {
            if !found.is_dir {
                return refuse(&self.live, Obstacle::NotDirectory);
            }
            refuse_mount_point(disk, &self.live)?;
            // A commit reads the same files. If that is not possible, nothing may have changed before.
            fingerprint(disk, &self.live)?;
        }
        for place in [&self.beside, &self.parked()] {
            if exists(disk, place)? {
                return refuse(place, Obstacle::ForeignFiles);
            }
        }
        if keep_old && exists(disk, &self.kept)? {
            return refuse(&self.kept, Obstacle::KeptNameTaken);
        }
        Ok(())
    }

    /// Creates the directory for the new database, with its mark.
    fn begin(&self, disk: &dyn Disk, id: &[u8; 16]) -> Result<(), DiskError> {
        disk.create_dir_all(&self.beside).during_creation(&self.beside)?;
        // The ownership of the old database; without one, the owner of the new directory and Core's mode.
        // That owner also replaces the superuser: the node could not open what the superuser has made.
        let created = Ownership { mode: CORE_DIR_MODE, ..owner_of(disk, &self.beside)? };
        let old = if exists(disk, &self.live)? { owner_of(disk, &self.live)? } else { created };
        let ownership = if old.uid == 0 { Ownership { mode: old.mode, ..created } } else { old };
        set_owner(disk, &self.beside, ownership, &self.live)?;
        write_synced(disk, &self.beside.join(MARK), &mark(id))?;
        // A directory never replaces one that is not empty, so with the mark this fails. But an overlay file
        // system says before that if it cannot rename the old database.
        match disk.rename(&self.live, &self.beside) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => Err(error),
            Err(_) => Ok(()),
            Ok(()) => {
                let flaw = "this file system replaces directories that are not empty: use another one";
                disk.rename(&self.beside, &self.live).and(Err(io::Error::other(flaw)))
            }
        }
        .during("replace", &self.live)?;
        Ok(disk.sync_dir(&self.beside).during("sync", &self.beside)?)
    }

    /// Exchanges the names of the old and the new database; if there is no old one, renames the new one.
    fn exchange(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        self.rename([&self.beside, &self.live], disk, "put the new database in place of")
    }

    /// Undoes [`ReplacedDatabase::exchange`].
    fn undo(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        self.rename([&self.live, &self.beside], disk, "put the old database back as")
    }

    fn rename(&self, [from, to]: [&Path; 2], disk: &dyn Disk, action: &'static str) -> Result<(), DiskError> {
        // The lock files outside of the databases still exclude bitcoind.
        disk.unlock(&self.live.join("LOCK"));
        if exists(disk, to)? { disk.exchange(&self.beside, &self.live) } else { disk.rename(from, to) }
            .during(action, &self.live)?;
        Ok(sync_dir_of(disk, &self.live)?)
    }

    fn new_location(&self, disk: &dyn Disk, id: &[u8; 16]) -> Result<NewLocation, DiskError> {
        if has_mark(disk, &self.beside, id)? {
            return Ok(NewLocation::Beside);
        }
        Ok(if has_mark(disk, &self.live, id)? { NewLocation::Live } else { NewLocation::Gone })
    }

    /// Completes or undoes an exchange in three steps that a crash has interrupted: also one that was to put
    /// the old database back, which has no mark.
    fn repair_exchange(&self, disk: &dyn Disk, id: &[u8; 16]) -> Result<(), DiskError> {
        let (parked, is_new) = (self.parked(), has_mark(disk, &self.parked(), id)?);
        let is_own = is_new || self.new_location(disk, id)? != NewLocation::Gone;
        if exists(disk, &parked)? && is_own {
            if exists(disk, &self.beside)? && exists(disk, &self.live)? {
                // A bitcoind that found no database has made another one, which is in use.
                let old = if is_new { &self.beside } else { &parked };
                let kept = free_name(disk, self.kept.clone())?;
                disk.rename(old, &kept).during("keep the old database as", &kept)?;
            }
            repair_exchange(disk, &self.beside, &self.live).during("put back", &self.live)?;
            sync_dir_of(disk, &self.live)?;
        }
        Ok(())
    }

    /// Removes or keeps the old database, after the new one is in place. Files that are not LevelDB's are
    /// moved to the new one. Returns the path of what is kept.
    fn clean_up(&self, disk: &dyn Disk, keep_old: bool) -> Result<Option<PathBuf>, DiskError> {
        if remove_if_there(disk, &self.live.join(MARK))? {
            disk.sync_dir(&self.live).during("sync", &self.live)?;
        }
        let mut kept = None;
        if exists(disk, &self.beside)? {
            if !keep_old {
                self.move_foreign(disk)?;
                remove_files(disk, &self.beside)?;
            }
            // If not empty, it contains a foreign file whose name is taken in the new database, or a
            // directory with the name of a database's file.
            let is_empty = disk.list(&self.beside).during("list", &self.beside)?.is_empty();
            if is_empty {
                disk.remove_dir(&self.beside).during("remove", &self.beside)?;
            } else {
                let name = free_name(disk, self.kept.clone())?;
                disk.rename(&self.beside, &name).during("keep the old database as", &name)?;
                kept = Some(name);
            }
        }
        sync_dir_of(disk, &self.live)?;
        Ok(kept)
    }

    /// Moves files that are not LevelDB's to the new database. A directory with the name of a database's file
    /// stays: LevelDB could not open a database that contains it.
    fn move_foreign(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        for name in disk.list(&self.beside).during("list", &self.beside)? {
            let (from, to) = (self.beside.join(&name), self.live.join(&name));
            if !is_built_file(&name) && name != FILTER_DATABASE && !exists(disk, &to)? {
                disk.rename(&from, &to).during("move to the new database", &from)?;
            }
        }
        Ok(disk.sync_dir(&self.live).during("sync", &self.live)?)
    }
}

impl<'d> Replacement<'d> {
    /// Creates a directory for the new version of each database in `names`, which are relative to `home` and
    /// in the order in which they are put in place. The directory gets the owner, the group and the mode of
    /// the old database. `id` is a random number that identifies this replacement.
    ///
    /// # Errors
    /// [`DiskError::NotReplaceable`] for what could not be exchanged later: a mount point, or a path that is
    /// taken.
    /// [`DiskError::NotOwner`] if this process may not create files for the owner.
    /// [`DiskError::File`] for I/O errors. On error, what was created is removed.
    pub fn begin(
        disk: &'d dyn Disk,
        home: &Path,
        names: &[&Path],
        id: [u8; 16],
        keep_old: bool,
    ) -> Result<Self, DiskError> {
        let lock = lock_of(home);
        let _alone = lock.lock().unwrap_or_else(PoisonError::into_inner);
        finish_earlier(disk, home, names)?;
        let databases = names
            .iter()
            .map(|name| ReplacedDatabase::new(disk, home, name))
            .collect::<Result<Vec<_>, _>>()?;
        databases.iter().try_for_each(|database| database.check(disk, keep_old))?;
        if databases.iter().any(|database| !database.beside.starts_with(home)) {
            // Where a link leads can be writable when the journal's directory is not.
            Journal::try_to_create(disk, home)?;
        }
        let replacement = Self { disk, home: home.to_owned(), databases, id, keep_old };
        for database in &replacement.databases {
            if let Err(error) = database.begin(disk, &id) {
                replacement.discard();
                return Err(error);
            }
        }
        Ok(replacement)
    }

    /// Adds a database that is put in place before the others, as if it had been the first of `names`.
    ///
    /// # Errors
    /// The same errors as [`Replacement::begin`]. On error, nothing is added.
    pub fn add_first(&mut self, name: &Path) -> Result<(), DiskError> {
        let lock = lock_of(&self.home);
        let _alone = lock.lock().unwrap_or_else(PoisonError::into_inner);
        finish_earlier(self.disk, &self.home, &[name])?;
        let database = ReplacedDatabase::new(self.disk, &self.home, name)?;
        database.check(self.disk, self.keep_old)?;
        database.begin(self.disk, &self.id).inspect_err(|_| {
            let _ = clear(self.disk, &database.beside);
        })?;
        self.databases.insert(0, database);
        Ok(())
    }

    /// Returns the directory in which the new database with this index in the `names` of
    /// [`Replacement::begin`] is built.
    ///
    /// # Panics
    /// If there is no such index.
    #[expect(clippy::indexing_slicing, reason = "documented: the caller numbers its own databases")]
    pub fn building(&self, number: usize) -> &Path {
        &self.databases[number].beside
    }

    /// Removes what was built so far, so that it can be built again.
    pub fn start_over(&self) -> Result<(), DiskError> {
        self.databases.iter().try_for_each(|database| remove_files(self.disk, &database.beside))
    }

    /// Removes what was built, after a failure. [`recover`] removes what cannot be removed now. It may need
    /// all of it if there is a journal of this replacement: then nothing is removed.
    pub fn discard(&self) {
        let is_own = |journal: Option<Journal>| journal.is_some_and(|journal| journal.id == self.id);
        if Journal::read(self.disk, &self.home).map_or(true, is_own) {
            return;
        }
        self.databases.iter().for_each(|database| drop(clear(self.disk, &database.beside)));
    }

    /// Puts all new databases in place, and calls `last` then. Returns the paths of the old ones that are
    /// kept, on request or because they contain something that cannot be moved. If `last` does not return,
    /// because of a crash, [`recover`] returns [`Recovery::Finished`].
    ///
    /// # Errors
    /// [`CommitError::Failed`]: all old databases are in place, or, if undoing failed too, [`recover`] puts
    /// all old ones or all new ones there. [`CommitError::InPlace`]: the new ones are in place, but the old
    /// ones could not be removed completely; [`recover`] does it.
    pub fn commit(&self, last: impl FnOnce()) -> Result<Vec<PathBuf>, CommitError> {
        let lock = lock_of(&self.home);
        let _alone = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut journal = self.journal()?;
        self.exchange_all(&mut journal).inspect_err(|_| {
            let _ = self.undo_all(&mut journal);
        })?;
        let kept = clean_up_all(self.disk, &self.databases, self.keep_old);
        last();
        let done = kept.and_then(|kept| Journal::remove(self.disk, &self.home).map(|()| kept));
        done.map_err(CommitError::InPlace)
    }

    /// Puts the old databases back. If something stays undone, the next job recovers by the journal.
    fn undo_all(&self, journal: &mut Journal) -> Result<(), DiskError> {
        // A journal that records that all are exchanged can be on the medium, although writing it failed:
        // none may be undone under it, because a recovery would keep a mixture of both.
        if journal.phase == JournalPhase::Exchanged {
            journal.phase = JournalPhase::Exchanging;
            journal.write(self.disk, &self.home)?;
        }
        for database in &self.databases {
            database.repair_exchange(self.disk, &self.id)?;
            if database.new_location(self.disk, &self.id)? == NewLocation::Live {
                database.undo(self.disk)?;
            }
        }
        Journal::remove(self.disk, &self.home)
    }

    fn journal(&self) -> Result<Journal, DiskError> {
        let entry = |database: &ReplacedDatabase| {
            let before = exists(self.disk, &database.live)?.then(|| fingerprint(self.disk, &database.live));
            let after = fingerprint(self.disk, &database.beside)?;
            Ok(JournalEntry { name: database.name.clone(), before: before.transpose()?, after })
        };
        let entries = self.databases.iter().map(entry).collect::<Result<_, DiskError>>()?;
        Ok(Journal { id: self.id, phase: JournalPhase::Exchanging, keep_old: self.keep_old, entries })
    }

    fn exchange_all(&self, journal: &mut Journal) -> Result<(), DiskError> {
        journal.write(self.disk, &self.home)?;
        self.databases.iter().try_for_each(|database| database.exchange(self.disk))?;
        journal.phase = JournalPhase::Exchanged;
        journal.write(self.disk, &self.home)
    }
}

/// An error of [`Replacement::commit`].
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The old databases are in place, or will be after [`recover`].
    #[error(transparent)]
    Failed(#[from] DiskError),
    /// The new databases are in place. Files that are no longer needed could not be removed.
    #[error(transparent)]
    InPlace(DiskError),
}

/// Refuses a mount point, which can be neither renamed nor exchanged.
pub fn refuse_mount_point(disk: &dyn Disk, path: &Path) -> Result<(), DiskError> {
    let is_mounted = disk.is_mount_point(path).during("look at", path)?;
    if is_mounted { refuse(path, Obstacle::MountPoint) } else { Ok(()) }
}

pub(crate) fn refuse(path: &Path, obstacle: Obstacle) -> Result<(), DiskError> {
    Err(DiskError::NotReplaceable { path: path.to_owned(), obstacle })
}

/// Checks that this process can create files for the owner of the databases `names` below `home`, or, if one
/// is missing, for the owner of the directory in which it is created: otherwise the node could not open what
/// is written. The superuser always can.
///
/// # Errors
/// [`DiskError::NotOwner`] if it cannot; [`DiskError::NotReplaceable`] for a dangling link; any I/O error.
pub fn check_owner(disk: &dyn Disk, home: &Path, names: &[&Path]) -> Result<(), DiskError> {
    let user = disk.user();
    for name in names {
        let database = ReplacedDatabase::new(disk, home, name)?;
        let path = &database.live;
        if disk.is_link(path).during("look at", path)? {
            return refuse(path, Obstacle::DanglingLink);
        }
        let mut replaced = database.live.as_path();
        while !exists(disk, replaced)? {
            replaced = dir_of(replaced);
        }
        let owner = owner_of(disk, replaced)?.uid;
        if user != 0 && user != owner {
            return Err(DiskError::NotOwner { path: database.live, owner });
        }
    }
    Ok(())
}

/// Whether an earlier job has left anything below `home` that [`recover`] would repair or remove.
pub fn needs_recovery(disk: &dyn Disk, home: &Path, names: &[impl AsRef<Path>]) -> Result<bool, DiskError> {
    if is_interrupted(disk, home)? {
        return Ok(true);
    }
    for dir in building_places(disk, home, names)? {
        if is_new_database_dir(disk, &dir)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns what has a name under which a new database would be built, or kept within an exchange, in place of
/// one of `names` below `home`, if no job has made it.
pub fn foreign_building(
    disk: &dyn Disk,
    home: &Path,
    names: &[impl AsRef<Path>],
) -> Result<Option<PathBuf>, DiskError> {
    for name in names {
        let database = ReplacedDatabase::new(disk, home, name.as_ref())?;
        for place in [database.parked(), database.beside] {
            if exists(disk, &place)? && !is_new_database_dir(disk, &place)? {
                return Ok(Some(place));
            }
        }
    }
    Ok(None)
}

/// Returns where an earlier job may have left databases that it has built: beside each one, where an exchange
/// keeps it in between, and beside the link that the old one may have become since.
fn building_places(
    disk: &dyn Disk,
    home: &Path,
    names: &[impl AsRef<Path>],
) -> Result<Vec<PathBuf>, DiskError> {
    let mut places = Vec::new();
    for name in names {
        let database = ReplacedDatabase::new(disk, home, name.as_ref())?;
        places.extend([database.parked(), database.beside, with_suffix(&home.join(name), NEW_SUFFIX)]);
    }
    Ok(places)
}

/// Finishes or undoes a replacement that a crash has interrupted, and removes what an earlier job has built
/// but not put in place. `names` are all databases below `home` that any job may replace. The datadir must be
/// locked. `last` is called with the names of the databases if all new ones are in place; after a crash or an
/// error in it, the next recovery calls it again. Returns `None` if there was no such replacement.
///
/// # Errors
/// [`DiskError::Damaged`] if the journal cannot be decoded; [`DiskError::File`]; the errors of `last`.
pub fn recover(
    disk: &dyn Disk,
    home: &Path,
    names: &[impl AsRef<Path>],
    last: impl FnOnce(&[PathBuf]) -> Result<(), DiskError>,
) -> Result<Option<Recovery>, DiskError> {
    let mut recovery = None;
    if let Some(mut journal) = Journal::read(disk, home)? {
        let outcome = recover_from(disk, home, &mut journal)?;
        if outcome == Recovery::Finished {
            last(&journal.entries.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>())?;
        }
        recovery = Some(outcome);
        Journal::remove(disk, home)?;
    }
    Journal::remove_unfinished(disk, home)?;
    for dir in building_places(disk, home, names)? {
        clear(disk, &dir)?;
    }
    Ok(recovery)
}

/// Does what is left of an earlier commit of this process, if the clean-up after it has failed.
fn finish_earlier(disk: &dyn Disk, home: &Path, names: &[&Path]) -> Result<(), DiskError> {
    if Journal::read(disk, home)?.is_some_and(|journal| journal.phase == JournalPhase::Exchanged) {
        recover(disk, home, names, |_| Ok(()))?;
    }
    Ok(())
}

/// Does what is left of the steps but the last: removing the journal.
fn recover_from(disk: &dyn Disk, home: &Path, journal: &mut Journal) -> Result<Recovery, DiskError> {
    let database = |entry: &JournalEntry| ReplacedDatabase::new(disk, home, &entry.name);
    let databases = journal.entries.iter().map(database).collect::<Result<Vec<_>, _>>()?;
    if journal.phase == JournalPhase::Exchanged {
        clean_up_all(disk, &databases, journal.keep_old)?;
        return Ok(Recovery::Finished);
    }
    let (mut live, mut beside) = (Vec::new(), Vec::new());
    let (mut unused_old, mut unused_new) = (true, true);
    for (database, entry) in databases.iter().zip(&journal.entries) {
        database.repair_exchange(disk, &journal.id)?;
        let now = exists(disk, &database.live)?.then(|| fingerprint(disk, &database.live)).transpose()?;
        match database.new_location(disk, &journal.id)? {
            NewLocation::Beside => {
                unused_old &= now == entry.before;
                beside.push(database.clone());
            }
            NewLocation::Live => {
                unused_new &= now == Some(entry.after);
                live.push(database.clone());
            }
            NewLocation::Gone if now.is_none() => {
                return Err(DiskError::Damaged {
                    path: Journal::path(home),
                    offset: 0,
                    flaw: format!(
                        "this file records an interrupted exchange of databases, of which {} is not there: \
                         mount the disk with it, or find out which databases are intact, and move this \
                         file away; then run again",
                        database.live.display()
                    ),
                });
            }
            NewLocation::Gone => unused_old = false,
        }
    }
    if unused_old {
        beside.iter().try_for_each(|database| database.exchange(disk))?;
        journal.phase = JournalPhase::Exchanged;
        journal.write(disk, home)?;
        clean_up_all(disk, &databases, journal.keep_old)?;
        return Ok(Recovery::Finished);
    }
    if unused_new {
        live.iter().try_for_each(|database| database.undo(disk))?;
        return Ok(Recovery::Undone);
    }
    beside.iter().try_for_each(|database| clear(disk, &database.beside))?;
    // From now on the journal lists only those whose old database must still be removed.
    journal.entries.retain(|entry| live.iter().any(|database| database.name == entry.name));
    journal.phase = JournalPhase::Exchanged;
    journal.write(disk, home)?;
    clean_up_all(disk, &live, journal.keep_old)?;
    Ok(Recovery::Abandoned)
}

/// Does step 4. Returns the paths of the old databases that are kept.
fn clean_up_all(
    disk: &dyn Disk,
    databases: &[ReplacedDatabase],
    keep_old: bool,
) -> Result<Vec<PathBuf>, DiskError> {
    let kept = databases.iter().map(|database| database.clean_up(disk, keep_old));
    Ok(kept.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Sets owner, group and mode of `path` to those of `like`, which an error names. If only the group cannot be
/// set, because this user is not in it, the user's own group gets no permissions: the node runs as the owner.
pub(crate) fn set_owner(
    disk: &dyn Disk,
    path: &Path,
    ownership: Ownership,
    like: &Path,
) -> Result<(), DiskError> {
    match disk.set_ownership(path, ownership) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let Ownership { uid, gid, .. } = owner_of(disk, path)?;
            if uid != ownership.uid {
                return Err(DiskError::NotOwner { path: like.to_owned(), owner: ownership.uid });
            }
            let own = Ownership { uid, gid, mode: ownership.mode & !0o070 };
            Ok(disk.set_ownership(path, own).during("set the mode of", path)?)
        }
        done => Ok(done.during("set owner and mode of", path)?),
    }
}

pub(crate) fn owner_of(disk: &dyn Disk, path: &Path) -> Result<Ownership, DiskError> {
    Ok(disk.ownership(path).during("find the owner of", path)?)
}

/// Returns `kept`, or, if that name is taken, the first one that is not with a number appended.
///
/// # Errors
/// [`DiskError::File`] if a name cannot be looked at.
pub fn free_name(disk: &dyn Disk, kept: PathBuf) -> Result<PathBuf, DiskError> {
    let mut name = kept.clone();
    for number in 2.. {
        if !exists(disk, &name)? {
            break;
        }
        name = with_suffix(&kept, &format!("-{number}"));
    }
    Ok(name)
}

fn mark(id: &[u8; 16]) -> Vec<u8> {
    [&MARK_MAGIC[..], id].concat()
}

fn has_mark(disk: &dyn Disk, dir: &Path, id: &[u8; 16]) -> Result<bool, DiskError> {
    let (path, mark) = (dir.join(MARK), mark(id));
    let found = disk.metadata(&path).during("look for", &path)?;
    if found.is_none_or(|found| found.is_dir || found.len != mark.len() as u64) {
        return Ok(false);
    }
    Ok(disk.read(&path, mark.len() as u64).during("read", &path)? == mark)
}

/// Removes a directory in which an earlier job has built a database, if it is one.
fn clear(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    if is_new_database_dir(disk, dir)? { remove_database(disk, dir) } else { Ok(()) }
}

/// Whether `dir` is a directory in which a job has built a database: a mark and a database's files, or empty.
fn is_new_database_dir(disk: &dyn Disk, dir: &Path) -> Result<bool, DiskError> {
    let found = disk.metadata(dir).during("look for", dir)?;
    if found.is_none_or(|found| !found.is_dir) || disk.is_link(dir).during("look at", dir)? {
        return Ok(false);
    }
    let names = disk.list(dir).during("list", dir)?;
    let is_marked = names.is_empty() || names.iter().any(|name| name == MARK);
    let is_nested = nested_database(disk, dir)?.is_some();
    let is_own =
        |name: &OsString| name == MARK || is_built_file(name) || is_nested && name == FILTER_DATABASE;
    Ok(is_marked && names.iter().all(is_own))
}

/// The database in a directory with the files of a block filter index, which are made and replaced together.
fn nested_database(disk: &dyn Disk, dir: &Path) -> Result<Option<PathBuf>, DiskError> {
    let nested = dir.join(FILTER_DATABASE);
    let is_own =
        is_dir(disk, &nested)? && (exists(disk, &dir.join(MARK))? || exists(disk, &dir.join(FIRST_FILTERS))?);
    Ok(is_own.then_some(nested))
}

/// Removes a database's files, then the mark, then the directory, which must be empty by then.
///
/// # Errors
/// [`DiskError::File`] if one of them cannot be removed.
pub fn remove_database(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    remove_files(disk, dir)?;
    remove_if_there(disk, &dir.join(MARK))?;
    Ok(disk.remove_dir(dir).during("remove", dir)?)
}

fn remove_files(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    if let Some(nested) = nested_database(disk, dir)? {
        remove_files(disk, &nested)?;
        if disk.list(&nested).during("list", &nested)?.is_empty() {
            let is_link = disk.is_link(&nested).during("look at", &nested)?;
            if is_link { disk.remove_file(&nested) } else { disk.remove_dir(&nested) }
                .during("remove", &nested)?;
        }
    }
    for name in disk.list(dir).during("list", dir)? {
        let path = dir.join(&name);
        let is_directory = is_dir(disk, &path)? && !disk.is_link(&path).during("look at", &path)?;
        if is_built_file(&name) && !is_directory {
            disk.remove_file(&path).during("remove", &path)?;
        }
    }
    Ok(())
}

/// Whether a file with this name is built with a database: LevelDB's own, the base block of a snapshot's
/// chainstate, and block filters.
fn is_built_file(name: &OsStr) -> bool {
    is_database_file(name) || name == SNAPSHOT_BASE || is_filter_file(name)
}

#[cfg(test)]
mod tests;

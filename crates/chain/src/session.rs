//! A session: the datadirs of one command, opened and locked until it ends.
//!
//! The order of the steps, and why:
//!
//! 1. The name of the SHA-256 kernel is checked, because it needs nothing from the disk.
//! 2. The datadir is opened, which only looks at it.
//! 3. If the command only reads it, it is locked for reading. Under this lock no other process can be
//!    committing. So a commit that has not put all databases in place was interrupted; then the datadir is
//!    refused, since a database may be under another name. Only a command that changes the datadir, or
//!    `recover`, finishes or undoes the commit.
//! 4. Only then is anything created for an output elsewhere: if a bitcoind uses the blocks, nothing is left
//!    behind. The output's folders are created before it is locked, because its lock files are in them. In
//!    place, the owner is checked instead, because a lock file that is missing would be created for the wrong
//!    user.
//! 5. The datadir of the result is locked for changes, also if it is an output: two rebuilds that read the
//!    same datadir must not write to the same place.
//! 6. An interrupted commit there is finished or undone under this lock, so that no other process can be
//!    committing.
//! 7. The key of the block files is read ([`Session::files`]), from a datadir that no other process changes
//!    now.
//!
//! No step waits for a lock. A datadir in use is an error, so the order cannot lead to a deadlock.

use crate::{
    blocks::files::{self, Files},
    commit::{WORK_DIR, replaceable},
};
use api::{
    error::{Error, ErrorKind},
    event::{Event, EventSink},
    machine,
    note::Warning,
    options::{ChainOptions, ReindexOptions, ScriptChecks},
    remedy::Remedy,
    subject::Subject,
};
use digest::obfuscation::Obfuscation;
use disk::{
    checkpoint::Checkpoint,
    datadir::{CHAINSTATE, Datadir, INDEX, Location},
    index::refuse_flat,
    lock::{DatadirLock, LockMode},
    made_undo::{clear_made_undo, clear_stale_made_undo},
    replace::{self, Recovery},
};
use rules::ChainParams;
use std::path::{Path, PathBuf};
use vfs::{Disk, During as _, FileError, dir_of};

/// Number of block files whose key is checked by a command that only reads: on a hard disk, looking at all of
/// them takes longer than some commands.
const FILES_CHECKED: usize = 64;

/// A datadir that is open and locked.
pub struct Session<'d> {
    disk: &'d dyn Disk,
    params: &'static ChainParams,
    scripts: ScriptChecks,
    /// The datadir with the blocks, or an output without any.
    datadir: Datadir,
    /// Locks the datadir of the result for changes.
    change_lock: Option<DatadirLock>,
    /// Locks the datadir with the blocks for reading, if it is not that of the result.
    _read_lock: Option<DatadirLock>,
}

impl<'d> Session<'d> {
    /// Opens a datadir that the command only reads. With [`ChainOptions::live`], one in use is not locked.
    ///
    /// # Errors
    /// What is wrong with the directory or the SHA-256 kernel; the errors of [`lock_for_reading`].
    pub fn open_for_reading(disk: &'d dyn Disk, options: &ChainOptions) -> Result<Self, Error> {
        machine::sha256_kernel()?;
        let datadir = open_datadir(disk, options)?;
        let lock = match lock_for_reading(disk, &datadir) {
            Err(error) if options.live && error.is_about(Subject::DatadirInUse) => None,
            lock => Some(lock?),
        };
        let (params, scripts) = (options.params, options.scripts.clone());
        Ok(Self { disk, params, scripts, datadir, change_lock: None, _read_lock: lock })
    }

    /// Opens the datadir of a rebuild, and that of its result, which is another one with
    /// [`ReindexOptions::output`]. Returns the latter too.
    ///
    /// # Errors
    /// The same errors as [`Session::open_for_reading`], and those of [`prepare_output`] and
    /// [`check_owner`].
    pub fn open_for_change(
        disk: &'d dyn Disk,
        options: &ReindexOptions,
        sink: &dyn EventSink,
    ) -> Result<(Self, Datadir), Error> {
        machine::sha256_kernel()?;
        let datadir = open_datadir(disk, &options.chain)?;
        let (read_lock, result) = match &options.output {
            Some(output) => {
                let lock = lock_for_reading(disk, &datadir)?;
                let location = options.chain.location();
                let result = Datadir::new(&Location { root: output.clone(), blocksdir: None, ..location });
                prepare_output(disk, &result, options.chain.scan, sink)?;
                (Some(lock), result)
            }
            None => {
                check_owner(disk, &datadir, options.chain.scan || options.makes_undo())?;
                (None, datadir.clone())
            }
        };
        let change_lock = Some(lock_for_change(disk, &result, sink)?);
        let (params, scripts) = (options.chain.params, options.chain.scripts.clone());
        Ok((Self { disk, params, scripts, datadir, change_lock, _read_lock: read_lock }, result))
    }

    /// Opens an output that gets a chainstate only, and must not have one.
    ///
    /// # Errors
    /// The same errors as [`prepare_output`] and [`lock_for_change`].
    pub fn open_for_output(
        disk: &'d dyn Disk,
        params: &'static ChainParams,
        output: &Path,
        sink: &dyn EventSink,
    ) -> Result<Self, Error> {
        machine::sha256_kernel()?;
        let datadir = Datadir::at(output, params.network);
        prepare_output(disk, &datadir, false, sink)?;
        let change_lock = Some(lock_for_change(disk, &datadir, sink)?);
        let scripts = ScriptChecks::LeftOut;
        Ok(Self { disk, params, scripts, datadir, change_lock, _read_lock: None })
    }

    /// Hands over the lock for changes, so that the caller can release it before the session ends.
    pub fn take_change_lock(&mut self) -> Option<DatadirLock> {
        self.change_lock.take()
    }

    pub fn datadir(&self) -> &Datadir {
        &self.datadir
    }

    /// Returns access to the block files, after reading the key that obfuscates them.
    pub fn files(&self) -> Result<Files<'_>, Error> {
        self.files_checking(if self.change_lock.is_some() { usize::MAX } else { FILES_CHECKED })
    }

    /// Like [`Session::files`], for a command that runs whenever a block comes, and does not write blocks.
    pub fn files_at_tip(&self) -> Result<Files<'_>, Error> {
        self.files_checking(FILES_CHECKED)
    }

    fn files_checking(&self, files_max: usize) -> Result<Files<'_>, Error> {
        Ok(self.files_with(files::obfuscation(self.disk, &self.datadir, self.params, files_max)?))
    }

    /// Like [`Session::files`], for a command that takes the blocks of files with another key elsewhere.
    ///
    /// # Errors
    /// The same errors, except for files of which only some have another key.
    pub fn files_of_some(&self) -> Result<Files<'_>, Error> {
        let Self { disk, datadir, params, .. } = self;
        Ok(self.files_with(files::obfuscation_of_some(*disk, datadir, params, usize::MAX)?.0))
    }

    fn files_with(&self, obfuscation: Obfuscation) -> Files<'_> {
        let Self { disk, ref datadir, params, ref scripts, .. } = *self;
        Files { disk, datadir, obfuscation, params, verifier: scripts.verifier(), awaited: None }
    }
}

/// Locks a datadir for reading.
///
/// # Errors
/// [`ErrorKind::Environment`] if the datadir is in use; the errors of
/// [`refuse_interrupted`].
pub fn lock_for_reading(disk: &dyn Disk, datadir: &Datadir) -> Result<DatadirLock, Error> {
    // Wherever a result is written, these files are read.
    let lock = DatadirLock::take(disk, datadir, LockMode::Read)
        .map_err(|error| Error::from(error).in_place_only())?;
    refuse_interrupted(disk, datadir)?;
    Ok(lock)
}

/// Locks a datadir for changes, and finishes or undoes a commit that was interrupted.
///
/// # Errors
/// [`ErrorKind::Environment`] if the datadir is in use; any I/O error.
pub fn lock_for_change(
    disk: &dyn Disk,
    datadir: &Datadir,
    sink: &dyn EventSink,
) -> Result<DatadirLock, Error> {
    let lock = DatadirLock::take(disk, datadir, LockMode::Change)?;
    recover(disk, datadir, sink)?;
    Ok(lock)
}

/// Creates the directories of an output, which must not contain the databases yet.
///
/// # Errors
/// [`ErrorKind::Usage`] for an output that is in use, [`ErrorKind::Environment`] if it cannot be created.
pub fn prepare_output(
    disk: &dyn Disk,
    datadir: &Datadir,
    scan: bool,
    sink: &dyn EventSink,
) -> Result<(), Error> {
    // An error about this path is never damage to the datadir.
    let not_damage = |mut error: Error| {
        error.kind = ErrorKind::Environment;
        error.with_remedies([Remedy::OtherOutput])
    };
    let unusable = |error: FileError| not_damage(error.into());
    // Whether a database exists may depend on a commit that was interrupted. If there is none, nothing is
    // locked yet: that would need the directories.
    let mut recovery = None;
    if has_unfinished(disk, datadir).map_err(not_damage)? {
        let _lock =
            DatadirLock::take(disk, datadir, LockMode::Change).map_err(|error| not_damage(error.into()))?;
        recovery = recover(disk, datadir, sink).map_err(not_damage)?;
    }
    let databases =
        [Some(datadir.chainstate_dir()), Some(datadir.snapshot_dir()), scan.then(|| datadir.index_dir())];
    for dir in databases.into_iter().flatten() {
        if disk.exists(&dir).during("look for", &dir).map_err(unusable)? {
            let error = match recovery {
                Some(Recovery::Finished) => Error::usage(
                    "the output already exists: the run that was interrupted there is finished now, and its \
                     result is complete",
                ),
                _ => Error::usage("the output already exists")
                    .with_remedies([Remedy::EmptyOutput, Remedy::KeepResult]),
            };
            return Err(error.in_file(&dir, None));
        }
        let parent = dir.parent().unwrap_or(&dir);
        disk.create_dir_all(parent).during_creation(parent).map_err(unusable)?;
    }
    Ok(())
}

/// Opens the datadir of a chain.
///
/// # Errors
/// What is wrong with the directory. If it belongs to another user and is not accessible, the error names
/// that user.
pub fn open_datadir(disk: &dyn Disk, options: &ChainOptions) -> Result<Datadir, Error> {
    let opened = Datadir::open(disk, &options.location())
        .and_then(|datadir| refuse_flat(disk, &datadir.index_dir()).map(|()| datadir));
    opened.map_err(|error| with_owner(disk, &options.datadir, error.into()))
}

/// Adds to an error of the environment which user may access the datadir at `root`.
pub fn with_owner(disk: &dyn Disk, root: &Path, error: Error) -> Error {
    let is_environment = error.kind == ErrorKind::Environment;
    error.with_remedies(Remedy::run_as_owner(disk, root).filter(|_| is_environment))
}

/// Checks that this process can write files that belong to the owner of the datadir; `with_index` is whether
/// the block index is one of them.
pub fn check_owner(disk: &dyn Disk, datadir: &Datadir, with_index: bool) -> Result<(), Error> {
    let databases = if with_index { vec![INDEX, CHAINSTATE] } else { vec![CHAINSTATE] };
    let databases: Vec<_> = databases.into_iter().map(Path::new).collect();
    Ok(replace::check_owner(disk, datadir.net_dir(), &databases)?)
}

/// The work directory of a rebuild in place: in the directory that is given, or beside the chainstate.
pub fn work_dir_of(disk: &dyn Disk, datadir: &Datadir, given: Option<&Path>) -> PathBuf {
    let chainstate = datadir.chainstate_dir();
    given.unwrap_or(dir_of(&disk.resolve(&chainstate).unwrap_or(chainstate))).join(WORK_DIR)
}

/// Finishes or undoes the commit of an earlier run that was interrupted, and removes databases that such a
/// run was building. The datadir must be locked for changes. Returns `None` if no commit was interrupted.
pub fn recover(disk: &dyn Disk, datadir: &Datadir, sink: &dyn EventSink) -> Result<Option<Recovery>, Error> {
    let recovery = replace::recover(disk, datadir.net_dir(), &replaceable(), |databases| {
        // The undo data of that commit is in place, and its checkpoint would have been removed next. The
        // files of any other run stay.
        if databases.iter().any(|name| name == Path::new(CHAINSTATE)) {
            clear_made_undo(disk, datadir)?;
            Checkpoint::remove(disk, &work_dir_of(disk, datadir, None))?;
        }
        Ok(())
    })?;
    if let Some(outcome) = recovery {
        sink.event(Event::Warning(Warning::Recovered { outcome }));
    }
    clear_stale_made_undo(disk, datadir)?;
    Ok(recovery)
}

/// Refuses to read a datadir in which a commit was interrupted before all databases were in place: one may be
/// under another name.
///
/// # Errors
/// [`ErrorKind::Damaged`] if it was; any I/O error.
pub fn refuse_interrupted(disk: &dyn Disk, datadir: &Datadir) -> Result<(), Error> {
    let Some(journal) = replace::interrupted_exchange(disk, datadir.net_dir())? else { return Ok(()) };
    let detail = "an earlier run was interrupted while it replaced databases, which may be under other names";
    Err(Error::damaged(detail).in_file(journal, None).with_remedies([Remedy::Recover]))
}

/// Whether an interrupted run has left databases, or a journal of their replacement.
pub fn has_unfinished(disk: &dyn Disk, datadir: &Datadir) -> Result<bool, Error> {
    Ok(replace::needs_recovery(disk, datadir.net_dir(), &replaceable())?)
}

/// Returns what is in the place where new databases of a datadir are built, if Peregrine has not made it.
pub fn foreign_building(disk: &dyn Disk, datadir: &Datadir) -> Result<Option<PathBuf>, Error> {
    Ok(replace::foreign_building(disk, datadir.net_dir(), &replaceable())?)
}

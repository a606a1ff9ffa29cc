//! Stage commit, and what must be so before anything is written: where the new databases are built, and how
//! they take the old ones' places.
//!
//! `disk::replace` has the mechanism: the new databases are built beside the old ones and take their places
//! all at once, whatever happens in between.

use crate::{
    error::{Error, ErrorKind},
    event::{Event, EventSink},
    job::random,
    options::ReindexOptions,
};
use disk::{
    datadir::{CHAINSTATE, Datadir, INDEX},
    fs::{Disk, During as _, FileError},
    index::{BlockIndex, write_block_index},
    lock::{DatadirLock, LockMode},
    replace::{self, CommitError, Recovery, Replacement},
};
use std::path::{Path, PathBuf};
use wire::Network;

/// Name of the folder for temporary files.
pub const WORK_DIR: &str = "peregrine-work";

/// All databases that a run may replace, in the order in which they are put in place: the index first, since
/// the best block of the chainstate must be in it.
fn replaceable() -> [&'static Path; 2] {
    [INDEX, CHAINSTATE].map(Path::new)
}

/// Where the results go.
pub struct Destination<'d> {
    disk: &'d dyn Disk,
    /// Whose databases they become.
    home: Datadir,
    replacement: Replacement<'d>,
    with_index: bool,
}

/// Makes the folders of an output, which must not have the databases yet.
///
/// # Errors
/// [`ErrorKind::Usage`] for an output that is in use, [`ErrorKind::Environment`] if it cannot be made.
pub fn prepare_output(
    disk: &dyn Disk,
    home: &Datadir,
    scan: bool,
    sink: &dyn EventSink,
) -> Result<(), Error> {
    // Whatever is wrong with this path, it is not damage to the datadir.
    let not_damage = |error: Error| {
        let detail = format!("{}; or name another --output", error.detail);
        Error { kind: ErrorKind::Environment, detail, ..error }
    };
    let unusable = |error: FileError| not_damage(error.into());
    recover_before_reading(disk, home, sink).map_err(not_damage)?;
    let databases = [Some(home.chainstate_dir()), scan.then(|| home.index_dir())];
    for dir in databases.into_iter().flatten() {
        if disk.exists(&dir).during("look for", &dir).map_err(unusable)? {
            let detail = "the output has one already; name an empty or new directory";
            return Err(Error::new(ErrorKind::Usage, detail).in_file(&dir, None));
        }
        let parent = dir.parent().unwrap_or(&dir);
        disk.create_dir_all(parent).during("create", parent).map_err(unusable)?;
    }
    Ok(())
}

/// Finds the network in a datadir.
///
/// # Errors
/// What is wrong with the folder. Where it is another user's, who keeps it closed, the error names the user.
pub fn open_datadir(disk: &dyn Disk, root: &Path, network: Network) -> Result<Datadir, Error> {
    Datadir::open(disk, root, network).map_err(|error| {
        let error = Error::from(error);
        let owner = disk.ownership(root).ok().map(|ownership| ownership.uid);
        let run_as = owner.filter(|&owner| ![0, owner].contains(&disk.user()));
        Error { run_as: run_as.filter(|_| error.kind == ErrorKind::Environment), ..error }
    })
}

/// Refuses a process that could not write for the owner of the datadir.
///
/// # Errors
/// [`ErrorKind::Environment`].
pub fn check_owner(disk: &dyn Disk, home: &Datadir, scan: bool) -> Result<(), Error> {
    let databases = if scan { replaceable().to_vec() } else { vec![Path::new(CHAINSTATE)] };
    Ok(replace::check_owner(disk, home.net_dir(), &databases)?)
}

/// Puts right what an earlier run was interrupted in. The datadir must be locked for changes.
///
/// # Errors
/// What the file system says.
pub fn recover(disk: &dyn Disk, home: &Datadir, sink: &dyn EventSink) -> Result<(), Error> {
    let text = match replace::recover(disk, home.net_dir(), &replaceable())? {
        None => return Ok(()),
        Some(Recovery::Finished) => {
            "an earlier run was interrupted while it put its databases in place; this is done now"
        }
        Some(Recovery::Undone) => {
            "an earlier run was interrupted while it put its databases in place, and the datadir was used \
             after that; the old databases are in place again"
        }
        Some(Recovery::Abandoned) => {
            "an earlier run was interrupted while it put its databases in place, and the datadir was used \
             after that; the databases in use stay, and the others of that run are removed"
        }
    };
    sink.event(Event::Warning(text.to_owned()));
    Ok(())
}

/// The same for a command that only reads the datadir. It locks the datadir for changes only if there is
/// something to do.
///
/// # Errors
/// As [`recover`], and [`ErrorKind::Environment`] if the datadir is in use.
pub fn recover_before_reading(disk: &dyn Disk, home: &Datadir, sink: &dyn EventSink) -> Result<(), Error> {
    if !replace::needs_recovery(disk, home.net_dir(), &replaceable())? {
        return Ok(());
    }
    let _locks = DatadirLock::take(disk, home, LockMode::Change)?;
    recover(disk, home, sink)
}

impl<'d> Destination<'d> {
    /// Creates the folders in which the new databases are built: with `scan` of the block index too. Whatever
    /// could not be put in place in the end is refused here.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`]: another owner, a mount point, something that is in the way, or what the
    /// file system says.
    pub fn prepare(disk: &'d dyn Disk, home: Datadir, options: &ReindexOptions) -> Result<Self, Error> {
        let databases = if options.scan { vec![CHAINSTATE, INDEX] } else { vec![CHAINSTATE] };
        // In the order of `replaceable`.
        let databases: Vec<_> = databases.into_iter().rev().map(Path::new).collect();
        let replacement = Replacement::begin(disk, home.net_dir(), &databases, random()?, options.keep_old)?;
        Ok(Self { disk, home, replacement, with_index: options.scan })
    }

    /// Removes what this run has built so far, so that it can build again.
    ///
    /// # Errors
    /// What the file system says.
    pub fn start_over(&self) -> Result<(), Error> {
        Ok(self.replacement.start_over()?)
    }

    /// Removes what this run has built: after a failure.
    pub fn discard(&self) {
        self.replacement.discard();
    }

    /// Where the new chainstate will be, as the user calls it.
    #[must_use]
    pub fn chainstate_dir(&self) -> PathBuf {
        self.home.chainstate_dir()
    }

    /// Where the new chainstate is built.
    #[must_use]
    pub fn building(&self) -> &Path {
        self.replacement.building(usize::from(self.with_index))
    }

    /// Where temporary files go.
    #[must_use]
    pub fn work_dir(&self, options: &ReindexOptions) -> PathBuf {
        match &options.work_dir {
            Some(dir) => dir.join(WORK_DIR),
            None => self.building().with_file_name(WORK_DIR),
        }
    }

    /// Puts everything in place. Returns where the old databases are, if they are kept. What is left of them
    /// and cannot be removed is told to `sink`: the work is done.
    ///
    /// # Errors
    /// What the file system says. The old databases are in place then.
    pub fn commit(&self, index: Option<&BlockIndex>, sink: &dyn EventSink) -> Result<Vec<PathBuf>, Error> {
        if let Some(index) = index.filter(|_| self.with_index) {
            write_block_index(self.disk, self.replacement.building(0), index)?;
        }
        match self.replacement.commit() {
            Ok(kept) => Ok(kept),
            Err(CommitError::Failed(error)) => Err(error.into()),
            Err(CommitError::InPlace(error)) => {
                let text = format!("the new databases are in place, but the next run must tidy up: {error}");
                sink.event(Event::Warning(text));
                Ok(Vec::new())
            }
        }
    }
}

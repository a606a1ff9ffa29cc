//! Stage commit, and the checks before anything is written: where the new databases are built, and how they
//! replace the old ones.
//!
//! `disk::replace` implements the mechanism: the new databases are built beside the old ones and replace them
//! all at once, whatever happens in between.

use crate::threads::lock;
use api::{
    error::Error,
    event::{Event, EventSink},
    machine::random,
    note::Warning,
    options::{ChainOptions, ReindexOptions},
    remedy::Remedy,
};
use disk::{
    datadir::{CHAINSTATE, Datadir, FileKind, INDEX, SNAPSHOT_CHAINSTATE, file_no},
    made_undo::has_made_undo,
    node_indexes::IndexKind,
    replace::{CommitError, Replacement},
};
use std::{
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock},
};
use vfs::{Disk, During as _};

pub const WORK_DIR: &str = "peregrine-work";

/// All databases that may be put in place, in that order: the block index first, since it must contain the
/// best blocks of the chainstates, above which no other index may be.
pub fn replaceable() -> Vec<PathBuf> {
    let databases = [INDEX, CHAINSTATE, SNAPSHOT_CHAINSTATE].map(PathBuf::from).into_iter();
    databases.chain(IndexKind::ALL.map(IndexKind::replaced_dir)).collect()
}

/// Where the new databases go.
pub struct Destination<'d> {
    /// The datadir that will contain the databases.
    datadir: Datadir,
    disk: &'d dyn Disk,
    /// Whether it is another datadir than that of the blocks.
    is_elsewhere: bool,
    replacement: Mutex<Replacement<'d>>,
    /// Where the last of the new databases is built: the chainstate, if there is a new one.
    building: PathBuf,
    /// Where the new block index is built, if one is.
    index: OnceLock<PathBuf>,
}

impl<'d> Destination<'d> {
    /// Creates the directories in which these databases are built, which are in the order of `replaceable`.
    fn begin(
        disk: &'d dyn Disk,
        datadir: Datadir,
        databases: &[&str],
        keep_old: bool,
        is_elsewhere: bool,
    ) -> Result<Self, Error> {
        let paths: Vec<_> = databases.iter().map(Path::new).collect();
        let replacement = Replacement::begin(disk, datadir.net_dir(), &paths, random()?, keep_old)?;
        let index = (databases.first() == Some(&INDEX)).then(|| replacement.building(0).to_owned());
        let index = index.map(OnceLock::from).unwrap_or_default();
        let building = replacement.building(databases.len() - 1).to_owned();
        Ok(Self { datadir, disk, is_elsewhere, replacement: Mutex::new(replacement), building, index })
    }

    /// Creates the directories in which the new databases are built; with `--scan` also that of the block
    /// index. Returns an error for anything that would make their commit fail at the end.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Environment`]: another owner, a mount point, or a file in the way; any I/O
    /// error.
    pub fn prepare(disk: &'d dyn Disk, datadir: Datadir, options: &ReindexOptions) -> Result<Self, Error> {
        let databases: &[_] = if options.chain.scan { &[INDEX, CHAINSTATE] } else { &[CHAINSTATE] };
        Self::begin(disk, datadir, databases, options.chain.keep_old, options.output.is_some())
    }

    /// Creates the directory of a new block index that replaces only the old one.
    pub fn of_index(disk: &'d dyn Disk, datadir: Datadir, keep_old: bool) -> Result<Self, Error> {
        Self::begin(disk, datadir, &[INDEX], keep_old, false)
    }

    /// Creates the directories of a snapshot's chainstate, which must not exist yet, and of the block index
    /// that belongs to it.
    pub fn of_snapshot(disk: &'d dyn Disk, datadir: Datadir) -> Result<Self, Error> {
        Self::begin(disk, datadir, &[INDEX, SNAPSHOT_CHAINSTATE], false, false)
    }

    pub const fn datadir(&self) -> &Datadir {
        &self.datadir
    }

    /// Creates the directory in which a new block index is built, if there is none. An output elsewhere gets
    /// `rev` files with it.
    ///
    /// # Errors
    /// The same errors as [`Destination::prepare`]; [`api::error::ErrorKind::Usage`] if an output elsewhere
    /// has a block index, or `rev` files that are not those of an interrupted run.
    pub fn prepare_index(&self) -> Result<(), Error> {
        if self.index.get().is_none() {
            if self.is_elsewhere {
                self.check_no_index()?;
            }
            let mut replacement = lock(&self.replacement);
            replacement.add_first(Path::new(INDEX))?;
            let _ = self.index.set(replacement.building(0).to_owned());
        }
        Ok(())
    }

    /// Checks that the output has neither a block index nor `rev` files.
    fn check_no_index(&self) -> Result<(), Error> {
        let (disk, datadir) = (self.disk, &self.datadir);
        let exists = |path: &Path| disk.exists(path).during("look for", path);
        let (index, blocks) = (datadir.index_dir(), datadir.blocks_dir());
        let mut found = exists(&index)?.then_some(index);
        if found.is_none() && exists(&blocks)? && !has_made_undo(disk, datadir)? {
            let names = disk.list(&blocks).during("list", &blocks)?;
            let rev = names.into_iter().find(|name| file_no(FileKind::Rev, name).is_some());
            found = rev.map(|name| blocks.join(name));
        }
        let Some(found) = found else { return Ok(()) };
        let detail =
            "the output already exists; undo data is missing, so a block index and undo files are made";
        Err(Error::usage(detail).in_file(found, None).with_remedies([Remedy::EmptyOutput]))
    }

    /// Removes what this job has built so far, so that it can build again.
    pub fn start_over(&self) -> Result<(), Error> {
        Ok(lock(&self.replacement).start_over()?)
    }

    /// Removes what this job has built, after a failure.
    pub fn discard(&self) {
        lock(&self.replacement).discard();
    }

    /// The final path of the new chainstate.
    pub fn chainstate_dir(&self) -> PathBuf {
        self.datadir.chainstate_dir()
    }

    /// The path where the new chainstate is built.
    pub fn building(&self) -> &Path {
        &self.building
    }

    pub fn work_dir(&self, options: &ChainOptions) -> PathBuf {
        match &options.work_dir {
            Some(dir) => dir.join(WORK_DIR),
            None => self.building().with_file_name(WORK_DIR),
        }
    }

    /// The path where the new block index is built; `None` if none is.
    pub fn building_index(&self) -> Option<&Path> {
        self.index.get().map(PathBuf::as_path)
    }

    /// Puts the new databases in place, and calls `last` then. Returns the paths of the old databases that
    /// are kept. If an old database cannot be removed, this is only a warning, because the rebuild is
    /// complete. After a crash in `last`, the next run removes the job's checkpoint and the undo data that
    /// waits ([`crate::session::recover`]).
    ///
    /// # Errors
    /// Any I/O error; the old databases are then in place.
    pub fn commit(&self, sink: &dyn EventSink, last: impl FnOnce()) -> Result<Vec<PathBuf>, Error> {
        match lock(&self.replacement).commit(last) {
            Ok(kept) => Ok(kept),
            Err(CommitError::Failed(error)) => Err(error.into()),
            Err(CommitError::InPlace(error)) => {
                sink.event(Event::Warning(Warning::CleanUpPending { error: error.into() }));
                Ok(Vec::new())
            }
        }
    }
}

/// Calls `replace`, which builds a new block index at [`Destination::building`] and commits it. If it fails,
/// what it has built is removed, and the old index is in place.
pub fn replace_index<T>(
    disk: &dyn Disk,
    datadir: &Datadir,
    keep_old: bool,
    replace: impl FnOnce(&Destination<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let target = Destination::of_index(disk, datadir.clone(), keep_old)?;
    replace(&target).inspect_err(|_| target.discard())
}

/// Size of the files in a directory; `None` if it is missing or cannot be read.
pub fn directory_bytes(disk: &dyn Disk, dir: &Path) -> Option<u64> {
    let names = disk.list(dir).ok()?;
    let len = |name| Some(disk.metadata(&dir.join(name)).ok()??.len);
    Some(names.into_iter().filter_map(len).sum())
}

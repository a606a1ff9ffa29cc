//! A session: the datadirs of one command, opened and locked until it ends.
//!
//! The order of the steps, and why:
//!
//! 1. The name of the SHA-256 kernel is checked, because it needs nothing from the disk.
//! 2. The datadir is opened, which only looks at it.
//! 3. If it is only read (all commands but a rebuild in place): a commit of an earlier run that was
//!    interrupted is finished or undone, since until then a database may lie under another name. Then the
//!    datadir is locked for reading. It must be in this order: locks belong to the process and end when it
//!    closes any descriptor of their files ([`disk::lock`]), so giving back the locks under which the commit
//!    is finished would end locks for reading that were taken before.
//! 4. Only then is anything created for an output elsewhere: if a bitcoind uses the blocks, nothing is left
//!    behind. The output's folders are created before it is locked, because its lock files are in them. In
//!    place, the owner is checked instead, because a lock file that is missing would be created for the wrong
//!    user.
//! 5. The datadir of the result is locked for changes, also if it is an output: two rebuilds that read the
//!    same datadir must not write to the same place.
//! 6. An interrupted commit there is finished or undone under this lock, so that no other process can be
//!    committing.
//! 7. The key of the block files is read ([`Session::files`]), from a datadir that nobody changes any more.
//!
//! No step waits for a lock. A datadir in use is an error, so the order cannot lead to a deadlock.

use crate::{
    api::{
        error::Error,
        event::EventSink,
        machine,
        options::{ChainOptions, ReindexOptions},
    },
    blocks::files::{self, Files},
    stages::commit,
};
use disk::{
    datadir::{Datadir, Location},
    lock::{DatadirLock, LockMode},
};
use rules::ChainParams;
use vfs::Disk;

/// A datadir that is open and locked.
pub struct Session<'d> {
    disk: &'d dyn Disk,
    /// The parameters of the chain.
    params: &'static ChainParams,
    /// The datadir with the blocks.
    datadir: Datadir,
    /// Locks the datadir of the result for changes.
    change_lock: Option<DatadirLock>,
    /// Locks the datadir with the blocks for reading, if it is not that of the result.
    _read_lock: Option<DatadirLock>,
}

impl<'d> Session<'d> {
    /// Opens a datadir that the command only reads.
    ///
    /// # Errors
    /// What is wrong with the directory or the SHA-256 kernel;
    /// [`ErrorKind::Environment`](crate::ErrorKind::Environment) if the datadir is in use.
    pub fn open_for_reading(
        disk: &'d dyn Disk,
        options: &ChainOptions,
        sink: &dyn EventSink,
    ) -> Result<Self, Error> {
        machine::sha256_kernel()?;
        let datadir = commit::open_datadir(disk, options)?;
        let lock = lock_for_reading(disk, &datadir, sink)?;
        Ok(Self { disk, params: options.params, datadir, change_lock: None, _read_lock: Some(lock) })
    }

    /// Opens the datadir of a rebuild, and that of its result, which is another one with
    /// [`ReindexOptions::output`]. Returns the latter too.
    ///
    /// # Errors
    /// The same errors as [`Session::open_for_reading`], and those of [`commit::prepare_output`] and
    /// [`commit::check_owner`].
    pub fn open_for_change(
        disk: &'d dyn Disk,
        options: &ReindexOptions,
        sink: &dyn EventSink,
    ) -> Result<(Self, Datadir), Error> {
        machine::sha256_kernel()?;
        let datadir = commit::open_datadir(disk, &options.chain)?;
        let (read_lock, result) = match &options.output {
            Some(output) => {
                let lock = lock_for_reading(disk, &datadir, sink)?;
                let location = options.chain.location();
                let result = Datadir::of(&Location { root: output.clone(), blocksdir: None, ..location });
                commit::prepare_output(disk, &result, options.scan, sink)?;
                (Some(lock), result)
            }
            None => {
                commit::check_owner(disk, &datadir, options.scan || options.makes_undo())?;
                (None, datadir.clone())
            }
        };
        let change_lock = DatadirLock::take(disk, &result, LockMode::Change)?;
        commit::recover(disk, &result, sink)?;
        let params = options.chain.params;
        Ok((Self { disk, params, datadir, change_lock: Some(change_lock), _read_lock: read_lock }, result))
    }

    /// Hands over the lock for changes, so that the caller can release it before the session ends.
    pub fn take_change_lock(&mut self) -> Option<DatadirLock> {
        self.change_lock.take()
    }

    /// The datadir with the blocks.
    #[must_use]
    pub fn datadir(&self) -> &Datadir {
        &self.datadir
    }

    /// Returns access to the block files, after reading the key that obfuscates them.
    ///
    /// # Errors
    /// The same errors as [`files::obfuscation`].
    pub fn files(&self) -> Result<Files<'_>, Error> {
        let Self { disk, datadir, params, .. } = self;
        let obfuscation = files::obfuscation(*disk, datadir, params)?;
        Ok(Files { disk: *disk, datadir, obfuscation, params })
    }
}

/// Locks a datadir for reading, after finishing or undoing a commit that was interrupted.
///
/// # Errors
/// [`ErrorKind::Environment`](crate::ErrorKind::Environment) if the datadir is in use; any I/O error.
pub fn lock_for_reading(
    disk: &dyn Disk,
    datadir: &Datadir,
    sink: &dyn EventSink,
) -> Result<DatadirLock, Error> {
    commit::recover_before_reading(disk, datadir, sink)?;
    Ok(DatadirLock::take(disk, datadir, LockMode::Read)?)
}

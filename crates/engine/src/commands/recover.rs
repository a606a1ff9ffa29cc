//! Finishes or undoes a replacement of databases that was interrupted.

pub use disk::replace::Recovery;

use api::error::Error;
use chain::session::{self, check_owner, has_unfinished, with_owner, work_dir_of};
use disk::{
    datadir::{Datadir, Location},
    lock::{DatadirLock, LockMode},
};
use pipeline::stages::work_dir::WorkDir;
use std::path::PathBuf;
use vfs::{Disk, During as _};
use wire::Network;

api::reported! {
/// The result of [`recover`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveryReport {
    /// The network.
    pub network as "chain": Network,
    /// The directory of the network.
    pub dir as "directory" with "api::json::PathText": PathBuf,
    /// What became of a replacement that was interrupted; `None` if there was none.
    pub recovery as "outcome" with "api::json::OptionalOutcome": Option<Recovery>,
    /// Whether there was no replacement, but databases that an interrupted run was building, or temporary
    /// files of a killed run. They are removed.
    pub has_removed as "unfinished_databases_removed": bool,
}
}

/// Finishes or undoes a replacement of databases that was interrupted, as every command does that changes the
/// datadir. Commands that only read it refuse it until then. If nothing was interrupted, nothing is locked or
/// changed.
///
/// # Errors
/// What is wrong with the directory; [`api::error::ErrorKind::Damaged`] if the journal is damaged;
/// [`api::error::ErrorKind::Environment`] if another process uses the datadir, or if the databases belong to
/// another user.
pub fn recover(disk: &dyn Disk, location: &Location) -> Result<RecoveryReport, Error> {
    recover_at(disk, location).map_err(|error| with_owner(disk, &location.root, error).in_place_only())
}

fn recover_at(disk: &dyn Disk, location: &Location) -> Result<RecoveryReport, Error> {
    let datadir = Datadir::of(disk, location)?;
    let (network, dir) = (location.network, datadir.net_dir().to_owned());
    let mut report = RecoveryReport { network, dir, recovery: None, has_removed: false };
    if has_unfinished(disk, &datadir)? {
        check_owner(disk, &datadir, true)?;
        let _lock = DatadirLock::take(disk, &datadir, LockMode::Change)?;
        report.recovery = session::recover(disk, &datadir, &|_| {})?;
        report.has_removed = report.recovery.is_none();
        let work = WorkDir::new(disk, work_dir_of(disk, &datadir, None));
        if !work.may_have_checkpoint() {
            // Without a checkpoint, no run can use what is there. Nothing depends on its removal.
            let _ = work.remove();
        }
        return Ok(report);
    }
    report.has_removed = WorkDir::remove_left(disk, datadir.net_dir());
    // The output of a rebuild has no blocks. If there is no chainstate either, report what is wrong.
    let chainstate = datadir.chainstate_dir();
    if !disk.exists(&chainstate).during("look for", &chainstate)? {
        Datadir::open(disk, location)?;
    }
    Ok(report)
}

//! Commands on a node that was started from a snapshot, and has two chainstates.

use api::{
    error::{Error, ErrorKind},
    subject::Subject,
};
use chain::{
    blocks::files::Files,
    plan::{
        planner::tree_of_index,
        second_chainstate::{Obstacle, SecondChainstate},
    },
};
use disk::{
    chainstate::read_best_block,
    datadir::{Datadir, SNAPSHOT_BASE},
};
use vfs::{Disk, During as _};

/// Whether bitcoind will load a second chainstate when it starts.
pub fn has_second(disk: &dyn Disk, datadir: &Datadir) -> Result<bool, Error> {
    let base = datadir.snapshot_dir().join(SNAPSHOT_BASE);
    Ok(disk.exists(&base).during("look for", &base)?)
}

/// Explains an error about missing blocks: a node that was started from a snapshot lacks them until it has
/// validated the chain below the snapshot.
pub fn explain(files: &Files<'_>, mut error: Error) -> Error {
    let dir = files.datadir.snapshot_dir();
    if error.kind != ErrorKind::Damaged || !has_second(files.disk, files.datadir).unwrap_or_default() {
        return error;
    }
    error.detail = format!(
        "{} (this node was started from a UTXO snapshot, {}: if bitcoind has not yet validated the blocks \
         below it, nothing is wrong)",
        error.detail,
        dir.display()
    );
    // A block that has a height is in the block index: if that places it in no file, it is not damaged.
    let is_to_come = error.is_about(Subject::MissingBlocks) && error.height.is_some();
    let others = std::mem::take(&mut error.remedies).into_iter().filter(|_| !is_to_come);
    error.about(Subject::UnvalidatedSnapshot).with_remedies(others)
}

/// Returns why bitcoind does not start with both chainstates as they are.
pub fn current_obstacle(files: &Files<'_>, second: &SecondChainstate) -> Result<Option<Obstacle>, Error> {
    let (mut tree, _) = tree_of_index(files)?;
    let _ = tree.best_headers();
    let best = read_best_block(files.disk, &files.datadir.chainstate_dir())?;
    let branch = best.map_or_else(Vec::new, |best| tree.branch_to(&best));
    let existing = files.datadir.blk_files(files.disk)?;
    second.obstacle(files, &tree, &branch, |number| {
        tree.data_pos(number).is_some_and(|(file, _)| !existing.contains(&file))
    })
}

/// Returns an error if there are two chainstates and bitcoind does not start with them, so that a command
/// that changes neither could not be of use.
///
/// # Errors
/// [`ErrorKind::Usage`] if it does not; a damaged block index; any I/O error.
pub fn check_start(files: &Files<'_>) -> Result<(), Error> {
    let Some(second) = SecondChainstate::find(files)? else { return Ok(()) };
    let obstacle = current_obstacle(files, &second)?;
    obstacle.map_or(Ok(()), |obstacle| {
        let error = second.error(&obstacle).without_remedies();
        Err(error.about(Subject::SecondChainstate))
    })
}

/// Returns an error if there are two chainstates, because of what a command would do to one of them.
///
/// # Errors
/// [`ErrorKind::Usage`] if there are; any I/O error.
pub fn refuse(files: &Files<'_>, why: &str) -> Result<(), Error> {
    let Some(second) = SecondChainstate::find(files)? else { return Ok(()) };
    let detail = format!("this node was started from a UTXO snapshot and has two chainstates{why}");
    let error = Error::usage(detail).in_file(&second.dir, None);
    let error = match current_obstacle(files, &second) {
        Ok(None) => error.about(Subject::UnvalidatedSnapshot),
        _ => error,
    };
    Err(error.about(Subject::SecondChainstate))
}

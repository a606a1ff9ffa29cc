//! What keeps bitcoind and every command from reading a datadir, other than damage: a file where a directory
//! must be, a directory where a file must be, a link to what does not exist.

use super::advice::Advice;
use api::error::Error;
use chain::session::{foreign_building, work_dir_of};
use disk::{
    datadir::{Datadir, FileKind, SNAPSHOT_BASE},
    made_undo::foreign_made_undo,
    node_indexes::IndexKind,
};
use std::path::{Path, PathBuf};
use vfs::{Disk, During as _, exists, with_suffix};

/// Finds the first obstacle in a datadir.
///
/// # Errors
/// Any I/O error.
pub fn find_obstacle(disk: &dyn Disk, datadir: &Datadir) -> Result<Option<Advice>, Error> {
    let databases = [datadir.blocks_dir(), datadir.index_dir(), datadir.chainstate_dir()];
    let of_indexes = IndexKind::ALL.map(|kind| datadir.net_dir().join(kind.replaced_dir()));
    for dir in databases {
        if let Some(obstacle) = obstacle_at(disk, &dir, true)? {
            return Ok(Some(obstacle));
        }
    }
    // What cannot be looked at is reported when the index is read.
    if let Some(obstacle) = of_indexes.iter().find_map(|dir| obstacle_at(disk, dir, true).ok().flatten()) {
        return Ok(Some(obstacle));
    }
    // bitcoind was stopped between two renames when it had validated a snapshot, and cannot repeat the first
    // (Core `ValidatedSnapshotCleanup`).
    let left = with_suffix(&datadir.chainstate_dir(), "_todelete");
    let is_left = !disk.list(&left).unwrap_or_default().is_empty();
    if is_left && exists(disk, &datadir.snapshot_dir().join(SNAPSHOT_BASE))? {
        return Ok(Some(Advice::MoveAway { path: left }));
    }
    for kind in [FileKind::Blk, FileKind::Rev] {
        for file in datadir.block_files(disk, kind)? {
            if let Some(obstacle) = obstacle_at(disk, &datadir.block_file_path(kind, file), false)? {
                return Ok(Some(obstacle));
            }
        }
    }
    obstacle_at(disk, &datadir.blocks_dir().join("xor.dat"), false)
}

/// Returns what is in the place of files that a rebuild, a repair or the making of undo data writes, if it is
/// not Peregrine's.
///
/// # Errors
/// Any I/O error.
pub fn in_place_of_new_files(disk: &dyn Disk, datadir: &Datadir) -> Result<Option<PathBuf>, Error> {
    if let Some(path) = foreign_made_undo(disk, datadir)? {
        return Ok(Some(path));
    }
    if let Some(path) = foreign_building(disk, datadir)? {
        return Ok(Some(path));
    }
    let work = work_dir_of(disk, datadir, None);
    let found = disk.metadata(&work).during("look at", &work)?;
    Ok(found.is_some_and(|found| !found.is_dir).then_some(work))
}

/// Finds a link to nothing, or a file, in the place of the datadir, of its network's directory or of
/// `blocks`.
pub fn obstacle_above(disk: &dyn Disk, root: &Path, datadir: &Datadir) -> Option<Advice> {
    let dirs = [root.to_owned(), datadir.net_dir().to_owned(), datadir.blocks_dir()];
    let found = dirs.iter().find_map(|dir| obstacle_at(disk, dir, true).ok().flatten());
    // A file is not meant to be a datadir.
    found.filter(|obstacle| *obstacle != Advice::MoveAway { path: root.to_owned() })
}

/// Reports what is wrong with a path where a directory, or a file, must be, if there is anything.
///
/// # Errors
/// Any I/O error.
pub fn obstacle_at(disk: &dyn Disk, path: &Path, must_be_dir: bool) -> Result<Option<Advice>, Error> {
    Ok(match disk.metadata(path).during("look at", path)? {
        Some(found) if found.is_dir != must_be_dir => Some(Advice::MoveAway { path: path.to_owned() }),
        None if disk.is_link(path).during("look at", path)? => {
            Some(Advice::RestoreLink { path: path.to_owned() })
        }
        _ => None,
    })
}

//! What depends on the chainstate of a datadir: the second chainstate of a node that was started from a
//! snapshot. A rebuild leaves it unchanged; how bitcoind treats it when it starts was read in its source.

use crate::{
    api::{
        error::{Error, ErrorKind},
        event::{Event, EventSink},
        note::Warning,
        remedy::Remedy,
    },
    blocks::files::Files,
    plan::planner::Plan,
};
use disk::datadir::{Datadir, SNAPSHOT_BASE};
use std::path::PathBuf;
use vfs::{Disk, During as _};
use wire::{BlockHash, Height};

/// Reports what will happen to the second chainstate of a datadir whose chainstate is rebuilt in place, and
/// with `scan` its block index too.
///
/// # Errors
/// [`ErrorKind::Usage`] if bitcoind could no longer start; any I/O error.
pub fn check(
    disk: &dyn Disk,
    datadir: &Datadir,
    plan: &Plan,
    scan: bool,
    sink: &dyn EventSink,
) -> Result<(), Error> {
    if let Some(warning) = snapshot(disk, datadir, plan, scan)? {
        sink.event(Event::Warning(warning));
    }
    Ok(())
}

/// Explains an error about missing blocks: a node that was started from a snapshot lacks them until it has
/// validated the chain below the snapshot.
pub fn explain(files: &Files<'_>, mut error: Error) -> Error {
    let dir = files.datadir.snapshot_dir();
    if error.kind != ErrorKind::Damaged || !has_snapshot(files.disk, files.datadir).unwrap_or_default() {
        return error;
    }
    error.detail = format!(
        "{} (this node was started from a UTXO snapshot, {}: if bitcoind has not yet validated the blocks \
         below it, nothing is wrong)",
        error.detail,
        dir.display()
    );
    error.remedies.insert(0, Remedy::LetBitcoindFinish);
    error
}

/// Whether the datadir has a second chainstate, from a snapshot.
///
/// # Errors
/// Any I/O error.
pub fn has_snapshot(disk: &dyn Disk, datadir: &Datadir) -> Result<bool, Error> {
    let dir = datadir.snapshot_dir();
    Ok(disk.metadata(&dir).during("look at", &dir)?.is_some_and(|found| found.is_dir))
}

/// Core's `Chainstate::ReachedTarget` asserts that the tip of `chainstate` is the snapshot's block or a block
/// before it, and `TargetBlock` that this block is in the block index.
fn snapshot(disk: &dyn Disk, datadir: &Datadir, plan: &Plan, scan: bool) -> Result<Option<Warning>, Error> {
    let dir = datadir.snapshot_dir();
    let base = dir.join(SNAPSHOT_BASE);
    if !has_snapshot(disk, datadir)? {
        return Ok(None);
    }
    let mut hash = BlockHash::default();
    // Without the file, bitcoind ignores the directory.
    let Some(found) = disk.metadata(&base).during("look at", &base)? else { return Ok(None) };
    if found.len < hash.0.len() as u64 {
        return Ok(Some(Warning::SnapshotWithoutBase { dir }));
    }
    let file = disk.open(&base).during("open for reading", &base)?;
    file.read_exact_at(&mut hash.0, 0).during("read", &base)?;
    let chain = &plan.chain;
    let tip = chain.tip_height();
    let height = (0..=tip.0).map(Height).find(|&height| chain.block(height).hash == hash);
    match height {
        Some(height) if height < tip => Err(refused(
            dir,
            &format!("the chainstate would end at height {tip}, above its block {hash} (height {height})"),
            Some(Remedy::StopAtHeight(height)),
        )),
        None if scan => {
            Err(refused(dir, &format!("the new block index would not contain its block {hash}"), None))
        }
        _ => Ok(Some(Warning::SnapshotUnchanged { dir, base: hash })),
    }
}

fn refused(dir: PathBuf, why: &str, other: Option<Remedy>) -> Error {
    let detail = format!("this is the chainstate of a snapshot, and bitcoind could not start with it: {why}");
    Error::new(ErrorKind::Usage, detail)
        .in_file(dir, None)
        .with_remedies([Remedy::MoveSnapshotAway])
        .with_remedies(other)
        .with_remedies([Remedy::OtherOutput])
}

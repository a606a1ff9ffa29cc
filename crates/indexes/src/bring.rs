//! Brings indexes to the chainstate's best block: those that can be continued are, and the others are made
//! anew.

use crate::{
    job::{self, Access, IndexJob, Start},
    make::make_indexes,
    options::{IndexOptions, MadeIndexesReport},
    stored::{Position, StoredIndex},
    update::update_indexes,
};
use api::{
    error::{Error, ErrorKind},
    event::{EventSink, Watch},
};
use disk::node_indexes::IndexKind;
use std::sync::atomic::AtomicBool;
use vfs::Disk;

/// Continues indexes to the chainstate's best block. Makes those anew that cannot be continued: there is
/// none, it is damaged, or its best block is not on the chain.
///
/// # Errors
/// The same errors as [`make_indexes`].
pub fn bring_indexes(
    disk: &dyn Disk,
    options: &IndexOptions,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<MadeIndexesReport, Error> {
    let (continued, made) = job::run(disk, options, Access::Read, Watch { sink, interrupt }, divide)?.result;
    let with = |kinds: Vec<IndexKind>| IndexOptions { kinds, ..options.clone() };
    if made.is_empty() {
        return update_indexes(disk, &with(continued), sink, interrupt);
    }
    let mut report = make_indexes(disk, &with(made), sink, interrupt)?;
    if !continued.is_empty() {
        let more = update_indexes(disk, &with(continued), sink, interrupt)?;
        report.indexes.extend(more.indexes);
        report.notes.extend(more.notes);
        report.elapsed += more.elapsed;
    }
    Ok(report)
}

/// Divides indexes into those that can be continued and the others.
fn divide(job: &IndexJob<'_>, kinds: &[IndexKind]) -> Result<(Vec<IndexKind>, Vec<IndexKind>), Error> {
    let (mut continued, mut made) = (Vec::new(), Vec::new());
    for &kind in kinds {
        match can_be_continued(job, kind) {
            Ok(true) => continued.push(kind),
            Ok(false) => made.push(kind),
            Err(error) if error.kind == ErrorKind::Damaged => made.push(kind),
            Err(error) => return Err(error),
        }
    }
    Ok((continued, made))
}

/// Whether there is an index that ends on the chain, and has what it is continued from.
fn can_be_continued(job: &IndexJob<'_>, kind: IndexKind) -> Result<bool, Error> {
    let IndexJob { files, plan, options, .. } = *job;
    let Some(index) = StoredIndex::open(files.disk, files.datadir.net_dir(), kind)? else { return Ok(false) };
    let Position::At(best) = index.position(&plan.chain) else { return Ok(false) };
    Start::above(&index, options, best, plan.chain.tip_height())?;
    Ok(true)
}

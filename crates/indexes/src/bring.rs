//! Brings indexes to the chainstate's best block: continues those that can be continued, and makes the others
//! anew.

use crate::{
    base::{Base, base_of},
    job::{self, IndexJob},
    last_rows::has_last_rows,
    make::make_with,
    observer::IndexObserver,
    options::{IndexOptions, MadeIndexesReport},
    stored::{Position, StoredIndex},
    update::update_indexes,
};
use api::{
    error::{Error, ErrorKind},
    event::Watch,
};
use disk::{lock::LockMode, node_indexes::IndexKind};
use vfs::Disk;

/// Continues indexes to the chainstate's best block. An index that is missing, damaged, or has a best block
/// that is not on the chain is made anew. The blocks that a rebuild has just given to `observer` are not read
/// again.
///
/// # Errors
/// The same errors as [`make_indexes`](crate::make_indexes).
pub fn bring_indexes(
    disk: &dyn Disk,
    options: &IndexOptions,
    observer: Option<&IndexObserver>,
    watch: Watch<'_>,
) -> Result<MadeIndexesReport, Error> {
    let observed = observer.and_then(IndexObserver::take_observed);
    let is_observed = |kind: &IndexKind| {
        observed.as_ref().is_some_and(|observed| base_of(&observed.bases, *kind).is_some())
    };
    let (in_pass, others): (Vec<_>, Vec<_>) = options.kinds.iter().copied().partition(is_observed);
    // Divides indexes into those that can be continued and those that have to be made anew.
    let divide = |job: &IndexJob<'_>, _: &[IndexKind]| {
        let (mut continued, mut made) = (Vec::new(), Vec::new());
        for &kind in &others {
            match can_be_continued(job, kind) {
                Ok(true) => continued.push(kind),
                Ok(false) => made.push(kind),
                Err(error) if error.kind == ErrorKind::Damaged => made.push(kind),
                Err(error) => return Err(error),
            }
        }
        Ok((continued, made))
    };
    let (mut continued, made) = job::run(disk, options, LockMode::Read, watch, divide)?.result;
    let with = |kinds: Vec<IndexKind>| IndexOptions { kinds, ..options.clone() };
    let mut reports = Vec::new();
    if !in_pass.is_empty() {
        let end = observed.as_ref().map(|observed| observed.tip);
        let made = make_with(disk, &with(in_pass.clone()), observed, watch)?;
        // Blocks may have been connected after the rebuild.
        continued.extend(in_pass.into_iter().filter(|_| end != Some(made.hash)));
        reports.push(made);
    }
    if !made.is_empty() {
        reports.push(make_with(disk, &with(made), None, watch)?);
    }
    if !continued.is_empty() {
        reports.push(update_indexes(disk, &with(continued), watch)?);
    }
    let joined = reports.into_iter().reduce(|mut all, more| {
        all.result.indexes.extend(more.result.indexes);
        all.notes.extend(more.notes);
        all.result.blocks_read += more.result.blocks_read;
        all.elapsed += more.elapsed;
        all
    });
    joined.ok_or_else(|| Error::usage("no index is named"))
}

/// Whether an index ends on the chain and has what it is continued from. On a pruned node, an index that ends
/// elsewhere can only be taken back.
fn can_be_continued(job: &IndexJob<'_>, kind: IndexKind) -> Result<bool, Error> {
    let IndexJob { files, plan, .. } = *job;
    let Some(index) = StoredIndex::open(files.disk, files.datadir.net_dir(), kind)? else { return Ok(false) };
    let best = match index.position(files, &plan.chain)? {
        Position::At(best) => best,
        Position::Beyond(_) => return Ok(plan.is_pruned),
        Position::Empty | Position::Elsewhere(_) => return Ok(false),
    };
    let base = Base::above(&index, files, &plan.chain, best)?;
    has_last_rows(job, &index, &base, best)
}

//! What all commands for indexes begin with: the lock, the chain up to the chainstate's best block, the
//! choice of indexes, and checks that they can be made.

use crate::{
    base::Base,
    options::{IndexOptions, IndexesReport, TxForm},
    rows::{RowSink, TxRows},
};
use api::{
    disk_need,
    error::Error,
    event::{Event, EventSink as _, Warnings, Watch},
    options::ReindexOptions,
    remedy::Remedy,
    size::HumanSize,
    stage::Stage,
    subject::Subject,
};
use chain::{blocks::files::Files, plan::planner::Plan, session::Session};
use disk::{chainstate::read_best_block, lock::LockMode, node_indexes::IndexKind};
use pipeline::{
    job::{self, ChainRequest, memory::MemoryBudget},
    stages::{parts::block_sizes, work_dir::WorkDir},
};
use std::{
    path::{Path, PathBuf},
    time::Instant,
};
use vfs::Disk;
use wire::Height;

/// What a command works with.
pub struct IndexJob<'a> {
    pub files: &'a Files<'a>,
    /// The chain up to the chainstate's best block.
    pub plan: &'a Plan,
    /// Temporary files.
    pub work: &'a WorkDir<'a>,
    /// How the memory is divided.
    pub budget: MemoryBudget,
    pub options: &'a IndexOptions,
    /// Where events go, and whether to stop.
    pub watch: Watch<'a>,
}

/// Opens and locks the datadir, chooses the chain and the indexes, and calls `work`. Then removes the
/// temporary files.
///
/// # Errors
/// The errors of a session, of [`kinds`], of [`plan`] and of `work`.
pub fn run<T>(
    disk: &dyn Disk,
    options: &IndexOptions,
    mode: LockMode,
    watch: Watch<'_>,
    work: impl FnOnce(&IndexJob<'_>, &[IndexKind]) -> Result<T, Error>,
) -> Result<IndexesReport<T>, Error> {
    let (started, sink) = (Instant::now(), &Warnings::new(watch.sink));
    let watch = Watch { sink, ..watch };
    let session = match mode {
        LockMode::Read => Session::open_for_reading(disk, &options.chain)?,
        LockMode::Change => {
            let in_place = ReindexOptions::of(options.chain.clone());
            Session::open_for_change(disk, &in_place, sink)?.0
        }
    };
    let files = &session.files()?;
    let kinds = kinds(files, options)?;
    let plan = &plan(files, options, watch)?;
    // The work directory of a rebuild may have the checkpoint of an interrupted one, so it is not used.
    let work_dir = &match (mode, &options.chain.work_dir) {
        (LockMode::Change, None) => WorkDir::exclusive(disk, files.datadir.net_dir()),
        _ => WorkDir::for_file(disk, &options.chain, None),
    };
    let budget = MemoryBudget::after_plan(&options.chain, plan);
    let done = work(&IndexJob { files, plan, work: work_dir, budget, options, watch }, &kinds);
    let removed = work_dir.remove();
    // A pruned node lacks blocks to make an index of.
    let done = if plan.is_pruned { done.map_err(Error::of_pruned) } else { done };
    let result = done.map_err(|error| work_dir.explain(error))?;
    sink.warn_if_left(removed);
    Ok(IndexesReport {
        network: options.chain.params.network,
        result,
        height: plan.chain.tip_height(),
        hash: plan.chain.tip().hash,
        threads: budget.threads,
        elapsed: started.elapsed(),
        notes: sink.take(),
    })
}

/// Chooses the chain up to the chainstate's best block: an index must not be above it.
///
/// # Errors
/// [`api::error::ErrorKind::Damaged`] if there is no chainstate, or the block index lacks its best block;
/// those of a plan.
pub fn plan(files: &Files<'_>, options: &IndexOptions, watch: Watch<'_>) -> Result<Plan, Error> {
    watch.sink.event(Event::Started(Stage::Plan));
    let dir = files.datadir.chainstate_dir();
    let best = read_best_block(files.disk, &dir)?.ok_or_else(|| {
        Error::damaged("there is no chainstate, and an index must not be above it")
            .in_file(&dir, None)
            .about(Subject::Chainstate)
    })?;
    let plan = job::plan_to_best_block(files, &options.chain, Some(best), watch);
    if plan.as_ref().is_ok_and(|plan| plan.chain.tip().hash == best) {
        return plan;
    }
    // A pruned node has deleted some of the blocks.
    let (end, makes_undo) = (Some(best), true);
    let request = ChainRequest { connected: end, end, preferred: end, makes_undo, ..ChainRequest::default() };
    if let Ok(pruned) = job::plan(files, &options.chain, &request, watch)
        && pruned.is_pruned
        && pruned.chain.tip().hash == best
    {
        return Ok(pruned);
    }
    plan?;
    let detail = format!("the chainstate's best block {best} cannot be reached on the stored blocks");
    Err(Error::damaged(detail).in_file(dir, None).about(Subject::MissingBlocks))
}

/// Checks that pruning has not deleted blocks that are to be read.
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] if some have been.
pub fn require_stored(plan: &Plan, is_read: impl Fn(u32) -> bool) -> Result<(), Error> {
    let is_lacking = |height: &u32| is_read(*height) && !plan.chain.was_stored(Height(*height));
    let lacking = (0..=plan.chain.tip_height().0).filter(is_lacking);
    let (count, last) = (lacking.clone().count(), lacking.last());
    let Some(last) = last else { return Ok(()) };
    let detail = format!(
        "this node was pruned: {count} blocks up to height {last} would have to be read and are deleted. \
         Indexes can be made while a pruned node is downloaded, and continued as long as the blocks above \
         their best blocks are stored"
    );
    Err(Error::usage(detail).with_remedies([Remedy::Unprune]))
}

/// Returns the bytes of an index and of its temporary files, with some to spare, for `blocks` blocks that
/// have `block_bytes` bytes. In the pass of a rebuild, the outputs of blocks are kept until its end.
pub fn space_of(kind: IndexKind, tx_form: TxForm, blocks: u64, block_bytes: u64, in_pass: bool) -> [u64; 2] {
    let kept_until_end = |bytes: u64| if in_pass { bytes } else { 0 };
    // For each thousand bytes of blocks, or for each block.
    match kind {
        IndexKind::Tx if tx_form == TxForm::ByBlock => [45, 30].map(|bytes| block_bytes / 1000 * bytes),
        IndexKind::Tx => [110, 90].map(|bytes| block_bytes / 1000 * bytes),
        IndexKind::TxoSpender => [130, 90].map(|bytes| block_bytes / 1000 * bytes),
        IndexKind::CoinStats => [400, kept_until_end(1_000)].map(|bytes| blocks * bytes),
        _ => [30, kept_until_end(30)].map(|bytes| block_bytes / 1000 * bytes),
    }
}

/// Checks that indexes in the directory of a network and temporary files in `work_dir` fit on their disks:
/// the bytes of each are those of [`space_of`]. An index can be a link to another disk.
///
/// # Errors
/// [`api::error::ErrorKind::Environment`] if they do not; any I/O error.
pub fn check_space(
    disk: &dyn Disk,
    [net_dir, work_dir]: [&Path; 2],
    spaces: &[(IndexKind, [u64; 2])],
) -> Result<(), Error> {
    let [kept, temporary] = [0, 1].map(|which| spaces.iter().map(|(_, bytes)| bytes[which]).sum::<u64>());
    let beside = match kept {
        0 => String::new(),
        kept => format!("the indexes take about {}, and ", HumanSize(kept)),
    };
    let needs = format!("{beside}temporary files take about {}", HumanSize(temporary));
    let dirs: Vec<PathBuf> = spaces.iter().map(|(kind, _)| net_dir.join(kind.replaced_dir())).collect();
    let [nothing, help]: [&[Remedy]; 2] = [&[], &[Remedy::OtherWorkDir]];
    let in_dirs = dirs.iter().zip(spaces).map(|(dir, (_, [kept, _]))| (dir.as_path(), *kept, nothing));
    let in_dirs: Vec<_> = in_dirs.chain([(work_dir, temporary, help)]).collect();
    disk_need::check_space(disk, &in_dirs, &needs)
}

/// Returns the indexes that a command is about: those that are named, or else those in the datadir.
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] if there are none; any I/O error.
pub fn kinds(files: &Files<'_>, options: &IndexOptions) -> Result<Vec<IndexKind>, Error> {
    let mut kinds = options.kinds.clone();
    if kinds.is_empty() {
        for kind in IndexKind::ALL {
            if kind.is_in(files.disk, files.datadir.net_dir())? {
                kinds.push(kind);
            }
        }
        kinds.extend(&options.also);
    }
    kinds.sort_unstable();
    kinds.dedup();
    if kinds.is_empty() {
        let error = Error::usage("the datadir has no index, and none is named");
        return Err(error.in_file(files.datadir.net_dir(), None).with_remedies([Remedy::NameIndex]));
    }
    Ok(kinds)
}

/// Checks that the blocks from a height on have the undo data that these indexes need.
///
/// # Errors
/// [`api::error::ErrorKind::Damaged`] if some is missing.
pub fn require_undo(plan: &Plan, kinds: &[IndexKind], from: u32) -> Result<(), Error> {
    let lacking = plan.blocks_without_undo(Height(from));
    if lacking == 0 || !kinds.iter().any(|kind| kind.needs_undo()) {
        return Ok(());
    }
    let detail = format!("the undo data of {lacking} blocks is missing, which these indexes are made from");
    Err(Error::damaged(detail).about(Subject::UndoData))
}

impl IndexJob<'_> {
    /// Memory for the rows that a worker sorts, in bytes.
    pub const fn sort_bytes(&self) -> usize {
        self.budget.join_bytes / 4 / self.budget.threads
    }

    /// Returns the bytes of what an index gets, and of its temporary files, as [`space_of`] does.
    pub fn space(&self, base: &Base) -> [u64; 2] {
        let (first, blocks) = (*base.heights.start(), base.heights.clone().count());
        let sizes = block_sizes(&self.plan.chain).into_iter().skip(first as usize).take(blocks);
        // Some blocks have rows by txid, which take more.
        let tx_form = if base.rows_by_txid.is_some() { TxForm::ByTxid } else { base.tx_form };
        space_of(base.kind, tx_form, blocks as u64, sizes.map(u64::from).sum(), false)
    }

    /// Checks that there is space for what indexes get, and for temporary files.
    pub fn check_space(&self, spaces: &[(IndexKind, [u64; 2])]) -> Result<(), Error> {
        check_space(self.files.disk, [self.files.datadir.net_dir(), self.work.path()], spaces)
    }

    /// The form of the rows of a new `txindex`, if one of `kinds` is made.
    pub fn tx_form(&self, kinds: &[IndexKind]) -> Result<TxForm, Error> {
        match kinds.contains(&IndexKind::Tx) {
            true => self.options.form_of_new(self.files.disk, self.files.datadir),
            false => Ok(TxForm::ByTxid),
        }
    }

    /// Gives all rows of one form to a sink.
    pub fn give_all(&self, rows: &dyn TxRows, sink: &mut RowSink<'_>) -> Result<(), Error> {
        (0..rows.ranges()).try_for_each(|range| rows.give(&self.plan.chain, range, self.sort_bytes(), sink))
    }
}

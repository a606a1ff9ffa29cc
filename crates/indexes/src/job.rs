//! What the commands for indexes share: the chain up to the chainstate's best block, the indexes that are
//! meant, temporary files, and where the rows of each index begin.

use crate::{
    collect::{Collected, Filter, Filters, InOrderSink, Stats, StatsSums, Wanted},
    options::{IndexOptions, TxForm},
    output::ObservedBlocks,
    records::{RecordFiles, Records},
    rows::Row,
    starts::{Start, Starts},
    tx::{NEXT_SEQUENCE, TXID_SALT, key_value},
};
use api::{
    error::{Error, ErrorKind},
    event::{Event, EventSink as _, Warnings, Watch},
    note::Warning,
    options::ReindexOptions,
    remedy::Remedy,
    stage::Stage,
    subject::Subject,
};
use chain::{blocks::files::Files, plan::planner::Plan, session::Session};
use disk::{
    chainstate::read_best_block,
    node_indexes::{BEST_BLOCK, BEST_BLOCK_V2, IndexKind},
};
use pipeline::{
    job::{self, ChainRequest, memory::MemoryBudget},
    stages::work_dir::WorkDir,
};
use std::{
    path::Path,
    time::{Duration, Instant},
};
use vfs::{Disk, During as _};
use wire::{BlockHash, Height};

/// What a command works with.
pub struct IndexJob<'a> {
    /// The datadir.
    pub files: &'a Files<'a>,
    /// The chain up to the chainstate's best block.
    pub plan: &'a Plan,
    /// Temporary files.
    pub work: &'a WorkDir<'a>,
    /// How the memory is divided.
    pub budget: MemoryBudget,
    /// What is wanted.
    pub options: &'a IndexOptions,
    /// Whom to tell, and whether to stop.
    pub watch: Watch<'a>,
}

/// What a command does to the datadir.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It only reads.
    Read,
    /// It writes indexes.
    Change,
}

/// What a command has done.
pub struct Done<T> {
    /// What it returns.
    pub result: T,
    /// Height of the chainstate's best block.
    pub height: Height,
    pub hash: BlockHash,
    pub threads: usize,
    /// Time from the call to the end.
    pub elapsed: Duration,
    /// Warnings for the operator.
    pub notes: Vec<Warning>,
}

/// Opens and locks the datadir, chooses the chain, and calls `work` with the indexes that are meant. Removes
/// temporary files afterwards.
///
/// # Errors
/// Those of a session, of [`kinds`], of [`plan`] and of `work`.
pub fn run<T>(
    disk: &dyn Disk,
    options: &IndexOptions,
    access: Access,
    watch: Watch<'_>,
    work: impl FnOnce(&IndexJob<'_>, &[IndexKind]) -> Result<T, Error>,
) -> Result<Done<T>, Error> {
    let (started, sink) = (Instant::now(), &Warnings::new(watch.sink));
    let watch = Watch { sink, interrupt: watch.interrupt };
    let session = match access {
        Access::Read => Session::open_for_reading(disk, &options.chain)?,
        Access::Change => {
            let in_place = ReindexOptions::of(options.chain.clone());
            Session::open_for_change(disk, &in_place, sink)?.0
        }
    };
    let files = &session.files()?;
    let kinds = kinds(files, options)?;
    let plan = &plan(files, options, watch)?;
    // Not that of a rebuild, which may have an interrupted one's checkpoint.
    let work_dir = &match (access, &options.chain.work_dir) {
        (Access::Change, None) => WorkDir::exclusive(disk, files.datadir.net_dir()),
        _ => WorkDir::for_result(disk, &options.chain, None),
    };
    let budget = MemoryBudget::after_plan(&options.chain, plan.chain.block_count());
    let done = work(&IndexJob { files, plan, work: work_dir, budget, options, watch }, &kinds);
    let removed = work_dir.remove();
    let result = done.map_err(|error| work_dir.explain(error))?;
    if let Err(error) = removed {
        sink.event(Event::Warning(Warning::WorkFilesRemain { error }));
    }
    Ok(Done {
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
/// [`ErrorKind::Damaged`] if there is no chainstate, or the block index lacks its best block; those of a
/// plan.
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
    if let Ok(pruned) = plan_of_pruned(files, options, best, watch)
        && pruned.is_pruned
        && pruned.chain.tip().hash == best
    {
        return Ok(pruned);
    }
    plan?;
    let detail = format!("the chainstate's best block {best} cannot be reached on the stored blocks");
    Err(Error::damaged(detail).in_file(dir, None).about(Subject::MissingBlocks))
}

/// Chooses the chain of a pruned node, of which some blocks are deleted.
fn plan_of_pruned(
    files: &Files<'_>,
    options: &IndexOptions,
    best: BlockHash,
    Watch { sink, interrupt }: Watch<'_>,
) -> Result<Plan, Error> {
    let best = Some(best);
    let request = ChainRequest {
        connected: best,
        end: best,
        preferred: best,
        makes_undo: true,
        ..ChainRequest::default()
    };
    job::plan(files, &options.chain, &request, sink, interrupt)
}

/// Checks that the blocks that are to be read have not been deleted by pruning.
///
/// # Errors
/// [`ErrorKind::Usage`] if some have been.
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
    Err(Error::new(ErrorKind::Usage, detail))
}

/// Checks that new indexes and temporary files fit on the disk, if there are `blocks` blocks with
/// `block_bytes` bytes. In the pass of a rebuild, what is made of the blocks is kept until its end.
///
/// # Errors
/// [`ErrorKind::Environment`] if they do not; any I/O error.
pub fn check_space(
    disk: &dyn Disk,
    dir: &Path,
    kinds: &[IndexKind],
    blocks: u64,
    block_bytes: u64,
    in_pass: bool,
) -> Result<(), Error> {
    let kept_until_end = |bytes: u64| if in_pass { bytes } else { 0 };
    // What stays and what is temporary: for each thousand bytes of blocks, or for each block; with some to
    // spare.
    let of_kind = |kind: &IndexKind| match kind {
        IndexKind::Tx => block_bytes / 1000 * (110 + 90),
        IndexKind::TxoSpender => block_bytes / 1000 * (130 + 90),
        IndexKind::CoinStats => blocks * (400 + kept_until_end(1_000)),
        _ => block_bytes / 1000 * (30 + kept_until_end(30)),
    };
    let need = kinds.iter().map(of_kind).sum::<u64>();
    let free = disk.free_space(dir).during("find the free space of", dir)?;
    if free >= need {
        return Ok(());
    }
    let [need, free] = [need, free].map(api::size::HumanSize);
    let detail = format!(
        "not enough disk space: the indexes and temporary files take about {need}, and {free} are free"
    );
    Err(Error::new(ErrorKind::Environment, detail).in_file(dir, None).about(Subject::DiskSpace))
}

/// The indexes that a command is about: those that are named, or else those in the datadir.
///
/// # Errors
/// [`ErrorKind::Usage`] if there are none; any I/O error.
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
        let error = Error::new(ErrorKind::Usage, "the datadir has no index, and none is named");
        return Err(error.in_file(files.datadir.net_dir(), None).with_remedies([Remedy::NameIndex]));
    }
    Ok(kinds)
}

/// Checks that the undo data is there that these indexes need, of the blocks from a height on.
///
/// # Errors
/// [`ErrorKind::Damaged`] if some is missing.
pub fn require_undo(plan: &Plan, kinds: &[IndexKind], from: u32) -> Result<(), Error> {
    let lacking = plan.blocks_without_undo(Height(from));
    if lacking == 0 || !kinds.iter().any(|kind| kind.needs_undo()) {
        return Ok(());
    }
    let detail = format!("the undo data of {lacking} blocks is missing, which these indexes are made from");
    Err(Error::damaged(detail).about(Subject::UndoData))
}

/// What takes what comes in the order of the blocks.
#[derive(Default)]
pub struct InOrderSinks<'s> {
    /// Takes the filters.
    pub filters: Option<Box<dyn InOrderSink<Filter> + 's>>,
    /// Takes the statistics.
    pub stats: Option<Box<dyn InOrderSink<Stats> + 's>>,
}

impl<'a> IndexJob<'a> {
    /// Reads the blocks from where each index begins. `sequences` are the sequence numbers of the blocks of
    /// which a `txindex` gets rows by block.
    ///
    /// # Errors
    /// Blocks or undo data that are damaged or missing; errors of the sinks; any I/O error.
    pub fn collect(
        &self,
        starts: &Starts,
        sequences: Vec<Option<u32>>,
        sinks: InOrderSinks<'_>,
    ) -> Result<Collected, Error> {
        self.work.take()?;
        let files = RecordFiles {
            disk: self.files.disk,
            dir: self.work.path(),
            block_bytes: self.plan.block_bytes / self.plan.chain.block_count() as u64,
            memory: self.budget.join_bytes / 4,
            threads: self.budget.threads,
        };
        self.collect_with(starts, files.create(starts, sequences)?, None, sinks)
    }

    /// Like [`IndexJob::collect`], without the blocks that were `observed`, whose records are among
    /// `records`.
    pub fn collect_with(
        &self,
        starts: &Starts,
        records: Records,
        observed: Option<&ObservedBlocks>,
        sinks: InOrderSinks<'_>,
    ) -> Result<Collected, Error> {
        let filters = starts.of(IndexKind::BlockFilter).zip(sinks.filters);
        let stats = starts.of(IndexKind::CoinStats).zip(sinks.stats);
        let wanted = Wanted {
            heights: starts.heights(),
            records,
            observed,
            filters: filters.map(|(start, sink)| Filters {
                heights: start.heights.clone(),
                header: start.header,
                sink,
            }),
            stats: stats.map(|(start, sink)| StatsSums {
                heights: start.heights.clone(),
                totals: start.totals,
                muhash: start.muhash.clone(),
                sink,
            }),
        };
        self.watch.sink.event(Event::Started(Stage::Read));
        wanted.collect(self.files, self.plan, self.budget.threads, self.watch)
    }

    /// Memory for the records that a worker sorts, in bytes.
    pub const fn sort_bytes(&self) -> usize {
        self.budget.join_bytes / 4 / self.budget.threads
    }
}

/// The rows of an index that are below those of blocks, if it ends with the best block of this locator.
pub fn rows_below(kind: IndexKind, start: &Start, next_sequence: u32, locator: Vec<u8>) -> Vec<Row> {
    match (kind, start.tx_form) {
        (IndexKind::Tx, TxForm::ByBlock) => vec![
            (BEST_BLOCK_V2.to_vec(), locator),
            (NEXT_SEQUENCE.to_vec(), next_sequence.to_le_bytes().to_vec()),
            (TXID_SALT.to_vec(), key_value(start.key)),
        ],
        _ => vec![(BEST_BLOCK.to_vec(), locator)],
    }
}

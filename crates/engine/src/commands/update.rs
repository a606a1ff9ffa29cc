//! Brings a chainstate to the best chain that is stored: connects the blocks above its best block, and first
//! disconnects blocks if another stored branch has more work. A rebuild does the same for any chainstate; an
//! update takes as long as its blocks (ADR 16).

pub use api::report::UpdateReport;

use api::{
    counts::Counts,
    error::{Error, ErrorKind},
    event::{Event, Warnings, Watch},
    note::Warning,
    options::{ChainOptions, ReindexOptions},
    remedy::Remedy,
    stage::Stage,
    subject::Subject,
};
use chain::{
    blocks::files::Files,
    invalid_blocks::unmark,
    plan::{
        best_block::{BestBlock, lacks_undo},
        existing_state::{ExistingState, unfinished_flush},
        planner::{Plan, is_pruned},
        second_chainstate::CHECKED_AT_START,
    },
    session::Session,
};
use disk::{DiskError, chainstate::ChainstateReader, datadir::Datadir};
use pipeline::{
    job::{
        self, ChainRequest,
        clock::Clock,
        in_order::{BlockSink, InOrder},
        memory::{CacheMemory, MemoryBudget},
        tip::Tip,
        two_chainstates,
    },
    stages::{
        read::BlockReader,
        scripts::Scripts,
        stored_coins::{TipCoins, merge},
        window::{BlockResult, BufferPool, ConnectedBlock, Window},
    },
};
use std::{mem, ops::Range, sync::atomic::Ordering};
use vfs::{Disk, During as _};
use wire::{BlockHash, Height};

/// Connects the stored blocks above the chainstate's best block, in place. Blocks are disconnected first if a
/// stored branch without them has more work. The changes of many blocks are committed at once, whenever the
/// memory for them is used up. On failure, the chainstate is as the last commit left it, or as it was.
///
/// `interrupt` may be set from another thread at any time.
///
/// # Errors
/// [`ErrorKind::Consensus`] for the first invalid block; [`ErrorKind::Damaged`] if the chainstate, the block
/// index, a block or undo data is missing or damaged; [`ErrorKind::Usage`] for a height below the best block,
/// and for a node with a snapshot's chainstate; [`ErrorKind::Environment`] if the datadir is in use.
pub fn update(disk: &dyn Disk, options: &ChainOptions, watch: Watch<'_>) -> Result<UpdateReport, Error> {
    update_without(disk, options, &[], 0..0, watch)
}

/// The same, without the blocks in `invalid`, and with those at the heights of `exactly` one by one.
///
/// # Errors
/// Those of [`update`].
pub fn update_without(
    disk: &dyn Disk,
    options: &ChainOptions,
    invalid: &[BlockHash],
    exactly: Range<u32>,
    watch: Watch<'_>,
) -> Result<UpdateReport, Error> {
    let sink = &Warnings::new(watch.sink);
    let watch = Watch { sink, ..watch };
    // What an attempt has committed stays.
    let mut report = None;
    let done = job::retry_without_invalid(sink, |found| {
        let invalid = [invalid, found].concat();
        update_in_place(disk, options, &invalid, exactly.clone(), &mut report, watch)
    });
    done.map_err(Error::in_place_only)?;
    let report = report.ok_or_else(Error::panicked)?;
    Ok(UpdateReport { notes: sink.take(), ..report })
}

fn update_in_place(
    disk: &dyn Disk,
    options: &ChainOptions,
    invalid: &[BlockHash],
    exactly: Range<u32>,
    report: &mut Option<UpdateReport>,
    watch: Watch<'_>,
) -> Result<(), Error> {
    let mut clock = Clock::start();
    let options = &ChainOptions { scan: false, ..options.clone() };
    let in_place = ReindexOptions::of(options.clone());
    watch.sink.event(Event::Started(Stage::Plan));
    let (session, datadir) = Session::open_for_change(disk, &in_place, watch.sink)?;
    let files = &session.files_at_tip()?;
    let report = report.get_or_insert_with(|| empty_report(options, &datadir));
    let connected = connect_stored(files, options, invalid, exactly, report, &mut clock, watch);
    let plan = connected.map_err(|error| match is_pruned(files) {
        Ok(true) => {
            // Its file can still be in a backup.
            let restore = error.is_about(Subject::UndoData).then_some(Remedy::RestoreFile);
            error.of_pruned().with_remedies(restore)
        }
        _ => error,
    })?;
    unmark(files, &plan.choice.unmarked)?;
    plan.note_unmarked(watch.sink);
    (report.height, report.hash) = (plan.chain.tip_height(), plan.chain.tip().hash);
    // The blocks are connected, so an error here would not be true. bitcoind could not read it either.
    if lacks_undo(files, report.hash, CHECKED_AT_START).unwrap_or(true) {
        watch.sink.event(Event::Warning(Warning::LacksLastUndo { blocks: CHECKED_AT_START }));
    }
    report.scripts = job::scripts_report(options, &plan, &report.counts);
    report.is_pruned = plan.is_pruned;
    report.elapsed += clock.started.elapsed();
    report.stages.extend(clock.stages);
    Ok(())
}

/// Connects what the block index has above the chainstate, without the blocks in `invalid`, and the blocks at
/// the heights of `exactly` one by one. Returns the plan of the chain that is connected then.
///
/// # Errors
/// Those of [`update`].
pub fn connect_stored(
    files: &Files<'_>,
    options: &ChainOptions,
    invalid: &[BlockHash],
    mut exactly: Range<u32>,
    report: &mut UpdateReport,
    clock: &mut Clock,
    watch: Watch<'_>,
) -> Result<Plan, Error> {
    // To find out what is wrong with a block, the blocks of its window are connected one by one, from the
    // last commit on.
    loop {
        let coins = open_chainstate(files)?;
        let request = ChainRequest {
            scan: false,
            preferred: Some(coins.best_block()),
            connected: Some(coins.best_block()),
            invalid,
            makes_undo: true,
            ..ChainRequest::of(options)
        };
        let mut plan = job::plan(files, options, &request, watch)?;
        let before = check(&plan, files)?;
        clock.lap(Stage::Plan);
        if report.hash_before == BlockHash::default() {
            (report.height_before, report.hash_before) = (before.known.height, before.known.hash);
        }
        watch.sink.event(Event::Started(Stage::Connect));
        let job = Update { files, before, options, exactly, watch };
        let suspect = job.run(&mut plan, coins, report)?;
        clock.lap(Stage::Connect);
        match suspect {
            Some(suspect) => exactly = suspect,
            None => return Ok(plan),
        }
    }
}

/// The report of an update that has not begun.
pub fn empty_report(options: &ChainOptions, datadir: &Datadir) -> UpdateReport {
    UpdateReport {
        network: options.params.network,
        chainstate: datadir.chainstate_dir(),
        ..UpdateReport::default()
    }
}

/// Returns an error if the datadir has a second chainstate, from a snapshot.
///
/// # Errors
/// [`ErrorKind::Usage`] if it has; any I/O error.
pub fn check_one_chainstate(files: &Files<'_>) -> Result<(), Error> {
    two_chainstates::refuse(files, ", which only bitcoind can complete")
}

/// Opens the chainstate, if it is the only one.
///
/// # Errors
/// Those of [`check_one_chainstate`]; [`ErrorKind::Damaged`] if there is none, it does not open, or bitcoind
/// has to complete it.
pub fn open_chainstate<'d>(files: &Files<'d>) -> Result<ChainstateReader<'d>, Error> {
    let dir = files.datadir.chainstate_dir();
    check_one_chainstate(files)?;
    let current = dir.join("CURRENT");
    if !files.disk.exists(&current).during("look for", &current)? {
        let error = Error::damaged("there is no chainstate").about(Subject::MissingFile).in_file(dir, None);
        return Err(error.about(Subject::Chainstate));
    }
    let opened = ChainstateReader::open(files.disk, &dir);
    if let Err(DiskError::InterruptedFlush { .. }) = &opened
        && let Ok(Some(error)) = unfinished_flush(files)
    {
        return Err(error);
    }
    opened.map_err(Error::from).map_err(|error| match error.kind {
        ErrorKind::Damaged => error.about(Subject::Chainstate),
        _ => error,
    })
}

/// Checks that the planned chain has at least the work of the chainstate, and returns where the latter is.
///
/// # Errors
/// [`ErrorKind::Usage`] if it has less.
pub(super) fn check(plan: &Plan, files: &Files<'_>) -> Result<BestBlock, Error> {
    let loss = ExistingState::read(files, false)?.check_loss(plan, files)?;
    if let (Some(best), true) = (plan.best_block, plan.stops_as_asked)
        && best.known.work > plan.choice.work
    {
        let (height, end) = (best.known.height, plan.chain.tip_height());
        let detail =
            format!("the chainstate is at height {height}; an update does not go back to height {end}");
        return Err(Error::usage(detail)
            .in_file(files.datadir.chainstate_dir(), None)
            .with_remedies([Remedy::StopAtHeight(height)])
            // A pruned node lacks blocks for that.
            .with_remedies((!plan.is_pruned).then_some(Remedy::AcceptLowerTipAt(end))));
    }
    if let Some(loss) = loss {
        return Err(loss.error(files.datadir.net_dir()));
    }
    plan.best_block.ok_or_else(Error::inconsistent_data)
}

/// What an update works on.
pub struct Update<'a> {
    /// The block files.
    pub files: &'a Files<'a>,
    /// The best block of the chainstate.
    pub before: BestBlock,
    /// How blocks are checked.
    pub options: &'a ChainOptions,
    /// The heights of the blocks that are connected one by one.
    pub exactly: Range<u32>,
    /// Receives progress, and stops it.
    pub watch: Watch<'a>,
}

impl<'a> Update<'a> {
    /// Disconnects and connects blocks, and commits. Returns the heights of a window in which something is
    /// wrong; the chainstate is then that of the last commit. Adds what was committed to the report;
    /// after the last commit, also adds the undo data to the plan's file entries.
    ///
    /// # Errors
    /// The first violation; damage; any I/O error; an interrupt.
    pub fn run(
        &self,
        plan: &mut Plan,
        mut coins: ChainstateReader<'a>,
        report: &mut UpdateReport,
    ) -> Result<Option<Range<u32>>, Error> {
        let files = self.files;
        // Nothing is kept for each block of the chain but the plan itself.
        let budget = MemoryBudget::of_blocks(self.options, 0, false);
        report.threads = budget.threads;
        let memory = budget.cache();
        coins.keep_open(memory.tables);
        let tip = Tip::open(files, coins, &plan.index_files)?;
        let mut uncommitted =
            Uncommitted { update: self, tip, memory, disconnected: 0, counts: Counts::default(), report };
        let BestBlock { known, fork, .. } = self.before;
        if fork < known.height {
            let old = uncommitted.tip.branch(&plan.chain, fork, known.hash, known.height)?;
            for height in (fork.0 + 1..=known.height.0).rev().map(Height) {
                if self.watch.interrupt.load(Ordering::Relaxed) {
                    return Err(uncommitted.interrupted());
                }
                uncommitted.tip.disconnect(&old, height)?;
                uncommitted.disconnected += 1;
                if uncommitted.tip.coins.bytes() > memory.coins {
                    uncommitted.commit(false)?;
                }
            }
        }
        let reader = &BlockReader::new(&plan.chain, files);
        let scripts = self.options.scripts.verifier().map(|verifier| Scripts {
            params: files.params,
            verifier,
            skipped_to: plan.choice.scripts_skipped_to(),
            queue_bytes: budget.queued_scripts(),
        });
        let threads = budget.threads;
        let (chain, params, buffers) = (&plan.chain, files.params, BufferPool::new(memory.window));
        let window = Window { chain, reader, params, scripts, threads, buffers, result: BlockResult::Undo };
        let heights = fork.0 + 1..chain.block_count() as u32;
        let meter = plan.meter(heights.len(), self.watch.sink);
        let blocks = InOrder::new(window, heights, self.exactly.clone(), meter);
        let connected = blocks.connect_to(&mut uncommitted, memory, self.watch.interrupt);
        let suspect = connected.map_err(|error| match error.kind {
            ErrorKind::Interrupted => uncommitted.interrupted(),
            _ => self.explain(error, plan),
        })?;
        match &suspect {
            Some(heights) => self.count(heights.len()),
            None => plan.index_files = uncommitted.tip.infos().to_vec(),
        }
        Ok(suspect)
    }

    fn count(&self, blocks: usize) {
        self.options.hooks.blocks_checked.fetch_add(blocks as u64, Ordering::Relaxed);
    }

    /// Adds to the error for an invalid block how to connect those below it. The error for a block whose mark
    /// was not believed becomes contested: the next attempt leaves the block out.
    fn explain(&self, error: Error, plan: &Plan) -> Error {
        let below = error.height.and_then(|height| height.0.checked_sub(1)).map(Height);
        let is_above = |below: &Height| {
            *below > self.before.known.height && self.before.fork == self.before.known.height
        };
        let is_reconsidered = plan.choice.reconsidered.is_some_and(|from| error.height >= Some(from));
        match error.kind {
            ErrorKind::Consensus if is_reconsidered => error.about(Subject::ContestedBlock),
            ErrorKind::Consensus => error.with_remedies(below.filter(is_above).map(Remedy::StopAtHeight)),
            _ => error,
        }
    }
}

/// The end of the chain, and what was done since the last commit.
struct Uncommitted<'u, 'a> {
    update: &'u Update<'a>,
    tip: Tip<'a>,
    memory: CacheMemory,
    disconnected: u32,
    counts: Counts,
    report: &'u mut UpdateReport,
}

impl Uncommitted<'_, '_> {
    fn interrupted(&self) -> Error {
        if self.report.commits == 0 {
            return Error::interrupted();
        }
        let detail = "interrupted; the chainstate has the blocks of the last commit";
        Error::new(ErrorKind::Interrupted, detail)
    }
}

impl<'a> BlockSink<'a> for Uncommitted<'_, 'a> {
    fn coins(&mut self) -> &mut TipCoins<'a> {
        &mut self.tip.coins
    }

    fn connected(&mut self, blocks: &[ConnectedBlock], counts: Counts) -> Result<(), Error> {
        self.update.count(blocks.len());
        self.counts += counts;
        blocks.iter().try_for_each(|block| self.tip.record(block))
    }

    /// Commits, if there is something to commit, and adds it to the report. Merges tables that bitcoind would
    /// compact for long. This can take minutes, of which nothing is shown.
    fn commit(&mut self, _: bool) -> Result<(), Error> {
        if self.disconnected == 0 && self.counts.blocks == 0 {
            return Ok(());
        }
        let Self { update, tip, memory, disconnected, counts, report } = self;
        report.undo_written += tip.commit(report.threads, memory.staying, update.watch.interrupt)?;
        report.commits += 1;
        report.disconnected += mem::take(disconnected);
        report.counts += mem::take(counts);
        if tip.coins.source().0.has_full_level() {
            merge(&mut tip.coins, report.threads, update.watch.interrupt)?;
        }
        Ok(())
    }
}

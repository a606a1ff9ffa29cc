//! A job: matches the spends of the blocks of a plan, in parallel with the join or with hints, and finds out
//! what is wrong if that proves nothing (`verdict`).

pub mod cache;
pub mod checkpoint;
pub mod clock;
pub mod coins_after;
pub mod damage_survey;
pub mod download;
pub mod hint_copy;
pub mod hints;
pub mod in_order;
pub mod index_by_scan;
mod matching;
pub mod memory;
pub mod missing_undo;
pub mod read_only_job;
mod recheck;
mod settle;
pub mod stored_chainstate;
pub mod tip;
pub mod two_chainstates;
pub mod undo_files;
pub mod unspent_outputs;
mod verdict;
mod worker_pool;

pub use chain::plan::chain_request::ChainRequest;

use crate::{
    job::memory::MemoryBudget,
    stages::{
        block_fault::BlockFaults,
        block_source::{BlockSource, UndoReading},
        completed_blocks::CompletedBlocks,
        make_undo::UndoSink,
        method::Method,
        read::BlockReader,
        unspent::Unspent,
        walk::BlockWalk,
        work_dir::WorkDir,
    },
};
use api::{
    counts::Counts,
    disk_need::DiskNeed,
    error::{Error, ErrorKind},
    event::{Event, EventSink, Watch},
    hex_reversed,
    note::{Note, Warning},
    options::{AssumeValid, ChainOptions, HintOptions, Matching, ResumeOptions, UndoPolicy},
    report::{ScriptsReport, SpillVolume},
    spend_ages::SpendAges,
    subject::Subject,
};
use chain::{
    blocks::{awaited::AwaitedBlocks, files::Files},
    commit::directory_bytes,
    plan::{
        planner::{self, Plan},
        second_chainstate::{CHECKED_AT_START, SecondChainstate},
        tree::Choice,
    },
};
use disk::index::find_height;
use rules::{ChainParams, header::MAX_FUTURE_BLOCK_TIME};
use std::time::{SystemTime, UNIX_EPOCH};
use wire::{BlockHash, BlockTime, Height};

/// Compares the hash of the UTXO set after a block with the one that Core's source pins for it. Returns false
/// if it pins none.
///
/// # Errors
/// [`ErrorKind::Internal`] if they differ: the blocks are those of Core's chain, and have been checked.
pub fn check_pinned_hash(
    params: &ChainParams,
    height: Height,
    hash: &BlockHash,
    hash_serialized_3: &[u8; 32],
) -> Result<bool, Error> {
    if params.has_pinned_hash(hash, hash_serialized_3) == Some(false) {
        let detail = format!(
            "the UTXO set has the hash {}, but Bitcoin Core's source has another one for this block; nothing \
             was changed. Check the memory of the machine; if it is sound, please report this bug",
            hex_reversed(hash_serialized_3)
        );
        return Err(Error::new(ErrorKind::Internal, detail).at_block(height, *hash));
    }
    Ok(params.pinned_utxo_set(hash).is_some())
}

/// The final UTXO set, and how it was obtained.
pub struct MatchedCoins {
    pub unspent: Unspent,
    pub stats: MatchStats,
}

/// How the final UTXO set was obtained.
pub struct MatchStats {
    pub counts: Counts,
    pub matching: Matching,
    pub used_hints: bool,
    /// Number of blocks that an interrupted run had completed before.
    pub resumed: u32,
    /// Amount of unspendable outputs, in satoshi, in blocks whose undo data was not used.
    pub burned: u64,
    /// What was spilled because it exceeded the memory budget.
    pub spilled: SpillVolume,
    /// Ages of the coins that were spent, in the blocks that this run has checked; not counted if blocks are
    /// connected in order.
    pub ages: SpendAges,
}

impl MatchStats {
    /// Those of blocks that were connected in order.
    pub fn in_order(counts: Counts, matching: Matching) -> Self {
        let (used_hints, resumed, burned, spilled, ages) = Default::default();
        Self { counts, matching, used_hints, resumed, burned, spilled, ages }
    }
}

/// Chooses the chain to rebuild.
pub fn plan(
    files: &Files<'_>,
    options: &ChainOptions,
    request: &ChainRequest<'_>,
    watch: Watch<'_>,
) -> Result<Plan, Error> {
    plan_beside(files, options, request, None, watch)
}

/// Chooses the chain to rebuild, and finds out whether bitcoind can start with the result beside a second
/// chainstate.
pub fn plan_beside(
    files: &Files<'_>,
    options: &ChainOptions,
    request: &ChainRequest<'_>,
    second: Option<&SecondChainstate>,
    Watch { sink, interrupt }: Watch<'_>,
) -> Result<Plan, Error> {
    let believes_checked = options.assume_valid == AssumeValid::Checked;
    if request.scan {
        check_scan(files, options)?;
    }
    let assume_valid = options.assume_valid.hash(options.params);
    // A scan believes no mark.
    let reconsider = options.reconsider.filter(|_| !request.scan);
    let request = ChainRequest { assume_valid, believes_checked, reconsider, ..*request };
    let plan = planner::plan(files, &request, second, now(), interrupt)
        .map_err(|error| two_chainstates::explain(files, error))?;
    if let Some(hash) = plan.unknown_assumed.filter(|_| options.scripts.are_run()) {
        sink.event(match options.assume_valid {
            AssumeValid::Block(_) => Event::Warning(Warning::UnknownAssumedBlock { hash, is_default: false }),
            _ => Event::Note(Note::UnknownAssumedBlock { hash, is_default: true }),
        });
    }
    if believes_checked && options.scripts.are_run() {
        sink.event(Event::Note(Note::CheckedScripts { to: plan.choice.checked_to }));
    }
    if let Some((height, hash, tip)) = plan.choice.marked_invalid {
        sink.event(Event::Warning(Warning::MarkedInvalid { height, hash, tip }));
    }
    if plan.choice.departed > 0 {
        sink.event(Event::Warning(Warning::LeftOutDeparted { blocks: plan.choice.departed }));
    }
    let ahead = u64::from(plan.choice.tip_time.0).saturating_sub(now().0.into());
    if ahead > MAX_FUTURE_BLOCK_TIME {
        sink.event(Event::Warning(Warning::FromFuture { hours: ahead.div_ceil(60 * 60) }));
    }
    sink.event(Event::Planned {
        height: plan.chain.tip_height(),
        hash: plan.chain.tip().hash,
        block_bytes: plan.block_bytes,
        unconnected: plan.choice.unconnected,
    });
    if request.end_without_undo().is_some() && !request.makes_undo && plan.lacks_last_undo {
        sink.event(Event::Warning(Warning::LacksLastUndo { blocks: CHECKED_AT_START }));
    }
    Ok(plan)
}

/// Checks that the options can be those of a scan.
///
/// # Errors
/// [`ErrorKind::Usage`] if they believe what a block index says.
pub fn check_scan(files: &Files<'_>, options: &ChainOptions) -> Result<(), Error> {
    if options.assume_valid != AssumeValid::Checked {
        return Ok(());
    }
    let detail = "the block files are scanned, and no block index is believed then: nothing says which \
                  scripts were checked before. Choose a block that is assumed to be valid, or none";
    Err(Error::usage(detail).in_file(files.datadir.index_dir(), None))
}

/// Says why a job over all blocks takes long, if that is because no block is assumed to be valid by default.
pub fn note_all_scripts(options: &ChainOptions, plan: &Plan, sink: &dyn EventSink) {
    let has_none = options.assume_valid == AssumeValid::Default && options.params.assume_valid.is_none();
    if has_none && options.scripts.are_run() {
        let (blocks, network) = (plan.chain.block_count() as u32, options.params.network);
        sink.event(Event::Note(Note::AllScripts { blocks, network }));
    }
}

/// Calls `attempt` with no invalid blocks; while it fails because a block near the end of the chain was
/// stored, but never connected, and is invalid, calls it again with that block added to the invalid ones.
///
/// Bitcoin Core does the same when it connects blocks: it marks a block that breaks a rule, and tries the
/// next best chain. A block index records which blocks Core has marked; block files do not (ADR 8).
///
/// # Errors
/// The error of the last attempt.
pub fn retry_without_invalid<T>(
    sink: &dyn EventSink,
    mut attempt: impl FnMut(&[BlockHash]) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut invalid = Vec::new();
    loop {
        match attempt(&invalid) {
            Err(error) if error.is_about(Subject::ContestedBlock) => match error.block_hash {
                Some(hash) if !invalid.contains(&hash) => {
                    sink.event(Event::Warning(Warning::InvalidBlock { hash, error }));
                    invalid.push(hash);
                }
                _ => return Err(error),
            },
            done => return done,
        }
    }
}

/// Reports which scripts were run; `None` if none were asked for.
pub fn scripts_report(options: &ChainOptions, plan: &Plan, counts: &Counts) -> Option<ScriptsReport> {
    let Choice { assumed_valid_to, checked_to, .. } = plan.choice;
    let tip = plan.chain.tip_height();
    let report = ScriptsReport::new(assumed_valid_to, checked_to, tip, counts.scripts);
    options.scripts.are_run().then_some(report)
}

/// What the parallel stages share.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    pub files: &'a Files<'a>,
    pub plan: &'a Plan,
    /// The memory budget, made when the plan was complete.
    pub budget: MemoryBudget,
    pub options: &'a ChainOptions,
    pub hints: Option<&'a HintOptions>,
    pub method: &'a Method,
    pub work: &'a WorkDir<'a>,
    /// Where undo data that is made goes; `None`: it is only checked.
    pub undo_sink: Option<&'a dyn UndoSink>,
    /// Whether the caller continues when told of a block that is invalid unless a lower one is, instead of
    /// letting this job find out which one is; `None`: never. The second argument says whether that rests on
    /// undo data, which may be false.
    pub goes_on_below: Option<&'a (dyn Fn(Height, bool) -> bool + Sync)>,
    /// When the job saves checkpoints, so that an interrupted run can be resumed; `None`: never.
    pub resume: Option<&'a ResumeOptions>,
    pub watch: Watch<'a>,
}

impl<'a> Job<'a> {
    /// A job that saves no checkpoints, and only checks the undo data that it makes.
    pub fn new(
        files: &'a Files<'a>,
        plan: &'a Plan,
        options: &'a ChainOptions,
        method: &'a Method,
        work: &'a WorkDir<'a>,
        watch: Watch<'a>,
    ) -> Self {
        Self {
            files,
            plan,
            budget: MemoryBudget::after_plan(options, plan),
            options,
            hints: None,
            method,
            work,
            undo_sink: None,
            goes_on_below: None,
            resume: None,
            watch,
        }
    }

    /// The blocks that come while the job runs, if block files are deleted behind it.
    pub fn pruned_download(&self) -> Option<&'a AwaitedBlocks> {
        self.files.awaited.filter(|awaited| awaited.settle_bytes.is_some())
    }
}

impl Job<'_> {
    /// Estimates the disk space for the coins of this job, temporary files and undo data.
    pub fn disk_need(&self) -> DiskNeed {
        let Self { files, plan, options, method, .. } = *self;
        let (join_bytes, blocks) = (self.budget.join_bytes, plan.chain.block_count() as u64);
        // A second chainstate will be about as large as the one of the node.
        let old = directory_bytes(files.disk, &files.datadir.chainstate_dir());
        let mut need = DiskNeed::estimate(options.params.network, plan.block_bytes, old, join_bytes);
        if let Some((coins, height)) = method.hinted_coins() {
            let above = plan.bytes_of(plan.chain.tip_height().0.saturating_sub(height.0).into());
            let of_hints = need.with_hinted_coins(coins, above, join_bytes);
            // Hints that are wrong may be followed by a rebuild without them.
            let can_fall_back = self.pruned_download().is_none();
            let falls_back = can_fall_back && self.hints.is_some_and(|hints| hints.on_failure_join);
            let without_hints = if falls_back { need.temporary } else { 0 };
            need = DiskNeed { temporary: of_hints.temporary.max(without_hints), ..of_hints };
        }
        if self.resume.is_some() {
            need = need.with_checkpoints();
        }
        if method.makes_undo() {
            let lacking = plan.blocks_without_undo(method.needs_undo_from());
            // With pruning, about three times as many bytes of blocks are stored at once.
            let settle_bytes = self.pruned_download().and_then(|download| download.settle_bytes);
            let bytes = plan.bytes_of(lacking).min(settle_bytes.map_or(u64::MAX, |bytes| 3 * bytes));
            need = need.with_undo(bytes, lacking + 1 >= blocks, options.memory_bytes);
        }
        need
    }

    /// Checks that enough space is free for what matching writes to temporary files.
    pub fn check_temporary_need(&self) -> Result<(), Error> {
        self.check_work_need(DiskNeed { chainstate: 0, undo: 0, ..self.disk_need() })
    }

    /// Checks that enough space is free for a chainstate and temporary files in the work directory, and tells
    /// the user how much they take. What is there of an interrupted run need not be free.
    pub fn check_work_need(&self, need: DiskNeed) -> Result<(), Error> {
        let dir = self.work.path();
        let written = directory_bytes(self.work.disk(), dir).unwrap_or(0);
        need.without_written(written, 0).check(self.work.disk(), dir, dir, dir, 0)?;
        if need.total() > 0 {
            self.watch.sink.event(Event::Note(Note::DiskNeed(need)));
        }
        Ok(())
    }

    pub fn walk(&self) -> BlockWalk<'_> {
        let (reader, bytes_total) = (BlockReader::new(&self.plan.chain, self.files), self.plan.block_bytes);
        BlockWalk { reader, threads: self.threads(), bytes_total, watch: self.watch }
    }

    /// The blocks of the chain except the `completed` ones, and their undo data. Damage is recorded in
    /// `faults`.
    pub fn source<'s>(
        &'s self,
        faults: &'s BlockFaults,
        completed: &'s CompletedBlocks,
        undo: UndoReading,
    ) -> BlockSource<'s> {
        BlockSource::new(&self.plan.chain, self.files, faults, completed, undo, self.threads())
    }

    /// Whether the undo data of all blocks is expected to be on disk and is to be used.
    pub fn expects_undo(&self) -> bool {
        match self.options.undo {
            UndoPolicy::Auto => self.plan.blocks_without_undo(Height(0)) == 0,
            UndoPolicy::Trust => true,
            UndoPolicy::Make => false,
        }
    }
}

pub fn now() -> BlockTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    BlockTime(u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}

/// Chooses the chain up to `best`, the chainstate's best block, if it can be found; otherwise the most-work
/// chain. Blocks above the best block need no undo data: it is written when they are connected.
pub fn plan_to_best_block(
    files: &Files<'_>,
    options: &ChainOptions,
    best: Option<BlockHash>,
    watch: Watch<'_>,
) -> Result<Plan, Error> {
    let scan = options.scan;
    let is_known = |best: &BlockHash| {
        !scan
            && find_height(files.disk, &files.datadir.index_dir(), best).is_ok_and(|height| height.is_some())
    };
    let request = ChainRequest {
        scan,
        // bitcoind starts there, also if another branch has more work.
        end: best.filter(is_known),
        preferred: best,
        makes_undo: true,
        ..ChainRequest::default()
    };
    plan(files, options, &request, watch)
}

/// Number of last blocks that are left out beside a running bitcoind: its chain may change there.
const LIVE_DEPTH: u32 = 6;

/// Returns the last block of those from `from` to `to` that are read; `to` is `None` for the last one of the
/// chain, beside a running bitcoind without six.
///
/// # Errors
/// [`ErrorKind::Usage`] if the chain does not have the blocks.
pub fn last_block(
    options: &ChainOptions,
    plan: &Plan,
    from: Height,
    to: Option<Height>,
) -> Result<Height, Error> {
    let left_out = if options.live { LIVE_DEPTH } else { 0 };
    let tip = Height(plan.chain.tip_height().0.saturating_sub(left_out));
    let to = to.unwrap_or(tip);
    if from > to || to > tip {
        let end = match options.live {
            true => "beside a running bitcoind, blocks are read up to height",
            false => "the chain on disk ends at height",
        };
        let detail = format!("there are no blocks from {from} to {to}: {end} {tip}");
        return Err(Error::usage(detail));
    }
    Ok(to)
}

//! How a rebuild uses hints: whether they belong to the chain, for which blocks they are used, and which of
//! them was wrong if the rebuild has failed.

use crate::{
    job::{self, ChainRequest, Job, checkpoint, clock::Clock, unspent_outputs::CoinsByBlock},
    stages::{
        method::{HintMatching, Method, UndoUse},
        read::{BlockBuffers, BlockReader},
        work_dir::WorkDir,
    },
};
use ::hints::{HintInfo, HintReader};
use api::{
    error::Error,
    event::Event,
    machine,
    options::{ChainOptions, HintOptions},
    remedy::Remedy,
    report::{HintsReport, Trusted},
    stage::Stage,
    wrong_hint::WrongHint,
};
use chain::{
    blocks::{chain::Chain, files::Files},
    plan::planner::Plan,
};
use coins::{
    aggregate::{Aggregate, AggregateKey},
    hinted::OutPointSet,
};
use std::{ops::RangeInclusive, path::Path, sync::atomic::AtomicBool};
use wire::{BlockHash, Height, Network};

/// Result of `check_hints`.
#[derive(Clone, Debug)]
pub struct HintCheck {
    /// Properties of the hint file.
    pub info: HintInfo,
    /// Number of blocks with wrong hints.
    pub wrong_blocks: u64,
    pub first: Option<WrongHint>,
}

/// Returns the last block for which hints are used, and the use of undo data above it. Checks that the hints
/// belong to this chain, as far as the file records it.
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] for hints of another network, height or chain, and for a rebuild without
/// undo data whose scripts would have to be checked.
pub fn use_of(
    all: &ChainOptions,
    options: &HintOptions,
    info: &HintInfo,
    plan: &Plan,
) -> Result<(Height, UndoUse), Error> {
    let chain = &plan.chain;
    check_belongs_to(&options.file.name(), info, chain, all.params.network)?;
    let with_undo = !options.without_undo;
    let above = if with_undo { UndoUse::Required } else { Method::of(all.undo).undo_use(Height(u32::MAX)) };
    let undo_blocks = if above == UndoUse::Required { 0 } else { all.hooks.undo_blocks };
    let height = info.height.min(Height(chain.tip_height().0.saturating_sub(undo_blocks)));
    let is_trusted = height == Height(0) || plan.choice.assumed_valid_to.is_some_and(|valid| valid >= height);
    if !with_undo && !is_trusted {
        let detail = format!(
            "scripts cannot be checked without undo data, so all blocks up to height {height}, where \
             the hints are used, must be assumed valid; {}: two weeks of blocks above a block are needed",
            plan.choice
                .assumed_valid_to
                .map_or("none is".to_owned(), |valid| format!("only those up to height {valid} are"))
        );
        return Err(Error::usage(detail).with_remedies([Remedy::LaterAssumedBlock, Remedy::UseUndoData]));
    }
    Ok((height, above))
}

/// Returns the method of a rebuild with hints. Reads the blocks for which they are not used because undo data
/// is made.
///
/// # Errors
/// The errors of [`use_of`] and [`HintReader::verify`]; any I/O error.
pub fn method(
    work: &WorkDir<'_>,
    files: &Files<'_>,
    all: &ChainOptions,
    options: &HintOptions,
    reader: HintReader,
    plan: &Plan,
    interrupt: &AtomicBool,
) -> Result<Method, Error> {
    let (chain, end, with_undo) = (&plan.chain, reader.info().height, !options.without_undo);
    let (height, above) = use_of(all, options, reader.info(), plan)?;
    // A worker would find damage only after hours, and the space is calculated from what the footer says.
    reader.verify(interrupt)?;
    Error::check_interrupt(interrupt)?;
    let digest = reader.sha256()?;
    // The key is drawn now that hints and chain are fixed.
    let aggregate = Aggregate::new(options.aggregate, AggregateKey::new(machine::random()?));
    let spent_above = spent_by(files, chain, height.0 + 1..=end.0, interrupt)?;
    let hints = Some(reader);
    let mut method =
        Method::Hints(HintMatching { hints, aggregate, height, with_undo, digest, above, spent_above });
    if let Some(key) = checkpoint::saved_key(work, plan, checkpoint::settings(all, plan, &method))?
        && let Method::Hints(matching) = &mut method
    {
        matching.aggregate = Aggregate::new(options.aggregate, key);
    }
    Ok(method)
}

/// Returns what the blocks at these heights spend. Does not check that they are blocks of the chain: damage
/// is found when they are connected.
fn spent_by(
    files: &Files<'_>,
    chain: &Chain,
    heights: RangeInclusive<u32>,
    interrupt: &AtomicBool,
) -> Result<OutPointSet, Error> {
    let (key, mut spent, mut buffers) = (machine::random_key()?, Vec::new(), BlockBuffers::default());
    let reader = BlockReader::new(chain, files);
    for height in heights.map(Height) {
        Error::check_interrupt(interrupt)?;
        let located = reader.read(height, false, &mut buffers)?;
        let block = located.parse(buffers.block.bytes(), &mut buffers.arena)?;
        spent.extend(block.prevouts().map(|outpoint| OutPointSet::hash(key, &outpoint)));
    }
    Ok(OutPointSet::new(key, spent))
}

/// Checks that the hints in `file` can belong to a chain.
pub fn check_belongs_to(file: &Path, info: &HintInfo, chain: &Chain, network: Network) -> Result<(), Error> {
    let other = |what: String| Err(Error::usage(what).in_file(file, None));
    if info.network.is_some_and(|hinted| hinted != network) {
        return other(format!("these hints are for another network than {network}"));
    }
    if info.height > chain.tip_height() {
        let (hinted, actual) = (info.height, chain.tip_height());
        return other(format!("these hints reach to height {hinted}, but the chain ends at height {actual}"));
    }
    let actual = chain.block(info.height).hash;
    if info.block_hash.is_some_and(|hinted| hinted != actual) {
        return other(format!("these hints belong to another chain: block {} is {actual} here", info.height));
    }
    Ok(())
}

/// Matches the spends of a job's chain, and returns its coins by block.
pub fn coins_by_block<'a>(job: &Job<'a>, clock: &mut Clock) -> Result<CoinsByBlock<'a>, Error> {
    let matching = Job { method: &Method::of(job.options.undo), ..*job };
    matching.check_temporary_need()?;
    let matched = matching.match_spends(clock)?;
    let mut coins = CoinsByBlock::new(job, job.plan.chain.tip_height())?;
    matching.for_each_coin(matched, clock, |all| coins.add_all(all))?;
    job.watch.sink.event(Event::Started(Stage::Finish));
    Ok(coins)
}

/// Compares each hint of a file with the unspent outputs of its block.
///
/// # Errors
/// Those of [`coins_by_block`], and of reading the file.
pub fn compare(reader: &mut HintReader, job: &Job<'_>, clock: &mut Clock) -> Result<HintCheck, Error> {
    let (info, chain) = (reader.info().clone(), &job.plan.chain);
    let numbering = info.format.numbering();
    let mut check = HintCheck { info, wrong_blocks: 0, first: None };
    let mut hinted = Vec::new();
    coins_by_block(job, clock)?.for_each_block(job, numbering, false, &mut |height, _, unspent| {
        reader.block(height, &mut hinted)?;
        if hinted != unspent {
            check.wrong_blocks += 1;
            let hash = chain.block(height).hash;
            check.first = check.first.or_else(|| first_difference(&hinted, unspent, height, hash));
        }
        Ok(())
    })?;
    Ok(check)
}

fn first_difference(hinted: &[u32], unspent: &[u32], height: Height, hash: BlockHash) -> Option<WrongHint> {
    let at = hinted.iter().zip(unspent).take_while(|(a, b)| a == b).count();
    let wrong = |index, hinted_unspent| Some(WrongHint { height, hash, index, hinted_unspent });
    match (hinted.get(at), unspent.get(at)) {
        (Some(&hint), Some(&is)) if hint < is => wrong(hint, true),
        (Some(&hint), None) => wrong(hint, true),
        (_, Some(&is)) => wrong(is, false),
        (None, None) => None,
    }
}

/// Finds the first wrong hint of a file with which a rebuild has failed.
///
/// # Errors
/// The same errors as `check_hints`.
pub fn first_wrong(job: &Job<'_>, options: &HintOptions) -> Result<Option<WrongHint>, Error> {
    let mut reader = HintReader::open(job.work.disk(), &options.file.name(), options.format)?;
    // At the hints' last block, outputs that later blocks spend are still unspent.
    let end = reader.info().height;
    let cut = (end < job.plan.chain.tip_height()).then(|| job.plan.up_to(end));
    let job = &Job { plan: cut.as_ref().unwrap_or(job.plan), undo_sink: None, ..*job };
    Ok(compare(&mut reader, job, &mut Clock::start())?.first)
}

/// Returns the plan of a rebuild whose hints have failed: the same chain, with undo data for each of its
/// blocks.
///
/// # Errors
/// [`api::error::ErrorKind::Damaged`] if not all of this undo data is on disk.
pub fn plan_with_undo(job: &Job<'_>) -> Result<Plan, Error> {
    let end = Some(job.plan.chain.tip().hash);
    let request = ChainRequest { end, ..ChainRequest::of(job.options) };
    job::plan(job.files, job.options, &request, job.watch.without_events())
}

/// What the report of a run says about its hints.
pub fn hints_report(options: &HintOptions, method: &Method) -> HintsReport {
    let (height, sha256) = match method {
        Method::Hints(matching) => (matching.height, matching.digest),
        Method::Join | Method::Routed { .. } => (Height(0), [0; 32]),
    };
    let trusted = if options.without_undo { Trusted::ALL } else { &[] };
    let (aggregate, with_undo) = (options.aggregate, !options.without_undo);
    HintsReport { height, aggregate, with_undo, sha256, trusted }
}

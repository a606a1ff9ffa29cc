//! Hint files: uses one in a rebuild, makes one, checks one against the chain, and converts one to another
//! format.

use crate::{
    api::{
        error::{Error, ErrorKind},
        event::{Event, EventSink},
        machine,
        note::WrongHint,
        options::{ChainOptions, CheckHintsOptions, HintOptions, MakeOptions},
        remedy::Remedy,
        report::HintsReport,
        stage::Stage,
    },
    blocks::{chain::Chain, files::Files},
    commands::output_positions::PositionSorter,
    job::{
        self, ChainPreferences, Job, MatchedCoins, checkpoint,
        clock::Clock,
        memory::MemoryBudget,
        read_only_job::{JobRequest, with_read_only_job},
        session::Session,
    },
    plan::{chain_request::HintsEnd, planner::Plan},
    stages::{
        coin_sink::{CoinSink as _, Coins},
        method::{HintMatching, Method},
        read::read_block,
        unspent::ForEachError,
        work_dir::WorkDir,
    },
};
use ::hints::{HintFormat, HintInfo, HintReader, HintWriter, Numbering, renumber};
use coins::aggregate::{Aggregate, AggregateKey};
use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};
use vfs::{Disk, During as _};
use wire::{BlockArena, BlockHash, Height, Network, script::is_unspendable};

/// Result of [`check_hints`].
#[derive(Clone, Debug)]
pub struct HintCheck {
    /// Properties of the hint file.
    pub info: HintInfo,
    /// Number of blocks with wrong hints.
    pub wrong_blocks: u64,
    /// The first wrong hint.
    pub first: Option<WrongHint>,
}

/// Opens hints for a rebuild, before the chain is chosen, because the choice depends on them.
///
/// # Errors
/// [`ErrorKind::Damaged`] if the file has no known format; any I/O error.
pub fn open(disk: &dyn Disk, options: &HintOptions) -> Result<HintReader, Error> {
    Ok(HintReader::open(disk, &options.file, options.format)?)
}

/// Returns the last block that the hints cover.
#[must_use]
pub fn end(reader: &HintReader) -> HintsEnd {
    HintsEnd { height: reader.info().height, hash: reader.info().block_hash }
}

/// Returns the method of a rebuild with hints, after checking that they belong to this chain, as far as the
/// file records it.
///
/// # Errors
/// [`ErrorKind::Usage`] for hints of another network, height or chain, and for a rebuild without undo data
/// whose scripts would have to be checked; any I/O error.
pub fn method(
    work: &WorkDir<'_>,
    all: &ChainOptions,
    options: &HintOptions,
    reader: HintReader,
    plan: &Plan,
) -> Result<Method, Error> {
    let height = reader.info().height;
    check_belongs_to(reader.info(), &plan.chain, all.network)
        .map_err(|error| error.in_file(&options.file, None))?;
    if options.without_undo && plan.assumed_valid_to.is_none_or(|valid| valid < height) {
        let detail = format!(
            "scripts cannot be checked without undo data, but those above {} must be, and the hints reach \
             to height {height}",
            plan.assumed_valid_to.map_or("genesis".to_owned(), |valid| format!("height {valid}"))
        );
        return Err(Error::new(ErrorKind::Usage, detail)
            .with_remedies([Remedy::LaterAssumedBlock, Remedy::UseUndoData]));
    }
    let digest = reader.sha256()?;
    // The key is drawn now that hints and chain are fixed.
    let aggregate = Aggregate::new(options.aggregate, AggregateKey::new(machine::random()?));
    let with_undo = !options.without_undo;
    let mut method =
        Method::Hints(HintMatching { hints: Some(reader), aggregate, height, with_undo, digest });
    if let Some(key) = checkpoint::saved_key(work, &checkpoint::settings(all, &plan.chain, &method))?
        && let Method::Hints(job) = &mut method
    {
        job.aggregate = Aggregate::new(options.aggregate, key);
    }
    Ok(method)
}

/// Checks that the hints can belong to a chain.
fn check_belongs_to(info: &HintInfo, chain: &Chain, network: Network) -> Result<(), Error> {
    let other = |what: String| Err(Error::new(ErrorKind::Usage, what));
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

/// Opens a hint file, reads all of it, and returns its properties.
///
/// # Errors
/// [`ErrorKind::Damaged`] if the file has no known format or is incomplete.
pub fn hints_info(disk: &dyn Disk, path: &Path, format: Option<HintFormat>) -> Result<HintInfo, Error> {
    let reader = HintReader::open(disk, path, format)?;
    reader.verify()?;
    Ok(reader.info().clone())
}

/// Makes hints for the chain in `options`, as of its last block.
///
/// # Errors
/// The same errors as [`crate::reindex()`]; nothing is left at `path` then.
pub fn make_hints(
    disk: &dyn Disk,
    options: &MakeOptions,
    path: &Path,
    format: HintFormat,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<HintInfo, Error> {
    require_absent(disk, path)?;
    with_positions(
        disk,
        options.request(path, &Method::Join),
        format.numbering(),
        (sink, interrupt),
        |files, plan, each_block| {
            let (height, hash) = (plan.chain.tip_height(), plan.chain.tip().hash);
            let mut writer = HintWriter::create(disk, path, format, Some(files.network), height, Some(hash))?;
            each_block(&mut |_, outputs, unspent| Ok(writer.push_block(Some(outputs), unspent)?))?;
            Ok(writer.finish()?)
        },
    )
}

/// Returns an error if a file exists at `path`.
fn require_absent(disk: &dyn Disk, path: &Path) -> Result<(), Error> {
    if disk.exists(path).during("look for", path)? {
        let error = Error::new(ErrorKind::Usage, "a file exists there already");
        return Err(error.in_file(path, None).with_remedies([Remedy::OtherName]));
    }
    Ok(())
}

/// Compares each hint of a file with the chain.
///
/// # Errors
/// The same errors as [`crate::reindex()`]. Wrong hints are no error; the result reports them.
pub fn check_hints(
    disk: &dyn Disk,
    options: &CheckHintsOptions,
    path: &Path,
    format: Option<HintFormat>,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<HintCheck, Error> {
    let mut reader = HintReader::open(disk, path, format)?;
    let info = reader.info().clone();
    let CheckHintsOptions { chain, scan } = options;
    let (scan, stop_at_height, method) = (*scan, Some(info.height), &Method::Join);
    let undo_sink = None;
    let request = JobRequest { chain, scan, stop_at_height, result: None, method, undo_sink };
    with_positions(disk, request, info.numbering, (sink, interrupt), |files, plan, each_block| {
        check_belongs_to(&info, &plan.chain, files.network).map_err(|error| error.in_file(path, None))?;
        compare(&mut reader, &plan.chain, each_block)
    })
}

/// Callback for each block from height 1 on: height, number of outputs, and indices of the unspent ones.
type ForEachBlock<'a> = dyn FnMut(Height, u32, &[u32]) -> Result<(), Error> + 'a;

fn compare(
    reader: &mut HintReader,
    chain: &Chain,
    each_block: &mut dyn FnMut(&mut ForEachBlock<'_>) -> Result<(), Error>,
) -> Result<HintCheck, Error> {
    let mut check = HintCheck { info: reader.info().clone(), wrong_blocks: 0, first: None };
    let mut hinted = Vec::new();
    each_block(&mut |height, _, unspent| {
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
/// The same errors as [`check_hints`].
pub fn first_wrong(job: &Job<'_>, options: &HintOptions) -> Result<Option<WrongHint>, Error> {
    let mut reader = HintReader::open(job.work.disk(), &options.file, options.format)?;
    let info = reader.info().clone();
    // The hints count outputs as unspent that blocks above their last one spend.
    let stop_at_height = Some(info.height);
    let preferences = ChainPreferences { scan: job.scan, stop_at_height, ..ChainPreferences::default() };
    let plan = &job::plan(job.files, job.options, &preferences, &|_| {}, job.interrupt)?;
    let budget = MemoryBudget::after_plan(job.options, plan.chain.block_count());
    let job = &Job { plan, budget, ..*job };
    let check = with_sorted_positions(job, info.numbering, &mut Clock::start(), |each_block| {
        compare(&mut reader, &plan.chain, each_block)
    })?;
    Ok(check.first)
}

/// Returns the plan of a rebuild whose hints have failed: the same chain, with undo data for each of its
/// blocks.
///
/// # Errors
/// [`ErrorKind::Damaged`] if not all of this undo data is on disk.
pub fn plan_with_undo(job: &Job<'_>) -> Result<Plan, Error> {
    let tip = job.plan.chain.tip();
    let stop_at_height = Some(job.plan.chain.tip_height());
    let preferences = ChainPreferences {
        scan: job.scan,
        stop_at_height,
        preferred: Some(tip.hash),
        ..ChainPreferences::default()
    };
    let plan = job::plan(job.files, job.options, &preferences, &|_| {}, job.interrupt)?;
    if plan.chain.tip().hash == tip.hash {
        return Ok(plan);
    }
    let detail = "the hints have failed, and the best chain with undo data for all blocks is another one";
    Err(Error::damaged(detail)
        .at_block(job.plan.chain.tip_height(), tip.hash)
        .with_remedies([Remedy::WithoutHints]))
}

/// Calls `work` with the positions of a datadir's unspent outputs.
fn with_positions<T>(
    disk: &dyn Disk,
    request: JobRequest<'_>,
    numbering: Numbering,
    watch: (&dyn EventSink, &AtomicBool),
    mut work: impl FnMut(
        &Files<'_>,
        &Plan,
        &mut dyn FnMut(&mut ForEachBlock<'_>) -> Result<(), Error>,
    ) -> Result<T, Error>,
) -> Result<T, Error> {
    with_read_only_job(disk, request, watch, |job, clock| {
        with_sorted_positions(job, numbering, clock, |each_block| work(job.files, job.plan, each_block))
    })
}

/// Matches the spends of a chain by output position, and calls `work` with the unspent positions.
fn with_sorted_positions<T>(
    job: &Job<'_>,
    numbering: Numbering,
    clock: &mut Clock,
    work: impl FnOnce(&mut dyn FnMut(&mut ForEachBlock<'_>) -> Result<(), Error>) -> Result<T, Error>,
) -> Result<T, Error> {
    let job = Job { method: &Method::Positions(numbering), ..*job };
    let MatchedCoins { unspent, stats } = job.match_positions(clock)?;
    job.sink.event(Event::Started(Stage::Finish));
    let coins = Coins::new(unspent, job.interrupt);
    let mut sorted = PositionSorter(&job).consume(coins).map_err(ForEachError::without_fallback)?;
    let mut each_block = |each: &mut ForEachBlock<'_>| {
        let mut unspent = Vec::new();
        for (height, outputs) in stats.outputs.iter().enumerate().skip(1) {
            if job.interrupt.load(Ordering::Relaxed) {
                return Err(Error::interrupted());
            }
            unspent.clear();
            sorted.take_block(height as u32, &mut unspent)?;
            each(Height(height as u32), *outputs, &unspent)?;
        }
        Ok(())
    };
    work(&mut each_block)
}

/// Writes hints in another format, to a path where no file exists. If the two formats number outputs
/// differently, or the new one needs the number of outputs, the blocks of `datadir` provide it.
///
/// # Errors
/// [`ErrorKind::Usage`] if a file exists at `to`, or blocks are needed and no datadir is given;
/// [`ErrorKind::Hints`] if the hints cannot belong to the blocks; damage.
pub fn convert_hints(
    disk: &dyn Disk,
    (from, from_format): (&Path, Option<HintFormat>),
    (to, to_format): (&Path, HintFormat),
    datadir: Option<(&Path, Network)>,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<HintInfo, Error> {
    require_absent(disk, to)?;
    let mut reader = HintReader::open(disk, from, from_format)?;
    let info = reader.info().clone();
    let needs_blocks = info.numbering != to_format.numbering()
        || to_format.numbering() == Numbering::AllOutputs && info.outputs.is_none();
    let mut unspent = Vec::new();
    let Some((datadir, network)) = datadir else {
        let needs_hash = to_format == HintFormat::SwiftSync2140 && info.block_hash.is_none();
        if needs_blocks || needs_hash {
            let detail = format!("{} files do not contain everything that {to_format} needs", info.format);
            return Err(Error::new(ErrorKind::Usage, detail)
                .in_file(from, None)
                .with_remedies([Remedy::GiveDatadir]));
        }
        let mut writer = HintWriter::create(disk, to, to_format, info.network, info.height, info.block_hash)?;
        while reader.next_block(&mut unspent)?.is_some() {
            if interrupt.load(Ordering::Relaxed) {
                return Err(Error::interrupted());
            }
            writer.push_block(reader.outputs(), &unspent)?;
        }
        return Ok(writer.finish()?);
    };
    let session = Session::open_for_reading(disk, datadir, network, sink)?;
    let files = &session.files()?;
    let preferences = ChainPreferences { stop_at_height: Some(info.height), ..ChainPreferences::default() };
    let chain = &job::plan(files, &ChainOptions::new(datadir, network), &preferences, sink, interrupt)?.chain;
    check_belongs_to(&info, chain, files.network).map_err(|error| error.in_file(from, None))?;
    let hash = Some(chain.tip().hash);
    let mut writer = HintWriter::create(disk, to, to_format, Some(files.network), info.height, hash)?;
    let mut arena = BlockArena::default();
    while let Some(height) = reader.next_block(&mut unspent)? {
        if interrupt.load(Ordering::Relaxed) {
            return Err(Error::interrupted());
        }
        let raw = read_block(chain, files, height, false)?;
        let block = raw.parse(&mut arena)?;
        let spendable =
            || block.txs().flat_map(|tx| tx.outputs()).map(|output| !is_unspendable(output.script_pubkey()));
        renumber(&mut unspent, info.numbering, to_format.numbering(), spendable()).map_err(|error| {
            let hash = chain.block(height).hash;
            Error::new(ErrorKind::Hints, error.to_string())
                .at_block(height, hash)
                .in_file(from, None)
                .caused_by(error)
        })?;
        let all = to_format.numbering() == Numbering::AllOutputs;
        let outputs = spendable().filter(|&is| all || is).count();
        writer.push_block(Some(outputs as u32), &unspent)?;
    }
    Ok(writer.finish()?)
}

impl HintsReport {
    pub(crate) fn new(options: &HintOptions, method: &Method) -> Self {
        let height = match method {
            Method::Hints(run) => run.height,
            Method::Join | Method::Positions(_) | Method::Routed { .. } => Height(0),
        };
        Self { height, aggregate: options.aggregate, with_undo: !options.without_undo }
    }
}

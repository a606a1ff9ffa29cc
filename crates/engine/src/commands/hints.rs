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
    commands::unspent_outputs::{CoinsByBlock, ForEachBlock, UnspentPositions},
    job::{
        self, ChainPreferences, Job, checkpoint,
        clock::Clock,
        hint_copy::with_plain_file,
        memory::MemoryBudget,
        read_only_job::{JobRequest, with_read_only_job},
        session::Session,
    },
    plan::{chain_request::HintsEnd, planner::Plan},
    stages::{
        method::{HintMatching, Method, UndoUse},
        read::read_block,
        work_dir::WorkDir,
    },
};
use ::hints::{
    HintFormat, HintInfo, HintReader, HintWriter, Numbering,
    packed::{self, PackedFile},
    pinned::Pinned,
    renumber,
};
use coins::aggregate::{Aggregate, AggregateKey};
use disk::{
    chainstate::{ChainstateReader, CoinCursor},
    snapshot::SnapshotReader,
};
use std::{
    collections::HashSet,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};
use vfs::{Disk, During as _};
use wire::{BlockArena, BlockHash, Coin, Height, Network, OutPoint, script::is_unspendable};

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

/// Returns the last block for which hints are used, and the use of undo data above it. Checks that the hints
/// belong to this chain, as far as the file records it.
///
/// # Errors
/// [`ErrorKind::Usage`] for hints of another network, height or chain, and for a rebuild without undo data
/// whose scripts would have to be checked.
pub fn use_of(
    all: &ChainOptions,
    options: &HintOptions,
    info: &HintInfo,
    plan: &Plan,
) -> Result<(Height, UndoUse), Error> {
    let chain = &plan.chain;
    check_belongs_to(info, chain, all.params.network).map_err(|error| error.in_file(&options.file, None))?;
    let with_undo = !options.without_undo;
    let above = if with_undo { UndoUse::Required } else { Method::of(all.undo).undo_use(Height(u32::MAX)) };
    let undo_blocks = if above == UndoUse::Required { 0 } else { all.hooks.undo_blocks };
    let height = info.height.min(Height(chain.tip_height().0.saturating_sub(undo_blocks)));
    let is_trusted = height == Height(0) || plan.assumed_valid_to.is_some_and(|valid| valid >= height);
    if !with_undo && !is_trusted {
        let detail = format!(
            "scripts cannot be checked without undo data, so all blocks up to height {height}, where \
             the hints end, must be assumed valid; {}",
            plan.assumed_valid_to.map_or("none is".to_owned(), |valid| format!(
                "only those up to height {valid} are: two weeks of blocks above a block are needed"
            ))
        );
        return Err(Error::new(ErrorKind::Usage, detail)
            .with_remedies([Remedy::LaterAssumedBlock, Remedy::UseUndoData]));
    }
    Ok((height, above))
}

/// Returns the method of a rebuild with hints. Reads the blocks for which they are not used because undo data
/// is made.
///
/// # Errors
/// The errors of [`use_of`]; any I/O error.
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
    let digest = reader.sha256()?;
    // The key is drawn now that hints and chain are fixed.
    let aggregate = Aggregate::new(options.aggregate, AggregateKey::new(machine::random()?));
    let spent_above = spent_by(files, chain, height.0 + 1..=end.0, interrupt)?;
    let hints = Some(reader);
    let mut method =
        Method::Hints(HintMatching { hints, aggregate, height, with_undo, digest, above, spent_above });
    if let Some(key) = checkpoint::saved_key(work, &checkpoint::settings(all, plan, &method))?
        && let Method::Hints(job) = &mut method
    {
        job.aggregate = Aggregate::new(options.aggregate, key);
    }
    Ok(method)
}

/// Returns what the blocks at these heights spend. Whether they are those of the chain is not checked: that
/// they are damaged, if so, is found when they are connected.
fn spent_by(
    files: &Files<'_>,
    chain: &Chain,
    heights: RangeInclusive<u32>,
    interrupt: &AtomicBool,
) -> Result<HashSet<OutPoint>, Error> {
    let (mut spent, mut arena) = (HashSet::new(), BlockArena::default());
    for height in heights.map(Height) {
        if interrupt.load(Ordering::Relaxed) {
            return Err(Error::interrupted());
        }
        let raw = read_block(chain, files, height, false)?;
        let inputs = raw.parse(&mut arena)?.txs().skip(1).flat_map(|tx| tx.inputs());
        spent.extend(inputs.map(|input| input.prevout()));
    }
    spent.shrink_to_fit();
    Ok(spent)
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

/// A hint file: what is in it, and its digests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HintFileInfo {
    /// The hints.
    pub hints: HintInfo,
    /// The SHA-256 of the file when it is not packed. A checkpoint is bound to it.
    pub sha256: [u8; 32],
    /// Whether that is the digest of a published file.
    pub pinned: Pinned,
    /// The file as it is, if it is packed.
    pub packed: Option<PackedFile>,
}

/// Opens a hint file, which may be packed, reads all of it, and returns its properties. A packed file is
/// unpacked to the system's folder for temporary files.
///
/// # Errors
/// [`ErrorKind::Damaged`] if the file has no known format or is incomplete.
pub fn hints_info(disk: &dyn Disk, path: &Path, format: Option<HintFormat>) -> Result<HintFileInfo, Error> {
    let hints = with_plain_file(disk, path, None, &AtomicBool::new(false), |plain| {
        let reader = HintReader::open(disk, plain, format)?;
        reader.verify()?;
        Ok(reader.info().clone())
    })?;
    describe_hints(disk, path, hints)
}

/// Adds the digests of the file at `path`, which has these hints.
///
/// # Errors
/// Any I/O error; [`ErrorKind::Damaged`] if the file cannot be unpacked.
pub fn describe_hints(disk: &dyn Disk, path: &Path, hints: HintInfo) -> Result<HintFileInfo, Error> {
    let (sha256, packed) = packed::digests(disk, path)?;
    let pinned = Pinned::find(hints.network, &sha256);
    Ok(HintFileInfo { hints, sha256, pinned, packed })
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
        options.request(path, &Method::of(options.chain.undo)),
        format.numbering(),
        (sink, interrupt),
        |files, plan, each_block| {
            let (height, hash) = (plan.chain.tip_height(), plan.chain.tip().hash);
            let mut writer =
                HintWriter::create(disk, path, format, Some(files.params.network), height, Some(hash))?;
            each_block(&mut |_, outputs, unspent| Ok(writer.push_block(Some(outputs), unspent)?))?;
            Ok(writer.finish()?)
        },
    )
}

/// Coins on disk, of which hints can be made without matching spends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CoinSource {
    /// A snapshot.
    Snapshot(PathBuf),
    /// The chainstate of the datadir.
    Chainstate,
}

/// Makes hints for the block that the coins of a snapshot or a chainstate belong to. The blocks are read
/// once, to find each coin among the outputs of its block. Whether the coins are all coins of that block is
/// not checked: hints that lack some, or contain spent ones, are wrong.
///
/// # Errors
/// [`ErrorKind::Usage`] if the block is not in the chain in `options`, or not at the height of its last
/// block; [`ErrorKind::Damaged`] if a coin is not an output of its block; otherwise the same errors as
/// [`make_hints`].
pub fn make_hints_from_coins(
    disk: &dyn Disk,
    options: &MakeOptions,
    source: &CoinSource,
    (path, format): (&Path, HintFormat),
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<HintInfo, Error> {
    require_absent(disk, path)?;
    let MakeOptions { chain: options, stop_at_height, scan, .. } = options;
    if let CoinSource::Snapshot(file) = source {
        let reader = SnapshotReader::open(disk, file)?;
        if reader.metadata().magic != options.params.magic {
            let (snapshot, datadir) = (reader.metadata().network(), options.params.network);
            let detail = format!("the snapshot is for the network {snapshot}, the datadir for {datadir}");
            return Err(Error::new(ErrorKind::Usage, detail).in_file(file, None));
        }
    }
    // No undo data is used, and none is made.
    let method = &Method::Routed { uses_undo: false };
    let request = JobRequest {
        chain: options,
        scan: *scan,
        stop_at_height: None,
        result: None,
        method,
        undo_sink: None,
    };
    with_read_only_job(disk, request, (sink, interrupt), |job, _| {
        let write = |file: &Path, coins: CoinReader<'_>| {
            write_hints_of(job, (file, coins), *stop_at_height, format.numbering(), |height, hash| {
                Ok(HintWriter::create(disk, path, format, Some(options.params.network), height, Some(hash))?)
            })
        };
        match source {
            CoinSource::Snapshot(file) => write(file, CoinReader::snapshot(disk, file)?),
            CoinSource::Chainstate => {
                let chainstate = ChainstateReader::open(disk, &job.files.datadir.chainstate_dir())?;
                let coins = CoinReader::Chainstate(chainstate.coins()?, chainstate.best_block());
                write(chainstate.dir(), coins)
            }
        }
    })
}

/// Coins in key order, and the block that they belong to.
enum CoinReader<'a> {
    Snapshot(SnapshotReader),
    Chainstate(CoinCursor<'a>, BlockHash),
}

impl CoinReader<'_> {
    fn snapshot(disk: &dyn Disk, file: &Path) -> Result<Self, Error> {
        Ok(Self::Snapshot(SnapshotReader::open(disk, file)?))
    }

    fn block(&self) -> BlockHash {
        match self {
            Self::Snapshot(reader) => reader.metadata().base_block,
            Self::Chainstate(_, block) => *block,
        }
    }

    fn advance(&mut self) -> Result<Option<(OutPoint, Coin<'_>)>, Error> {
        Ok(match self {
            Self::Snapshot(reader) => reader.advance()?,
            Self::Chainstate(cursor, _) => cursor.advance()?,
        })
    }
}

/// Writes the hints that coins on disk amount to; `file` is named in errors.
fn write_hints_of<'d>(
    job: &Job<'_>,
    (file, mut coins): (&Path, CoinReader<'_>),
    wanted: Option<Height>,
    numbering: Numbering,
    create: impl FnOnce(Height, BlockHash) -> Result<HintWriter<'d>, Error>,
) -> Result<HintInfo, Error> {
    let (chain, hash) = (&job.plan.chain, coins.block());
    let usage = |detail: String| Error::new(ErrorKind::Usage, detail).in_file(file, None);
    let end = (0..=chain.tip_height().0).map(Height).find(|&height| chain.block(height).hash == hash);
    let end = end.ok_or_else(|| {
        usage(format!("its coins are those of block {hash}, which is not in the most-work chain on disk"))
    })?;
    if let Some(wanted) = wanted.filter(|&wanted| wanted != end) {
        return Err(usage(format!("its coins are those of height {end}, not {wanted}")));
    }
    let mut by_block = CoinsByBlock::new(job, end)?;
    let other_blocks = |mut error: Error| {
        if error.kind == ErrorKind::Damaged && error.file.is_none() {
            error.detail = format!("these coins do not belong to these blocks: {}", error.detail);
            error = error.in_file(file, None);
        }
        error
    };
    while let Some((outpoint, coin)) = coins.advance()? {
        by_block.add(&outpoint, &coin).map_err(other_blocks)?;
    }
    drop(coins);
    job.sink.event(Event::Started(Stage::Finish));
    let mut writer = create(end, hash)?;
    by_block
        .for_each_block(job, numbering, true, &mut |_, outputs, unspent| {
            Ok(writer.push_block(Some(outputs), unspent)?)
        })
        .map_err(other_blocks)?;
    Ok(writer.finish()?)
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
    let CheckHintsOptions { chain, scan } = options;
    with_plain_file(disk, path, chain.work_dir.as_deref(), interrupt, |path| {
        let mut reader = HintReader::open(disk, path, format)?;
        let info = reader.info().clone();
        let (scan, stop_at_height, method) = (*scan, Some(info.height), &Method::of(chain.undo));
        let undo_sink = None;
        let request = JobRequest { chain, scan, stop_at_height, result: None, method, undo_sink };
        with_positions(disk, request, info.numbering, (sink, interrupt), |files, plan, each_block| {
            check_belongs_to(&info, &plan.chain, files.params.network)
                .map_err(|error| error.in_file(path, None))?;
            compare(&mut reader, &plan.chain, each_block)
        })
    })
}

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
    let (scan, makes_undo) = (job.scan, job.method.makes_undo());
    let preferences = ChainPreferences { scan, stop_at_height, makes_undo, ..ChainPreferences::default() };
    let plan = &job::plan(job.files, job.options, &preferences, &|_| {}, job.interrupt)?;
    let budget = MemoryBudget::after_plan(job.options, plan.chain.block_count());
    let job = &Job { plan, budget, undo_sink: None, ..*job };
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

/// Matches the spends of a chain, and calls `work` with the positions of its unspent outputs.
fn with_sorted_positions<T>(
    job: &Job<'_>,
    numbering: Numbering,
    clock: &mut Clock,
    work: impl FnOnce(&mut dyn FnMut(&mut ForEachBlock<'_>) -> Result<(), Error>) -> Result<T, Error>,
) -> Result<T, Error> {
    let unspent = job.with_undo_or_without(
        clock,
        |by_position, clock| {
            let unspent = UnspentPositions::of(by_position, job, numbering, clock)?;
            Ok(UnspentOutputs::Positions(unspent))
        },
        |routed, clock| {
            let matched = routed.match_spends(clock)?;
            let mut coins = CoinsByBlock::new(job, job.plan.chain.tip_height())?;
            routed.for_each_coin(matched, clock, &mut coins)?;
            Ok(UnspentOutputs::Coins(coins))
        },
    )?;
    job.sink.event(Event::Started(Stage::Finish));
    let mut unspent = Some(unspent);
    work(&mut |each| match unspent.take() {
        Some(UnspentOutputs::Positions(unspent)) => unspent.for_each_block(job, each),
        Some(UnspentOutputs::Coins(coins)) => coins.for_each_block(job, numbering, false, each),
        None => Err(Error::panicked()),
    })
}

/// What is known about the unspent outputs.
enum UnspentOutputs<'a> {
    Positions(UnspentPositions<'a>),
    Coins(CoinsByBlock<'a>),
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
    to: (&Path, HintFormat),
    datadir: Option<&ChainOptions>,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<HintInfo, Error> {
    require_absent(disk, to.0)?;
    with_plain_file(disk, from, None, interrupt, |from| {
        convert_plain(disk, (from, from_format), to, datadir, sink, interrupt)
    })
}

/// Like [`convert_hints`], for a file that is not packed.
fn convert_plain(
    disk: &dyn Disk,
    (from, from_format): (&Path, Option<HintFormat>),
    (to, to_format): (&Path, HintFormat),
    datadir: Option<&ChainOptions>,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<HintInfo, Error> {
    let mut reader = HintReader::open(disk, from, from_format)?;
    let info = reader.info().clone();
    let needs_blocks = info.numbering != to_format.numbering()
        || to_format.numbering() == Numbering::AllOutputs && info.outputs.is_none();
    let mut unspent = Vec::new();
    let Some(options) = datadir else {
        let needs_hash = to_format == HintFormat::SwiftSync2140 && info.block_hash.is_none();
        if needs_blocks || needs_hash {
            let detail = format!(
                "{to_format} needs the number of outputs of every block, or the hash of the last one, \
                 which this {} file lacks",
                info.format
            );
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
    let session = Session::open_for_reading(disk, options, sink)?;
    let files = &session.files()?;
    let preferences = ChainPreferences { stop_at_height: Some(info.height), ..ChainPreferences::default() };
    let chain = &job::plan(files, options, &preferences, sink, interrupt)?.chain;
    check_belongs_to(&info, chain, files.params.network).map_err(|error| error.in_file(from, None))?;
    let hash = Some(chain.tip().hash);
    let mut writer = HintWriter::create(disk, to, to_format, Some(files.params.network), info.height, hash)?;
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
    pub(crate) fn new(options: &HintOptions, method: &Method, network: Network) -> Self {
        let (height, sha256) = match method {
            Method::Hints(run) => (run.height, run.digest),
            Method::Join | Method::Positions(_) | Method::Routed { .. } => (Height(0), [0; 32]),
        };
        let pinned = Pinned::find(Some(network), &sha256);
        Self { height, aggregate: options.aggregate, with_undo: !options.without_undo, sha256, pinned }
    }
}

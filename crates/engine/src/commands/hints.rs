//! Hint files: makes one, checks one against the chain, and converts one to another format.

pub use ::hints::{
    HintFormat, HintInfo, Numbering,
    packed::{PackedFile, Packing},
};
pub use api::{options::HintOptions, wrong_hint::WrongHint};
pub use coins::aggregate::AggregateKind;
pub use pipeline::job::hints::HintCheck;

use ::hints::{HintReader, HintWriter, packed, renumber};
use api::{
    error::{Error, ErrorKind},
    event::{Event, Watch},
    options::{ChainOptions, UndoPolicy},
    remedy::Remedy,
    stage::Stage,
};
use chain::session::Session;
use disk::{
    chainstate::ChainstateReader,
    snapshot::{SnapshotMetadata, SnapshotReader},
};
use pipeline::{
    job::{
        self, ChainRequest, Job,
        hint_copy::with_plain_file,
        hints::{check_belongs_to, coins_by_block, compare},
        read_only_job::{require_absent, with_read_only_job},
        unspent_outputs::CoinsByBlock,
    },
    stages::{
        coin_reader::{CoinReader, each_coin, other_network},
        read::{BlockBuffers, BlockReader},
    },
};
use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};
use vfs::Disk;
use wire::{BlockHash, Height, script::is_unspendable};

/// A hint file: what is in it, and its digests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HintFileInfo {
    /// The hints.
    pub hints: HintInfo,
    /// The SHA-256 of the file when it is not packed. A checkpoint is bound to it.
    pub sha256: [u8; 32],
    /// The file as it is, if it is packed.
    pub packed: Option<PackedFile>,
}

/// Opens a hint file, which may be packed, reads all of it, and returns its properties. A packed file is
/// unpacked to the system's folder for temporary files.
///
/// # Errors
/// [`ErrorKind::Damaged`] if the file has no known format or is incomplete.
pub fn info(disk: &dyn Disk, path: &Path, format: Option<HintFormat>) -> Result<HintFileInfo, Error> {
    let never = &AtomicBool::new(false);
    let hints = with_plain_file(disk, path, None, never, |plain| {
        let reader = HintReader::open(disk, plain, format)?;
        reader.verify(never)?;
        Ok(reader.info().clone())
    })?;
    describe(disk, path, hints)
}

/// Adds the digests of the file at `path`, which has these hints.
///
/// # Errors
/// Any I/O error; [`ErrorKind::Damaged`] if the file cannot be unpacked.
pub fn describe(disk: &dyn Disk, path: &Path, hints: HintInfo) -> Result<HintFileInfo, Error> {
    let (sha256, packed) = packed::digests(disk, path)?;
    Ok(HintFileInfo { hints, sha256, packed })
}

/// Makes hints for the chain in `options`, as of its last block.
///
/// # Errors
/// The same errors as [`crate::reindex()`]; nothing is left at `path` then.
pub fn make(
    disk: &dyn Disk,
    options: &ChainOptions,
    path: &Path,
    format: HintFormat,
    watch: Watch<'_>,
) -> Result<HintInfo, Error> {
    require_absent(disk, path)?;
    with_read_only_job(disk, options, Some(path), watch, |job, clock| {
        let coins = coins_by_block(job, clock)?;
        let (height, hash) = (job.plan.chain.tip_height(), job.plan.chain.tip().hash);
        let network = Some(job.files.params.network);
        let mut writer = HintWriter::create(disk, path, format, network, height, Some(hash))?;
        coins.for_each_block(job, format.numbering(), false, &mut |_, outputs, unspent| {
            Ok(writer.push_block(Some(outputs), unspent)?)
        })?;
        Ok(writer.finish()?)
    })
}

/// Coins on disk, from which hints can be made without matching spends.
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
/// [`make()`].
pub fn make_from_coins(
    disk: &dyn Disk,
    options: &ChainOptions,
    source: &CoinSource,
    path: &Path,
    format: HintFormat,
    watch: Watch<'_>,
) -> Result<HintInfo, Error> {
    require_absent(disk, path)?;
    if let CoinSource::Snapshot(file) = source {
        let reader = SnapshotReader::open(disk, file)?;
        if reader.metadata().magic != options.params.magic {
            return Err(other_network(reader.metadata(), options.params).in_file(file, None));
        }
    }
    // No undo data is used, and none is made.
    let whole = &ChainOptions { stop_at_height: None, undo: UndoPolicy::Make, ..options.clone() };
    with_read_only_job(disk, whole, None, watch, |job, _| {
        let write = |file: &Path, block, metadata, coins: &mut dyn CoinReader| {
            let end = end_of(job, (file, block, metadata), options.stop_at_height)?;
            let network = Some(options.params.network);
            let create = || Ok(HintWriter::create(disk, path, format, network, end, Some(block))?);
            let coins = (file, coins, metadata.map_or(0, |metadata| metadata.coins));
            write_hints_of(job, coins, end, format.numbering(), create)
        };
        match source {
            CoinSource::Snapshot(file) => {
                let mut reader = SnapshotReader::open(disk, file)?;
                let metadata = *reader.metadata();
                write(file, metadata.base_block, Some(metadata), &mut reader)
            }
            CoinSource::Chainstate => {
                let chainstate = ChainstateReader::open(disk, &job.files.datadir.chainstate_dir())?;
                write(chainstate.dir(), chainstate.best_block(), None, &mut chainstate.coins()?)
            }
        }
    })
}

/// Returns the height of the block that the coins in a file belong to; `metadata` is that of a snapshot.
fn end_of(
    job: &Job<'_>,
    (file, block, metadata): (&Path, BlockHash, Option<SnapshotMetadata>),
    wanted: Option<Height>,
) -> Result<Height, Error> {
    let chain = &job.plan.chain;
    let usage = |detail: String| Error::usage(detail).in_file(file, None);
    let end = (0..=chain.tip_height().0).map(Height).find(|&height| chain.block(height).hash == block);
    let end = end.ok_or_else(|| {
        usage(format!("its coins are those of block {block}, which is not in the most-work chain on disk"))
    })?;
    metadata.map_or(Ok(()), |metadata| metadata.check_height(file, end))?;
    match wanted.filter(|&wanted| wanted != end) {
        Some(wanted) => Err(usage(format!("its coins are those of height {end}, not {wanted}"))),
        None => Ok(end),
    }
}

/// Writes the hints for coins on disk, which are the coins after the block at height `end`; errors name
/// `file`, and `coins_total` is 0 if it is not known.
fn write_hints_of<'d>(
    job: &Job<'_>,
    (file, coins, coins_total): (&Path, &mut dyn CoinReader, u64),
    end: Height,
    numbering: Numbering,
    create: impl FnOnce() -> Result<HintWriter<'d>, Error>,
) -> Result<HintInfo, Error> {
    let mut by_block = CoinsByBlock::new(job, end)?;
    let other_blocks = |mut error: Error| {
        if error.kind == ErrorKind::Damaged && error.file.is_none() {
            error.detail = format!("these coins do not belong to these blocks: {}", error.detail);
            error = error.in_file(file, None);
        }
        error
    };
    job.watch.sink.event(Event::Started(Stage::Read));
    each_coin(coins, coins_total, job.watch, |outpoint, coin| {
        by_block.add(outpoint, coin).map_err(other_blocks)
    })?;
    job.watch.sink.event(Event::Started(Stage::Finish));
    let mut writer = create()?;
    by_block
        .for_each_block(job, numbering, true, &mut |_, outputs, unspent| {
            Ok(writer.push_block(Some(outputs), unspent)?)
        })
        .map_err(other_blocks)?;
    Ok(writer.finish()?)
}

/// Compares each hint of a file with the chain.
///
/// # Errors
/// The same errors as [`crate::reindex()`]. Wrong hints are no error; the result reports them.
pub fn check(
    disk: &dyn Disk,
    options: &ChainOptions,
    path: &Path,
    format: Option<HintFormat>,
    watch: Watch<'_>,
) -> Result<HintCheck, Error> {
    with_plain_file(disk, path, options.work_dir.as_deref(), watch.interrupt, |path| {
        let mut reader = HintReader::open(disk, path, format)?;
        reader.verify(watch.interrupt)?;
        Error::check_interrupt(watch.interrupt)?;
        let info = reader.info().clone();
        let options = &ChainOptions { stop_at_height: Some(info.height), ..options.clone() };
        with_read_only_job(disk, options, None, watch, |job, clock| {
            check_belongs_to(path, &info, &job.plan.chain, job.files.params.network)?;
            compare(&mut reader, job, clock)
        })
    })
}

/// Writes hints in another format, to a path where no file exists. If the two formats number outputs
/// differently, or the new one needs the number of outputs, the blocks of `datadir` provide it.
///
/// # Errors
/// [`ErrorKind::Usage`] if a file exists at `to`, or blocks are needed and no datadir is given;
/// [`ErrorKind::Hints`] if the hints cannot belong to the blocks; damage.
pub fn convert(
    disk: &dyn Disk,
    from: &Path,
    from_format: Option<HintFormat>,
    to: &Path,
    to_format: HintFormat,
    datadir: Option<&ChainOptions>,
    watch: Watch<'_>,
) -> Result<HintInfo, Error> {
    require_absent(disk, to)?;
    with_plain_file(disk, from, None, watch.interrupt, |from| {
        let mut reader = HintReader::open(disk, from, from_format)?;
        let info = reader.info().clone();
        let [before, after] = [info.format, to_format].map(HintFormat::numbering);
        let all = after == Numbering::AllOutputs;
        let needs_blocks = before != after || all && info.outputs.is_none();
        let create = |network, hash| HintWriter::create(disk, to, to_format, network, info.height, hash);
        let mut unspent = Vec::new();
        let Some(options) = datadir else {
            let needs_hash = to_format == HintFormat::SwiftSync2140 && info.block_hash.is_none();
            if needs_blocks || needs_hash {
                let detail = format!(
                    "{to_format} needs the number of outputs of every block, or the hash of the last one, \
                     which this {} file lacks",
                    info.format
                );
                return Err(Error::usage(detail).in_file(from, None).with_remedies([Remedy::GiveDatadir]));
            }
            let mut writer = create(info.network, info.block_hash)?;
            while reader.next_block(&mut unspent)?.is_some() {
                Error::check_interrupt(watch.interrupt)?;
                writer.push_block(reader.outputs(), &unspent)?;
            }
            return Ok(writer.finish()?);
        };
        let session = Session::open_for_reading(disk, options)?;
        let files = &session.files()?;
        let request = ChainRequest { stop_at_height: Some(info.height), ..ChainRequest::default() };
        let chain = &job::plan(files, options, &request, watch)?.chain;
        check_belongs_to(from, &info, chain, files.params.network)?;
        let mut writer = create(Some(files.params.network), Some(chain.tip().hash))?;
        let (blocks, mut buffers) = (BlockReader::new(chain, files), BlockBuffers::default());
        while let Some(height) = reader.next_block(&mut unspent)? {
            Error::check_interrupt(watch.interrupt)?;
            let located = blocks.read(height, false, &mut buffers)?;
            let BlockBuffers { block, arena, hashes, .. } = &mut buffers;
            let (block, _) = located.check(block.bytes(), arena, hashes)?;
            let spendable = || {
                block.txs().flat_map(|tx| tx.outputs()).map(|output| !is_unspendable(output.script_pubkey()))
            };
            renumber(&mut unspent, before, after, spendable()).map_err(|error| {
                let hash = chain.block(height).hash;
                Error::new(ErrorKind::Hints, error.to_string())
                    .at_block(height, hash)
                    .in_file(from, None)
                    .caused_by(error)
            })?;
            let outputs = spendable().filter(|&is| all || is).count();
            writer.push_block(Some(outputs as u32), &unspent)?;
        }
        Ok(writer.finish()?)
    })
}

//! Undo data by itself: checks all of it, and makes what is missing or damaged. The chainstate stays as it
//! is.

mod export;

pub use export::{ExportedUndo, export};
pub use pipeline::stages::undo_survey::{FlawedUndo, UndoFileCheck};

use api::{
    disk_need::DiskNeed,
    error::Error,
    event::{Event, EventSink as _, Warnings, Watch},
    note::Warning,
    options::{ChainOptions, ReindexOptions, UndoPolicy},
    report::UndoReport,
    stage::Stage,
};
use chain::{
    commit::{Destination, replace_index},
    plan::existing_state::{Accepted, ExistingState},
    session::Session,
};
use disk::index::{IndexEntry, PrunedFlag, rewrite_block_index};
use pipeline::{
    job::{
        self, Job,
        clock::Clock,
        memory::affordable_threads,
        read_only_job::plan_for_reading,
        two_chainstates::check_start,
        undo_files::{NewUndo, UndoFiles},
    },
    stages::{
        make_undo::UndoSink as _,
        method::Method,
        read::BlockReader,
        undo_survey::{UndoSurvey, by_file},
        walk::BlockWalk,
        work_dir::{WorkDir, temp_dir},
    },
};
use std::{path::PathBuf, time::Duration};
use vfs::Disk;
use wire::{BlockHash, Height, Network};

api::reported! {
/// The undo data of a chain, sound or not.
#[derive(Clone, Debug)]
pub struct UndoCheck {
    /// The network.
    pub network as "chain": Network,
    /// Height of the last block whose undo data was checked.
    pub height: Height,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// Number of blocks whose undo data is sound.
    pub sound: u32,
    /// Number of blocks whose undo data is not on disk.
    pub missing: u32,
    /// Number of blocks whose undo data is damaged.
    pub damaged: u32,
    /// What was found, by file, in order; only files with blocks of the chain.
    pub files: Vec<UndoFileCheck>,
    /// Time from the call to the end.
    pub elapsed as "seconds" with "api::json::Seconds": Duration,
    /// Warnings for the operator.
    pub notes with "api::note::Notes": Vec<Warning>,
}
}

impl UndoCheck {
    /// Whether all undo data is sound.
    pub fn is_sound(&self) -> bool {
        self.missing + self.damaged == 0
    }
}

/// Reads all undo data of the chain up to the chainstate's best block, or, without a chainstate, of the
/// most-work chain on disk. Each record must have its frame and checksum, consist of coins, and have one for
/// each input of its block. Only [`crate::verify()`] proves that they are the right coins.
///
/// # Errors
/// The same errors as [`crate::reindex()`] for blocks that are damaged or missing. Undo data that is missing
/// or damaged is no error; the result reports it.
pub fn check(disk: &dyn Disk, options: &ChainOptions, watch: Watch<'_>) -> Result<UndoCheck, Error> {
    let (mut clock, sink) = (Clock::start(), &Warnings::new(watch.sink));
    let watch = Watch { sink, ..watch };
    sink.event(Event::Started(Stage::Plan));
    let session = Session::open_for_reading(disk, options)?;
    let files = &session.files()?;
    let plan = &plan_for_reading(files, options, watch)?;
    clock.lap(Stage::Plan);
    let threads = affordable_threads(options);
    let (reader, bytes_total) = (BlockReader::new(&plan.chain, files), plan.block_bytes);
    let walk = &BlockWalk { reader, threads, bytes_total, watch };
    sink.event(Event::Started(Stage::Check));
    let survey = UndoSurvey::of_records(walk, Height(0))?;
    walk.each(0..plan.chain.block_count() as u32, |buffers, (), height| {
        survey.check_block(&walk.reader, buffers, height, |_, _| Ok(()))
    })?;
    let (height, hash) = (plan.chain.tip_height(), plan.chain.tip().hash);
    let (elapsed, notes) = (clock.started.elapsed(), sink.take());
    let files = by_file(&plan.chain, &survey, height);
    let sum = |of: fn(&UndoFileCheck) -> u32| files.iter().map(of).sum();
    Ok(UndoCheck {
        network: options.params.network,
        height,
        hash,
        sound: sum(|file| file.kept),
        missing: sum(|file| file.missing),
        damaged: sum(|file| file.damaged),
        files,
        elapsed,
        notes,
    })
}

api::reported! {
/// The undo data that was made.
#[derive(Clone, Debug)]
pub struct MadeUndoReport {
    /// The network.
    pub network as "chain": Network,
    /// Height of the last block that has its undo data now.
    pub height: Height,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// What was made.
    pub undo [flatten]: UndoReport,
    /// Paths of old databases that were kept.
    pub kept with "api::json::PathTexts": Vec<PathBuf>,
    /// Time from the call to the end.
    pub elapsed as "seconds" with "api::json::Seconds": Duration,
    /// Warnings for the operator.
    pub notes with "api::note::Notes": Vec<Warning>,
}
}

/// Makes the undo data that [`check()`] finds missing or damaged, and puts it in place with a new block
/// index that refers to it. The chainstate stays as it is. If only few blocks need undo data, only the coins
/// that they spend are looked for. On failure, undo data and block index are as they were.
///
/// What an interrupted [`crate::reindex()`] has left of undo data that it made is removed.
///
/// # Errors
/// The same errors as [`crate::reindex()`].
pub fn make(disk: &dyn Disk, options: &ChainOptions, watch: Watch<'_>) -> Result<MadeUndoReport, Error> {
    make_of_last(disk, options, u32::MAX, watch)
}

/// The same for so many last blocks; what is missing below them stays missing.
///
/// # Errors
/// The same errors.
pub fn make_of_last(
    disk: &dyn Disk,
    options: &ChainOptions,
    blocks: u32,
    watch: Watch<'_>,
) -> Result<MadeUndoReport, Error> {
    Warnings::in_place(watch.sink, |sink| {
        let watch = Watch { sink, ..watch };
        let options = &ChainOptions { scan: false, ..options.clone() };
        let mut clock = Clock::start();
        sink.event(Event::Started(Stage::Plan));
        let in_place = ReindexOptions::of(ChainOptions { undo: UndoPolicy::Auto, ..options.clone() });
        let (session, result) = Session::open_for_change(disk, &in_place, sink)?;
        let files = &session.files()?;
        check_start(files)?;
        let before = ExistingState::read(files, false)?;
        let plan = &job::plan_to_best_block(files, options, before.best_block, watch)?;
        before.check(plan, files, Accepted::AnyLoss, sink)?;
        // Whatever will be in the way of the new block index is found before anything is made or removed.
        Destination::of_index(disk, result.clone(), options.keep_old)?.discard();
        clock.lap(Stage::Plan);
        let parent = options.work_dir.clone().unwrap_or_else(|| temp_dir(disk));
        let work = &WorkDir::exclusive(disk, &parent);
        let undo_files = &UndoFiles::new(files, &result, &plan.index_files, false, &|| Ok(()))?;
        undo_files.start_over()?;
        let method = &Method::Routed { uses_undo: true };
        let job = Job { undo_sink: Some(undo_files), ..Job::new(files, plan, options, method, work, watch) };
        let from = Height((plan.chain.block_count() as u32).saturating_sub(blocks));
        let made = make_missing(&job, undo_files, from, &mut clock).and_then(|()| {
            let Some(new) = undo_files.take() else { return Ok((UndoReport::default(), Vec::new())) };
            let kept = commit(&job, &new)?;
            Ok((new.report(), kept))
        });
        let removed = work.remove();
        let (undo, kept) = made.inspect_err(|_| {
            // If this fails too, the first error is the one to report; nothing refers to what is left.
            let _ = undo_files.start_over();
        })?;
        sink.warn_if_left(removed);
        let (height, hash) = (plan.chain.tip_height(), plan.chain.tip().hash);
        let (network, elapsed) = (options.params.network, clock.started.elapsed());
        Ok(MadeUndoReport { network, height, hash, undo, kept, elapsed, notes: sink.take() })
    })
}

/// Makes the undo data of a job from height `from` on, in the files of `undo_files`. If much of it is missing
/// there, all that is missing is made.
fn make_missing(
    job: &Job<'_>,
    undo_files: &UndoFiles<'_>,
    from: Height,
    clock: &mut Clock,
) -> Result<(), Error> {
    let walk = &job.walk();
    job.watch.sink.event(Event::Started(Stage::Check));
    let survey = &UndoSurvey::of_records(walk, from)?;
    if job.make_missing_undo(walk, survey, clock)? {
        return Ok(());
    }
    undo_files.start_over()?;
    job.work.remove()?;
    let (work, blocks_dir) = (job.work.path(), job.files.datadir.blocks_dir());
    DiskNeed { chainstate: 0, ..job.disk_need() }.check(job.work.disk(), work, work, &blocks_dir, 0)?;
    let matched = job.match_spends(clock)?;
    // Only the last merge shows whether each spend has a coin.
    job.for_each_coin(matched, clock, |coins| coins.in_sequence(|_, _| Ok(()))).map(drop)
}

/// Puts undo data and a new block index in place. Returns the paths of the old databases, if they are kept.
///
/// The new block index is complete before undo data gets to the `rev` files, so that little can fail after
/// that. Nothing refers to it there before the block index is exchanged.
fn commit(job: &Job<'_>, new: &NewUndo<'_>) -> Result<Vec<PathBuf>, Error> {
    let (files, chain) = (job.files, &job.plan.chain);
    job.watch.sink.event(Event::Started(Stage::Commit));
    Error::check_interrupt(job.watch.interrupt)?;
    let kept = replace_index(files.disk, files.datadir, job.options.keep_old, |target| {
        let (old, index) = (files.datadir.index_dir(), target.building());
        let change = |entry: &mut IndexEntry| new.change_entry(chain, entry);
        let keep = PrunedFlag::Keep;
        rewrite_block_index(files.disk, &old, index, [], keep, change, |infos| new.change_files(infos))?;
        new.put_in_place()?;
        target.commit(job.watch.sink, || ())
    })?;
    job.watch.sink.warn_if_left(new.clean_up());
    Ok(kept)
}

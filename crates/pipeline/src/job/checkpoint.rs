//! Saves and restores an unfinished job: which blocks are completed, and whether the job is the same.

use crate::stages::{
    completed_blocks::CompletedBlocks, method::Method, partial_state::PartialState, spill::SpillFile,
    work_dir::WorkDir,
};
use api::{
    error::{Error, ErrorKind},
    options::ChainOptions,
    remedy::Remedy,
};
use chain::{
    blocks::{chain::Chain, files::Files},
    plan::planner::Plan,
};
use coins::aggregate::AggregateKey;
use digest::sha256::Sha256;
use disk::{
    checkpoint::{Checkpoint, FileStamp, SavedMatching, SortedRunRef, is_work_file, sorted_run_path},
    sorted_run::SortedRunReader,
};
use rules::{CORE_VERSION, ChainParams};
use std::collections::BTreeSet;
use vfs::During as _;
use wire::{FileNo, Height, Network};

/// The state from which a job resumes.
pub struct Resumed {
    /// What the completed blocks amount to.
    pub partial: PartialState,
    /// Files that have changed since those blocks were read.
    pub changed: Vec<FileNo>,
    /// The sorted runs with their effects.
    pub runs: Vec<SpillFile>,
    pub next_run: u64,
}

/// Decides whether two jobs are the same.
pub struct Identity<'a> {
    pub files: &'a Files<'a>,
    pub chain: &'a Chain,
    /// Whether block files are deleted behind the job, so that completed blocks need not be stored.
    pub is_paced: bool,
    /// See [`version`].
    pub version: String,
    /// Height up to which scripts are not run.
    pub skipped_to: Option<Height>,
    /// Digest of the rules and options that decide what "completed" means. See [`settings`].
    pub settings: [u8; 32],
    /// The block files as they were before the first block was read.
    pub stamps: Vec<FileStamp>,
}

pub fn stamps(files: &Files<'_>, chain: &Chain) -> Result<Vec<FileStamp>, Error> {
    let stamp = |(file, _)| Ok(FileStamp::now(files.disk, files.datadir, file)?);
    chain.by_file().map(stamp).collect()
}

/// Returns the version whose rules blocks are checked by.
pub fn version(options: &ChainOptions) -> String {
    format!("{} (rules of Bitcoin Core {CORE_VERSION})", options.hooks.version)
}

/// Returns a digest of the rules and options that decide what is checked of a block and which effects it has.
pub fn settings(options: &ChainOptions, plan: &Plan, method: &Method) -> [u8; 32] {
    let (params, chain) = (options.params, &plan.chain);
    let mut sha = Sha256::new();
    sha.update(version(options).as_bytes());
    if let Some(shared) = &plan.shared {
        sha.update(&shared.digest);
        // Ranges of one plan have the same chain.
        sha.update(&chain.heights().start.to_le_bytes());
        sha.update(&chain.heights().end.to_le_bytes());
    }
    if params != ChainParams::of(params.network) {
        let challenge = params.signet_challenge.unwrap_or_default();
        sha.update(&(challenge.len() as u64).to_le_bytes());
        sha.update(challenge);
        sha.update(params.activation_heights().as_bytes());
    }
    sha.update(&options.assume_valid.hash(params).unwrap_or_default().0);
    // They decide which coinbases' coins are left out.
    let repeats = params.bip30_exceptions.iter().filter(|(height, hash)| chain.has(*height, hash)).count();
    sha.update(&[options.scripts.are_run().into(), repeats as u8]);
    sha.update(&method.identity());
    sha.finalize()
}

/// Returns the heights of the completed blocks whose scripts are not run: without the headers above the
/// blocks, fewer are assumed to be valid.
fn skipped(completed: &CompletedBlocks, to: Option<Height>) -> impl DoubleEndedIterator<Item = Height> {
    completed.heights().filter(move |height| Some(*height) <= to)
}

/// Returns a digest of [`settings`], and of the highest of those blocks.
fn with_skipped(settings: [u8; 32], highest: Option<Height>) -> [u8; 32] {
    let mut sha = Sha256::new();
    sha.update(&settings);
    sha.update(&highest.map_or(0, |height| height.0 + 1).to_le_bytes());
    sha.finalize()
}

/// Whether a checkpoint with the digest `saved` has these [`settings`], and its blocks were checked for all
/// that is asked for now. Meanwhile, more of them can be assumed to be valid: their scripts were run.
fn is_same(
    saved: [u8; 32],
    settings: [u8; 32],
    skipped_to: Option<Height>,
    completed: &CompletedBlocks,
) -> bool {
    // Most often, it is the first one.
    let mut highest = skipped(completed, skipped_to).rev().map(Some).chain([None]);
    highest.any(|highest| with_skipped(settings, highest) == saved)
}

/// Returns the aggregate's key that an interrupted job with the same `settings` used; `None` if there was
/// none. The key of another job must not be used: it was not drawn after these hints were fixed.
pub fn saved_key(work: &WorkDir<'_>, plan: &Plan, settings: [u8; 32]) -> Result<Option<AggregateKey>, Error> {
    if !work.exists()? {
        return Ok(None);
    }
    let checkpoint = Checkpoint::read(work.disk(), work.path())?;
    let checkpoint = checkpoint.filter(|Checkpoint { settings: saved, state, .. }| {
        let completed = CompletedBlocks::from_words(state.completed.clone(), state.blocks as usize);
        is_same(*saved, settings, plan.choice.scripts_skipped_to(), &completed)
    });
    Ok(checkpoint.and_then(|checkpoint| match checkpoint.state.matching {
        SavedMatching::Hints { key, .. } => Some(AggregateKey::new(*key)),
        SavedMatching::Join => None,
    }))
}

impl Identity<'_> {
    /// Returns a digest of the completed blocks, and of their positions if they must still be stored.
    fn chain_digest(&self, completed: &CompletedBlocks) -> [u8; 32] {
        let mut sha = Sha256::new();
        let mut row = [0; 32 + 4 + 4 + 8];
        for height in completed.heights() {
            let block = self.files.block(self.chain, height);
            row[..32].copy_from_slice(&block.hash.0);
            row[32..36].copy_from_slice(&height.0.to_le_bytes());
            if !self.is_paced {
                row[36..40].copy_from_slice(&block.file.0.to_le_bytes());
                row[40..].copy_from_slice(&block.data_pos.0.to_le_bytes());
            }
            sha.update(&row);
        }
        sha.finalize()
    }

    /// Writes a checkpoint. All sorted runs are on disk; those in `runs` belong to it.
    ///
    /// # Errors
    /// Any I/O error; the previous checkpoint is then still in place.
    pub fn write(
        &self,
        work: &WorkDir<'_>,
        partial: &mut PartialState,
        runs: &[SpillFile],
        next_run: u64,
    ) -> Result<(), Error> {
        work.take()?;
        // Sync the directory entries of the runs before the checkpoint that names them.
        work.disk().sync_dir(work.path()).during("sync", work.path())?;
        let highest_skipped = skipped(&partial.completed, self.skipped_to).next_back();
        let checkpoint = Checkpoint {
            network: self.files.params.network,
            version: self.version.clone(),
            chain: self.chain_digest(&partial.completed),
            settings: with_skipped(self.settings, highest_skipped),
            files: [&self.stamps[..], &self.stamps_of_awaited(&partial.completed)?].concat(),
            runs: runs.iter().map(SpillFile::to_ref).collect(),
            next_run,
            state: partial.save(self.chain.block_count()),
        };
        let written = checkpoint.write(work.disk(), work.path());
        partial.take_back(checkpoint.state);
        Ok(written?)
    }

    /// Returns the current stamps of files that have got completed blocks since the first block was read.
    fn stamps_of_awaited(&self, completed: &CompletedBlocks) -> Result<Vec<FileStamp>, Error> {
        let came = completed.heights().filter(|height| !self.chain.was_stored(*height));
        let mut files: BTreeSet<FileNo> =
            came.map(|height| self.files.block(self.chain, height).file).collect();
        self.stamps.iter().for_each(|before| _ = files.remove(&before.file));
        let stamp = |file| Ok(FileStamp::now(self.files.disk, self.files.datadir, file)?);
        files.into_iter().map(stamp).collect()
    }

    /// Reads the checkpoint, if there is one, and removes sorted runs that it does not name.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if it belongs to another job or method, [`ErrorKind::Damaged`] if it or a sorted
    /// run has changed.
    pub fn resume(&self, work: &WorkDir<'_>, method: &Method) -> Result<Option<Resumed>, Error> {
        if !work.exists()? {
            return Ok(None);
        }
        work.take()?;
        let Some(checkpoint) = Checkpoint::read(work.disk(), work.path())? else {
            clear_runs(work, &[])?;
            return Ok(None);
        };
        let other = |what: &str| {
            let detail = format!("the checkpoint of an interrupted run cannot be resumed: {what}");
            Error::usage(detail)
                .in_file(work.path(), None)
                .with_remedies([Remedy::RepeatOptions, Remedy::StartOver])
        };
        if checkpoint.network != self.files.params.network {
            return Err(other(&format!("it is for the network {}", checkpoint.network)));
        }
        let (saved, blocks) = (checkpoint.state, self.chain.block_count());
        let completed = CompletedBlocks::from_words(saved.completed.clone(), saved.blocks as usize);
        let highest = completed.heights().next_back();
        if highest.is_some_and(|height| height > self.chain.tip_height()) {
            return Err(other("it contains blocks above the last one of this chain"));
        }
        if self.chain_digest(&completed) != checkpoint.chain {
            return Err(other("it belongs to another chain, or the blocks have moved within their files"));
        }
        if checkpoint.version != self.version {
            let error = other(&format!("another version of peregrine made it: {}", checkpoint.version));
            let remedies = [Remedy::FinishWithItsVersion, Remedy::StartOver];
            return Err(error.without_remedies().with_remedies(remedies));
        }
        if !is_same(checkpoint.settings, self.settings, self.skipped_to, &completed) {
            return Err(other("it was made with other options for script checks or hints"));
        }
        let Some(partial) = PartialState::restore(saved, blocks, method) else {
            return Err(other("another version of peregrine made it"));
        };
        let runs: Result<Vec<SpillFile>, Error> =
            checkpoint.runs.iter().map(|named| open(work, self.files.params.network, named)).collect();
        clear_runs(work, &checkpoint.runs)?;
        let changed = self.stamps.iter().filter(|now| !checkpoint.files.contains(now));
        let changed = changed.map(|now| now.file).collect();
        Ok(Some(Resumed { partial, changed, runs: runs?, next_run: checkpoint.next_run }))
    }
}

/// If the job was interrupted, adds how many blocks the checkpoint contains.
pub fn with_resume_hint(error: Error, work: &WorkDir<'_>, restart: bool) -> Error {
    if error.kind != ErrorKind::Interrupted {
        return error;
    }
    // If the checkpoint is damaged, the next run reports it.
    let Ok(Some(Checkpoint { state, .. })) = Checkpoint::read(work.disk(), work.path()) else {
        return error;
    };
    let (blocks, completed) = (state.blocks, state.completed);
    let done: u32 = completed.iter().map(|word| word.count_ones()).sum();
    if done == 0 {
        return error;
    }
    error.with_remedies([Remedy::Resume { done, total: blocks, without_restart: restart }])
}

/// Opens a sorted run, and checks that it is the one that the checkpoint names.
fn open(work: &WorkDir<'_>, network: Network, named: &SortedRunRef) -> Result<SpillFile, Error> {
    let path = sorted_run_path(work.path(), named.number);
    if !work.disk().exists(&path).during("look for", &path)? {
        let error = Error::damaged("the checkpoint names this file, but it is missing");
        return Err(error.in_file(path, None).with_remedies([Remedy::StartOver]));
    }
    let meta = SortedRunReader::open(work.disk(), &path, network)?.meta().clone();
    let run = SpillFile { number: named.number, level: named.level, meta };
    if run.to_ref() == *named {
        return Ok(run);
    }
    Err(Error::damaged("this is not the file that the checkpoint names")
        .in_file(path, None)
        .with_remedies([Remedy::StartOver]))
}

/// Removes all sorted runs except those in `named`: a killed job leaves some behind.
fn clear_runs(work: &WorkDir<'_>, named: &[SortedRunRef]) -> Result<(), Error> {
    let (disk, dir) = (work.disk(), work.path());
    let keep: Vec<_> = named.iter().map(|run| sorted_run_path(dir, run.number)).collect();
    for name in disk.list(dir).during("list", dir)? {
        let path = dir.join(&name);
        let is_run = path.extension().is_some_and(|suffix| suffix == "run");
        if is_run && !keep.contains(&path) && is_work_file(disk, &path)? {
            disk.remove_file(&path).during("remove", &path)?;
        }
    }
    Ok(())
}

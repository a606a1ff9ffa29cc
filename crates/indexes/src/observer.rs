//! Collects the rows of new indexes while a rebuild checks the blocks, so that these are read once.
//!
//! Blocks come in any order, and some may not come: those that an interrupted run has checked, and with hints
//! those whose coins are not known. What is made of the blocks goes to temporary files. When the rebuild has
//! ended, [`bring_indexes`](crate::bring_indexes) takes it from there, and reads only the other blocks.

use crate::{
    job::{Start, Starts},
    make::check_space,
    options::{IndexOptions, TxForm},
    output::StoredOutputs,
    records::{RecordFiles, Records, work_file},
};
use api::{
    block_observer::{BlockObserver, ObservedBlock},
    error::Error,
    options::ChainOptions,
};
use disk::{
    datadir::Datadir,
    node_indexes::{IndexKind, NodeIndex},
};
use pipeline::stages::work_dir::WorkDir;
use std::{
    fmt,
    ops::RangeInclusive,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};
use vfs::Disk;
use wire::{BlockHash, Height};

/// The part of the memory that records get: one in this many.
const MEMORY_SHARE: u64 = 8;
/// Number of kinds of records.
const RECORD_KINDS: u64 = 3;

/// What was made of the blocks that were given.
pub struct Observed {
    /// The last block of their chain.
    pub tip: BlockHash,
    /// The indexes.
    pub kinds: Vec<IndexKind>,
    /// Where their rows begin.
    pub starts: Starts,
    /// The records.
    pub records: Records,
    /// The blocks that were given.
    pub blocks: ObservedBlocks,
}

/// The blocks that were given.
pub struct ObservedBlocks {
    /// What filters and statistics are made of, if they are wanted.
    pub outputs: Option<StoredOutputs>,
    /// Whether each block was given, by height.
    taken: Vec<AtomicBool>,
}

impl ObservedBlocks {
    /// Whether the blocks at all these heights were given.
    pub fn has_all(&self, heights: RangeInclusive<u32>) -> bool {
        let heights = *heights.start() as usize..=*heights.end() as usize;
        self.taken.get(heights).is_some_and(|taken| taken.iter().all(|taken| taken.load(Ordering::Relaxed)))
    }
}

/// Collects the rows of indexes that are not in the datadir yet. Temporary files go when it is dropped.
pub struct IndexObserver {
    disk: &'static dyn Disk,
    options: IndexOptions,
    work: WorkDir<'static>,
    observed: RwLock<Option<Observed>>,
}

impl fmt::Debug for IndexObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexObserver").field("kinds", &self.options.kinds).finish_non_exhaustive()
    }
}

impl IndexObserver {
    /// Collects for the indexes that `options` names. Does not touch the file system.
    #[must_use]
    pub fn new(disk: &'static dyn Disk, options: IndexOptions) -> Self {
        let ChainOptions { work_dir, datadir, .. } = &options.chain;
        let work = WorkDir::exclusive(disk, work_dir.as_ref().unwrap_or(datadir));
        Self { disk, options, work, observed: RwLock::default() }
    }

    /// Returns what was collected, if anything was.
    pub(crate) fn take_observed(&self) -> Option<Observed> {
        self.observed.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Memory for the records of one kind, in bytes.
    const fn record_bytes(&self) -> u64 {
        self.options.chain.memory_bytes / MEMORY_SHARE / RECORD_KINDS
    }

    /// Creates the files for the indexes that are not there, unless there are none.
    fn create(&self, blocks: usize, block_bytes: u64, tip: BlockHash) -> Result<Option<Observed>, Error> {
        let Self { disk, options, work, .. } = self;
        let datadir = Datadir::open(*disk, &options.chain.location())?;
        let found = NodeIndex::find(*disk, datadir.net_dir())?;
        let is_missing = |kind: &IndexKind| found.iter().all(|index| index.name != kind.dir_name());
        let kinds: Vec<IndexKind> = options.kinds.iter().copied().filter(is_missing).collect();
        if kinds.is_empty() {
            return Ok(None);
        }
        check_space(*disk, datadir.net_dir(), &kinds, block_bytes)?;
        work.take()?;
        let (mut starts, tip_height) = (Starts::default(), Height(blocks as u32 - 1));
        for &kind in &kinds {
            let tx_form = options.tx_form.unwrap_or(TxForm::ByTxid);
            starts.add(kind, Start::of_new(options, tx_form, tip_height)?);
        }
        let files = RecordFiles {
            disk: *disk,
            dir: work.path(),
            block_bytes: block_bytes / blocks as u64,
            memory: self.record_bytes() as usize,
            threads: options.chain.threads.get(),
        };
        let records = files.create(&starts, sequences_of_new(tip_height))?;
        let [filters, stats] =
            [IndexKind::BlockFilter, IndexKind::CoinStats].map(|kind| kinds.contains(&kind));
        let path = work_file(work.path(), "outputs");
        let outputs = (filters || stats).then(|| StoredOutputs::create(*disk, &path, filters, stats, blocks));
        let taken = (0..blocks).map(|_| AtomicBool::new(false)).collect();
        let blocks = ObservedBlocks { outputs: outputs.transpose()?, taken };
        Ok(Some(Observed { tip, kinds, starts, records, blocks }))
    }
}

/// The sequence numbers of the blocks of a new `txindex`, by height.
pub fn sequences_of_new(tip: Height) -> Vec<Option<u32>> {
    (0..=tip.0).map(|height| height.checked_sub(1)).collect()
}

impl BlockObserver for IndexObserver {
    fn needs_coins(&self) -> bool {
        let observed = self.observed.read().unwrap_or_else(PoisonError::into_inner);
        observed.as_ref().is_some_and(|observed| observed.blocks.outputs.is_some())
    }

    fn memory_bytes(&self, blocks: usize) -> u64 {
        self.record_bytes() * RECORD_KINDS + blocks as u64 * (StoredOutputs::BLOCK_BYTES + 1)
    }

    fn begin(&self, blocks: usize, block_bytes: u64, tip: BlockHash) -> Result<(), Error> {
        // The files of the check before go first.
        drop(self.take_observed());
        let created = self.create(blocks, block_bytes, tip)?;
        *self.observed.write().unwrap_or_else(PoisonError::into_inner) = created;
        Ok(())
    }

    fn take(&self, block: &ObservedBlock<'_>) -> Result<(), Error> {
        let observed = self.observed.read().unwrap_or_else(PoisonError::into_inner);
        let Some(observed) = &*observed else { return Ok(()) };
        observed.records.add(block)?;
        if let Some(outputs) = &observed.blocks.outputs {
            outputs.add(block)?;
        }
        if let Some(taken) = observed.blocks.taken.get(block.height.0 as usize) {
            taken.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for IndexObserver {
    fn drop(&mut self) {
        // Leftovers are removed by the next run.
        let _ = self.work.remove();
    }
}

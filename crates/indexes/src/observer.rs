//! Collects the rows of new indexes while a rebuild checks the blocks, so that these are read once.
//!
//! Blocks come in any order, and some may not come: those that an interrupted run has checked, and with hints
//! those whose coins are not known. What is made of the blocks goes to temporary files. When the rebuild has
//! ended, [`bring_indexes`](crate::bring_indexes) takes it from there, and reads only the other blocks.

use crate::{
    job::check_space,
    options::{IndexOptions, TxForm},
    output::{ObservedBlocks, StoredOutputs},
    records::{RecordFiles, Records},
    starts::{Start, Starts, sequences_of_new},
};
use api::{
    block_observer::{BlockObserver, ObservedBlock, ObservedChain},
    error::{Error, ErrorKind},
    remedy::Remedy,
};
use chain::blocks::chain::Chain;
use disk::{datadir::Datadir, node_indexes::IndexKind};
use std::{
    fmt,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};
use vfs::Disk;
use wire::{BlockHash, Height};

/// The part of the memory that records get: one in this many.
const MEMORY_SHARE: u64 = 8;
const RECORD_KINDS: u64 = 3;

/// What was made of the blocks that were given.
pub struct Observed {
    /// Height of the last block of their chain.
    pub height: Height,
    pub tip: BlockHash,
    pub kinds: Vec<IndexKind>,
    /// Where their rows begin.
    pub starts: Starts,
    pub records: Records,
    /// The blocks that were given.
    pub blocks: ObservedBlocks,
}

impl Observed {
    /// Whether the blocks are of this chain, or of its beginning.
    pub fn is_of(&self, chain: &Chain) -> bool {
        self.height <= chain.tip_height() && chain.block(self.height).hash == self.tip
    }
}

/// Collects the rows of indexes that are not in the datadir yet.
pub struct IndexObserver {
    disk: &'static dyn Disk,
    options: IndexOptions,
    observed: RwLock<Option<Observed>>,
}

impl fmt::Debug for IndexObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexObserver").field("kinds", &self.options.kinds).finish_non_exhaustive()
    }
}

impl IndexObserver {
    /// Collects for the indexes that `options` names.
    pub fn new(disk: &'static dyn Disk, options: IndexOptions) -> Self {
        Self { disk, options, observed: RwLock::default() }
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
    fn create(&self, chain: &ObservedChain<'_>) -> Result<Option<Observed>, Error> {
        let Self { disk, options, .. } = self;
        let datadir = Datadir::open(*disk, &options.chain.location())?;
        let mut kinds = options.kinds.clone();
        if !chain.prunes {
            // Those that are there can be continued, or made anew, when the rebuild has ended. With pruning,
            // their blocks are gone then.
            let found = kinds.iter().map(|kind| kind.is_in(*disk, datadir.net_dir()));
            let found: Vec<bool> = found.collect::<Result<_, _>>()?;
            let mut found = found.into_iter();
            kinds.retain(|_| found.next() == Some(false));
        }
        if kinds.is_empty() {
            return Ok(None);
        }
        check_space(*disk, datadir.net_dir(), &kinds, chain.blocks as u64, chain.block_bytes, true)?;
        let height = Height(chain.blocks as u32 - 1);
        let mut starts = Starts::default();
        for &kind in &kinds {
            starts.add(kind, Start::of_new(options, options.tx_form.unwrap_or(TxForm::ByTxid), height)?);
        }
        let files = RecordFiles {
            disk: *disk,
            dir: chain.work_dir,
            block_bytes: chain.block_bytes / chain.blocks as u64,
            memory: self.record_bytes() as usize,
            threads: options.chain.threads.get(),
        };
        let records = files.create(&starts, sequences_of_new(height))?;
        let [filters, stats] =
            [IndexKind::BlockFilter, IndexKind::CoinStats].map(|kind| kinds.contains(&kind));
        let outputs = (filters || stats).then(|| StoredOutputs::open(*disk, chain, filters, stats));
        let outputs = outputs.transpose()?;
        // Records do not outlive a process.
        let outlives = |height| {
            kinds.iter().all(|kind| kind.needs_undo()) && outputs.as_ref().is_some_and(|it| it.has(height))
        };
        let completed = (0..chain.blocks as u32).map(Height).filter(|height| (chain.is_completed)(*height));
        let lacking = completed.filter(|height| !outlives(*height)).count();
        if chain.prunes && lacking > 0 {
            let detail = format!(
                "the run that this one continues has deleted blocks, {lacking} of which it has checked \
                 without making indexes of them; leave out these indexes, or start over"
            );
            return Err(Error::new(ErrorKind::Usage, detail).with_remedies([Remedy::StartOver]));
        }
        let is_taken = |height| (chain.is_completed)(height) && outlives(height);
        let taken =
            (0..chain.blocks as u32).map(|height| AtomicBool::new(is_taken(Height(height)))).collect();
        let (blocks, tip) = (ObservedBlocks { outputs, taken }, (chain.hash_of)(height));
        Ok(Some(Observed { height, tip, kinds, starts, records, blocks }))
    }
}

impl BlockObserver for IndexObserver {
    fn needs_coins(&self) -> bool {
        let observed = self.observed.read().unwrap_or_else(PoisonError::into_inner);
        observed.as_ref().is_some_and(|observed| observed.blocks.outputs.is_some())
    }

    fn indexes(&self) -> &[IndexKind] {
        &self.options.kinds
    }

    fn memory_bytes(&self, blocks: usize) -> u64 {
        self.record_bytes() * RECORD_KINDS + blocks as u64 * (StoredOutputs::BLOCK_BYTES + 1)
    }

    fn begin(&self, chain: &ObservedChain<'_>) -> Result<(), Error> {
        drop(self.take_observed());
        let created = self.create(chain)?;
        *self.observed.write().unwrap_or_else(PoisonError::into_inner) = created;
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        let observed = self.observed.read().unwrap_or_else(PoisonError::into_inner);
        let outputs = observed.as_ref().and_then(|observed| observed.blocks.outputs.as_ref());
        outputs.map_or(Ok(()), StoredOutputs::sync)
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

//! Makes the rows of new indexes while a rebuild checks the blocks, so that the blocks are read once.
//!
//! Blocks come in any order. Some may not come: those that an interrupted run has checked, and, with hints,
//! those whose coins are not known. What is made of the blocks is kept in temporary files. When the rebuild
//! has ended, [`bring_indexes`](crate::bring_indexes) takes it from there, and reads only the blocks that did
//! not come.

use crate::{
    base::Base,
    job::{check_space, space_of},
    options::{IndexOptions, TxForm},
    output::{ObservedBlocks, StoredOutputs},
    row_files::RowFiles,
    rows::TxRows,
};
use api::{
    block_observer::{BlockObserver, ObservedBlock, ObservedChain},
    error::Error,
    remedy::Remedy,
};
use chain::blocks::chain::Chain;
use disk::{datadir::Datadir, node_indexes::IndexKind};
use std::{
    fmt,
    sync::{
        PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
};
use vfs::Disk;
use wire::{BlockHash, Height};

/// The rows of transactions get one part in this many of the memory.
const MEMORY_SHARE: u64 = 8;
/// Number of the forms of these rows.
const ROW_FORMS: u64 = 3;

/// What was made of the blocks that were given.
pub struct Observed {
    /// Height of the last block of the rebuild's chain.
    pub height: Height,
    pub tip: BlockHash,
    /// The indexes whose rows were made.
    pub bases: Vec<Base>,
    pub rows: Vec<Box<dyn TxRows>>,
    /// The blocks that were given.
    pub blocks: ObservedBlocks,
}

impl Observed {
    /// Whether the blocks are those of this chain, or of its beginning.
    pub fn is_of(&self, chain: &Chain) -> bool {
        self.height <= chain.tip_height() && chain.block(self.height).hash == self.tip
    }
}

/// Makes the rows of indexes that are not in the datadir yet, from the blocks that a rebuild shows it.
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
    /// Makes the rows of the indexes that `options` names.
    pub fn new(disk: &'static dyn Disk, options: IndexOptions) -> Self {
        Self { disk, options, observed: RwLock::default() }
    }

    /// Takes what was made, if anything was.
    pub(crate) fn take_observed(&self) -> Option<Observed> {
        self.observed.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn observed(&self) -> RwLockReadGuard<'_, Option<Observed>> {
        self.observed.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for the rows of one form, in bytes.
    const fn row_bytes(&self) -> u64 {
        self.options.chain.memory_bytes / MEMORY_SHARE / ROW_FORMS
    }

    /// Creates the temporary files for the indexes that are not in the datadir. Returns `None` if all are
    /// there.
    fn create(&self, chain: &ObservedChain<'_>) -> Result<Option<Observed>, Error> {
        let Self { disk, options, .. } = self;
        let datadir = Datadir::open(*disk, &options.chain.location())?;
        if options.kinds.contains(&IndexKind::Tx) {
            // Not when the rebuild has ended.
            options.form_of_new(*disk, &datadir)?;
        }
        let mut kinds = Vec::new();
        for &kind in &options.kinds {
            // An index that is there can be continued, or made anew, when the rebuild has ended. With
            // pruning, its blocks are gone then.
            if chain.prunes || !kind.is_in(*disk, datadir.net_dir())? {
                kinds.push(kind);
            }
        }
        if kinds.is_empty() {
            return Ok(None);
        }
        let tx_form = options.tx_form.unwrap_or(TxForm::ByTxid);
        let space = |&kind| (kind, space_of(kind, tx_form, chain.blocks as u64, chain.block_bytes, true));
        let spaces: Vec<_> = kinds.iter().map(space).collect();
        check_space(*disk, [datadir.net_dir(), chain.work_dir], &spaces)?;
        let height = Height(chain.blocks as u32 - 1);
        let bases = kinds.iter().map(|kind| Base::of_new(*kind, options, tx_form, height));
        let bases = bases.collect::<Result<Vec<_>, _>>()?;
        let files = RowFiles {
            disk: *disk,
            dir: chain.work_dir,
            block_bytes: chain.block_bytes / chain.blocks as u64,
            memory: self.row_bytes() as usize,
            threads: options.chain.threads.get(),
        };
        let rows = files.create(&bases)?;
        let [filters, stats] =
            [IndexKind::BlockFilter, IndexKind::CoinStats].map(|kind| kinds.contains(&kind));
        let outputs = (filters || stats).then(|| StoredOutputs::open(*disk, chain, filters, stats));
        let outputs = outputs.transpose()?;
        // The rows of transactions do not outlive a process.
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
            return Err(Error::usage(detail).with_remedies([Remedy::StartOver]));
        }
        let is_taken = |height| (chain.is_completed)(height) && outlives(height);
        let taken =
            (0..chain.blocks as u32).map(|height| AtomicBool::new(is_taken(Height(height)))).collect();
        let (blocks, tip) = (ObservedBlocks { outputs, taken }, (chain.hash_of)(height));
        Ok(Some(Observed { height, tip, bases, rows, blocks }))
    }
}

impl BlockObserver for IndexObserver {
    fn needs_coins(&self) -> bool {
        self.observed().as_ref().is_some_and(|observed| observed.blocks.outputs.is_some())
    }

    fn indexes(&self) -> &[IndexKind] {
        &self.options.kinds
    }

    fn memory_bytes(&self, blocks: usize) -> u64 {
        self.row_bytes() * ROW_FORMS + blocks as u64 * (StoredOutputs::BLOCK_BYTES + 1)
    }

    fn begin(&self, chain: &ObservedChain<'_>) -> Result<(), Error> {
        drop(self.take_observed());
        let created = self.create(chain)?;
        *self.observed.write().unwrap_or_else(PoisonError::into_inner) = created;
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        let observed = self.observed();
        let outputs = observed.as_ref().and_then(|observed| observed.blocks.outputs.as_ref());
        outputs.map_or(Ok(()), StoredOutputs::sync)
    }

    fn take(&self, block: &ObservedBlock<'_>) -> Result<(), Error> {
        let observed = self.observed();
        let Some(observed) = &*observed else { return Ok(()) };
        observed.rows.iter().try_for_each(|rows| rows.add(block))?;
        if let Some(outputs) = &observed.blocks.outputs {
            outputs.add(block)?;
        }
        if let Some(taken) = observed.blocks.taken.get(block.height.0 as usize) {
            taken.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

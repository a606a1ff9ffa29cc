//! The chain that a rebuild makes a chainstate of, and what was found with it.

use ::hints::{HintInfo, HintReader};
use api::{
    error::Error,
    event::{Event, Watch},
    note::Warning,
    options::{HintOptions, ReindexOptions},
    remedy::Remedy,
};
use chain::{
    blocks::{awaited::AwaitedBlocks, damage::KnownDamage, files::Files},
    plan::{
        chain_request::HintsEnd,
        existing_state::{Accepted, ExistingState},
        indexes::{self, SetAside, WithoutUndo},
        planner::Plan,
        second_chainstate::SecondChainstate,
    },
};
use disk::index::IndexEntry;
use pipeline::job::{self, ChainRequest, hints};
use std::sync::Arc;
use wire::{BlockHash, Height};

/// The chain of a rebuild, and what was found with it.
pub struct Planned {
    pub(super) plan: Plan,
    pub(super) hint_reader: Option<HintReader>,
    pub(super) lost_blocks: u32,
    /// The indexes that bitcoind could not continue.
    pub(super) set_aside: SetAside,
    /// The blocks that are stored while the rebuild runs, and what is known of them.
    pub(super) awaited: Option<(Arc<AwaitedBlocks>, Awaiting)>,
}

/// The end of a chain whose blocks are stored while it is rebuilt.
pub struct Awaiting {
    /// Height of the last block.
    pub end: Height,
    /// Estimated bytes of the blocks that are not stored.
    pub bytes: u64,
    /// Memory that storing them takes, in bytes.
    pub memory_bytes: u64,
    /// The part of it for blocks that are kept until they are taken ([`AwaitedBlocks::new`]).
    pub kept_bytes_max: u64,
    /// With pruning, bytes of blocks after which the rebuild settles ([`AwaitedBlocks::settle`]).
    pub settle_bytes: Option<u64>,
    /// Number of last blocks of the existing chainstate that may be above the end, for bitcoind to connect.
    pub left: u32,
    /// Blocks that the block index places, and that are not in their files: they are stored again.
    pub lost: Vec<BlockHash>,
}

impl Planned {
    /// The last block of the chain.
    pub fn tip(&self) -> BlockHash {
        self.plan.chain.tip().hash
    }

    pub(super) fn end_below(&mut self, height: Height) {
        let below = Height(height.0.saturating_sub(1));
        self.plan.block_bytes = self.plan.bytes_of(height.0.into());
        self.plan.chain = self.plan.chain.up_to(below);
    }

    /// The blocks that are stored while the rebuild runs; `None` if it must begin after that.
    pub fn awaited(&self) -> Option<Arc<AwaitedBlocks>> {
        self.awaited.as_ref().map(|(awaited, _)| Arc::clone(awaited))
    }

    /// Whether blocks were deleted before, and all of the chain are stored again.
    pub(super) fn unprunes(&self) -> bool {
        self.plan.is_pruned && !self.prunes()
    }

    /// Makes an entry of the new block index outside the chain agree with that no block is deleted any more.
    pub(super) fn change_pruned(&self, entry: &mut IndexEntry) {
        let is_deleted = entry.tx_count > 0 && !entry.status.has_data();
        if self.unprunes() && !self.plan.chain.has(entry.height, &entry.hash) {
            // Without pruning, bitcoind expects the number of transactions only for stored blocks, and no
            // connected block above one that is not stored.
            match is_deleted {
                true => entry.forget_block(),
                false => entry.status = entry.status.not_connected(),
            }
        }
    }

    /// Whether block files are deleted behind the rebuild.
    pub(super) fn prunes(&self) -> bool {
        self.awaited.as_ref().is_some_and(|(_, blocks)| blocks.settle_bytes.is_some())
    }
}

/// Chooses the chain without the blocks in `invalid`, and below what is damaged if that is given, and checks
/// that its chainstate can replace the existing one.
///
/// # Errors
/// Those of [`reindex`](crate::reindex()) that can be found before a block is read.
pub fn plan(
    files: &Files<'_>,
    options: &ReindexOptions,
    invalid: &[BlockHash],
    damage: Option<&KnownDamage>,
    awaiting: Option<Awaiting>,
    watch: Watch<'_>,
) -> Result<Planned, Error> {
    let in_place = options.output.is_none();
    let before =
        if in_place { ExistingState::read(files, options.chain.scan)? } else { ExistingState::default() };
    let second = if in_place { SecondChainstate::find(files)? } else { None };
    // The choice of the chain depends on the hints.
    let open = |hints: &HintOptions| HintReader::open(files.disk, &hints.file.name(), hints.format);
    let hint_reader = options.hints.as_ref().map(open).transpose()?;
    let hints_end = |info: &HintInfo| HintsEnd { height: info.height, hash: info.block_hash };
    let request = ChainRequest {
        stop_at_height: awaiting.as_ref().map(|blocks| blocks.end).or(options.chain.stop_at_height),
        without_undo: options.hints.as_ref().is_some_and(|hints| hints.without_undo),
        hints: hint_reader.as_ref().map(|reader| hints_end(reader.info())),
        preferred: before.best_block,
        invalid,
        damage,
        makes_undo: options.makes_undo(),
        awaits: awaiting.as_ref().map(|blocks| &blocks.lost[..]),
        ..ChainRequest::of(&options.chain)
    };
    let mut plan = job::plan_beside(files, &options.chain, &request, second.as_ref(), watch)?;
    job::note_all_scripts(&options.chain, &plan, watch.sink);
    if let Some(second) = second {
        if let Some(obstacle) = &plan.obstacle {
            return Err(second.error(obstacle).with_remedies([Remedy::OtherOutput]));
        }
        if let Some(base) = second.base() {
            watch.sink.event(Event::Warning(Warning::SnapshotUnchanged { dir: second.dir, base }));
        }
    }
    let (mut without_undo, mut reads_last_blocks_first) = (None, false);
    if let Some((hints, reader)) = options.hints.as_ref().zip(hint_reader.as_ref()) {
        let (to, _) = hints::use_of(&options.chain, hints, reader.info(), &plan)?;
        without_undo = hints.without_undo.then_some(WithoutUndo { to, wanted: &hints.wanted_indexes });
        reads_last_blocks_first = to < reader.info().height;
    }
    let set_aside = match in_place {
        true => indexes::before_rebuild(files, &plan, damage, without_undo, &options.set_aside_indexes)?,
        false => SetAside::default(),
    };
    let accepted = match damage {
        _ if options.accept_lower_tip => Accepted::AnyLoss,
        Some(_) => Accepted::LossByDamage,
        None => Accepted::WithoutLast(awaiting.as_ref().map_or(0, |blocks| blocks.left)),
    };
    let lost_blocks = if in_place { before.check(&plan, files, accepted, watch.sink)? } else { 0 };
    let awaited = awaiting.filter(|_| !reads_last_blocks_first).map(|blocks| {
        plan.block_bytes += blocks.bytes;
        let Awaiting { kept_bytes_max, settle_bytes, .. } = blocks;
        let awaited = AwaitedBlocks::new(plan.chain.block_count(), kept_bytes_max, settle_bytes);
        (Arc::new(awaited), blocks)
    });
    Ok(Planned { plan, hint_reader, lost_blocks, set_aside, awaited })
}

//! Gives the blocks of a chain on disk to the caller, with the coins that they spend, in parts of the chain.
//!
//! Each block is checked as far as that is possible by itself, and its undo data by its checksum. That the
//! coins in it are the right ones is what [`crate::verify()`] proves.

mod block_stats;

pub use block_stats::BlockStats;

#[cfg(feature = "serde")]
use api::json::{JsonSchema, Serialize};
use api::{
    error::{Error, ErrorKind},
    event::{Event, EventSink, Watch},
    options::ChainOptions,
    stage::Stage,
};
use chain::{
    plan::{existing_state::ExistingState, planner::Plan},
    session::Session,
};
use pipeline::{
    job::{self, read_only_job::read_live},
    stages::block_parts::{BlockConsumer, BlockParts},
};
use std::sync::atomic::AtomicBool;
use vfs::Disk;
use wire::{BlockHash, Height, Network};

/// Number of last blocks that are left out beside a running bitcoind: its chain may change there.
const LIVE_DEPTH: u32 = 6;

/// Which blocks [`read_blocks`] gives to the caller.
#[derive(Clone, Debug)]
pub struct ReadBlocksOptions {
    /// The blocks. Their number of threads is that of the parts that are read at the same time.
    pub chain: ChainOptions,
    /// Find blocks and undo data by scanning their files.
    pub scan: bool,
    /// The first block.
    pub from: Height,
    /// The last block; `None`: the last one of the chain, beside a running bitcoind without six.
    pub to: Option<Height>,
    /// Also give the coins that the blocks spend, for which undo data is needed.
    pub with_coins: bool,
    /// Number of blocks of a part. Parts begin at its multiples.
    pub part_blocks: u32,
}

/// The blocks that [`read_blocks`] gives to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
pub struct BlockRange {
    /// Their network.
    #[cfg_attr(feature = "serde", serde(rename = "chain"))]
    pub network: Network,
    /// The first block.
    #[cfg_attr(feature = "serde", serde(rename = "from_height"))]
    pub from: Height,
    /// The last block.
    #[cfg_attr(feature = "serde", serde(rename = "to_height"))]
    pub to: Height,
    /// Hash of the last block.
    #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
    pub last: BlockHash,
}

/// Returns the hash of a block up to the last one that is read.
pub type HashAt<'a> = dyn Fn(Height) -> BlockHash + 'a;

/// Reads blocks of the chain up to the chainstate's best block, or, without a chainstate, of the most-work
/// chain on disk, and gives them to the consumer that `begin` returns, which is told the hash of each block
/// of the chain. Nothing is written.
///
/// # Errors
/// The same errors as [`crate::check_undo()`], also if undo data is needed and missing or damaged;
/// [`ErrorKind::Usage`] if the chain does not have the blocks; errors of the consumer;
/// [`ErrorKind::Interrupted`]; [`ErrorKind::Internal`] if the consumer panics. Of several errors, that of the
/// lowest part is returned.
pub fn read_blocks<C: BlockConsumer>(
    disk: &dyn Disk,
    options: &ReadBlocksOptions,
    begin: impl FnOnce(&BlockRange, &HashAt<'_>) -> Result<C, Error>,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<(BlockRange, C), Error> {
    sink.event(Event::Started(Stage::Plan));
    let session = Session::open_for_reading(disk, &options.chain)?;
    let files = &session.files()?;
    // A bitcoind that runs has not written what it knows of its chainstate.
    let is_live = options.chain.live;
    let best = if is_live { None } else { ExistingState::read(files, false)?.best_block };
    let read =
        || job::plan_to_best_block(files, &options.chain, options.scan, best, Watch { sink, interrupt });
    let plan = &read_live(&options.chain, read)?;
    let range = range_of(options, plan)?;
    let consumer = begin(&range, &|height| plan.chain.block(height).hash)?;
    sink.event(Event::Started(Stage::Export));
    let parts = BlockParts {
        plan,
        files,
        heights: range.from.0..=range.to.0,
        with_coins: options.with_coins,
        with_witnesses: true,
        part_blocks: options.part_blocks,
        threads: options.chain.threads.get(),
    };
    parts.read(&consumer, Watch { sink, interrupt })?;
    Ok((range, consumer))
}

fn range_of(options: &ReadBlocksOptions, plan: &Plan) -> Result<BlockRange, Error> {
    let left_out = if options.chain.live { LIVE_DEPTH } else { 0 };
    let (from, tip) = (options.from, Height(plan.chain.tip_height().0.saturating_sub(left_out)));
    let to = options.to.unwrap_or(tip);
    if from > to || to > tip {
        let end = match options.chain.live {
            true => "beside a running bitcoind, blocks are read up to height",
            false => "the chain on disk ends at height",
        };
        let detail = format!("there are no blocks from {from} to {to}: {end} {tip}");
        return Err(Error::new(ErrorKind::Usage, detail));
    }
    Ok(BlockRange { network: options.chain.params.network, from, to, last: plan.chain.block(to).hash })
}

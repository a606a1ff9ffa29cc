//! Gives the blocks of a chain on disk to the caller, with the coins that they spend, in parts of the chain.
//!
//! Each block is checked as far as that is possible by itself, and its undo data by its checksum. Only
//! [`crate::verify()`] proves that its coins are the right ones.

mod block_stats;

pub use block_stats::BlockStats;
pub use pipeline::stages::{
    block_parts::{BlockConsumer, BlockData, HashAt, PartConsumer, SpendingInput},
    spending_inputs::UnspentOutputs,
    turns::{Turn, Turns},
};

use api::{
    error::Error,
    event::{Event, Watch},
    machine,
    options::ChainOptions,
    stage::Stage,
};
use chain::{plan::planner::Plan, session::Session};
use pipeline::{
    job::{self, read_only_job::plan_for_reading},
    stages::{block_parts::BlockParts, spending_inputs::SpendsRequest, work_dir::WorkDir},
};
use vfs::Disk;
use wire::{BlockHash, Height, Network};

/// Most bytes of blocks whose outputs a thread looks up at one time.
const PART_BLOCK_BYTES: u64 = 128 << 20;
/// The part of the memory that the blocks of all threads may take: one in this many. Their records take up
/// to half as much.
const PART_SHARE: u64 = 4;
/// Minimum of the memory for spending inputs, in bytes.
const MIN_INPUT_BYTES: u64 = 4 << 20;

/// Which blocks [`read()`] gives to the caller.
#[derive(Clone, Debug)]
pub struct ReadBlocksOptions {
    /// The blocks. If no last block is named, the last six are left out beside a running bitcoind. As many
    /// parts are read at the same time as there are threads.
    pub chain: ChainOptions,
    /// The first block.
    pub from: Height,
    /// Also give the coins that the blocks spend, for which undo data is needed.
    pub with_coins: bool,
    /// Also give the inputs that spend the outputs of the blocks.
    pub spends: Option<SpendsOptions>,
    /// Number of blocks of a part, at least 1. Parts begin at its multiples.
    pub part_blocks: u32,
}

/// Which spending inputs are found. All blocks that may have them are read first, with their undo data. Half
/// of the memory is for the inputs; what does not fit goes to temporary files.
#[derive(Clone, Debug)]
pub struct SpendsOptions {
    /// The last block with inputs; `None`: the last one that can be read.
    pub to: Option<Height>,
    /// Also give the ids of their transactions.
    pub with_txids: bool,
}

api::reported! {
/// The blocks that [`read()`] gives to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRange {
    /// Their network.
    pub network as "chain": Network,
    /// The first block.
    pub from as "from_height": Height,
    /// The last block.
    pub to as "to_height": Height,
    /// Hash of the last block.
    pub last as "block_hash": BlockHash,
    /// With the inputs that spend outputs: up to which block inputs were read.
    pub spent_to [skip_serializing_if = "Option::is_none"]: Option<SpentTo>,
}

/// Up to which block inputs that spend outputs were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpentTo {
    /// Height of the last one.
    pub height: Height,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// The outputs that no input spends: the UTXO set after that block; `None` unless all blocks up to it
    /// were given to the consumer.
    pub unspent: Option<UnspentOutputs>,
}
}

/// Reads blocks of the chain up to the chainstate's best block, or, without a chainstate, of the most-work
/// chain on disk, and gives them to the consumer that `begin` returns, which is told the hash of each block
/// of the chain. Nothing is written, except temporary files if spending inputs are asked for.
///
/// # Errors
/// The same errors as [`crate::undo::check()`], also if undo data is needed and missing or damaged, or if
/// coins in it are not the outputs that inputs spend, as far as that shows;
/// [`api::error::ErrorKind::Environment`] for too little disk space; [`api::error::ErrorKind::Usage`] if the
/// chain does not have the blocks; errors of the consumer; [`api::error::ErrorKind::Interrupted`];
/// [`api::error::ErrorKind::Internal`] if the consumer panics. Of several errors, that of the lowest part is
/// returned.
pub fn read<C: BlockConsumer>(
    disk: &dyn Disk,
    options: &ReadBlocksOptions,
    begin: impl FnOnce(&BlockRange, &HashAt<'_>) -> Result<C, Error>,
    watch: Watch<'_>,
) -> Result<(BlockRange, C), Error> {
    watch.sink.event(Event::Started(Stage::Plan));
    let session = Session::open_for_reading(disk, &options.chain)?;
    let files = &session.files()?;
    let plan = &plan_for_reading(files, &options.chain, watch)?;
    let mut range = range_of(options, plan)?;
    let consumer = begin(&range, &|height| plan.chain.block(height).hash)?;
    let parts = BlockParts {
        plan,
        files,
        heights: range.from.0..=range.to.0,
        coins_from: options.with_coins.then_some(Height(0)),
        with_witnesses: true,
        part_blocks: options.part_blocks,
        threads: options.chain.threads.get(),
    };
    if let (Some(spends), Some(spent_to)) = (&options.spends, &mut range.spent_to) {
        let work = &WorkDir::for_file(disk, &options.chain, None);
        let given = give_with_spends(options, (spends, spent_to.height), &parts, &consumer, work, watch);
        // If reading has failed, that error counts, and not one from removing its files.
        let removed = work.remove();
        spent_to.unspent = given.map_err(|error| work.explain(error))?;
        removed?;
    } else {
        watch.sink.event(Event::Started(Stage::Export));
        parts.read(&consumer, watch)?;
    }
    Ok((range, consumer))
}

/// Reads the inputs that spend outputs, then the blocks with the outputs.
fn give_with_spends(
    options: &ReadBlocksOptions,
    (spends, last): (&SpendsOptions, Height),
    parts: &BlockParts<'_>,
    consumer: &impl BlockConsumer,
    work: &WorkDir<'_>,
    watch: Watch<'_>,
) -> Result<Option<UnspentOutputs>, Error> {
    let ChainOptions { memory_bytes: memory, threads, ref hooks, .. } = options.chain;
    // A quarter is for freed memory, which the allocator does not return to the system at once.
    let free = (memory / 2).saturating_sub(machine::resident_bytes().unwrap_or(memory / 8)) / 4 * 3;
    let request = SpendsRequest {
        blocks: parts,
        work,
        last,
        with_txids: spends.with_txids,
        part_block_bytes: PART_BLOCK_BYTES.min(memory / PART_SHARE / threads.get() as u64),
        memory_bytes: hooks.join_bytes.unwrap_or(free.max(MIN_INPUT_BYTES) as usize),
    };
    watch.sink.event(Event::Started(Stage::Read));
    let spends = request.collect(watch)?;
    watch.sink.event(Event::Started(Stage::Export));
    spends.give_blocks(consumer, watch)
}

fn range_of(options: &ReadBlocksOptions, plan: &Plan) -> Result<BlockRange, Error> {
    let (from, hash) = (options.from, |height| plan.chain.block(height).hash);
    let to = job::last_block(&options.chain, plan, from, options.chain.stop_at_height)?;
    let spent_to = options.spends.as_ref().map(|spends| {
        let tip = job::last_block(&options.chain, plan, to, None)?;
        let height = spends.to.unwrap_or(tip);
        if height < to || height > tip {
            let detail = format!(
                "the last block whose inputs are looked at must be from {to}, the last one with outputs, to \
                 {tip}, the last one that can be read, not {height}"
            );
            return Err(Error::usage(detail));
        }
        Ok(SpentTo { height, hash: hash(height), unspent: None })
    });
    let network = options.chain.params.network;
    Ok(BlockRange { network, from, to, last: hash(to), spent_to: spent_to.transpose()? })
}

//! Writes the coins that blocks spend to a file, in the form in which peers send them (BIP-0455, a draft).

use api::{
    error::{Error, ErrorKind},
    event::{Event, Watch},
    options::ChainOptions,
    stage::Stage,
};
use chain::{session::Session, threads::lock};
use disk::{
    blk::RECORD_HEADER_LEN,
    undo::{CHECKSUM_LEN, MAX_UNDO_LEN},
};
use pipeline::{
    job::{
        last_block,
        read_only_job::{plan_for_reading, require_absent},
    },
    stages::{
        block_parts::{BlockConsumer, BlockData, BlockParts, PartConsumer},
        turns::{Turn, Turns},
    },
};
use std::{
    ops::RangeInclusive,
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use vfs::{AtomicFile, Disk, unfinished};
use wire::{BlockHash, Height, Network, SpentCoinsForm};

/// Number of blocks that a thread reads before it writes what they spend.
const PART_BLOCKS: u32 = 32;

api::reported! {
/// A file of spent coins that was written.
#[derive(Clone, Debug)]
pub struct ExportedUndo {
    /// The network.
    pub network as "chain": Network,
    /// The first block.
    pub from as "from_height": Height,
    /// The last block.
    pub to as "to_height": Height,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// Number of coins that these blocks spend.
    pub coins: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes of the records of the same blocks in the `rev` files.
    pub undo_bytes: u64,
    /// Time from the call to the end.
    pub elapsed as "seconds" with "api::json::Seconds": Duration,
}
}

/// Writes the coins that the blocks of the chain from a height on spend to the file at `path`, which must not
/// exist: for each block, the length of its message as u32 (little-endian), and the message
/// ([`wire::spent_coins`]). The chain is that of [`crate::undo::check()`], and undo data is checked as there;
/// [`crate::verify()`] proves that its coins are the right ones.
///
/// # Errors
/// The same errors as [`crate::blocks::read()`]; nothing is left at `path` then.
pub fn export(
    disk: &dyn Disk,
    options: &ChainOptions,
    from: Height,
    path: &Path,
    watch: Watch<'_>,
) -> Result<ExportedUndo, Error> {
    let started = Instant::now();
    watch.sink.event(Event::Started(Stage::Plan));
    require_absent(disk, path)?;
    let session = Session::open_for_reading(disk, options)?;
    let files = &session.files()?;
    let plan = &plan_for_reading(files, options, watch)?;
    // The genesis block spends nothing.
    let from = from.max(Height(1));
    let to = last_block(options, plan, from, options.stop_at_height)?;
    let file = unfinished::create_new(disk, path, unfinished::SUFFIX)?;
    watch.sink.event(Event::Started(Stage::Export));
    let state = Mutex::new(State { file, totals: Totals::default() });
    let export = Export { state, turns: Turns::new(from.0) };
    let parts = BlockParts {
        plan,
        files,
        heights: from.0..=to.0,
        coins_from: Some(Height(0)),
        with_witnesses: true,
        part_blocks: PART_BLOCKS,
        threads: options.threads.get(),
    };
    parts.read(&export, watch)?;
    let State { file, totals, .. } = export.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    file.commit()?;
    let (network, hash) = (options.params.network, plan.chain.block(to).hash);
    let Totals { coins, bytes, undo_bytes } = totals;
    Ok(ExportedUndo { network, from, to, hash, coins, bytes, undo_bytes, elapsed: started.elapsed() })
}

/// The file, which gets the parts of the chain in order.
struct Export<'d> {
    state: Mutex<State<'d>>,
    turns: Turns,
}

struct State<'d> {
    file: AtomicFile<'d>,
    totals: Totals,
}

#[derive(Clone, Copy, Default)]
struct Totals {
    coins: u64,
    bytes: u64,
    undo_bytes: u64,
}

/// What blocks of a part spend, until it is their turn.
struct Part<'e, 'd> {
    export: &'e Export<'d>,
    turn: Turn<'e>,
    bytes: Vec<u8>,
    totals: Totals,
}

impl BlockConsumer for Export<'_> {
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        let (bytes, totals) = Default::default();
        Ok(Some(Box::new(Part { export: self, turn: self.turns.of(heights), bytes, totals })))
    }
}

impl PartConsumer for Part<'_, '_> {
    fn block(&mut self, block: &BlockData<'_>) -> Result<(), Error> {
        let message = SpentCoinsForm::Draft.write(&block.hash, block.claims.iter().copied());
        let message = message.map_err(|error| Error::damaged(error.to_string()))?;
        let too_long = || Error::new(ErrorKind::Internal, format!("more than {MAX_UNDO_LEN} bytes of coins"));
        let len = u32::try_from(message.len()).map_err(|_| too_long().at_block(block.height, block.hash))?;
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(&message);
        self.totals.coins += block.claims.len() as u64;
        self.totals.undo_bytes += (RECORD_HEADER_LEN + block.undo_len + CHECKSUM_LEN) as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        let Self { export, turn, bytes, totals } = *self;
        turn.wait()?;
        let mut state = lock(&export.state);
        state.file.write_all(&bytes)?;
        state.totals.coins += totals.coins;
        state.totals.bytes += bytes.len() as u64;
        state.totals.undo_bytes += totals.undo_bytes;
        turn.end();
        Ok(())
    }
}

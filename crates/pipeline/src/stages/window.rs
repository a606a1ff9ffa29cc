//! Stage connect: connects consecutive blocks to the coins of a chainstate.
//!
//! A window is as many blocks as fit into the memory. Two windows are at work at once, in two steps. While
//! one thread moves the coins of the lower one, block by block, the others read and check the blocks of the
//! next. Then all threads check the spends of the lower one with the coins that it has spent, run its
//! scripts, and encode its undo data; and they look up what the next one spends, in the order of keys.
//!
//! Nothing changes the coins during the second step: what the cache does not keep is looked up, and stays as
//! it is until the next window is moved. If changes are written in between, so that the cache may not keep
//! what it kept before, all is looked up again.
//!
//! That proves a window to be valid, but not which block is the first that is not, or which rule it breaks.
//! If anything is wrong, the caller begins again at the last commit, and connects the blocks of this window
//! one by one, as Bitcoin Core does ([`Window::connect_exactly`]): its verdict is final.

use crate::stages::{
    block_fault::BlockFaults,
    connect::{ConnectContext, ConnectError, connect_block, decoded_coins, for_each_created},
    read::{BlockBuffers, BlockReader},
    scripts::{ScriptQueue, Scripts},
    stats_change::{Cancelled, StatsChange},
    stored_coins::TipCoins,
};
use api::{counts::Counts, error::Error, subject::Subject};
use chain::{
    blocks::{block_hashes::BlockHashes, chain::Chain},
    threads::{for_all, for_all_beside, lock},
};
use coins::{
    CacheError, CoinList, CoinSource, CoinsCache, FoundCoins, HashedOutPoint, Moves, OutPointHasher,
    OwnedCoin,
};
use disk::{
    DiskError,
    block_files::RecordBuffer,
    undo::write_undo,
    utxo_stats::{CoinCounter, UtxoCounts},
};
use rules::{BlockSpendContext, ChainParams, SpentCoin, bip30_enforced, check_block_spends, is_bip30_exempt};
use std::{
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};
use wire::{BlockHash, BlockView, Coin, Header, Height, OutPoint, Txid, Wtxid};

/// Maximum number of blocks in a window.
const WINDOW_BLOCKS: usize = 32;
/// Memory for which a window may have one more block, in bytes.
const SMALL_BLOCK_BYTES: usize = 64 << 10;

/// What connects blocks of a chain.
pub struct Window<'a> {
    pub chain: &'a Chain,
    pub reader: &'a BlockReader<'a>,
    pub params: &'static ChainParams,
    /// Which scripts are run; `None`: none are.
    pub scripts: Option<Scripts<'a>>,
    pub threads: usize,
    pub buffers: BufferPool,
    /// What is made of the blocks besides their coins.
    pub result: BlockResult<'a>,
}

/// What is made of each block that is connected.
#[derive(Clone, Copy)]
pub enum BlockResult<'a> {
    /// Nothing is made of them.
    Nothing,
    /// Its undo data, which is compared with the stored one.
    Undo,
    /// Its statistics, whose sums are wanted after the blocks at these heights, in ascending order. The
    /// stored undo data is not read.
    Stats(&'a [Height]),
}

/// The memory of the blocks of a window.
pub struct BufferPool {
    /// Bytes of blocks after which a window is complete.
    window_bytes: usize,
    free: Mutex<Vec<BlockBuffers>>,
}

/// A block that obeys all rules that need no coins.
struct CheckedBlock {
    height: Height,
    hash: BlockHash,
    header: Header,
    /// Length of the block in bytes, without what follows it in its record.
    len: usize,
    buffers: BlockBuffers,
    legacy_sigops: u32,
    /// Whether none of its coins may exist (BIP-0030).
    creates_only_new: bool,
    moves: Moves,
    created_counts: UtxoCounts,
}

/// Consecutive blocks that obey all rules that need no coins, and the coins of the chainstate that they
/// spend.
#[derive(Default)]
pub struct CheckedWindow {
    blocks: Vec<CheckedBlock>,
    found: Vec<FoundCoins>,
    /// [`CoinsCache::flush_count`](coins::CoinsCache::flush_count) when coins were looked up.
    flush_count: u64,
}

impl CheckedWindow {
    pub const fn block_count(&self) -> u32 {
        self.blocks.len() as u32
    }
}

pub struct ConnectedWindow {
    pub blocks: Vec<ConnectedBlock>,
    pub counts: Counts,
    /// The next window; `None` if anything is wrong with it.
    pub next: Option<CheckedWindow>,
}

pub struct ConnectedBlock {
    pub height: Height,
    pub hash: BlockHash,
    pub prev: BlockHash,
    /// Its undo data, as Core encodes it; empty if it is not made.
    pub undo: Vec<u8>,
    /// Whether the undo file has this undo data.
    pub is_undo_stored: bool,
    /// Its statistics, if they are made.
    pub stats: Option<Box<StatsChange>>,
    /// The coins that it created, except for those that replaced equal ones (BIP-0030).
    pub created: UtxoCounts,
    pub spent: UtxoCounts,
}

/// The results of the second step. What is wrong is `None`.
struct SecondStep {
    connected: Option<Vec<ConnectedBlock>>,
    found: Option<Vec<FoundCoins>>,
    counts: Counts,
}

/// What all threads do in the second step.
enum Task<'b> {
    CheckSpends(Box<(CheckedBlock, CoinList)>),
    LookUp(&'b CheckedBlock),
}

/// Its results; `None` if anything is wrong.
enum Done {
    CheckedSpends(Option<ConnectedBlock>),
    LookedUp(Option<FoundCoins>),
}

impl Window<'_> {
    /// Connects the blocks of `window`, the first of which follows the best block of `coins`, and checks
    /// those at the heights `next`, which follow: as many as fit into the memory. Returns `None` if anything
    /// is wrong with the former, or with a file.
    ///
    /// # Errors
    /// Any I/O error; damage to the chainstate. After an error or `None`, `coins` is between two blocks.
    pub fn connect(
        &self,
        coins: &mut TipCoins<'_>,
        mut window: CheckedWindow,
        next: Range<u32>,
    ) -> Result<Option<ConnectedWindow>, Error> {
        if window.flush_count != coins.flush_count() {
            match self.second_step(coins, Vec::new(), &window.blocks)?.found {
                Some(found) => window.found = found,
                None => return Ok(None),
            }
        }
        let (hasher, bytes) = (coins.hasher(), AtomicUsize::new(0));
        let has_room = |_: &Height| match bytes.load(Ordering::Relaxed) {
            0 => true,
            bytes => bytes < self.buffers.window_bytes,
        };
        let check = |height| {
            let block = self.check(height, hasher).ok()?;
            bytes.fetch_add(block.memory_bytes(), Ordering::Relaxed);
            Some(block)
        };
        let heights = next.map(Height).take_while(has_room);
        let (checked, moved) = for_all_beside(self.threads, heights, check, || move_coins(coins, window))?;
        let Some(moved) = moved? else { return Ok(None) };
        let mut next: Option<Vec<_>> = checked.into_iter().collect();
        next.iter_mut().for_each(|blocks| blocks.sort_unstable_by_key(|block| block.height));
        let SecondStep { connected, found, counts } =
            self.second_step(coins, moved, next.as_deref().unwrap_or_default())?;
        let flush_count = coins.flush_count();
        let next = next.zip(found).map(|(blocks, found)| CheckedWindow { blocks, found, flush_count });
        Ok(connected.map(|blocks| ConnectedWindow { blocks, counts, next }))
    }

    /// Connects one block. The result is the same as that of [`Window::connect`], but later. `coins_error`
    /// makes the error for a coin that cannot be looked up or added.
    ///
    /// # Errors
    /// The first violation; damage; any I/O error. `coins` is then between two blocks.
    pub fn connect_exactly<S: CoinSource>(
        &self,
        coins: &mut CoinsCache<S>,
        height: Height,
        coins_error: impl FnOnce(CacheError<S::Error>) -> Error,
    ) -> Result<(ConnectedBlock, Counts), Error> {
        let block = self.check(height, coins.hasher())?;
        let context = ConnectContext {
            params: self.params,
            height,
            hash: &block.hash,
            block: &block.view(),
            txids: &block.buffers.hashes.txids,
            mtp_by_height: self.chain.median_times(),
            bip34_ancestor: self.bip34_ancestor(height),
        };
        let scripts = self.scripts.as_ref().filter(|scripts| scripts.are_run_at(height));
        let undo = connect_block(coins, &context, scripts).map_err(|error| match error {
            ConnectError::Violation(violation) => {
                self.reader.located(height).verdict(&violation, &block.buffers.hashes.txids)
            }
            ConnectError::Coins(error) => coins_error(error),
        })?;
        let mut counts = Counts::of(&block.view());
        counts.scripts = if scripts.is_some() { counts.inputs } else { 0 };
        let spent: Vec<Coin<'_>> = undo.iter().flatten().map(OwnedCoin::as_coin).collect();
        let connected =
            self.connected(&block, &spent, &decoded_coins(spent.iter().copied()), &Cancelled::default())?;
        self.buffers.give(block.buffers);
        Ok((connected, counts))
    }

    /// Returns the hash of a block's ancestor at the height of BIP-0034.
    fn bip34_ancestor(&self, height: Height) -> Option<BlockHash> {
        let bip34_height = self.params.bip34_height;
        (bip34_height < height).then(|| self.chain.block(bip34_height).hash)
    }

    /// Reads a block, and checks all rules that need no coins.
    fn check(&self, height: Height, hasher: OutPointHasher) -> Result<CheckedBlock, Error> {
        let hash = self.chain.block(height).hash;
        let mut buffers = self.buffers.take();
        let located = self.reader.read(height, false, &mut buffers)?;
        let BlockBuffers { block: record, arena, hashes, .. } = &mut buffers;
        let (block, checked) = located.check(record.bytes(), arena, hashes)?;
        let legacy_sigops = checked.map_err(|violation| located.verdict(&violation, &hashes.txids))?;
        let ancestor = self.bip34_ancestor(height);
        let creates_only_new = bip30_enforced(self.params, height, &hash, ancestor.as_ref());
        let replaces = is_bip30_exempt(self.params, height, &hash);
        let mut moves = Moves::with_capacity(hasher, block.input_count(), block.output_count());
        let mut created = CoinCounter::default();
        for ((tx, txid), index) in block.txs().zip(&hashes.txids).zip(0u32..) {
            let is_coinbase = index == 0;
            if !is_coinbase {
                tx.inputs().for_each(|input| moves.spend(input.prevout()));
            }
            let can_exist = is_coinbase && !creates_only_new;
            // The coin of the genesis block is not in the UTXO set.
            let is_new = height.0 > 0 && !(is_coinbase && replaces);
            let Ok(()) = for_each_created(&tx, txid, Coin::code_of(height, is_coinbase), |outpoint, coin| {
                moves.create(outpoint, coin, can_exist);
                if is_new {
                    count(&mut created, &outpoint, &coin);
                }
                Ok::<(), std::convert::Infallible>(())
            });
        }
        let (header, len) = (*block.header(), block.bytes().len());
        Ok(CheckedBlock {
            height,
            hash,
            header,
            len,
            buffers,
            legacy_sigops,
            creates_only_new,
            moves,
            created_counts: created.counts(),
        })
    }

    /// Checks the spends and the scripts of blocks with the coins that they have spent, and looks up what the
    /// blocks of the next window spend.
    fn second_step(
        &self,
        coins: &TipCoins<'_>,
        moved: Vec<(CheckedBlock, CoinList)>,
        next: &[CheckedBlock],
    ) -> Result<SecondStep, Error> {
        let mut counts = Counts::default();
        moved.iter().for_each(|(block, _)| counts += Counts::of(&block.view()));
        let last = moved.last().map_or(Height(0), |(block, _)| block.height);
        let queue = self.scripts.filter(|scripts| scripts.are_run_at(last)).map(ScriptQueue::new);
        let cancelled = &self.cancelled(&moved);
        let (faults, never) = (BlockFaults::default(), AtomicBool::new(false));
        let spends = moved.into_iter().map(|moved| Task::CheckSpends(Box::new(moved)));
        let done = for_all(self.threads, spends.chain(next.iter().map(Task::LookUp)), |task| match task {
            Task::CheckSpends(moved) => {
                let (block, spent) = *moved;
                let connected =
                    self.check_block_spends(&block, &spent, queue.as_ref(), (&faults, cancelled))?;
                self.buffers.give(block.buffers);
                Ok::<_, Error>(Done::CheckedSpends(connected))
            }
            Task::LookUp(block) => Ok(Done::LookedUp(look_up(coins, block)?)),
        })?;
        if let Some(queue) = queue {
            // Scripts that did not fit into the queue were run by the threads that pushed them.
            for_all(self.threads, 0..self.threads, |_| queue.drain(&faults, &never))?;
            counts.scripts = queue.take_inputs();
        }
        let (mut connected, mut found) = (Vec::new(), Vec::new());
        for done in done {
            match done? {
                Done::CheckedSpends(block) => connected.push(block),
                Done::LookedUp(coins) => found.push(coins),
            }
        }
        let connected: Option<Vec<_>> = connected.into_iter().collect();
        let mut connected = connected.filter(|_| faults.into_lowest().is_none());
        connected.iter_mut().for_each(|blocks| blocks.sort_unstable_by_key(|block| block.height));
        Ok(SecondStep { connected, found: found.into_iter().collect(), counts })
    }

    /// Returns the coins that the blocks of a window both create and spend, with no height in between after
    /// which the sums are wanted.
    fn cancelled(&self, moved: &[(CheckedBlock, CoinList)]) -> Cancelled {
        let mut cancelled = Cancelled::default();
        let (BlockResult::Stats(wanted), Some((first, _))) = (self.result, moved.first()) else {
            return cancelled;
        };
        for (block, spent) in moved {
            let view = block.view();
            let below = wanted.partition_point(|&wanted| wanted < block.height);
            let last_wanted = below.checked_sub(1).and_then(|at| wanted.get(at));
            let first = last_wanted.map_or(first.height, |last| first.height.max(Height(last.0 + 1)));
            let created_since = view.prevouts().zip(spent.iter()).filter(|(_, coin)| coin.height() >= first);
            cancelled.extend(created_since.map(|(outpoint, coin)| (outpoint, coin.height())));
        }
        cancelled
    }

    /// Checks the spends of a block, and adds its scripts to the queue. Returns `None` if anything is wrong.
    fn check_block_spends(
        &self,
        block: &CheckedBlock,
        spent: &CoinList,
        queue: Option<&ScriptQueue<'_>>,
        (faults, cancelled): (&BlockFaults, &Cancelled),
    ) -> Result<Option<ConnectedBlock>, Error> {
        let &CheckedBlock { height, ref hash, legacy_sigops, .. } = block;
        let spent: Vec<Coin<'_>> = spent.iter().collect();
        let (view, coins) = (&block.view(), &decoded_coins(spent.iter().copied()));
        let (params, mtp_by_height) = (self.params, self.chain.median_times());
        let spends =
            BlockSpendContext { params, height, hash, block: view, coins, mtp_by_height, legacy_sigops };
        if check_block_spends(&spends).is_err() {
            return Ok(None);
        }
        if let Some(queue) = queue
            && queue.push_block(view, height, hash, coins, faults).is_err()
        {
            return Ok(None);
        }
        self.connected(block, &spent, coins, cancelled).map(Some)
    }

    /// Makes what the caller wants of a block that spent these coins.
    fn connected(
        &self,
        block: &CheckedBlock,
        spent: &[Coin<'_>],
        decoded: &[SpentCoin<'_>],
        cancelled: &Cancelled,
    ) -> Result<ConnectedBlock, Error> {
        let view = block.view();
        let &CheckedBlock { height, hash, created_counts: created, .. } = block;
        let (prev, stats, spent_counts) = (block.header.prev, None, UtxoCounts::ZERO);
        let (undo, is_undo_stored) = (Vec::new(), false);
        let mut connected =
            ConnectedBlock { height, hash, prev, undo, is_undo_stored, stats, created, spent: spent_counts };
        match self.result {
            BlockResult::Nothing => {}
            BlockResult::Undo => {
                let mut rest = spent;
                let by_tx = view.txs().skip(1).map(|tx| {
                    let (own, others) = rest.split_at_checked(tx.input_count()).unwrap_or_default();
                    rest = others;
                    own.iter().copied()
                });
                connected.undo = write_undo(by_tx);
                let stored = &mut RecordBuffer::default();
                connected.is_undo_stored = self.reader.has_undo(height, &prev, &connected.undo, stored)?;
            }
            BlockResult::Stats(_) => {
                let txids = &block.buffers.hashes.txids;
                let stats = StatsChange::of(self.params, height, &hash, &view, txids, spent, cancelled);
                (connected.spent, connected.stats) = (stats.spent, Some(Box::new(stats)));
                return Ok(connected);
            }
        }
        let mut counter = CoinCounter::default();
        for ((outpoint, coin), decoded) in view.prevouts().zip(spent).zip(decoded) {
            counter.add_parsed(&outpoint, coin, decoded.amount, decoded.script.script_len());
        }
        connected.spent = counter.counts();
        Ok(connected)
    }
}

impl CheckedBlock {
    fn view(&self) -> BlockView<'_> {
        let BlockBuffers { block, arena, .. } = &self.buffers;
        arena.view(self.header, block.bytes().get(..self.len).unwrap_or_default())
    }

    fn memory_bytes(&self) -> usize {
        self.buffers.memory_bytes() + self.moves.memory_bytes()
    }
}

impl BlockBuffers {
    fn memory_bytes(&self) -> usize {
        let BlockHashes { txids, wtxids, .. } = &self.hashes;
        let hashes = txids.capacity() * size_of::<Txid>() + wtxids.capacity() * size_of::<Wtxid>();
        self.block.memory_bytes() + self.arena.memory_bytes() + hashes
    }
}

impl BufferPool {
    /// The memory of windows of about `window_bytes` bytes.
    pub const fn new(window_bytes: usize) -> Self {
        Self { window_bytes, free: Mutex::new(Vec::new()) }
    }

    pub fn max_blocks(&self) -> u32 {
        (self.window_bytes / SMALL_BLOCK_BYTES).clamp(1, WINDOW_BLOCKS) as u32
    }

    fn take(&self) -> BlockBuffers {
        lock(&self.free).pop().unwrap_or_default()
    }

    fn give(&self, buffers: BlockBuffers) {
        let mut free = lock(&self.free);
        let bytes: usize = free.iter().map(BlockBuffers::memory_bytes).sum();
        if bytes + buffers.memory_bytes() <= self.window_bytes {
            free.push(buffers);
        }
    }
}

/// Counts a coin. None is malformed, so none is left out.
fn count(counter: &mut CoinCounter, outpoint: &OutPoint, coin: &Coin<'_>) {
    let counted = counter.add(outpoint, coin);
    debug_assert!(counted.is_ok(), "{outpoint}");
}

/// Looks up the coins that a block spends, as far as they are in the chainstate and not kept in memory. All
/// others are created below it in its window, or are missing. Returns `None` if a coin exists that the block
/// must not create.
fn look_up(coins: &TipCoins<'_>, block: &CheckedBlock) -> Result<Option<FoundCoins>, DiskError> {
    let (mut stored, mut found) = (coins.source().0.lookup(), FoundCoins::default());
    if stored.is_empty() {
        return Ok(Some(found));
    }
    let mut wanted = coins.not_kept(&block.moves);
    wanted.sort_unstable_by_key(|outpoint| first_word(&outpoint.outpoint.txid));
    for outpoint in wanted {
        if let Some(coin) = stored.coin(&outpoint.outpoint)? {
            found.push(*outpoint, coin);
        }
    }
    if block.creates_only_new {
        // Coins in the cache are found when coins are moved: one can be spent there, and still be stored.
        let created: Vec<&HashedOutPoint> = block.moves.created().collect();
        let mut by_tx: Vec<_> = created.chunk_by(|a, b| a.outpoint.txid == b.outpoint.txid).collect();
        by_tx.sort_unstable_by_key(|outpoints| {
            outpoints.first().map(|first| first_word(&first.outpoint.txid))
        });
        for outpoint in by_tx.into_iter().flatten() {
            if stored.coin(&outpoint.outpoint)?.is_some() && !coins.keeps(outpoint) {
                return Ok(None);
            }
        }
    }
    Ok(Some(found))
}

/// Returns the bytes that nearly always decide the order of keys.
fn first_word(txid: &Txid) -> u64 {
    txid.0.first_chunk().map_or(0, |word| u64::from_be_bytes(*word))
}

/// Removes the coins that the blocks spend, transaction by transaction, and adds those that they create.
/// Returns the former; `None` if one is missing, or a coin exists that must not.
fn move_coins(
    coins: &mut TipCoins<'_>,
    window: CheckedWindow,
) -> Result<Option<Vec<(CheckedBlock, CoinList)>>, Error> {
    window.found.iter().for_each(|found| coins.keep(found));
    let mut moved = Vec::with_capacity(window.blocks.len());
    for block in window.blocks {
        let mut spent = CoinList::with_capacity(block.view().input_count());
        match coins.apply(&block.moves, block.hash, &mut spent) {
            Ok(true) => moved.push((block, spent)),
            Ok(false) | Err(CacheError::Exists(_)) => return Ok(None),
            Err(error) => return Err(cache_error(error)),
        }
    }
    Ok(Some(moved))
}

/// The error of a cache over a chainstate.
pub fn cache_error(error: CacheError<DiskError>) -> Error {
    match error {
        CacheError::Source(error) => error.into(),
        error => Error::damaged(format!("{error}: the chainstate is not that of these blocks"))
            .about(Subject::Chainstate),
    }
}

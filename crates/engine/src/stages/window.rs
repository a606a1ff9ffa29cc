//! Stage connect: connects consecutive blocks to the coins of a chainstate.
//!
//! A window is as many blocks as fit into the memory. All threads read and check its blocks, and look up the
//! coins that these spend, in the order of their keys. One thread moves the coins, block by block. Then all
//! threads check the spends of each block with the coins that it has spent, run scripts, and encode the undo
//! data.
//!
//! That proves a window to be valid, but not which block is the first that is not, or which rule it breaks.
//! If anything is wrong, the caller begins again at the last commit, and connects the blocks of this window
//! one by one, as Bitcoin Core does ([`Window::connect_exactly`]): its verdict is final.

use crate::{
    api::{counts::Counts, error::Error, remedy::Remedy},
    blocks::{block_hashes::BlockHashes, chain::Chain},
    stages::{
        block_fault::BlockFaults,
        connect::{ConnectContext, ConnectError, connect_block, for_each_created, spent_coins},
        read::BlockReader,
        scripts::{ScriptQueue, Scripts},
        sequential::{bip34_ancestor, has_undo},
        stored_coins::StoredCoins,
        threads::for_all,
    },
};
use coins::{CacheError, CoinSource as _, CoinsCache, CoinsView as _, OwnedCoin};
use disk::{
    DiskError,
    block_files::RecordBuffer,
    undo::write_undo,
    utxo_stats::{CoinCounter, UtxoCounts},
};
use rules::{BlockSpendContext, ChainParams, bip30_enforced, check_block_spends, is_bip30_exempt};
use std::{mem, ops::Range, sync::atomic::AtomicBool};
use wire::{BlockArena, BlockHash, BlockView, Coin, Height, OutPoint, coin::chainstate_key_order};

/// Number of coins that a thread looks up at once.
const LOOKUP_COINS: usize = 256;

/// The coins of an update.
pub type TipCoins<'d> = CoinsCache<StoredCoins<'d>>;

/// What connects blocks of a chain.
pub struct Window<'a> {
    /// The chain.
    pub chain: &'a Chain,
    /// Reads its blocks.
    pub reader: &'a BlockReader<'a>,
    /// The network's rules.
    pub params: &'static ChainParams,
    /// Which scripts are run; `None`: none are.
    pub scripts: Option<Scripts<'a>>,
    /// Number of threads.
    pub threads: usize,
}

/// The buffers of one block, which are reused.
#[derive(Default)]
pub struct BlockBuffers {
    record: RecordBuffer,
    arena: BlockArena,
    hashes: BlockHashes,
}

/// A block that obeys all rules that need no coins.
struct CheckedBlock<'b> {
    height: Height,
    hash: BlockHash,
    block: BlockView<'b>,
    hashes: &'b BlockHashes,
    legacy_sigops: u32,
    /// Whether none of its coins may exist (BIP-0030).
    creates_only_new: bool,
    /// The coins that it creates, and for each transaction the end of its own.
    created: Vec<(OutPoint, OwnedCoin)>,
    created_ends: Vec<usize>,
    created_counts: UtxoCounts,
}

/// A block that was connected.
pub struct ConnectedBlock {
    /// Its height.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
    /// The hash of its parent.
    pub prev: BlockHash,
    /// Its undo data, as Core encodes it.
    pub undo: Vec<u8>,
    /// Whether the undo file has this undo data.
    pub is_undo_stored: bool,
    /// The coins that it created, except for those that replaced equal ones (BIP-0030).
    pub created: UtxoCounts,
    /// The coins that it spent.
    pub spent: UtxoCounts,
}

impl Window<'_> {
    /// Connects the blocks at `heights`, the first of which follows the best block of `coins`. Returns them,
    /// and how much was checked; `None` if anything is wrong with one of them, or with a file.
    ///
    /// # Errors
    /// Any I/O error; damage to the chainstate. After an error or `None`, `coins` is between two blocks.
    pub fn connect(
        &self,
        coins: &mut TipCoins<'_>,
        heights: Range<u32>,
        buffers: &mut Vec<BlockBuffers>,
    ) -> Result<Option<(Vec<ConnectedBlock>, Counts)>, Error> {
        buffers.resize_with(heights.len(), BlockBuffers::default);
        let items = heights.map(Height).zip(buffers.iter_mut());
        let checked = for_all(self.threads, items, |(height, buffers)| self.check(height, buffers).ok())?;
        let Some(mut blocks) = checked.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        blocks.sort_unstable_by_key(|block| block.height);
        if !self.look_up(coins, &blocks)? {
            return Ok(None);
        }
        let mut moved = Vec::with_capacity(blocks.len());
        for mut block in blocks {
            let Some(spent) = move_coins(coins, &mut block)? else { return Ok(None) };
            moved.push((block, spent));
        }
        self.check_spends(moved)
    }

    /// Connects one block. The result is the same as that of [`Window::connect`], but later.
    ///
    /// # Errors
    /// The first violation; damage; any I/O error. `coins` is then between two blocks.
    pub fn connect_exactly(
        &self,
        coins: &mut TipCoins<'_>,
        height: Height,
        buffers: &mut BlockBuffers,
    ) -> Result<(ConnectedBlock, Counts), Error> {
        let block = self.check(height, buffers)?;
        let context = ConnectContext {
            params: self.params,
            height,
            hash: &block.hash,
            block: &block.block,
            txids: &block.hashes.txids,
            mtp_by_height: self.chain.median_times(),
            bip34_ancestor: bip34_ancestor(self.params, self.chain, height),
        };
        let scripts = self.scripts.as_ref().filter(|scripts| scripts.are_run_at(height));
        let undo = connect_block(coins, &context, scripts).map_err(|error| match error {
            ConnectError::Violation(violation) => {
                self.reader.located(height).verdict(&violation, &block.hashes.txids)
            }
            ConnectError::View(error) => view_error(error),
        })?;
        let mut counts = Counts::of(&block.block);
        counts.scripts = if scripts.is_some() { counts.inputs } else { 0 };
        Ok((self.connected(&block, &undo.concat())?, counts))
    }

    /// Reads a block, and checks all rules that need no coins.
    fn check<'b>(&self, height: Height, buffers: &'b mut BlockBuffers) -> Result<CheckedBlock<'b>, Error> {
        let hash = self.chain.block(height).hash;
        let located = self.reader.located(height);
        let BlockBuffers { record, arena, hashes } = buffers;
        self.reader.read_block(height, record).map_err(|error| error.at_block(height, hash))?;
        let (block, checked) = located.check(record.bytes(), arena, hashes)?;
        if let Some(scripts) = &self.scripts {
            let solution = scripts.check_solution(&block, height, &hashes.txids);
            solution.map_err(|violation| located.verdict(&violation, &hashes.txids))?;
        }
        let sums = checked.map_err(|violation| located.verdict(&violation, &hashes.txids))?;
        let (mut created, mut created_ends) = (Vec::with_capacity(block.output_count()), Vec::new());
        for (tx, txid) in block.txs().zip(&hashes.txids) {
            let code = Coin::code_of(height, created_ends.is_empty());
            let Ok(()) = for_each_created(&tx, txid, code, |outpoint, coin| {
                created.push((outpoint, coin.into()));
                Ok::<(), std::convert::Infallible>(())
            });
            created_ends.push(created.len());
        }
        // The coins of the coinbase, if these exist.
        let replaced = match created_ends.first() {
            Some(&end) if is_bip30_exempt(self.params, height, &hash) => end,
            _ => 0,
        };
        let counted = if height.0 == 0 { &[] } else { created.get(replaced..).unwrap_or_default() };
        let created_counts = count(counted.iter().map(|(outpoint, coin)| (*outpoint, coin)));
        let ancestor = bip34_ancestor(self.params, self.chain, height);
        let creates_only_new = bip30_enforced(self.params, height, &hash, ancestor.as_ref());
        let legacy_sigops = sums.legacy_sigops;
        Ok(CheckedBlock {
            height,
            hash,
            block,
            hashes,
            legacy_sigops,
            creates_only_new,
            created,
            created_ends,
            created_counts,
        })
    }

    /// Looks up the coins that the blocks spend, as far as they are in the chainstate. All others are created
    /// in this window, or are missing. Returns whether no coin exists that a block must not create.
    fn look_up(&self, coins: &mut TipCoins<'_>, blocks: &[CheckedBlock<'_>]) -> Result<bool, Error> {
        let prevouts = blocks.iter().flat_map(|block| block.block.txs().skip(1)).flat_map(|tx| tx.inputs());
        for (outpoint, coin) in self.stored(coins, prevouts.map(|input| input.prevout()).collect())? {
            coins.keep(outpoint, coin);
        }
        let only_new = blocks.iter().filter(|block| block.creates_only_new);
        let created = only_new.flat_map(|block| &block.created).map(|(outpoint, _)| *outpoint).collect();
        Ok(self.stored(coins, created)?.is_empty())
    }

    /// Returns those coins of the chainstate that are not kept in memory.
    fn stored(
        &self,
        coins: &TipCoins<'_>,
        mut wanted: Vec<OutPoint>,
    ) -> Result<Vec<(OutPoint, OwnedCoin)>, Error> {
        wanted.retain(|outpoint| !coins.keeps(outpoint));
        wanted.sort_unstable_by(chainstate_key_order);
        let source = coins.source();
        let found = for_all(self.threads, wanted.chunks(LOOKUP_COINS), |outpoints| {
            let found =
                outpoints.iter().map(|outpoint| Ok(source.coin(outpoint)?.map(|coin| (*outpoint, coin))));
            found.filter_map(Result::transpose).collect::<Result<Vec<_>, DiskError>>()
        })?;
        let found = found.into_iter().collect::<Result<Vec<_>, DiskError>>()?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Checks the spends and the scripts of blocks with the coins that they have spent.
    fn check_spends(
        &self,
        moved: Vec<(CheckedBlock<'_>, Vec<OwnedCoin>)>,
    ) -> Result<Option<(Vec<ConnectedBlock>, Counts)>, Error> {
        let mut counts = Counts::default();
        moved.iter().for_each(|(block, _)| counts += Counts::of(&block.block));
        let last = moved.last().map_or(Height(0), |(block, _)| block.height);
        let queue = self.scripts.filter(|scripts| scripts.are_run_at(last)).map(ScriptQueue::new);
        let (faults, never) = (BlockFaults::default(), AtomicBool::new(false));
        let connected = for_all(self.threads, moved.into_iter(), |(block, spent)| {
            let CheckedBlock { height, ref hash, block: view, legacy_sigops, .. } = block;
            let coins = &spent_coins(&spent);
            let (params, mtp_by_height) = (self.params, self.chain.median_times());
            let spends =
                BlockSpendContext { params, height, hash, block: &view, coins, mtp_by_height, legacy_sigops };
            if check_block_spends(&spends).is_err() {
                return Ok(None);
            }
            if let Some(queue) = &queue
                && queue.push_block(&view, height, hash, coins, &faults).is_err()
            {
                return Ok(None);
            }
            self.connected(&block, &spent).map(Some)
        })?;
        if let Some(queue) = queue {
            // What did not fit into the queue was run by the threads that pushed it.
            for_all(self.threads, 0..self.threads, |_| queue.drain(&faults, &never))?;
            counts.scripts = queue.take_inputs();
        }
        let connected: Option<Vec<_>> = connected.into_iter().collect::<Result<_, Error>>()?;
        let valid = connected.filter(|_| faults.into_lowest().is_none());
        Ok(valid.map(|mut connected| {
            connected.sort_unstable_by_key(|block| block.height);
            (connected, counts)
        }))
    }

    /// Encodes the undo data of a block that spent these coins.
    fn connected(&self, block: &CheckedBlock<'_>, spent: &[OwnedCoin]) -> Result<ConnectedBlock, Error> {
        let mut rest = spent;
        let by_tx = block.block.txs().skip(1).map(|tx| {
            let (own, others) = rest.split_at_checked(tx.input_count()).unwrap_or_default();
            rest = others;
            own
        });
        let by_tx: Vec<&[OwnedCoin]> = by_tx.collect();
        let undo = write_undo(by_tx.into_iter().map(|coins| coins.iter().map(OwnedCoin::as_coin)));
        let &CheckedBlock { height, hash, ref block, created_counts: created, .. } = block;
        let prev = block.header().prev;
        let is_undo_stored = has_undo(self.reader, height, &prev, &undo)?;
        let prevouts = block.txs().skip(1).flat_map(|tx| tx.inputs()).map(|input| input.prevout());
        let spent = count(prevouts.zip(spent));
        Ok(ConnectedBlock { height, hash, prev, undo, is_undo_stored, created, spent })
    }
}

/// Counts coins. None is malformed, so none is left out.
fn count<'c>(coins: impl Iterator<Item = (OutPoint, &'c OwnedCoin)>) -> UtxoCounts {
    let mut counter = CoinCounter::default();
    for (outpoint, coin) in coins {
        let counted = counter.add(&outpoint, &coin.as_coin());
        debug_assert!(counted.is_ok(), "{outpoint}");
    }
    counter.counts()
}

/// Removes the coins that a block spends, transaction by transaction, and adds those that it creates. Returns
/// the former; `None` if one is missing, or a coin exists that must not.
fn move_coins(
    coins: &mut TipCoins<'_>,
    block: &mut CheckedBlock<'_>,
) -> Result<Option<Vec<OwnedCoin>>, Error> {
    let mut spent = Vec::with_capacity(block.block.input_count());
    let mut created = mem::take(&mut block.created).into_iter();
    let (mut begin, mut is_coinbase) = (0, true);
    for (tx, &end) in block.block.txs().zip(&block.created_ends) {
        if !is_coinbase {
            for input in tx.inputs() {
                match coins.spend_coin(&input.prevout()).map_err(view_error)? {
                    Some(coin) => spent.push(coin),
                    None => return Ok(None),
                }
            }
        }
        let can_exist = is_coinbase && !block.creates_only_new;
        for (outpoint, coin) in created.by_ref().take(end - begin) {
            if coins.add_owned(outpoint, coin, can_exist).is_err() {
                return Ok(None);
            }
        }
        (begin, is_coinbase) = (end, false);
    }
    coins.set_best_block(block.hash).map_err(view_error)?;
    Ok(Some(spent))
}

/// The error of a cache over a chainstate.
pub fn view_error(error: CacheError<DiskError>) -> Error {
    match error {
        CacheError::Source(error) => error.into(),
        error => Error::damaged(format!("{error}: the chainstate is not that of these blocks"))
            .with_remedies([Remedy::RebuildChainstate]),
    }
}

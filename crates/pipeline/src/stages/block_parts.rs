//! Gives the blocks of a chain to a consumer, with the coins that they spend, in parts of the chain, on
//! several threads.
//!
//! Each block is checked as far as possible without other blocks, and its undo data by its checksum. Whether
//! its coins are the right ones is not checked.

use crate::stages::{
    check::{claims_of, is_overwritten},
    read::{BlockBuffers, BlockReader, split_checksum},
};
use api::{
    error::{Error, ErrorKind},
    event::{BlockMeter, Watch},
    subject::Subject,
};
use chain::{
    blocks::{
        damage::{Damage, UndoDefect},
        files::Files,
    },
    plan::planner::Plan,
    threads::each_number,
};
use disk::{block_files::RecordBuffer, datadir::FileKind};
use rules::{ChainParams, SpentCoin};
use std::ops::RangeInclusive;
use wire::{BlockHash, BlockTime, BlockView, Coin, Height, Sats, TxView, Txid, Wtxid};

/// Maximum amount of all coins that a block spends, in satoshis: sums of it, and rates, stay below 63 bits.
const MAX_SPENT: i64 = i64::MAX / 4;

/// An input that spends an output. The order is that of the chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SpendingInput {
    pub height: Height,
    /// Index of its transaction in the block.
    pub tx_index: u32,
    pub input_index: u32,
    /// The id of its transaction, if it was asked for.
    pub txid: Option<Txid>,
}

/// A block, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct BlockData<'a> {
    pub params: &'static ChainParams,
    pub height: Height,
    pub hash: BlockHash,
    /// The median of its time and those of the ten blocks below (Core `GetMedianTimePast`).
    pub median_time: BlockTime,
    /// The same for each block of the chain, by height.
    pub median_times: &'a [BlockTime],
    pub block: &'a BlockView<'a>,
    pub txids: &'a [Txid],
    /// Whether a block that is read later creates the coins of its coinbase again (BIP-0030).
    pub is_overwritten: bool,
    /// The wtxid of each transaction if any has a witness; otherwise empty. That of the coinbase is zero in
    /// the commitment, but not here.
    pub wtxids: &'a [Wtxid],
    /// The coins that its inputs spend, in the order of the inputs, without the coinbase's. Empty if they
    /// were not asked for.
    pub coins: &'a [SpentCoin<'a>],
    /// The same coins, compressed.
    pub claims: &'a [Coin<'a>],
    /// Bytes of its undo data. 0 if coins were not asked for.
    pub undo_len: usize,
    /// The inputs that spend its outputs, in the order of the outputs; `None`: no block that was read spends
    /// it. Empty if they were not asked for.
    pub spent_by: &'a [Option<SpendingInput>],
}

impl<'a> BlockData<'a> {
    /// The median time of the block at a height, which is that of a coin.
    pub fn median_time_at(&self, height: Height) -> BlockTime {
        self.median_times.get(height.0 as usize).copied().unwrap_or_default()
    }

    /// Returns each transaction with the coins that it spends, if coins were asked for. The coinbase spends
    /// none.
    pub fn txs(&self) -> impl Iterator<Item = (TxView<'a>, &'a [SpentCoin<'a>])> {
        let mut coins = self.coins;
        self.block.txs().zip(0..).map(move |(tx, index)| {
            let count = if index == 0 { 0 } else { tx.input_count() };
            let (own, others) = coins.split_at_checked(count).unwrap_or_default();
            coins = others;
            (tx, own)
        })
    }

    /// Returns the index of the first transaction that spends more than can exist (Core
    /// `bad-txns-inputvalues-outofrange`).
    fn first_excess(&self) -> Option<usize> {
        let mut all = 0i64;
        self.txs().position(|(_, coins)| {
            let spent = coins.iter().fold(0i64, |sum, coin| sum.saturating_add(coin.amount.0));
            all = all.saturating_add(spent);
            spent > Sats::MAX_MONEY.0 || all > MAX_SPENT
        })
    }
}

/// Returns the hash of a block up to the last one that is read.
pub type HashAt<'a> = dyn Fn(Height) -> BlockHash + 'a;

/// What takes the parts of a range of blocks, on several threads.
pub trait BlockConsumer: Sync {
    /// Begins the part with the blocks at these heights. Returns `None` if it is not needed.
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error>;
}

/// What takes the blocks of a part, in order of height.
pub trait PartConsumer {
    fn block(&mut self, block: &BlockData<'_>) -> Result<(), Error>;

    /// The part has no more blocks.
    fn finish(self: Box<Self>) -> Result<(), Error>;
}

/// Parts of a chain that are to be read.
pub struct BlockParts<'a> {
    pub plan: &'a Plan,
    pub files: &'a Files<'a>,
    /// The blocks, at least one.
    pub heights: RangeInclusive<u32>,
    /// From this height on, also give the coins that the blocks spend, for which undo data is needed.
    pub coins_from: Option<Height>,
    /// Also check witnesses and the rules of a block; otherwise only that its transactions are those to which
    /// its header commits. Without it, wtxids are empty.
    pub with_witnesses: bool,
    /// Number of blocks of a part, at least 1. Parts begin at its multiples.
    pub part_blocks: u32,
    /// Number of parts that are read at the same time.
    pub threads: usize,
}

impl BlockParts<'_> {
    /// Gives the blocks to a consumer. Each is checked as far as possible without other blocks, and its undo
    /// data by its checksum. Threads take the parts in order.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] for a block or undo data that is damaged or missing;
    /// [`ErrorKind::Consensus`] for a block that breaks a rule; errors of the consumer;
    /// [`ErrorKind::Interrupted`]; [`ErrorKind::Internal`] if the consumer panics. Of several errors, that of
    /// the lowest part is returned.
    pub fn read(&self, consumer: &impl BlockConsumer, watch: Watch<'_>) -> Result<(), Error> {
        let reader = &BlockReader::new(&self.plan.chain, self.files);
        let meter = self.plan.meter(self.heights.clone().count(), watch.sink);
        let shared = &Shared { parts: self, reader, watch, meter };
        let (start, end) = (*self.heights.start(), *self.heights.end());
        let part_blocks = self.part_blocks.max(1);
        let [first_part, last_part] = [start, end].map(|height| height / part_blocks);
        each_number(self.threads, last_part - first_part + 1, BlockBuffers::default, |buffers, number| {
            let first = (first_part + number).saturating_mul(part_blocks);
            let last = first.saturating_add(part_blocks - 1);
            shared.read_part(first.max(start)..=last.min(end), consumer, buffers)
        })
    }
}

/// What all workers share.
struct Shared<'a> {
    parts: &'a BlockParts<'a>,
    reader: &'a BlockReader<'a>,
    watch: Watch<'a>,
    meter: BlockMeter<'a>,
}

impl Shared<'_> {
    fn read_part(
        &self,
        heights: RangeInclusive<u32>,
        consumer: &impl BlockConsumer,
        buffers: &mut BlockBuffers,
    ) -> Result<(), Error> {
        let Some(mut part) = consumer.begin_part(heights.clone())? else {
            self.meter.add(heights.count() as u32, 0);
            return Ok(());
        };
        for height in heights {
            Error::check_interrupt(self.watch.interrupt)?;
            self.read(Height(height), buffers, |block| part.block(block))?;
            self.meter.add(1, 0);
        }
        part.finish()
    }

    /// Reads and checks a block.
    fn read(
        &self,
        height: Height,
        buffers: &mut BlockBuffers,
        each: impl FnOnce(&BlockData<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let chain = &self.parts.plan.chain;
        let located = self.reader.read(height, false, buffers)?;
        let BlockBuffers { block, undo, arena, undo_arena, hashes } = buffers;
        let with_coins = height.0 > 0 && self.parts.coins_from.is_some_and(|from| from <= height);
        if with_coins {
            self.read_undo(height, undo)?;
        }
        let block = &located.parse(block.bytes(), arena)?;
        let (undo_data, checksum) = split_checksum(undo.bytes());
        let is_known = !self.parts.with_witnesses && located.has_txids_of(block, undo_data, hashes);
        if !is_known {
            let checked = located.check_view(block, undo_data, hashes)?;
            checked.map_err(|violation| located.verdict(&violation, &hashes.txids))?;
        }
        let claims = match with_coins {
            true => claims_of(block, undo_data, checksum, undo_arena, &hashes.undo_checksum),
            false => Ok(Vec::new()),
        };
        let coins = claims.and_then(|claims| {
            let coins = claims.iter().map(SpentCoin::from_coin).collect::<Result<Vec<_>, _>>();
            Ok((coins.map_err(UndoDefect::Coin)?, claims))
        });
        let bad_undo = |defect| located.damaged(&Damage::Undo(defect)).about(Subject::UndoData);
        let (coins, claims) = coins.map_err(bad_undo)?;
        let (params, last) = (self.parts.files.params, Height(*self.parts.heights.end()));
        let data = BlockData {
            params,
            height,
            hash: chain.block(height).hash,
            median_time: chain.median_times().get(height.0 as usize).copied().unwrap_or_default(),
            median_times: chain.median_times(),
            block,
            txids: &hashes.txids,
            is_overwritten: is_overwritten(params, chain, height, last),
            wtxids: &hashes.wtxids,
            coins: &coins,
            claims: &claims,
            undo_len: undo_data.len(),
            spent_by: &[],
        };
        match with_coins.then(|| data.first_excess()).flatten() {
            Some(tx) => Err(bad_undo(UndoDefect::Claims(tx)).in_tx(data.txids.get(tx).copied())),
            None => each(&data),
        }
    }

    fn read_undo(&self, height: Height, into: &mut RecordBuffer) -> Result<(), Error> {
        let position = self.parts.plan.chain.block(height);
        let missing = || {
            let (file, _) = self.reader.located(height).position(FileKind::Rev);
            Error::damaged("the undo data of the block is not on disk").in_file(file, None)
        };
        let read = position.undo_pos.ok_or_else(missing).and_then(|_| self.reader.read_undo(height, into));
        read.map_err(|error| {
            let error = error.at_block(height, position.hash);
            if error.kind == ErrorKind::Damaged { error.about(Subject::UndoData) } else { error }
        })
    }
}

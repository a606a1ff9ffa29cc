//! Finds the input that spends each output of some blocks.
//!
//! All blocks from the first of them on are read, with the coins that they spend. Each input whose coin one
//! of these blocks created makes a record: a hash of the coin, and the place of the input. Records are
//! divided by the block that created the coin ([`Parts`]), so that they fit into little memory. When the
//! blocks are read again, each output is looked up among the records of its part.
//!
//! Coins come from undo data, which may be false. The hash covers all of a coin, and each record must belong
//! to one output: that of a false coin belongs to none.

use crate::stages::{
    block_parts::{BlockConsumer, BlockData, BlockParts, PartConsumer, SpendingInput},
    coin_hash::{CoinHasher, CoinSums},
    parts::{Parts, block_sizes, part_bounds},
    work_dir::WorkDir,
};
use api::{
    disk_need::DiskNeed,
    error::{Error, ErrorKind},
    event::{Event, Watch},
    machine,
    note::Note,
    subject::Subject,
};
use chain::{
    blocks::{
        damage::{Damage, UndoDefect},
        files::LocatedBlock,
    },
    threads::lock,
};
use std::{
    collections::HashMap,
    ops::RangeInclusive,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use wire::{
    Coin, Height, Network, OutPoint, Sats, Txid, UtxoElement, coin::compress_output, script::is_unspendable,
};

/// Bytes of a coin's hash. If two outputs of a part have the same one, which is less likely than one in
/// 10^14, that is an error.
const HASH_LEN: usize = 12;
/// These bytes of a number that is read as little-endian.
const HASH_MASK: u128 = (1 << (8 * HASH_LEN)) - 1;
/// Bytes of a record: the hash, then height, index of the transaction and index of the input, each as u32
/// (little-endian).
const RECORD_LEN: usize = HASH_LEN + 3 * 4;
/// Bytes of a record that also has the id of the transaction.
const LONG_RECORD_LEN: usize = RECORD_LEN + 32;

/// Number of blocks that a thread reads before it takes others.
const READ_BLOCKS: u32 = 32;
/// Number of records that a thread keeps until they are divided.
const BATCH_RECORDS: usize = 1 << 14;
/// Block bytes per input of mainnet, at least: they are 200.
const BLOCK_BYTES_PER_INPUT_ON_MAINNET: u64 = 140;
/// The same on other chains, whose inputs may have no signatures.
const BLOCK_BYTES_PER_INPUT: u64 = 41;

/// Outputs, and the inputs that are to be found for them.
pub struct SpendsRequest<'a> {
    /// The blocks with the outputs, in the consumer's parts.
    pub blocks: &'a BlockParts<'a>,
    /// Where records go that do not fit into memory.
    pub work: &'a WorkDir<'a>,
    /// The last block with inputs, not below these blocks.
    pub last: Height,
    /// Whether the ids of the spending transactions are wanted.
    pub with_txids: bool,
    /// Bytes of blocks whose records a thread has in memory at one time. With their
    /// table, they take about three eighths of it, and half with txids.
    pub part_block_bytes: u64,
    /// Memory in bytes for records that are not in the file.
    pub memory_bytes: usize,
}

/// The inputs that spend outputs of some blocks.
pub struct SpendingInputs<'a> {
    request: SpendsRequest<'a>,
    parts: Parts<'a>,
    hasher: CoinHasher,
}

api::reported! {
/// The outputs that no block spends: the UTXO set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnspentOutputs {
    /// Their number.
    pub coins: u64,
    /// Sum of their amounts.
    pub total_amount as "total_amount_sat": Sats,
    /// MuHash of the set, in internal byte order.
    pub muhash with "api::json::HashText": [u8; 32],
}
}

impl<'a> SpendsRequest<'a> {
    /// Reads the blocks with the inputs, and keeps what spends the outputs.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`] if too little disk space is free; [`ErrorKind::Damaged`] if undo data has a
    /// coin of a higher block; the errors of [`BlockParts::read`]; any I/O error.
    pub fn collect(self, watch: Watch<'_>) -> Result<SpendingInputs<'a>, Error> {
        let Self { blocks, work, last, .. } = self;
        let &BlockParts { plan, files, ref heights, part_blocks, threads, .. } = blocks;
        let sizes = block_sizes(&plan.chain);
        let (first, end) = (*heights.start(), *heights.end() + 1);
        let block_bytes: u64 = (first..end).map(|height| u64::from(sizes[height as usize])).sum();
        let is_main = files.params.network == Network::Main;
        let per_input = if is_main { BLOCK_BYTES_PER_INPUT_ON_MAINNET } else { BLOCK_BYTES_PER_INPUT };
        let temporary = block_bytes / per_input * self.record_len() as u64;
        if temporary > self.memory_bytes as u64 {
            let need = DiskNeed { chainstate: 0, temporary, undo: 0 };
            need.check(work.disk(), work.path(), work.path(), work.path(), 0)?;
            watch.sink.event(Event::Note(Note::DiskNeed(need)));
        }
        let bounds = part_bounds(&sizes, first..end, self.part_block_bytes, part_blocks);
        let parts = Parts::with_bounds(work, bounds, self.memory_bytes);
        let hasher = CoinHasher::new(machine::random_key()?);
        let spends = SpendingInputs { request: self, parts, hasher };
        // The genesis block spends nothing, and has no undo data.
        let heights = first.max(1)..=last.0;
        if !heights.is_empty() {
            let (coins_from, with_witnesses, part_blocks) = (Some(Height(0)), false, READ_BLOCKS);
            let read = BlockParts { plan, files, heights, coins_from, with_witnesses, part_blocks, threads };
            read.read(&spends, watch)?;
        }
        Ok(spends)
    }

    const fn record_len(&self) -> usize {
        if self.with_txids { LONG_RECORD_LEN } else { RECORD_LEN }
    }
}

impl BlockConsumer for SpendingInputs<'_> {
    fn begin_part(&self, _: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        let (records, order) = Default::default();
        Ok(Some(Box::new(Batch { spends: self, hasher: self.hasher.clone(), records, order })))
    }
}

/// Records that are not divided yet.
struct Batch<'a> {
    spends: &'a SpendingInputs<'a>,
    hasher: CoinHasher,
    records: Vec<u8>,
    /// The part of each record, and its number.
    order: Vec<(usize, usize)>,
}

impl PartConsumer for Batch<'_> {
    fn block(&mut self, block: &BlockData<'_>) -> Result<(), Error> {
        let SpendingInputs { request, parts, .. } = self.spends;
        let txs = block.block.txs().zip(0..).zip(block.txids).skip(1);
        let inputs = txs.flat_map(|((tx, tx_index), txid)| {
            tx.inputs().zip(0u32..).map(move |(input, index)| (input.prevout(), tx_index, index, txid))
        });
        for ((outpoint, tx_index, input_index, txid), coin) in inputs.zip(block.claims) {
            let created = coin.height();
            if created > block.height {
                let (height, txid) = (block.height, Some(*txid));
                let input = SpendingInput { height, tx_index, input_index, txid };
                return Err(self.spends.false_coin(&input));
            }
            if !request.blocks.heights.contains(&created.0) {
                continue;
            }
            self.order.push((parts.part_of(created), self.order.len()));
            let hash = self.hasher.hash(&outpoint, coin).to_le_bytes();
            self.records.extend(hash.into_iter().take(HASH_LEN));
            for number in [block.height.0, tx_index, input_index] {
                self.records.extend_from_slice(&number.to_le_bytes());
            }
            if request.with_txids {
                self.records.extend_from_slice(&txid.0);
            }
            if self.order.len() >= BATCH_RECORDS {
                self.divide()?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), Error> {
        self.divide()
    }
}

impl Batch<'_> {
    fn divide(&mut self) -> Result<(), Error> {
        let len = self.spends.request.record_len();
        let mut of_part = Vec::new();
        self.order.sort_unstable();
        for records in self.order.chunk_by(|(part, _), (other, _)| part == other) {
            of_part.clear();
            let bytes = records.iter().filter_map(|(_, at)| self.records.get(at * len..(at + 1) * len));
            bytes.for_each(|record| of_part.extend_from_slice(record));
            if let Some((part, _)) = records.first() {
                self.spends.parts.add(*part, &of_part)?;
            }
        }
        self.order.clear();
        self.records.clear();
        Ok(())
    }
}

impl SpendingInputs<'_> {
    /// Gives the blocks with the outputs to a consumer, with the inputs that spend them. Returns what no
    /// block spends, if all blocks up to the last one with inputs were given.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if an input spends, according to undo data, what is no output of these blocks,
    /// or what another input spends too; the errors of [`BlockParts::read`]; any I/O error.
    pub fn give_blocks(
        &self,
        consumer: &impl BlockConsumer,
        watch: Watch<'_>,
    ) -> Result<Option<UnspentOutputs>, Error> {
        let SpendsRequest { blocks, last, .. } = self.request;
        let is_whole = *blocks.heights.start() == 0 && *blocks.heights.end() == last.0;
        let sum = is_whole.then(|| Mutex::new(CoinSums::default()));
        let giver = Giver { spends: self, consumer, sum, has_all: AtomicBool::new(true) };
        blocks.read(&giver, watch)?;
        let has_all = giver.has_all.into_inner();
        let sum = giver.sum.filter(|_| has_all);
        Ok(sum.map(|sum| {
            let CoinSums { coins, amount, muhash } = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
            UnspentOutputs { coins, total_amount: amount, muhash: muhash.finalize() }
        }))
    }

    /// The error for an input whose undo data has a false coin.
    fn false_coin(&self, input: &SpendingInput) -> Error {
        let BlockParts { plan, files, .. } = *self.request.blocks;
        let located = LocatedBlock { chain: &plan.chain, files, height: input.height };
        let defect = UndoDefect::Claims(input.tx_index as usize);
        located.damaged(&Damage::Undo(defect)).about(Subject::UndoData).in_tx(input.txid)
    }

    /// The error for an input that spends what another one does.
    fn double_spend(&self, [first, second]: [SpendingInput; 2]) -> Error {
        let SpendingInput { height, tx_index, input_index, txid } = second;
        let detail = format!(
            "input {input_index} of transaction {tx_index} of the block spends an output that input {} of \
             transaction {} of the block at height {} spends too",
            first.input_index, first.tx_index, first.height
        );
        let hash = self.request.blocks.plan.chain.block(height).hash;
        Error::damaged(detail).at_block(height, hash).in_tx(txid)
    }
}

/// Gives blocks to a consumer, with the inputs that spend their outputs.
struct Giver<'a, C> {
    spends: &'a SpendingInputs<'a>,
    consumer: &'a C,
    /// What no block spends, if it is wanted.
    sum: Option<Mutex<CoinSums>>,
    /// Whether the consumer has taken all parts.
    has_all: AtomicBool,
}

impl<C: BlockConsumer> BlockConsumer for Giver<'_, C> {
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        let Some(consumer) = self.consumer.begin_part(heights)? else {
            self.has_all.store(false, Ordering::Relaxed);
            return Ok(None);
        };
        let (records, out, element, spent_by, unspent) = Default::default();
        Ok(Some(Box::new(GivenPart {
            spends: self.spends,
            consumer,
            records,
            records_end: Height(0),
            hasher: self.spends.hasher.clone(),
            out,
            element,
            spent_by,
            unspent,
            sum: self.sum.as_ref(),
        })))
    }
}

struct GivenPart<'a> {
    spends: &'a SpendingInputs<'a>,
    consumer: Box<dyn PartConsumer + 'a>,
    records: Records,
    /// The block after those that `records` are about.
    records_end: Height,
    hasher: CoinHasher,
    /// A coin's compressed output.
    out: Vec<u8>,
    /// A coin as MuHash covers it.
    element: Vec<u8>,
    spent_by: Vec<Option<SpendingInput>>,
    unspent: CoinSums,
    sum: Option<&'a Mutex<CoinSums>>,
}

impl PartConsumer for GivenPart<'_> {
    fn block(&mut self, block: &BlockData<'_>) -> Result<(), Error> {
        if block.height >= self.records_end {
            self.records.check_all_found(self.spends)?;
            let part = self.spends.parts.part_of(block.height);
            self.records = Records::new(self.spends, part)?;
            self.records_end = Height(self.spends.parts.heights(part).end);
        }
        let height = block.height;
        self.spent_by.clear();
        for ((tx, &txid), index) in block.block.txs().zip(block.txids).zip(0u32..) {
            let is_coinbase = index == 0;
            let creates_coins = height.0 > 0 && !(is_coinbase && block.is_overwritten);
            let code = Coin::code_of(height, is_coinbase);
            for (output, vout) in tx.outputs().zip(0..) {
                let (amount, script) = (output.value(), output.script_pubkey());
                let spent_by = if creates_coins && !is_unspendable(script) {
                    self.find(&UtxoElement { outpoint: OutPoint { txid, vout }, code, amount, script })?
                } else {
                    None
                };
                self.spent_by.push(spent_by);
            }
        }
        self.consumer.block(&BlockData { spent_by: &self.spent_by, ..*block })
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        self.records.check_all_found(self.spends)?;
        if let Some(sum) = self.sum {
            lock(sum).merge(&self.unspent);
        }
        self.consumer.finish()
    }
}

impl GivenPart<'_> {
    /// Returns the input that spends a coin, or counts the coin.
    fn find(&mut self, coin: &UtxoElement<'_>) -> Result<Option<SpendingInput>, Error> {
        if !self.records.by_hash.is_empty() {
            self.out.clear();
            compress_output(&mut self.out, coin.amount, coin.script);
            let hash = self.hasher.hash(&coin.outpoint, &Coin { code: coin.code, out: &self.out });
            if let Some(input) = self.records.find(hash)? {
                return Ok(Some(input));
            }
        }
        if self.sum.is_some() {
            self.element.clear();
            coin.write(&mut self.element);
            self.unspent.add(coin.amount, &self.element);
        }
        Ok(None)
    }
}

#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    /// Bytes of one.
    len: usize,
    /// The number of each, by its hash, and whether its output was found.
    by_hash: HashMap<u128, (usize, bool)>,
}

impl Records {
    /// Takes the records of a part.
    fn new(spends: &SpendingInputs<'_>, part: usize) -> Result<Self, Error> {
        let (bytes, len) = (spends.parts.take(part)?, spends.request.record_len());
        let count = bytes.len() / len;
        let mut records = Self { bytes, len, by_hash: HashMap::with_capacity(count) };
        for at in 0..count {
            let mut hash = [0; 16];
            hash[..HASH_LEN].copy_from_slice(&records.record(at)[..HASH_LEN]);
            if let Some((other, _)) = records.by_hash.insert(u128::from_le_bytes(hash), (at, false)) {
                let mut inputs = [records.input(other), records.input(at)];
                inputs.sort_unstable();
                return Err(spends.double_spend(inputs));
            }
        }
        Ok(records)
    }

    /// Returns the input that spends the coin with this hash.
    fn find(&mut self, hash: u128) -> Result<Option<SpendingInput>, Error> {
        let Some((at, is_found)) = self.by_hash.get_mut(&(hash & HASH_MASK)) else { return Ok(None) };
        if std::mem::replace(is_found, true) {
            let detail = "two outputs have the same random hash, which is nearly impossible; run this again";
            return Err(Error::new(ErrorKind::Internal, detail));
        }
        let at = *at;
        Ok(Some(self.input(at)))
    }

    /// Checks that the outputs of all records were found.
    fn check_all_found(&self, spends: &SpendingInputs<'_>) -> Result<(), Error> {
        let missing = self.by_hash.values().filter(|(_, is_found)| !is_found);
        match missing.map(|&(at, _)| self.input(at)).min() {
            None => Ok(()),
            Some(input) => Err(spends.false_coin(&input)),
        }
    }

    fn record(&self, at: usize) -> &[u8] {
        &self.bytes[at * self.len..(at + 1) * self.len]
    }

    fn input(&self, at: usize) -> SpendingInput {
        let (place, txid) = self.record(at)[HASH_LEN..].split_at(3 * 4);
        let number = |at: usize| u32::from_le_bytes(place.as_chunks::<4>().0[at]);
        let txid = txid.try_into().ok().map(Txid);
        SpendingInput { height: Height(number(0)), tx_index: number(1), input_index: number(2), txid }
    }
}

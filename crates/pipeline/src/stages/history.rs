//! The history of each output script: what outputs pay to it and what inputs spend of it, in chain order.
//!
//! An output that becomes a coin is a movement of its script, and so is an input, of the script of the coin
//! that it spends. The hash of a script is the SHA-256 of its bytes. Movements are found in any order, on any
//! thread, and are divided by the first digits of script hashes into buckets ([`Parts`]). A bucket is sorted
//! by the thread that takes it. If it does not fit into the thread's memory, sorted runs of it are written
//! and merged: many movements can be of one script.
//!
//! Each input must spend a coin that an earlier output has paid to the same script, with the same height,
//! coinbase flag and amount. The coins that are left over are the UTXO set, whose MuHash is computed.
//!
//! Outputs that never become coins are no movements: those of the genesis block, those of the two coinbases
//! that were repeated before BIP-0030, and unspendable ones (Core `CScript::IsUnspendable`).
//!
//! ```text
//! script hash 32 | height 4 | index of the transaction 4 | outputs: bit 31, index 4     (big-endian: key)
//! | txid 32 | amount 8 | id of the coin 8 | length of the script 2 | script, of an output   (little-endian)
//! ```

use crate::stages::{
    block_parts::{BlockConsumer, BlockData, PartConsumer},
    coin_hash::CoinSums,
    parts::Parts,
    work_dir::WorkDir,
};
use api::{
    error::{Error, ErrorKind},
    hex_reversed,
    remedy::Remedy,
};
use digest::{
    muhash::MuHash3072,
    sha256::sha256,
    siphash::{SipKey, siphash24},
};
use disk::scratch_file::Piece;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    ops::RangeInclusive,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    vec,
};
use wire::{BlockTime, Coin, Height, OutPoint, Reader, Sats, Txid, UtxoElement, WireError};

/// Maximum number of hexadecimal digits of a script hash that choose its bucket.
pub const MAX_PREFIX_DIGITS: u32 = 3;

/// Script hash, height and indices.
const KEY_LEN: usize = 32 + 3 * 4;
/// Set in the last number of an output's key, so that the inputs of a transaction come before its outputs.
const OUTPUT: u32 = 1 << 31;
/// Bytes of movements that a thread collects before it adds them to their buckets.
const PENDING_BYTES: usize = 2 << 20;
/// Bytes of the pieces of a sorted run. While runs are merged, one piece of each is in memory.
const RUN_PIECE_BYTES: usize = 64 << 10;
/// Number of movements after which the caller of [`HistoryBuckets::take`] is told how many there were.
const LOOK_AFTER: u64 = 1 << 14;
/// Capacity of the map of a script's coins that is kept for the next script.
const KEPT_CAPACITY: usize = 1 << 12;

#[derive(Clone, Copy)]
struct Movement<'a> {
    script_hash: [u8; 32],
    height: u32,
    tx_index: u32,
    /// Index of the input or output, with [`OUTPUT`].
    number: u32,
    txid: Txid,
    amount: Sats,
    /// Keyed hash of the coin that is created or spent.
    coin_id: u64,
    /// Empty for an input.
    script: &'a [u8],
}

impl<'a> Movement<'a> {
    fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.script_hash);
        for number in [self.height, self.tx_index, self.number] {
            into.extend_from_slice(&number.to_be_bytes());
        }
        into.extend_from_slice(&self.txid.0);
        into.extend_from_slice(&self.amount.0.to_le_bytes());
        into.extend_from_slice(&self.coin_id.to_le_bytes());
        // Longer scripts are unspendable.
        into.extend_from_slice(&(self.script.len() as u16).to_le_bytes());
        into.extend_from_slice(self.script);
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let script_hash = reader.array()?;
        let mut number = || Ok(u32::from_be_bytes(reader.array()?));
        let (height, tx_index, number) = (number()?, number()?, number()?);
        let (txid, amount) = (Txid(reader.array()?), Sats(i64::from_le_bytes(reader.array()?)));
        let (coin_id, script_len) = (reader.u64()?, u16::from_le_bytes(reader.array()?));
        let script = reader.bytes(script_len.into())?;
        Ok(Self { script_hash, height, tx_index, number, txid, amount, coin_id, script })
    }

    /// The first movement in `bytes`, and its length; `None` if they end before its end.
    fn first(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let mut reader = Reader::new(bytes);
        let movement = Self::read(&mut reader).ok()?;
        Some((movement, reader.position()))
    }
}

/// A movement of a script, with the balance that it leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryEntry {
    /// SHA-256 of the script, in the order of the hash function.
    pub script_hash: [u8; 32],
    pub height: Height,
    /// Index of the transaction in the block.
    pub tx_index: u32,
    pub block_time: BlockTime,
    pub txid: Txid,
    /// Whether it is an input; otherwise it is an output.
    pub is_input: bool,
    /// Index of the input or output in the transaction.
    pub index: u32,
    /// What the script gets; negative for an input.
    pub amount: Sats,
    /// Sum of the amounts of the script up to this entry.
    pub balance: Sats,
}

/// A script, after its last entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptHistory {
    /// SHA-256 of the script, in the order of the hash function.
    pub script_hash: [u8; 32],
    pub script: Vec<u8>,
    /// Height of its first entry.
    pub first_height: Height,
    /// Number of its entries.
    pub rows: u64,
    /// Sum of its coins.
    pub balance: Sats,
}

/// What takes the scripts of a bucket, in order of their hashes.
pub trait HistorySink {
    /// Takes an entry. Those of a script are in chain order, and in a transaction inputs come first.
    fn entry(&mut self, entry: &HistoryEntry) -> Result<(), Error>;

    /// Takes a script after its entries.
    fn script(&mut self, script: &ScriptHistory) -> Result<(), Error>;

    /// The bucket has no more scripts.
    fn finish(self: Box<Self>) -> Result<(), Error>;
}

/// What scripts have together.
#[derive(Clone, Debug, Default)]
pub struct HistoryTotals {
    /// Number of entries.
    pub rows: u64,
    pub scripts: u64,
    /// The coins that are left.
    pub unspent: CoinSums,
}

impl HistoryTotals {
    /// Adds those of other scripts.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.scripts += other.scripts;
        self.unspent.merge(&other.unspent);
    }
}

/// The movements of all scripts, by buckets.
pub struct HistoryBuckets<'a> {
    /// The buckets. The temporary file is removed after all of them have been taken.
    pub parts: Parts<'a>,
    digits: u32,
    /// Those that are filled.
    pub wanted: RangeInclusive<u32>,
    key: SipKey,
    times: Vec<AtomicU32>,
    outputs: AtomicU64,
}

impl<'a> HistoryBuckets<'a> {
    /// Buckets for each value of the first `digits` hexadecimal digits of a script hash, 1 to
    /// [`MAX_PREFIX_DIGITS`], for a chain of `blocks` blocks; only those in `wanted` are filled. Beyond
    /// `memory_limit`, in bytes, movements go to a file in `work`. `key` must be secret and random.
    pub fn new(
        work: &'a WorkDir<'a>,
        digits: u32,
        wanted: RangeInclusive<u32>,
        blocks: usize,
        memory_limit: usize,
        key: SipKey,
    ) -> Self {
        let parts = Parts::with_count(work, 1 << (4 * digits), memory_limit);
        let times = (0..blocks).map(|_| AtomicU32::new(0)).collect();
        Self { parts, digits, wanted, key, times, outputs: AtomicU64::new(0) }
    }

    /// Whether all buckets are filled.
    pub fn are_all_wanted(&self) -> bool {
        self.wanted.clone().count() == self.parts.count()
    }

    /// Number of outputs that were added.
    pub fn outputs(&self) -> u64 {
        self.outputs.load(Ordering::Relaxed)
    }

    /// The bucket of a script with this hash, if it is wanted.
    fn bucket_of(&self, script_hash: &[u8; 32]) -> Option<usize> {
        let [first, second, ..] = *script_hash;
        let bucket = u16::from_be_bytes([first, second]) >> (16 - 4 * self.digits);
        self.wanted.contains(&u32::from(bucket)).then_some(bucket.into())
    }

    /// Adds the coins among `elements`, as MuHash takes them, whose scripts are wanted.
    pub fn add_wanted(&self, mut elements: &[u8], muhash: &mut MuHash3072) {
        let mut reader = Reader::new(elements);
        while let Ok(coin) = UtxoElement::read(&mut reader) {
            let (element, rest) = elements.split_at(reader.position());
            if self.bucket_of(&sha256(coin.script)).is_some() {
                muhash.insert(element);
            }
            elements = rest;
            reader = Reader::new(elements);
        }
    }

    /// Takes a bucket, when all movements have been added, and gives its scripts to `sink`. About
    /// `memory_limit` bytes of the bucket are in memory at a time. `look` is called now and then, with the
    /// number of outputs since its last call.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Damaged`] if an input spends a coin that no earlier output paid to the
    /// script; any I/O error; those of `sink` and `look`.
    pub fn take(
        &self,
        bucket: usize,
        memory_limit: usize,
        sink: &mut dyn HistorySink,
        look: &dyn Fn(u64) -> Result<(), Error>,
    ) -> Result<HistoryTotals, Error> {
        let (current, unspent, element, totals) = Default::default();
        let mut follower = Follower {
            buckets: self,
            sink,
            look,
            current,
            unspent,
            element,
            totals,
            movements: 0,
            outputs: 0,
        };
        self.take_sorted(bucket, memory_limit, &mut |movement| follower.movement(movement))?;
        follower.end_script()?;
        look(follower.outputs)?;
        Ok(follower.totals)
    }

    /// Gives the movements of a bucket to `each`, in the order of their keys.
    fn take_sorted(
        &self,
        bucket: usize,
        memory_limit: usize,
        each: &mut EachMovement<'_>,
    ) -> Result<(), Error> {
        let (mut bytes, mut order, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let has_more = self.parts.take_up_to(bucket, memory_limit, &mut bytes)?;
            let end = sort(&bytes, &mut order);
            if runs.is_empty() && !has_more {
                let movements = order.iter().filter_map(|&(.., at)| Movement::first(&bytes[at..]));
                return movements.map(|(movement, _)| movement).try_for_each(each);
            }
            runs.push(self.write_run(&bytes, &order)?);
            // A movement can be cut where a piece of the file ends.
            bytes.drain(..end);
            if !has_more {
                break;
            }
        }
        drop((bytes, order));
        self.merge(runs, each)
    }

    /// Writes movements in order, and returns the pieces.
    fn write_run(&self, bytes: &[u8], order: &[Place]) -> Result<Vec<Piece>, Error> {
        let (mut pieces, mut piece) = (Vec::new(), Vec::new());
        for &(.., at) in order {
            let len = Movement::first(&bytes[at..]).map_or(0, |(_, len)| len);
            piece.extend_from_slice(&bytes[at..at + len]);
            if piece.len() >= RUN_PIECE_BYTES {
                pieces.push(self.parts.append(&piece)?);
                piece.clear();
            }
        }
        if !piece.is_empty() {
            pieces.push(self.parts.append(&piece)?);
        }
        Ok(pieces)
    }

    fn merge(&self, runs: Vec<Vec<Piece>>, each: &mut EachMovement<'_>) -> Result<(), Error> {
        let run = |pieces: Vec<Piece>| Run { pieces: pieces.into_iter(), bytes: Vec::new(), at: 0 };
        let mut runs: Vec<Run> = runs.into_iter().map(run).collect();
        let mut next = BinaryHeap::new();
        for (index, run) in runs.iter_mut().enumerate() {
            next.extend(run.key(&self.parts)?.map(|key| Reverse((key, index))));
        }
        while let Some(Reverse((_, index))) = next.pop() {
            let run = &mut runs[index];
            if let Some((movement, len)) = Movement::first(&run.bytes[run.at..]) {
                each(movement)?;
                run.at += len;
                next.extend(run.key(&self.parts)?.map(|key| Reverse((key, index))));
            }
        }
        Ok(())
    }
}

/// Called with each movement of a bucket.
type EachMovement<'a> = dyn FnMut(Movement<'_>) -> Result<(), Error> + 'a;

/// A movement in memory: the first bytes of its script hash, all else of its key, and its offset.
type Place = (u64, u128, usize);

/// Finds the movements in `bytes` and sorts them. Returns where the last one ends.
fn sort(bytes: &[u8], order: &mut Vec<Place>) -> usize {
    order.clear();
    let mut at = 0;
    while let Some((movement, len)) = Movement::first(&bytes[at..]) {
        let Movement { script_hash, height, tx_index, number, .. } = movement;
        let first = script_hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        let rest = u128::from(height) << 64 | u128::from(tx_index) << 32 | u128::from(number);
        order.push((first, rest, at));
        at += len;
    }
    order.sort_unstable();
    let key = |&(_, _, at): &Place| &bytes[at..at + KEY_LEN];
    // Hashes of several scripts may begin with the same bytes.
    for places in order.chunk_by_mut(|(first, ..), (other, ..)| first == other) {
        if !places.is_sorted_by_key(key) {
            places.sort_unstable_by_key(key);
        }
    }
    at
}

/// A sorted run that is being read.
struct Run {
    /// Those that have not been read.
    pieces: vec::IntoIter<Piece>,
    bytes: Vec<u8>,
    /// Where the next movement is.
    at: usize,
}

impl Run {
    /// The key of the next movement; `None` at the end.
    fn key(&mut self, parts: &Parts<'_>) -> Result<Option<[u8; KEY_LEN]>, Error> {
        if self.at >= self.bytes.len() {
            let Some(piece) = self.pieces.next() else { return Ok(None) };
            self.bytes.clear();
            self.at = 0;
            parts.read(&piece, &mut self.bytes)?;
        }
        Ok(self.bytes[self.at..].first_chunk().copied())
    }
}

impl BlockConsumer for HistoryBuckets<'_> {
    fn begin_part(&self, _: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        let (pending, script) = (vec![Vec::new(); self.parts.count()], Vec::new());
        Ok(Some(Box::new(HistoryAdder { buckets: self, pending, pending_len: 0, outputs: 0, script })))
    }
}

/// Adds the movements of blocks to the buckets.
struct HistoryAdder<'b> {
    buckets: &'b HistoryBuckets<'b>,
    /// By bucket.
    pending: Vec<Vec<u8>>,
    pending_len: usize,
    outputs: u64,
    script: Vec<u8>,
}

impl PartConsumer for HistoryAdder<'_> {
    /// Adds the movements of a block, which has the coins that it spends.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Damaged`] if undo data has a malformed coin; any I/O error.
    fn block(&mut self, data: &BlockData<'_>) -> Result<(), Error> {
        let height = data.height.0;
        if let Some(time) = self.buckets.times.get(height as usize) {
            time.store(data.block.header().time.0, Ordering::Relaxed);
        }
        for (((tx, spent), &txid), tx_index) in data.txs().zip(data.txids).zip(0..) {
            for ((input, coin), number) in tx.inputs().zip(spent).zip(0..) {
                let mut script = std::mem::take(&mut self.script);
                script.clear();
                let malformed = |error| Error::malformed_coin(error, data.height, data.hash);
                coin.script.decompress(&mut script).map_err(malformed)?;
                let (script_hash, amount) = (sha256(&script), coin.amount);
                self.script = script;
                let coin_id = self.coin_id(&input.prevout(), Coin::code_of(coin.height, coin.is_coinbase));
                let script = &[];
                self.add(&Movement { script_hash, height, tx_index, number, txid, amount, coin_id, script })?;
            }
            let is_coinbase = tx_index == 0;
            if is_coinbase && (height == 0 || data.is_overwritten) {
                continue;
            }
            for (output, vout) in tx.outputs().zip(0..) {
                let script = output.script_pubkey();
                if wire::script::is_unspendable(script) {
                    continue;
                }
                let code = Coin::code_of(data.height, is_coinbase);
                let coin_id = self.coin_id(&OutPoint { txid, vout }, code);
                let (script_hash, number, amount) = (sha256(script), vout | OUTPUT, output.value());
                self.add(&Movement { script_hash, height, tx_index, number, txid, amount, coin_id, script })?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), Error> {
        self.flush()
    }
}

impl HistoryAdder<'_> {
    fn coin_id(&self, outpoint: &OutPoint, code: u32) -> u64 {
        let mut bytes = [0; 40];
        let (txid, numbers) = bytes.split_at_mut(32);
        txid.copy_from_slice(&outpoint.txid.0);
        numbers.copy_from_slice(&(u64::from(outpoint.vout) << 32 | u64::from(code)).to_le_bytes());
        let SipKey(k0, k1) = self.buckets.key;
        siphash24(k0, k1, &bytes)
    }

    fn add(&mut self, movement: &Movement<'_>) -> Result<(), Error> {
        let Some(bucket) = self.buckets.bucket_of(&movement.script_hash) else { return Ok(()) };
        self.outputs += u64::from(movement.number & OUTPUT != 0);
        let pending = &mut self.pending[bucket];
        let before = pending.len();
        movement.write(pending);
        self.pending_len += pending.len() - before;
        if self.pending_len >= PENDING_BYTES { self.flush() } else { Ok(()) }
    }

    /// Adds what has been collected to the buckets.
    fn flush(&mut self) -> Result<(), Error> {
        for (bucket, pending) in self.pending.iter_mut().enumerate().filter(|(_, it)| !it.is_empty()) {
            self.buckets.parts.add(bucket, pending)?;
            pending.clear();
        }
        self.pending_len = 0;
        self.buckets.outputs.fetch_add(std::mem::take(&mut self.outputs), Ordering::Relaxed);
        Ok(())
    }
}

/// Follows one script after another through its movements.
struct Follower<'s> {
    buckets: &'s HistoryBuckets<'s>,
    sink: &'s mut dyn HistorySink,
    look: &'s dyn Fn(u64) -> Result<(), Error>,
    movements: u64,
    /// Number of outputs since the last look.
    outputs: u64,
    /// The current script, up to the last movement.
    current: Option<ScriptHistory>,
    /// The coins of the current script, by their ids.
    unspent: HashMap<u64, Unspent>,
    /// A coin as MuHash takes it.
    element: Vec<u8>,
    totals: HistoryTotals,
}

struct Unspent {
    outpoint: OutPoint,
    code: u32,
    amount: Sats,
}

impl Follower<'_> {
    fn movement(&mut self, movement: Movement<'_>) -> Result<(), Error> {
        let Movement { script_hash, height, tx_index, number, txid, amount, coin_id, script } = movement;
        if self.current.as_ref().is_none_or(|current| current.script_hash != script_hash) {
            self.end_script()?;
        }
        let height = Height(height);
        let current = self.current.get_or_insert_with(|| ScriptHistory {
            script_hash,
            script: script.to_owned(),
            first_height: height,
            rows: 0,
            balance: Sats(0),
        });
        let (is_input, index) = (number & OUTPUT == 0, number & !OUTPUT);
        self.movements += 1;
        self.outputs += u64::from(!is_input);
        if self.movements.is_multiple_of(LOOK_AFTER) {
            (self.look)(std::mem::take(&mut self.outputs))?;
        }
        let is_matched = if is_input {
            self.unspent.remove(&coin_id).is_some_and(|coin| coin.amount == amount)
        } else {
            let code = Coin::code_of(height, tx_index == 0);
            let outpoint = OutPoint { txid, vout: index };
            let same = self.unspent.insert(coin_id, Unspent { outpoint, code, amount });
            if same.as_ref().is_some_and(|same| same.outpoint != outpoint) {
                let detail =
                    "two coins have the same random hash, which is nearly impossible; run this again";
                return Err(Error::new(ErrorKind::Internal, detail));
            }
            same.is_none()
        };
        let amount = if is_input { Sats(-amount.0) } else { amount };
        let balance = current.balance.0.checked_add(amount.0).filter(|_| is_matched).map(Sats);
        let balance = balance.ok_or_else(|| match (is_input, is_matched) {
            (true, _) => mismatch(&movement, Some(index), "spends a coin that no earlier output paid to it"),
            (false, false) => mismatch(&movement, None, "an output repeats one of its coins"),
            (false, true) => mismatch(&movement, None, "its coins exceed 64 bits"),
        })?;
        (current.balance, current.rows) = (balance, current.rows + 1);
        let time = self.buckets.times.get(height.0 as usize).map_or(0, |time| time.load(Ordering::Relaxed));
        self.sink.entry(&HistoryEntry {
            script_hash,
            height,
            tx_index,
            block_time: BlockTime(time),
            txid,
            is_input,
            index,
            amount,
            balance,
        })
    }

    /// Ends the current script: its coins are left over.
    fn end_script(&mut self) -> Result<(), Error> {
        let Some(history) = self.current.take() else { return Ok(()) };
        for (_, Unspent { outpoint, code, amount }) in self.unspent.drain() {
            self.element.clear();
            UtxoElement { outpoint, code, amount, script: &history.script }.write(&mut self.element);
            self.totals.unspent.add(amount, &self.element);
        }
        if self.unspent.capacity() > KEPT_CAPACITY {
            // Draining a map takes time in proportion to its capacity.
            self.unspent = HashMap::new();
        }
        self.totals.rows += history.rows;
        self.totals.scripts += 1;
        self.sink.script(&history)
    }
}

/// The error for a movement that the movements before do not allow.
fn mismatch(movement: &Movement<'_>, input: Option<u32>, what: &str) -> Error {
    let mut hash = movement.script_hash;
    hash.reverse();
    let hash = hex_reversed(&hash);
    let detail = format!("script with hash {hash}: {what}; the undo data is false, or a block is invalid");
    let mut error = Error::damaged(detail).in_tx(Some(movement.txid)).with_remedies([Remedy::Verify]);
    (error.height, error.input) = (Some(Height(movement.height)), input);
    error
}

#[cfg(test)]
mod tests;

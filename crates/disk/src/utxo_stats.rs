//! What Core's `gettxoutsetinfo` says of a UTXO set: its two hashes, counts and sums.
//!
//! Source: Core `kernel/coinstats.cpp`. `hash_serialized_3` is the SHA-256d of one long string: for each
//! transaction in the order of txid bytes, for each of its coins in numeric order of `vout`, the coin's
//! element (`wire::Coin::write_utxo_element`). MuHash is over the same elements, in no order.
//!
//! One string means one thread for the hashing, so everything else is kept off it: any number of
//! [`StatsPart`]s turn coins into elements, count, and feed MuHash; the [`UtxoHasher`] only hashes bytes,
//! part after part.

use crate::chainstate::ChainstateReader;
use crate::error::DiskError;
use crate::fs::Disk;
use digest::{muhash::MuHash3072, sha256::Sha256};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use wire::coin::{CoinError, CompressedScript};
use wire::hash::ParseHashError;
use wire::read::write_compact_size;
use wire::{BlockHash, Coin, OutPoint, Sats, Txid};

/// The hash of a set of coins. Bytes are in the order of the hash function; text is reversed, as Core prints
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UtxoHash(pub [u8; 32]);

impl fmt::Display for UtxoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        BlockHash(self.0).fmt(f)
    }
}

impl fmt::Debug for UtxoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for UtxoHash {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Self, ParseHashError> {
        text.parse().map(|BlockHash(bytes)| Self(bytes))
    }
}

/// The answers of `gettxoutsetinfo`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UtxoStats {
    /// Coins.
    pub txouts: u64,
    /// Transactions with coins.
    pub transactions: u64,
    /// Core's measure of size that no database depends on: 50 bytes and the script for each coin.
    pub bogosize: u64,
    /// Sum of all amounts; nothing if it does not fit.
    pub total_amount: Option<Sats>,
    /// Sum of a hash of each coin: whether two copies are the same, against accidents.
    pub checksum: u64,
    /// `hash_serialized_3`.
    pub hash_serialized_3: UtxoHash,
    /// `muhash`, if it was asked for.
    pub muhash: Option<UtxoHash>,
}

impl UtxoStats {
    /// Without the hashes.
    #[must_use]
    pub const fn counts(&self) -> UtxoCounts {
        let Self { txouts, transactions, bogosize, total_amount, checksum, .. } = *self;
        UtxoCounts { txouts, transactions, bogosize, total_amount, checksum }
    }
}

/// What can be told of coins in any order of ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UtxoCounts {
    /// As in [`UtxoStats`].
    pub txouts: u64,
    /// As in [`UtxoStats`].
    pub transactions: u64,
    /// As in [`UtxoStats`].
    pub bogosize: u64,
    /// As in [`UtxoStats`].
    pub total_amount: Option<Sats>,
    /// As in [`UtxoStats`].
    pub checksum: u64,
}

impl UtxoCounts {
    /// Of no coins.
    pub const NOTHING: Self =
        Self { txouts: 0, transactions: 0, bogosize: 0, total_amount: Some(Sats(0)), checksum: 0 };

    /// Adds those of another range.
    pub fn merge(&mut self, other: Self) {
        self.txouts += other.txouts;
        self.transactions += other.transactions;
        self.bogosize += other.bogosize;
        self.checksum = self.checksum.wrapping_add(other.checksum);
        self.add_amount(other.total_amount);
    }

    fn add_amount(&mut self, amount: Option<Sats>) {
        self.total_amount = match (self.total_amount, amount) {
            (Some(Sats(sum)), Some(Sats(amount))) => sum.checked_add(amount).map(Sats),
            _ => None,
        };
    }
}

/// Counts coins as they come in the order of chainstate keys.
#[derive(Clone, Debug)]
pub struct CoinCounter {
    counts: UtxoCounts,
    txid: Option<Txid>,
}

impl Default for CoinCounter {
    fn default() -> Self {
        Self { counts: UtxoCounts::NOTHING, txid: None }
    }
}

impl CoinCounter {
    /// Counts a coin. Coins must come in the order of chainstate keys, those of one transaction in a row.
    ///
    /// # Errors
    /// [`CoinError`] if `out` is not one compressed output.
    #[inline]
    pub fn add(&mut self, outpoint: &OutPoint, coin: &Coin<'_>) -> Result<(), CoinError> {
        let (amount, script) = coin.output()?;
        self.add_parsed(outpoint, coin, amount, script.script_len());
        Ok(())
    }

    /// Tells whether the coin is the first of its transaction.
    #[inline]
    fn add_parsed(&mut self, outpoint: &OutPoint, coin: &Coin<'_>, amount: Sats, script_len: usize) -> bool {
        let is_first = self.txid != Some(outpoint.txid);
        self.txid = Some(outpoint.txid);
        let counts = &mut self.counts;
        counts.transactions += u64::from(is_first);
        counts.txouts += 1;
        counts.bogosize += BOGOSIZE + script_len as u64;
        counts.add_amount(Some(amount));
        counts.checksum = counts.checksum.wrapping_add(coin_hash(outpoint, coin));
        is_first
    }

    /// What was counted.
    #[must_use]
    pub const fn counts(&self) -> UtxoCounts {
        self.counts
    }
}

/// [`Coin::write_utxo_element`] of a coin whose output is parsed already.
#[inline]
fn write_element(
    elements: &mut Vec<u8>,
    outpoint: &OutPoint,
    code: u32,
    amount: Sats,
    script: CompressedScript<'_>,
) -> Result<(), CoinError> {
    let mut head = [0; 48];
    head[..32].copy_from_slice(&outpoint.txid.0);
    head[32..36].copy_from_slice(&outpoint.vout.to_le_bytes());
    head[36..40].copy_from_slice(&code.to_le_bytes());
    head[40..].copy_from_slice(&amount.0.to_le_bytes());
    elements.extend_from_slice(&head);
    write_compact_size(elements, script.script_len() as u64);
    script.decompress(elements)
}

/// A hash against accidents: each pair of words is multiplied, after a number for its place was added.
#[inline]
fn coin_hash(outpoint: &OutPoint, coin: &Coin<'_>) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let (mut hash, mut place) = (0u64, STEP);
    let mut add = |a: u64, b: u64| {
        let product = u128::from(a ^ place) * u128::from(b ^ place.rotate_left(32));
        hash = hash.wrapping_add(product as u64 ^ (product >> 64) as u64);
        place = place.wrapping_add(STEP);
    };
    let halves = |pair: [u8; 16]| {
        let pair = u128::from_le_bytes(pair);
        (pair as u64, (pair >> 64) as u64)
    };
    let (pairs, tail) = coin.out.as_chunks::<16>();
    let mut last = [0; 16];
    last.iter_mut().zip(tail).for_each(|(to, from)| *to = *from);
    add(u64::from(outpoint.vout) << 32 | u64::from(coin.code), coin.out.len() as u64);
    for &pair in outpoint.txid.0.as_chunks().0.iter().chain(pairs).chain([&last]) {
        let (a, b) = halves(pair);
        add(a, b);
    }
    hash
}

/// Core's bogosize of a coin without its script: txid 32, vout 4, code 4, amount 8, script length 2.
const BOGOSIZE: u64 = 50;

/// The coins of a range of txids on their way into the hash.
#[derive(Clone, Debug)]
pub struct StatsPart {
    counter: CoinCounter,
    muhash: Option<MuHash3072>,
    /// Elements in hash order; from `group_start` on those of the current transaction in key order.
    elements: Vec<u8>,
    group_start: usize,
    /// `vout` and end in `elements` of each coin of the current transaction.
    group: Vec<(u32, usize)>,
    sorted: bool,
}

impl StatsPart {
    /// An empty part; `muhash` tells whether that hash is wanted too (about 3 us per coin).
    #[must_use]
    pub fn new(muhash: bool) -> Self {
        Self {
            counter: CoinCounter::default(),
            muhash: muhash.then(MuHash3072::new),
            elements: Vec::new(),
            group_start: 0,
            group: Vec::new(),
            sorted: true,
        }
    }

    /// Adds a coin. Coins must come in the order of chainstate keys, those of one transaction in one part.
    ///
    /// # Errors
    /// [`CoinError`] if `out` is not one compressed output.
    pub fn add(&mut self, outpoint: &OutPoint, coin: &Coin<'_>) -> Result<(), CoinError> {
        let (amount, script) = coin.output()?;
        if self.counter.add_parsed(outpoint, coin, amount, script.script_len()) {
            self.end_group();
        }
        let start = self.elements.len();
        write_element(&mut self.elements, outpoint, coin.code, amount, script)?;
        if let Some(muhash) = &mut self.muhash {
            muhash.insert(self.elements.get(start..).unwrap_or_default());
        }
        self.sorted &= self.group.last().is_none_or(|&(before, _)| before < outpoint.vout);
        self.group.push((outpoint.vout, self.elements.len()));
        Ok(())
    }

    /// Bytes of complete transactions that [`StatsPart::take_elements`] would return.
    #[must_use]
    pub const fn ready_len(&self) -> usize {
        self.group_start
    }

    /// Takes the elements of complete transactions, for [`UtxoHasher::hash`]; `room` becomes the next buffer.
    #[must_use]
    pub fn take_elements(&mut self, mut room: Vec<u8>) -> Vec<u8> {
        room.clear();
        room.extend_from_slice(self.elements.get(self.group_start..).unwrap_or_default());
        self.elements.truncate(self.group_start);
        for (_, end) in &mut self.group {
            *end -= self.group_start;
        }
        self.group_start = 0;
        std::mem::replace(&mut self.elements, room)
    }

    /// What was counted.
    #[must_use]
    pub const fn counts(&self) -> UtxoCounts {
        self.counter.counts
    }

    /// Completes the last transaction; the part can then be drained and merged.
    pub fn end_group(&mut self) {
        if !self.sorted {
            self.sort_group();
        }
        self.group.clear();
        self.sorted = true;
        self.group_start = self.elements.len();
    }

    /// Puts the current transaction's elements into numeric order of `vout`: key order differs from 16512 on.
    #[cold]
    fn sort_group(&mut self) {
        let group = self.elements.split_off(self.group_start);
        let mut start = 0;
        let mut parts = Vec::with_capacity(self.group.len());
        for &(vout, end) in &self.group {
            let end = end - self.group_start;
            parts.push((vout, group.get(start..end).unwrap_or_default()));
            start = end;
        }
        parts.sort_unstable_by_key(|&(vout, _)| vout);
        for (_, element) in parts {
            self.elements.extend_from_slice(element);
        }
    }
}

/// Hashes elements and sums up what the parts counted.
#[derive(Clone, Debug)]
pub struct UtxoHasher {
    sha: Sha256,
    counts: UtxoCounts,
    muhash: Option<MuHash3072>,
}

impl UtxoHasher {
    /// Of the empty set; `muhash` as in the parts.
    #[must_use]
    pub fn new(muhash: bool) -> Self {
        Self { sha: Sha256::new(), counts: UtxoCounts::NOTHING, muhash: muhash.then(MuHash3072::new) }
    }

    /// Hashes elements that a part gave away. Parts must come in the order of their txids.
    pub fn hash(&mut self, elements: &[u8]) {
        self.sha.update(elements);
    }

    /// Adds a part: hashes what is left in it, and adds its counts and MuHash.
    pub fn merge(&mut self, mut part: StatsPart) {
        self.add(&mut part);
    }

    fn add(&mut self, part: &mut StatsPart) {
        part.end_group();
        self.sha.update(&part.elements);
        self.counts.merge(part.counts());
        match (&mut self.muhash, &part.muhash) {
            (Some(muhash), Some(other)) => muhash.combine(other),
            (muhash, _) => *muhash = None,
        }
    }

    /// The results.
    #[must_use]
    pub fn finish(self) -> UtxoStats {
        let UtxoCounts { txouts, transactions, bogosize, total_amount, checksum } = self.counts;
        UtxoStats {
            checksum,
            txouts,
            transactions,
            bogosize,
            total_amount,
            hash_serialized_3: UtxoHash(self.sha.finalize_double()),
            muhash: self.muhash.map(|muhash| UtxoHash(muhash.finalize())),
        }
    }
}

/// Elements that go to the hashing thread at once, in bytes.
const CHUNK_LEN: usize = 1 << 20;
/// Chunks that wait for the hashing thread per range; a reader that is ahead waits.
const CHUNKS_WAITING: usize = 4;
/// Ranges, besides one for each reader, that are begun before those in front of them are hashed: if hashing
/// falls behind, it gets the processor.
const RANGES_AHEAD: usize = 2;

enum Message {
    Elements(Vec<u8>),
    End(Box<StatsPart>),
    Failed(DiskError),
}

/// Buffers that were hashed, for those who read.
#[derive(Default)]
struct Rooms(Mutex<Vec<Vec<u8>>>);

impl Rooms {
    fn take(&self) -> Vec<u8> {
        let room = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        room.unwrap_or_else(|| Vec::with_capacity(CHUNK_LEN + CHUNK_LEN / 8))
    }

    fn give(&self, mut room: Vec<u8>) {
        room.clear();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(room);
    }
}

/// Computes the statistics of the chainstate in `dir` with `threads` (1 or more) threads that read, and this
/// one that hashes. Ranges are by the first byte of the txid. Memory: about 8 MiB per thread.
///
/// # Errors
/// As [`ChainstateReader`] and its cursor.
pub fn stats_of_chainstate(
    disk: &dyn Disk,
    dir: &Path,
    muhash: bool,
    threads: usize,
) -> Result<UtxoStats, DiskError> {
    stats_of_coins(&ChainstateReader::open(disk, dir)?, muhash, threads)
}

/// [`stats_of_chainstate`] of an open one.
///
/// # Errors
/// As [`ChainstateReader`] and its cursor.
pub fn stats_of_coins(
    reader: &ChainstateReader<'_>,
    muhash: bool,
    threads: usize,
) -> Result<UtxoStats, DiskError> {
    let stats = stats_unless_stopped(reader, muhash, threads, &AtomicBool::new(false))?;
    Ok(stats.expect("nobody sets the flag"))
}

/// [`stats_of_coins`]; nothing if `stop` is set before the end.
///
/// # Errors
/// As [`stats_of_coins`].
pub fn stats_unless_stopped(
    reader: &ChainstateReader<'_>,
    muhash: bool,
    threads: usize,
    stop: &AtomicBool,
) -> Result<Option<UtxoStats>, DiskError> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..=u8::MAX).map(|_| sync_channel(CHUNKS_WAITING)).unzip();
    let (hashed, begin) = channel();
    (0..threads + RANGES_AHEAD).for_each(|_| hashed.send(()).unwrap_or_default());
    // Ranges are taken in order, so the one that is hashed next is always read by someone.
    let ranges = Mutex::new((begin, (0..=u8::MAX).zip(senders)));
    let next = || {
        let (begin, ranges) = &mut *ranges.lock().unwrap_or_else(PoisonError::into_inner);
        begin.recv().ok().and_then(|()| ranges.next())
    };
    let rooms = Rooms::default();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some((range, sender)) = next() {
                    if !send_range(reader, range, muhash, &rooms, &sender) {
                        return;
                    }
                }
            });
        }
        hash_ranges(receivers, muhash, &rooms, hashed, stop)
    })
}

/// Hashes what the readers send; dropping the receivers, as an error does, stops them.
fn hash_ranges(
    receivers: Vec<Receiver<Message>>,
    muhash: bool,
    rooms: &Rooms,
    hashed: Sender<()>,
    stop: &AtomicBool,
) -> Result<Option<UtxoStats>, DiskError> {
    let mut hasher = UtxoHasher::new(muhash);
    for receiver in receivers {
        // A range without its last message is one whose reader panicked, which the scope passes on.
        while let Ok(message) = receiver.recv() {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            match message {
                Message::Elements(elements) => {
                    hasher.hash(&elements);
                    rooms.give(elements);
                }
                Message::End(mut part) => {
                    hasher.add(&mut part);
                    rooms.give(part.elements);
                    hashed.send(()).unwrap_or_default(); // unless there is nobody left to read more
                    break;
                }
                Message::Failed(error) => return Err(error),
            }
        }
    }
    Ok(Some(hasher.finish()))
}

/// Reads one range; false if nobody listens any more or it failed.
fn send_range(
    reader: &ChainstateReader<'_>,
    range: u8,
    muhash: bool,
    rooms: &Rooms,
    sender: &SyncSender<Message>,
) -> bool {
    match read_range(reader, range, muhash, rooms, sender) {
        Ok(Some(part)) => sender.send(Message::End(Box::new(part))).is_ok(),
        Ok(None) => false,
        Err(error) => {
            // If nobody listens any more, another error has been reported already.
            let _ = sender.send(Message::Failed(error));
            false
        }
    }
}

fn read_range(
    reader: &ChainstateReader<'_>,
    range: u8,
    muhash: bool,
    rooms: &Rooms,
    sender: &SyncSender<Message>,
) -> Result<Option<StatsPart>, DiskError> {
    let end = range.checked_add(1).map(|end| [end]);
    let mut coins = reader.coins_between(&[range], end.as_ref().map(<[u8; 1]>::as_slice))?;
    let mut part = StatsPart { elements: rooms.take(), ..StatsPart::new(muhash) };
    while let Some((outpoint, coin)) = coins.advance_unparsed()? {
        part.add(&outpoint, &coin).map_err(|flaw| {
            let mut key = Vec::new();
            wire::coin::write_chainstate_key(&mut key, &outpoint);
            DiskError::row(reader.dir(), &key, format!("{flaw}; rebuild the chainstate"))
        })?;
        if part.ready_len() >= CHUNK_LEN {
            let elements = part.take_elements(rooms.take());
            if sender.send(Message::Elements(elements)).is_err() {
                return Ok(None);
            }
        }
    }
    Ok(Some(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::btree_set, prelude::*};
    use wire::coin::{chainstate_key_order, compress_output};

    fn coins(outpoints: &[(u8, u32)]) -> Vec<(OutPoint, Vec<u8>)> {
        let mut coins: Vec<_> = outpoints
            .iter()
            .map(|&(byte, vout)| {
                let mut out = Vec::new();
                compress_output(&mut out, Sats(vout.into()), &vec![byte; byte as usize]);
                (OutPoint { txid: Txid([byte; 32]), vout }, out)
            })
            .collect();
        coins.sort_by(|(a, _), (b, _)| chainstate_key_order(a, b));
        coins
    }

    /// All elements in numeric order, hashed as one.
    fn simple(mut coins: Vec<(OutPoint, Vec<u8>)>) -> UtxoHash {
        coins.sort_by_key(|(outpoint, _)| *outpoint);
        let mut all = Vec::new();
        coins.iter().for_each(|(outpoint, out)| {
            Coin { code: 7, out }.write_utxo_element(outpoint, &mut all).unwrap()
        });
        UtxoHash(digest::sha256::sha256d(&all))
    }

    proptest! {
        #[test]
        fn vouts_are_hashed_in_numeric_order_however_the_parts_are_drained(
            outpoints in btree_set((0u8..5, prop_oneof![0u32..3, 16_500u32..16_520, any::<u32>()]), 0..40),
            drain in 1usize..5,
            split in 0u8..5,
        ) {
            let coins = coins(&outpoints.into_iter().collect::<Vec<_>>());
            let mut hasher = UtxoHasher::new(true);
            let mut parts = [StatsPart::new(true), StatsPart::new(true)];
            for (count, (outpoint, out)) in coins.iter().enumerate() {
                let part = &mut parts[usize::from(outpoint.txid.0[0] >= split)];
                part.add(outpoint, &Coin { code: 7, out }).unwrap();
                // Only the first part may hand elements on while the second waits for it.
                if outpoint.txid.0[0] < split && count % drain == 0 {
                    let ready = part.ready_len();
                    let elements = part.take_elements(Vec::new());
                    prop_assert_eq!(elements.len(), ready);
                    hasher.hash(&elements);
                }
            }
            parts.into_iter().for_each(|part| hasher.merge(part));
            let stats = hasher.finish();
            prop_assert_eq!(stats.hash_serialized_3, simple(coins.clone()));
            prop_assert_eq!(stats.txouts, coins.len() as u64);
            let script_bytes: u64 = coins.iter().map(|(outpoint, _)| u64::from(outpoint.txid.0[0])).sum();
            prop_assert_eq!(stats.bogosize, 50 * stats.txouts + script_bytes);
            let sum: i64 = coins.iter().map(|(outpoint, _)| i64::from(outpoint.vout)).sum();
            prop_assert_eq!(stats.total_amount, Some(Sats(sum)));
        }
    }

    #[test]
    fn the_order_of_vouts_matters() {
        let coins = coins(&[(1, 16_511), (1, 16_512)]);
        // As keys: 80 80 00 before ff 7f.
        assert_eq!(coins[0].0.vout, 16_512);
        let mut as_keys = Vec::new();
        coins.iter().for_each(|(outpoint, out)| {
            Coin { code: 7, out }.write_utxo_element(outpoint, &mut as_keys).unwrap()
        });
        assert_ne!(UtxoHash(digest::sha256::sha256d(&as_keys)), simple(coins));
    }

    #[test]
    fn any_change_of_a_coin_changes_the_checksum() {
        let hash = |txid: [u8; 32], vout, code, out: &[u8]| {
            coin_hash(&OutPoint { txid: Txid(txid), vout }, &Coin { code, out })
        };
        let txid = std::array::from_fn(|at| at as u8);
        let out: Vec<u8> = (0..40).collect();
        let mut seen = vec![hash(txid, 1, 2, &out), hash(txid, 2, 1, &out), hash(txid, 1, 3, &out)];
        for at in 0..32 {
            let mut other = txid;
            other[at] ^= 0x80;
            seen.push(hash(other, 1, 2, &out));
        }
        let mut swapped = txid;
        swapped.rotate_left(16);
        seen.push(hash(swapped, 1, 2, &out));
        for len in 0..out.len() {
            let mut other = out.clone();
            other[len] ^= 1;
            seen.extend([hash(txid, 1, 2, &other), hash(txid, 1, 2, &out[..len])]);
        }
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn counting_alone_counts_the_same() {
        let coins = coins(&[(1, 0), (1, 16_511), (1, 16_512), (2, 3), (4, 0)]);
        let (mut counter, mut part) = (CoinCounter::default(), StatsPart::new(false));
        for (outpoint, out) in &coins {
            counter.add(outpoint, &Coin { code: 7, out }).unwrap();
            part.add(outpoint, &Coin { code: 7, out }).unwrap();
        }
        assert_eq!(counter.counts(), part.counts());
        assert_eq!((counter.counts().txouts, counter.counts().transactions), (5, 3));
    }

    #[test]
    fn amounts_that_do_not_fit_have_no_sum() {
        let mut counts = UtxoCounts::NOTHING;
        counts.add_amount(Some(Sats(i64::MAX)));
        assert_eq!(counts.total_amount, Some(Sats(i64::MAX)));
        counts.add_amount(Some(Sats(1)));
        counts.merge(UtxoCounts::NOTHING);
        assert_eq!(counts.total_amount, None);
    }
}

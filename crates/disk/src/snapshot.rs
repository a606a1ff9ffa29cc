//! UTXO snapshots: all coins of one height in one file, to be loaded into a new node.
//!
//! Core writes them with `dumptxoutset` (`rpc/blockchain.cpp` `WriteUTXOSnapshot`, `node/utxo_snapshot.h`)
//! and reads them with `loadtxoutset`; this module writes the same bytes. Version 2, since Core 28.
//!
//! ```text
//! metadata     "utxo" ff | version 2 | network's message magic 4 | base block's hash 32 | coins 8
//! transaction  txid 32 | CompactSize: coins | coin ..
//! coin         CompactSize: vout | VARINT(code) | out                              ([`wire::coin`])
//! ```
//! The draft of BIP 452 (0.5.0) puts the base block's height, 4 bytes, before its hash. Core does not write
//! it (31), nor does this module; [`SnapshotReader`] reads both forms. No other field tells them apart, but
//! the number of coins does: the four bytes that one form has between the fields make it, in the other form,
//! zero or a multiple of 2^32 and more, which takes a file of 16 GiB. A file that fits both forms is refused.
//!
//! Numbers are little-endian. Coins are in the order of the chainstate's keys, so those of a transaction are
//! adjacent and sorted by the *bytes* of VARINT(vout). There is no checksum: Core hashes the coins that it
//! has loaded and compares the result with the assumeutxo hash in its source, so a changed file is detected
//! by its UTXO-set hash or not at all.
//!
//! While it is written, the file has the suffix [`unfinished::SUFFIX`]. An error removes that file; a
//! crash leaves it, and the next [`SnapshotWriter::create`] removes it. A coin takes at most 10,080 bytes; a
//! mainnet file (2026) has about 11 GB.

use crate::error::DiskError;
use std::cmp::Ordering;
use std::ops::Range;
use std::path::{Path, PathBuf};
use vfs::unfinished;
use vfs::{AtomicFile, Disk, During as _, ReadAt};
use wire::coin::{chainstate_key_order, compressed_script_len};
use wire::read::{write_compact_size, write_var_int};
use wire::script::MAX_SCRIPT_SIZE;
use wire::{BlockHash, Coin, Height, MAX_BLOCK_LEN, Network, OutPoint, Reader, Sats, Txid, WireError};

/// The first bytes of a snapshot.
pub const SNAPSHOT_MAGIC: [u8; 5] = *b"utxo\xff";
/// Version of the format that is read and written.
pub const VERSION: u16 = 2;
/// Length of the metadata in bytes, as Core writes it.
pub const METADATA_LEN: usize = 51;
/// Length of the metadata with the base block's height, in bytes.
const DRAFT_METADATA_LEN: usize = METADATA_LEN + 4;
const _: () = assert!(METADATA_LEN == SNAPSHOT_MAGIC.len() + 2 + 4 + 32 + 8, "Core SnapshotMetadata");

/// Offset of that height in bytes.
const HEIGHT_OFFSET: u64 = 11;

/// Minimum length of a coin: one byte each of index, code, amount and script, without the txid.
const MIN_COIN_LEN: u64 = 4;
/// Length of a transaction without its coins: its txid, and their number in one byte.
const MIN_TX_LEN: u64 = 33;
/// Maximum length of a coin, with its transaction's txid and count (no number takes more than 10 bytes), and
/// one byte to detect that a script is too long.
const MAX_COIN_LEN: usize = 32 + 9 + 9 + 3 * 10 + MAX_SCRIPT_SIZE + 1;
/// Bytes read or written at once.
const BUFFER_LEN: usize = 256 << 10;
const _: () = assert!(BUFFER_LEN >= 2 * MAX_COIN_LEN, "a coin fits into the buffer");

/// The metadata at the beginning of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotMetadata {
    /// The magic of the coins' network.
    pub magic: [u8; 4],
    /// The block that the coins belong to: the last one whose effects they contain.
    pub base_block: BlockHash,
    /// The height of that block, if the file has it, as in the draft of BIP 452. It is not proven by the
    /// file.
    pub base_height: Option<Height>,
    /// Number of coins that follow.
    pub coins: u64,
}

impl SnapshotMetadata {
    /// The network: a magic that no other network has is that of a custom signet.
    pub fn network(&self) -> Network {
        Network::of_magic(self.magic).unwrap_or(Network::Signet)
    }

    /// Compares the height in the file at `path`, if it has one, with that of the base block.
    ///
    /// # Errors
    /// [`DiskError::Damaged`] if they differ.
    pub fn check_height(&self, path: &Path, height: Height) -> Result<(), DiskError> {
        match self.base_height.filter(|stated| *stated != height) {
            None => Ok(()),
            Some(stated) => {
                let flaw =
                    format!("the height is {stated}, but block {} has {height}; {REMEDY}", self.base_block);
                Err(DiskError::Damaged { path: path.to_owned(), offset: HEIGHT_OFFSET, flaw })
            }
        }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(SNAPSHOT_MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.magic);
        bytes.extend(self.base_block.0);
        bytes.extend(self.coins.to_le_bytes());
    }

    /// Reads the metadata of a snapshot that has `len` bytes when it is complete. Errors name `path`.
    ///
    /// # Errors
    /// The same errors as [`SnapshotReader::open`].
    pub fn read(file: &dyn ReadAt, path: &Path, len: u64) -> Result<Self, DiskError> {
        let damaged = |offset, flaw| DiskError::Damaged { path: path.to_owned(), offset, flaw };
        if len < METADATA_LEN as u64 {
            return Err(damaged(len, format!("a UTXO snapshot has at least {METADATA_LEN} bytes")));
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(DRAFT_METADATA_LEN)];
        file.read_exact_at(&mut bytes, 0).during("read", path)?;
        let metadata = Self::decode(&bytes, len).map_err(|(offset, flaw)| damaged(offset, flaw))?;
        let rest = len - metadata.len_in_file() as u64;
        if metadata.coins > rest / MIN_COIN_LEN {
            let text =
                format!("{} coins do not fit into the {rest} bytes that follow; {REMEDY}", metadata.coins);
            return Err(damaged(METADATA_LEN as u64 - 8, text));
        }
        Ok(metadata)
    }

    /// Length of the metadata in the file, in bytes.
    pub const fn len_in_file(&self) -> usize {
        if self.base_height.is_some() { DRAFT_METADATA_LEN } else { METADATA_LEN }
    }

    /// Decodes the first bytes of a file of `len` bytes, in the form that it has. The error contains the byte
    /// offset and what is wrong there.
    fn decode(bytes: &[u8], len: u64) -> Result<Self, (u64, String)> {
        let core = Self::decode_form(bytes, false)?;
        let draft = Self::decode_form(bytes, true).ok().filter(|draft| draft.fits(len));
        match (core.fits(len), draft) {
            (false, Some(draft)) => Ok(draft),
            (true, Some(draft)) => {
                let text = format!(
                    "this can be a snapshot of {} coins as Bitcoin Core writes it, and one of {} coins with \
                     the height of its block as in the draft of BIP 452; {REMEDY}",
                    core.coins, draft.coins
                );
                Err((METADATA_LEN as u64 - 8, text))
            }
            _ => Ok(core),
        }
    }

    /// Whether the number of coins is possible in a file of `len` bytes.
    fn fits(&self, len: u64) -> bool {
        let rest = len.saturating_sub(self.len_in_file() as u64);
        let min = self.coins.checked_mul(MIN_COIN_LEN).and_then(|min| min.checked_add(MIN_TX_LEN));
        match self.coins {
            // A file in Core's form without coins, with four zeros behind it, would look the same.
            0 => rest == 0 && self.base_height.is_none(),
            _ => min.is_some_and(|min| min <= rest),
        }
    }

    /// Decodes metadata with or without the base block's height.
    fn decode_form(bytes: &[u8], has_height: bool) -> Result<Self, (u64, String)> {
        let mut reader = Reader::new(bytes);
        let short = |_: WireError| (0, "the metadata ends early".to_owned());
        if reader.array().map_err(short)? != SNAPSHOT_MAGIC {
            let text = format!(
                "not a UTXO snapshot (version {VERSION}, as written by Bitcoin Core 28 and later); if it is \
                 packed, unpack it first, and if an older release has written it, dump it again with a later \
                 one"
            );
            return Err((0, text));
        }
        let version = u16::from_le_bytes(reader.array().map_err(short)?);
        if version != VERSION {
            let text = format!(
                "snapshot version {version} is not supported, only version {VERSION} can be read; dump it \
                 again with Bitcoin Core 28 or later"
            );
            return Err((5, text));
        }
        let magic = reader.array().map_err(short)?;
        let base_height = has_height.then(|| reader.u32().map(Height)).transpose().map_err(short)?;
        let base_block = BlockHash(reader.array().map_err(short)?);
        Ok(Self { magic, base_block, base_height, coins: reader.u64().map_err(short)? })
    }
}

/// Takes the bytes of a snapshot as they are written, in order.
pub trait SnapshotOutput {
    /// Appends all of `bytes`.
    ///
    /// # Errors
    /// Any error; the snapshot is unusable then.
    fn append(&mut self, bytes: &[u8]) -> Result<(), DiskError>;
}

impl SnapshotOutput for AtomicFile<'_> {
    fn append(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        Ok(self.write_all(bytes)?)
    }
}

/// Writes a snapshot, coin by coin.
pub struct SnapshotWriter<O> {
    path: PathBuf,
    output: O,
    buffer: Vec<u8>,
    /// Bytes of the file before the buffer.
    written: u64,
    last: Option<OutPoint>,
    /// The coins of the last transaction, whose number must be written before them.
    pending: Vec<u8>,
    pending_coins: u64,
    /// Number of coins that must still be added.
    left: u64,
}

impl<'d> SnapshotWriter<AtomicFile<'d>> {
    /// Begins a file with a snapshot of exactly `coins` coins at `base_block`. The writer needs memory for
    /// 256 KiB and the coins of one transaction.
    ///
    /// # Errors
    /// [`DiskError::Unfinished`], also if `path` exists; the file there is not changed.
    pub fn create(
        disk: &'d dyn Disk,
        path: &Path,
        magic: [u8; 4],
        base_block: BlockHash,
        coins: u64,
    ) -> Result<Self, DiskError> {
        let file = unfinished::create_new(disk, path, unfinished::SUFFIX)?;
        Ok(Self::begin(file, path, SnapshotMetadata { magic, base_block, base_height: None, coins }))
    }

    /// Writes the rest and gives the file its final name. Returns the file's length in bytes once all of it
    /// is on the medium.
    ///
    /// # Errors
    /// [`DiskError::CallerError`] if coins are missing, [`DiskError::File`]; nothing is written at the path
    /// then.
    pub fn finish(self) -> Result<u64, DiskError> {
        let (file, written) = self.end()?;
        file.commit()?;
        Ok(written)
    }
}

impl<O: SnapshotOutput> SnapshotWriter<O> {
    /// Begins a snapshot of exactly as many coins as `metadata` states, whose bytes go to `output`. Its
    /// height is not written. Errors name `path`.
    pub fn begin(output: O, path: &Path, metadata: SnapshotMetadata) -> Self {
        let mut buffer = Vec::with_capacity(BUFFER_LEN + MAX_COIN_LEN);
        metadata.encode(&mut buffer);
        Self {
            path: path.to_owned(),
            output,
            buffer,
            written: 0,
            last: None,
            pending: Vec::new(),
            pending_coins: 0,
            left: metadata.coins,
        }
    }

    /// Appends a coin. Coins must be in the order of the chainstate's keys ([`chainstate_key_order`]).
    ///
    /// # Errors
    /// [`DiskError::CallerError`] if it is out of order, or exceeds the number of coins; nothing is appended
    /// then. [`DiskError::File`] if the disk fails; the snapshot is unusable then.
    pub fn add(&mut self, outpoint: &OutPoint, coin: &Coin<'_>) -> Result<(), DiskError> {
        if let Some(last) = &self.last
            && chainstate_key_order(last, outpoint) != Ordering::Less
        {
            return Err(self.caller_error(format!("{outpoint} does not sort after {last}")));
        }
        if self.left == 0 {
            return Err(self.caller_error(format!("{outpoint} exceeds the announced number of coins")));
        }
        if self.last.is_some_and(|last| last.txid != outpoint.txid) {
            self.close_transaction()?;
        }
        self.last = Some(*outpoint);
        self.left -= 1;
        self.pending_coins += 1;
        write_compact_size(&mut self.pending, outpoint.vout.into());
        write_var_int(&mut self.pending, coin.code.into());
        self.pending.extend_from_slice(coin.out);
        Ok(())
    }

    /// Writes the rest. Returns the output, and the number of bytes that it has got.
    ///
    /// # Errors
    /// [`DiskError::CallerError`] if coins are missing; those of the output.
    pub fn end(mut self) -> Result<(O, u64), DiskError> {
        if self.left > 0 {
            return Err(self.caller_error(format!("{} of the announced coins are missing", self.left)));
        }
        self.close_transaction()?;
        self.flush()?;
        Ok((self.output, self.written))
    }

    fn close_transaction(&mut self) -> Result<(), DiskError> {
        let Some(last) = self.last else { return Ok(()) };
        self.buffer.extend_from_slice(&last.txid.0);
        write_compact_size(&mut self.buffer, self.pending_coins);
        self.buffer.append(&mut self.pending);
        self.pending_coins = 0;
        if self.buffer.len() >= BUFFER_LEN { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.output.append(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    #[cold]
    fn caller_error(&self, flaw: String) -> DiskError {
        DiskError::CallerError { dir: self.path.clone(), flaw }
    }
}

/// Reads a snapshot, coin by coin, in 256 KiB of memory. The content is validated except for the metadata,
/// which the caller must compare with its chain.
pub struct SnapshotReader {
    path: PathBuf,
    file: Box<dyn ReadAt>,
    len: u64,
    metadata: SnapshotMetadata,
    buffer: Vec<u8>,
    /// Offset of the buffer in the file, and offset of the next byte in the buffer.
    base: u64,
    at: usize,
    last: Option<OutPoint>,
    /// Offset of the last coin's transaction in the file.
    tx_start: u64,
    /// Number of coins left, of the last one's transaction and in all.
    left_of_tx: u64,
    left: u64,
}

/// A coin decoded from the buffer, not consumed yet.
struct ParsedCoin {
    outpoint: OutPoint,
    /// Number of coins of the same transaction still to come.
    left_of_tx: u64,
    code: u32,
    out: Range<usize>,
}

impl SnapshotReader {
    /// Opens a snapshot and reads its metadata.
    ///
    /// # Errors
    /// [`DiskError::File`]; [`DiskError::Damaged`] if it is not a snapshot, of an unknown version or network,
    /// or too short for the number of coins that it states.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Self, DiskError> {
        let file = disk.open(path).during("open for reading", path)?;
        let len = file.len().during("find the length", path)?;
        let metadata = SnapshotMetadata::read(&*file, path, len)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            len,
            metadata,
            buffer: Vec::new(),
            base: metadata.len_in_file() as u64,
            at: 0,
            last: None,
            tx_start: 0,
            left_of_tx: 0,
            left: metadata.coins,
        })
    }

    pub fn metadata(&self) -> &SnapshotMetadata {
        &self.metadata
    }

    /// Offset of the next coin in the file: the progress of reading.
    pub fn position(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Returns the next coin; `None` after the last. Coins are in strictly ascending key order, and amounts
    /// in the money range; heights are not above the base block's, if the file has that. Those of a
    /// transaction take at most 4 MB. Whether public keys are on the curve is not checked.
    ///
    /// # Errors
    /// [`DiskError::File`]; [`DiskError::Damaged`] if the file ends early, continues after the last coin, or
    /// contains what `dumptxoutset` never writes.
    pub fn advance(&mut self) -> Result<Option<(OutPoint, Coin<'_>)>, DiskError> {
        if self.left == 0 {
            return if self.position() == self.len {
                Ok(None)
            } else {
                Err(self.damaged(format!("{} bytes follow the last coin", self.len - self.position())))
            };
        }
        self.fill()?;
        if self.left_of_tx == 0 {
            self.tx_start = self.position();
        }
        let found = match self.parse() {
            Ok(found) => found,
            Err(flaw) => return Err(self.damaged(flaw)),
        };
        self.last = Some(found.outpoint);
        self.left_of_tx = found.left_of_tx;
        self.left -= 1;
        self.at = found.out.end;
        let out = self.buffer.get(found.out).unwrap_or_default();
        Ok(Some((found.outpoint, Coin { code: found.code, out })))
    }

    /// Ensures that the buffer contains the whole of the next coin, or the rest of the file.
    fn fill(&mut self) -> Result<(), DiskError> {
        if self.buffer.len() - self.at >= MAX_COIN_LEN {
            return Ok(());
        }
        self.buffer.drain(..self.at);
        self.base += self.at as u64;
        self.at = 0;
        let kept = self.buffer.len();
        let rest = self.len - self.base - kept as u64;
        let more = usize::try_from(rest).unwrap_or(usize::MAX).min(BUFFER_LEN - kept);
        self.buffer.resize(kept + more, 0);
        let added = self.buffer.get_mut(kept..).unwrap_or_default();
        self.file.read_exact_at(added, self.base + kept as u64).during("read", &self.path)?;
        Ok(())
    }

    /// Decodes the next coin in the buffer, or describes what is wrong with it.
    fn parse(&self) -> Result<ParsedCoin, String> {
        let mut reader = Reader::new(self.buffer.get(self.at..).unwrap_or_default());
        let (txid, of_tx) = match &self.last {
            Some(last) if self.left_of_tx > 0 => (last.txid, self.left_of_tx),
            _ => {
                let txid = Txid(reader.array().map_err(describe)?);
                let coins = reader.compact_size().map_err(describe)? as u64;
                if coins == 0 || coins > self.left {
                    let left = self.left;
                    return Err(format!("transaction {txid} has {coins} coins while {left} are left"));
                }
                (txid, coins)
            }
        };
        let vout = reader.compact_size().map_err(describe)? as u32; // at most MAX_SIZE
        let outpoint = OutPoint { txid, vout };
        if self.last.is_some_and(|last| chainstate_key_order(&last, &outpoint) != Ordering::Less) {
            return Err(format!("{outpoint} is out of order"));
        }
        let code = reader.var_int().map_err(describe)?;
        let code = u32::try_from(code).map_err(|_| format!("code {code} does not fit into 32 bits"))?;
        let start = self.at + reader.position();
        let out = read_out(&mut reader).map_err(describe)?;
        let end = start + out.len();
        // The writer keeps them in memory. As outputs of a block they took at most 1 MB, and at least 9 bytes
        // each; here a coin is longer by at most 12.
        if self.base + end as u64 - self.tx_start > MAX_BLOCK_LEN as u64 {
            return Err(format!(
                "transaction {txid} has coins of more than {MAX_BLOCK_LEN} bytes, a block's limit"
            ));
        }
        let (amount, _) = Coin { code, out }.output().map_err(|error| error.to_string())?;
        if amount > Sats::MAX_MONEY {
            return Err(format!("{outpoint} has {} satoshis, more than can exist", amount.0));
        }
        let height = Coin { code, out }.height();
        if let Some(base_height) = self.metadata.base_height.filter(|base| height > *base) {
            return Err(format!(
                "{outpoint} of height {height} is above the snapshot's height {base_height}"
            ));
        }
        Ok(ParsedCoin { outpoint, left_of_tx: of_tx - 1, code, out: start..end })
    }

    #[cold]
    fn damaged(&self, flaw: String) -> DiskError {
        let flaw = format!("{flaw}; {REMEDY}");
        DiskError::Damaged { path: self.path.clone(), offset: self.position(), flaw }
    }
}

const REMEDY: &str = "the snapshot is damaged, download or create it again";

/// Reads the bytes of one compressed output, without decoding amount and script.
fn read_out<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
    let mut ahead = reader.clone();
    ahead.var_int()?;
    let script = compressed_script_len(ahead.var_int()?);
    let length = ahead.position() - reader.position();
    // A script that is too long is cut here, so that it fits into the buffer, and refused by the caller.
    reader.bytes(length + usize::try_from(script).unwrap_or(usize::MAX).min(MAX_SCRIPT_SIZE + 1))
}

/// Describes an error without its offset, which is relative to the buffer.
fn describe(error: WireError) -> String {
    match error {
        WireError::Truncated { .. } => "the file ends inside a coin".to_owned(),
        WireError::NonCanonicalCompactSize { .. } => {
            "a CompactSize is longer than its value needs".to_owned()
        }
        WireError::Oversized { size, .. } => format!("a count or index of {size} is too large"),
        WireError::VarIntOverflow { .. } => "a VARINT does not fit into 64 bits".to_owned(),
        other => other.to_string(),
    }
}

//! Peregrine's own hint file: the smallest, with an index for reading from any height, and checksums of all
//! content.
//!
//! ```text
//! header   magic "PGHINTS\n" 8 | version 1 u16 | flags u16 | network magic 4 | height u32 | block hash 32
//!          | CRC-32C of these 52 bytes u32
//! groups   arithmetic code of 1 to 4096 blocks each (see gaps and range_coder), from block 1
//! index    for each group: length in bytes u32 | CRC-32C u32 | blocks u16
//! footer   offset of the index u64 | groups u32 | hints u64 | outputs u64
//!          | CRC-32C of index and footer up to here u32 | SHA-256 of all bytes before it 32
//! ```
//! Numbers are little-endian. Spendable outputs are counted. Flag 1: the numbers of outputs are those of the
//! blocks; without it they are the last hint + 1, because the file was written without the blocks. A network
//! magic or block hash of zeros means unknown. A group ends after 4096 blocks, or with the block that brings
//! its outputs to [`GROUP_OUTPUTS`]: that bounds what a reader must decode to read one block.

use super::gaps::Model;
use super::input::InputError;
use super::range_coder::{Decoder, Encoder};
use super::stream::{HintFile, MAX_RECORDS};
use super::{HintFormat, HintInfo, MAX_OUTPUTS};
use crate::HintsError;
use digest::sha256::Sha256;
use std::path::Path;
use vfs::{During as _, FileError};
use wire::{BlockHash, Height, Network, Reader};

/// The first bytes. The line feed reveals files that were transferred as text.
pub(super) const MAGIC: [u8; 8] = *b"PGHINTS\n";
const VERSION: u16 = 1;
/// Flag: the numbers of outputs are known.
const HAS_OUTPUTS: u16 = 1;
/// Length of the header in bytes, including the CRC.
const HEADER_LEN: usize = 56;
/// Length of an index entry in bytes.
const ENTRY_LEN: u64 = 10;
/// Length of the footer before its CRC, in bytes.
const COUNTS_LEN: usize = 28;
pub(super) const SHA256_LEN: usize = 32;
/// Length of the footer in bytes.
const FOOTER_LEN: usize = COUNTS_LEN + 4 + SHA256_LEN;

/// Maximum number of blocks of a group.
const GROUP_BLOCKS: u16 = 4096;
/// Number of outputs at which a group is full: it decodes in a few milliseconds, and the probabilities have
/// enough data to adapt.
const GROUP_OUTPUTS: u32 = 1 << 18;
/// Maximum number of groups: the largest blocks of 60 years fill so many.
const MAX_GROUPS: u32 = 1 << 20;
/// Maximum length of a group in bytes: 32 bits for each output, of which the code needs a few at worst.
const MAX_GROUP_LEN: u32 = 4 * (GROUP_OUTPUTS + MAX_OUTPUTS) + 4 * GROUP_BLOCKS as u32;

pub(super) fn header(
    network: Option<Network>,
    height: Height,
    hash: Option<BlockHash>,
    has_outputs: bool,
) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((if has_outputs { HAS_OUTPUTS } else { 0 }).to_le_bytes());
    bytes.extend(network.map_or([0; 4], Network::magic));
    bytes.extend(height.0.to_le_bytes());
    bytes.extend(hash.unwrap_or(BlockHash([0; 32])).0);
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// An entry of the index.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Height of its first block.
    first: u32,
    offset: u64,
    len: u32,
    crc: u32,
    blocks: u16,
}

pub(super) struct GroupIndex {
    groups: Vec<Group>,
}

#[derive(Debug, Default)]
pub(super) struct DecodedGroup {
    hints: Vec<u32>,
    /// For each block its number of outputs, and the end of its hints.
    blocks: Vec<(u32, u32)>,
    /// Height of the first block.
    first: u32,
}

impl DecodedGroup {
    /// Returns the hints of a block and its number of outputs; `None` if it is in another group.
    pub(super) fn block(&self, height: u32) -> Option<(&[u32], u32)> {
        let at = height.checked_sub(self.first)? as usize;
        let (outputs, end) = *self.blocks.get(at)?;
        let start = at.checked_sub(1).and_then(|before| self.blocks.get(before)).map_or(0, |(_, end)| *end);
        Some((self.hints.get(start as usize..end as usize)?, outputs))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.hints.capacity() * 4 + self.blocks.capacity() * 8
    }

    /// Returns the numbers of hints and of outputs of all blocks.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.hints.len() as u64, self.blocks.iter().map(|(outputs, _)| u64::from(*outputs)).sum())
    }
}

/// Reads header, index and footer.
pub(super) fn open(file: &HintFile) -> Result<(GroupIndex, HintInfo), HintsError> {
    let (has_outputs, mut info) = read_header(file)?;
    let body_len = file.len.checked_sub((HEADER_LEN + FOOTER_LEN) as u64);
    let body_len = body_len.ok_or_else(|| file.damaged(file.len, "the file ends before its footer"))?;
    let footer_at = HEADER_LEN as u64 + body_len;
    let footer: [u8; FOOTER_LEN] = read_array(file, footer_at)?;
    let (counts, sums) = footer.split_at(COUNTS_LEN);
    let mut reader = Reader::new(counts);
    let short = |_| file.damaged(footer_at, "the footer is too short");
    let index_at = reader.u64().map_err(short)?;
    let groups = reader.u32().map_err(short)?;
    let (hints, outputs) = (reader.u64().map_err(short)?, reader.u64().map_err(short)?);
    let (crc, sha256) = sums.split_at(4);
    if index_at.checked_add(u64::from(groups) * ENTRY_LEN) != Some(footer_at) {
        let text = "the file does not end with a footer: it is truncated, or bytes were added";
        return Err(file.damaged(footer_at, text));
    }
    let height = info.height.0;
    if groups > height.min(MAX_GROUPS) || height > MAX_RECORDS {
        return Err(file.damaged(footer_at, &format!("{groups} groups of {height} blocks are impossible")));
    }
    let container = GroupIndex { groups: read_index(file, index_at, groups, counts, crc)? };
    let (blocks, end) =
        container.groups.last().map_or((0, HEADER_LEN as u64), |last| (last.last(), last.end()));
    if blocks != u64::from(height) || end != index_at {
        let text = format!("the index ends at block {blocks} and byte {end}, not {height} and {index_at}");
        return Err(file.damaged(index_at, &text));
    }
    info.hints = hints;
    info.outputs = has_outputs.then_some(outputs);
    info.checksum = sha256.first_chunk().copied();
    Ok((container, info))
}

fn read_array<const N: usize>(file: &HintFile, offset: u64) -> Result<[u8; N], HintsError> {
    let mut bytes = [0; N];
    file.bytes.read_exact_at(&mut bytes, offset).during("read the hints", &file.path)?;
    Ok(bytes)
}

fn read_header(file: &HintFile) -> Result<(bool, HintInfo), HintsError> {
    if file.len < HEADER_LEN as u64 {
        return Err(file.damaged(file.len, "the file ends in its header"));
    }
    let header: [u8; HEADER_LEN] = read_array(file, 0)?;
    let (fields, crc) = header.split_at(HEADER_LEN - 4);
    let mut reader = Reader::new(fields);
    let short = |_| file.damaged(0, "the header is too short");
    let magic: [u8; 8] = reader.array().map_err(short)?;
    let version = u16::from_le_bytes(reader.array().map_err(short)?);
    if magic != MAGIC {
        return Err(file.damaged(0, "the file does not start with \"PGHINTS\""));
    }
    if version != VERSION {
        let text = format!(
            "version {version} is not supported, only {VERSION}; a newer version of peregrine may read it"
        );
        return Err(file.damaged(8, &text));
    }
    if crc32c::crc32c(fields).to_le_bytes() != crc {
        return Err(file.damaged(0, "checksum mismatch in the header"));
    }
    let flags = u16::from_le_bytes(reader.array().map_err(short)?);
    if flags & !HAS_OUTPUTS != 0 {
        return Err(file.damaged(10, &format!("unknown flags {flags:#06x}")));
    }
    let magic: [u8; 4] = reader.array().map_err(short)?;
    let network = Network::of_magic(magic);
    if network.is_none() && magic != [0; 4] {
        return Err(file.damaged(12, &format!("no network has the magic {magic:02x?}")));
    }
    let height = Height(reader.u32().map_err(short)?);
    let hash: [u8; 32] = reader.array().map_err(short)?;
    let info = HintInfo {
        format: HintFormat::Peregrine,
        network,
        height,
        block_hash: (hash != [0; 32]).then_some(BlockHash(hash)),
        hints: 0,
        outputs: None,
        bytes: file.len,
        checksum: None,
        first_record_is_genesis: None,
    };
    Ok((flags & HAS_OUTPUTS != 0, info))
}

/// Reads the index. Memory grows only with entries that were read from the file.
fn read_index(
    file: &HintFile,
    index_at: u64,
    count: u32,
    counts: &[u8],
    crc: &[u8],
) -> Result<Vec<Group>, HintsError> {
    let at_index = |flaw: InputError| flaw.at(&file.path, "index of the hints");
    let mut groups = Vec::new();
    let (mut input, mut sum) = (file.input(index_at), 0);
    let (mut first, mut offset) = (1u32, HEADER_LEN as u64);
    for _ in 0..count {
        let entry: [u8; ENTRY_LEN as usize] = input.array().map_err(at_index)?;
        sum = crc32c::crc32c_append(sum, &entry);
        let [l0, l1, l2, l3, c0, c1, c2, c3, b0, b1] = entry;
        let (len, crc) = (u32::from_le_bytes([l0, l1, l2, l3]), u32::from_le_bytes([c0, c1, c2, c3]));
        let blocks = u16::from_le_bytes([b0, b1]);
        groups.push(Group { first, offset, len, crc, blocks });
        let next = first.checked_add(blocks.into());
        let is_possible = (1..=GROUP_BLOCKS).contains(&blocks) && len <= MAX_GROUP_LEN;
        let (true, Some(next)) = (is_possible, next) else {
            let text = format!("a group of {blocks} blocks in {len} bytes is impossible");
            return Err(at_index(input.malformed(text)));
        };
        (first, offset) = (next, offset + u64::from(len));
    }
    if crc32c::crc32c_append(sum, counts).to_le_bytes() != crc {
        return Err(file.damaged(index_at, "checksum mismatch in index and footer"));
    }
    Ok(groups)
}

impl Group {
    /// Height of the last block.
    fn last(&self) -> u64 {
        u64::from(self.first) + u64::from(self.blocks) - 1
    }

    fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

impl GroupIndex {
    /// Decodes the group that contains the block at `height`. `buffer` is a scratch buffer.
    pub(super) fn read(
        &self,
        file: &HintFile,
        height: u32,
        buffer: &mut Vec<u8>,
        decoded: &mut DecodedGroup,
    ) -> Result<(), HintsError> {
        let after = self.groups.partition_point(|group| group.first <= height);
        let group = after.checked_sub(1).and_then(|at| self.groups.get(at));
        let group = group.ok_or_else(|| file.damaged(0, &format!("block {height} is not in the file")))?;
        buffer.resize(group.len as usize, 0);
        file.bytes.read_exact_at(buffer, group.offset).during("read the hints", &file.path)?;
        let damaged = |text: &str| {
            let part = format!("blocks {} to {}", group.first, group.last());
            InputError::Malformed(group.offset, text.to_owned()).at(&file.path, part)
        };
        if crc32c::crc32c(buffer) != group.crc {
            return Err(damaged("checksum mismatch"));
        }
        decode(group, buffer, decoded).ok_or_else(|| damaged("not the output of peregrine's encoder"))
    }
}

/// Decodes the bytes of a group. Returns `None` if the encoder never writes them.
fn decode(group: &Group, bytes: &[u8], decoded: &mut DecodedGroup) -> Option<()> {
    decoded.hints.clear();
    decoded.blocks.clear();
    decoded.first = group.first;
    let (mut model, mut decoder) = (Model::new(), Decoder::new(bytes));
    let mut sum = 0;
    for _ in 0..group.blocks {
        if sum >= GROUP_OUTPUTS {
            return None;
        }
        let outputs = model.decode(&mut decoder, &mut decoded.hints)?;
        sum += outputs;
        decoded.blocks.push((outputs, decoded.hints.len() as u32));
    }
    decoder.is_at_end().then_some(())
}

/// Encodes blocks in groups, then index and footer.
pub(super) struct GroupWriter {
    model: Box<Model>,
    encoder: Encoder,
    blocks: u16,
    outputs: u32,
    /// The index so far.
    index: Vec<u8>,
    groups: u32,
}

impl GroupWriter {
    pub(super) fn new() -> Self {
        let (model, encoder) = (Model::new(), Encoder::new());
        Self { model, encoder, blocks: 0, outputs: 0, index: Vec::new(), groups: 0 }
    }

    /// Adds a block. If the group before it is full, appends it to `bytes`.
    pub(super) fn push(
        &mut self,
        path: &Path,
        bytes: &mut Vec<u8>,
        outputs: u32,
        unspent: &[u32],
    ) -> Result<(), FileError> {
        if self.blocks == GROUP_BLOCKS || self.outputs >= GROUP_OUTPUTS {
            self.close(path, bytes)?;
        }
        self.model.encode(&mut self.encoder, outputs, unspent);
        self.blocks += 1;
        self.outputs += outputs;
        Ok(())
    }

    fn close(&mut self, path: &Path, bytes: &mut Vec<u8>) -> Result<(), FileError> {
        if self.blocks == 0 {
            return Ok(());
        }
        let coded = std::mem::replace(&mut self.encoder, Encoder::new()).finish();
        let len = u32::try_from(coded.len()).ok().filter(|len| *len <= MAX_GROUP_LEN);
        let len = len.ok_or_else(|| std::io::Error::other("a group of blocks exceeds the maximum length"));
        self.index.extend(len.during("write the hints", path)?.to_le_bytes());
        self.index.extend(crc32c::crc32c(&coded).to_le_bytes());
        self.index.extend(self.blocks.to_le_bytes());
        self.groups += 1;
        bytes.extend(coded);
        self.model = Model::new();
        (self.blocks, self.outputs) = (0, 0);
        Ok(())
    }

    /// Appends the last group, index and footer, and returns the SHA-256 at the end. `written` bytes were
    /// written before those in `bytes`, and `sha256` covers them.
    pub(super) fn finish(
        mut self,
        path: &Path,
        bytes: &mut Vec<u8>,
        written: u64,
        mut sha256: Sha256,
        (hints, outputs): (u64, u64),
    ) -> Result<[u8; 32], FileError> {
        self.close(path, bytes)?;
        let index_at = written + bytes.len() as u64;
        self.index.extend(index_at.to_le_bytes());
        self.index.extend(self.groups.to_le_bytes());
        self.index.extend(hints.to_le_bytes());
        self.index.extend(outputs.to_le_bytes());
        self.index.extend(crc32c::crc32c(&self.index).to_le_bytes());
        bytes.extend(self.index);
        sha256.update(bytes);
        let sum = sha256.finalize();
        bytes.extend(sum);
        Ok(sum)
    }
}

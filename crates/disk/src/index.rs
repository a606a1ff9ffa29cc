//! `blocks/index`: the LevelDB in which Core stores what it knows about each block header and block file.
//!
//! Written by Core `BlockTreeDB::WriteBatchSync` (`node/blockstorage.cpp`), `CDiskBlockIndex` (`chain.h`),
//! `CBlockFileInfo`.
//!
//! ```text
//! 'b' | block hash 32      -> block   VARINT: version (259900, unused), height, status, transactions,
//!                                     file if it has data or undo, data position if it has data,
//!                                     undo position if it has undo; header 80
//! 'f' | file number u32    -> file    VARINT: blocks, size of blk, size of rev, lowest and highest height,
//!                                     earliest and latest time
//! 'l'                      -> u32     number of the last block file
//! 'R'                      -> '1'     a -reindex is in progress (absent: none is)
//! 'F' | length 1 | name    -> '1'/'0' a flag; "prunedblockfiles": block files have been deleted
//! ```
//! Numbers that are not VARINTs are little-endian, so 'f' rows are not in numeric order. Values are not
//! obfuscated. A mainnet index has about a million rows of 130 bytes. Core writes 'b' rows at flushes, in one
//! batch together with 'f' and 'l', after syncing the block files: after a crash the index is intact, but may
//! lack the newest blocks.

mod flat;
mod rewrite;
mod rows;
mod times;

pub use flat::refuse_flat;
pub use rewrite::{PrunedFlag, rewrite_block_index, write_block_index};
pub use rows::{IndexRows, find_height};

use crate::{blk::RECORD_HEADER_LEN, departed, error::DiskError};
use std::path::Path;
use vfs::Disk;
use wire::read::write_var_int;
use wire::{BlockHash, ByteOffset, FileNo, Header, Height, Reader, WireError};

const BLOCK: u8 = b'b';
const FILE: u8 = b'f';
const LAST_FILE: &[u8] = b"l";
const REINDEXING: &[u8] = b"R";
const PRUNED: &[u8] = b"F\x10prunedblockfiles";

/// The version that Core writes into each entry and never reads (`CDiskBlockIndex::DUMMY_VERSION`).
const ENTRY_VERSION: u64 = 259_900;

/// Maximum number of block files (128 TiB of blocks). A greater number is damage.
pub(crate) const MAX_FILES: u32 = 1 << 20;

/// How far Core has validated a block, what of it is on disk, and whether it failed (Core `BlockStatus`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BlockStatus(pub u32);

impl BlockStatus {
    /// Validity level: its header and those of all its ancestors are valid.
    pub const VALID_TREE: u32 = 2;
    /// Validity level: its transactions pass the checks that need no coins.
    pub const VALID_TRANSACTIONS: u32 = 3;
    /// Validity level: its spends are valid, except for scripts.
    pub const VALID_CHAIN: u32 = 4;
    /// Validity level: fully validated, including scripts.
    pub const VALID_SCRIPTS: u32 = 5;
    const VALID_MASK: u32 = 7;
    /// The block is in a `blk` file.
    pub const HAVE_DATA: u32 = 8;
    /// Its undo data is in a `rev` file.
    pub const HAVE_UNDO: u32 = 16;
    /// It was found invalid.
    pub const FAILED_VALID: u32 = 32;
    /// An ancestor was found invalid; newer versions of Core do not write this.
    pub const FAILED_CHILD: u32 = 64;
    /// It was received with witness data.
    pub const OPT_WITNESS: u32 = 128;

    /// Returns the validity level: one of the `VALID_` constants or lower.
    pub const fn validity(self) -> u32 {
        self.0 & Self::VALID_MASK
    }

    /// Returns the status of a block that is stored, but was never connected. Core records that a block has
    /// its witnesses from the height of BIP-0141 on.
    pub const fn stored(with_witnesses: bool) -> Self {
        let witnesses = if with_witnesses { Self::OPT_WITNESS } else { 0 };
        Self(Self::VALID_TRANSACTIONS | Self::HAVE_DATA | witnesses)
    }

    /// Returns the status of the same block after it was deleted with its undo data.
    #[must_use]
    pub const fn without_data(self) -> Self {
        Self(self.0 & !(Self::HAVE_DATA | Self::HAVE_UNDO))
    }

    /// Returns the status of the same block after it was stored again. A connected block stays connected.
    #[must_use]
    pub const fn stored_again(self, with_witnesses: bool) -> Self {
        let stored = Self::stored(with_witnesses);
        match self.validity() {
            Self::VALID_TRANSACTIONS.. => Self(self.0 & !Self::HAVE_UNDO | stored.0 & !Self::VALID_MASK),
            _ => stored,
        }
    }

    /// Returns the status of the same block after it was connected, with undo data.
    #[must_use]
    pub const fn connected(self) -> Self {
        Self(self.validated().0 | Self::HAVE_UNDO)
    }

    /// Returns the status of the same block after it was found valid.
    #[must_use]
    pub const fn validated(self) -> Self {
        Self(self.unmarked().0 & !Self::VALID_MASK | Self::VALID_SCRIPTS)
    }

    /// Returns the status of the same block if its spends have to be checked again.
    #[must_use]
    pub const fn not_connected(self) -> Self {
        match self.validity() {
            Self::VALID_CHAIN.. => Self(self.0 & !Self::VALID_MASK | Self::VALID_TRANSACTIONS),
            _ => self,
        }
    }

    /// Whether its spends were found valid.
    pub const fn was_connected(self) -> bool {
        self.validity() >= Self::VALID_CHAIN
    }

    /// Whether the block is in a `blk` file.
    pub const fn has_data(self) -> bool {
        self.0 & Self::HAVE_DATA != 0
    }

    /// Whether its undo data is in a `rev` file.
    pub const fn has_undo(self) -> bool {
        self.0 & Self::HAVE_UNDO != 0
    }

    /// Returns the status of the same block without the mark that it or an ancestor was found invalid.
    #[must_use]
    pub const fn unmarked(self) -> Self {
        Self(self.0 & !(Self::FAILED_VALID | Self::FAILED_CHILD))
    }

    /// Whether it or an ancestor was found invalid.
    pub const fn is_failed(self) -> bool {
        self.0 & (Self::FAILED_VALID | Self::FAILED_CHILD) != 0
    }
}

/// A block header, and where the block is on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// SHA-256d of the header.
    pub hash: BlockHash,
    pub header: Header,
    /// Height, as Core computed it when it accepted the header.
    pub height: Height,
    /// Status of the block. Its `HAVE_` flags must agree with the positions below.
    pub status: BlockStatus,
    /// Number of transactions; 0 as long as only the header is known.
    pub tx_count: u32,
    /// Number of its `blk` and `rev` file; `None` if neither block nor undo data is on disk.
    pub file: Option<FileNo>,
    /// Offset of the block in the `blk` file, after the record header: at least 8.
    pub data_pos: Option<ByteOffset>,
    /// Offset of the undo data in the `rev` file, after the record header: at least 8.
    pub undo_pos: Option<ByteOffset>,
}

impl IndexEntry {
    /// The entry of a block whose header is valid and that is not stored.
    pub const fn of_header(hash: BlockHash, header: Header, height: Height) -> Self {
        let status = BlockStatus(BlockStatus::VALID_TREE);
        Self { hash, header, height, status, tx_count: 0, file: None, data_pos: None, undo_pos: None }
    }

    /// Leaves only the header, as if the block had never come. If the block is marked invalid, it stays so:
    /// otherwise bitcoind would download and connect it.
    pub const fn forget_block(&mut self) {
        let mark = self.status.0 & (BlockStatus::FAILED_VALID | BlockStatus::FAILED_CHILD);
        *self = Self::of_header(self.hash, self.header, self.height);
        self.status.0 |= mark;
    }

    /// Where the block is, if it is on disk.
    pub fn place(&self) -> Option<(FileNo, ByteOffset)> {
        self.file.zip(self.data_pos).filter(|_| self.status.has_data())
    }

    /// Decodes the value of a row. The hash is computed from the header, not taken from a key.
    ///
    /// # Errors
    /// A description of what is wrong with the bytes.
    pub fn decode(value: &[u8]) -> Result<Self, String> {
        let mut reader = Reader::new(value);
        let mut number = |what: &str| var_u32(&mut reader, what);
        number("version")?;
        let height = number("height")?;
        if height > i32::MAX as u32 {
            return Err(format!("height {height} is above the limit of 2147483647"));
        }
        let status = BlockStatus(number("status")?);
        let tx_count = number("transaction count")?;
        if status.has_undo() && !status.has_data() {
            return Err("undo data without a block".to_owned());
        }
        let file = if status.has_data() { Some(FileNo(number("file number")?)) } else { None };
        let mut position = |present: bool, what| match present.then(|| number(what)).transpose()? {
            Some(pos) if (pos as usize) < RECORD_HEADER_LEN => {
                Err(format!("{what} {pos} is before the end of the first record header"))
            }
            pos => Ok(pos.map(|pos| ByteOffset(pos.into()))),
        };
        let data_pos = position(status.has_data(), "data position")?;
        let undo_pos = position(status.has_undo(), "undo position")?;
        let header = Header::read(&mut reader).map_err(|error| format!("header: {error}"))?;
        reader.finish().map_err(|error: WireError| error.to_string())?;
        let (hash, height) = (header.hash(), Height(height));
        Ok(Self { hash, header, height, status, tx_count, file, data_pos, undo_pos })
    }

    /// Decodes a row whose key begins with that of blocks; `dir` is for errors. Returns `None` for a block of
    /// another chain.
    fn of_row(dir: &Path, key: &[u8], value: &[u8]) -> Result<Option<Self>, DiskError> {
        if departed::is_row(value) {
            return Ok(None);
        }
        let damaged = |flaw: String| DiskError::index_row(dir, key, flaw);
        let Some((_, hash)) = key.split_first().filter(|_| key.len() == 33) else {
            return Err(damaged(format!("a key of {} bytes instead of 33", key.len())));
        };
        let found = Self::decode(value).map_err(damaged)?;
        if found.hash.0 != hash {
            return Err(damaged(format!("the header hashes to {}, not to the key", found.hash)));
        }
        Ok(Some(found))
    }

    fn key(hash: &BlockHash) -> Vec<u8> {
        [&[BLOCK][..], &hash.0].concat()
    }

    /// The key and the value of the row.
    fn row(&self) -> (Vec<u8>, Vec<u8>) {
        let mut value = Vec::new();
        self.encode(&mut value);
        (Self::key(&self.hash), value)
    }

    /// Appends the row's value.
    ///
    /// # Panics
    /// If the status does not agree with the file or the positions, or a position is 4 GiB or more.
    pub fn encode(&self, value: &mut Vec<u8>) {
        for number in [ENTRY_VERSION, self.height.0.into(), self.status.0.into(), self.tx_count.into()] {
            write_var_int(value, number);
        }
        assert_eq!(
            self.file.is_some(),
            self.status.has_data(),
            "block {}: file and status disagree",
            self.hash
        );
        if let Some(file) = self.file {
            write_var_int(value, file.0.into());
        }
        for (pos, has_pos) in
            [(self.data_pos, self.status.has_data()), (self.undo_pos, self.status.has_undo())]
        {
            assert_eq!(pos.is_some(), has_pos, "block {}: position and status disagree", self.hash);
            if let Some(ByteOffset(pos)) = pos {
                assert!(u32::try_from(pos).is_ok(), "block {}: files are smaller than 4 GiB", self.hash);
                write_var_int(value, pos);
            }
        }
        value.extend_from_slice(&self.header.to_bytes());
    }
}

/// Core's row for a `blk` file and its `rev` file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileInfo {
    /// Number of blocks in the `blk` file.
    pub blocks: u32,
    /// Bytes used in the `blk` file: where the next block is appended.
    pub size: u32,
    /// Bytes used in the `rev` file.
    pub undo_size: u32,
    /// Lowest height of a block in the file.
    pub height_first: u32,
    /// Highest height of a block in the file.
    pub height_last: u32,
    /// Earliest time of a block in the file, in seconds since 1970.
    pub time_first: u64,
    /// Latest time of a block in the file.
    pub time_last: u64,
}

/// Whether a place in the block files is in free space, where the next blocks go: after a crash, an index may
/// have rows of blocks that were there and that the block index, with these `files`, does not have yet.
/// `on_disk` are the numbers of the files that exist, ascending.
pub fn is_free_space(files: &[FileInfo], on_disk: &[FileNo], file: u64, pos: u64) -> bool {
    match usize::try_from(file).ok().and_then(|number| files.get(number)) {
        Some(info) => pos >= u64::from(info.size),
        None => on_disk.last().map_or(0, |last| u64::from(last.0)).max(files.len() as u64) >= file,
    }
}

impl FileInfo {
    /// Decodes the value of a row.
    ///
    /// # Errors
    /// A description of what is wrong with the bytes.
    pub fn decode(value: &[u8]) -> Result<Self, String> {
        let mut reader = Reader::new(value);
        let mut info = Self {
            blocks: var_u32(&mut reader, "block count")?,
            size: var_u32(&mut reader, "size")?,
            undo_size: var_u32(&mut reader, "undo size")?,
            height_first: var_u32(&mut reader, "lowest height")?,
            height_last: var_u32(&mut reader, "highest height")?,
            ..Self::default()
        };
        info.time_first = reader.var_int().map_err(|error| format!("earliest time: {error}"))?;
        info.time_last = reader.var_int().map_err(|error| format!("latest time: {error}"))?;
        reader.finish().map_err(|error| error.to_string())?;
        Ok(info)
    }

    /// Decodes a row whose key begins with that of files; `dir` is for errors. Returns `None` for a key that
    /// Core does not give to a file.
    fn of_row(dir: &Path, key: &[u8], value: &[u8]) -> Result<Option<(u32, Self)>, DiskError> {
        let Some(number) = key.split_first_chunk().and_then(|([_], number)| number.try_into().ok()) else {
            return Ok(None);
        };
        let info = Self::decode(value).map_err(|flaw| DiskError::index_row(dir, key, flaw))?;
        Ok(Some((u32::from_le_bytes(number), info)))
    }

    /// Appends the row's value.
    pub fn encode(&self, value: &mut Vec<u8>) {
        for number in [self.blocks, self.size, self.undo_size, self.height_first, self.height_last] {
            write_var_int(value, number.into());
        }
        write_var_int(value, self.time_first);
        write_var_int(value, self.time_last);
    }

    fn key(file: FileNo) -> Vec<u8> {
        [&[FILE][..], &file.0.to_le_bytes()].concat()
    }

    /// The key and the value of the row.
    fn row(&self, file: FileNo) -> (Vec<u8>, Vec<u8>) {
        let mut value = Vec::new();
        self.encode(&mut value);
        (Self::key(file), value)
    }

    /// Adds a block to the counts and ranges, but not to the sizes (Core `CBlockFileInfo::AddBlock`).
    pub fn add_block(&mut self, height: Height, time: u64) {
        if self.blocks == 0 {
            (self.height_first, self.time_first) = (height.0, time);
        }
        self.height_first = self.height_first.min(height.0);
        self.height_last = self.height_last.max(height.0);
        self.time_first = self.time_first.min(time);
        self.time_last = self.time_last.max(time);
        self.blocks += 1;
    }
}

fn var_u32(reader: &mut Reader<'_>, what: &str) -> Result<u32, String> {
    let number = reader.var_int().map_err(|error| format!("{what}: {error}"))?;
    u32::try_from(number).map_err(|_| format!("{what} {number} does not fit into 32 bits"))
}

/// The content of the block index.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockIndex {
    /// All headers that Core has accepted, in the byte order of their hashes. They need not form a tree.
    pub entries: Vec<IndexEntry>,
    /// The files, by number; all zeros if Core has no row for a file.
    pub files: Vec<FileInfo>,
    pub last_file: FileNo,
    /// Whether block files have been deleted to save space.
    pub pruned: bool,
    /// Whether a -reindex was in progress: entries are missing.
    pub reindexing: bool,
    /// Number of blocks of another chain ([`departed`]), which are left out.
    pub departed: u32,
}

/// Reads the block index in `dir`. The database is not changed.
///
/// # Errors
/// Those of [`IndexRows::open`] and [`IndexRows::stream`].
pub fn read_block_index(disk: &dyn Disk, dir: &Path) -> Result<BlockIndex, DiskError> {
    let mut entries = Vec::new();
    let index = IndexRows::open(disk, dir)?.stream(|entry| entries.push(entry))?;
    Ok(BlockIndex { entries, ..index })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::RealDisk;

    /// The places of blocks that a crash has lost from the block index.
    #[test]
    fn free_space_is_behind_the_bytes_in_use_and_in_files_that_are_not_listed() {
        let files =
            [FileInfo { size: 100, ..FileInfo::default() }, FileInfo { size: 50, ..FileInfo::default() }];
        let on_disk = [0, 1, 2, 3, 7].map(FileNo);
        for (file, pos, is_free) in
            [(0, 99, false), (0, 100, true), (1, 50, true), (2, 8, true), (7, 8, true), (8, 8, false)]
        {
            assert_eq!(is_free_space(&files, &on_disk, file, pos), is_free, "file {file}, position {pos}");
        }
        assert!(is_free_space(&files, &on_disk[..2], 2, 8), "the next file");
        assert!(!is_free_space(&files, &on_disk[..2], 3, 8));
    }

    /// A stored block at the height of its nonce.
    pub(super) fn stored_entry(nonce: u32) -> IndexEntry {
        let header = Header { nonce, ..Header::default() };
        let (file, data_pos) = (Some(FileNo(0)), Some(ByteOffset(8)));
        let of_header = IndexEntry::of_header(header.hash(), header, Height(nonce));
        IndexEntry { status: BlockStatus::stored(false), tx_count: 1, file, data_pos, ..of_header }
    }

    fn genesis() -> IndexEntry {
        let entry = stored_entry(1);
        IndexEntry { height: Height(0), status: entry.status.validated(), ..entry }
    }

    #[test]
    fn an_entry_encodes_to_the_same_bytes_as_in_core() {
        let mut value = Vec::new();
        genesis().encode(&mut value);
        // 259900 as VARINT, height 0, status 13, 1 transaction, file 0, position 8.
        assert_eq!(value[..8], [0x8e, 0xed, 0x3c, 0, 13, 1, 0, 8]);
        assert_eq!(value[8..], genesis().header.to_bytes());
        value[7] = 7;
        assert!(IndexEntry::decode(&value).unwrap_err().starts_with("data position 7"));
    }

    #[test]
    fn files_are_read_in_numeric_order_and_flags_round_trip() {
        let (_dir, path) = testkit::fresh_path("index");
        let mut files: Vec<FileInfo> = vec![FileInfo::default(); 300];
        for (height, file) in (0u32..).zip(&mut files) {
            file.add_block(Height(height), 7);
            file.add_block(Height(height + 2), 5);
        }
        assert_eq!((files[256].height_first, files[256].height_last, files[256].time_last), (256, 258, 7));
        let entries = vec![genesis()];
        let (last_file, pruned, reindexing) = (FileNo(299), true, true);
        let index = BlockIndex { entries, files, last_file, pruned, reindexing, departed: 0 };
        write_block_index(&RealDisk, &path, &index).unwrap();
        assert_eq!(read_block_index(&RealDisk, &path).unwrap(), index);
    }

    #[test]
    fn entries_and_links_stream_in_the_order_of_hashes() {
        let dir = tempfile::tempdir().unwrap();
        let next = |before: &IndexEntry| {
            let header = Header { prev: before.hash, ..before.header };
            Some(IndexEntry { hash: header.hash(), header, ..*before })
        };
        let entries: Vec<_> = std::iter::successors(Some(genesis()), next).take(500).collect();
        let index = BlockIndex { entries, files: vec![FileInfo::default()], ..BlockIndex::default() };
        write_block_index(&RealDisk, dir.path(), &index).unwrap();
        let (mut streamed, mut links) = (Vec::new(), Vec::new());
        let rows = IndexRows::open(&RealDisk, dir.path()).unwrap();
        let rest = rows.stream(|entry| streamed.push(entry)).unwrap();
        rows.stream_links(|hash, prev| links.push((hash, prev))).unwrap();
        assert_eq!(rest, BlockIndex { entries: Vec::new(), ..index.clone() });
        assert!(streamed.is_sorted_by_key(|entry| entry.hash));
        assert!(streamed.iter().map(|entry| (entry.hash, entry.header.prev)).eq(links));
        streamed.sort_by_key(|entry| index.entries.iter().position(|other| other == entry));
        assert_eq!(streamed, index.entries);
    }
}

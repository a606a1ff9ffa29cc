//! Snapshots in chunks, as nodes are to share them by the draft of BIP 452 (0.5.0, "P2P UTXO set sharing").
//!
//! A [`snapshot`](crate::snapshot) is cut into chunks of [`CHUNK_LEN`] bytes; the last one has the rest. The
//! SHA-256d of each chunk is a leaf of a binary tree. Two neighbours become SHA-256d(left, right) on the next
//! level; a node without a right neighbour moves up unchanged. The root commits to all bytes, so that each
//! chunk can be proven by itself. Peregrine writes a folder for each set:
//!
//! ```text
//! 000000.chunk ..   the chunks
//! tree.json         for people: block, root, hash, number of coins
//! utxotree          block hash 32 | version of the snapshot 2 | its length 8 | leaves: 32 each
//! ```
//! `utxotree` is the payload of the message of that name. Numbers are little-endian, hashes in internal byte
//! order. The draft states no number of leaves, since it follows from the length; Core writes lists with a
//! CompactSize before them. [`UtxoTree::decode`] reads both forms, which differ in length, and
//! [`UtxoTree::encode`] writes the draft's.
//!
//! A folder is made under a name with the suffix of [`vfs::unfinished`], `utxotree` is written last, and then
//! the folder is renamed: a folder with its final name is complete, also after a crash.

use crate::error::DiskError;
use crate::snapshot::{METADATA_LEN, SnapshotOutput, VERSION};
use digest::sha256::sha256d;
use std::ops::Range;
use std::path::Path;
use vfs::{AtomicDir, AtomicFile, Disk, During as _, unfinished, write_synced};
use wire::{BlockHash, Reader, WireError, read::write_compact_size};

/// Length of a chunk in bytes.
pub const CHUNK_LEN: u64 = 3_900_000;
/// Name of the file with the tree.
pub const TREE_NAME: &str = "utxotree";
/// Maximum length of that file in bytes: no message is longer (Core `MAX_PROTOCOL_MESSAGE_LENGTH`).
pub const MAX_TREE_LEN: u64 = 4_000_000;
/// Name of the file that describes the set.
const DESCRIPTION_NAME: &str = "tree.json";
const LEAF_LEN: u64 = 32;
/// Bytes before the leaves.
const HEAD_LEN: u64 = 32 + 2 + 8;

pub fn chunk_name(index: u64) -> String {
    format!("{index:06}.chunk")
}

/// The leaves of a snapshot, and what they are the leaves of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UtxoTree {
    /// The block that the coins belong to.
    pub block: BlockHash,
    /// Length of the snapshot in bytes.
    pub len: u64,
    /// The SHA-256d of each chunk, in order.
    pub leaves: Vec<[u8; 32]>,
    /// Length of all chunks but the last, in bytes: [`CHUNK_LEN`], but in tests.
    pub chunk_len: u64,
}

impl UtxoTree {
    /// Returns the payload of the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.block.0.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.len.to_le_bytes());
        bytes.extend(self.leaves.as_flattened());
        bytes
    }

    /// Decodes the payload of a message for chunks of `chunk_len` bytes.
    ///
    /// # Errors
    /// The byte offset, and what is wrong there.
    pub fn decode(bytes: &[u8], chunk_len: u64) -> Result<Self, (u64, String)> {
        let (mut reader, chunk_len) = (Reader::new(bytes), chunk_len.max(1));
        let short = |_: WireError| (bytes.len() as u64, format!("a tree has at least {HEAD_LEN} bytes"));
        let block = BlockHash(reader.array().map_err(short)?);
        let version = u16::from_le_bytes(reader.array().map_err(short)?);
        if version != VERSION {
            let text = format!("the tree is of a snapshot of version {version}, only {VERSION} is known");
            return Err((32, text));
        }
        let len = reader.u64().map_err(short)?;
        if len < METADATA_LEN as u64 {
            return Err((34, format!("the tree is of {len} bytes, a snapshot has at least {METADATA_LEN}")));
        }
        let (count, rest) = (len.div_ceil(chunk_len), bytes.len() as u64 - HEAD_LEN);
        let mut number = Vec::new();
        write_compact_size(&mut number, count);
        if count.checked_mul(LEAF_LEN).and_then(|all| all.checked_add(number.len() as u64)) == Some(rest) {
            let found = reader.bytes(number.len()).map_err(short)?;
            if found != number {
                return Err((HEAD_LEN, format!("the number before the leaves is not {count}")));
            }
        } else if count.checked_mul(LEAF_LEN) != Some(rest) {
            let text = format!("{len} bytes have {count} chunks, but {rest} bytes of leaves follow");
            return Err((HEAD_LEN, text));
        }
        let leaves = reader.bytes(bytes.len() - reader.position()).map_err(short)?;
        Ok(Self { block, len, leaves: leaves.as_chunks().0.to_vec(), chunk_len })
    }

    /// Returns the root, in internal byte order. There is at least one leaf.
    pub fn root(&self) -> [u8; 32] {
        let mut level = self.leaves.clone();
        while level.len() > 1 {
            let parent = |pair: &[[u8; 32]]| match pair {
                [left, right] => sha256d(&[*left, *right].concat()),
                alone => alone.first().copied().unwrap_or_default(),
            };
            level = level.chunks(2).map(parent).collect();
        }
        level.first().copied().unwrap_or_default()
    }

    /// Returns the bytes of the snapshot that a chunk has.
    pub fn range(&self, index: u64) -> Range<u64> {
        let start = index.saturating_mul(self.chunk_len).min(self.len);
        start..start.saturating_add(self.chunk_len).min(self.len)
    }

    /// Whether `bytes` are those of a chunk. If they are those of another one, the error is its index.
    ///
    /// # Errors
    /// The index of the chunk that they are; `None` if they are none.
    pub fn check(&self, index: u64, bytes: &[u8]) -> Result<(), Option<u64>> {
        let hash = sha256d(bytes);
        let is = |index: u64| usize::try_from(index).ok().and_then(|index| self.leaves.get(index));
        if is(index) == Some(&hash) {
            return Ok(());
        }
        Err(self.leaves.iter().position(|leaf| *leaf == hash).map(|found| found as u64))
    }
}

/// Writes a snapshot as a folder with its chunks, which is complete or absent under its name.
pub struct ChunkWriter<'d> {
    disk: &'d dyn Disk,
    /// The file of the tree, which is locked until the folder is complete.
    tree: AtomicFile<'d>,
    // After the file: it removes itself, and only then is the folder removed.
    dir: AtomicDir<'d>,
    chunk: Vec<u8>,
    chunk_len: usize,
    leaves: Vec<[u8; 32]>,
    len: u64,
}

impl<'d> ChunkWriter<'d> {
    /// Begins the folder `dir` with chunks of `chunk_len` bytes, one of which is in memory. What a crash has
    /// left of it is removed.
    ///
    /// # Errors
    /// [`DiskError::Refused`] if `dir` exists, or its temporary name is taken; [`DiskError::Unfinished`] if
    /// another process writes it; [`DiskError::File`].
    pub fn create(disk: &'d dyn Disk, dir: &Path, chunk_len: u64) -> Result<Self, DiskError> {
        if disk.exists(dir).during("look for", dir)? {
            let flaw = "there is something of that name already; move it away, or write elsewhere".to_owned();
            return Err(DiskError::Refused { path: dir.to_owned(), flaw });
        }
        let (dir, tree) = AtomicDir::create(disk, dir, is_file_of_set, TREE_NAME, |path| {
            unfinished::create(disk, path, unfinished::SUFFIX)
        })?;
        Ok(Self {
            disk,
            tree,
            dir,
            chunk: Vec::new(),
            chunk_len: usize::try_from(chunk_len).unwrap_or(usize::MAX).max(1),
            leaves: Vec::new(),
            len: 0,
        })
    }

    /// Writes the last chunk, what `describe` says of the tree, and the tree, and gives the folder its name.
    /// When it returns, all of that is on the medium.
    ///
    /// # Errors
    /// [`DiskError::File`]; the folder does not have its name then, unless only the last sync has failed.
    pub fn finish(
        mut self,
        block: BlockHash,
        describe: impl FnOnce(&UtxoTree) -> String,
    ) -> Result<UtxoTree, DiskError> {
        self.flush()?;
        let leaves = std::mem::take(&mut self.leaves);
        let tree = UtxoTree { block, len: self.len, leaves, chunk_len: self.chunk_len as u64 };
        self.write_file(DESCRIPTION_NAME, describe(&tree).as_bytes())?;
        self.tree.write_all(&tree.encode())?;
        let _locked = self.tree.commit_held()?;
        self.dir.commit()?;
        Ok(tree)
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        self.write_file(&chunk_name(self.leaves.len() as u64), &self.chunk)?;
        self.leaves.push(sha256d(&self.chunk));
        self.chunk.clear();
        Ok(())
    }

    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        Ok(write_synced(self.disk, &self.dir.temporary_path().join(name), bytes)?)
    }
}

impl SnapshotOutput for ChunkWriter<'_> {
    fn append(&mut self, mut bytes: &[u8]) -> Result<(), DiskError> {
        self.len += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.chunk_len - self.chunk.len()));
            self.chunk.extend_from_slice(now);
            bytes = later;
            if self.chunk.len() == self.chunk_len {
                self.flush()?;
            }
        }
        Ok(())
    }
}

fn is_file_of_set(name: &str) -> bool {
    let is_chunk = name.strip_suffix(".chunk").is_some_and(|digits| digits.parse::<u64>().is_ok());
    is_chunk || name == TREE_NAME || name == DESCRIPTION_NAME
}

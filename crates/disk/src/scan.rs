//! Finds blocks without the block index: all blocks in the `blk` files, and in the `rev` files the undo data
//! of each.
//!
//! Undo data does not name its block, but its checksum covers the hash of the block's parent. Records of
//! `revNNNNN.dat` belong to blocks of `blkNNNNN.dat`, mostly in chain order, so the child of the last match
//! is tried first, then all blocks of the file with the right number of transactions. Blocks that contain
//! only a coinbase all have the undo data `00`, and the first file of mainnet is full of them: those are
//! looked up by their checksums.
//!
//! Siblings have the same parent, so the checksum does not distinguish them. A record is assigned to each
//! sibling of its shape: the same number of transactions, with the same numbers of inputs. Whether such a
//! sibling was ever connected cannot be known here: Core writes a record when it connects a block, not when
//! it stores one. A block can also match several records, its own and those of siblings.
//!
//! Nothing is validated here: headers may be unconnected, blocks invalid, and a block may occur repeatedly.

use crate::blk::{BlockRecord, BlockScanner, RECORD_HEADER_LEN, RecordSearch};
use crate::datadir::Datadir;
use crate::error::DiskError;
use crate::undo::{CHECKSUM_LEN, MAX_UNDO_LEN, UndoArena, UndoView, checksum};
use digest::obfuscation::Obfuscation;
use std::collections::{HashMap, hash_map::Entry};
use vfs::{Disk, During as _};
use wire::{BlockArena, BlockHash, ByteOffset, FileNo, Header, Reader};

/// The undo data of a block that contains only a coinbase: no transactions.
const NO_SPENDS: &[u8] = &[0];

/// Bytes hashed to find blocks, per byte of a `rev` file, after which the search for records out of chain
/// order ends: crafted files must not waste time. Each block that is passed over, and each sibling of
/// the one that is found, counts as 32 bytes. A file of a real node stays far below that.
const MAX_WASTED_HASHES_PER_BYTE: u64 = 256;

/// A block found in a `blk` file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScannedBlock {
    pub hash: BlockHash,
    pub header: Header,
    pub file: FileNo,
    /// Offset of the block in the `blk` file, after the record header.
    pub data_pos: ByteOffset,
    /// Bytes of the record's data: the block, in files that Core wrote.
    pub size: u32,
    /// Number of transactions that the block states.
    pub tx_count: u32,
    /// Offset of its undo data in the `rev` file, after the record header; `None` if it was not found.
    pub undo_pos: Option<ByteOffset>,
    /// Whether a record that matches this block also matches a sibling.
    pub shared: bool,
}

/// A scanned `blk` file and its `rev` file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScannedFile {
    pub file: FileNo,
    /// Bytes used in the `blk` file: up to the end of the last block found.
    pub size: u64,
    /// Bytes used in the `rev` file: up to the end of the last record that matches a block.
    pub undo_size: u64,
}

/// All blocks of a datadir.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scan {
    /// Blocks in file order. The same block can occur more than once: Core keeps the first that passes its
    /// checks.
    pub blocks: Vec<ScannedBlock>,
    /// The files, ascending by number.
    pub files: Vec<ScannedFile>,
    /// Further records that match a block, with other undo data than the one at its `undo_pos`: the block's
    /// index in `blocks`, ascending, that of its first copy in the file; and the offset of the record's data
    /// in the `rev` file.
    pub other_undo: Vec<(u32, ByteOffset)>,
    /// Number of records that are blocks of another chain ([`crate::departed`]).
    pub departed: u32,
}

/// Scans one pair of files after the other; reads headers and undo data, and skips over blocks.
///
/// `progress` is called with each file before it is scanned, and with each record of its undo data. If it
/// returns false, the scan stops and returns what was found so far. Of the files `read`, all blocks are read,
/// and no frame is believed.
///
/// # Errors
/// [`DiskError::File`] if the directory or a file cannot be read. A missing `rev` file is not an error: its
/// blocks have no undo data then.
pub fn scan_files(
    disk: &dyn Disk,
    datadir: &Datadir,
    obfuscation: Obfuscation,
    mut progress: impl FnMut(FileNo) -> bool,
    read: &[FileNo],
) -> Result<Scan, DiskError> {
    let mut scan = Scan::default();
    for file in datadir.blk_files(disk)? {
        if !progress(file) {
            break;
        }
        let mut blocks = Vec::new();
        let (start, reads_all) = (ByteOffset(0), read.contains(&file));
        scan.departed += for_each_block(disk, datadir, obfuscation, file, start, reads_all, |record| {
            let BlockRecord { data_pos, size, header, hash, tx_count, .. } = *record;
            let (undo_pos, shared) = (None, false);
            blocks.push(ScannedBlock { hash, header, file, data_pos, size, tx_count, undo_pos, shared });
        })?;
        let size = blocks.last().map_or(0, |block| block.data_pos.0 + u64::from(block.size));
        let first = scan.blocks.len();
        let goes_on = || progress(file);
        let (undo_size, others) = match_undo(disk, datadir, obfuscation, file, &mut blocks, goes_on)?;
        scan.other_undo.extend(others.into_iter().map(|(index, pos)| ((first + index) as u32, pos)));
        scan.blocks.append(&mut blocks);
        scan.files.push(ScannedFile { file, size, undo_size });
    }
    Ok(scan)
}

/// Calls `each` for the blocks of a file from a byte on; if `reads_all`, all are read, and no frame is
/// believed. Returns the number of those of another chain ([`crate::departed`]), which are left out.
///
/// # Errors
/// [`DiskError::File`] if the file cannot be read.
pub fn for_each_block(
    disk: &dyn Disk,
    datadir: &Datadir,
    obfuscation: Obfuscation,
    file: FileNo,
    from: ByteOffset,
    reads_all: bool,
    mut each: impl FnMut(&BlockRecord),
) -> Result<u32, DiskError> {
    let path = datadir.blk_path(file);
    let open = disk.open(&path).during("open for reading", &path)?;
    let mut scanner = BlockScanner::new(open.as_ref(), &path, datadir.magic(), obfuscation)?;
    scanner.reads_all = reads_all;
    scanner.skip_to(from);
    while let Some(record) = scanner.next_record()? {
        each(&record);
    }
    Ok(scanner.departed)
}

/// A further record of a block: the block's index in its file, and the record's offset in the `rev` file.
type OtherUndo = (usize, ByteOffset);

/// Finds the undo data of the blocks of one file. Returns the bytes used in the `rev` file, and the further
/// records that match a block.
fn match_undo(
    disk: &dyn Disk,
    datadir: &Datadir,
    obfuscation: Obfuscation,
    file: FileNo,
    blocks: &mut [ScannedBlock],
    mut goes_on: impl FnMut() -> bool,
) -> Result<(u64, Vec<OtherUndo>), DiskError> {
    let path = datadir.rev_path(file);
    if !disk.exists(&path).during("look at", &path)? {
        return Ok((0, Vec::new()));
    }
    let open = disk.open(&path).during("open for reading", &path)?;
    let mut search = RecordSearch::new(open.as_ref(), &path, datadir.magic(), obfuscation)?;
    let mut used = 0;
    let read_block = |block: &ScannedBlock| {
        let path = datadir.blk_path(file);
        let open = disk.open(&path).during("open for reading", &path)?;
        let mut bytes = vec![0; block.size as usize];
        open.read_exact_at(&mut bytes, block.data_pos.0).during("read", &path)?;
        obfuscation.apply(&mut bytes, block.data_pos.0);
        Ok(bytes)
    };
    let mut matcher = Matcher::new(blocks, search.file_len);
    let mut record = Vec::new();
    // Covers the first hash of each record too.
    let mut reads = search.budget();
    while goes_on()
        && let Some((data_pos, size)) = search.next()?
    {
        let end = data_pos + u64::from(size) + CHECKSUM_LEN as u64;
        if size == 0 || size as usize > MAX_UNDO_LEN || end > search.file_len {
            continue;
        }
        let Some(left) = reads.checked_sub(size.into()) else { break };
        record.resize(size as usize + CHECKSUM_LEN, 0);
        search.read(&mut record, data_pos)?;
        let Some((undo, &sum)) = record.split_last_chunk::<CHECKSUM_LEN>() else { continue };
        let found = matcher.find(undo, &sum, &read_block)?;
        if found.is_empty() {
            reads = left;
        } else {
            (used, search.at) = (end, end);
            matcher.assign(&found, &sum, ByteOffset(data_pos));
        }
    }
    Ok((used, matcher.finish()))
}

/// Finds the blocks that undo data matches, among the blocks of one file.
struct Matcher<'a> {
    blocks: &'a mut [ScannedBlock],
    /// Further copies of a block, which is found by its first one.
    copies: HashMap<usize, Vec<usize>>,
    /// Blocks by the hash of the parent: several in a fork.
    children: HashMap<BlockHash, Vec<usize>>,
    /// Blocks by their number of transactions.
    by_tx_count: HashMap<u32, Vec<usize>>,
    /// Parents of the coinbase-only blocks, by the checksum of their undo data; built when first needed.
    no_spends: Option<HashMap<[u8; CHECKSUM_LEN], BlockHash>>,
    /// The block that was found last.
    last: Option<BlockHash>,
    /// Bytes that may still be hashed.
    budget: u64,
    /// The shapes of siblings that had to be distinguished.
    shapes: HashMap<usize, Option<Shape>>,
    /// The first record of a block with each checksum.
    records: HashMap<(usize, [u8; CHECKSUM_LEN]), ByteOffset>,
    /// Maximum number of those: one for each block, and one for each record of the file.
    max_records: usize,
}

impl<'a> Matcher<'a> {
    fn new(blocks: &'a mut [ScannedBlock], rev_len: u64) -> Self {
        let mut children: HashMap<_, Vec<_>> = HashMap::new();
        let mut by_tx_count: HashMap<_, Vec<_>> = HashMap::new();
        let mut copies: HashMap<_, Vec<_>> = HashMap::new();
        let mut firsts = HashMap::new();
        for (index, block) in blocks.iter().enumerate() {
            // A damaged copy may state another number of transactions.
            let first = *firsts.entry((block.hash, block.tx_count)).or_insert(index);
            if first != index {
                copies.entry(first).or_default().push(index);
                continue;
            }
            children.entry(block.header.prev).or_default().push(index);
            by_tx_count.entry(block.tx_count).or_default().push(index);
        }
        let (no_spends, last, shapes, records) = Default::default();
        let budget = rev_len.saturating_mul(MAX_WASTED_HASHES_PER_BYTE);
        let max_records = blocks.len() + rev_len as usize / (RECORD_HEADER_LEN + CHECKSUM_LEN);
        Self { blocks, copies, children, by_tx_count, no_spends, last, budget, shapes, records, max_records }
    }

    /// Assigns a record to the blocks that it matches. Of records with the same bytes, which a crash or a
    /// sibling leaves, the first one counts.
    fn assign(&mut self, found: &[usize], sum: &[u8; CHECKSUM_LEN], pos: ByteOffset) {
        for &index in found {
            let Some(block) = self.blocks.get_mut(index) else { continue };
            block.shared |= found.len() > 1;
            block.undo_pos = block.undo_pos.or(Some(pos));
            if self.records.len() < self.max_records {
                self.records.entry((index, *sum)).or_insert(pos);
            }
        }
    }

    /// Gives copies what the first one has. Returns the further records, ascending by block.
    fn finish(self) -> Vec<OtherUndo> {
        let Self { blocks, copies, records, .. } = self;
        for (first, copies) in copies {
            let Some(&ScannedBlock { undo_pos, shared, .. }) = blocks.get(first) else { continue };
            for copy in copies {
                let Some(block) = blocks.get_mut(copy) else { continue };
                (block.undo_pos, block.shared) = (undo_pos, shared);
            }
        }
        let undo_pos = |index: usize| blocks.get(index).and_then(|block| block.undo_pos);
        let all = records.into_iter().map(|((index, _), pos)| (index, pos));
        let mut others: Vec<OtherUndo> = all.filter(|&(index, pos)| undo_pos(index) != Some(pos)).collect();
        others.sort_unstable();
        others
    }

    /// Returns the blocks that `undo` with checksum `sum` matches: none, one, or siblings. `read` reads a
    /// block's bytes.
    fn find(
        &mut self,
        undo: &[u8],
        sum: &[u8; CHECKSUM_LEN],
        read: &ReadBlock<'_>,
    ) -> Result<Vec<usize>, DiskError> {
        let Some(prev) = self.find_prev(undo, sum) else { return Ok(Vec::new()) };
        let Some(tx_count) = undo_tx_count(undo) else { return Ok(Vec::new()) };
        let children = self.children.get(&prev).map(Vec::as_slice).unwrap_or_default();
        let cost = size_of::<BlockHash>() * children.len().saturating_sub(1);
        let Some(left) = self.budget.checked_sub(cost as u64) else { return Ok(Vec::new()) };
        self.budget = left;
        let fits = |&index: &usize| self.blocks.get(index).is_some_and(|block| block.tx_count == tx_count);
        let mut found: Vec<usize> = children.iter().copied().filter(fits).collect();
        if tx_count > 1 && found.len() > 1 {
            let Some(shape) = shape_of_undo(undo) else { return Ok(Vec::new()) };
            let mut matching = Vec::new();
            for index in found {
                if self.shape(index, read)?.as_ref() == Some(&shape) {
                    matching.push(index);
                }
            }
            found = matching;
        }
        if let Some(block) = found.first().and_then(|&index| self.blocks.get(index)) {
            self.last = Some(block.hash);
        }
        Ok(found)
    }

    /// Returns the shape of a block, `None` if all copies are malformed. Each is read once.
    fn shape(&mut self, index: usize, read: &ReadBlock<'_>) -> Result<&Option<Shape>, DiskError> {
        Ok(match self.shapes.entry(index) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let copies = self.copies.get(&index).into_iter().flatten();
                let mut shape = None;
                for &copy in std::iter::once(&index).chain(copies) {
                    let bytes = self.blocks.get(copy).map(read).transpose()?;
                    shape = bytes.and_then(|bytes| shape_of_block(&bytes));
                    if shape.is_some() {
                        break;
                    }
                }
                unknown.insert(shape)
            }
        })
    }

    /// Returns the parent of the block that `undo` belongs to.
    fn find_prev(&mut self, undo: &[u8], sum: &[u8; CHECKSUM_LEN]) -> Option<BlockHash> {
        let next = self.last.filter(|last| self.children.contains_key(last));
        if let Some(prev) = next
            && checksum(&prev, undo) == *sum
        {
            return Some(prev);
        }
        if undo == NO_SPENDS {
            return self.no_spends().get(sum).copied();
        }
        let candidates = self.by_tx_count.get(&undo_tx_count(undo)?)?;
        // Blocks without undo data first: a record occurs twice only after a crash.
        for has_undo in [false, true] {
            for block in candidates.iter().filter_map(|&index| self.blocks.get(index)) {
                let is_tried = block.undo_pos.is_some() == has_undo;
                let cost = size_of::<BlockHash>() + if is_tried { undo.len() } else { 0 };
                self.budget = self.budget.checked_sub(cost as u64)?;
                if is_tried && checksum(&block.header.prev, undo) == *sum {
                    return Some(block.header.prev);
                }
            }
        }
        None
    }

    fn no_spends(&mut self) -> &HashMap<[u8; CHECKSUM_LEN], BlockHash> {
        let blocks = &*self.blocks;
        self.no_spends.get_or_insert_with(|| {
            let coinbase_only = blocks.iter().filter(|block| block.tx_count == 1);
            coinbase_only.map(|block| (checksum(&block.header.prev, NO_SPENDS), block.header.prev)).collect()
        })
    }
}

type ReadBlock<'a> = dyn Fn(&ScannedBlock) -> Result<Vec<u8>, DiskError> + 'a;

/// Number of inputs of each transaction but the coinbase.
type Shape = Vec<u32>;

fn shape_of_block(block: &[u8]) -> Option<Shape> {
    let mut arena = BlockArena::default();
    let block = arena.parse_first(block).ok()?;
    Some(block.txs().skip(1).map(|tx| tx.input_count() as u32).collect())
}

fn shape_of_undo(undo: &[u8]) -> Option<Shape> {
    let mut arena = UndoArena::default();
    let undo = UndoView::parse(undo, &mut arena).ok()?;
    Some(undo.txs().map(|coins| coins.len() as u32).collect())
}

/// Returns the number of transactions of the block that `undo` belongs to, including the coinbase.
fn undo_tx_count(undo: &[u8]) -> Option<u32> {
    let others = Reader::new(undo).compact_size().ok()?;
    u32::try_from(others).ok()?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{blk, undo};
    use vfs::RealDisk;
    use wire::{Coin, Network};

    const KEY: [u8; 8] = [3, 1, 4, 1, 5, 9, 2, 6];

    /// Returns the header, the bytes and the undo data of a block whose transactions after the coinbase have
    /// `inputs[i]` inputs.
    fn block(prev: BlockHash, nonce: u32, inputs: &[u8]) -> (Header, Vec<u8>, Vec<u8>) {
        let headers =
            (0..).map(|version| Header { version, prev, nonce, bits: 0x207f_ffff, ..Header::default() });
        let header = headers.into_iter().find(|header| header.meets_own_target(&header.hash())).unwrap();
        let mut bytes = header.to_bytes().to_vec();
        bytes.push(inputs.len() as u8 + 1);
        for &count in [1].iter().chain(inputs) {
            bytes.extend([1, 0, 0, 0, count]);
            for _ in 0..count {
                bytes.extend([&[9; 36][..], &[0], &[0xff; 4]].concat());
            }
            bytes.extend([&[1][..], &[0; 8], &[0], &[0; 4]].concat());
        }
        let out = nonce.to_le_bytes().map(|byte| byte & 0x7f);
        let out = [&[out[0], 10][..], &out].concat();
        let coins = |&count: &u8| vec![Coin { code: 3, out: &out }; count.into()].into_iter();
        let undo = undo::write_undo(inputs.iter().map(coins));
        (header, bytes, undo)
    }

    struct Files {
        datadir: Datadir,
        _root: tempfile::TempDir,
        blk: Vec<u8>,
        rev: Vec<u8>,
    }

    impl Files {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let datadir = Datadir::at(root.path(), Network::Regtest);
            RealDisk.create_dir_all(&datadir.blocks_dir()).unwrap();
            Self { datadir, _root: root, blk: Vec::new(), rev: Vec::new() }
        }

        fn add_block(&mut self, bytes: &[u8]) -> u64 {
            let at = self.blk.len() as u64 + 8;
            blk::write_record(&mut self.blk, Network::Regtest.magic(), bytes);
            at
        }

        fn add_undo(&mut self, prev: &BlockHash, undo: &[u8]) -> u64 {
            let at = self.rev.len() as u64 + 8;
            undo::write_record(&mut self.rev, Network::Regtest.magic(), prev, undo);
            at
        }

        fn scan(&self) -> Scan {
            let obfuscation = Obfuscation::from_key(KEY);
            for (path, bytes) in
                [(self.datadir.blk_path(FileNo(3)), &self.blk), (self.datadir.rev_path(FileNo(3)), &self.rev)]
            {
                let mut bytes = bytes.clone();
                obfuscation.apply(&mut bytes, 0);
                if !bytes.is_empty() {
                    RealDisk.create(&path).unwrap().write_all(&bytes).unwrap();
                }
            }
            scan_files(&RealDisk, &self.datadir, obfuscation, |_| true, &[]).unwrap()
        }
    }

    fn positions(scan: &Scan) -> Vec<Option<u64>> {
        scan.blocks.iter().map(|block| block.undo_pos.map(|pos| pos.0)).collect()
    }

    fn shared(scan: &Scan) -> Vec<bool> {
        scan.blocks.iter().map(|block| block.shared).collect()
    }

    #[test]
    fn finds_undo_data_out_of_order_between_garbage_and_after_a_gap() {
        let mut files = Files::new();
        let mut chain = vec![block(BlockHash([0xee; 32]), 0, &[])];
        for nonce in 1..60 {
            let inputs: &[u8] = match nonce % 4 {
                0 | 1 => &[],
                2 => &[1, 2],
                _ => &[3],
            };
            chain.push(block(chain.last().unwrap().0.hash(), nonce, inputs));
        }
        // Blocks are stored as a permutation of the chain, undo data in chain order; the blocks 20 and 21 are
        // missing.
        let order: Vec<usize> =
            (0..60).map(|i| i * 7 % 60).filter(|height| !(20..22).contains(height)).collect();
        for &height in &order {
            files.add_block(&chain[height].1);
        }
        let mut want = HashMap::new();
        for (height, (header, _, undo)) in chain.iter().enumerate().skip(1) {
            want.insert(height, files.add_undo(&header.prev, undo));
            let garbage = [&Network::Regtest.magic()[..], &[1, 0, 0, 0, 0]].concat();
            if height % 10 == 5 {
                files.rev.extend(garbage);
            } else if height % 10 == 6 {
                files.rev.extend([0; 33]);
            }
        }
        files.rev.extend([0; 99]);
        let scan = files.scan();
        let want: Vec<_> = order.iter().map(|height| want.get(height).copied()).collect();
        assert_eq!(positions(&scan), want);
        assert_eq!(scan.files[0].size, files.blk.len() as u64);
        assert_eq!(scan.files[0].undo_size, files.rev.len() as u64 - 99);
    }

    #[test]
    fn assigns_undo_data_to_siblings_of_the_same_shape() {
        let root = block(BlockHash([0xee; 32]), 0, &[]);
        let prev = root.0.hash();
        let [a, b, c] =
            [(1, [2, 1]), (2, [1, 2]), (3, [1, 2])].map(|(nonce, inputs)| block(prev, nonce, &inputs));
        let mut files = Files::new();
        for (_, bytes, _) in [&root, &a, &b, &b, &c] {
            files.add_block(bytes);
        }
        let [second, first, third] = [&b, &a, &c].map(|(header, _, undo)| files.add_undo(&header.prev, undo));
        let scan = files.scan();
        assert_eq!(positions(&scan), [None, Some(first), Some(second), Some(second), Some(second)]);
        let others: Vec<_> = [2, 4].map(|index| (index, ByteOffset(third))).to_vec();
        assert_eq!(scan.other_undo, others, "the third record matches them and the copy as well");
        assert_eq!(shared(&scan), [false, false, true, true, true]);
    }

    #[test]
    fn siblings_that_match_the_same_record_share_it() {
        let root = block(BlockHash([0xee; 32]), 0, &[]);
        let prev = root.0.hash();
        for inputs in [&[][..], &[3, 1]] {
            let siblings = [1, 2, 3].map(|nonce| block(prev, nonce, inputs));
            let other = block(prev, 9, &[2]);
            for connected in 0..3 {
                let mut files = Files::new();
                for (_, bytes, _) in siblings.iter().chain([&root, &other]) {
                    files.add_block(bytes);
                }
                let at = files.add_undo(&prev, &siblings[connected].2);
                // A reorganisation between siblings leaves the same bytes again.
                files.add_undo(&prev, &siblings[connected].2);
                let scan = files.scan();
                assert_eq!(positions(&scan), [Some(at), Some(at), Some(at), None, None], "{inputs:?}");
                assert_eq!(shared(&scan), [true, true, true, false, false]);
                assert!(scan.other_undo.is_empty(), "the same bytes are not other undo data");
                assert_eq!(scan.files[0].undo_size, files.rev.len() as u64, "both records are in use");
            }
        }
    }

    #[test]
    fn copies_of_a_block_are_not_siblings() {
        let a = block(BlockHash([0xee; 32]), 1, &[2]);
        let mut files = Files::new();
        files.add_block(&a.1);
        files.add_block(&a.1);
        let at = files.add_undo(&a.0.prev, &a.2);
        let scan = files.scan();
        assert_eq!((positions(&scan), shared(&scan)), (vec![Some(at); 2], vec![false; 2]));
    }

    #[test]
    fn damaged_or_missing_undo_data_is_not_assigned() {
        let a = block(BlockHash([0xee; 32]), 0, &[1]);
        let b = block(a.0.hash(), 1, &[]);
        let mut files = Files::new();
        files.add_block(&a.1);
        files.add_block(&b.1);
        assert_eq!(positions(&files.scan()), [None, None]);

        let mut files = Files { datadir: files.datadir, ..Files::new() };
        RealDisk.remove_file(&files.datadir.blk_path(FileNo(3))).unwrap();
        files.add_block(&a.1);
        files.add_block(&b.1);
        files.add_undo(&a.0.prev, &a.2);
        let at = files.add_undo(&b.0.prev, &b.2);
        files.rev[10] ^= 1;
        files.rev.extend([&Network::Regtest.magic()[..], &[0xff; 4]].concat());
        assert_eq!(positions(&files.scan()), [None, Some(at)]);
    }

    #[test]
    fn a_crafted_undo_file_is_not_read_again_and_again() {
        let mut files = Files::new();
        let a = block(BlockHash([0xee; 32]), 0, &[1]);
        files.add_block(&a.1);
        let at = files.add_undo(&a.0.prev, &a.2);
        let len = 1 << 20;
        while files.rev.len() < len {
            let rest = (len - files.rev.len()) as u32;
            files.rev.extend([&Network::Regtest.magic()[..], &rest.to_le_bytes(), &[0]].concat());
        }
        files.rev.resize(len + 99, 0);
        // A second read of each byte per frame would take hours.
        assert_eq!(positions(&files.scan()), [Some(at)]);
    }

    /// Once, each record took time for each copy of its block, and for each record before it: days.
    #[test]
    fn a_crafted_file_of_copies_or_siblings_is_scanned_in_time() {
        for is_forked in [false, true] {
            let (mut files, prev) = (Files::new(), BlockHash([0xee; 32]));
            let undo = block(prev, 0, &[1]).2;
            for nonce in 0..2_000 {
                files.add_block(&block(prev, if is_forked { nonce } else { 0 }, &[1]).1);
            }
            for script in 0..20_000u32 {
                let start = &undo[..undo.len() - 4];
                files.add_undo(&prev, &[start, &script.to_le_bytes()].concat());
            }
            let scan = files.scan();
            assert_eq!(positions(&scan), [Some(8); 2_000]);
            assert_eq!(shared(&scan), [is_forked; 2_000]);
            // Of siblings, some are left out.
            let others = scan.other_undo.len();
            assert!(if is_forked { others < 40_000 } else { others == 19_999 }, "{others}");
        }
    }

    /// Once, an interrupt had no effect within a file.
    #[test]
    fn a_scan_stops_when_progress_returns_false() {
        let mut files = Files::new();
        let a = block(BlockHash([0; 32]), 0, &[]);
        let b = block(a.0.hash(), 1, &[]);
        for (header, bytes, undo) in [&a, &b] {
            files.add_block(bytes);
            files.add_undo(&header.prev, undo);
        }
        let whole = files.scan();
        let at = whole.blocks[0].undo_pos.map(|pos| pos.0);
        for (allowed, want) in [(0, vec![]), (1, vec![None; 2]), (2, vec![at, None]), (9, positions(&whole))]
        {
            let mut calls = 0;
            let goes_on = |_| {
                calls += 1;
                calls <= allowed
            };
            let key = Obfuscation::from_key(KEY);
            let scan = scan_files(&RealDisk, &files.datadir, key, goes_on, &[]).unwrap();
            assert_eq!(positions(&scan), want, "{allowed} calls");
        }
    }
}

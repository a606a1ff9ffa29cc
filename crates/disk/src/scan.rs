//! Does without the block index: finds all blocks in the `blk` files, and in the `rev` files the undo data
//! of each.
//!
//! Undo data does not name its block. Its checksum does: it is over the hash of the block before and the
//! data. Records of `revNNNNN.dat` belong to blocks of `blkNNNNN.dat`, mostly in chain order, so the child
//! of the last match is tried first, then all blocks of the file with the right number of transactions.
//! Blocks with nothing but a coinbase all have the undo data `00`, and the first file of mainnet is full of
//! them: those are looked up by their checksums.
//!
//! Nothing is judged here: headers may not connect, blocks may be broken, a block may be there several times.

use crate::blk::{BlockRecord, BlockScanner, Candidate, RecordSearch};
use crate::datadir::Datadir;
use crate::error::DiskError;
use crate::fs::{Disk, During as _};
use crate::undo::{CHECKSUM_LEN, MAX_UNDO_LEN, UndoArena, UndoView, checksum};
use digest::obfuscation::Obfuscation;
use std::collections::HashMap;
use wire::{BlockArena, BlockHash, ByteOffset, FileNo, Header, Reader};

/// The undo data of a block with nothing but a coinbase: no transactions.
const NO_SPENDS: &[u8] = &[0];

/// Undo data hashed in vain per byte of a `rev` file, before records that are not where they are expected
/// are given up: files made to waste time must not succeed. A file of a real node stays far below 1.
const VAIN_HASHES: u64 = 256;

/// A block found in a `blk` file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScannedBlock {
    /// Hash of the header.
    pub hash: BlockHash,
    /// The header.
    pub header: Header,
    /// Number of the file pair.
    pub file: FileNo,
    /// Where the block starts in the `blk` file, after the record header.
    pub data_pos: ByteOffset,
    /// Bytes of the record's data: the block, as far as Core wrote it.
    pub size: u32,
    /// How many transactions the block says to have.
    pub tx_count: u32,
    /// Where its undo data starts in the `rev` file, after the record header; none if it was not found.
    pub undo_pos: Option<ByteOffset>,
}

/// A scanned pair of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScannedFile {
    /// Its number.
    pub file: FileNo,
    /// Bytes in use of the `blk` file: up to the end of the last block found.
    pub size: u64,
    /// Bytes in use of the `rev` file: up to the end of the last record that belongs to a block.
    pub undo_size: u64,
}

/// All blocks of a datadir.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scan {
    /// Blocks in file order. The same block can be there more than once: Core keeps the first that passes
    /// its checks.
    pub blocks: Vec<ScannedBlock>,
    /// The files, ascending by number.
    pub files: Vec<ScannedFile>,
}

/// Scans one pair of files after the other; reads headers and undo data, and skips over blocks.
///
/// `progress` is told each file before it is scanned and may return false to stop, which returns what was
/// found.
///
/// # Errors
/// [`DiskError::File`] if the folder or a file cannot be read. A missing `rev` file is none: its blocks have
/// no undo data then.
pub fn scan_files(
    disk: &dyn Disk,
    datadir: &Datadir,
    obfuscation: Obfuscation,
    mut progress: impl FnMut(FileNo) -> bool,
) -> Result<Scan, DiskError> {
    let mut scan = Scan::default();
    for file in datadir.blk_files(disk)? {
        if !progress(file) {
            break;
        }
        let mut blocks = scan_blocks(disk, datadir, obfuscation, file)?;
        let size = blocks.last().map_or(0, |block| block.data_pos.0 + u64::from(block.size));
        let undo_size = match_undo(disk, datadir, obfuscation, file, &mut blocks)?;
        scan.blocks.append(&mut blocks);
        scan.files.push(ScannedFile { file, size, undo_size });
    }
    Ok(scan)
}

/// Counts the blocks of one file from byte `from` on; 0 if the file ends before.
///
/// # Errors
/// [`DiskError::File`] if the file cannot be read.
pub fn count_blocks(
    disk: &dyn Disk,
    datadir: &Datadir,
    obfuscation: Obfuscation,
    file: FileNo,
    from: ByteOffset,
) -> Result<u32, DiskError> {
    let path = datadir.blk_path(file);
    let open = disk.open(&path).during("open for reading", &path)?;
    let mut scanner = BlockScanner::new(open.as_ref(), &path, datadir.network().magic(), obfuscation)?;
    scanner.skip_to(from);
    let mut count = 0;
    while scanner.next_record()?.is_some() {
        count += 1;
    }
    Ok(count)
}

fn scan_blocks(
    disk: &dyn Disk,
    datadir: &Datadir,
    obfuscation: Obfuscation,
    file: FileNo,
) -> Result<Vec<ScannedBlock>, DiskError> {
    let path = datadir.blk_path(file);
    let open = disk.open(&path).during("open for reading", &path)?;
    let mut scanner = BlockScanner::new(open.as_ref(), &path, datadir.network().magic(), obfuscation)?;
    let mut blocks = Vec::new();
    while let Some(BlockRecord { data_pos, size, header, tx_count }) = scanner.next_record()? {
        let (hash, undo_pos) = (header.hash(), None);
        blocks.push(ScannedBlock { hash, header, file, data_pos, size, tx_count, undo_pos });
    }
    Ok(blocks)
}

/// Gives the blocks of one file their undo positions; returns the bytes in use of the `rev` file.
fn match_undo(
    disk: &dyn Disk,
    datadir: &Datadir,
    obfuscation: Obfuscation,
    file: FileNo,
    blocks: &mut [ScannedBlock],
) -> Result<u64, DiskError> {
    let path = datadir.rev_path(file);
    if !disk.exists(&path).during("look at", &path)? {
        return Ok(0);
    }
    let open = disk.open(&path).during("open for reading", &path)?;
    let mut search = RecordSearch::new(open.as_ref(), &path, datadir.network().magic(), obfuscation)?;
    let mut used = 0;
    let read_block = |block: &ScannedBlock| {
        let path = datadir.blk_path(file);
        let open = disk.open(&path).during("open for reading", &path)?;
        let mut bytes = vec![0; block.size as usize];
        open.read_exact_at(&mut bytes, block.data_pos.0).during("read", &path)?;
        obfuscation.apply(&mut bytes, block.data_pos.0);
        Ok(bytes)
    };
    let mut matcher = Matcher::new(blocks, search.file_len().saturating_mul(VAIN_HASHES));
    let mut record = Vec::new();
    while let Some(Candidate { data_pos, size }) = search.next()? {
        let end = data_pos + u64::from(size) + CHECKSUM_LEN as u64;
        if size == 0 || size as usize > MAX_UNDO_LEN || end > search.file_len() {
            continue;
        }
        record.resize(size as usize + CHECKSUM_LEN, 0);
        search.read(&mut record, data_pos)?;
        let Some((undo, &sum)) = record.split_last_chunk::<CHECKSUM_LEN>() else { continue };
        let found = matcher.find(undo, &sum, &read_block)?;
        if !found.is_empty() {
            (used, search.at) = (end, end);
        }
        for index in found {
            if let Some(block) = matcher.blocks.get_mut(index) {
                block.undo_pos = Some(ByteOffset(data_pos));
            }
        }
    }
    Ok(used)
}

/// Finds the block of undo data among the blocks of one file.
struct Matcher<'a> {
    blocks: &'a mut [ScannedBlock],
    /// Blocks by the hash of the block before: several in a fork, or where a block is stored twice.
    children: HashMap<BlockHash, Vec<usize>>,
    /// Blocks by their number of transactions.
    by_tx_count: HashMap<u32, Vec<usize>>,
    /// Blocks before the coinbase-only ones by the checksum of those; made when first needed.
    no_spends: Option<HashMap<[u8; CHECKSUM_LEN], BlockHash>>,
    /// The block that was found last.
    last: Option<BlockHash>,
    /// Bytes that may still be hashed in vain.
    budget: u64,
}

impl<'a> Matcher<'a> {
    fn new(blocks: &'a mut [ScannedBlock], budget: u64) -> Self {
        let mut children: HashMap<_, Vec<_>> = HashMap::new();
        let mut by_tx_count: HashMap<_, Vec<_>> = HashMap::new();
        for (index, block) in blocks.iter().enumerate() {
            children.entry(block.header.prev).or_default().push(index);
            by_tx_count.entry(block.tx_count).or_default().push(index);
        }
        Self { blocks, children, by_tx_count, no_spends: None, last: None, budget }
    }

    /// The blocks that `undo` with checksum `sum` is of: none, one, or several with the same undo data,
    /// which are copies or have coinbases only. `read` gets a block's bytes.
    fn find(
        &mut self,
        undo: &[u8],
        sum: &[u8; CHECKSUM_LEN],
        read: &ReadBlock<'_>,
    ) -> Result<Vec<usize>, DiskError> {
        let Some(prev) = self.find_prev(undo, sum) else { return Ok(Vec::new()) };
        let Some(tx_count) = undo_tx_count(undo) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for &index in self.children.get(&prev).map(Vec::as_slice).unwrap_or_default() {
            let Some(block) = self.blocks.get(index).filter(|block| block.tx_count == tx_count) else {
                continue;
            };
            found.push((index, *block));
        }
        let forked =
            found.iter().any(|(_, block)| found.first().is_some_and(|(_, first)| first.hash != block.hash));
        if forked && tx_count > 1 {
            self.choose_sibling(undo, &mut found, read)?;
        }
        if let Some((_, block)) = found.first() {
            self.last = Some(block.hash);
        }
        Ok(found.into_iter().map(|(index, _)| index).collect())
    }

    /// Keeps of siblings in a fork the one that `undo` is of: the checksum is the same for all, so the
    /// inputs of each transaction are counted. Where they agree too, the first sibling without undo data is
    /// taken.
    fn choose_sibling(
        &self,
        undo: &[u8],
        siblings: &mut Vec<(usize, ScannedBlock)>,
        read: &ReadBlock<'_>,
    ) -> Result<(), DiskError> {
        let mut fits = Vec::new();
        for &(index, block) in siblings.iter() {
            if has_shape(&read(&block)?, undo) {
                fits.push((index, block));
            }
        }
        let chosen = fits
            .iter()
            .find(|(_, block)| block.undo_pos.is_none())
            .or(fits.first())
            .map(|(_, block)| block.hash);
        siblings.retain(|(_, block)| Some(block.hash) == chosen);
        Ok(())
    }

    /// The block before the one that `undo` is of.
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
        // Those without undo data first: a record is there twice only after a crash.
        for has_undo in [false, true] {
            for block in candidates.iter().filter_map(|&index| self.blocks.get(index)) {
                if block.undo_pos.is_some() != has_undo {
                    continue;
                }
                self.budget = self.budget.checked_sub(undo.len() as u64)?;
                if checksum(&block.header.prev, undo) == *sum {
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

/// Reads the bytes of a block.
type ReadBlock<'a> = dyn Fn(&ScannedBlock) -> Result<Vec<u8>, DiskError> + 'a;

/// Whether `undo` has as many coins as `block` has inputs, transaction by transaction.
fn has_shape(block: &[u8], undo: &[u8]) -> bool {
    let (mut block_arena, mut undo_arena) = (BlockArena::default(), UndoArena::default());
    let Ok(block) = block_arena.parse_first(block) else { return false };
    let Ok(undo) = UndoView::parse(undo, &mut undo_arena) else { return false };
    block.txs().skip(1).map(|tx| tx.input_count()).eq(undo.txs().map(|coins| coins.len()))
}

/// How many transactions the block of this undo data has, its coinbase included.
fn undo_tx_count(undo: &[u8]) -> Option<u32> {
    let others = Reader::new(undo).compact_size().ok()?;
    u32::try_from(others).ok()?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::RealDisk;
    use crate::{blk, undo};
    use wire::{Coin, Network, OutPoint, Txid};

    const KEY: [u8; 8] = [3, 1, 4, 1, 5, 9, 2, 6];

    /// A block whose transactions have `inputs[i]` inputs each, the coinbase left out, and its undo data.
    fn block(prev: BlockHash, nonce: u32, inputs: &[u8]) -> (Header, Vec<u8>, Vec<u8>) {
        let header = Header { prev, nonce, ..Header::default() };
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
            scan_files(&RealDisk, &self.datadir, obfuscation, |_| true).unwrap()
        }
    }

    fn positions(scan: &Scan) -> Vec<Option<u64>> {
        scan.blocks.iter().map(|block| block.undo_pos.map(|pos| pos.0)).collect()
    }

    #[test]
    fn undo_data_is_found_out_of_order_between_garbage_and_behind_a_gap() {
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
        // Blocks lie as a permutation of the chain, undo data in chain order; 20 and 21 have their blocks
        // elsewhere.
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
    fn siblings_in_a_fork_get_the_undo_data_of_their_shape() {
        let root = block(BlockHash([0xee; 32]), 0, &[]);
        let prev = root.0.hash();
        let [a, b, c] =
            [(1, [2, 1]), (2, [1, 2]), (3, [1, 2])].map(|(nonce, inputs)| block(prev, nonce, &inputs));
        let mut files = Files::new();
        for (_, bytes, _) in [&root, &a, &b, &b, &c] {
            files.add_block(bytes);
        }
        let [second, first, third] = [&b, &a, &c].map(|(header, _, undo)| files.add_undo(&header.prev, undo));
        let want = [None, Some(first), Some(second), Some(second), Some(third)];
        assert_eq!(positions(&files.scan()), want);
    }

    #[test]
    fn damaged_and_missing_undo_data_is_none() {
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
    fn a_scan_can_be_stopped() {
        let mut files = Files::new();
        files.add_block(&block(BlockHash([0; 32]), 0, &[]).1);
        assert_eq!(files.scan().blocks.len(), 1);
        let scan = scan_files(&RealDisk, &files.datadir, Obfuscation::from_key(KEY), |_| false).unwrap();
        assert_eq!(scan, Scan::default());
    }

    #[test]
    fn generated_blocks_parse() {
        let (_, bytes, undo) = block(BlockHash([1; 32]), 7, &[2, 3]);
        assert!(has_shape(&bytes, &undo));
        let mut arena = BlockArena::default();
        let prevout = OutPoint { txid: Txid([9; 32]), vout: 0x0909_0909 };
        assert_eq!(arena.parse(&bytes).unwrap().tx(2).unwrap().inputs().next().unwrap().prevout(), prevout);
        assert!(!has_shape(&bytes, &block(BlockHash([1; 32]), 7, &[3, 2]).2));
    }
}

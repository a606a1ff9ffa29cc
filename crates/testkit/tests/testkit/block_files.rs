//! Block files in both directions: what is appended is read back, and what was flushed survives any crash.

use digest::obfuscation::Obfuscation;
use disk::{
    DiskError,
    block_files::{BlockAppender, BlockFiles, MAX_BLOCK_FILE_LEN, RecordBuffer},
    datadir::{Datadir, FileKind},
    index::FileInfo,
    scan::{Scan, ScannedBlock, scan_files},
    undo::checksum,
};
use std::sync::LazyLock;
use tempfile::TempDir;
use testkit::{block::GeneratedBlock, chain::Chain, fault::FaultDisk, generate::ChainSpec};
use vfs::{Disk, RealDisk};
use wire::{ByteOffset, FileNo, Height, Network};

/// Number of blocks by which undo data is behind, as when blocks arrive faster than they are connected.
const UNDO_LAG: usize = 3;

/// Number of blocks between flushes.
const FLUSH_INTERVAL: usize = 5;

static CHAIN: LazyLock<Chain> = LazyLock::new(|| Chain::generate(&ChainSpec::new(5, 400_000)));

/// Where a block was appended.
#[derive(Clone, Copy)]
struct Place {
    file: FileNo,
    data: ByteOffset,
    undo: Option<ByteOffset>,
}

/// What a block index would contain.
#[derive(Clone, Default)]
struct Index {
    infos: Vec<FileInfo>,
    places: Vec<Place>,
}

/// An empty datadir.
struct Case {
    root: TempDir,
    datadir: Datadir,
    obfuscation: Obfuscation,
    max_file_len: u32,
    preallocate: bool,
}

impl Case {
    fn new(key: [u8; 8], max_file_len: u32, preallocate: bool) -> Self {
        let root = tempfile::tempdir().unwrap();
        let datadir = Datadir::at(root.path(), Network::Regtest);
        RealDisk.create_dir_all(&datadir.blocks_dir()).unwrap();
        Self { root, datadir, obfuscation: Obfuscation::from_key(key), max_file_len, preallocate }
    }

    fn files<'a>(&self, disk: &'a dyn Disk) -> BlockFiles<'a> {
        BlockFiles::new(disk, &self.datadir, self.obfuscation)
    }

    fn appender<'a>(&self, disk: &'a dyn Disk, infos: Vec<FileInfo>) -> BlockAppender<'a> {
        let mut appender = self.files(disk).append_after(infos, self.max_file_len);
        appender.preallocate = self.preallocate;
        appender
    }

    /// Appends the blocks that `index` does not contain. Calls a failed operation `retries` times again,
    /// except for a flush; updates the index after each flush.
    fn append(
        &self,
        disk: &dyn Disk,
        blocks: &[&GeneratedBlock],
        index: &mut Index,
        retries: u32,
    ) -> Result<(), DiskError> {
        let mut appender = self.appender(disk, index.infos.clone());
        let mut places = index.places.clone();
        while index.places.len() < blocks.len() {
            let block = blocks[places.len()];
            let (file, data) = retry(retries, || {
                appender.append_block(Height(block.height), block.header.time, &block.bytes)
            })?;
            places.push(Place { file, data, undo: None });
            let is_last = places.len() == blocks.len();
            let connected = if is_last { blocks.len() } else { places.len().saturating_sub(UNDO_LAG) };
            for (place, block) in places[..connected].iter_mut().zip(blocks) {
                let Some(undo) = block.undo.as_ref().filter(|_| place.undo.is_none()) else { continue };
                let append =
                    || appender.append_undo(place.file, Height(block.height), &block.header.prev, undo);
                place.undo = Some(retry(retries, append)?);
            }
            if is_last || places.len().is_multiple_of(FLUSH_INTERVAL) {
                if let Err(error) = appender.flush() {
                    assert!(appender.flush().is_err(), "what was appended is in doubt");
                    return Err(error);
                }
                *index = Index { infos: appender.infos().to_vec(), places: places.clone() };
            }
        }
        Ok(())
    }

    fn scan(&self) -> Scan {
        scan_files(&RealDisk, &self.datadir, self.obfuscation, |_| true, &[]).unwrap()
    }

    /// Asserts that the reader and a scan find each record at its place.
    fn assert_readable(&self, index: &Index, blocks: &[&GeneratedBlock], context: &str) {
        let files = self.files(&RealDisk);
        let mut buffer = RecordBuffer::default();
        let mut read = |kind, file, pos| {
            let records = files.open(kind, file).unwrap();
            records.read(pos, &mut buffer).unwrap_or_else(|error| panic!("{context}: {error}"));
            buffer.bytes().to_vec()
        };
        let scan = if index.places.is_empty() { Scan::default() } else { self.scan() };
        for (place, block) in index.places.iter().zip(blocks) {
            assert!(read(FileKind::Blk, place.file, place.data) == block.bytes, "{context}");
            let is_here = |found: &&ScannedBlock| (found.file, found.data_pos) == (place.file, place.data);
            let found = scan.blocks.iter().find(is_here);
            let found = found.unwrap_or_else(|| panic!("{context}: a scan does not find {}", block.hash));
            assert_eq!((found.hash, found.size as usize), (block.hash, block.bytes.len()), "{context}");
            let Some((pos, undo)) = place.undo.zip(block.undo.as_ref()) else { continue };
            let expected = [&undo[..], &checksum(&block.header.prev, undo)].concat();
            // A copy that was written before the power failed may come first.
            for pos in [pos, found.undo_pos.unwrap()] {
                assert!(read(FileKind::Rev, place.file, pos) == expected, "{context}");
            }
        }
    }

    fn len(&self, kind: FileKind, file: usize) -> u64 {
        std::fs::metadata(self.datadir.block_file_path(kind, FileNo(file as u32))).unwrap().len()
    }
}

fn retry<T>(retries: u32, mut run: impl FnMut() -> Result<T, DiskError>) -> Result<T, DiskError> {
    (0..retries).find_map(|_| run().ok()).map_or_else(run, Ok)
}

/// Blocks with transactions: the last of the chain.
fn last_blocks(count: usize) -> Vec<&'static GeneratedBlock> {
    let blocks: Vec<_> = CHAIN.main().collect();
    blocks[blocks.len() - count..].to_vec()
}

#[test]
fn what_is_appended_is_read_back_across_files() {
    let blocks: Vec<_> = CHAIN.main().collect();
    for (key, preallocate) in [([0; 8], false), ([1, 2, 0, 4, 0xff, 6, 7, 0xf9], true)] {
        let case = Case::new(key, 50_000, preallocate);
        let mut index = Index::default();
        case.append(&FaultDisk::healthy(), &blocks, &mut index, 0).unwrap();
        case.assert_readable(&index, &blocks, "no fault");

        let scan = case.scan();
        let hashes: Vec<_> = scan.blocks.iter().map(|block| block.hash).collect();
        assert_eq!(hashes, blocks.iter().map(|block| block.hash).collect::<Vec<_>>());
        assert!(scan.files.len() > 5, "{} files", scan.files.len());
        assert_eq!(scan.files.len(), index.infos.len());
        for (number, (found, info)) in scan.files.iter().zip(&index.infos).enumerate() {
            assert_eq!((found.size, found.undo_size), (info.size.into(), info.undo_size.into()));
            assert!(info.size < 50_000 || info.blocks == 1, "a larger block has a file of its own");
            let is_last = number + 1 == index.infos.len();
            let [blk, rev] = [FileKind::Blk, FileKind::Rev].map(|kind| case.len(kind, number));
            let in_use = (u64::from(info.size), u64::from(info.undo_size));
            let reserved = (16 << 20, 1 << 20);
            assert_eq!((blk, rev), if is_last && preallocate { reserved } else { in_use }, "{number}");
        }
        let counted: u32 = index.infos.iter().map(|info| info.blocks).sum();
        assert_eq!(counted as usize, blocks.len());
    }
}

/// The power fails at each operation in turn, then again while the rest is appended.
#[test]
fn flushed_records_survive_a_power_cut_at_every_operation() {
    let blocks = last_blocks(24);
    for preallocate in [false, true] {
        for at in 0.. {
            let case = Case::new([9, 8, 7, 6, 5, 4, 3, 2], 20_000, preallocate);
            let mut index = Index::default();
            let mut is_done = false;
            for (round, at) in [at, at % 13, u64::MAX].into_iter().enumerate() {
                let disk = FaultDisk::killed_at(at).with_names_at_risk(case.root.path());
                let done = case.append(&disk, &blocks, &mut index, 0);
                is_done |= round == 0 && done.is_ok();
                disk.cut_power(at).unwrap();
                let what = format!("preallocated {preallocate}, round {round}, operation {at}");
                case.assert_readable(&index, &blocks, &what);
            }
            assert_eq!(index.places.len(), blocks.len());
            if is_done {
                assert!(at > 50, "{at} operations");
                break;
            }
        }
    }
}

#[test]
fn appending_continues_after_an_error() {
    let blocks = last_blocks(24);
    let case = || Case::new([0; 8], 20_000, true);
    for at in 0.. {
        let (case, mut index) = (case(), Index::default());
        let disk = FaultDisk::failing_at(at);
        let done = case.append(&disk, &blocks, &mut index, 1);
        done.or_else(|_| case.append(&disk, &blocks, &mut index, 0)).unwrap();
        case.assert_readable(&index, &blocks, &format!("operation {at}"));
        if !disk.has_failed() {
            break;
        }
    }
    for bytes in [0, 1 << 20, 16 << 20, 17 << 20, (17 << 20) + 5_000, 50 << 20] {
        let (case, mut index) = (case(), Index::default());
        let disk = FaultDisk::full_after(bytes);
        let error = case.append(&disk, &blocks, &mut index, 0).unwrap_err().to_string();
        assert!(error.contains("the test disk is full"), "{error}");
        case.assert_readable(&index, &blocks, &format!("full after {bytes} bytes"));
        disk.heal();
        case.append(&disk, &blocks, &mut index, 0).unwrap();
        case.assert_readable(&index, &blocks, &format!("after {bytes} bytes"));
    }
}

/// Once, an index that had lost its blocks let a download overwrite them.
#[test]
fn whole_blocks_beyond_the_bytes_in_use_are_not_overwritten() {
    let blocks = last_blocks(24);
    for has_own_key in [true, false] {
        let (case, mut index) = (Case::new([9, 8, 7, 6, 5, 4, 3, 2], 20_000, true), Index::default());
        case.append(&RealDisk, &blocks[..23], &mut index, 0).unwrap();
        let (before, files) = (case.scan().blocks.len(), index.infos.len());
        let bytes = |case: &Case| -> Vec<Vec<u8>> {
            let pairs = (0..files as u32).flat_map(|file| {
                [FileKind::Blk, FileKind::Rev].map(|kind| case.datadir.block_file_path(kind, FileNo(file)))
            });
            pairs.map(|path| std::fs::read(path).unwrap()).collect()
        };
        let old = bytes(&case);
        // The index knows only the first block.
        let first = FileInfo { size: 8 + blocks[0].bytes.len() as u32, blocks: 1, ..FileInfo::default() };
        let key = if has_own_key { [9, 8, 7, 6, 5, 4, 3, 2] } else { [1; 8] };
        let case = Case { obfuscation: Obfuscation::from_key(key), ..case };
        let mut appender = case.appender(&RealDisk, vec![first]);
        let (file, _) = appender.append_block(Height(1), blocks[23].header.time, &blocks[23].bytes).unwrap();
        appender.flush().unwrap();
        assert_eq!(file.0 as usize >= files, !has_own_key, "{file:?}");
        for (old, new) in old.iter().zip(bytes(&case)) {
            let end = old.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            assert!(new.starts_with(&old[..end]), "own key {has_own_key}");
        }
        assert!(!has_own_key || case.scan().blocks.len() == before + 1);
    }
}

#[test]
fn refuses_to_append_to_files_that_lack_bytes_in_use() {
    let case = Case::new([0; 8], MAX_BLOCK_FILE_LEN, false);
    let blocks = last_blocks(2);
    let mut index = Index::default();
    case.append(&RealDisk, &blocks[..1], &mut index, 0).unwrap();
    let mut appender = case.appender(&RealDisk, index.infos.clone());
    let block = blocks[1];
    let error = appender.append_undo(FileNo(1), Height(1), &block.header.prev, &[0]).unwrap_err();
    assert!(matches!(error, DiskError::CallerError { .. }), "{error}");

    let used = index.infos[0].size;
    testkit::corrupt::truncate(&case.datadir.blk_path(FileNo(0)), u64::from(used) - 1).unwrap();
    let error = appender.append_block(Height(1), block.header.time, &block.bytes).unwrap_err().to_string();
    assert!(error.contains("blk00000.dat"), "{error}");
    assert!(error.contains(&format!("{used} bytes of the file")), "{error}");
}

//! The undo data of a datadir: what it must be, what is there, ways to damage it, and checks of what a
//! rebuild has made.

use crate::prelude::*;
use disk::undo::{CHECKSUM_LEN, checksum, write_record};
use engine::undo::UndoCheck;
use strum::VariantArray;

/// A small chain with some spends.
pub fn tiny() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    CHAIN.get_or_init(|| Chain::generate(&ChainSpec { blocks: Some(122), ..ChainSpec::new(21, 60_000) }))
}

/// The undo data that the blocks of a chain have.
pub struct Expected {
    /// Parent's hash, hash and undo data of each block above the genesis block, in order of height.
    pub blocks: Vec<(BlockHash, BlockHash, Vec<u8>)>,
    /// Core's hash of the coins.
    pub hash_serialized_3: [u8; 32],
}

impl Expected {
    pub fn of(chain: &Chain) -> Self {
        let blocks =
            chain.main().skip(1).map(|block| (block.header.prev, block.hash, block.undo.clone().unwrap()));
        Self { blocks: blocks.collect(), hash_serialized_3: chain.model.stats().hash_serialized_3 }
    }

    /// That of a datadir which Core has written, whose tip is `tip`.
    pub fn of_datadir(root: &Path, network: Network, tip: BlockHash, hash_serialized_3: [u8; 32]) -> Self {
        let files = UndoFiles::read(root, network);
        let entries: BTreeMap<BlockHash, IndexEntry> =
            files.index.entries.iter().map(|entry| (entry.hash, *entry)).collect();
        let (mut blocks, mut hash) = (Vec::new(), tip);
        while entries[&hash].height > Height(0) {
            let entry = &entries[&hash];
            let undo = files.record(entry).unwrap().0.to_vec();
            blocks.push((entry.header.prev, hash, undo));
            hash = entry.header.prev;
        }
        blocks.reverse();
        Self { blocks, hash_serialized_3 }
    }
}

/// The block index, and the `rev` files without obfuscation.
pub struct UndoFiles {
    pub paths: Datadir,
    pub obfuscation: Obfuscation,
    pub index: BlockIndex,
    /// By number.
    pub rev: BTreeMap<u32, Vec<u8>>,
}

impl UndoFiles {
    pub fn read(root: &Path, network: Network) -> Self {
        let paths = Datadir::at(root, network);
        let index = read_block_index(&RealDisk, &paths.index_dir()).unwrap();
        let obfuscation = read_block_obfuscation(&RealDisk, &paths.blocks_dir()).unwrap();
        let mut rev = BTreeMap::new();
        for number in 0..index.files.len() as u32 {
            if let Ok(mut bytes) = std::fs::read(paths.rev_path(FileNo(number))) {
                obfuscation.apply(&mut bytes, 0);
                rev.insert(number, bytes);
            }
        }
        Self { paths, obfuscation, index, rev }
    }

    /// Bytes in use of a file: those that the index records, if the file has so many.
    pub fn used(&self, number: u32) -> usize {
        let len = self.rev.get(&number).map_or(0, Vec::len);
        len.min(self.index.files.get(number as usize).map_or(0, |info| info.undo_size as usize))
    }

    /// The undo data and the checksum to which an entry points, if they are in the bytes in use.
    pub fn record(&self, entry: &IndexEntry) -> Option<(&[u8], &[u8])> {
        let number = entry.file?.0;
        let used = self.rev.get(&number)?.get(..self.used(number))?;
        let pos = entry.undo_pos.filter(|_| entry.status.has_undo())?.0 as usize;
        let len: [u8; 4] = used.get(pos - 4..pos)?.try_into().unwrap();
        used.get(pos..)?
            .split_at_checked(u32::from_le_bytes(len) as usize)
            .and_then(|(undo, rest)| Some((undo, rest.get(..CHECKSUM_LEN)?)))
    }

    pub fn entry(&self, hash: &BlockHash) -> &IndexEntry {
        self.index.entries.iter().find(|entry| entry.hash == *hash).unwrap()
    }

    /// Blocks whose undo data a rebuild must make. With a scan, a record counts wherever it is in the file
    /// of its block.
    pub fn lacking(&self, expected: &Expected, scan: bool) -> Vec<BlockHash> {
        let is_sound = |prev: &BlockHash, hash: &BlockHash, undo: &[u8]| {
            let entry = self.entry(hash);
            if !scan {
                return self.record(entry) == Some((undo, &checksum(prev, undo)[..]));
            }
            let mut record = Vec::new();
            write_record(&mut record, self.paths.network().magic(), prev, undo);
            let file = self.rev.get(&entry.file.unwrap().0);
            file.is_some_and(|file| file.windows(record.len()).any(|found| found == record))
        };
        let lacking = expected.blocks.iter().filter(|(prev, hash, undo)| !is_sound(prev, hash, undo));
        lacking.map(|(_, hash, _)| *hash).collect()
    }

    pub fn edit_index(&mut self, edit: impl FnOnce(&mut BlockIndex)) {
        edit(&mut self.index);
        edit_index(&self.paths.index_dir(), |index| index.clone_from(&self.index)).unwrap();
    }

    fn path(&self, number: u32) -> PathBuf {
        self.paths.rev_path(FileNo(number))
    }

    /// The records to which the index points in a file, in order: position and length of the undo data.
    fn records(&self, number: u32) -> Vec<(usize, usize)> {
        let of_file = self.index.entries.iter().filter(|entry| entry.file == Some(FileNo(number)));
        let records =
            of_file.filter_map(|entry| Some((entry.undo_pos?.0 as usize, self.record(entry)?.0.len())));
        let mut records: Vec<_> = records.collect();
        records.sort_unstable();
        records
    }

    /// End of the last sound record in a file, among those that the index knows.
    fn matching_end(&self, number: u32) -> usize {
        let of_file = self.index.entries.iter().filter(|entry| entry.file == Some(FileNo(number)));
        let ends = of_file.filter_map(|entry| {
            let (undo, sum) = self.record(entry)?;
            let end = entry.undo_pos?.0 as usize + undo.len() + CHECKSUM_LEN;
            (*sum == checksum(&entry.header.prev, undo)).then_some(end)
        });
        ends.max().unwrap_or(0)
    }

    /// Replaces bytes of a file.
    fn write(&self, number: u32, at: usize, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        self.obfuscation.apply(&mut bytes, at as u64);
        overwrite(&self.path(number), at as u64, &bytes).unwrap();
    }
}

/// What is wrong with the undo data of a datadir.
#[derive(Clone, Copy, PartialEq, Eq, Debug, VariantArray)]
pub enum UndoDamage {
    None,
    /// All `rev` files are gone.
    AllGone,
    /// Every second one is gone.
    HalfGone,
    /// A bit of some records is inverted.
    Flipped,
    /// Files end in the middle.
    Truncated,
    /// Two records of a file have changed places.
    Swapped,
    /// The files are those of another chain.
    OtherChain,
    /// The end of each file is zero, as if a node was killed before it had flushed.
    NotFlushed,
    /// Entries of the index have lost the positions.
    NoPositions,
    /// The undo sizes in the index end with a record in the middle.
    SmallSizes,
    /// The undo sizes in the index end within a record.
    SizesInRecords,
    /// The undo sizes in the index are 0.
    NoSizes,
    /// A claim is false, and the checksum fits.
    FalseClaim,
}

impl UndoDamage {
    pub const ALL: &'static [Self] = Self::VARIANTS;

    pub fn apply(self, root: &Path, network: Network) {
        let mut files = UndoFiles::read(root, network);
        let numbers: Vec<u32> = files.rev.keys().copied().collect();
        for &number in &numbers {
            let records = files.records(number);
            let Some(&(middle, middle_len)) = longest(&records) else { continue };
            let path = files.path(number);
            match self {
                Self::AllGone => std::fs::remove_file(&path).unwrap(),
                Self::HalfGone if number % 2 == 0 => std::fs::remove_file(&path).unwrap(),
                Self::Flipped => flip_bit(&path, (middle + middle_len / 2) as u64, 3).unwrap(),
                Self::Truncated => truncate(&path, (middle + middle_len / 2) as u64).unwrap(),
                Self::Swapped => {
                    let before = records.iter().rev().find(|(pos, _)| *pos < middle);
                    let Some(&(first, len)) = before else { continue };
                    let record = |pos: usize, len: usize| {
                        &files.rev[&number][pos - RECORD_HEADER_LEN..pos + len + CHECKSUM_LEN]
                    };
                    assert_eq!(first + len + CHECKSUM_LEN + RECORD_HEADER_LEN, middle, "they are adjacent");
                    let swapped = [record(middle, middle_len), record(first, len)].concat();
                    files.write(number, first - RECORD_HEADER_LEN, &swapped);
                }
                Self::OtherChain => {
                    let mut other = Vec::new();
                    let mut rng = Rng::new(number.into(), "another chain");
                    while other.len() < files.used(number) {
                        let undo = vec![rng.below(256) as u8; 1 + rng.below(300) as usize];
                        write_record(&mut other, network.magic(), &BlockHash([7; 32]), &undo);
                    }
                    std::fs::write(&path, []).unwrap();
                    files.write(number, 0, &other);
                }
                Self::NotFlushed => {
                    let from = middle + middle_len / 2;
                    let zeros = vec![0; files.rev[&number].len() - from];
                    overwrite(&path, from as u64, &zeros).unwrap();
                }
                // A block without spends has no claims.
                Self::FalseClaim if middle_len > 1 => {
                    // The last byte of a script.
                    let (mut record, mut entries) = (Vec::new(), files.index.entries.iter());
                    let place = (Some(FileNo(number)), Some(ByteOffset(middle as u64)));
                    let hit = entries.find(|entry| (entry.file, entry.undo_pos) == place).unwrap();
                    let mut undo = files.rev[&number][middle..middle + middle_len].to_vec();
                    *undo.last_mut().unwrap() ^= 1;
                    write_record(&mut record, network.magic(), &hit.header.prev, &undo);
                    files.write(number, middle - RECORD_HEADER_LEN, &record);
                }
                Self::None
                | Self::HalfGone
                | Self::FalseClaim
                | Self::NoPositions
                | Self::SmallSizes
                | Self::SizesInRecords
                | Self::NoSizes => {}
            }
        }
        let end_of = |&number: &u32| Some((number, *longest(&files.records(number))?));
        let ends: Vec<(u32, (usize, usize))> = numbers.iter().filter_map(end_of).collect();
        match self {
            Self::NoPositions => files.edit_index(|index| {
                for entry in index.entries.iter_mut().filter(|entry| entry.hash.0[1] % 3 == 0) {
                    (entry.undo_pos, entry.status.0) = (None, entry.status.0 & !BlockStatus::HAVE_UNDO);
                }
            }),
            Self::SmallSizes | Self::SizesInRecords | Self::NoSizes => files.edit_index(|index| {
                for (number, (pos, len)) in ends {
                    index.files[number as usize].undo_size = match self {
                        Self::SmallSizes => pos + len + CHECKSUM_LEN,
                        Self::SizesInRecords => pos + len / 2,
                        _ => 0,
                    } as u32;
                }
            }),
            _ => {}
        }
    }
}

/// The longest record of a file that is not the first one.
fn longest(records: &[(usize, usize)]) -> Option<&(usize, usize)> {
    records.iter().skip(1).max_by_key(|(_, len)| len)
}

/// What a check of all undo data up to the best block finds.
pub fn checked(root: &Path) -> UndoCheck {
    let options = ChainOptions::reading(root, Network::Regtest);
    engine::undo::check(&FaultDisk::healthy(), &options, unwatched()).unwrap()
}

pub fn with_undo(options: &ReindexOptions, undo: UndoPolicy) -> ReindexOptions {
    changed(options.clone(), |it| it.chain.undo = undo)
}

/// The bytes of all files below `blocks` whose name begins so.
pub fn files_of(blocks: &Path, prefix: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(blocks).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = PathBuf::from(path.file_name().unwrap());
        if name.to_string_lossy().starts_with(prefix) && path.is_file() {
            found.insert(name, std::fs::read(path).unwrap());
        }
    }
    found
}

/// What a rebuild must leave: checked after a run that succeeded in place.
pub fn assert_complete(root: &Path, network: Network, expected: &Expected, what: &str) {
    assert_complete_from(root, network, expected, Height(1), what);
}

/// The same, with undo data for the blocks from `from` on.
pub fn assert_complete_from(root: &Path, network: Network, expected: &Expected, from: Height, what: &str) {
    let files = UndoFiles::read(root, network);
    for (height, (prev, hash, undo)) in expected.blocks.iter().enumerate().skip(from.0 as usize - 1) {
        let entry = files.entry(hash);
        assert!(entry.status.has_undo(), "{what}: no undo position, height {}", height + 1);
        assert_eq!(entry.status.validity(), BlockStatus::VALID_SCRIPTS, "{what}: height {}", height + 1);
        let found = files.record(entry);
        let is_same = found == Some((undo, &checksum(prev, undo)[..]));
        assert!(is_same, "{what}: height {} of {:?}", height + 1, entry);
    }
    assert_eq!(leftovers(root), [] as [&Path; 0], "{what}");
}

/// Asserts that a `rebuild` makes all undo data that is lacking, and nothing else. Returns the report and all
/// that must not depend on the machine: the rows of the index and the `rev` files.
pub fn assert_mends(
    options: &ReindexOptions,
    rebuild: impl Fn(&ReindexOptions) -> Result<ReindexReport, Error>,
    expected: &Expected,
    what: &str,
) -> (ReindexReport, (BlockIndex, BTreeMap<PathBuf, Vec<u8>>)) {
    let (root, network) = (&options.chain.datadir, options.chain.params.network);
    let before = UndoFiles::read(root, network);
    let lacking = before.lacking(expected, options.chain.scan);
    let paths = Datadir::at(root, network);
    let (blk, old_tree) = (files_of(&paths.blocks_dir(), "blk"), tree(root));
    let report = rebuild(options).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(report.hash_serialized_3, expected.hash_serialized_3, "{what}");
    let undo = report.undo.as_ref().unwrap();
    assert_eq!(undo.blocks as usize, lacking.len(), "{what}");
    let merged = super::scratch();
    let result = match &options.output {
        None => root.clone(),
        Some(output) => {
            super::assert_same_tree(&old_tree, root, what);
            assert_eq!(leftovers(output), [] as [&Path; 0], "{what}");
            overlay(root, output, merged.path(), network);
            merged.path().to_owned()
        }
    };
    assert!(blk == files_of(&Datadir::at(&result, network).blocks_dir(), "blk"), "{what}: blk files");
    assert_complete(&result, network, expected, what);
    let after = UndoFiles::read(&result, network);
    assert_bytes_in_use_stay(&before, &after, options.chain.scan, what);
    let in_files: std::collections::BTreeSet<u32> =
        lacking.iter().map(|hash| before.entry(hash).file.unwrap().0).collect();
    let reported = undo.made.iter().chain(&undo.mended).map(|file| file.0).collect();
    assert_eq!(in_files, reported, "{what}: files in the report");
    // A second run finds all that it needs.
    let again = ReindexOptions::new(&result, network, ScriptChecks::LeftOut);
    let again = changed(again, |it| it.chain.scan = options.chain.scan);
    let again = run(&trusting(&again)).unwrap_or_else(|error| panic!("{what}, again: {error}"));
    assert_eq!(again.hash_serialized_3, expected.hash_serialized_3, "{what}, again");
    let rev = files_of(&after.paths.blocks_dir(), "rev");
    (report, (after.index, rev))
}

/// Copies a datadir, with the files of an output elsewhere in place of its own.
fn overlay(root: &Path, output: &Path, to: &Path, network: Network) {
    copy_dir(root, to).unwrap();
    let (from, target) = (Datadir::at(output, network), Datadir::at(to, network));
    let databases =
        [(from.chainstate_dir(), target.chainstate_dir()), (from.index_dir(), target.index_dir())];
    for (new, old) in databases.iter().filter(|(new, _)| new.exists()) {
        let _ = std::fs::remove_dir_all(old);
        copy_dir(new, old).unwrap();
    }
    for (name, bytes) in files_of(&from.blocks_dir(), "rev") {
        std::fs::write(target.blocks_dir().join(name), bytes).unwrap();
    }
}

/// Asserts that bytes in use are not changed, and that index entries of blocks without new undo data stay.
fn assert_bytes_in_use_stay(before: &UndoFiles, after: &UndoFiles, scan: bool, what: &str) {
    for (number, old) in &before.rev {
        // With a scan, bytes are in use up to the last record that belongs to a block.
        let used = if scan { before.matching_end(*number) } else { before.used(*number) };
        assert!(after.rev[number].get(..used) == old.get(..used), "{what}: bytes in use of file {number}");
    }
    for (number, info) in after.index.files.iter().enumerate() {
        let len = after.rev.get(&(number as u32)).map_or(0, Vec::len);
        assert!(info.undo_size as usize <= len || after.rev.is_empty(), "{what}: undo size of file {number}");
        if !scan {
            let old = &before.index.files[number];
            assert_eq!((info.blocks, info.size), (old.blocks, old.size), "{what}: file {number}");
            assert!(info.undo_size >= before.used(number as u32) as u32, "{what}: file {number}");
        }
    }
    if !scan {
        assert_eq!(before.index.entries.len(), after.index.entries.len(), "{what}");
        for (old, new) in before.index.entries.iter().zip(&after.index.entries) {
            let status = match (old.undo_pos, new.undo_pos) {
                (old_pos, new_pos) if old_pos == new_pos => old.status,
                // A stale block, whose undo data was not in the bytes in use.
                (Some(pos), None) if pos.0 as usize >= before.used(old.file.unwrap().0) => {
                    BlockStatus(old.status.0 & !BlockStatus::HAVE_UNDO)
                }
                _ => old.status.connected(),
            };
            let undo_pos = new.undo_pos;
            assert_eq!(*new, IndexEntry { status, undo_pos, ..*old }, "{what}");
        }
    }
}

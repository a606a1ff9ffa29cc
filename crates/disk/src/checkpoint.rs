//! `manifest`: the checkpoint from which an interrupted rebuild resumes, and the names of its work files.
//!
//! Peregrine's own format. The engine writes it at each checkpoint, and reads it when the same command is run
//! again.
//!
//! ```text
//! magic 8 "PGRN-CKP" | version 4 | network's message magic 4 | file length 8
//! | chain 32 | settings 32 | key of the coinbase hashes 8, 8 | next run 8
//! | number of blocks 4 | of files 4 | of runs 4 | of coinbases 4 | of counts 4
//! | completed: 8 for each 64 blocks, rounded up
//! | files: number 4, length and modification time of the blk file 8, 8, of the rev file 8, 8
//! | runs: number 8, level 1, bytes 8, entries 8, checksum 4 | coinbases: 8 each | counts: 8 each
//! | checksum 4: CRC-32C of all before
//! ```
//! Integers are little-endian. A mainnet manifest has 8 MB, nearly all of it coinbase hashes. Their key is a
//! secret, because it allows making hashes collide: only the owner may read the file. Version 1 had no list
//! of files.
//!
//! A manifest is written under another name, synced, and renamed over the one before; then the directory is
//! synced. After a crash, the old or the new one exists, and possibly an unfinished new one, which is removed
//! at the next write. The files that a manifest lists must be synced before it is written. Runs that it does
//! not list are leftovers ([`is_work_file`]).

use crate::datadir::Datadir;
use crate::error::DiskError;
use crate::fs::{AtomicFile, Disk, During as _, Metadata};
use crate::sorted_run;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use wire::{FileNo, Network, Reader, WireError};

/// Name of the manifest.
const MANIFEST: &str = "manifest";
/// Name of a manifest that is being written.
const UNFINISHED: &str = "manifest.new";

const MAGIC: [u8; 8] = *b"PGRN-CKP";
const VERSION: u32 = 2;
/// Magic, version, network, length.
const HEADER_LEN: usize = 8 + 4 + 4 + 8;
const FIXED_LEN: usize = HEADER_LEN + 2 * 32 + 2 * 8 + 8 + 5 * 4;
const FILE_LEN: usize = 4 + 4 * 8;
const RUN_LEN: usize = 8 + 1 + 8 + 8 + 4;
const CHECKSUM_LEN: usize = 4;
/// Maximum length of a manifest, which is read at once, in bytes: enough for a chain with 30 million blocks.
const MAX_LEN: u64 = 256 << 20;
/// Bytes that are written at once: a checkpoint needs little memory.
const PIECE_LEN: usize = 64 << 10;

/// A sorted run from which an interrupted rebuild resumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SortedRunRef {
    /// Number of the run, from which [`sorted_run_path`] makes its path.
    pub number: u64,
    /// Number of merges that led to it.
    pub level: u8,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Number of entries: creations and spends.
    pub entries: u64,
    /// [`crate::sorted_run::SortedRunMeta::checksum`].
    pub checksum: u32,
}

/// Length and modification time of a file, to detect changes. Zeros if the file does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// Length in bytes.
    pub len: u64,
    /// [`Metadata::modified`].
    pub modified: i64,
}

/// The stamps of a `blk` file and its `rev` file from the time when their blocks were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileStamp {
    /// Number of the files.
    pub file: FileNo,
    /// Stamp of the `blk` file.
    pub blk: Stamp,
    /// Stamp of the `rev` file.
    pub rev: Stamp,
}

impl FileStamp {
    /// Returns the current stamps of the files with number `file` in a datadir.
    ///
    /// # Errors
    /// [`DiskError::File`].
    pub fn now(disk: &dyn Disk, datadir: &Datadir, file: FileNo) -> Result<Self, DiskError> {
        let stamp = |path: PathBuf| -> Result<Stamp, DiskError> {
            let found = disk.metadata(&path).during("look at", &path)?;
            Ok(found.map_or(Stamp::default(), |Metadata { len, modified, .. }| Stamp { len, modified }))
        };
        Ok(Self { file, blk: stamp(datadir.blk_path(file))?, rev: stamp(datadir.rev_path(file))? })
    }
}

/// The state of an interrupted rebuild, from which it resumes.
#[derive(Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The network of the blocks.
    pub network: Network,
    /// Digest of the completed blocks.
    pub chain: [u8; 32],
    /// Digest of the options that must be the same when the rebuild resumes.
    pub settings: [u8; 32],
    /// Number of blocks that have a bit in `completed`.
    pub blocks: u32,
    /// Bit h % 64 (the lowest is 0) of number h / 64: whether the block at height h is completed.
    pub completed: Vec<u64>,
    /// The block files, as they were before the completed blocks were read.
    pub files: Vec<FileStamp>,
    /// The sorted runs with the unmatched entries.
    pub runs: Vec<SortedRunRef>,
    /// The lowest number that no run has used.
    pub next_run: u64,
    /// Key of the hashes in `coinbases`, a secret.
    pub coinbase_key: (u64, u64),
    /// Keyed hashes of the completed blocks' coinbase txids, in any order.
    pub coinbases: Vec<u64>,
    /// The engine's counters.
    pub counts: Vec<u64>,
}

impl fmt::Debug for Checkpoint {
    /// Omits fields that are secret or long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let completed: u32 = self.completed.iter().map(|bits| bits.count_ones()).sum();
        f.debug_struct("Checkpoint")
            .field("network", &self.network)
            .field("blocks", &self.blocks)
            .field("completed", &completed)
            .field("runs", &self.runs)
            .field("next_run", &self.next_run)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl Checkpoint {
    /// Writes the manifest of `dir`, replacing the one before. All files that it lists must be synced.
    ///
    /// # Errors
    /// [`DiskError::File`]: the old manifest is in place, or (if only the last sync failed) the new one.
    /// [`DiskError::CallerError`] if the checkpoint is inconsistent: the number of bits is not the number of
    /// blocks, or the number of a run is not below `next_run`.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
        let (path, unfinished) = (dir.join(MANIFEST), dir.join(UNFINISHED));
        self.check().map_err(|flaw| DiskError::CallerError { dir: path.clone(), flaw: flaw.into() })?;
        if disk.exists(&unfinished).during("look at", &unfinished)? {
            disk.remove_file(&unfinished).during("remove", &unfinished)?;
        }
        let file = AtomicFile::create_private(disk, unfinished, &path)?;
        let mut file = PieceWriter { file, buffer: Vec::new(), checksum: 0 };
        self.encode(&mut file)?;
        file.finish()
    }

    /// Reads the manifest of `dir`. Returns `None` if there is none.
    ///
    /// # Errors
    /// [`DiskError::Foreign`] if another version wrote it; [`DiskError::Damaged`] if it is not a manifest,
    /// truncated, or altered; [`DiskError::File`].
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, DiskError> {
        let path = dir.join(MANIFEST);
        if !disk.exists(&path).during("look at", &path)? {
            return Ok(None);
        }
        let bytes = disk.read(&path, MAX_LEN).during("read", &path)?;
        let damaged = |flaw: &str| {
            let flaw = format!("{flaw}; the file is damaged, pass --restart to start over");
            DiskError::Damaged { path: path.clone(), offset: 0, flaw }
        };
        let mut header = Reader::new(&bytes);
        if header.array() != Ok(MAGIC) {
            return Err(damaged("not a peregrine checkpoint"));
        }
        let version = header.u32().map_err(|_| damaged("truncated"))?;
        if version != VERSION {
            let flaw = format!(
                "written by another version of peregrine (format {version}, this one reads {VERSION})"
            );
            return Err(DiskError::Foreign { path, flaw });
        }
        let (_network, len) = header
            .u32()
            .and_then(|network| Ok((network, header.u64()?)))
            .map_err(|_| damaged("truncated"))?;
        match len.cmp(&(bytes.len() as u64)) {
            std::cmp::Ordering::Greater => return Err(damaged("truncated")),
            std::cmp::Ordering::Less => return Err(damaged("bytes were added")),
            std::cmp::Ordering::Equal => {}
        }
        let (content, checksum) = bytes.split_last_chunk().ok_or_else(|| damaged("truncated"))?;
        if crc32c::crc32c(content) != u32::from_le_bytes(*checksum) {
            return Err(damaged("checksum mismatch"));
        }
        let checkpoint = Self::decode(content).map_err(|flaw| damaged(&flaw.to_string()))?;
        let checkpoint = checkpoint.ok_or_else(|| damaged("written for an unknown network"))?;
        checkpoint.check().map_err(damaged)?;
        Ok(Some(checkpoint))
    }

    /// Removes the manifest of `dir` if there is one, so that the next job starts over.
    ///
    /// # Errors
    /// [`DiskError::File`].
    pub fn remove(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
        let path = dir.join(MANIFEST);
        if disk.exists(&path).during("look at", &path)? {
            disk.remove_file(&path).during("remove", &path)?;
            disk.sync_dir(dir).during("sync", dir)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), &'static str> {
        let unused =
            self.completed.len() as u64 * 64 - u64::from(self.blocks).min(self.completed.len() as u64 * 64);
        let tail = self.completed.last().map_or(0, |bits| bits.leading_zeros());
        if self.completed.len() != self.blocks.div_ceil(64) as usize || u64::from(tail) < unused {
            return Err("its bits of completed blocks do not match its number of blocks");
        }
        if self.runs.iter().any(|run| run.number >= self.next_run) {
            return Err("it lists a run whose number is not used yet");
        }
        if self.counts_of_lists().into_iter().any(|count| u32::try_from(count).is_err()) {
            return Err("a list in it has 2^32 or more items");
        }
        Ok(())
    }

    fn counts_of_lists(&self) -> [usize; 4] {
        [self.files.len(), self.runs.len(), self.coinbases.len(), self.counts.len()]
    }

    fn encode(&self, file: &mut PieceWriter<'_>) -> Result<(), DiskError> {
        let numbers = self.completed.len() + self.coinbases.len() + self.counts.len();
        let lists = self.files.len() * FILE_LEN + self.runs.len() * RUN_LEN + numbers * 8;
        let len = FIXED_LEN + lists + CHECKSUM_LEN;
        file.put(&MAGIC)?;
        file.put(&VERSION.to_le_bytes())?;
        file.put(&self.network.magic())?;
        file.put(&(len as u64).to_le_bytes())?;
        file.put(&self.chain)?;
        file.put(&self.settings)?;
        file.numbers(&[self.coinbase_key.0, self.coinbase_key.1, self.next_run])?;
        file.put(&self.blocks.to_le_bytes())?;
        for count in self.counts_of_lists() {
            file.put(&(count as u32).to_le_bytes())?;
        }
        file.numbers(&self.completed)?;
        for FileStamp { file: number, blk, rev } in &self.files {
            file.put(&number.0.to_le_bytes())?;
            for stamp in [blk, rev] {
                file.put(&stamp.len.to_le_bytes())?;
                file.put(&stamp.modified.to_le_bytes())?;
            }
        }
        for run in &self.runs {
            file.put(&run.number.to_le_bytes())?;
            file.put(&[run.level])?;
            file.numbers(&[run.bytes, run.entries])?;
            file.put(&run.checksum.to_le_bytes())?;
        }
        file.numbers(&self.coinbases)?;
        file.numbers(&self.counts)
    }

    /// Decodes all but the checksum. Returns `None` if no network has this magic.
    fn decode(content: &[u8]) -> Result<Option<Self>, WireError> {
        let mut reader = Reader::new(content);
        reader.bytes(MAGIC.len() + 4)?;
        let magic: [u8; 4] = reader.array()?;
        reader.u64()?;
        let Some(network) = Network::ALL.into_iter().find(|network| network.magic() == magic) else {
            return Ok(None);
        };
        let (chain, settings) = (reader.array()?, reader.array()?);
        let (coinbase_key, next_run) = ((reader.u64()?, reader.u64()?), reader.u64()?);
        let blocks = reader.u32()?;
        let [files, runs, coinbases, counts] =
            [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?].map(|count| count as usize);
        let checkpoint = Self {
            network,
            chain,
            settings,
            blocks,
            completed: read_numbers(&mut reader, blocks.div_ceil(64) as usize)?,
            files: read_files(&mut reader, files)?,
            runs: read_runs(&mut reader, runs)?,
            next_run,
            coinbase_key,
            coinbases: read_numbers(&mut reader, coinbases)?,
            counts: read_numbers(&mut reader, counts)?,
        };
        reader.finish()?;
        Ok(Some(checkpoint))
    }
}

fn read_numbers(reader: &mut Reader<'_>, count: usize) -> Result<Vec<u64>, WireError> {
    let bytes = reader.bytes(count.saturating_mul(8))?;
    Ok(bytes.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect())
}

fn read_files(reader: &mut Reader<'_>, count: usize) -> Result<Vec<FileStamp>, WireError> {
    let mut files = Reader::new(reader.bytes(count.saturating_mul(FILE_LEN))?);
    let mut file = || {
        let file = FileNo(files.u32()?);
        let mut stamp = || Ok(Stamp { len: files.u64()?, modified: i64::from_le_bytes(files.array()?) });
        Ok(FileStamp { file, blk: stamp()?, rev: stamp()? })
    };
    (0..count).map(|_| file()).collect()
}

fn read_runs(reader: &mut Reader<'_>, count: usize) -> Result<Vec<SortedRunRef>, WireError> {
    let mut runs = Reader::new(reader.bytes(count.saturating_mul(RUN_LEN))?);
    let mut run = || {
        Ok(SortedRunRef {
            number: runs.u64()?,
            level: runs.u8()?,
            bytes: runs.u64()?,
            entries: runs.u64()?,
            checksum: runs.u32()?,
        })
    };
    (0..count).map(|_| run()).collect()
}

/// Writes a file in pieces, with a checksum of all bytes at the end.
struct PieceWriter<'a> {
    file: AtomicFile<'a>,
    buffer: Vec<u8>,
    checksum: u32,
}

impl PieceWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE_LEN { self.flush() } else { Ok(()) }
    }

    fn numbers(&mut self, numbers: &[u64]) -> Result<(), DiskError> {
        numbers.iter().try_for_each(|number| self.put(&number.to_le_bytes()))
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.checksum = crc32c::crc32c_append(self.checksum, &self.buffer);
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<(), DiskError> {
        self.flush()?;
        self.buffer.extend(self.checksum.to_le_bytes());
        self.flush()?;
        Ok(self.file.commit()?)
    }
}

/// Returns the path of the sorted run `number` in `dir`: `run-00000001.run`.
#[must_use]
pub fn sorted_run_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(run_name(number))
}

fn run_name(number: u64) -> String {
    format!("run-{number:08}.run")
}

/// Whether a file in the work directory was written by a rebuild, by its name and first bytes: a manifest,
/// finished or not, or a run. Those that no manifest lists can be removed.
///
/// # Errors
/// [`DiskError::File`].
pub fn is_work_file(disk: &dyn Disk, path: &Path) -> Result<bool, DiskError> {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else { return Ok(false) };
    let digits = name.strip_prefix("run-").and_then(|name| name.strip_suffix(".run"));
    let is_run = digits.and_then(|digits| digits.parse().ok()).is_some_and(|number| run_name(number) == name);
    let magic = if is_run { sorted_run::MAGIC } else { MAGIC };
    if !is_run && ![MANIFEST, UNFINISHED].contains(&name) {
        return Ok(false);
    }
    if disk.metadata(path).during("look at", path)?.is_none_or(|found| found.is_dir) {
        return Ok(false);
    }
    let file = disk.open(path).during("open for reading", path)?;
    let mut start = magic;
    let len = file.len().during("measure", path)?.min(start.len() as u64) as usize;
    let (start, _) = start.split_at_mut(len);
    file.read_exact_at(start, 0).during("read", path)?;
    // A power cut can leave zeros where bytes were not synced.
    Ok(magic.starts_with(start) || start.iter().all(|&byte| byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::RealDisk;
    use proptest::prelude::*;

    fn small() -> Checkpoint {
        Checkpoint {
            network: Network::Signet,
            chain: [1; 32],
            settings: [2; 32],
            blocks: 70,
            completed: vec![u64::MAX, 0b10_0001],
            files: vec![FileStamp {
                file: FileNo(3),
                blk: Stamp { len: 1 << 40, modified: -5 },
                rev: Stamp { len: 0, modified: i64::MAX },
            }],
            runs: vec![
                SortedRunRef { number: 7, level: 2, bytes: 11_400, entries: 3, checksum: 0xdead_beef },
                SortedRunRef { number: 1, ..SortedRunRef::default() },
            ],
            next_run: 8,
            coinbase_key: (3, u64::MAX),
            coinbases: vec![5, 4],
            counts: vec![9],
        }
    }

    fn error(dir: &Path) -> String {
        Checkpoint::read(&RealDisk, dir).unwrap_err().to_string()
    }

    proptest! {
        #[test]
        fn checkpoints_round_trip(
            network in prop::sample::select(&Network::ALL[..]),
            hashes in any::<([u8; 32], [u8; 32])>(),
            bits in prop::collection::vec(any::<bool>(), 0..300),
            files in prop::collection::vec(any::<(u32, (u64, i64), (u64, i64))>(), 0..20),
            runs in prop::collection::vec((0u64..1000, any::<(u8, u64, u64, u32)>()), 0..20),
            coinbase_key in any::<(u64, u64)>(),
            coinbases in prop::collection::vec(any::<u64>(), 0..20_000),
            counts in prop::collection::vec(any::<u64>(), 0..20),
        ) {
            let mut completed = vec![0; bits.len().div_ceil(64)];
            for (height, _) in bits.iter().enumerate().filter(|(_, is_completed)| **is_completed) {
                completed[height / 64] |= 1 << (height % 64);
            }
            let stamp = |(len, modified)| Stamp { len, modified };
            let file = |&(number, blk, rev)| {
                FileStamp { file: FileNo(number), blk: stamp(blk), rev: stamp(rev) }
            };
            let run = |&(number, (level, bytes, entries, checksum))| {
                SortedRunRef { number, level, bytes, entries, checksum }
            };
            let checkpoint = Checkpoint {
                network,
                chain: hashes.0,
                settings: hashes.1,
                blocks: bits.len() as u32,
                completed,
                files: files.iter().map(file).collect(),
                runs: runs.iter().map(run).collect(),
                next_run: 1000,
                coinbase_key,
                coinbases,
                counts,
            };
            let dir = tempfile::tempdir().unwrap();
            prop_assert_eq!(Checkpoint::read(&RealDisk, dir.path()).unwrap(), None);
            small().write(&RealDisk, dir.path()).unwrap();
            checkpoint.write(&RealDisk, dir.path()).unwrap();
            prop_assert_eq!(Checkpoint::read(&RealDisk, dir.path()).unwrap(), Some(checkpoint));
            Checkpoint::remove(&RealDisk, dir.path()).unwrap();
            prop_assert_eq!(Checkpoint::read(&RealDisk, dir.path()).unwrap(), None);
        }
    }

    #[test]
    fn refuses_every_altered_or_truncated_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(MANIFEST);
        small().write(&RealDisk, dir.path()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, flipped).unwrap();
            assert!(error(dir.path()).contains("manifest"), "bit {bit} is flipped");
        }
        for len in 0..bytes.len() {
            std::fs::write(&path, &bytes[..len]).unwrap();
            let error = error(dir.path());
            assert!(error.contains("truncated") || len < MAGIC.len(), "{len} bytes are left: {error}");
        }
        std::fs::write(&path, [&bytes[..], &[0]].concat()).unwrap();
        assert!(error(dir.path()).contains("bytes were added"));
    }

    /// Reads a changed manifest whose checksum is right again, and returns the error: only the content can be
    /// refused.
    fn error_with_valid_checksum(dir: &Path, change: impl FnOnce(&mut Vec<u8>)) -> String {
        small().write(&RealDisk, dir).unwrap();
        let path = dir.join(MANIFEST);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.truncate(bytes.len() - CHECKSUM_LEN);
        change(&mut bytes);
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        error(dir)
    }

    #[test]
    fn each_defect_has_its_own_error() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |at: usize, byte: u8| error_with_valid_checksum(dir.path(), |bytes| bytes[at] = byte);
        assert!(refused(0, b'Q').contains("manifest at byte 0: not a peregrine checkpoint"));
        assert!(refused(8, 1).ends_with(
            "manifest: written by another version of peregrine (format 1, this one reads 2); \
            pass --restart to start over"
        ));
        assert!(refused(12, 0).contains("an unknown network"));
        // Counts of blocks, files, runs, coinbases, counters that exceed the file.
        let counts = FIXED_LEN - 20;
        for field in 0..5 {
            let error = refused(counts + 4 * field + 3, 0xff);
            assert!(error.contains("ends early"), "field {field}: {error}");
        }
        assert!(refused(counts, 69).contains("bits of completed blocks"), "the 70th is completed");
        assert!(refused(counts + 16, 0).contains("manifest at byte 0: 8 "), "8 bytes are left");
        assert!(refused(counts - 8, 7).contains("a run whose number is not used yet"));

        let beyond = Checkpoint { blocks: 129, ..small() };
        assert!(matches!(beyond.write(&RealDisk, dir.path()), Err(DiskError::CallerError { .. })));
    }

    #[test]
    fn only_the_owner_can_read_the_secret_key() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(UNFINISHED), b"left by a crash").unwrap();
        small().write(&RealDisk, dir.path()).unwrap();
        let mode = std::fs::metadata(dir.path().join(MANIFEST)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!format!("{:?}", small()).contains(&u64::MAX.to_string()));
    }

    #[test]
    fn work_files_are_recognised_by_name_and_first_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let is_work_file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            super::is_work_file(&RealDisk, &path).unwrap()
        };
        assert_eq!(sorted_run_path(dir.path(), 1), dir.path().join("run-00000001.run"));
        for number in [0, 1, 99_999_999, 100_000_000, u64::MAX] {
            // What a power cut can leave of a run: all, its beginning, an empty file, zeros.
            for bytes in [&b"PGRN-RUN and more"[..], b"PGRN", b"", &[0; 512]] {
                assert!(is_work_file(&run_name(number), bytes), "{number}");
            }
            assert!(!is_work_file(&run_name(number), b"notes of a user"), "{number}");
        }
        assert!([MANIFEST, UNFINISHED].iter().all(|name| is_work_file(name, b"PGRN-CKP")));
        assert!(!is_work_file(MANIFEST, b"1. bread, 2. milk"));
        for name in ["run-1.run", "run-00000001", "run-0000000x.run", "run-000000001.run", "manifest.old"] {
            assert!(!is_work_file(name, b"PGRN-RUN"), "{name}");
        }
        std::fs::create_dir(dir.path().join("run-00000007.run")).unwrap();
        assert!(!super::is_work_file(&RealDisk, &dir.path().join("run-00000007.run")).unwrap());
    }
}

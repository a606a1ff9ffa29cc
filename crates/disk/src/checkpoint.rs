//! `manifest`: the checkpoint from which an interrupted rebuild resumes, and the names of its work files.
//!
//! Peregrine's own format. The engine writes it at each checkpoint, and reads it when the same command is run
//! again.
//!
//! ```text
//! magic 8 "PGRN-CKP" | version 4 | file length 8 | network's message magic 4 | length of text 1 | text: the
//! version of the program | chain 32 | settings 32 | number of files 4
//!   | files: number 4, length and modification time of the blk file 8, 8, of the rev file 8, 8
//! | number of runs 4 | runs: number 8, level 1, bytes 8, entries 8, checksum 4 | next run 8
//! | state: number of blocks 4 | number of words 4 | completed: words of 8, one for each 64 blocks
//!   | blocks 8 | transactions 8 | inputs 8 | outputs 8 | bytes of blocks 8 | inputs whose scripts were run 8
//!   | key of the coinbase hashes 8, 8 | number of coinbases 4 | coinbases: 8 each
//!   | matching 1: 0 (join)
//!     | or 1 (hints) | key of the sum 32 | burned 8 | length of the sum 4 | sum
//!   | number of lengths 4: 0, or that of the blocks | length of the undo data made, or 0: 4 for each block
//! | checksum 4: CRC-32C of all before
//! ```
//! Integers are little-endian. A mainnet manifest has 8 MB, nearly all of it coinbase hashes. The two keys
//! are secrets, because they allow making hashes and sums collide: only the owner may read the file. Version
//! 1 had no list of files; version 2 did not name its counts, and had what belongs to the matching among
//! them; version 3 did not know undo data that is made; version 4 knew none beside hints; version 5 had
//! another order; version 6 did not name the version of the program; version 7 did not count the words.
//!
//! A manifest is written under another name, synced, and renamed over the one before; then the directory is
//! synced. After a crash, the old or the new one exists, and possibly an unfinished new one, which is removed
//! at the next write. The files that a manifest lists must be synced before it is written. Runs that it does
//! not list are leftovers ([`is_work_file`]).

mod state;

pub use state::{SavedMatching, SavedState};

use crate::datadir::Datadir;
use crate::error::DiskError;
use crate::pack::pack_fields;
use crate::sealed::{Flaw, Seal, Sealed};
use crate::{scratch_file, sorted_run};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use vfs::{AtomicFile, Disk, During as _, Metadata, remove_if_there};
use wire::{FileNo, Network};

const MANIFEST: &str = "manifest";
/// Name of the file with coins on the way to their spenders, which no manifest lists.
const DELIVERIES: &str = "deliveries.tmp";
/// Suffix of the names of files with rows of indexes that are not sorted yet.
pub const ROWS_SUFFIX: &str = ".rows";
/// Name of a manifest that is being written.
const UNFINISHED: &str = "manifest.new";

const MAGIC: [u8; 8] = *b"PGRN-CKP";
/// Maximum length of a manifest, which is read at once, in bytes: enough for a chain with 30 million blocks.
const MAX_LEN: u64 = 256 << 20;

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

pack_fields!(SortedRunRef { number, level, bytes, entries, checksum });

/// Length and modification time of a file, to detect changes. Zeros if the file does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// Length in bytes.
    pub len: u64,
    /// [`Metadata::modified`].
    pub modified: i64,
}

pack_fields!(Stamp { len, modified });

/// The stamps of a `blk` file and its `rev` file from the time when their blocks were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileStamp {
    pub file: FileNo,
    pub blk: Stamp,
    pub rev: Stamp,
}

pack_fields!(FileStamp { file, blk, rev });

impl FileStamp {
    /// Returns the current stamps of the files with number `file` in a datadir.
    pub fn now(disk: &dyn Disk, datadir: &Datadir, file: FileNo) -> Result<Self, DiskError> {
        let stamp = |path: PathBuf| -> Result<Stamp, DiskError> {
            let found = disk.metadata(&path).during("look at", &path)?;
            Ok(found.map_or(Stamp::default(), |Metadata { len, modified, .. }| Stamp { len, modified }))
        };
        Ok(Self { file, blk: stamp(datadir.blk_path(file))?, rev: stamp(datadir.rev_path(file))? })
    }
}

/// The state of an interrupted rebuild, from which it resumes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    pub network: Network,
    /// The version of the program, whose rules the completed blocks were checked by.
    pub version: String,
    /// Digest of the completed blocks.
    pub chain: [u8; 32],
    /// Digest of the options that must be the same when the rebuild resumes.
    pub settings: [u8; 32],
    /// The block files, as they were before the completed blocks were read, or after those of a download were
    /// written.
    pub files: Vec<FileStamp>,
    /// The sorted runs with the unmatched entries.
    pub runs: Vec<SortedRunRef>,
    /// The lowest number that no run has used.
    pub next_run: u64,
    /// The state of the completed blocks, besides the entries in the runs.
    pub state: SavedState,
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
        let bytes = self.seal(&path)?;
        remove_if_there(disk, &unfinished)?;
        let file = disk.create_private(&unfinished).during_creation(&unfinished)?;
        let mut file = AtomicFile::new(disk, unfinished, &path, file);
        file.write_all(&bytes)?;
        Ok(file.commit()?)
    }

    /// Reads the manifest of `dir`. Returns `None` if there is none.
    ///
    /// # Errors
    /// [`DiskError::DamagedWorkFile`] if another version wrote it, or if it is not a manifest, truncated, or
    /// altered; [`DiskError::File`].
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, DiskError> {
        let path = dir.join(MANIFEST);
        if !disk.exists(&path).during("look at", &path)? {
            return Ok(None);
        }
        let bytes = disk.read(&path, MAX_LEN).during("read", &path)?;
        match Self::unseal(&bytes) {
            Ok(checkpoint) => Ok(Some(checkpoint)),
            Err(flaw) => {
                let is_other = matches!(flaw, Flaw::Version { .. });
                let (offset, end) = if is_other { (8, "") } else { (0, "; the file is damaged") };
                Err(DiskError::DamagedWorkFile { path, offset, flaw: format!("{flaw}{end}") })
            }
        }
    }

    /// Removes the manifest of `dir` if there is one, so that the next job starts over.
    pub fn remove(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
        let path = dir.join(MANIFEST);
        if remove_if_there(disk, &path)? {
            disk.sync_dir(dir).during("sync", dir)?;
        }
        Ok(())
    }
}

pack_fields!(Checkpoint { network, version, chain, settings, files, runs, next_run, state });

impl Sealed for Checkpoint {
    const SEAL: Seal = Seal { magic: MAGIC, version: 8, what: "a peregrine checkpoint" };
    const STATES_LENGTH: bool = true;

    fn check(&self) -> Result<(), &'static str> {
        self.state.check()?;
        if self.runs.iter().any(|run| run.number >= self.next_run) {
            return Err("it lists a run whose number is not used yet");
        }
        check_list_lengths(&[self.files.len(), self.runs.len()])
    }
}

fn check_list_lengths(lengths: &[usize]) -> Result<(), &'static str> {
    match lengths.iter().all(|&length| u32::try_from(length).is_ok()) {
        true => Ok(()),
        false => Err("a list in it has 2^32 or more items"),
    }
}

/// Returns the path of the sorted run `number` in `dir`: `run-00000001.run`.
pub fn sorted_run_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(run_name(number))
}

/// Returns the path of the file in `dir` for data that is divided by parts of the chain, such as coins on the
/// way to their spenders.
pub fn parts_path(dir: &Path) -> PathBuf {
    dir.join(DELIVERIES)
}

fn run_name(number: u64) -> String {
    format!("run-{number:08}.run")
}

/// Whether a file in the work directory was written by a rebuild, by its name and first bytes: a manifest,
/// finished or not, a run, deliveries, or rows of indexes. Those that no manifest lists can be removed.
pub fn is_work_file(disk: &dyn Disk, path: &Path) -> Result<bool, DiskError> {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else { return Ok(false) };
    let digits = name.strip_prefix("run-").and_then(|name| name.strip_suffix(".run"));
    let is_run = digits.and_then(|digits| digits.parse().ok()).is_some_and(|number| run_name(number) == name);
    let magic = match name {
        MANIFEST | UNFINISHED => MAGIC,
        DELIVERIES => scratch_file::MAGIC,
        _ if name.ends_with(ROWS_SUFFIX) => scratch_file::MAGIC,
        _ if is_run => sorted_run::MAGIC,
        _ => return Ok(false),
    };
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
    use crate::sealed::with_checksum;
    use digest::{sha256::sha256, siphash::SipKey};
    use hex_conservative::DisplayHex as _;
    use vfs::RealDisk;

    fn small() -> Checkpoint {
        Checkpoint {
            network: Network::Signet,
            version: "1.2.3".to_owned(),
            chain: [1; 32],
            settings: [2; 32],
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
            state: SavedState {
                blocks: 70,
                completed: vec![u64::MAX, 0b10_0001],
                counts: [9, 8, 7, 6, 5, 4],
                coinbase_key: SipKey(3, u64::MAX),
                coinbases: vec![5, 4],
                matching: SavedMatching::Hints { key: [77; 32].into(), burned: 3, sum: vec![2, 1, 0] },
                made: vec![6; 70],
            },
        }
    }

    fn error(dir: &Path) -> String {
        Checkpoint::read(&RealDisk, dir).unwrap_err().to_string()
    }

    #[test]
    fn checkpoints_round_trip() {
        type Change = fn(&mut Checkpoint);
        let changes: [Change; 9] = [
            |_| {},
            |it| it.network = Network::Testnet4,
            |it| it.files = (0..20).map(|at| FileStamp { file: FileNo(at), ..it.files[0] }).collect(),
            |it| it.files.clear(),
            |it| it.runs.clear(),
            |it| (it.state.blocks, it.state.completed, it.state.made) = (0, vec![], vec![]),
            |it| it.state.coinbases = (0..20_000).collect(),
            |it| it.state.matching = SavedMatching::Join,
            |it| it.state.made.clear(),
        ];
        for change in changes {
            let mut checkpoint = small();
            change(&mut checkpoint);
            let dir = tempfile::tempdir().unwrap();
            assert_eq!(Checkpoint::read(&RealDisk, dir.path()).unwrap(), None);
            small().write(&RealDisk, dir.path()).unwrap();
            checkpoint.write(&RealDisk, dir.path()).unwrap();
            assert_eq!(Checkpoint::read(&RealDisk, dir.path()).unwrap(), Some(checkpoint));
            Checkpoint::remove(&RealDisk, dir.path()).unwrap();
            assert_eq!(Checkpoint::read(&RealDisk, dir.path()).unwrap(), None);
        }
    }

    #[test]
    fn the_bytes_of_a_manifest_are_those_of_its_version() {
        let dir = tempfile::tempdir().unwrap();
        let join = SavedState { matching: SavedMatching::Join, made: Vec::new(), ..small().state };
        for (state, expected) in [
            (small().state, "9cfc3b485d8ecade6679b3e1f1390653d8eab5d6863180c6cd39d2937ac2f1f1"),
            (join, "47e38b82c03ea6fdf24a6f79b3799428e7cec4f8e8ebbed1e462361db50fa610"),
        ] {
            Checkpoint { state, ..small() }.write(&RealDisk, dir.path()).unwrap();
            let bytes = std::fs::read(dir.path().join(MANIFEST)).unwrap();
            assert_eq!(sha256(&bytes).to_lower_hex_string(), expected);
        }
    }

    #[test]
    fn a_manifest_of_another_length_is_refused_for_that() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(MANIFEST);
        small().write(&RealDisk, dir.path()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
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
        bytes.truncate(bytes.len() - 4);
        change(&mut bytes);
        std::fs::write(&path, with_checksum(bytes)).unwrap();
        error(dir)
    }

    #[test]
    fn each_defect_has_its_own_error() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |at: usize, byte: u8| error_with_valid_checksum(dir.path(), |bytes| bytes[at] = byte);
        assert!(refused(0, b'Q').contains("manifest at byte 0: this is not a peregrine checkpoint"));
        assert!(refused(8, 1).ends_with(
            "manifest at byte 8: written by another version of peregrine (format 1, this one reads 8)"
        ));
        assert!(refused(20, 0).contains("an unknown network"));
        let files = 8 + 4 + 8 + 4 + (1 + 5) + 2 * 32;
        let runs = files + 4 + (4 + 4 * 8);
        let state = runs + 4 + 2 * (8 + 1 + 8 + 8 + 4) + 8;
        let completed = state + 4;
        let coinbases = completed + 4 + 2 * 8 + 6 * 8 + 2 * 8;
        let matching = coinbases + 4 + 2 * 8;
        // Numbers of files, runs, words, coinbases, and bytes of the sum that exceed the file.
        for field in [files, runs, completed, coinbases, matching + 1 + 32 + 8] {
            let error = refused(field + 3, 0xff);
            assert!(error.contains("ends early"), "field at byte {field}: {error}");
        }
        assert!(refused(state, 69).contains("bits of completed blocks"), "the 70th is completed");
        assert!(refused(state + 3, 0xff).contains("bits of completed blocks"), "of more blocks");
        assert!(refused(matching, 0).contains("ends early"), "the key is a number of lengths");
        assert!(refused(matching, 2).contains("its method of matching is unknown"));
        let made = matching + 1 + 32 + 8 + 4 + 3;
        assert!(refused(made, 71).contains("ends early"), "70 blocks have lengths of undo data");
        assert!(refused(made, 0).contains("manifest at byte 0: 280 "), "280 bytes are left");
        assert!(refused(state - 8, 7).contains("a run whose number is not used yet"));

        let beyond = SavedState { blocks: 129, ..small().state };
        let few_made = SavedState { made: vec![1; 69], ..small().state };
        for state in [beyond, few_made] {
            let written = Checkpoint { state, ..small() }.write(&RealDisk, dir.path());
            assert!(matches!(written, Err(DiskError::CallerError { .. })));
        }
    }

    /// A rebuild with hints wrote this checkpoint of version 2 when it was interrupted.
    #[test]
    fn refuses_a_checkpoint_of_the_version_before() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/checkpoint-version-2");
        assert!(error(&dir).ends_with(
            "manifest at byte 8: written by another version of peregrine (format 2, this one reads 8)"
        ));
    }

    #[test]
    fn only_the_owner_can_read_the_secret_keys() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(UNFINISHED), b"left by a crash").unwrap();
        small().write(&RealDisk, dir.path()).unwrap();
        let mode = std::fs::metadata(dir.path().join(MANIFEST)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let printed = format!("{:?}", small());
        assert!(!printed.contains(&u64::MAX.to_string()) && !printed.contains("77, 77"), "{printed}");
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

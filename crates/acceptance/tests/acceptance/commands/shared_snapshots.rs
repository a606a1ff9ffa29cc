//! Snapshots in chunks: what is cut joins to the bytes that Core's `dumptxoutset` wrote, however it was cut.

use acceptance::prelude::*;
use digest::sha256::sha256d;
use engine::snapshot::{CHUNK_LEN, FetchOptions, FetchedSnapshotReport, SharedSnapshotReport};

/// Length of a chunk, so that small sets have many.
pub const SMALL: u64 = 1000;

fn share_on(
    disk: &dyn Disk,
    options: &ReindexOptions,
    heights: &[u32],
    output: &Path,
    watch: Watch<'_>,
) -> Result<Vec<SharedSnapshotReport>, Error> {
    let heights = heights.iter().copied().map(Height).collect();
    engine::snapshot::share(disk, &options.chain, &heights, output, watch)
}

fn share(options: &ReindexOptions, heights: &[u32], output: &Path) -> Vec<SharedSnapshotReport> {
    share_on(&FaultDisk::healthy(), options, heights, output, unwatched()).unwrap()
}

fn in_chunks(options: &ReindexOptions, chunk_len: u64) -> ReindexOptions {
    changed(options.clone(), |it| it.chain.hooks.chunk_len = chunk_len)
}

pub fn from(file: &Path, output: &Path) -> Result<SharedSnapshotReport, Error> {
    engine::snapshot::share_file(&FaultDisk::healthy(), file, output, SMALL, unwatched())
}

pub fn fetching(sources: &[&Path], output: &Path) -> FetchOptions {
    FetchOptions {
        sources: sources.iter().map(|path| FileSource::Path(path.to_path_buf())).collect(),
        output: output.to_owned(),
        root: None,
        trust_sources: false,
        threads: NonZeroUsize::new(2).unwrap(),
        chunk_len: SMALL,
    }
}

pub fn fetch(options: &FetchOptions) -> Result<FetchedSnapshotReport, Error> {
    engine::snapshot::fetch(&FaultDisk::healthy(), options, unwatched())
}

pub fn part(output: &Path) -> PathBuf {
    vfs::unfinished::temporary(output, ".peregrine-fetch")
}

/// A snapshot of the last block of the chain, and the folder with its chunks.
pub struct Shared {
    _dir: TempDir,
    pub report: SharedSnapshotReport,
    file: PathBuf,
}

impl Shared {
    pub fn of_chain() -> &'static Self {
        static SHARED: OnceLock<Shared> = OnceLock::new();
        SHARED.get_or_init(|| {
            let (dir, file) = snapshot_at(TIP);
            let report = from(&file, &dir.path().join("sets")).unwrap();
            Self { _dir: dir, report, file }
        })
    }

    pub fn bytes(&self) -> Vec<u8> {
        fs::read(&self.file).unwrap()
    }

    pub fn chunk(&self, index: u64) -> Vec<u8> {
        let bytes = self.bytes();
        bytes.chunks(SMALL as usize).nth(index as usize).unwrap().to_vec()
    }

    /// A copy of the folder, as a source.
    pub fn copy(&self, files: &TempDir, name: &str) -> PathBuf {
        let to = files.path().join(name);
        fs::create_dir(&to).unwrap();
        for entry in fs::read_dir(&self.report.folder).unwrap().map(Result::unwrap) {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        to
    }

    /// Options that name the root.
    pub fn fetching(&self, sources: &[&Path], output: &Path) -> FetchOptions {
        FetchOptions { root: Some(self.report.merkle_root), ..fetching(sources, output) }
    }
}

/// The root, level by level and independently of the product.
fn model_root(bytes: &[u8], chunk_len: usize) -> [u8; 32] {
    let mut level: Vec<[u8; 32]> = bytes.chunks(chunk_len).map(sha256d).collect();
    while level.len() > 1 {
        let odd = (level.len() % 2 == 1).then(|| level.pop().unwrap());
        level = level.chunks(2).map(|pair| sha256d(&pair.concat())).collect();
        level.extend(odd);
    }
    level[0]
}

/// Asserts that the chunks of snapshots, which one pass makes, join to the files of these heights, whose
/// coins have these hashes.
pub fn assert_chunks_join(base: &ReindexOptions, made: &BTreeMap<u32, (Vec<u8>, [u8; 32])>, what: &str) {
    let files = scratch();
    let heights: Vec<u32> = made.keys().copied().collect();
    for (threads, chunk_len) in [(2, CHUNK_LEN), (1, 4096)] {
        let output = files.path().join(chunk_len.to_string());
        let reports = share(&in_chunks(&with_threads(base, threads), chunk_len), &heights, &output);
        assert_eq!(reports.len(), made.len(), "{what}");
        for (report, (height, (expected, hash))) in reports.iter().zip(made) {
            let what = format!("{what} {height} {chunk_len}");
            let network = base.chain.params.network;
            assert_eq!((report.height, report.network), (Some(Height(*height)), network), "{what}");
            assert_eq!(report.folder, output.join(format!("{height}-{}", report.hash)), "{what}");
            let joined = output.join(format!("{height}.dat"));
            let from_folder = fetching(&[&report.folder], &joined);
            let options = FetchOptions { root: Some(report.merkle_root), chunk_len, ..from_folder };
            let fetched = fetch(&options).unwrap();
            assert!(fs::read(&joined).unwrap() == *expected, "{what}");
            assert_eq!(report.merkle_root, model_root(expected, chunk_len as usize), "{what}");
            assert_eq!(report.bytes, expected.len() as u64, "{what}");
            assert_eq!((fetched.coins, fetched.hash), (report.coins, report.hash), "{what}");
            assert_eq!([fetched.hash_serialized_3, report.hash_serialized_3], [*hash; 2], "{what}");
        }
    }
}

/// One pass over several heights gives the folders of single passes, for any threads and memory.
#[test]
fn several_heights_in_one_pass_equal_single_runs() {
    let (case, files) = (Case::new(), scratch());
    let (before, heights) = (tree(case.root()), [0, 1, 77, TIP - 1, TIP]);
    let options = in_chunks(&case.options(), SMALL);
    let single = files.path().join("single");
    for height in heights {
        share(&options, &[height], &single);
    }
    let expected = acceptance::files(&single);
    for (number, threads) in THREADS.into_iter().enumerate() {
        let output = files.path().join(format!("several-{threads}"));
        let options = changed(with_threads(&options, threads), |it| {
            it.chain.hooks.join_bytes = (number != 1).then_some(1);
            it.chain.memory_bytes =
                if number == 0 { engine::machine::MIN_MEMORY } else { it.chain.memory_bytes };
            it.chain.scan = number == 2;
        });
        let reports = share(&options, &heights, &output);
        assert!(acceptance::files(&output) == expected, "{threads} threads");
        let mut transactions = 0;
        let mut counts = chain().main().map(|block| {
            transactions += wire::BlockArena::default().parse(&block.bytes).unwrap().tx_count() as u64;
            (block.height, transactions)
        });
        for report in &reports {
            let count = counts.find(|(height, _)| Some(Height(*height)) == report.height).unwrap().1;
            assert_eq!(report.chain_transactions, Some(count), "{:?}", report.height);
            let text = report.chain_params();
            let words = [
                format!("{{.height = {}, ", report.height.unwrap()),
                format!(".m_chain_tx_count = {count}, "),
                format!(
                    ".hash_serialized = AssumeutxoHash{{uint256{{\"{}\"}}}}",
                    hex_reversed(&report.hash_serialized_3)
                ),
                format!(".blockhash = uint256{{\"{}\"}}", report.hash),
                format!(".merkle_root = uint256{{\"{}\"}}}},", hex_reversed(&report.merkle_root)),
            ];
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }
    assert_same_tree(&before, case.root(), "the datadir is only read");
    // As a run leaves it that is killed at its end.
    write_file(files.path().join("work/peregrine-work-0-7/peregrine.lock"), "");
    let options = changed(options, |it| it.chain.work_dir = Some(files.path().join("work")));
    let again = share_on(&FaultDisk::healthy(), &options, &[77], &single, unwatched());
    let error = assert_says(again, &["77-", "this snapshot is there already"]);
    assert_offers(&error, &[Remedy::MoveAway]);
    assert_eq!(leftovers(&files.path().join("work")), [] as [PathBuf; 0]);
    let none = share_on(&FaultDisk::healthy(), &options, &[], &single, unwatched());
    let words = ["ends at height 140", "is 14112, from a chain of 16128 blocks on"];
    assert_fails(none, ErrorKind::Usage, &words);
}

/// After an interrupt, the same command was refused: a snapshot of the first height was there already.
#[test]
fn a_repeated_command_keeps_the_folders_that_are_complete() {
    let (case, files, tip) = (Case::new(), scratch(), chain().tip().height);
    let (options, both) = (in_chunks(&case.options(), SMALL), [70, tip]);
    let expected = share(&options, &both, &files.path().join("at once"));
    let output = files.path().join("sets");
    share(&options, &[70], &output);
    let kept = tree(&output);
    let reports = share(&options, &both, &output);
    assert_eq!(reports.len(), 2);
    for (report, expected) in reports.iter().zip(&expected) {
        let facts = |it: &SharedSnapshotReport| (it.bytes, it.chunks, it.merkle_root, it.chain_params());
        assert_eq!(facts(report), facts(expected));
    }
    assert!(kept.iter().all(|(path, bytes)| tree(&output).get(path) == Some(bytes)));
    // A folder with the tree of another block is not taken for complete.
    fs::rename(reports[1].folder.join("utxotree"), reports[0].folder.join("utxotree")).unwrap();
    fs::remove_dir_all(&reports[1].folder).unwrap();
    let again = share_on(&FaultDisk::healthy(), &options, &both, &output, unwatched());
    assert_fails(again, ErrorKind::Damaged, &["its utxotree is that of block"]);
}

/// A damaged tree was found after the pass over the blocks, and other chunks never: their root was reported
/// with the hash of the coins.
#[test]
fn a_folder_that_is_kept_has_the_coins_that_are_reported() {
    let (case, files, tip) = (Case::new(), scratch(), chain().tip().height);
    let (options, output) = (in_chunks(&case.options(), SMALL), files.path().join("sets"));
    let folder = share(&options, &[70], &output).remove(0).folder;
    let nowhere = changed(options.clone(), |it| it.chain.datadir = files.path().join("nowhere"));
    let damaged = |name: &str, options: &ReindexOptions, damage: fn(&Path), words: &str| {
        let path = folder.join(name);
        let bytes = fs::read(&path).unwrap();
        damage(&path);
        let done = share_on(&FaultDisk::healthy(), options, &[70, tip], &output, unwatched());
        assert_offers(&assert_fails(done, ErrorKind::Damaged, &[words]), &[Remedy::MoveAway]);
        fs::write(&path, bytes).unwrap();
    };
    damaged("utxotree", &nowhere, |path| truncate(path, 50).unwrap(), "8 bytes of leaves follow");
    for name in ["utxotree", "000001.chunk"] {
        let words = "is not the snapshot of these coins";
        damaged(name, &options, |path| flip_bit(path, 60, 0).unwrap(), words);
    }
    assert_eq!(share(&options, &[70, tip], &output).len(), 2);
}

/// A file of both forms is cut into the same chunks, without the height.
#[test]
fn a_file_is_cut_as_the_blocks_are() {
    let (shared, case, files) = (Shared::of_chain(), Case::new(), scratch());
    let of_blocks = share(&in_chunks(&case.options(), SMALL), &[TIP], &files.path().join("blocks"));
    assert_eq!(of_blocks[0].merkle_root, shared.report.merkle_root);
    assert_eq!(of_blocks[0].hash_serialized_3, shared.report.hash_serialized_3);
    assert_eq!((shared.report.height, shared.report.chain_transactions), (None, None));
    assert!(shared.report.folder.ends_with(shared.report.hash.to_string()));
    let draft = files.path().join("draft.dat");
    fs::write(&draft, with_height(&shared.bytes(), TIP)).unwrap();
    let report = from(&draft, &files.path().join("draft")).unwrap();
    assert_eq!(report.merkle_root, shared.report.merkle_root);
    assert_eq!(report.height, Some(Height(TIP)), "as the file states");
    for cut in [shared.bytes().len() - 1, 60] {
        fs::write(&draft, &shared.bytes()[..cut]).unwrap();
        assert_fails(from(&draft, &files.path().join("cut")), ErrorKind::Damaged, &[]);
        assert!(!files.path().join("cut").exists(), "an empty folder was once left");
    }
}

/// The same file with the height before the block's hash, as the draft of BIP 452 has it.
pub fn with_height(core: &[u8], height: u32) -> Vec<u8> {
    [&core[..11], &height.to_le_bytes(), &core[11..]].concat()
}

/// At each operation: a fault, an interrupt, a power cut. A folder with its name is complete.
#[test]
fn no_folder_looks_complete_that_is_not() {
    let case = Case::new();
    let (options, heights) = (in_chunks(&case.options(), 20_000), [70, TIP]);
    let complete = scratch();
    share(&options, &heights, complete.path());
    let check = |output: &Path, what: &str| {
        for entry in fs::read_dir(output).into_iter().flatten().map(Result::unwrap) {
            let name = entry.file_name();
            if name.to_str().unwrap().ends_with(".peregrine-part") {
                continue;
            }
            let expected = fs::read_dir(complete.path().join(&name)).unwrap().map(Result::unwrap);
            for file in expected {
                let found = fs::read(entry.path().join(file.file_name())).unwrap();
                assert!(found == fs::read(file.path()).unwrap(), "{what} {:?}", file.path());
            }
        }
    };
    // The folder of a case has the work directory too.
    let of = |case: &Case| changed(options.clone(), |it| it.chain.work_dir = Some(case.root().to_owned()));
    let scenario = Scenario {
        before: &|| Case::of(scratch()),
        run: &|disk, case| {
            let output = case.root().join("out");
            share_on(disk, &of(case), &heights, &output, quiet(disk.interrupt())).map(drop)
        },
        is_whole: &|case, _, what| check(&case.root().join("out"), what),
        succeeds: &|_, _| {},
    };
    for trouble in [Trouble::NO_SPACE, Trouble::Interrupt] {
        let failures = scenario.suffer(trouble, 2, false);
        assert!(failures > 10, "{trouble:?}: {failures}");
    }
    let states = scenario.explore(Crashes { stride: 2, twice: false, ..Crashes::default() });
    assert!(states > 20, "{states}");
    // The user's own empty folder stays.
    let own = scratch();
    let interrupted =
        share_on(&FaultDisk::healthy(), &options, &heights, own.path(), quiet(&AtomicBool::new(true)));
    assert_eq!(interrupted.unwrap_err().kind, ErrorKind::Interrupted);
    assert!(own.path().exists());
}

//! Block files are deleted behind the download: the chainstate is the same, the files take little space, and
//! no block is downloaded twice after an interrupt.

use acceptance::prelude::*;
use acceptance::sync::{appears_beside, placed, run_on, try_run as run};
use disk::undo::checksum;
use testkit::corrupt::reopen;

/// A chain that is several times as long as what is kept.
pub fn long() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    CHAIN.get_or_init(|| {
        Chain::generate(&ChainSpec { blocks: Some(400), stale: false, ..ChainSpec::new(23, 600_000) })
    })
}

static TRUTH: LazyLock<Truth> = LazyLock::new(|| Truth::of(long()));

/// The height at which the rebuild ends: the last blocks are left to bitcoind.
pub const END: u32 = 398;
/// Number of last blocks that are kept.
const KEPT: u32 = 30;
/// Space for block files in bytes.
const SPACE: u64 = 300_000;
/// Length of a block file in bytes.
const FILE_LEN: u32 = 20_000;

pub fn peer() -> ScriptedPeer {
    peer_with(long().main())
}

pub fn pruned(root: &Path, peers: &[&ScriptedPeer]) -> SyncOptions {
    let mut options = SyncOptions { prune_bytes: Some(SPACE), ..from(root, peers) };
    options.chain.memory_bytes = 256 << 20;
    (options.chain.hooks.block_file_len, options.chain.hooks.undo_blocks) = (FILE_LEN, KEPT);
    options
}

/// The same options, or with hints up to a height, whose blocks are assumed valid: headers that bury them are
/// known.
fn with_hints(mut options: SyncOptions, dir: &Path, height: Option<u32>) -> SyncOptions {
    let Some(height) = height else { return options };
    let first = changed(SyncOptions { prune_bytes: None, blocks_only: true, ..options.clone() }, |it| {
        it.chain.stop_at_height = Some(Height(1))
    });
    run(&first).unwrap();
    bury(&options.chain.datadir.join("regtest/blocks/index"));
    let file = dir.join("hints");
    TRUTH.write(&file, HintFormat::Peregrine, &TRUTH.hints(height));
    options.hints = Some(hints_of(file, AggregateKind::Sha256));
    options.chain.stop_at_height = Some(Height(END));
    options.chain.assume_valid = AssumeValid::Block(TRUTH.hash(height));
    options
}

/// The last block of a download: with hints, [`with_hints`] chooses it.
fn end_of(hints: Option<u32>) -> u32 {
    if hints.is_some() { END } else { long().tip().height }
}

fn block_bytes(root: &Path) -> u64 {
    let Ok(files) = fs::read_dir(root.join("regtest/blocks")) else { return 0 };
    let is_blk = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("blk");
    files.flatten().filter(is_blk).filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

/// Asserts that the chainstate is right, and that bitcoind has what it needs of blocks and undo data.
fn assert_pruned(root: &Path, what: &str) {
    assert_pruned_to(long().tip().height, root, what);
}

/// Asserts the same of a download that ends at a height.
fn assert_pruned_to(to: u32, root: &Path, what: &str) {
    let stored = assert_index_is_true(root, what);
    let found = stats(root, Network::Regtest).unwrap();
    assert_eq!(found.best_block, TRUTH.hash(END), "{what}");
    let coins = stats_by_height(long())[END as usize].hash_serialized_3;
    assert_eq!(found.hash_serialized_3, coins, "{what}");
    let index = index(root);
    assert!(index.pruned, "{what}");
    assert!(stored.contains(&TRUTH.hash(0)), "{what}: bitcoind never downloads the genesis block");
    let (undo, expected) = (UndoFiles::read(root, Network::Regtest), Expected::of(long()));
    let mut deleted = 0;
    for block in long().main().take(to as usize + 1) {
        let entry = index.entries.iter().find(|entry| entry.hash == block.hash).unwrap();
        assert_eq!(entry.tx_count, block.txs, "{what}: {entry:?}");
        if !entry.status.has_data() {
            assert_eq!(entry.status.validity(), BlockStatus::VALID_SCRIPTS, "{what}: {entry:?}");
            assert!(block.height + KEPT < long().tip().height, "{what}: {entry:?}");
            deleted += 1;
        }
        if block.height + KEPT >= long().tip().height && block.height <= END {
            let (prev, _, bytes) = &expected.blocks[block.height as usize - 1];
            let expected = (&bytes[..], &checksum(prev, bytes)[..]);
            assert_eq!(undo.record(entry), Some(expected), "{what}: {entry:?}");
        }
    }
    assert!(deleted > 200, "{what}: {deleted} blocks deleted");
    for (number, info) in (0..).zip(&index.files) {
        // A power cut may have lost the name of a `rev` file that was still empty.
        for (kind, may_lack) in [("blk", false), ("rev", info.undo_size == 0)] {
            let path = root.join(format!("regtest/blocks/{kind}{number:05}.dat"));
            let exists = path.exists();
            assert!(exists == (info.size > 0) || may_lack && !exists, "{what}: {}", path.display());
        }
    }
    assert!(index.files.iter().map(|info| u64::from(info.size)).sum::<u64>() <= SPACE, "{what}");
    let work = root.join("regtest/peregrine-work");
    let work: Vec<_> = if work.exists() { tree(&work).into_keys().collect() } else { Vec::new() };
    assert_eq!(leftovers(root), [] as [&Path; 0], "{what} {work:?}");
}

#[test]
fn the_chainstate_is_the_same_and_the_files_take_little_space() {
    for threads in THREADS {
        for hints in [None, Some(300), Some(100)] {
            let what = format!("{threads} threads, hints to {hints:?}");
            let (dir, files, peer) = (scratch(), scratch(), peer());
            let mut options = pruned(dir.path(), &[&peer]);
            options.chain.threads = NonZeroUsize::new(threads).unwrap();
            let options = with_hints(options, files.path(), hints);
            let is_done = AtomicBool::new(false);
            let largest = AtomicU64::new(0);
            let report = thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        largest.fetch_max(block_bytes(dir.path()), Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(1));
                    }
                });
                let report = run(&options);
                is_done.store(true, Ordering::Relaxed);
                report.unwrap_or_else(|error| panic!("{what}: {error}"))
            });
            assert_eq!(report.chainstate_height, Some(Height(END)), "{what}");
            assert!(report.download.pruned > 200, "{what}: {:?}", report.download);
            // The last file is preallocated.
            let largest = largest.into_inner().saturating_sub(16 << 20);
            assert!(largest <= SPACE + 3 * u64::from(FILE_LEN), "{what}: {largest} bytes");
            assert_pruned_to(end_of(hints), dir.path(), &what);
            let asked = peer.asked().len();
            assert_eq!(run(&options).unwrap().rebuild.map(|_| ()), None, "{what}: it is done");
            assert_eq!(peer.asked().len(), asked, "{what}: nothing is downloaded again");
        }
    }
}

/// Downloads until `blocks` blocks were asked for, waits until files are deleted, and interrupts.
pub fn interrupted_at(options: &SyncOptions, peer: &ScriptedPeer, blocks: usize) {
    interrupt_at(options, peer, blocks, Duration::from_secs(1));
}

/// Also if bitcoind only starts in between: once, the run started over, and downloaded all blocks again.
#[test]
fn an_interrupted_run_continues_without_the_blocks_that_are_deleted() {
    for (hints, has_started) in [(None, false), (None, true), (Some(200), false)] {
        let what = format!("hints to {hints:?}, bitcoind has started: {has_started}");
        let (dir, files, peer) = (scratch(), scratch(), peer());
        let options = with_hints(pruned(dir.path(), &[&peer]), files.path(), hints);
        for blocks in [250, 330] {
            interrupted_at(&options, &peer, blocks);
            let stored = assert_index_is_true(dir.path(), &what);
            assert!(index(dir.path()).pruned && stored.len() < 200, "{what}: {}", stored.len());
            assert!(stored.contains(&TRUTH.hash(0)), "{what}");
            if has_started {
                reopen(&dir.path().join("regtest/blocks/index")).unwrap();
            }
        }
        run(&options).unwrap();
        assert_pruned_to(end_of(hints), dir.path(), &what);
        let asked: BTreeSet<BlockHash> = peer.asked().into_iter().collect();
        // What was asked for when the run was interrupted is asked for again.
        let again = peer.asked().len() - asked.len();
        assert!(again < 60, "{what}: {again} blocks were asked for twice");
    }
}

/// The advice was to fall back to a rebuild without hints, for which the blocks are deleted.
#[test]
fn with_wrong_hints_the_advice_is_a_download_without_pruning() {
    let (dir, files, peer) = (scratch(), scratch(), peer());
    let mut options = with_hints(pruned(dir.path(), &[&peer]), files.path(), Some(300));
    let (file, mut hints) = (files.path().join("wrong"), TRUTH.hints(300));
    // What the blocks above spend is called unspent.
    hints[..=250].clone_from_slice(&TRUTH.hints(250));
    TRUTH.write(&file, HintFormat::Peregrine, &hints);
    options.hints = Some(hints_of(file, AggregateKind::Sha256));
    let error = assert_fails(run(&options), ErrorKind::Hints, &["the sum of all coins"]);
    assert_eq!(error.remedies, [Remedy::WithoutHints, Remedy::WithoutPruning]);
}

/// Undo data of bitcoind was where that of the run would go: all blocks were downloaded again without a word.
#[test]
fn a_run_whose_undo_data_cannot_be_used_is_refused_until_it_may_start_over() {
    let (dir, peer) = (scratch(), peer());
    let mut options = pruned(dir.path(), &[&peer]);
    interrupted_at(&options, &peer, 300);
    let blocks = dir.path().join("regtest/blocks");
    let last = index(dir.path()).files.len() - 1;
    fs::write(blocks.join(format!("rev{last:05}.dat")), [0u8; 100]).unwrap();
    edit_index(&blocks.join("index"), |index| index.files[last].undo_size = 100).unwrap();
    assert_offers(&assert_fails(run(&options), ErrorKind::Usage, &["undo data"]), &[Remedy::StartOver]);
    options.chain.resume.restart = true;
    run(&options).unwrap();
    assert_pruned(dir.path(), "started over");
}

/// The work directory was on a disk that was not mounted: all blocks were downloaded again without a word.
#[test]
fn without_its_checkpoint_a_run_that_has_deleted_blocks_is_refused_until_it_may_start_over() {
    // With hints, no undo data is made at these heights.
    for hints in [None, Some(350)] {
        let (dir, files, peer) = (scratch(), scratch(), peer());
        let mut options = with_hints(pruned(dir.path(), &[&peer]), files.path(), hints);
        interrupted_at(&options, &peer, 300);
        fs::remove_dir_all(dir.path().join("regtest/peregrine-work")).unwrap();
        let words = ["its checkpoint is not here"];
        let error = refused_by(dir.path(), ErrorKind::Usage, &words, || run(&options));
        assert_eq!(error.remedies, [Remedy::RepeatOptions, Remedy::StartOver]);
        options.chain.resume.restart = true;
        let report = run(&options).unwrap();
        assert!(report.download.blocks > 250, "{:?}", report.download);
        assert_pruned_to(end_of(hints), dir.path(), "no checkpoint");
    }
}

/// It ends above the rebuild, which leaves the last blocks to bitcoind.
#[test]
fn a_chainstate_at_the_tip_whose_coins_cannot_be_read_is_replaced_by_a_lower_one() {
    let (dir, peer) = (scratch(), peer());
    let pruning = pruned(dir.path(), &[&peer]);
    run(&pruning).unwrap();
    engine::update(&FaultDisk::healthy(), &options(dir.path()).chain, unwatched()).unwrap();
    situation::cause("chainstate: a table flipped", dir.path(), dir.path());
    assert!(run(&pruning).unwrap().rebuild.is_some());
    assert_pruned(dir.path(), "replaced");
}

/// The error said that the first block, which is downloaded again, is in no file, and offered to rebuild the
/// chainstate from the blocks, which are deleted.
#[test]
fn a_last_block_below_a_chainstate_whose_coins_cannot_be_read_is_refused_before_the_download() {
    let (dir, peer) = (scratch(), peer());
    run(&pruned(dir.path(), &[&peer])).unwrap();
    situation::cause("chainstate: a table flipped", dir.path(), dir.path());
    let to = |height| {
        let it = pruned(dir.path(), &[&peer]);
        changed(it, |it| it.chain.stop_at_height = Some(Height(height)))
    };
    let words = ["reaches height 398", "would end at height 300"];
    let error = refused_by(dir.path(), ErrorKind::Usage, &words, || run(&to(300)));
    assert_eq!(error.remedies, [Remedy::StopAtHeight(Height(END))]);
    assert!(run(&to(END)).unwrap().rebuild.is_some());
    assert_eq!(stats(dir.path(), Network::Regtest).unwrap().best_block, TRUTH.hash(END));
}

#[test]
fn a_lost_block_that_the_checkpoint_has_is_reported() {
    let (dir, peer) = (scratch(), peer());
    let mut options = pruned(dir.path(), &[&peer]);
    interrupted_at(&options, &peer, 330);
    let index = index(dir.path());
    // Those in other files may not have been checked yet.
    let lowest = (0..index.files.len()).filter(|&number| index.files[number].height_last > 0);
    let lowest = lowest.min_by_key(|&number| index.files[number].height_last).unwrap();
    let lost = format!("regtest/blocks/blk{lowest:05}.dat");
    fs::remove_file(dir.path().join(lost)).unwrap();
    let error = run(&options).unwrap_err();
    assert_eq!((error.kind, &error.remedies[..]), (ErrorKind::Damaged, &[Remedy::StartOver][..]), "{error}");
    options.chain.resume.restart = true;
    run(&options).unwrap();
    assert_pruned(dir.path(), "started over");
}

/// The rebuild was stopped, and began anew, although the longer branch has all of its blocks.
#[test]
fn a_much_longer_branch_above_the_end_does_not_stop_the_rebuild() {
    let mut stale: Vec<_> = long().main().take(381).cloned().collect();
    stale[380] = sibling(&stale[380], 1, |_| {});
    let (dir, other, longer) = (scratch(), peer_with(&stale), peer());
    longer.set_offline(true);
    other.hold_at(100);
    let (report, _) = run_while(&pruned(dir.path(), &[&other, &longer]), |_| {
        wait_until("100 blocks", || other.asked().len() > 100);
        appears_beside(&other, &longer, 100..200);
        other.hold_at(usize::MAX);
    });
    let (expected, found) = (&stats_by_height(long())[379], stats(dir.path(), Network::Regtest).unwrap());
    assert_eq!((report.chainstate_height, report.height), (Some(Height(379)), Height(400)));
    assert_eq!((found.best_block, found.hash_serialized_3), (TRUTH.hash(379), expected.hash_serialized_3));
    let again = report.download.blocks.saturating_sub(401);
    assert_eq!((again, report.download.pruned > 200), (0, true), "{:?}", report.download);
}

#[test]
fn a_checkpoint_of_other_options_is_refused_and_can_be_discarded() {
    let (dir, peer) = (scratch(), peer());
    let mut options = pruned(dir.path(), &[&peer]);
    interrupted_at(&options, &peer, 300);
    let unpruned = SyncOptions { prune_bytes: None, ..options.clone() };
    assert_offers(&assert_fails(run(&unpruned), ErrorKind::Usage, &[]), &[Remedy::Prune]);
    options.chain.assume_valid = AssumeValid::Block(TRUTH.hash(50));
    assert_offers(&assert_fails(run(&options), ErrorKind::Usage, &[]), &[Remedy::StartOver]);
    options.chain.resume.restart = true;
    assert!(run(&options).unwrap().download.blocks > 250);
    assert_pruned(dir.path(), "started over");
}

#[test]
fn too_little_memory_and_hints_for_the_last_blocks_are_refused() {
    let (dir, files, peer) = (scratch(), scratch(), peer());
    let mut options = pruned(dir.path(), &[&peer]);
    options.chain.memory_bytes = 64 << 20;
    assert_offers(&assert_fails(run(&options), ErrorKind::Usage, &[]), &[Remedy::MoreMemory]);
    let other = scratch();
    let hinted = with_hints(pruned(other.path(), &[&peer]), files.path(), Some(390));
    assert_offers(&assert_fails(run(&hinted), ErrorKind::Usage, &[]), &[Remedy::WithoutHints]);
    assert_eq!(run(&pruned(dir.path(), &[&peer])).unwrap().chainstate_height, Some(Height(END)));
    assert_pruned(dir.path(), "after that");
}

#[test]
fn a_power_cut_leaves_what_the_next_run_completes() {
    let states = Scenario {
        before: &|| Case::of(scratch()),
        run: &|disk, case| run_on(disk, &pruned(case.root(), &[&peer()])).map(drop),
        is_whole: &|case, _, what| {
            placed(case.root(), what);
        },
        succeeds: &|case, what| {
            run(&pruned(case.root(), &[&peer()])).unwrap_or_else(|error| panic!("{what}, again: {error}"));
            assert_pruned(case.root(), what);
        },
    }
    .explore(Crashes { stride: 200, twice: false, ..Crashes::default() });
    assert!(states > 10, "{states}");
    // The lock of the work directory is the last thing that is removed.
    let dir = scratch();
    run(&pruned(dir.path(), &[&peer()])).unwrap();
    write_file(dir.path().join("regtest/peregrine-work/peregrine.lock"), "");
    run(&pruned(dir.path(), &[&peer()])).unwrap();
    assert_eq!(leftovers(dir.path()), [] as [&Path; 0]);
}

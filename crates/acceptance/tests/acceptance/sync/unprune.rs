//! The oldest blocks of a full datadir are deleted, and a pruned datadir becomes a full one. At any moment,
//! all is there that bitcoind needs.

use super::prune;
use crate::indexes::in_pass::{healthy, observe_for};
use acceptance::prelude::*;
use acceptance::sync::{run_on, try_run as run};
use testkit::corrupt::edit_rows;

/// Number of last blocks that are kept.
const KEPT: u32 = 10;

fn pruning(root: &Path, peer: &ScriptedPeer) -> SyncOptions {
    let mut options = SyncOptions { prune_bytes: Some(1), ..from(root, &[peer]) };
    options.chain.hooks.undo_blocks = KEPT;
    options
}

fn unpruning(root: &Path, peer: &ScriptedPeer) -> SyncOptions {
    let mut options = SyncOptions { unprune: true, ..from(root, &[peer]) };
    options.chain.hooks.block_file_len = 40_000;
    options
}

/// A datadir at its tip, whose oldest blocks were deleted.
fn pruned() -> Case {
    let (case, peer) = (Case::at_tip(), honest());
    let report = run(&pruning(case.root(), &peer)).unwrap();
    assert!(report.download.pruned > 50 && report.rebuild.is_none(), "{:?}", report.download);
    case
}

/// Asserts that a datadir is that of a pruned node on which bitcoind starts.
fn assert_pruned(root: &Path, what: &str) {
    let stored = assert_index_is_true(root, what);
    assert!(index(root).pruned, "{what}");
    let last = chain().main().skip((TIP - KEPT) as usize);
    assert!(last.map(|block| block.hash).all(|hash| stored.contains(&hash)), "{what}");
    for block in chain().main().skip(1) {
        let entry = index(root).entries.into_iter().find(|entry| entry.hash == block.hash).unwrap();
        // Core asserts that what is below a connected block was connected.
        assert_eq!(entry.status.validity(), BlockStatus::VALID_SCRIPTS, "{what}: {entry:?}");
        assert_eq!(entry.tx_count, block.txs, "{what}: {entry:?}");
    }
    assert_eq!(stats(root, Network::Regtest).unwrap().best_block, chain().tip().hash, "{what}");
}

fn assert_full(root: &Path, what: &str) {
    assert_sound(root, chain(), what);
    assert!(!index(root).pruned, "{what}");
    let is_deleted = |status: BlockStatus, txs| txs > 0 && !status.has_data();
    assert!(index(root).entries.iter().all(|entry| !is_deleted(entry.status, entry.tx_count)), "{what}");
}

#[test]
fn the_oldest_files_of_a_full_datadir_are_deleted() {
    let (case, peer) = (Case::at_tip(), honest());
    let coins = stats(case.root(), Network::Regtest).unwrap().hash_serialized_3;
    let before = index(case.root());
    let options = pruning(case.root(), &peer);
    let report = run(&options).unwrap();
    assert_eq!(report.chainstate_height, Some(Height(TIP)));
    assert_pruned(case.root(), "pruned");
    assert_eq!(stats(case.root(), Network::Regtest).unwrap().hash_serialized_3, coins);
    let deleted =
        (0..).zip(&before.files).filter(|(number, _)| !case.blocks(&format!("blk{number:05}.dat")).exists());
    let deleted: Vec<u32> = deleted.map(|(number, _)| number).collect();
    let end = TIP - KEPT;
    let expected =
        (0..).zip(&before.files[..before.files.len() - 1]).filter(|(_, info)| info.height_last <= end);
    assert_eq!(deleted, expected.map(|(number, _)| number).collect::<Vec<u32>>(), "as Core chooses them");
    let stale = before.entries.iter().filter(|entry| {
        entry.file.is_some_and(|file| deleted.contains(&file.0))
            && !chain().main().any(|block| block.hash == entry.hash)
    });
    assert!(stale.count() > 0, "the chain has stale blocks in these files");
    let pruned = tree(case.root());
    write_file(case.blocks(&format!("blk{:05}.dat", deleted[0])), "left");
    assert_eq!(run(&options).unwrap().download.pruned, 0);
    assert_same_tree(&pruned, case.root(), "a second run, after a crash that has left a file");
}

/// Writes what bitcoind leaves when it is killed while it flushes the coins of all blocks above this one.
pub fn interrupt_flush(case: &Case, flushed: u32) {
    let dir = case.net("chainstate");
    let reader = ChainstateReader::open(&RealDisk, &dir).unwrap();
    let old = block_at(flushed).hash;
    let mut heads = [&[2_u8][..], &reader.best_block().0, &old.0].concat();
    reader.obfuscation().apply(&mut heads, 0);
    edit_rows(&dir, |rows| {
        rows.remove(&b"B"[..]);
        rows.insert(b"H".to_vec(), heads);
    });
}

/// bitcoind reads the blocks above the old best block again: they were deleted.
#[test]
fn nothing_is_deleted_that_bitcoind_needs_to_complete_a_flush() {
    let (case, peer) = (Case::at_tip(), honest());
    interrupt_flush(&case, 50);
    let (options, words) = (pruning(case.root(), &peer), ["bitcoind was stopped while it wrote"]);
    let error = refused_by(case.root(), ErrorKind::Damaged, &words, || run(&options));
    assert_offers(&error, &[Remedy::LetBitcoindFinish]);
    // It could not complete the flush: it and this program sent the user to each other.
    let lost = blk(&case, &entry(&case, 60));
    truncate(&lost, 100).unwrap();
    assert_rebuilt(&case, false, "a lost block");
    // The same, of a file whose blocks are not replayed: bitcoind opens all files before that.
    let case = Case::at_tip();
    interrupt_flush(&case, TIP - 3);
    let number = case.index().files.iter().rposition(|info| info.height_last < TIP - 6).unwrap();
    fs::remove_file(case.blocks(&format!("blk{number:05}.dat"))).unwrap();
    assert_rebuilt(&case, false, "a lost file");
}

/// The run that was interrupted has stored the blocks that bitcoind lacked, so that the next one was refused.
#[test]
fn a_run_that_has_stored_what_a_flush_lacked_is_resumed() {
    let dir = behind(chain().main().take(TIP as usize), TIP - 1, &layout());
    let (case, peer) = (Case::of(dir), honest());
    interrupt_flush(&case, 50);
    let files = case.index().files;
    // Above the first batch of blocks, after which a checkpoint is written.
    let (number, lost) = (0..).zip(&files).find(|(_, info)| info.height_first > 32).unwrap();
    truncate(&case.blocks(&format!("blk{number:05}.dat")), 100).unwrap();
    let mut options = SyncOptions { prune_bytes: Some(1), ..from(case.root(), &[&peer]) };
    options.chain.threads = NonZeroUsize::MIN;
    options.chain.resume.checkpoint_interval = Duration::ZERO;
    let work = "regtest/peregrine-work";
    let checkpoint = case.root().join(work).join("manifest");
    // The block at the tip does not come. What is in the last file when the run is interrupted is stored.
    peer.hold_at(lost.blocks as usize);
    let last = case.blocks(&format!("blk{:05}.dat", files.len() - 1));
    let stored = u64::from(files[files.len() - 1].size + lost.size);
    interrupt_when(&options, || fs::metadata(&last).unwrap().len() >= stored && checkpoint.exists());
    peer.hold_at(usize::MAX);
    let without = scratch();
    copy_dir(case.root(), without.path()).unwrap();
    fs::remove_dir_all(without.path().join(work)).unwrap();
    let error = assert_fails(run(&pruning(without.path(), &peer)), ErrorKind::Damaged, &[]);
    assert_offers(&error, &[Remedy::LetBitcoindFinish]);
    assert!(run(&options).unwrap().rebuild.is_some());
    assert_eq!(stats(case.root(), Network::Regtest).unwrap().best_block, chain().tip().hash);
}

/// Asserts that a run rebuilds the chainstate, and that a second one leaves a sound datadir of a pruned node.
fn assert_rebuilt(case: &Case, is_deep: bool, what: &str) {
    let peer = honest();
    let options = pruning(case.root(), &peer);
    assert!(run(&options).unwrap().rebuild.is_some(), "{what}");
    // A rebuild that ends after the download leaves files to delete.
    assert!(run(&options).unwrap().rebuild.is_none(), "{what}");
    assert_pruned(case.root(), what);
    assert!(diagnosed(case.root(), is_deep).is_sound(), "{what}");
}

/// Only its best block was read: the blocks were deleted from which its coins can be made again, and what
/// `doctor` advises for a pruned node did nothing.
#[test]
fn a_chainstate_with_a_changed_bit_is_rebuilt() {
    for (case, advice) in [(Case::at_tip(), Advice::Reindex), (pruned(), Advice::SyncPruned)] {
        situation::cause("chainstate: a table flipped", case.root(), case.root());
        assert_eq!(diagnosed(case.root(), true).advice, advice);
        assert_rebuilt(&case, true, &format!("{advice:?}"));
    }
}

/// bitcoind was to be started, and would have overwritten blocks.
#[test]
fn a_pruned_node_whose_index_places_blocks_beyond_the_bytes_in_use_gets_true_sizes() {
    let (case, peer) = (pruned(), honest());
    situation::cause("index: too small sizes", case.root(), case.root());
    assert_eq!(diagnosed(case.root(), false).advice, Advice::SyncPruned);
    assert!(run(&pruning(case.root(), &peer)).unwrap().rebuild.is_none(), "the chainstate stays");
    assert_pruned(case.root(), "too small sizes");
    assert!(diagnosed(case.root(), true).is_sound());
}

/// Nothing was made, and what was deleted could not be made any more; or all blocks were downloaded again.
#[test]
fn undo_data_that_the_last_blocks_lack_is_made_before_blocks_are_deleted() {
    let is_lacking = |note: &Warning| matches!(note, Warning::LacksLastUndo { blocks: 6 });
    for (what, case) in [("full", Case::at_tip()), ("pruned", pruned())] {
        let (last, peer) = (entry(&case, TIP), honest());
        let file = if what == "full" { rev(&case, &last) } else { blk(&case, &last) };
        truncate(&file, 0).unwrap();
        assert!(!diagnosed(case.root(), false).is_sound(), "{what}");
        let report = run(&pruning(case.root(), &peer)).unwrap();
        assert!(report.rebuild.is_none(), "{what}");
        assert_eq!(report.undo.is_some(), what == "full");
        assert_eq!(report.notes.iter().any(is_lacking), what == "pruned");
        assert_pruned(case.root(), what);
        let advice = if what == "full" { Advice::StartBitcoind } else { Advice::StartWithoutUndo };
        assert_eq!(diagnosed(case.root(), false).advice, advice, "{what}");
    }
}

/// Regressions: the rebuild waited for ever for the genesis block, for which no peer is asked; and, with so
/// little space, it settled again and again before its first block.
#[test]
fn a_pruned_node_without_a_chainstate_gets_one_and_stays_pruned() {
    let (case, peer) = (pruned(), honest());
    assert!(!index(case.root()).entries.iter().find(|entry| entry.height.0 == 0).unwrap().status.has_data());
    fs::remove_dir_all(case.net("chainstate")).unwrap();
    let report = run(&pruning(case.root(), &peer)).unwrap();
    assert!(report.rebuild.is_some());
    assert_pruned(case.root(), "rebuilt");
}

/// All blocks were stored before one was deleted, which fills a disk that has space for a pruned node; and a
/// run that was interrupted above the chainstate's last block was not resumed.
#[test]
fn lost_blocks_of_a_sound_chainstate_are_deleted_behind_their_download() {
    for is_interrupted in [false, true] {
        let dir = behind(chain().main().take(TIP as usize), TIP - 1, &layout());
        let (case, peer) = (Case::of(dir), honest());
        fs::remove_dir_all(case.blocks("")).unwrap();
        let mut options = pruning(case.root(), &peer);
        options.chain.hooks.block_file_len = 20_000;
        if is_interrupted {
            // The block at the tip does not come.
            prune::interrupted_at(&options, &peer, tip() - 1);
            assert!(entry(&case, TIP - 1).tx_count > 0 && case.net("peregrine-work/manifest").exists());
        }
        assert!(run(&options).unwrap().rebuild.is_some(), "interrupted: {is_interrupted}");
        assert_pruned(case.root(), &format!("interrupted: {is_interrupted}"));
    }
}

#[test]
fn a_pruned_datadir_becomes_a_full_one() {
    for (threads, join_bytes) in THREADS.into_iter().flat_map(|threads| [(threads, None), (threads, Some(1))])
    {
        let what = format!("{threads} threads, join of {join_bytes:?}");
        let (case, peer) = (pruned(), honest());
        let mut options = unpruning(case.root(), &peer);
        options.chain.threads = NonZeroUsize::new(threads).unwrap();
        options.chain.hooks.join_bytes = join_bytes;
        let report = run(&options).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(report.unpruned && report.rebuild.is_some(), "{what}");
        assert_full(case.root(), &what);
        let done = tree(case.root());
        let report = run(&options).unwrap();
        assert!(!report.unpruned && report.rebuild.is_none(), "{what}: it is done");
        assert_same_tree(&done, case.root(), &what);
    }
}

/// One whose blocks a rebuild deleted while they were downloaded, and whose chainstate is gone.
#[test]
fn files_that_were_copied_back_need_no_download() {
    let (full, case, peer) = (Case::at_tip(), pruned(), honest());
    let copied: Vec<_> =
        (0..2).flat_map(|number| ["blk", "rev"].map(|kind| format!("{kind}{number:05}.dat"))).collect();
    for name in &copied {
        assert!(!case.blocks(name).exists());
        fs::copy(full.blocks(name), case.blocks(name)).unwrap();
    }
    // Its blocks lie beyond the last file, too.
    fs::copy(full.blocks("blk00000.dat"), case.blocks("blk00050.dat")).unwrap();
    let before = full.index();
    let is_in =
        |number: u32| before.entries.iter().filter(|entry| entry.file == Some(FileNo(number))).count();
    let blocks = diagnosed(case.root(), false).found.unwrap().blocks;
    assert_eq!(blocks.unknown_blocks as usize, 2 * is_in(0) + is_in(1));
    assert_eq!((blocks.unknown_files, blocks.deleted_files), (3, 2), "bitcoind deletes what it has pruned");
    let is_deleted = |entry: &IndexEntry| !entry.status.has_data() && entry.tx_count > 0;
    let deleted: Vec<_> =
        case.index().entries.into_iter().filter(is_deleted).map(|entry| entry.hash).collect();
    let is_main = |entry: &&IndexEntry| chain().main().any(|block| block.hash == entry.hash);
    let wanted = before.entries.iter().filter(is_main).filter(|entry| deleted.contains(&entry.hash));
    let (here, missing): (Vec<&IndexEntry>, Vec<&IndexEntry>) =
        wanted.partition(|entry| entry.file < Some(FileNo(2)));
    let undo = fs::read(case.blocks("rev00000.dat")).unwrap();
    let report = run(&unpruning(case.root(), &peer)).unwrap();
    assert!(!here.is_empty() && !missing.is_empty());
    assert_eq!((report.download.found, report.download.blocks), (here.len() as u32, missing.len() as u32));
    assert_full(case.root(), "copied");
    assert!(fs::read(case.blocks("rev00000.dat")).unwrap().starts_with(&undo), "what was there stays");
}

#[test]
fn without_a_chainstate_too() {
    let (dir, peer) = (scratch(), prune::peer());
    run(&prune::pruned(dir.path(), &[&peer])).unwrap();
    fs::remove_dir_all(dir.path().join("regtest/chainstate")).unwrap();
    let report = run(&unpruning(dir.path(), &peer)).unwrap();
    assert!(report.unpruned);
    assert_sound(dir.path(), prune::long(), "without a chainstate");
    assert!(!index(dir.path()).pruned);
}

#[test]
fn an_interrupt_leaves_a_pruned_datadir_and_the_next_run_continues() {
    let (case, peer) = (pruned(), honest());
    let options = unpruning(case.root(), &peer);
    for blocks in [10, 40] {
        interrupt_at(&options, &peer, blocks, Duration::ZERO);
        assert_pruned(case.root(), &format!("interrupted after {blocks} blocks"));
    }
    assert!(run(&options).unwrap().unpruned);
    assert_full(case.root(), "at last");
    // bitcoind deletes what was downloaded, if it is started in between.
    let case = pruned();
    interrupt_at(&unpruning(case.root(), &peer), &peer, peer.asked().len() + 40, Duration::ZERO);
    run(&pruning(case.root(), &peer)).unwrap();
    assert_pruned(case.root(), "pruned again");
    assert!(run(&unpruning(case.root(), &peer)).unwrap().unpruned);
    assert_full(case.root(), "after it was pruned again");
}

#[test]
fn wherever_the_power_fails_the_datadir_is_a_pruned_or_a_full_one() {
    let states = Scenario {
        before: &pruned,
        run: &|disk, case| run_on(disk, &unpruning(case.root(), &honest())).map(drop),
        is_whole: &|case, _, what| {
            // What was interrupted is finished or undone first.
            stats(case.root(), Network::Regtest).unwrap_or_else(|error| panic!("{what}: {error}"));
            match index(case.root()).pruned {
                true => assert_pruned(case.root(), what),
                false => drop(assert_index_is_true(case.root(), what)),
            }
        },
        succeeds: &|case, what| {
            run(&unpruning(case.root(), &honest())).unwrap_or_else(|error| panic!("{what}, again: {error}"));
            assert_full(case.root(), what);
        },
    }
    .explore(Crashes { stride: 30, twice: false, ..Crashes::default() });
    assert!(states > 10, "{states}");
}

/// The chainstate cannot be taken back to the fork: only the rebuild, which has all blocks, can decide.
#[test]
fn a_longer_invalid_branch_that_forks_below_what_is_deleted_is_left() {
    let height = TIP - 5;
    let blocks = || chain().main().filter(|block| block.height <= height);
    let dir = behind(blocks(), height, &layout());
    let honest = peer_with(blocks());
    assert!(run(&pruning(dir.path(), &honest)).unwrap().download.pruned > 50);
    let evil = peer_with(&greedy_branch(20, 90, tip(), 1));
    let peers = from(dir.path(), &[&evil, &honest]).peers;
    let report = run(&SyncOptions { peers, ..unpruning(dir.path(), &evil) }).unwrap();
    assert!(report.unpruned, "{report:?}");
    assert_synced_to(height, dir.path(), chain(), "after an invalid branch");
    assert!(!index(dir.path()).pruned);
}

#[test]
fn what_cannot_make_a_full_node_is_refused() {
    let (case, peer) = (pruned(), honest());
    let before = tree(case.root());
    let options = || unpruning(case.root(), &peer);
    for wrong in [
        SyncOptions { prune_bytes: Some(1), ..options() },
        SyncOptions { blocks_only: true, ..options() },
        changed(options(), |it| it.chain.stop_at_height = Some(Height(9))),
    ] {
        assert_eq!(run(&wrong).unwrap_err().kind, ErrorKind::Usage);
    }
    let error = run(&SyncOptions { unprune: false, ..options() }).unwrap_err();
    assert_offers(&error, &[Remedy::Unprune, Remedy::Prune]);
    assert_same_tree(&before, case.root(), "refused");
}

#[test]
fn blocks_that_an_index_needs_are_not_deleted() {
    let (case, peer) = (Case::at_tip(), honest());
    let disk = FaultDisk::healthy();
    acceptance::indexes::make(&disk, &of_case(&case, TxForm::ByTxid, &[IndexKind::Tx])).unwrap();
    let mut options = pruning(case.root(), &peer);
    let error = refused_by(case.root(), ErrorKind::Usage, &["it needs all blocks"], || run(&options));
    assert_offers(&error, &[Remedy::SetIndexesAside]);
    options.set_aside_indexes = SetAsideIndexes::Any;
    assert!(run(&options).unwrap().download.pruned > 50);
    assert_pruned(case.root(), "without txindex");

    // What would be made of deleted blocks afterwards is made before.
    let case = Case::at_tip();
    let mut options = pruning(case.root(), &peer);
    let filters = of_case(&case, TxForm::ByTxid, &[IndexKind::BlockFilter]);
    let observer = observe_for(filters.clone(), &mut options.chain, healthy());
    let error = run(&options).unwrap_err();
    assert_offers(&error, &[Remedy::MakeIndex(Some(IndexKind::BlockFilter))]);
    assert!(!index(case.root()).pruned, "{error}");
    acceptance::indexes::make(&disk, &filters).unwrap();
    assert!(run(&options).unwrap().download.pruned > 50);
    let brought = bring_indexes(&disk, &filters, Some(&observer), unwatched());
    assert_eq!(brought.unwrap().height.0, TIP);

    // Filters up to a lower block keep the blocks from ten below it on.
    let (case, at) = (Case::new(), 135);
    acceptance::run(&lowered(case.options(), at)).unwrap();
    acceptance::indexes::make(&disk, &of_case(&case, TxForm::ByTxid, &[IndexKind::BlockFilter])).unwrap();
    acceptance::run(&case.options()).unwrap();
    assert!(run(&pruning(case.root(), &peer)).unwrap().download.pruned > 20);
    let stored = assert_index_is_true(case.root(), "filters");
    assert!(chain().main().skip(at as usize - 10).all(|block| stored.contains(&block.hash)));
}

/// bitcoind leaves them there from release 30 on. They kept the blocks above, or the download was refused.
#[test]
fn coin_statistics_of_an_old_release_beside_those_of_a_later_one_keep_no_blocks() {
    for is_broken in [false, true] {
        let (case, peer, disk) = (Case::new(), honest(), FaultDisk::healthy());
        let new = of_case(&case, TxForm::ByTxid, &[IndexKind::CoinStats]);
        let indexes = case.net("indexes");
        acceptance::run(&lowered(case.options(), 30)).unwrap();
        acceptance::indexes::make(&disk, &new).unwrap();
        fs::rename(indexes.join("coinstatsindex"), indexes.join("coinstats")).unwrap();
        if is_broken {
            fs::write(indexes.join("coinstats/db/CURRENT"), b"MANIFEST-999999\n").unwrap();
        }
        acceptance::run(&case.options()).unwrap();
        acceptance::indexes::make(&disk, &new).unwrap();
        assert!(run(&pruning(case.root(), &peer)).unwrap().download.pruned > 50, "{is_broken}");
    }
}

fn of_case(case: &Case, form: TxForm, kinds: &[IndexKind]) -> IndexOptions {
    IndexOptions { kinds: kinds.to_vec(), ..acceptance::indexes::of_case(case, form) }
}

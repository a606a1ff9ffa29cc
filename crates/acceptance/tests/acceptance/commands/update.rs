//! Updates: a chainstate that is behind gets the coins that a rebuild gives it, with the same undo data,
//! whatever the number of threads and the size of commits; and what an update refuses.

use crate::sync::unprune::interrupt_flush;
use acceptance::prelude::*;
use testkit::{
    block::{HeaderPlan, assemble},
    make::MadeTx,
    mutation::anyone,
};

fn assert_at(root: &Path, height: u32, what: &str) {
    assert_coins(root, block_at(height).hash, &stats_by_height(chain())[height as usize], what);
}

#[test]
fn an_update_to_the_tip_equals_a_rebuild_to_the_tip() {
    let full = datadir_of(chain());
    for height in [0, 1, 99, 124, TIP - 1] {
        for how in [AT_ONCE, EACH_BLOCK, How { threads: 2, bytes: Some(60_000) }] {
            let what = format!("from {height}, {how:?}");
            let dir = behind(chain().blocks.iter(), height, &layout());
            let report = update(&update_options(dir.path(), how, None))
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!((report.height_before, report.height), (Height(height), Height(TIP)), "{what}");
            assert_eq!((report.hash, report.disconnected), (chain().tip().hash, 0), "{what}");
            assert_eq!((report.counts.blocks, report.undo_written), ((TIP - height).into(), TIP - height));
            let is_each = how.bytes == Some(1);
            assert_eq!(report.commits == TIP - height, is_each || TIP - height == 1, "{what}");
            assert_at(dir.path(), TIP, &what);
            assert_complete(dir.path(), Network::Regtest, &Expected::of(chain()), &what);
            // Undo data is in the files in which Core has it, at the same positions, in the same bytes.
            if height > 0 {
                let [made, cores] =
                    [dir.path(), full.path()].map(|root| files_of(&root.join("regtest/blocks"), "rev"));
                assert_eq!(made.len(), cores.len(), "{what}");
            }
            // Nothing is left to do.
            let before = tree(dir.path());
            let report = update(&update_options(dir.path(), how, None)).unwrap();
            assert_eq!((report.commits, report.counts.blocks, report.height), (0, 0, Height(TIP)), "{what}");
            assert_same_tree(&before, dir.path(), &what);
        }
    }
}

#[test]
fn steps_of_random_size_pass_through_the_coins_of_each_height() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed, "updates");
        let mut height = rng.below(100) as u32;
        let dir = behind(chain().blocks.iter(), height, &layout());
        while height < TIP {
            height = TIP.min(height + 1 + rng.below(40) as u32);
            let bytes = [None, Some(1), Some(5000)][rng.below(3) as usize];
            let how = How { threads: 1 + rng.below(4) as usize, bytes };
            let what = format!("seed {seed}, to {height}, {how:?}");
            let report = update(&update_options(dir.path(), how, Some(height)))
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(report.height, Height(height), "{what}");
            assert_at(dir.path(), height, &what);
        }
        assert_complete(dir.path(), Network::Regtest, &Expected::of(chain()), &format!("seed {seed}"));
        // A rebuild in place finds all undo data, and the same coins.
        let report = run(&trusting(&options(dir.path()))).unwrap();
        assert_eq!(report.hash_serialized_3, chain().model.stats().hash_serialized_3, "seed {seed}");
    }
}

/// The datadirs that Core has written, rebuilt at a lower height, without undo data above it: the update
/// writes what Core has written, byte for byte.
#[test]
fn datadirs_of_bitcoin_core_are_updated_to_cores_coins_and_undo_data() {
    for (name, network) in CORE_DATADIRS {
        let (Some(dir), Some(tip)) = (unpack_core_datadir(name), known_tip(name)) else { continue };
        let tip_height = tip["height"].as_u64().unwrap() as u32;
        let from = tip_height - tip_height.min(1000) * 2 / 3;
        let mut files = UndoFiles::read(dir.path(), network);
        let before = files.rev.clone();
        let entry = files.index.entries.iter().find(|entry| entry.hash.to_string() == tip["hash"]).unwrap();
        let expected = Expected::of_datadir(dir.path(), network, entry.hash, [0; 32]);
        // The records of lower blocks stay in use; those of higher blocks are gone.
        files.edit_index(|index| {
            let mut used = vec![0; index.files.len()];
            for entry in &mut index.entries {
                let Some(file) = entry.file.filter(|_| entry.height.0 > 0) else { continue };
                if entry.height.0 > from {
                    entry.undo_pos = None;
                    let status = entry.status.0 & !BlockStatus::HAVE_UNDO & !7;
                    entry.status = BlockStatus(status | BlockStatus::VALID_TRANSACTIONS);
                } else if let Some(pos) = entry.undo_pos {
                    let at = pos.0 as usize - 4;
                    let len: [u8; 4] = before[&file.0][at..at + 4].try_into().unwrap();
                    let end = pos.0 as u32 + u32::from_le_bytes(len) + 32;
                    used[file.0 as usize] = end.max(used[file.0 as usize]);
                }
            }
            for (info, used) in index.files.iter_mut().zip(used) {
                info.undo_size = used;
            }
        });
        let whole = ReindexOptions::new(dir.path(), network, ScriptChecks::LeftOut);
        run(&lowered(whole.clone(), from)).unwrap();
        let what = format!("{name} from {from}");
        let report = update(&up_to(whole, tip_height).chain);
        let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(report.hash.to_string(), tip["hash"], "{what}");
        assert_eq!(report.undo_written, tip_height - from, "{what}");
        let stats = stats(dir.path(), network).unwrap();
        assert_eq!(hex_reversed(&stats.hash_serialized_3), tip["hash_serialized_3"], "{what}");
        assert_eq!(stats.muhash.as_ref().map(hex_reversed).unwrap(), tip["muhash"], "{what}");
        assert_complete(dir.path(), network, &expected, &what);
    }
}

/// `input/situations.txt` has what it says of each kind of damage.
#[test]
fn an_update_refuses_what_it_cannot_continue() {
    let case = Case::new();
    let refuses = |to: Option<u32>, words: &[&str]| {
        let options = update_options(case.root(), AT_ONCE, to);
        refused_by(case.root(), ErrorKind::Usage, words, || update(&options))
    };
    let height = format!("the chainstate is at height {}", TIP - 3);
    let low = Height(TIP - 5);
    assert_offers(&refuses(Some(low.0), &[&height, "does not go back"]), &[Remedy::AcceptLowerTipAt(low)]);
    assert_offers(&refuses(Some(TIP + 1), &[]), &[Remedy::StopAtHeight(Height(TIP))]);

    write_file(case.net("chainstate_snapshot/base_blockhash"), [7; 32]);
    assert_offers(&refuses(None, &["has two chainstates"]), &[Remedy::MoveSnapshotAway]);
}

/// A rebuild was advised, which takes far longer than what bitcoind does when it starts.
#[test]
fn an_interrupted_flush_is_left_to_bitcoind_if_it_can_complete_it() {
    let case = Case::at_tip();
    interrupt_flush(&case, 50);
    let updated = || update(&update_options(case.root(), AT_ONCE, None));
    let words = ["bitcoind was stopped while it wrote"];
    let error = refused_by(case.root(), ErrorKind::Damaged, &words, updated);
    assert_eq!(error.remedies, [Remedy::LetBitcoindFinish]);
    truncate(&blk(&case, &entry(&case, 60)), 100).unwrap();
    let error = refused_by(case.root(), ErrorKind::Damaged, &words, updated);
    assert_eq!(error.remedies, [Remedy::RebuildChainstate]);
}

/// The chainstate was at the tip, and the command failed.
#[test]
fn undo_data_that_cannot_be_read_is_a_warning_of_an_update_that_is_done() {
    let case = Case::at_tip();
    let entry = entry(&case, chain().tip().height - 5);
    let disk = FaultDisk::healthy().with_unreadable(&rev(&case, &entry), entry.undo_pos.unwrap().0 - 1);
    let updated = engine::update(&disk, &update_options(case.root(), AT_ONCE, None), unwatched()).unwrap();
    let is_last = |note: &Warning| matches!(note, Warning::LacksLastUndo { blocks: 6 });
    assert!(updated.notes.iter().any(is_last), "{:?}", updated.notes);
}

/// It said that bitcoind can be started, or, with blocks to connect, only that a file is to be restored.
#[test]
fn missing_undo_data_is_reported_with_what_helps() {
    for missing in ["of the last blocks", "lower"] {
        let case = Case::at_tip();
        let height = if missing == "lower" { 30 } else { chain().tip().height - 5 };
        fs::remove_file(rev(&case, &entry(&case, height))).unwrap();
        let notes = update(&update_options(case.root(), AT_ONCE, None)).unwrap().notes;
        let is_last = |note: &Warning| matches!(note, Warning::LacksLastUndo { blocks: 6 });
        assert_eq!(notes.iter().any(is_last), missing != "lower", "{missing}: {notes:?}");
    }
    let tip = chain().tip().height;
    let layout = Layout { shuffle: 0, file_size: 4 << 20, ..layout() };
    let dir = behind(chain().main(), tip - 3, &layout);
    fs::remove_file(Datadir::at(dir.path(), Network::Regtest).rev_path(FileNo(0))).unwrap();
    let words = &["bytes of the file are in use, but it has 0"];
    let options = update_options(dir.path(), AT_ONCE, None);
    let error = refused_by(dir.path(), ErrorKind::Damaged, words, || update(&options));
    // A rebuild makes undo data, and leaves nothing to connect.
    assert_offers(&error, &[Remedy::RebuildChainstate, Remedy::RestoreFile]);
    // That was advised to a pruned node too, and refused.
    edit_index(&dir.path().join("regtest/blocks/index"), |index| index.pruned = true).unwrap();
    let error = refused_by(dir.path(), ErrorKind::Damaged, words, || update(&options));
    assert_eq!(error.remedies, [Remedy::Unprune, Remedy::RestoreFile]);
}

/// The files of deleted blocks are not needed if the chainstate is above them.
#[test]
fn a_pruned_node_is_updated() {
    for (from, is_possible) in [(TIP - 3, true), (90, false)] {
        let dir = behind(chain().main(), from, &layout());
        let mut files = UndoFiles::read(dir.path(), Network::Regtest);
        let is_last = |entry: &&IndexEntry| entry.height.0 > TIP - 4;
        let kept = files.index.entries.iter().filter(is_last).filter_map(|entry| entry.file).min();
        let mut removed = BTreeSet::new();
        files.edit_index(|index| {
            for entry in index.entries.iter_mut().filter(|entry| entry.file < kept) {
                removed.extend(entry.file);
                entry.status = entry.status.without_data();
                (entry.file, entry.data_pos, entry.undo_pos) = (None, None, None);
            }
            index.pruned = true;
        });
        assert!(!removed.is_empty());
        for file in removed {
            fs::remove_file(files.paths.blk_path(file)).unwrap();
            let _ = fs::remove_file(files.paths.rev_path(file));
        }
        let options = update_options(dir.path(), AT_ONCE, None);
        if is_possible {
            update(&options).unwrap();
            assert_at(dir.path(), TIP, "pruned");
        } else {
            // Without the blocks in between, the chainstate is at the end of what is stored.
            assert_eq!(update(&options).unwrap().height, Height(from));
        }
    }
}

#[test]
fn an_invalid_block_ends_the_update_at_the_last_commit() {
    let mut blocks: Vec<_> = chain().main().cloned().collect();
    let at = TIP as usize - 2;
    let invalid = greedy_sibling(&blocks[at], 1);
    replace(&mut blocks, at, invalid);
    for (how, committed) in [(AT_ONCE, TIP - 10), (EACH_BLOCK, TIP - 3)] {
        let dir = behind(blocks.iter(), TIP - 10, &layout());
        let error = update(&update_options(dir.path(), how, None)).map(|report| report.height).unwrap_err();
        assert_eq!((error.kind, error.height), (ErrorKind::Consensus, Some(Height(TIP - 2))), "{error}");
        assert_eq!(error.core.as_deref(), Some("bad-cb-amount"));
        // If the chainstate is there already, there is nothing to offer.
        let offered = [Remedy::StopAtHeight(Height(TIP - 3))];
        assert_eq!(error.remedies, if committed < TIP - 3 { &offered[..] } else { &[] }, "{error}");
        assert_at(dir.path(), committed, "after the invalid block");
        // What the error offers.
        update(&update_options(dir.path(), how, Some(TIP - 3))).unwrap();
        assert_at(dir.path(), TIP - 3, "below the invalid block");
    }
}

/// A valid chain of 148 blocks, two of which make a coinbase again, 111 and 147: each was spent one block
/// below.
pub fn repeated_coinbases() -> (Vec<GeneratedBlock>, &'static ChainParams) {
    let mut blocks = vec![GeneratedBlock::genesis()];
    for height in 1..149 {
        let (prev, time) = (blocks[height as usize - 1].hash, 1_700_000_000 + height);
        let plan = HeaderPlan { height, prev, version: 0x2000_0000, time };
        let original = blocks.get(if height < 120 { 1 } else { 2 }).unwrap_or(&blocks[0]);
        let mut original: bitcoin::Block = bitcoin::consensus::deserialize(&original.bytes).unwrap();
        let mut original = original.txdata.remove(0);
        let made = |tx: &bitcoin::Transaction| MadeTx::new(tx, Vec::new());
        blocks.push(match height {
            110 | 146 => {
                original.input[0].previous_output = bitcoin::OutPoint::new(original.compute_txid(), 0);
                original.output[0].value = bitcoin::Amount::from_sat(1);
                let coinbase = testkit::block::coinbase(height, 7, vec![anyone(1)]);
                assemble(plan, &made(&coinbase), &[made(&original)], false)
            }
            111 | 147 => with_coinbase(&blocks[height as usize - 1], &original),
            _ => testkit::block::empty(prev, height, time, 1),
        });
    }
    (blocks, ChainParams::of(Network::Regtest).with_heights(&[(BuriedDeployment::Bip34, Height(10_000))]))
}

/// A coinbase that is made again is valid if the first one is spent below it in the same window, which only
/// connecting its blocks one by one shows. Two such windows once followed each other for ever.
#[test]
fn coinbases_are_made_again_once_they_are_spent() {
    const BELOW: u32 = 109;
    let (blocks, params) = repeated_coinbases();
    for how in [AT_ONCE, EACH_BLOCK] {
        let dir = behind(blocks.iter(), BELOW, &layout());
        let options = ChainOptions { params, ..update_options(dir.path(), how, None) };
        assert_eq!(update(&options).unwrap().height, Height(148));
        let coins = stats(dir.path(), Network::Regtest).unwrap();
        assert_eq!(coins.txouts, 148, "one of each block: those that spend two have another");
        let rebuilt = run(&changed(acceptance::options(dir.path()), |it| it.chain.params = params));
        assert_eq!(rebuilt.unwrap().hash_serialized_3, coins.hash_serialized_3);
    }
}

/// What it leaves at any operation is tested in `update_faults.rs`.
#[test]
fn an_interrupt_says_what_it_leaves() {
    let dir = behind(chain().blocks.iter(), 60, &layout());
    let before = tree(&dir.path().join("regtest/chainstate"));
    let interrupted = |at: u64| {
        let (disk, options) = (FaultDisk::interrupting_at(at), update_options(dir.path(), EACH_BLOCK, None));
        let done = engine::update(&disk, &options, quiet(disk.interrupt()));
        assert_fails(done, ErrorKind::Interrupted, &[])
    };
    interrupted(0);
    assert_same_tree(&before, &dir.path().join("regtest/chainstate"), "interrupted at once");
    assert_mentions(&interrupted(300), &["the last commit"]);
}

/// The next rebuild resumes nothing, and the update before it has left no files that it does not know.
#[test]
fn a_rebuild_after_an_update_refuses_a_lower_tip() {
    let dir = behind(chain().blocks.iter(), 100, &layout());
    update(&update_options(dir.path(), EACH_BLOCK, None)).unwrap();
    refused(&up_to(options(dir.path()), 100), ErrorKind::Damaged, &[]);
}

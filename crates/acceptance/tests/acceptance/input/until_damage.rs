//! A rebuild that ends below the damage: the chainstate is that of the last sound block, and the block index
//! lacks only what is damaged. `situations.txt` has what it says of each kind of damage.

use crate::sync::prune::{peer, pruned};
use acceptance::{prelude::*, sync};
use engine::reindex;
use testkit::corrupt::add_table;

/// The same options, but the rebuild ends below the damage.
fn until_damage(options: &ReindexOptions) -> ReindexOptions {
    ReindexOptions { until_damage: true, ..options.clone() }
}

/// Rebuilds until the damage, which must leave block files as they are.
fn end_below(case: &Case, options: &ReindexOptions) -> ReindexReport {
    let before = files_of(&case.blocks(""), "blk");
    let report = run(&until_damage(options)).unwrap_or_else(|error| panic!("{error}"));
    assert!(before == files_of(&case.blocks(""), "blk"), "block files have changed");
    report
}

/// Asserts that the chainstate is the one at `height`, and that the index has all blocks of the chain but
/// `damaged`, in an order of validity that bitcoind accepts.
fn assert_lacks(case: &Case, damaged: &[u32], height: u32, what: &str) {
    let model = &stats_by_height(chain())[height as usize];
    assert_coins(case.root(), block_at(height).hash, model, what);
    sync::assert_index_is_true(case.root(), what);
    let by_hash: BTreeMap<_, IndexEntry> =
        case.index().entries.into_iter().map(|entry| (entry.hash, entry)).collect();
    for block in chain().main().skip(1) {
        let entry = by_hash[&block.hash];
        let is_damaged = damaged.contains(&block.height);
        assert_eq!(entry.status.has_data(), !is_damaged, "{what}: height {}", block.height);
        assert_eq!(entry.status.was_connected(), block.height <= height, "{what}: height {}", block.height);
        if is_damaged {
            let header = IndexEntry::of_header(block.hash, block.header, Height(block.height));
            assert_eq!(entry, header, "{what}");
        }
    }
}

/// Asserts that a download needs only the `damaged` blocks, after which all is sound.
fn assert_completed(case: &Case, damaged: &[u32], what: &str) {
    let peer = sync::honest();
    let (report, _) = sync::run(&sync::from(case.root(), &[&peer]));
    assert_eq!(report.download.blocks as usize, damaged.len(), "{what}");
    // Blocks close to the tip are left to bitcoind.
    let rebuilt = report.rebuild.is_some();
    assert!(rebuilt || run(&case.options()).unwrap().height == Height(140), "{what}");
    sync::assert_sound(case.root(), chain(), what);
}

fn damage_note(report: &ReindexReport) -> Option<(u32, u32)> {
    report.notes.iter().find_map(|note| match note {
        Warning::Damage { blocks, undo, .. } => Some((*blocks, *undo)),
        _ => None,
    })
}

#[test]
fn a_damaged_block_costs_only_the_blocks_above_it() {
    let len = |height: u32| block_at(height).bytes.len() as u64;
    // Frame, header, transactions, the last byte; at the tip, below it, and far below.
    for (number, height) in [140, 137, 100, 60, 1].into_iter().enumerate() {
        for (at, scan) in
            [(40, false), (85, false), (len(height) - 1, false), (85, true), (len(height) - 1, true)]
        {
            let what = &format!("height {height}, byte {at}, scan {scan}");
            let case = Case::new();
            case.flip_block(height, at);
            let options = changed(case.options(), |it| it.chain.scan = scan);
            let words = ["the chainstate up to the block below"];
            let plain = refused(&options, ErrorKind::Damaged, &words);
            assert_eq!(plain.height, Some(Height(height)), "{what}: {plain}");
            let report = end_below(&case, &with_threads(&options, acceptance::THREADS[number % 3]));
            assert_eq!((report.height, report.damaged_blocks), (Height(height - 1), 1), "{what}");
            assert_eq!(damage_note(&report), Some((1, 0)), "{what}");
            let lost = (if scan { 140_u32 } else { 137 }).saturating_sub(height - 1);
            assert_eq!(report.lost_blocks.min(lost), report.lost_blocks, "{what}");
            assert_eq!(report.lost_blocks > 0, height <= 137 || scan, "{what}");
            assert_lacks(&case, &[height], height - 1, what);
            if at == 85 {
                assert_completed(&case, &[height], what);
            }
        }
    }
}

#[test]
fn all_damage_is_listed_also_beside_a_missing_file_and_what_lies_elsewhere_is_not_downloaded() {
    let deep = |case: &Case, advice: Advice| {
        let found = diagnosed(case.root(), true);
        assert_eq!(found.advice, advice);
        found.found.unwrap().deep.unwrap()
    };
    let case = Case::new();
    let (lost, hit) = (entry(&case, 30), entry(&case, 139));
    assert_ne!(lost.file, hit.file);
    case.flip_block(139, 100);
    fs::remove_file(blk(&case, &lost)).unwrap();
    let found = deep(&case, Advice::Repair);
    assert_eq!((found.blocks, found.first.len(), found.elsewhere), (141, 2, 0), "{:?}", found.first);
    let case = Case::new();
    let path = blk(&case, &hit);
    // As many bytes as the key has.
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, [&bytes[..8], &bytes].concat()).unwrap();
    let found = deep(&case, Advice::ReindexByScan);
    assert!(found.damaged > 0 && found.elsewhere == found.damaged);
}

#[test]
fn a_block_that_cannot_be_read_is_damaged() {
    let case = Case::new();
    let hit = entry(&case, 100);
    let bad = || FaultDisk::healthy().with_unreadable(&blk(&case, &hit), hit.data_pos.unwrap().0 + 150);
    let rebuild = |options| reindex(&bad(), &options, unwatched());
    let plain = rebuild(case.options()).map(|report| report.height).unwrap_err();
    assert_eq!(plain.kind, ErrorKind::Environment, "{plain}");
    assert_offers(&plain, &[Remedy::Repair, Remedy::EndBelowDamage]);
    let report = rebuild(until_damage(&case.options())).unwrap();
    assert_eq!((report.height, report.damaged_blocks), (Height(99), 1));
    assert_lacks(&case, &[100], 99, "a bad sector");
}

/// bitcoind, which connects the blocks above, could not write their undo data.
#[test]
fn a_directory_in_the_place_of_undo_data_is_refused() {
    let case = Case::new();
    let file = rev(&case, &entry(&case, 100));
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let mut options = until_damage(&case.options());
    options.chain.undo = UndoPolicy::Trust;
    let error =
        refused(&options, ErrorKind::Damaged, &["a directory is in the place of a file", "rev00000.dat"]);
    assert_offers(&error, &[Remedy::MoveAway]);
}

#[test]
fn damaged_undo_data_ends_the_chain_only_if_it_is_needed() {
    for (policy, height) in [(UndoPolicy::Auto, 140), (UndoPolicy::Make, 140), (UndoPolicy::Trust, 119)] {
        let what = &format!("{policy:?}");
        let case = Case::new();
        case.flip_undo(120);
        let mut options = case.options();
        options.chain.undo = policy;
        let report = end_below(&case, &options);
        assert_eq!((report.height.0, report.damaged_blocks), (height, 0), "{what}");
        assert_eq!(damage_note(&report), Some((0, 1)), "{what}");
        let status = entry(&case, 120).status;
        let is_made = policy != UndoPolicy::Trust;
        assert_eq!((status.has_data(), status.has_undo()), (true, is_made), "{what}");
        if policy == UndoPolicy::Trust {
            assert_eq!(report.lost_blocks, 137 - 119);
            // What bitcoind does when it connects the blocks.
            assert_eq!(run(&case.options()).unwrap().height, Height(140));
        }
        sync::assert_sound(case.root(), chain(), what);
    }
}

#[test]
fn an_output_elsewhere_gets_the_index_and_the_datadir_stays() {
    let case = Case::new();
    case.flip_block(100, 90);
    let before = tree(case.root());
    let output = scratch();
    let options = elsewhere(case.options(), output.path());
    assert_eq!(end_below(&case, &options).height, Height(99));
    assert_same_tree(&before, case.root(), "an output elsewhere");
    let coins = stats(output.path(), Network::Regtest).unwrap();
    assert_eq!(coins.hash_serialized_3, stats_by_height(chain())[99].hash_serialized_3);
    let hash = block_at(100).hash;
    let found = sync::index(output.path()).entries.into_iter().find(|entry| entry.hash == hash);
    assert_eq!(found.unwrap().status, BlockStatus(BlockStatus::VALID_TREE));
}

#[test]
fn only_loss_by_damage_is_accepted() {
    let case = Case::new();
    case.flip_block(100, 90);
    let low = up_to(case.options(), 50);
    refused(&until_damage(&low), ErrorKind::Damaged, &["would end at height 50"]);
}

#[test]
fn an_interrupt_leaves_the_datadir_as_it_was_and_the_next_run_completes() {
    let flipped = || changed(Case::new(), |case| case.flip_block(100, 90));
    let (index, until) = (flipped().index(), |case: &Case| bounded(&until_damage(&case.options())));
    let failures = Scenario {
        before: &flipped,
        run: &|disk, case| run_on(disk, &until(case)).map(drop),
        is_whole: &|case, is_done, what| assert!(is_done || case.index() == index, "{what}"),
        succeeds: &|case, what| {
            assert_eq!(run(&until(case)).unwrap().height, Height(99), "{what}");
            assert_lacks(case, &[100], 99, what);
        },
    }
    .suffer(Trouble::Interrupt, 30, false);
    assert!(failures >= 10, "{failures}");
}

/// The run that found the damage has saved a checkpoint of the chain with the damaged block.
#[test]
fn the_checkpoint_of_the_run_that_failed_is_no_obstacle() {
    let case = Case::new();
    case.flip_block(139, 90);
    run(&acceptance::bounded(&case.options())).map(|report| report.height).unwrap_err();
    assert_eq!(end_below(&case, &acceptance::bounded(&case.options())).height, Height(138));
    assert_lacks(&case, &[139], 138, "after a failure");
}

/// A scan found the genesis block alone and no damage: the chainstate of that block replaced the right one.
#[test]
fn a_scan_of_a_pruned_node_is_refused() {
    let (dir, peer) = (scratch(), peer());
    sync::run(&pruned(dir.path(), &[&peer]));
    let scan = until_damage(&changed(options(dir.path()), |it| it.chain.scan = true));
    assert_offers(&refused(&scan, ErrorKind::Usage, &[]), &[Remedy::Unprune]);
    fs::remove_dir_all(dir.path().join("regtest/blocks/index")).unwrap();
    let error = refused(&scan, ErrorKind::Damaged, &["would end at height 0"]);
    assert!(!error.remedies.contains(&Remedy::EndBelowDamage), "it was tried: {error}");
}

/// A repair was advised for ever with `--deep`, and found nothing damaged. bitcoind marks the block.
#[test]
fn a_block_that_breaks_a_rule_is_not_damaged() {
    let mut blocks = main_to(tip());
    let last = &mut blocks[tip()];
    *last = sibling(last, 1, |block| block.txdata[0].input[0].script_sig = vec![2_u8; 4].into());
    let case = Case::of(behind(blocks.iter(), TIP - 1, &layout()));
    let found = diagnosed(case.root(), true);
    assert!(found.is_sound() && found.advice == Advice::StartBitcoind, "{found:?}");
}

/// A scan was advised, a rebuild or an update, and was refused: blocks above a gap have undo data.
#[test]
fn a_gap_above_the_chainstate_is_in_the_way_of_what_connects_blocks_only() {
    let break_chainstate = |case: &Case| {
        let table = add_table(&case.net("chainstate"), b"Bz", b"1");
        flip_bit(&table, 5, 0).unwrap();
    };
    let damages: [fn(&Case); 3] = [|case| case.flip_undo(60), |case| case.flip_undo(70), break_chainstate];
    let ways = [(Advice::MakeUndo, "undo make"), (Advice::Repair, "repair"), (Advice::Repair, "repair")];
    for (damage, (advice, command)) in damages.into_iter().zip(ways) {
        let case = Case::at_tip();
        run(&lowered(case.options(), 60)).unwrap();
        case.forget_blocks(|entry| entry.height == Height(100));
        damage(&case);
        for deep in [false, true] {
            let found = diagnosed(case.root(), deep);
            assert_eq!(found.advice, advice, "{found:?}");
        }
        Shell::of(&case).run(command).unwrap();
    }
}

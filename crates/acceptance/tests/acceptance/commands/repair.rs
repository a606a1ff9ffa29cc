//! A repair downloads the blocks that are damaged or missing, no others, and rebuilds only what needs it.
//! `input/situations.txt` has what it does about each kind of damage.

use acceptance::prelude::*;
use acceptance::{hinted::add_headers, sync::repair_on};
use sync::repair;

/// Repairs from an honest peer.
fn repaired(case: &Case) -> RepairReport {
    let peer = honest();
    try_repair(&repairing(case.root(), &[&peer])).unwrap_or_else(|error| panic!("{error}"))
}

fn chainstate(case: &Case) -> impl PartialEq + use<> {
    tree(&case.net("chainstate"))
}

/// Changes the record of the block at `height`, without obfuscation; returns its file as it was.
fn rewrite_record(case: &Case, height: u32, change: fn(&mut Vec<u8>)) -> Vec<u8> {
    let hit = entry(case, height);
    let (path, start) = (blk(case, &hit), hit.data_pos.unwrap().0 as usize - RECORD_HEADER_LEN);
    let obfuscation = read_block_obfuscation(&RealDisk, &case.blocks("")).unwrap();
    let before = fs::read(&path).unwrap();
    let mut plain = before.clone();
    obfuscation.apply(&mut plain, 0);
    let end = start + RECORD_HEADER_LEN + block_at(height).bytes.len();
    let mut record = plain[start..end].to_vec();
    change(&mut record);
    plain.splice(start..end, record);
    obfuscation.apply(&mut plain, 0);
    fs::write(&path, plain).unwrap();
    before
}

fn set_len(record: &mut [u8], len: u32) {
    record[4..RECORD_HEADER_LEN].copy_from_slice(&len.to_le_bytes());
}

/// A name, the damage to a record, and whether a scan finds the block nevertheless.
type RecordDamage = (&'static str, fn(&mut Vec<u8>), bool);

/// What happens to a record.
const RECORD_DAMAGE: [RecordDamage; 5] = [
    ("a bit of the magic", |record| record[0] ^= 1, false),
    ("a header without proof of work", |record| record[RECORD_HEADER_LEN + 75] = 0, false),
    ("a length beyond the end", |record| set_len(record, 3_000_000), false),
    ("a length that is too short", |record| set_len(record, 100), false),
    ("its beginning before it", |record| record.splice(..0, record[..99].to_vec()).for_each(drop), true),
];

/// Without databases, only the blocks above tell that one is missing.
#[test]
fn nothing_ends_below_blocks_whose_parent_is_missing() {
    for (what, damage, is_found) in RECORD_DAMAGE {
        let case = Case::at_tip();
        let whole = rewrite_record(&case, 125, damage);
        for dir in [case.net("chainstate"), case.blocks("index")] {
            fs::write(dir.join("CURRENT"), "").unwrap();
        }
        let scanned = run(&case.scan()).map(|report| report.height);
        if is_found {
            assert_eq!(scanned.unwrap(), Height(140), "{what}");
            assert_sound(case.root(), chain(), what);
            continue;
        }
        assert!(scanned.unwrap_err().remedies.contains(&Remedy::Repair), "{what}");
        let [lower, copy] = [Case::new(), Case::new()];
        [&lower, &copy].into_iter().for_each(|copy| copy_dir(case.root(), copy.root()).unwrap());
        let lower = run(&ReindexOptions { until_damage: true, ..lower.scan() }).unwrap();
        let is_counted = |note: &Warning| match note {
            Warning::LowerTip(lower) => lower.blocks >= 10,
            Warning::Damage { blocks, .. } => *blocks == 1,
            _ => false,
        };
        // A stale branch goes on for a few blocks.
        assert!(lower.height < Height(130), "{what}: {}", lower.height);
        assert!(lower.notes.iter().any(is_counted), "{what}: {:?}", lower.notes);
        // Another folder has the block, or a peer.
        let other = scratch();
        fs::write(other.path().join("blk00000.dat"), whole).unwrap();
        fs::copy(case.blocks("xor.dat"), other.path().join("xor.dat")).unwrap();
        let offline = RepairOptions { sources: vec![other.path().to_owned()], ..repairing(copy.root(), &[]) };
        let taken = try_repair(&offline).unwrap();
        let report = repaired(&case);
        for (case, report) in [(&copy, &taken), (&case, &report)] {
            let downloaded = report.download.as_ref().map_or(0, |download| download.blocks);
            assert_eq!((report.taken + downloaded, report.height), (1, Height(140)), "{what}");
            assert_sound(case.root(), chain(), what);
        }
    }
}

/// bitcoind has learnt headers with more work, which leave the chain far below; nobody has their blocks.
#[test]
fn blocks_are_repaired_although_headers_without_blocks_have_more_work() {
    let case = Case::at_tip();
    let fork = entry(&case, 60);
    case.edit_index(|index| add_headers(index, fork, 100));
    case.flip_block(125, 100);
    let (before, peer) = (chainstate(&case), honest());
    assert_eq!(diagnosed(case.root(), true).advice, Advice::Repair);
    let report = try_repair(&repairing(case.root(), &[&peer])).unwrap();
    assert_eq!((peer.asked().len(), report.height), (1, Height(140)));
    assert!(report.rebuild.is_none() && chainstate(&case) == before);
    assert_eq!(diagnosed(case.root(), true).advice, Advice::StartBitcoind);
}

/// The block index places blocks where they are no more, but they are all there.
#[test]
fn blocks_that_are_elsewhere_in_the_same_files_need_no_peer() {
    let inserted: fn(&mut Vec<u8>) = |record| record.splice(..0, [0; 8]).for_each(drop);
    for (what, damage) in [("inserted", inserted), ("a length", |record| set_len(record, 3_000_000))] {
        let case = Case::at_tip();
        rewrite_record(&case, 100, damage);
        let coins = chainstate(&case);
        let report = try_repair(&repairing(case.root(), &[])).unwrap();
        assert!(report.damaged > 0 && report.taken == report.damaged && report.download.is_none(), "{what}");
        assert!(report.rebuild.is_none() && chainstate(&case) == coins, "{what}");
        assert_sound(case.root(), chain(), what);
    }
    let case = Case::at_tip();
    rewrite_record(&case, 100, inserted);
    let lower = ReindexOptions { until_damage: true, ..case.options() };
    assert_says(run(&lower), &["damaged blocks lie sound at other places in the block files"]);
    assert_eq!(run(&changed(lower, |it| it.chain.scan = true)).unwrap().height, Height(140));
}

/// Once, the result ended below the damage: a scan does not find the blocks above it.
#[test]
fn what_a_reindexing_block_index_had_connected_is_downloaded() {
    let case = Case::at_tip();
    case.edit_index(|index| index.reindexing = true);
    case.flip_block(125, 40);
    fs::remove_dir_all(case.net("chainstate")).unwrap();
    let report = repaired(&case);
    assert_eq!((report.height, report.rebuild.unwrap().height), (Height(140), Height(140)));
    assert_eq!(report.download.unwrap().blocks, 1, "those above it are in the files");
}

#[test]
fn damaged_blocks_are_downloaded_and_a_sound_chainstate_stays() {
    for heights in [vec![140], vec![125], vec![1], vec![30, 31, 90, 139]] {
        for at in [40, 100] {
            let (case, what) = (Case::at_tip(), format!("{heights:?} at {at}"));
            heights.iter().for_each(|&height| case.flip_block(height, at));
            let (before, coins) = (case.index(), chainstate(&case));
            let report = repaired(&case);
            assert_eq!((report.damaged as usize, report.missing), (heights.len(), 0), "{what}");
            assert_eq!((report.lost, report.lost_files), (0, 0), "{what}");
            assert_eq!(report.first.len(), heights.len().min(5), "{what}");
            assert_eq!(report.download.unwrap().blocks as usize, heights.len(), "{what}");
            let stays = report.rebuild.is_none() && chainstate(&case) == coins;
            assert!(stays, "{what}: the chainstate was sound");
            assert_eq!(report.undo.unwrap().undo.blocks as usize, heights.len(), "{what}");
            assert_eq!(report.height, Height(140), "{what}");
            assert_sound(case.root(), chain(), &what);
            // Only the entries of these blocks are different.
            let after = case.index();
            let differ = before.entries.iter().zip(&after.entries).filter(|(before, after)| before != after);
            let mut changed: Vec<u32> = differ.map(|(before, _)| before.height.0).collect();
            changed.sort_unstable();
            assert_eq!(changed, heights, "{what}");
            let is_fit = |entry: &IndexEntry| entry.status.was_connected() || entry.undo_pos.is_none();
            assert!(after.entries.iter().skip(1).all(is_fit));
            // There is nothing more to do.
            let again = try_repair(&repairing(case.root(), &[])).unwrap();
            assert!(again.download.is_none() && again.undo.is_none() && again.rebuild.is_none(), "{what}");
        }
    }
}

#[test]
fn damaged_blocks_stay_in_the_index_until_others_are_stored() {
    let case = Case::at_tip();
    [60, 100].into_iter().for_each(|height| case.flip_block(height, 100));
    let entries = || [60, 100].map(|height| entry(&case, height));
    let (before, [was_damaged, was_lacking]) = (case.index(), entries());
    // Nobody has the second block.
    let peer = peer_with(&main_to(79));
    let interrupt = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let (options, interrupt) = (repairing(case.root(), &[&peer]), &interrupt);
        let running = scope.spawn(move || repair(&FaultDisk::healthy(), &options, &|_| {}, interrupt));
        wait_until("the block is stored", || {
            let last = before.files.len() - 1;
            let len = |number: usize| {
                fs::metadata(case.blocks(&format!("blk{number:05}.dat"))).map_or(0, |file| file.len())
            };
            len(last) + len(last + 1) > u64::from(before.files[last].size)
        });
        interrupt.store(true, Ordering::Relaxed);
        assert_eq!(running.join().unwrap().unwrap_err().kind, ErrorKind::Interrupted);
    });
    let [stored, lacking] = entries();
    assert_eq!(lacking, was_lacking);
    assert!(stored.data_pos != was_damaged.data_pos);
    assert!(stored.status.was_connected(), "bitcoind would not accept those above it");
    let report = repaired(&case);
    assert_eq!((report.damaged, report.download.unwrap().blocks), (1, 1));
    assert_sound(case.root(), chain(), "after an interrupt");
}

/// It was interrupted when its new block index, by a scan, had got the headers of the last blocks.
#[test]
fn a_repair_that_has_stored_only_headers_of_the_last_blocks_continues() {
    let case = Case::at_tip();
    case.forget_blocks(|entry| entry.height > Height(120));
    let (coins, report) = (chainstate(&case), repaired(&case));
    assert_eq!((report.download.unwrap().found, report.height), (20, Height(140)));
    assert!(report.rebuild.is_none() && chainstate(&case) == coins);
    assert_sound(case.root(), chain(), "headers of the last blocks");
}

/// With a block index, it is a cell of `input/situations.txt`.
#[test]
fn a_chainstate_of_another_chain_is_set_aside_also_without_a_block_index() {
    let (case, store) = (Case::at_tip(), scratch());
    damage::cause("chainstate: of another chain", &case, store.path());
    fs::remove_file(case.blocks("index/CURRENT")).unwrap();
    let report = repaired(&case);
    let is_said = |note: &Warning| matches!(note, Warning::ChainstateSetAside { .. });
    assert!(report.notes.iter().any(is_said), "{:?}", report.notes);
    assert_eq!((report.damaged, report.rebuild.unwrap().height), (0, Height(140)));
    fs::remove_dir_all(case.net("chainstate.old")).unwrap();
    assert_sound(case.root(), chain(), "a chainstate of another chain");
}

/// A rebuild by the block index was advised, which lacks the chainstate's best block, and is refused.
#[test]
fn without_peers_lost_last_blocks_are_left_by_a_scan() {
    let (case, store) = (Case::at_tip(), scratch());
    damage::cause("chainstate: of another chain", &case, store.path());
    let words = ["the last blocks are still damaged or missing"];
    let error = assert_fails(try_repair(&repairing(case.root(), &[])), ErrorKind::Environment, &words);
    assert_eq!(error.remedies.last(), Some(&Remedy::EndBelowDamageByScan), "{error}");
    let rebuilt = |options| run(&ReindexOptions { until_damage: true, ..options });
    assert_fails(rebuilt(case.options()), ErrorKind::Damaged, &["the block index does not contain"]);
    assert_eq!(rebuilt(case.scan()).unwrap().height, Height(TIP));
}

/// The old index, which may come back, can refer to what a scan does not recognize.
#[test]
fn without_an_index_no_byte_of_undo_files_is_overwritten() {
    let case = Case::at_tip();
    let file = rev(&case, &entry(&case, 120));
    let foreign = vec![0xa5; 3000];
    fs::write(&file, &foreign).unwrap();
    fs::remove_dir_all(case.blocks("index")).unwrap();
    let report = repaired(&case);
    assert!(report.undo.is_some() || report.rebuild.is_some());
    let bytes = fs::read(&file).unwrap();
    assert!(bytes.len() > foreign.len() && bytes.starts_with(&foreign));
    assert_sound(case.root(), chain(), "foreign undo data");
}

/// The damaged copy is still in its file, before the other one.
#[test]
fn a_scan_takes_the_sound_copy() {
    let case = Case::at_tip();
    [60, 139].into_iter().for_each(|height| case.flip_block(height, 100));
    repaired(&case);
    let report = run(&case.scan()).unwrap();
    assert_eq!((report.height, report.notes.len()), (Height(140), 0), "{:?}", report.notes);
    assert_sound(case.root(), chain(), "a scan after a repair");
    // If all are damaged, the block is.
    case.flip_block(60, 100);
    let error = run(&case.scan()).map(|report| report.height).unwrap_err();
    assert_eq!((error.kind, error.height), (ErrorKind::Damaged, Some(Height(60))));
}

/// The block index is replaced at the end, when the indexes of the node have been set aside already.
#[test]
fn a_block_index_that_cannot_be_replaced_is_found_before_the_download() {
    let (case, peer) = (Case::at_tip(), honest());
    case.flip_block(125, 100);
    let disk = FaultDisk::healthy().with_mount(&case.net("blocks/index"));
    let repair = || repair_on(&disk, &repairing(case.root(), &[&peer]));
    refused_by(case.root(), ErrorKind::Environment, &["index", "mount"], repair);
    assert!(peer.asked().is_empty());
}

#[test]
fn nobody_is_believed() {
    let case = Case::at_tip();
    [60, 100].into_iter().for_each(|height| case.flip_block(height, 100));
    let liar = ScriptedPeer::start(&acceptance::sync::served(), Fault::Mutates);
    let peer = honest();
    let report = try_repair(&repairing(case.root(), &[&liar, &peer])).unwrap();
    assert_eq!(report.download.unwrap().blocks, 2);
    assert_sound(case.root(), chain(), "a peer that lies");
}

/// The peer's chain leaves the one of the datadir below what is damaged, and has more work, or less.
#[test]
fn peers_of_another_chain_end_a_repair_that_has_changed_nothing() {
    for (fork, tip) in [(1, 139), (59, 140), (1, 100)] {
        let (case, what) = (Case::at_tip(), format!("fork at {fork}, tip {tip}"));
        [60, 100].into_iter().for_each(|height| case.flip_block(height, 100));
        let mut other = main_to(tip);
        other.extend((tip == 140).then(|| other[140].clone()));
        let other = branch_of(other, fork, |block| sibling(block, 3, |_| {}));
        let (peer, start) = (peer_with(&other), Instant::now());
        let words = ["no peer that is connected has this block", "above height"];
        let repair = || try_repair(&repairing(case.root(), &[&peer]));
        let error = refused_by(case.root(), ErrorKind::Environment, &words, repair);
        assert_eq!(error.height, Some(Height(60)), "{what}: {error}");
        // Nobody may ever have the block of a stale tip.
        assert_eq!(error.remedies.first(), Some(&Remedy::Sync), "{what}: {error}");
        assert!(start.elapsed() < Duration::from_secs(40), "{what}: {:?}", start.elapsed());
    }
}

#[test]
fn after_a_crash_at_any_moment_the_same_command_completes() {
    let peer = honest();
    let repair = |disk: &FaultDisk, case: &Case| repair_on(disk, &repairing(case.root(), &[&peer])).map(drop);
    let states = Scenario {
        before: &|| changed(Case::at_tip(), |case| case.flip_block(100, 100)),
        run: &repair,
        is_whole: &|case, _, what| {
            assert_eq!(index(case.root()).entries.len(), chain().blocks.len(), "{what}");
        },
        succeeds: &|case, what| {
            repair(&FaultDisk::healthy(), case).unwrap();
            assert_sound(case.root(), chain(), what);
        },
    }
    .explore(Crashes { stride: 5, twice: false, ..Crashes::default() });
    assert!(states > 20, "{states}");
}

/// As that of another chain: `doctor` advised a repair, which was refused, and so was `sync`.
#[test]
fn a_block_index_without_the_genesis_block_is_replaced() {
    let case = Case::at_tip();
    edit_index(&case.blocks("index"), |index| index.entries.retain(|it| it.height > Height(0))).unwrap();
    assert_offers(&run(&case.options()).unwrap_err(), &[Remedy::RebuildIndex]);
    fs::remove_file(case.blocks("blk00001.dat")).unwrap();
    assert_eq!(diagnosed(case.root(), false).advice, Advice::Repair);
    assert!(repaired(&case).download.is_some());
    assert_sound(case.root(), chain(), "replaced");
}

/// Below the snapshot, blocks are missing because bitcoind has not come to them yet.
#[test]
fn the_blocks_below_a_snapshot_are_bitcoinds_to_download() {
    let case = Case::at_tip();
    case.flip_block(100, 90);
    run(&ReindexOptions { until_damage: true, ..case.options() }).unwrap();
    write_file(case.net("chainstate_snapshot/base_blockhash"), [7; 32]);
    let done = try_repair(&repairing(case.root(), &[]));
    assert_fails(done, ErrorKind::Usage, &["the chainstate of a snapshot", "move the directory away"]);
}

#[test]
fn progress_names_the_stages() {
    let case = Case::at_tip();
    case.flip_block(100, 100);
    let (seen, peer) = (Mutex::new(Vec::new()), honest());
    let sink = |event: Event| seen.lock().unwrap().push(event);
    repair(&FaultDisk::healthy(), &repairing(case.root(), &[&peer]), &sink, &AtomicBool::new(false)).unwrap();
    let expected = ["plan", "check", "read", "headers", "download", "prove", "plan", "check", "commit"];
    assert_eq!(stages(&seen.into_inner().unwrap()), expected);
}

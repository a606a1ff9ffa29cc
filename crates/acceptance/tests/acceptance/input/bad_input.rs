//! Bad input, one test for each kind: the error has the right kind, names location and remedy, and the
//! datadir is unchanged.

use acceptance::BUSY;
use acceptance::prelude::*;
use digest::obfuscation::Obfuscation;
use std::process::Command;
use testkit::corrupt::{flip_bit, truncate};

#[test]
fn an_empty_datadir_is_damaged() {
    let dir = acceptance::scratch();
    let error = refused(&acceptance::options(dir.path()), ErrorKind::Damaged);
    assert_mentions(&error, &["not a Bitcoin Core datadir", "-datadir", &dir.path().to_string_lossy()]);
}

#[test]
fn a_missing_datadir_is_damaged_and_not_created() {
    let dir = acceptance::scratch();
    let missing = dir.path().join("bitcoin");
    let error = run(&acceptance::options(&missing)).map(|report| report.height).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Damaged);
    assert_mentions(&error, &["no such directory", "-datadir"]);
    assert!(!missing.exists(), "it must not be created");
}

#[test]
fn empty_block_directories_are_damaged() {
    let dir = acceptance::scratch();
    std::fs::create_dir_all(dir.path().join("regtest/blocks")).unwrap();
    for scan in [false, true] {
        let options = ReindexOptions { scan, ..acceptance::options(dir.path()) };
        let error = refused(&options, ErrorKind::Damaged);
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn a_wrong_chain_is_reported_with_the_chain_that_exists() {
    let case = Case::new();
    let options = changed(case.options(), |it| it.chain.params = ChainParams::of(Network::Signet));
    let error = refused(&options, ErrorKind::Damaged);
    assert_mentions(
        &error,
        &["no blocks of the chain signet", "name the chain that it has blocks of: regtest"],
    );
}

#[test]
fn blocks_of_another_network_are_reported_with_their_network() {
    let case = Case::new();
    std::fs::rename(case.root().join("regtest"), case.root().join("signet")).unwrap();
    for scan in [false, true] {
        let options = changed(ReindexOptions { scan, ..case.options() }, |it| {
            it.chain.params = ChainParams::of(Network::Signet)
        });
        let error = refused(&options, ErrorKind::Damaged);
        assert_mentions(&error, &["the blocks are of chain regtest"]);
        assert_offers(&error, &[Remedy::ChooseNetwork(Network::Regtest)]);
    }
    // If the first file does not show it, the genesis block is missing.
    std::fs::remove_file(case.root().join("signet/blocks/blk00000.dat")).unwrap();
    let options = changed(case.options(), |it| it.chain.params = ChainParams::of(Network::Signet));
    assert_mentions(&refused(&options, ErrorKind::Damaged), &["genesis block", "another network"]);
}

#[test]
fn a_pruned_node_is_reported() {
    let case = Case::new();
    testkit::situation::cause("pruned", case.root(), case.root());
    for options in [case.options(), case.scan()] {
        let error = refused(&options, ErrorKind::Damaged);
        assert_mentions(&error, &["this node was pruned", "all blocks from the genesis block on"]);
        assert_eq!(error.remedies, [Remedy::Unprune]);
    }
}

#[test]
fn the_first_missing_block_of_a_pruned_node_is_named() {
    let case = Case::new();
    let hole = entry(&case, BUSY);
    case.edit_index(|index| {
        let entry = index.entries.iter_mut().find(|entry| entry.hash == hole.hash).unwrap();
        entry.status = BlockStatus(entry.status.0 & !(BlockStatus::HAVE_DATA | BlockStatus::HAVE_UNDO));
        (entry.file, entry.data_pos, entry.undo_pos) = (None, None, None);
    });
    let error = refused(&case.options(), ErrorKind::Damaged);
    assert_eq!((error.height, error.block_hash), (Some(Height(BUSY)), Some(hole.hash)));
    assert_mentions(
        &error,
        &["the block is not on disk", "pruned", "restore the files", "up to the block below"],
    );
}

#[test]
fn a_missing_blk_file_is_named() {
    let case = Case::new();
    std::fs::remove_file(case.blocks("blk00001.dat")).unwrap();
    let error = refused(&case.options(), ErrorKind::Damaged);
    assert_eq!(error.file, Some(case.blocks("blk00001.dat")));
    assert_mentions(&error, &["the file is missing", "restore the file"]);
    let ways_on = [Remedy::Repair, Remedy::GiveBlock, Remedy::EndBelowDamage];
    assert_offers(&error, &ways_on);
    let error = refused(&case.scan(), ErrorKind::Damaged);
    assert_mentions(&error, &["is not on disk", "restore the files"]);
    assert_offers(&error, &[Remedy::Repair, Remedy::EndBelowDamage]);
}

#[test]
fn a_missing_rev_file_is_named() {
    let case = Case::new();
    std::fs::remove_file(case.blocks("rev00001.dat")).unwrap();
    let error = refused(&trusting(&case.options()), ErrorKind::Damaged);
    assert_eq!(error.file, Some(case.blocks("rev00001.dat")));
    assert_mentions(&error, &["the file is missing", "restore the file", "make the undo data"]);
    let error = refused(&trusting(&case.scan()), ErrorKind::Damaged);
    assert_mentions(&error, &["undo data of the block is not on disk", "make the undo data"]);
}

/// A scan recognizes neither file's records. They were once overwritten, although the old block index, which
/// a crash would leave in place, referred to them.
#[test]
fn a_scan_appends_to_undo_files_that_it_does_not_recognize() {
    let case = Case::new();
    let [first, second] = ["rev00000.dat", "rev00001.dat"].map(|name| case.blocks(name));
    let [old_first, old_second] = [&first, &second].map(|path| std::fs::read(path).unwrap());
    std::fs::write(&first, &old_second).unwrap();
    std::fs::write(&second, &old_first).unwrap();
    run(&case.scan()).unwrap();
    assert!(std::fs::read(&first).unwrap().starts_with(&old_second), "bytes of rev00000.dat changed");
    assert!(std::fs::read(&second).unwrap().starts_with(&old_first), "bytes of rev00001.dat changed");
    run(&trusting(&case.options())).unwrap();
}

/// The attempt once failed at its end only, and left the undo data that it had made.
#[test]
fn a_directory_in_place_of_a_rev_file_is_named_at_once() {
    let case = Case::new();
    let path = case.blocks("rev00001.dat");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    for options in [case.options(), case.scan()] {
        let error = refused(&options, ErrorKind::Damaged);
        assert_eq!(error.file.as_ref(), Some(&path), "{error}");
        assert!(!case.blocks("peregrine-undo").exists(), "{error}");
    }
}

/// The damage is found while blocks are checked. The record was once made and appended before the run failed.
#[test]
fn a_damaged_record_is_not_replaced_if_the_index_cannot_be() {
    let case = Case::new();
    let damaged = entry(&case, BUSY);
    flip_bit(&rev(&case, &damaged), damaged.undo_pos.unwrap().0 + 3, 0).unwrap();
    let notes = case.blocks("index.peregrine/notes.txt");
    std::fs::create_dir(notes.parent().unwrap()).unwrap();
    std::fs::write(&notes, "mine").unwrap();
    let error = refused(&case.options(), ErrorKind::Environment);
    assert_mentions(&error, &["index.peregrine", "move it away"]);
}

#[test]
fn a_blk_file_truncated_inside_a_block_is_named() {
    let case = Case::new();
    let cut = entry(&case, BUSY);
    let (path, pos) = (blk(&case, &cut), cut.data_pos.unwrap().0);
    let cuts = [pos + 100, pos + 1, pos, pos - 4, 0];
    for len in cuts {
        truncate(&path, len).unwrap();
        let error = refused(&case.options(), ErrorKind::Damaged);
        assert_eq!(error.file.as_ref(), Some(&path), "{error}");
        assert!(error.height.is_some() && error.offset.is_some(), "{error}");
        let scanned = refused(&case.scan(), ErrorKind::Damaged);
        assert_mentions(&scanned, &["not on disk"]);
    }
}

#[test]
fn a_truncated_last_block_is_reported() {
    let case = Case::new();
    let index = case.index();
    let last = index.entries.iter().max_by_key(|entry| (entry.file, entry.data_pos)).unwrap();
    let path = blk(&case, last);
    truncate(&path, last.data_pos.unwrap().0 + 85).unwrap();
    let error = refused(&case.options(), ErrorKind::Damaged);
    assert_eq!(error.file.as_ref(), Some(&path));
    assert_mentions(&error, &["beyond the end of the file", "restore the file"]);
}

#[test]
fn a_rev_file_truncated_inside_a_record_is_named() {
    let case = Case::new();
    let cut = entry(&case, BUSY);
    let (path, pos) = (rev(&case, &cut), cut.undo_pos.unwrap().0);
    for len in [pos + 33, pos + 1, pos, pos - 4, 0] {
        truncate(&path, len).unwrap();
        let error = refused(&trusting(&case.options()), ErrorKind::Damaged);
        assert_eq!(error.file.as_ref(), Some(&path), "{error}");
        assert!(error.height.is_some() && error.offset.is_some(), "{error}");
    }
}

/// Core ignores what follows a block in its record, and so does `-reindex`: such a record was once reported
/// as damaged.
#[test]
fn a_record_longer_than_its_block_is_accepted() {
    let case = Case::new();
    let index = case.index();
    let in_first = || index.entries.iter().filter(|entry| entry.file.is_some_and(|file| file.0 == 0));
    let last = in_first().max_by_key(|entry| entry.data_pos).unwrap();
    let (path, pos) = (blk(&case, last), last.data_pos.unwrap().0 as usize);
    let mut bytes = std::fs::read(&path).unwrap();
    let key = Obfuscation::from_key(std::fs::read(case.blocks("xor.dat")).unwrap().try_into().unwrap());
    key.apply(&mut bytes, 0);
    let plain = run(&case.options()).unwrap();
    for more in [1, 80, 5_000_000] {
        let mut longer = bytes.clone();
        longer.resize(bytes.len() + more, 0xfa);
        let len = (longer.len() - pos) as u32;
        longer[pos - 4..pos].copy_from_slice(&len.to_le_bytes());
        key.apply(&mut longer, 0);
        std::fs::write(&path, longer).unwrap();
        // A scan accepts only records that can be blocks, as Core's does.
        let scan = if more < 4_000_000 { vec![case.options(), case.scan()] } else { vec![case.options()] };
        for options in scan {
            let report = run(&options).unwrap();
            assert_eq!(report.hash_serialized_3, plain.hash_serialized_3);
            assert_eq!(report.counts, plain.counts, "bytes after a block are not counted");
        }
    }
}

/// Opening a named pipe without a writer would block forever.
#[test]
fn files_that_are_not_regular_are_damaged() {
    let names = ["blk00001.dat", "rev00001.dat", "xor.dat", "index/CURRENT", ".lock"];
    for name in names {
        let case = Case::new();
        let path = case.blocks(name);
        let _ = std::fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = run(&case.options()).map(|report| report.height).unwrap_err();
        assert_mentions(&error, &[name, "named pipe (FIFO), not a regular file", "put the file there"]);
        assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
        if name.starts_with("blk") {
            let error = run(&case.scan()).map(|report| report.height).unwrap_err();
            assert_mentions(&error, &[name, "named pipe (FIFO)"]);
        }
    }
    let device = Path::new("/dev/zero");
    let error = engine::hints_info(&vfs::RealDisk, device, None).unwrap_err();
    assert_mentions(&error, &["/dev/zero", "a character device, not a regular file"]);
    let error = engine::snapshot_info(&vfs::RealDisk, device).unwrap_err();
    assert_mentions(&error, &["a character device, not a regular file"]);
}

/// `-blocksdir`: the files were once reported as missing, without a remedy.
#[test]
fn blocks_in_another_directory_are_reported_with_a_remedy() {
    let case = Case::new();
    let elsewhere = acceptance::scratch();
    let blocks = elsewhere.path().join("regtest/blocks");
    std::fs::create_dir_all(&blocks).unwrap();
    let dats = || {
        let entries = std::fs::read_dir(case.blocks("")).unwrap().map(|entry| entry.unwrap().file_name());
        entries.filter(|name| name.to_string_lossy().ends_with(".dat")).collect::<Vec<_>>()
    };
    for name in dats() {
        std::fs::copy(case.blocks("").join(&name), blocks.join(&name)).unwrap();
        std::fs::remove_file(case.blocks("").join(&name)).unwrap();
    }
    for options in [case.options(), case.scan()] {
        let text = ["-blocksdir=DIR", "give that directory here too"];
        assert_mentions(&refused(&options, ErrorKind::Damaged), &text);
        let there = changed(options, |it| it.chain.blocksdir = Some(elsewhere.path().to_owned()));
        assert_eq!(run(&there).unwrap().hash_serialized_3, chain().model.stats().hash_serialized_3);
        assert!(dats().is_empty(), "nothing but the index is in the datadir");
    }
    // Or with links, also of single files.
    for entry in std::fs::read_dir(&blocks).unwrap().map(Result::unwrap) {
        if entry.file_name() != ".lock" {
            std::os::unix::fs::symlink(entry.path(), case.blocks("").join(entry.file_name())).unwrap();
        }
    }
    for options in [case.options(), case.scan()] {
        assert_eq!(run(&options).unwrap().hash_serialized_3, chain().model.stats().hash_serialized_3);
    }
}

/// `--datadir ~/.bitcoin/regtest --chain regtest`.
#[test]
fn the_networks_own_directory_is_accepted_as_datadir() {
    let case = Case::new();
    let options = changed(case.options(), |it| it.chain.datadir = case.root().join("regtest"));
    let report = run(&options).unwrap();
    assert_eq!(report.chainstate, case.root().join("regtest/chainstate"));
    assert_eq!(stats(&options.chain.datadir, Network::Regtest).unwrap().height, Some(report.height));
    // As a datadir of main, the error still names the network of the blocks.
    let error =
        refused(&changed(options, |it| it.chain.params = ChainParams::of(Network::Main)), ErrorKind::Damaged);
    assert_mentions(&error, &["the blocks are of chain regtest"]);
    assert_offers(&error, &[Remedy::ChooseNetwork(Network::Regtest)]);
}

#[test]
fn a_missing_or_incomplete_index_is_reported() {
    let case = Case::new();
    case.edit_index(|index| index.reindexing = true);
    let error = refused(&case.options(), ErrorKind::Damaged);
    assert_mentions(&error, &["-reindex was interrupted"]);
    assert_offers(&error, &[Remedy::RebuildIndex]);
    case.edit_index(|index| {
        index.reindexing = false;
        index.entries.clear();
    });
    let error = refused(&case.options(), ErrorKind::Damaged);
    assert_mentions(&error, &["index is empty"]);
    assert_offers(&error, &[Remedy::RebuildIndex]);
    std::fs::remove_file(case.blocks("index").join("CURRENT")).unwrap();
    assert_mentions(&refused(&case.options(), ErrorKind::Damaged), &["index"]);
    std::fs::remove_dir_all(case.blocks("index")).unwrap();
    let error = refused(&case.options(), ErrorKind::Damaged);
    assert_mentions(&error, &["index"]);
    assert_offers(&error, &[Remedy::RebuildIndex]);
}

#[test]
fn an_index_with_positions_beyond_its_files_is_damaged() {
    for (what, far) in [("blk", 1 << 30), ("rev", 1 << 30), ("blk", 7), ("rev", 7)] {
        let case = Case::new();
        let hit = entry(&case, BUSY);
        case.edit_index(|index| {
            let entry = index.entries.iter_mut().find(|entry| entry.hash == hit.hash).unwrap();
            let pos = if what == "blk" { &mut entry.data_pos } else { &mut entry.undo_pos };
            *pos = Some(wire::ByteOffset(far));
        });
        let error = refused(&trusting(&case.options()), ErrorKind::Damaged);
        assert_offers(&error, &[Remedy::RebuildIndex]);
        if far > 7 {
            assert_eq!(error.height, Some(Height(BUSY)), "{error}");
            let path = if what == "blk" { blk(&case, &hit) } else { rev(&case, &hit) };
            assert_eq!(error.file, Some(path));
        }
    }
}

#[test]
fn an_index_with_the_position_of_another_block_is_damaged() {
    let case = Case::new();
    let (hit, other) = (entry(&case, BUSY), entry(&case, BUSY + 1));
    case.edit_index(|index| {
        let entry = index.entries.iter_mut().find(|entry| entry.hash == hit.hash).unwrap();
        (entry.file, entry.data_pos) = (other.file, other.data_pos);
    });
    let error = refused(&case.options(), ErrorKind::Damaged);
    assert_eq!((error.height, error.block_hash), (Some(Height(BUSY)), Some(hit.hash)));
    run(&case.scan()).unwrap();
}

#[test]
fn a_file_number_without_a_file_is_named() {
    let case = Case::new();
    let hit = entry(&case, BUSY);
    case.edit_index(|index| {
        let entry = index.entries.iter_mut().find(|entry| entry.hash == hit.hash).unwrap();
        entry.file = Some(wire::FileNo(99_999));
    });
    let error = refused(&case.options(), ErrorKind::Damaged);
    assert_eq!(error.file, Some(case.blocks("blk99999.dat")));
    assert_mentions(&error, &["missing"]);
}

#[test]
fn the_chain_ends_below_a_block_that_core_has_marked_as_failed() {
    let case = Case::new();
    let tip = entry(&case, chain().tip().height);
    for flag in [BlockStatus::FAILED_VALID, BlockStatus::FAILED_CHILD] {
        case.edit_index(|index| {
            let entry = index.entries.iter_mut().find(|entry| entry.hash == tip.hash).unwrap();
            entry.status = BlockStatus(tip.status.0 | flag);
        });
        let report = run(&case.options()).unwrap();
        assert_eq!(report.height, Height(tip.height.0 - 1), "the chain ends below the failed block");
    }
}

#[test]
fn blocks_that_were_never_connected_are_counted() {
    let case = Case::new();
    let top = chain().tip().height;
    case.edit_index(|index| {
        for entry in index.entries.iter_mut().filter(|entry| entry.height.0 > top - 2) {
            entry.status = BlockStatus(
                BlockStatus::VALID_TRANSACTIONS | BlockStatus::HAVE_DATA | BlockStatus::OPT_WITNESS,
            );
            entry.undo_pos = None;
        }
    });
    let seen = Mutex::new(None);
    let sink = |event| {
        if let Event::Planned { unconnected, .. } = event {
            *seen.lock().unwrap() = Some(unconnected);
        }
    };
    let report =
        engine::reindex(&FaultDisk::healthy(), &trusting(&case.options()), &sink, &AtomicBool::new(false));
    assert_eq!(report.unwrap().height, Height(top - 2));
    assert_eq!(seen.into_inner().unwrap(), Some(2));
}

/// The warnings of a rebuild that succeeds.
fn warnings(options: &ReindexOptions) -> Vec<String> {
    let texts = Mutex::new(Vec::new());
    let sink = |event| {
        if let Event::Warning(warning) = event {
            texts.lock().unwrap().push(warning.to_string());
        }
    };
    engine::reindex(&FaultDisk::healthy(), options, &sink, &AtomicBool::new(false)).unwrap();
    texts.into_inner().unwrap()
}

#[test]
fn indexes_are_left_unchanged_with_a_warning() {
    let case = Case::new();
    assert_eq!(warnings(&case.options()), [] as [String; 0]);
    let indexes = case.root().join("regtest/indexes");
    std::fs::create_dir_all(indexes.join("txindex")).unwrap();
    std::fs::write(indexes.join("txindex/LOCK"), "").unwrap();
    let texts = warnings(&case.options());
    assert_eq!(texts.len(), 1);
    assert!(texts[0].contains("(txindex) are left unchanged"), "{texts:?}");
    assert!(indexes.join("txindex/LOCK").exists());
}

#[test]
fn a_height_above_the_tip_is_a_usage_error() {
    let case = Case::new();
    let above = Height(chain().tip().height + 1);
    let options = ReindexOptions { stop_at_height: Some(above), ..case.options() };
    let error = refused(&options, ErrorKind::Usage);
    assert_mentions(&error, &[&format!("height {above} is above the last connected block")]);
    assert_offers(&error, &[Remedy::StopAtHeight(Height(chain().tip().height))]);
}

#[test]
fn an_output_that_exists_is_a_usage_error() {
    let case = Case::new();
    let before = tree(case.root());
    let options = ReindexOptions { output: Some(case.root().to_owned()), ..case.options() };
    let error = refused(&options, ErrorKind::Usage);
    assert_mentions(&error, &["already exists", "new directory"]);
    let output = acceptance::scratch();
    let options = ReindexOptions { output: Some(output.path().to_owned()), ..case.options() };
    run(&options).unwrap();
    let made = tree(output.path());
    assert_eq!(refused(&options, ErrorKind::Usage).kind, ErrorKind::Usage);
    assert_same_tree(&made, output.path(), "the output of before");
    assert_same_tree(&before, case.root(), "output elsewhere");
}

#[test]
fn an_output_that_cannot_be_created_is_an_error() {
    let case = Case::new();
    let output = case.root().join("regtest/blocks/xor.dat/below a file");
    let options = ReindexOptions { output: Some(output), ..case.options() };
    assert_offers(&refused(&options, ErrorKind::Environment), &[Remedy::OtherOutput]);
}

#[test]
fn an_interrupt_at_any_event_leaves_the_datadir_unchanged() {
    let mut interrupted = 0;
    for at in 0.. {
        let case = Case::new();
        let before = tree(case.root());
        let (flag, count) = (AtomicBool::new(false), Mutex::new(0));
        let sink = |event: Event| {
            let mut count = count.lock().unwrap();
            // Progress events depend on the time, so they are not counted.
            if !matches!(event, Event::Progress(_)) {
                if *count == at {
                    flag.store(true, Ordering::Relaxed);
                }
                *count += 1;
            }
        };
        let scan = at % 2 == 1;
        let options = ReindexOptions { scan, ..with_threads(&case.options(), 2) };
        match engine::reindex(&FaultDisk::healthy(), &options, &sink, &flag) {
            Ok(_) => break,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Interrupted, "event {at}: {error}");
                assert_mentions(&error, &["the datadir is unchanged"]);
                assert_same_tree(&before, case.root(), &format!("interrupted at event {at}"));
                interrupted += 1;
            }
        }
    }
    assert!(interrupted >= 5, "{interrupted}");
}

#[test]
fn leftovers_of_an_earlier_run_are_removed_and_files_of_others_are_refused() {
    let case = Case::new();
    for leftover in ["regtest/chainstate.peregrine", "regtest/blocks/index.peregrine"] {
        let leftover = case.root().join(leftover);
        std::fs::create_dir_all(&leftover).unwrap();
        std::fs::write(leftover.join("000005.ldb"), b"half a table").unwrap();
        std::fs::write(leftover.join("peregrine.mark"), b"PGRN-NEW").unwrap();
        run(&case.options()).unwrap();
        assert!(!leftover.exists());
    }
    let foreign = case.root().join("regtest/chainstate.peregrine");
    std::fs::create_dir_all(&foreign).unwrap();
    std::fs::write(foreign.join("notes"), b"mine").unwrap();
    assert_mentions(
        &refused(&case.options(), ErrorKind::Environment),
        &["chainstate.peregrine", "move it away"],
    );
}

#[test]
fn a_damaged_or_missing_old_chainstate_does_not_matter() {
    let case = Case::new();
    let chainstate = case.root().join("regtest/chainstate");
    for (path, bytes) in tree(&chainstate) {
        if bytes.is_some_and(|bytes| !bytes.is_empty()) {
            flip_bit(&path, 0, 0).unwrap();
        }
    }
    let error = stats(case.root(), Network::Regtest).map(|report| report.txouts).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Damaged);
    run(&case.options()).unwrap();
    std::fs::remove_dir_all(&chainstate).unwrap();
    let report = run(&case.options()).unwrap();
    assert_eq!(stats(case.root(), Network::Regtest).unwrap().hash_serialized_3, report.hash_serialized_3);
}

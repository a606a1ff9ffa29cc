//! Bad input that is not damage of one datadir: directories that are none, other networks, options that do
//! not fit. What becomes of damage is in `situations.txt`.

use acceptance::prelude::*;

/// What a rebuild is asked for; the kind of the error, and what it says.
type Refusal = (fn(&Case, &Path) -> ReindexOptions, ErrorKind, &'static [&'static str]);

const REFUSALS: [Refusal; 6] = [
    (|_, elsewhere| options(elsewhere), ErrorKind::Damaged, &["not a Bitcoin Core datadir", "-datadir"]),
    (
        |_, elsewhere| options(&elsewhere.join("bitcoin")),
        ErrorKind::Damaged,
        &["no such directory", "-datadir"],
    ),
    (
        |case, _| changed(case.options(), |it| it.chain.params = ChainParams::of(Network::Signet)),
        ErrorKind::Damaged,
        &["no blocks of the chain signet", "name the chain that it has blocks of: regtest"],
    ),
    (
        |case, _| up_to(case.options(), 141),
        ErrorKind::Usage,
        &["height 141 is above the last connected block", "height 140"],
    ),
    (
        |case, _| elsewhere(case.options(), case.root()),
        ErrorKind::Usage,
        &["already exists", "new directory", "only when it is complete"],
    ),
    (
        |case, _| {
            let output = Some(case.blocks("xor.dat/below a file"));
            ReindexOptions { output, ..case.options() }
        },
        ErrorKind::Environment,
        &["write the result to another place"],
    ),
];

#[test]
fn what_cannot_be_rebuilt_is_refused_and_nothing_is_created() {
    for (asked, kind, words) in REFUSALS {
        let (case, elsewhere) = (Case::new(), scratch());
        let options = asked(&case, elsewhere.path());
        let error = refused_by(case.root(), kind, words, || run(&options));
        assert!(tree(elsewhere.path()).is_empty(), "{error}");
        if options.chain.datadir.starts_with(elsewhere.path()) {
            assert_mentions(&error, &[&elsewhere.path().to_string_lossy()]);
        }
    }
}

#[test]
fn blocks_of_another_network_are_reported_with_their_network() {
    let case = Case::new();
    fs::rename(case.root().join("regtest"), case.root().join("signet")).unwrap();
    for scan in [false, true] {
        let signet = ChainParams::of(Network::Signet);
        let options = changed(case.options(), |it| (it.chain.scan, it.chain.params) = (scan, signet));
        let error = refused(&options, ErrorKind::Damaged, &["the blocks are of chain regtest"]);
        assert_offers(&error, &[Remedy::ChooseNetwork(Network::Regtest)]);
    }
    // If the first file does not show it, the genesis block is missing.
    fs::remove_file(case.root().join("signet/blocks/blk00000.dat")).unwrap();
    let options = changed(case.options(), |it| it.chain.params = ChainParams::of(Network::Signet));
    refused(&options, ErrorKind::Damaged, &["genesis block", "another network"]);
}

/// A scan recognizes neither file's records. They were once overwritten, although the old block index, which
/// a crash would leave in place, referred to them.
#[test]
fn a_scan_appends_to_undo_files_that_it_does_not_recognize() {
    let case = Case::new();
    let [first, second] = ["rev00000.dat", "rev00001.dat"].map(|name| case.blocks(name));
    let [old_first, old_second] = [&first, &second].map(|path| fs::read(path).unwrap());
    fs::write(&first, &old_second).unwrap();
    fs::write(&second, &old_first).unwrap();
    run(&case.scan()).unwrap();
    assert!(fs::read(&first).unwrap().starts_with(&old_second), "bytes of rev00000.dat changed");
    assert!(fs::read(&second).unwrap().starts_with(&old_first), "bytes of rev00001.dat changed");
    run(&trusting(&case.options())).unwrap();
}

/// Regression: bitcoind would write new blocks to that file, and ignore it when it reads all files again.
#[test]
fn a_scan_does_not_end_the_index_at_a_file_without_blocks() {
    let case = Case::new();
    let last = case.index().last_file;
    fs::write(case.blocks(&format!("blk{:05}.dat", last.0 + 3)), "").unwrap();
    run(&case.scan()).unwrap();
    assert_eq!(case.index().last_file, last);
}

/// The damage is found while blocks are checked. The record was once made and appended before the run failed,
/// and once the run failed only at its end, after hours.
#[test]
fn a_damaged_record_is_not_replaced_if_the_index_cannot_be() {
    for (name, flaw) in [("index.peregrine", "move it away"), ("index.old", "kept under this name")] {
        for engine in [Engine::Join, Engine::Cache] {
            let case = Case::new();
            case.flip_undo(BUSY);
            write_file(case.blocks(name).join("notes.txt"), "mine");
            let options = changed(case.options(), |it| (it.engine, it.chain.keep_old) = (engine, true));
            refused_by(case.root(), ErrorKind::Environment, &[name, flaw], || {
                let (done, events) = run_seen(&options);
                assert!(!stages(&events).contains(&"prove"), "{name}, {engine:?}");
                done
            });
        }
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
    let mut bytes = fs::read(&path).unwrap();
    let key = Obfuscation::from_key(fs::read(case.blocks("xor.dat")).unwrap().try_into().unwrap());
    key.apply(&mut bytes, 0);
    let plain = run(&case.options()).unwrap();
    for more in [1, 80, 5_000_000] {
        let mut longer = bytes.clone();
        longer.resize(bytes.len() + more, 0xfa);
        let len = (longer.len() - pos) as u32;
        longer[pos - 4..pos].copy_from_slice(&len.to_le_bytes());
        key.apply(&mut longer, 0);
        fs::write(&path, longer).unwrap();
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
    for name in ["blk00001.dat", "rev00001.dat", "xor.dat", "index/CURRENT", ".lock"] {
        let case = Case::new();
        let path = case.blocks(name);
        let _ = fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let words = [name, "named pipe (FIFO), not a regular file", "put the file there"];
        assert_fails(run(&case.options()), ErrorKind::Damaged, &words);
        if name.starts_with("blk") {
            assert_says(run(&case.scan()), &[name, "named pipe (FIFO)"]);
        }
    }
    let device = Path::new("/dev/zero");
    let hints = engine::hints::info(&RealDisk, device, None);
    assert_says(hints, &["/dev/zero", "a character device, not a regular file"]);
    let snapshot = engine::snapshot::info(&RealDisk, device);
    assert_says(snapshot, &["a character device, not a regular file"]);
}

/// `-blocksdir`: the files were once reported as missing, without a remedy.
#[test]
fn blocks_in_another_directory_are_reported_with_a_remedy() {
    let case = Case::new();
    let elsewhere = scratch();
    let blocks = elsewhere.path().join("regtest/blocks");
    fs::create_dir_all(&blocks).unwrap();
    let dats = || {
        let entries = fs::read_dir(case.blocks("")).unwrap().map(|entry| entry.unwrap().file_name());
        entries.filter(|name| name.to_string_lossy().ends_with(".dat")).collect::<Vec<_>>()
    };
    for name in dats() {
        fs::copy(case.blocks("").join(&name), blocks.join(&name)).unwrap();
        fs::remove_file(case.blocks("").join(&name)).unwrap();
    }
    for options in [case.options(), case.scan()] {
        refused(&options, ErrorKind::Damaged, &["-blocksdir=DIR", "give that directory here too"]);
        let there = changed(options, |it| it.chain.blocksdir = Some(elsewhere.path().to_owned()));
        assert_eq!(run(&there).unwrap().hash_serialized_3, chain().model.stats().hash_serialized_3);
        assert!(dats().is_empty(), "nothing but the index is in the datadir");
    }
    // Or with links, also of single files.
    for entry in fs::read_dir(&blocks).unwrap().map(Result::unwrap) {
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
    assert_eq!(report.chainstate, case.net("chainstate"));
    assert_eq!(stats(&options.chain.datadir, Network::Regtest).unwrap().height, Some(report.height));
    // As a datadir of main, the error still names the network of the blocks.
    let main = changed(options, |it| it.chain.params = ChainParams::of(Network::Main));
    let error = refused(&main, ErrorKind::Damaged, &["the blocks are of chain regtest"]);
    assert_offers(&error, &[Remedy::ChooseNetwork(Network::Regtest)]);
}

#[test]
fn blocks_that_were_never_connected_are_counted() {
    let case = Case::new();
    case.edit_index(|index| {
        for entry in index.entries.iter_mut().filter(|entry| entry.height.0 > TIP - 2) {
            (entry.status, entry.undo_pos) = (BlockStatus::stored(true), None);
        }
    });
    let (report, events) = run_seen(&trusting(&case.options()));
    assert_eq!(report.unwrap().height, Height(TIP - 2));
    assert!(events.iter().any(|event| matches!(event, Event::Planned { unconnected: 2, .. })));
}

#[test]
fn indexes_are_left_unchanged_with_a_warning() {
    let case = Case::new();
    let warnings = || run(&case.options()).unwrap().notes;
    assert!(warnings().is_empty());
    let indexes = case.net("indexes");
    write_file(indexes.join("txindex/LOCK"), "");
    let [warning] = &warnings()[..] else { panic!("one warning") };
    assert!(warning.to_string().contains("(txindex) are left unchanged"), "{warning}");
    assert!(indexes.join("txindex/LOCK").exists());
}

#[test]
fn an_output_that_was_made_is_not_replaced() {
    let (case, output) = (Case::new(), scratch());
    let before = tree(case.root());
    let options = elsewhere(case.options(), output.path());
    run(&options).unwrap();
    let made = tree(output.path());
    refused(&options, ErrorKind::Usage, &[]);
    assert_same_tree(&made, output.path(), "the output of before");
    assert_same_tree(&before, case.root(), "output elsewhere");
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
        let options = changed(with_threads(&case.options(), 2), |it| it.chain.scan = scan);
        match engine::reindex(&FaultDisk::healthy(), &options, Watch { sink: &sink, interrupt: &flag }) {
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
        write_file(leftover.join("000005.ldb"), b"half a table");
        write_file(leftover.join("peregrine.mark"), b"PGRN-NEW");
        run(&case.options()).unwrap();
        assert!(!leftover.exists());
    }
    write_file(case.net("chainstate.peregrine/notes"), b"mine");
    refused(&case.options(), ErrorKind::Environment, &["chainstate.peregrine", "move it away"]);
}

//! `repair` takes blocks from block files elsewhere: each is proven by the header that the block index has,
//! and read with the key that its file reveals. So is the key of the datadir's own files.

use acceptance::prelude::*;
use acceptance::sync::{repair_on, try_repair as run};

/// A datadir of the same chain with files of another length, in another order, with another key.
fn other() -> Case {
    static TEMPLATE: LazyLock<Template> = LazyLock::new(|| {
        Template::laid_out(chain(), &Layout { file_size: 50 << 10, preallocate: true, ..Layout::new(11) })
    });
    let case = TEMPLATE.case();
    acceptance::run(&case.options()).unwrap();
    case
}

/// The block files of a datadir, by number.
fn files(case: &Case) -> Vec<PathBuf> {
    let names = (0..).map(|number| case.blocks(&format!("blk{number:05}.dat")));
    names.take_while(|path| path.exists()).collect()
}

/// Damages each second file from `first` on: one is removed, one loses its end, one gets wrong bytes, and so
/// on. Undo files go with them.
fn damage(case: &Case, first: usize) {
    for (round, path) in files(case).into_iter().skip(first).step_by(2).enumerate() {
        let mut bytes = fs::read(&path).unwrap();
        match round % 3 {
            0 => fs::remove_file(&path).unwrap(),
            1 => fs::write(&path, &bytes[..bytes.len() / 2]).unwrap(),
            _ => {
                bytes.iter_mut().skip(99).step_by(7_000).for_each(|byte| *byte ^= 1);
                fs::write(&path, bytes).unwrap();
            }
        }
        let rev = path.with_file_name(path.file_name().unwrap().to_string_lossy().replace("blk", "rev"));
        fs::write(&rev, [7; 99]).unwrap();
    }
}

fn options(case: &Case, sources: &[&Path], peers: &[&ScriptedPeer]) -> RepairOptions {
    let sources = sources.iter().map(|&source| source.to_owned()).collect();
    RepairOptions { sources, ..repairing(case.root(), peers) }
}

#[test]
fn two_half_broken_datadirs_make_a_sound_one() {
    let (one, two) = (Case::at_tip(), other());
    damage(&one, 1);
    damage(&two, 2);
    let broken = tree(two.root());
    let lacking = run(&options(&one, &[two.root()], &[&honest()])).unwrap();
    assert!(lacking.taken > 5, "{} taken", lacking.taken);
    assert_same_tree(&broken, two.root(), "the other one is only read");
    assert_sound(one.root(), chain(), "one");
    // The other way round, nobody else is asked.
    let report = run(&options(&two, &[one.root()], &[])).unwrap();
    assert!(report.taken > 5 && report.download.is_none(), "{} taken", report.taken);
    assert_sound(two.root(), chain(), "two");
    assert!(run(&options(&two, &[one.root()], &[])).unwrap().taken == 0, "it is done");
}

/// Moves the block files to a folder of their own.
fn folder(case: &Case, rename: impl Fn(usize) -> String) -> TempDir {
    let dir = scratch();
    for (number, path) in files(case).iter().enumerate() {
        fs::copy(path, dir.path().join(rename(number))).unwrap();
    }
    dir
}

#[test]
fn a_folder_of_block_files_does_too_with_or_without_its_key() {
    let source = other();
    let name = |number: usize| format!("blk{number:05}.dat");
    let without_key = folder(&source, name);
    let with_key = folder(&source, |number| format!("blk{:05}.dat", 90 - number));
    fs::copy(source.blocks("xor.dat"), with_key.path().join("xor.dat")).unwrap();
    for dir in [
        without_key.path(),
        with_key.path(),
        &source.blocks(""),
        &source.root().join("regtest"),
        source.root(),
    ] {
        let case = Case::at_tip();
        damage(&case, 1);
        let report =
            run(&options(&case, &[dir], &[])).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        assert!(report.taken > 5 && report.download.is_none(), "{}", dir.display());
        assert_sound(case.root(), chain(), &dir.display().to_string());
    }
}

/// The bytes of a file, without zeros that are reserved, and with another key.
fn with_key(path: &Path, own: [u8; 8], other: [u8; 8]) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    bytes.truncate(bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1);
    [own, other].into_iter().for_each(|key| Obfuscation::from_key(key).apply(&mut bytes, 0));
    bytes
}

fn own_key(case: &Case) -> [u8; 8] {
    fs::read(case.blocks("xor.dat")).unwrap().try_into().unwrap()
}

/// The records of a file without its key: place of the frame, and length of the block.
fn frames(plain: &[u8]) -> Vec<(usize, usize)> {
    let (mut at, mut found) = (0, Vec::new());
    while let Some(frame) = plain.get(at..at + 8) {
        let size = u32::from_le_bytes(frame[4..].try_into().unwrap()) as usize;
        found.push((at, size));
        at += 8 + size;
    }
    found
}

/// Once, blocks were found only under the key of the first file, in files with bitcoind's names.
#[test]
fn blocks_are_found_whatever_their_key_the_name_of_the_file_and_what_is_around_them() {
    type Change = fn(&mut Vec<u8>, &[(usize, usize)]);
    let changes: [(&str, Change); 6] = [
        ("blk0001.dat", |_, _| {}),
        ("blk1.dat", |plain, _| drop(plain.splice(0..0, [7; 13]))),
        ("BLK00001.DAT", |plain, frames| {
            let fragment = plain[frames[1].0..][..150].to_vec();
            plain.splice(frames[1].0..frames[1].0, fragment);
        }),
        ("blk00001.dat.bak", |plain, frames| {
            // Beyond the next record, and beyond the end of the file.
            plain[frames[1].0 + 4..][..4].copy_from_slice(&9_000u32.to_le_bytes());
            plain[frames[4].0 + 4..][..4].copy_from_slice(&3_900_000u32.to_le_bytes());
        }),
        ("bootstrap.dat", |plain, frames| {
            // A length that ends exactly at a later record.
            let len = (frames[3].0 - frames[1].0 - 8) as u32;
            plain[frames[1].0 + 4..][..4].copy_from_slice(&len.to_le_bytes());
        }),
        ("blocks", |plain, frames| plain[frames[2].0] ^= 1),
    ];
    for (number, (name, change)) in changes.into_iter().enumerate() {
        let (case, source) = (Case::at_tip(), scratch());
        let lost = files(&case)[1].clone();
        let mut plain = with_key(&lost, own_key(&case), [0; 8]);
        let frames = frames(&plain);
        change(&mut plain, &frames);
        Obfuscation::from_key([3, 1, 4, 1, 5, 9, 2, 6]).apply(&mut plain, 0);
        let file = source.path().join(name);
        fs::write(&file, plain).unwrap();
        fs::remove_file(&lost).unwrap();
        let from = if number % 2 == 0 { source.path() } else { &file };
        // A block without its magic is not found.
        let peer = (name == "blocks").then(honest);
        let peers: Vec<_> = peer.iter().collect();
        let report = run(&options(&case, &[from], &peers)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(report.taken > 2, "{name}: {} taken", report.taken);
        assert_eq!(report.download.map(|it| it.blocks), peer.map(|_| 1), "{name}");
        assert_eq!((report.sources.len(), report.sources[0].used), (1, report.taken), "{name}");
        assert_sound(case.root(), chain(), name);
    }
}

/// Files with different keys, joined, of which no length is a multiple of that of a key.
#[test]
fn an_empty_datadir_is_filled_from_a_joined_file() {
    let (source, dir, new) = (Case::at_tip(), scratch(), scratch());
    let mut joined = Vec::new();
    for (number, path) in files(&source).iter().enumerate() {
        joined.extend(with_key(path, own_key(&source), [number as u8; 8]));
        joined.extend(vec![0xa7; 1 + number % 3]);
    }
    let file = dir.path().join("bootstrap.dat");
    fs::write(&file, joined).unwrap();
    let report = run(&RepairOptions { sources: vec![file], ..repairing(new.path(), &[]) }).unwrap();
    assert_eq!((report.height, report.rebuild.unwrap().height), (Height(140), Height(140)));
    assert_sound(new.path(), chain(), "filled");
}

/// The records of blocks, not obfuscated.
fn joined<'a>(blocks: impl IntoIterator<Item = &'a GeneratedBlock>) -> Vec<u8> {
    let mut joined = Vec::new();
    for block in blocks {
        disk::blk::write_record(&mut joined, ChainParams::of(Network::Regtest).magic, &block.bytes);
    }
    joined
}

/// Once, it ended at the last block that the datadir had.
#[test]
fn without_a_chainstate_the_blocks_above_the_last_one_are_taken_too() {
    let (dir, new) = (scratch(), scratch());
    let (file, new) = (dir.path().join("bootstrap.dat"), new.path());
    for height in [100, TIP] {
        fs::write(&file, joined(&main_to(height as usize))).unwrap();
        let _ = fs::remove_dir_all(new.join("regtest/chainstate"));
        let report = run(&RepairOptions { sources: vec![file.clone()], ..repairing(new, &[]) }).unwrap();
        assert_eq!((report.height, report.rebuild.unwrap().height), (Height(height), Height(height)));
    }
    assert_sound(new, chain(), "lost");
}

/// Once, the repair waited for the block that breaks a rule, and left the other branch.
#[test]
fn of_the_chains_in_a_file_the_best_one_without_an_invalid_block_is_taken() {
    let (dir, new, fork, end) = (scratch(), scratch(), TIP as usize - 2, TIP as usize - 1);
    let evil = branch_of(main_to(TIP as usize), fork, |block| match block.height as usize == end {
        true => sibling(block, 1, |wrong| wrong.txdata[0].input[0].script_sig = vec![2_u8; 4].into()),
        false => block.clone(),
    });
    let (file, new) = (dir.path().join("bootstrap.dat"), new.path());
    fs::write(&file, joined(main_to(end).iter().chain(&evil[end..]))).unwrap();
    let report = run(&RepairOptions { sources: vec![file], ..repairing(new, &[]) }).unwrap();
    assert_eq!((report.height, report.rebuild.unwrap().height), (Height(TIP - 1), Height(TIP - 1)));
    let is_named = |note: &Warning| match note {
        Warning::InvalidBlock { hash, error } => *hash == evil[end].hash && error.core.is_some(),
        _ => false,
    };
    assert!(report.notes.iter().any(is_named), "{:?}", report.notes);
    assert_synced_to(TIP - 1, new, chain(), "the honest branch");
}

#[test]
fn without_peers_a_repair_ends_with_what_is_missing() {
    let (case, source) = (Case::at_tip(), scratch());
    fs::remove_file(&files(&case)[1]).unwrap();
    fs::write(source.path().join("blk00001.dat"), [9; 3_000]).unwrap();
    let done = run(&options(&case, &[source.path()], &[]));
    assert_fails(done, ErrorKind::Environment, &["blocks are still damaged or missing", "no peer to ask"]);
    let case = Case::at_tip();
    case.flip_block(50, 5);
    let done = run(&options(&case, &[source.path()], &[]));
    assert_fails(done, ErrorKind::Environment, &["1 block is still damaged or missing"]);
}

/// Regression: blocks that were found in the own files counted as if they made up for missing ones.
#[test]
fn blocks_found_elsewhere_do_not_hide_missing_ones() {
    let (case, source) = (Case::at_tip(), scratch());
    for height in 50..53 {
        case.flip_block(height, 5);
        case.edit_entry(height, |it| *it = IndexEntry::of_header(it.hash, it.header, it.height));
    }
    for height in 60..64 {
        case.edit_entry(height, |entry| entry.data_pos = entry.data_pos.map(|pos| ByteOffset(pos.0 + 1)));
    }
    fs::write(source.path().join("blk00001.dat"), [9; 3_000]).unwrap();
    let done = run(&options(&case, &[source.path()], &[]));
    assert_says(done, &["3 blocks are still damaged or missing"]);
}

#[test]
fn what_the_files_do_not_have_is_downloaded() {
    let (case, source, peer) = (Case::at_tip(), other(), honest());
    damage(&case, 0);
    damage(&source, 0);
    damage(&source, 1);
    let report = run(&options(&case, &[source.root()], &[&peer])).unwrap();
    let downloaded = report.download.unwrap().blocks;
    assert!(report.taken > 0 && downloaded > 0, "{} taken, {downloaded} downloaded", report.taken);
    let asked = peer.asked().len() as u32;
    assert!(asked < report.damaged + report.missing, "only the rest is asked for: {asked}");
    assert_sound(case.root(), chain(), "both");
}

#[test]
fn a_folder_without_block_files_is_refused() {
    let (case, empty) = (Case::at_tip(), scratch());
    damage(&case, 1);
    for dir in [empty.path(), &empty.path().join("nothing")] {
        let refused = || run(&options(&case, &[dir], &[]));
        let error = refused_by(case.root(), ErrorKind::Usage, &[], refused);
        assert_eq!(error.file.as_deref(), Some(dir), "{error}");
    }
}

/// Once, all blocks were stored a second time.
#[test]
fn with_the_block_index_of_another_node_no_block_is_stored_again() {
    let (case, source) = (Case::at_tip(), other());
    fs::remove_dir_all(case.blocks("index")).unwrap();
    copy_dir(&source.blocks("index"), &case.blocks("index")).unwrap();
    let bytes = || files(&case).iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
    let before = bytes();
    let report = run(&options(&case, &[], &[])).unwrap();
    assert!(report.taken > 100 && report.download.is_none(), "{} taken", report.taken);
    assert!(bytes() == before, "blocks were stored again");
    assert_sound(case.root(), chain(), "the block index of another node");
}

/// A sector of the source that cannot be read is a warning.
#[test]
fn what_cannot_be_read_is_passed_over() {
    let (case, source) = (Case::at_tip(), other());
    damage(&case, 1);
    let unreadable = &files(&source)[0];
    fs::remove_file(unreadable).unwrap();
    fs::create_dir(unreadable).unwrap();
    let report = run(&options(&case, &[source.root()], &[&honest()])).unwrap();
    let is_said = |note: &Warning| matches!(note, Warning::SourceUnreadable { .. });
    assert!(report.notes.iter().any(is_said), "{:?}", report.notes);
    assert_sound(case.root(), chain(), "one unreadable file");
}

#[test]
fn wherever_the_power_fails_the_next_run_completes() {
    let source = other();
    let repair =
        |disk: &FaultDisk, case: &Case| repair_on(disk, &options(case, &[source.root()], &[])).map(drop);
    let states = Scenario {
        before: &|| changed(Case::at_tip(), |case| damage(case, 1)),
        run: &repair,
        is_whole: &|_, _, _| {},
        succeeds: &|case, what| {
            repair(&FaultDisk::healthy(), case).unwrap_or_else(|error| panic!("{what}, again: {error}"));
            assert_sound(case.root(), chain(), what);
        },
    }
    .explore(Crashes { stride: 5, twice: false, ..Crashes::default() });
    assert!(states > 20, "{states}");
}

/// Once, only the genesis block at the start of the first file revealed the key, and a file whose first four
/// bytes fit was believed to have that of `xor.dat`.
#[test]
fn a_lost_key_of_the_block_files_is_restored() {
    type Change = fn(&Case);
    let keys: [Change; 5] = [
        |case| fs::remove_file(case.blocks("xor.dat")).unwrap(),
        |case| fs::write(case.blocks("xor.dat"), [0; 8]).unwrap(),
        |case| fs::write(case.blocks("xor.dat"), [7; 8]).unwrap(),
        |case| fs::write(case.blocks("xor.dat"), [7; 3]).unwrap(),
        |case| flip_bit(&case.blocks("xor.dat"), 7, 7).unwrap(),
    ];
    let files: [Change; 5] = [
        |_| {},
        |case| fs::remove_file(case.blocks("blk00000.dat")).unwrap(),
        |case| fs::write(case.blocks("blk00000.dat"), [0; 60]).unwrap(),
        // As bitcoind -reindex does with a new key: over what is there, or into a new file.
        overwrite_genesis,
        |case| fs::write(case.blocks("blk00000.dat"), joined(&main_to(0))).unwrap(),
    ];
    for change_key in keys {
        for change_files in files {
            let case = Case::at_tip();
            let key = fs::read(case.blocks("xor.dat")).unwrap();
            change_key(&case);
            change_files(&case);
            let before = tree(case.root());
            let found = diagnosed(case.root(), true);
            assert_eq!(found.advice, Advice::RestoreKey { key: key.clone().try_into().unwrap() });
            assert!(found.found.unwrap().index.state.is_sound());
            for options in [case.options(), case.scan()] {
                assert_says(acceptance::run(&options), &["xor.dat", "printf"]);
            }
            assert!(tree(case.root()) == before);
            fs::write(case.blocks("xor.dat"), key).unwrap();
            assert!(diagnosed(case.root(), true).found.unwrap().key.is_none(), "the right one is right");
        }
    }
}

/// What bitcoind -reindex leaves if the key was lost: all blocks come back without a download.
#[test]
fn the_genesis_block_is_restored_after_it_was_overwritten() {
    let case = Case::at_tip();
    overwrite_genesis(&case);
    assert_eq!(diagnosed(case.root(), true).advice, Advice::ReindexByScan);
    fs::remove_dir_all(case.blocks("index")).unwrap();
    fs::remove_dir_all(case.net("chainstate")).unwrap();
    let old: Vec<_> = tree(&case.blocks("")).into_iter().filter(|(path, _)| path.ends_with("dat")).collect();
    let interrupted = engine::reindex(&FaultDisk::healthy(), &case.scan(), quiet(&AtomicBool::new(true)));
    assert_fails(interrupted, ErrorKind::Interrupted, &["blocks are stored, the chainstate is unchanged"]);
    assert_eq!(acceptance::run(&case.scan()).unwrap().height, Height(140));
    assert_sound(case.root(), chain(), "overwritten");
    let new = tree(&case.blocks(""));
    assert!(old.iter().all(|(path, bytes)| new.get(path) == Some(bytes)), "nothing is overwritten");
}

/// Puts a genesis block with another key over the right one.
fn overwrite_genesis(case: &Case) {
    let mut bytes = fs::read(case.blocks("blk00000.dat")).unwrap();
    let genesis = joined(&main_to(0));
    bytes[..genesis.len()].copy_from_slice(&genesis);
    fs::write(case.blocks("blk00000.dat"), bytes).unwrap();
}

/// A program that obfuscates old files was interrupted, or has taken the name of a file.
#[test]
fn own_files_with_other_keys_are_named_and_taken_over() {
    for number in [0, 1] {
        for key in [[0; 8], [5; 8]] {
            let case = Case::at_tip();
            let path = case.blocks(&format!("blk{number:05}.dat"));
            fs::write(&path, with_key(&path, own_key(&case), key)).unwrap();
            // `repair` refuses a pruned node, and was advised for ever.
            edit_index(&case.blocks("index"), |index| index.pruned = true).unwrap();
            assert_eq!(diagnosed(case.root(), true).advice, Advice::BitcoindReindex);
            edit_index(&case.blocks("index"), |index| index.pruned = false).unwrap();
            let before = tree(case.root());
            let found = diagnosed(case.root(), true);
            assert_eq!(found.advice, Advice::TakeFromFiles { directory: case.blocks("") });
            let error = found.found.unwrap().key.unwrap().to_string();
            assert!(error.contains(&format!("blk{number:05}.dat is ")), "{error}");
            // Beside a second chainstate, that would be refused.
            let snapshot = case.net("chainstate_snapshot");
            write_file(snapshot.join("base_blockhash"), [7; 32]);
            assert_eq!(diagnosed(case.root(), true).advice, Advice::MoveSnapshotAway);
            fs::remove_dir_all(snapshot).unwrap();
            for done in [
                run(&options(&case, &[], &[])).map(drop),
                acceptance::run(&case.options()).map(drop),
                acceptance::run(&case.scan()).map(drop),
            ] {
                let words = ["different keys", &format!("blk{number:05}.dat is ")];
                assert_fails(done, ErrorKind::Damaged, &words);
            }
            assert_same_tree(&before, case.root(), "refused");
            let report = run(&options(&case, &[&case.blocks("")], &[])).unwrap();
            assert!(report.taken > 0 && report.download.is_none());
            assert_sound(case.root(), chain(), "taken over");
        }
    }
}

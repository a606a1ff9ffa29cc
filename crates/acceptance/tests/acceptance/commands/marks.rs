//! Marks of invalid blocks that are not believed: the datadir of a node that has marked the chain with the
//! most work, followed a shorter branch, and then written blocks of another chain, as on mainnet in August
//! 2026.

use super::update_branches::branch;
use crate::sync::unprune::interrupt_flush;
use acceptance::prelude::*;
use acceptance::{indexes, sync::run as sync};
use disk::{blk::write_record, departed, index::IndexRows};
use engine::Reconsider;
use std::io::Write as _;
use testkit::data::shared_data;

/// Height of the last block that all nodes have.
const FORK: u32 = 132;

/// Height of the last block of the branch that the node has followed.
const DEAD_END: u32 = 136;

fn datadir(root: &Path) -> Datadir {
    Datadir::at(root, Network::Regtest)
}

fn mark(root: &Path, blocks: &[GeneratedBlock]) {
    let mut rows = IndexRows::open(&RealDisk, &datadir(root).index_dir()).unwrap();
    for block in blocks {
        let mut entry = rows.entry(&block.hash).unwrap().unwrap();
        entry.status.0 |= BlockStatus::FAILED_VALID;
        rows.update(&[entry], &[]).unwrap();
    }
}

fn hashes(blocks: &[GeneratedBlock]) -> BTreeSet<BlockHash> {
    blocks.iter().map(|block| block.hash).collect()
}

/// A datadir at the end of the dead branch, which has these blocks and marks them.
fn left(blocks: &[GeneratedBlock]) -> TempDir {
    let dir = behind(chain().main().filter(|block| block.height <= DEAD_END), DEAD_END, &layout());
    store(dir.path(), blocks.iter());
    mark(dir.path(), blocks);
    dir
}

/// The same of a node that was pruned.
fn pruned(blocks: &[GeneratedBlock]) -> TempDir {
    let dir = left(blocks);
    edit_index(&datadir(dir.path()).index_dir(), |index| index.pruned = true).unwrap();
    dir
}

/// Appends two blocks of the other chain to the last block file, and, `with_rows`, to the block index.
fn depart(root: &Path, with_rows: bool) {
    let (datadir, like) = (datadir(root), chain().tip());
    let before = index(root);
    let (file, mut info) = (before.last_file, *before.files.last().unwrap());
    let mut block = Header { prev: like.hash, ..like.header }.to_bytes().to_vec();
    block[3] |= 0x80;
    block.extend([7; departed::HEADER_LEN - Header::LEN]);
    let (header, status) = (block.clone(), BlockStatus::VALID_SCRIPTS | BlockStatus::HAVE_DATA);
    block.extend(&like.bytes[Header::LEN..]);
    let (mut records, mut rows) = (Vec::new(), indexes::rows(&datadir.index_dir()));
    for number in 1..3 {
        let pos = u64::from(info.size) + records.len() as u64 + 8;
        write_record(&mut records, Network::Regtest.magic(), &block);
        let mut row = Vec::new();
        for value in [259_900, 136 + u64::from(number), status.into(), 1, file.0.into(), pos] {
            write_var_int(&mut row, value);
        }
        rows.insert([&b"b"[..], &[number; 32]].concat(), [&row[..], &header].concat());
    }
    let obfuscation = read_block_obfuscation(&RealDisk, &datadir.blocks_dir()).unwrap();
    obfuscation.apply(&mut records, info.size.into());
    let file_path = datadir.blk_path(file);
    fs::OpenOptions::new().append(true).open(file_path).unwrap().write_all(&records).unwrap();
    info.size += records.len() as u32;
    if with_rows {
        indexes::write_rows(&datadir.index_dir(), &rows);
        IndexRows::open(&RealDisk, &datadir.index_dir()).unwrap().update(&[], &[(file, info)]).unwrap();
    }
}

fn reconsidering(root: &Path, which: Reconsider) -> ReindexOptions {
    changed(options(root), |it| it.chain.reconsider = Some(which))
}

/// What notes say of a block.
fn about(notes: &[Warning], hash: BlockHash) -> String {
    let texts = notes.iter().map(ToString::to_string).filter(|text| text.contains(&hash.to_string()));
    texts.collect::<Vec<_>>().join("; ")
}

/// Runs an update; returns the notes and the new best block.
fn updated(root: &Path, which: Reconsider, at_once: bool) -> Result<(Vec<Warning>, BlockHash), Error> {
    let mut options = update_options(root, if at_once { AT_ONCE } else { EACH_BLOCK }, None);
    options.reconsider = Some(which);
    let before = stats(root, Network::Regtest).unwrap().best_block;
    update(&options).map(|report| {
        // Also if an invalid block is met, and a second attempt follows.
        assert_eq!(report.hash_before, before);
        (report.notes, report.hash)
    })
}

fn rebuilt(options: &ReindexOptions) -> Result<(Vec<Warning>, BlockHash), Error> {
    run(options).map(|report| (report.notes, report.hash))
}

fn repair_options(root: &Path, which: Reconsider) -> RepairOptions {
    let mut options = repairing(root, &[]);
    options.chain.reconsider = Some(which);
    options
}

fn repaired(root: &Path, which: Reconsider) -> Result<(Vec<Warning>, BlockHash), Error> {
    let report = try_repair(&repair_options(root, which))?;
    let rebuild = report.rebuild.expect("the chainstate is rebuilt");
    Ok((rebuild.notes, rebuild.hash))
}

type Way = (&'static str, fn(&Path, Reconsider) -> Result<(Vec<Warning>, BlockHash), Error>);

const WAYS: [Way; 5] = [
    ("reindex", |root, which| rebuilt(&reconsidering(root, which))),
    ("reindex, make", |root, which| {
        rebuilt(&changed(reconsidering(root, which), |it| it.chain.undo = UndoPolicy::Make))
    }),
    ("update at once", |root, which| updated(root, which, true)),
    ("update, each block", |root, which| updated(root, which, false)),
    ("repair", repaired),
];

#[test]
fn the_marked_chain_is_followed_again_and_loses_its_marks() {
    let marked_chain = branch(FORK);
    let tip = marked_chain.last().unwrap().hash;
    let dir = left(&marked_chain);
    let report = run(&options(dir.path())).unwrap();
    assert!(matches!(report.notes[..], [Warning::MarkedInvalid { height: Height(133), .. }]), "{report:?}");
    assert_eq!((report.height, marked(dir.path())), (Height(DEAD_END), hashes(&marked_chain)));
    for which in [Reconsider::All, Reconsider::Block(marked_chain[0].hash), Reconsider::Block(tip)] {
        for (what, way) in WAYS {
            let dir = left(&marked_chain);
            // What the node knows of the chain, but does not have.
            let above = sibling(&chain().main().next_back().unwrap().clone(), 3, |_| {});
            let mut above = [GeneratedBlock { height: 141, ..above }];
            rebase(above.iter_mut(), tip);
            mark_next(dir.path(), &above[0]);
            let (notes, hash) = way(dir.path(), which).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!((hash, marked(dir.path())), (tip, BTreeSet::new()), "{what} {which:?}");
            let is_said = about(&notes, marked_chain[0].hash).contains("the mark is dropped");
            assert!(is_said || what == "repair", "{what} {which:?}: {notes:?}");
            assert_eq!(stats(dir.path(), Network::Regtest).unwrap().best_block, tip, "{what}");
        }
    }
}

/// Without its blocks, a chain is not followed, and the index does not change.
/// The chainstate stays, and bitcoind starts with it only if the block index has its blocks.
#[test]
fn a_run_that_is_refused_because_of_a_mark_forgets_no_damaged_block() {
    for (what, is_cut) in [("repair", false), ("repair", true), ("sync", true)] {
        let dir = behind(chain().main(), TIP, &layout());
        mark(dir.path(), &chain().main().skip(60).cloned().collect::<Vec<_>>());
        let before = index(dir.path()).entries;
        let hit = before.iter().find(|entry| entry.height == Height(100)).unwrap();
        let (path, pos) = (datadir(dir.path()).blk_path(hit.file.unwrap()), hit.data_pos.unwrap().0);
        if is_cut { truncate(&path, pos + 50) } else { flip_bit(&path, pos + 100, 3) }.unwrap();
        let peer = peer_with(chain().main());
        let error = match what {
            "sync" => try_run(&from(dir.path(), &[&peer])).map(drop),
            _ => try_repair(&repairing(dir.path(), &[&peer])).map(drop),
        };
        assert_mentions(&error.unwrap_err(), &["is marked invalid; nothing was changed"]);
        assert!(index(dir.path()).entries == before, "{what}, is cut: {is_cut}");
    }
}

#[test]
fn only_the_marks_that_are_named_are_not_believed() {
    let (one, mut two) = (branch(FORK), branch(FORK - 2));
    two.truncate(8);
    let other = sibling(&two[0], 9, |_| {});
    replace(&mut two, 0, other);
    for (what, way) in WAYS {
        let dir = left(&one);
        store(dir.path(), two.iter());
        mark(dir.path(), &two);
        let (_, hash) = way(dir.path(), Reconsider::Block(two[3].hash)).unwrap();
        assert_eq!((hash, marked(dir.path())), (two[7].hash, hashes(&one)), "{what}");
        let (_, hash) = way(dir.path(), Reconsider::All).unwrap();
        assert_eq!((hash, marked(dir.path())), (one.last().unwrap().hash, BTreeSet::new()), "{what}");
    }
    for (_, way) in WAYS {
        let dir = left(&one);
        let words = ["the block index does not contain block"];
        let unknown = || way(dir.path(), Reconsider::Block(BlockHash([9; 32])));
        refused_by(dir.path(), ErrorKind::Usage, &words, unknown);
    }
}

/// All marks were gone, although the error said that nothing was changed.
#[test]
fn a_download_or_a_repair_that_is_refused_leaves_all_marks() {
    let (blocks, peer) = (branch(FORK), honest());
    let download = |root: &Path| {
        let options = impatient(from(root, &[&peer]));
        try_run(&changed(options, |it| it.chain.reconsider = Some(Reconsider::All))).map(drop)
    };
    let repair = |root: &Path| {
        let peers = from(root, &[&peer]).peers;
        try_repair(&RepairOptions { peers, ..repair_options(root, Reconsider::All) }).map(drop)
    };
    for way in [&download as &dyn Fn(&Path) -> Result<(), Error>, &repair] {
        let dir = pruned(&blocks);
        refused_by(dir.path(), ErrorKind::Usage, &["this node was pruned"], || way(dir.path()));
        // An index has the place of a block that would be stored at another one.
        let case = Case::of(left(&blocks));
        let all = indexes::of_case(&case, TxForm::ByTxid);
        indexes::make(&FaultDisk::healthy(), &IndexOptions { kinds: vec![IndexKind::Tx], ..all }).unwrap();
        case.forget_blocks(|entry| entry.height == Height(100));
        refused_by(case.root(), ErrorKind::Usage, &["nothing was changed"], || way(case.root()));
    }
    // There is nobody to ask.
    let case = Case::of(left(&blocks));
    peer.set_offline(true);
    assert_fails(download(case.root()), ErrorKind::Environment, &[]);
    assert_eq!(marked(case.root()), hashes(&blocks));
    case.forget_blocks(|entry| entry.height == Height(100));
    let repair = || try_repair(&repair_options(case.root(), Reconsider::All));
    refused_by(case.root(), ErrorKind::Environment, &["no peer to ask"], repair);
}

#[test]
fn an_invalid_block_keeps_its_mark_and_the_reason_is_given() {
    // Without its second block, the branch has too little work.
    for (at, best) in [(5, None), (1, Some(block_at(DEAD_END)))] {
        let mut blocks = branch(FORK);
        let invalid = greedy_sibling(&blocks[at], 1);
        replace(&mut blocks, at, invalid);
        for (what, way) in WAYS {
            let dir = left(&blocks);
            let done = way(dir.path(), Reconsider::All).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(done.1, best.unwrap_or(&blocks[at - 1]).hash, "{what}");
            let is_kept = hashes(&blocks[at..]).is_subset(&marked(dir.path()));
            let is_gone = marked(dir.path()).len() == blocks.len() - at;
            assert!(is_kept && (is_gone || best.is_some()), "{what}");
            let reason = about(&done.0, blocks[at].hash);
            assert!(reason.contains("coinbase pays"), "{what}: {reason:?}");
        }
    }
}

/// Wherever a rebuild fails, the datadir is as before, marks included, or has the new state.
#[test]
fn a_failing_disk_leaves_all_marks_or_none() {
    let blocks = branch(FORK);
    let left = Template::copy_of(left(&blocks).path());
    let all = |case: &Case| reconsidering(case.root(), Reconsider::All);
    let failures = Scenario {
        before: &|| left.case(),
        run: &|disk, case| run_on(disk, &all(case)).map(drop),
        is_whole: &|case, is_done, what| {
            let best = stats(case.root(), Network::Regtest).unwrap().best_block;
            let is_new = best == blocks.last().unwrap().hash;
            assert!(is_new || !is_done, "{what}: it reported success");
            assert_eq!(marked(case.root()), if is_new { BTreeSet::new() } else { hashes(&blocks) }, "{what}");
        },
        succeeds: &|case, what| drop(run(&all(case)).unwrap_or_else(|error| panic!("{what}: {error}"))),
    }
    .suffer(Trouble::NO_CHANGES, 7, false);
    assert!(failures > 1, "{failures}");
}

#[test]
fn a_download_goes_on_beyond_a_mark_and_sets_it_again_for_what_is_invalid() {
    let all: Vec<_> = chain().main().cloned().collect();
    let tip = all.len() - 1;
    let below = peer_with(&all[..tip]);
    let invalid = greedy_sibling(&all[tip], 1);
    for (last, is_valid) in [(&all[tip], true), (&invalid, false)] {
        let dir = scratch();
        sync(&from(dir.path(), &[&below]));
        mark_next(dir.path(), last);
        let peer = peer_with(all[..tip].iter().chain([last]));
        let mut options = from(dir.path(), &[&peer]);
        options.chain.reconsider = Some(Reconsider::Block(last.hash));
        let (report, _) = sync(&options);
        let best = if is_valid { last.hash } else { all[tip - 1].hash };
        assert_eq!(stats(dir.path(), Network::Regtest).unwrap().best_block, best, "{is_valid}");
        assert_eq!(marked(dir.path()).contains(&last.hash), !is_valid);
        assert_eq!(about(&report.notes, last.hash).contains("coinbase pays"), !is_valid, "{is_valid}");
    }
}

#[test]
fn blocks_of_the_other_chain_are_counted_and_left_out() {
    let blocks = branch(FORK);
    for with_rows in [false, true] {
        for (what, change) in [
            ("index", (|_| {}) as fn(&mut ReindexOptions)),
            ("reconsider", |it| it.chain.reconsider = Some(Reconsider::All)),
            ("scan", |it| it.chain.scan = true),
        ] {
            let what = format!("{what}, rows {with_rows}");
            let dir = left(&blocks);
            depart(dir.path(), with_rows);
            assert_eq!(index(dir.path()).departed, if with_rows { 2 } else { 0 });
            let options = changed(options(dir.path()), change);
            let report = run(&options).unwrap();
            let returns = options.chain.scan || options.chain.reconsider.is_some();
            assert_eq!(report.height, Height(if returns { 140 } else { DEAD_END }), "{what}");
            let is_counted = |note: &Warning| matches!(note, Warning::LeftOutDeparted { blocks: 2 });
            assert_eq!(report.notes.iter().any(is_counted), options.chain.scan || with_rows, "{what}");
            assert_eq!(index(dir.path()).departed, 0, "{what}");
        }
    }
    // A repair takes no block of them, and asks nobody for one.
    let (from, to) = (left(&blocks), left(&blocks));
    [&from, &to].into_iter().for_each(|dir| depart(dir.path(), true));
    let files = index(to.path()).last_file.0;
    (1..=files).for_each(|file| fs::remove_file(datadir(to.path()).blk_path(FileNo(file))).unwrap());
    let mut options = repair_options(to.path(), Reconsider::All);
    options.sources = vec![from.path().join("regtest/blocks")];
    let report = try_repair(&options).unwrap();
    assert!(report.taken > 0 && report.download.is_none(), "{report:?}");
    assert_eq!((report.sources[0].departed, report.height), (2, Height(140)), "{:?}", report.sources);
}

/// What `doctor` says of a datadir of regtest, on which the node has followed the dead branch.
fn advised(root: &Path) -> (Advice, String) {
    let mut options = DoctorOptions::new(root, Network::Regtest);
    let dead_branch = Some((Height(FORK + 1), block_at(FORK + 1).hash));
    let params = ChainParams { dead_branch, ..ChainParams::of(Network::Regtest).clone() };
    options.chain.params = Box::leak(Box::new(params));
    let found = examined(&options);
    let state = found.found.unwrap();
    (found.advice, format!("sound {}; {}; {}", state.is_sound(), state.index, state.blocks))
}

/// Makes the chainstate one of the other chain.
fn join_other_chain(root: &Path) {
    indexes::edit_rows(&datadir(root).chainstate_dir(), |rows| {
        let key = &rows[&b"\x0e\0obfuscate_key"[..]][1..];
        let best = [2; 32].iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
        rows.insert(b"B".to_vec(), best);
    });
}

#[test]
fn a_diagnosis_names_the_dead_branch_and_the_way_back() {
    let blocks = branch(FORK);
    let block = Some(blocks[0].hash);
    for with_rows in [None, Some(false), Some(true)] {
        let dir = left(&blocks);
        with_rows.into_iter().for_each(|with_rows| depart(dir.path(), with_rows));
        let (advice, text) = advised(dir.path());
        let rebuilds = with_rows == Some(true);
        assert_eq!(advice, Advice::Reconsider { block, rebuilds }, "{with_rows:?}: {text}");
        assert!(text.contains("sound false") && text.contains("has left Bitcoin's chain at"), "{text}");
        assert_eq!(text.contains("written by a client that left"), with_rows.is_some(), "{text}");
        let which = Reconsider::Block(blocks[0].hash);
        let done = WAYS[if rebuilds { 0 } else { 2 }].1(dir.path(), which);
        assert_eq!(done.unwrap().1, blocks.last().unwrap().hash);
        assert_eq!(advised(dir.path()).0, Advice::StartBitcoind, "{with_rows:?}");
    }
    // Bitcoin's blocks are not stored.
    let dir = left(&[]);
    assert_eq!(advised(dir.path()).0, Advice::Reconsider { block: None, rebuilds: false });
    // What is marked goes on with the dead branch: to have it checked leads no way back.
    let dir = left(&[]);
    let above: Vec<_> = chain().main().filter(|block| block.height > DEAD_END).cloned().collect();
    store(dir.path(), above.iter());
    mark(dir.path(), &above);
    assert_eq!(advised(dir.path()).0, Advice::Reconsider { block: None, rebuilds: false });
    // The chainstate is one of the other chain.
    let dir = left(&blocks);
    depart(dir.path(), true);
    join_other_chain(dir.path());
    let (advice, text) = advised(dir.path());
    assert_eq!(advice, Advice::Reconsider { block: None, rebuilds: true }, "{text}");
    assert!(text.contains("sound false"), "{text}");
    let way_back = changed(options(dir.path()), |it| (it.chain.scan, it.accept_lower_tip) = (true, true));
    assert_eq!(run(&way_back).unwrap().hash, blocks.last().unwrap().hash);
    assert_eq!(advised(dir.path()).0, Advice::StartBitcoind);
}

/// It was told to start bitcoind, which stays on the dead branch or does not start, or to download all blocks
/// up to the marked one.
#[test]
fn a_pruned_node_is_led_back_by_an_update_or_a_download() {
    let blocks = branch(FORK);
    let (block, tip) = (Some(blocks[0].hash), blocks.last().unwrap().hash);
    let peer = peer_with(chain().main().filter(|block| block.height <= FORK).chain(&blocks));
    let download = |dir: &TempDir| {
        assert_eq!(advised(dir.path()).0, Advice::Reconsider { block: None, rebuilds: false });
        let mut options = SyncOptions { prune_bytes: Some(1 << 30), ..from(dir.path(), &[&peer]) };
        options.chain.reconsider = Some(Reconsider::All);
        sync(&options);
        assert_eq!(stats(dir.path(), Network::Regtest).unwrap().best_block, tip);
        assert_eq!((index(dir.path()).departed, marked(dir.path()).len()), (0, 0));
        assert_eq!(advised(dir.path()).0, Advice::StartBitcoind);
    };
    // Bitcoin's blocks are stored, and nothing else keeps bitcoind from starting.
    let dir = pruned(&blocks);
    let (advice, text) = advised(dir.path());
    assert_eq!(advice, Advice::Reconsider { block, rebuilds: false }, "{text}");
    assert!(text.contains("sound false"), "{text}");
    assert_eq!(updated(dir.path(), Reconsider::Block(blocks[0].hash), true).unwrap().1, tip);
    assert_eq!(advised(dir.path()).0, Advice::StartBitcoind);
    // They are not stored.
    download(&pruned(&[]));
    // Only a download leaves out blocks of the other chain.
    let dir = pruned(&blocks);
    depart(dir.path(), true);
    download(&dir);
    // No peer has the best block of the chainstate.
    let dir = pruned(&blocks);
    depart(dir.path(), true);
    join_other_chain(dir.path());
    let chainstate = datadir(dir.path()).chainstate_dir();
    assert_eq!(advised(dir.path()).0, Advice::MoveAway { path: chainstate.clone() });
    fs::rename(&chainstate, dir.path().join("chainstate.old")).unwrap();
    download(&dir);
    // The chainstate does not open, and does not show where it was.
    let dir = left(&blocks);
    fs::remove_file(datadir(dir.path()).chainstate_dir().join("CURRENT")).unwrap();
    assert_eq!(advised(dir.path()).0, Advice::Reconsider { block, rebuilds: true });
    edit_index(&datadir(dir.path()).index_dir(), |index| index.pruned = true).unwrap();
    download(&dir);
}

/// An update was advised, which is refused until bitcoind has completed the flush.
#[test]
fn a_flush_is_to_be_completed_before_blocks_are_reconsidered() {
    let case = Case::at_tip();
    interrupt_flush(&case, 50);
    mark(case.root(), std::slice::from_ref(block_at(FORK)));
    assert_eq!(advised(case.root()).0, Advice::StartBitcoind);
}

/// What Core's pull request 32427 makes of a block index.
#[test]
fn a_block_index_of_flat_files_is_refused_by_name() {
    let files = [("headers.dat", 0x1d5e_2eb2_u32), ("blockfiles.dat", 0x6e2e_2f44), ("log.dat", 0xa034_6f91)];
    for (name, magic) in files {
        let dir = left(&[]);
        let index = datadir(dir.path()).index_dir();
        fs::remove_dir_all(&index).unwrap();
        write_file(index.join(name), [&magic.to_le_bytes()[..], &[1, 0, 0, 0]].concat());
        for scan in [false, true] {
            let options = changed(options(dir.path()), |it| it.chain.scan = scan);
            let words = [name, "a block index of flat files", "32427"];
            acceptance::refused(&options, ErrorKind::Environment, &words);
        }
        let (advice, text) = advised(dir.path());
        assert_eq!(advice, Advice::StartBitcoind, "{text}");
        assert!(text.contains("a block index of flat files"), "{text}");
    }
}

/// A rebuild replaced them, as if they were damaged, and what their new rows mean was lost.
#[test]
fn databases_of_a_newer_bitcoind_are_not_replaced() {
    for (is_index, scan) in [(false, false), (false, true), (true, true)] {
        let dir = left(&[]);
        let datadir = datadir(dir.path());
        let (path, kind) =
            if is_index { (datadir.index_dir(), b"m") } else { (datadir.chainstate_dir(), b"D") };
        indexes::edit_rows(&path, |rows| drop(rows.insert(kind.to_vec(), vec![1])));
        let options = changed(up_to(options(dir.path()), 100), |it| it.chain.scan = scan);
        let words = [&format!("a row of kind {:02x}", kind[0]), "a newer Bitcoin Core"];
        acceptance::refused(&options, ErrorKind::Environment, &words);
    }
}

/// The eight headers of the branch of August 2026.
#[test]
fn the_dead_branch_of_mainnet_is_the_real_one() {
    let Some(path) = shared_data("headers/bip110_branch_961632-961639.csv") else { return };
    let text = fs::read_to_string(path).unwrap();
    let mut hashes = Vec::new();
    for line in text.lines().rev() {
        let [height, hash, digits] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        let header = Header::read(&mut Reader::new(&bytes)).unwrap();
        let found = (Height(height.parse().unwrap()), header.hash());
        assert!(found.1.to_string() == hash && header.meets_own_target(&found.1), "{line}");
        assert!(hashes.last().is_none_or(|(_, prev)| header.prev == *prev), "{line}");
        hashes.push(found);
    }
    assert_eq!((ChainParams::of(Network::Main).dead_branch, hashes.len()), (Some(hashes[0]), 8));
}

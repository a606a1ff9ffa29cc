//! Siblings that are connected or not, valid or not, stored before or after the block of the chain, at its
//! tip or below, with the same spends, others of the same shape, or none. With and without the block index,
//! the rebuilt chain is the one that can be proven, and the index that a scan writes leads to it again.

use acceptance::{prelude::*, update::write_in_order as write};
use testkit::{datadir::read_block, sibling::swapped_sibling};

/// Rebuilds in place. Returns the notes too.
fn run_in_place(root: &Path, scan: bool) -> (Result<ReindexReport, Error>, String) {
    let (done, events) = run_seen(&changed(options(root), |it| it.chain.scan = scan));
    (done, notes(&events).join("\n"))
}

/// The model's coins after the chain that ends with `tip`, which is among the blocks.
fn stats_at(blocks: &[GeneratedBlock], tip: &GeneratedBlock) -> ModelStats {
    let mut ancestors = vec![tip];
    while let Some(parent) = blocks.iter().find(|block| block.hash == ancestors.last().unwrap().header.prev) {
        ancestors.push(parent);
    }
    Model::of(ancestors.into_iter().rev()).stats()
}

/// Properties of a sibling.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// It spends the same coins, or none.
    Same,
    /// It spends other coins, in the same shape.
    Swapped,
    /// It spends the same coins and is invalid.
    Greedy,
}

/// The chain up to `top`, with a sibling of the block at `height`: stored before it or after it, once
/// connected or never. Returns the index of the sibling too.
fn with_sibling(
    (top, height): (u32, u32),
    kind: Kind,
    first: bool,
    connected: bool,
) -> Option<(Vec<GeneratedBlock>, usize)> {
    let mut blocks = main_to(top as usize);
    let original = &blocks[height as usize];
    let mut sibling_block = match kind {
        Kind::Same => sibling(original, 1, |_| {}),
        Kind::Swapped => swapped_sibling(original, 1)?,
        Kind::Greedy => greedy_sibling(original, 1),
    };
    match (kind, connected) {
        (Kind::Swapped, true) => {}
        (Kind::Same, true) => sibling_block.undo.clone_from(&original.undo),
        (Kind::Greedy, true) => return None,
        _ => sibling_block.undo = None,
    }
    let at = if first { height as usize } else { height as usize + 1 };
    blocks.insert(at, sibling_block);
    Some((blocks, at))
}

/// Heights of a block with two spends that can be exchanged, and of one with only a coinbase.
const BUSY: u32 = 125;
const EMPTY: u32 = 60;

#[test]
fn rebuilds_the_chain_that_can_be_proven_with_and_without_the_index() {
    assert!(block_at(EMPTY).txs == 1 && swapped_sibling(block_at(BUSY), 1).is_some());
    let mut cases = 0;
    for (top, height) in [(BUSY, BUSY), (EMPTY, EMPTY), (BUSY + 4, BUSY), (EMPTY + 1, EMPTY)] {
        for kind in [Kind::Same, Kind::Swapped, Kind::Greedy] {
            for (first, connected) in [(false, false), (false, true), (true, false), (true, true)] {
                let Some((blocks, at)) = with_sibling((top, height), kind, first, connected) else {
                    continue;
                };
                for scan in [false, true] {
                    let what = format!("{kind:?} at {height} of {top}, {first} {connected}, scan {scan}");
                    let main = blocks.iter().find(|block| block.height == top && !block.stale).unwrap();
                    let other = &blocks[at];
                    // Of two blocks that can be connected, the node's tip was the one stored first.
                    let can_be = connected || scan && kind == Kind::Same;
                    let tip = if top == height && first && can_be { other } else { main };
                    let dir = scratch();
                    write(dir.path(), &blocks);
                    let (done, notes) = run_in_place(dir.path(), scan);
                    let report = done.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert_eq!(report.hash, tip.hash, "{what}");
                    assert_eq!(report.hash_serialized_3, stats_at(&blocks, tip).hash_serialized_3, "{what}");
                    let invalid = scan && kind == Kind::Greedy && first && top == height;
                    let is_noted =
                        notes.contains(&other.hash.to_string()) && notes.contains("never connected");
                    assert_eq!(is_noted, invalid, "{what}: {notes}");
                    // The index that the scan has written leads to the same chain.
                    let again = run_in_place(dir.path(), false).0.unwrap();
                    assert_eq!(again.hash, tip.hash, "{what}");
                    cases += 1;
                }
            }
        }
    }
    assert!(cases > 50, "{cases}");
}

/// Three siblings of the tip, two of them invalid and stored first: they are found invalid one after the
/// other.
#[test]
fn invalid_siblings_are_excluded_one_after_the_other() {
    let mut blocks = main_to(BUSY as usize);
    let tip = blocks.pop().unwrap();
    blocks.extend([greedy_sibling(&tip, 1), greedy_sibling(&tip, 2)]);
    blocks.extend([tip.clone(), sibling(&tip, 3, |_| {})]);
    let dir = scratch();
    write(dir.path(), &blocks);
    let (done, notes) = run_in_place(dir.path(), true);
    assert_eq!(done.unwrap().hash, tip.hash);
    assert_eq!(notes.matches("never connected").count(), 2, "{notes}");
    let options = changed(options(dir.path()), |it| it.chain.scan = true);
    let checked = engine::verify(&FaultDisk::healthy(), &options.chain, false, unwatched());
    assert_eq!(checked.unwrap().hash, tip.hash);
    let index = read_block_index(&RealDisk, &dir.path().join("regtest/blocks/index")).unwrap();
    let with_undo = |block: &GeneratedBlock| {
        index.entries.iter().any(|entry| entry.hash == block.hash && entry.undo_pos.is_some())
    };
    let siblings = blocks.iter().filter(|block| block.height == BUSY);
    assert_eq!(siblings.map(with_undo).collect::<Vec<_>>(), [false, false, true, false]);
}

/// Two siblings of the same shape that were both connected, their records in either order.
#[test]
fn each_of_two_records_is_assigned_to_the_block_whose_coins_it_has() {
    for (first, above) in [(false, 0), (true, 0), (false, 3), (true, 3)] {
        let (mut blocks, at) = with_sibling((BUSY + above, BUSY), Kind::Swapped, first, true).unwrap();
        let records = if first { [at, at + 1] } else { [at - 1, at] };
        // The writer follows the order of the blocks: undo data that is exchanged belongs to the other one.
        for swapped in [false, true] {
            if swapped {
                let (low, high) = blocks.split_at_mut(records[1]);
                std::mem::swap(&mut low[records[0]].undo, &mut high[0].undo);
            }
            let dir = scratch();
            write(dir.path(), &blocks);
            let report = run_in_place(dir.path(), true).0.unwrap();
            let tip = blocks.iter().filter(|block| block.height == BUSY + above);
            let tip = if above == 0 { tip.clone().next() } else { tip.clone().next_back() }.unwrap();
            assert_eq!(report.hash, tip.hash, "first {first}, above {above}, swapped {swapped}");
            assert_eq!(report.hash_serialized_3, stats_at(&blocks, tip).hash_serialized_3);
        }
    }
}

/// A block that Core has stored, with its undo data.
fn stored(core: &UndoFiles, entry: &IndexEntry) -> GeneratedBlock {
    GeneratedBlock {
        bytes: read_block(&core.paths, entry.file.unwrap(), entry.data_pos.unwrap()),
        hash: entry.hash,
        header: entry.header,
        height: entry.height.0,
        txs: entry.tx_count,
        undo: core.record(entry).map(|(undo, _)| undo.to_vec()),
        stale: entry.undo_pos.is_none() && entry.height.0 > 0,
    }
}

/// Core's regtest datadirs with siblings of many blocks: those of the tip that could be connected follow it,
/// the others precede it.
fn with_siblings_in(name: &str) {
    let (Some(dir), Some(known)) = (unpack_core_datadir(name), known_tip(name)) else { return };
    let tip: BlockHash = known["hash"].as_str().unwrap().parse().unwrap();
    let (mut blocks, core) = (Vec::new(), UndoFiles::read(dir.path(), Network::Regtest));
    // In the order of the files.
    let mut entries: Vec<_> = core.index.entries.iter().filter(|entry| entry.data_pos.is_some()).collect();
    entries.sort_by_key(|entry| (entry.file, entry.data_pos));
    let found: Vec<_> = entries.into_iter().map(|entry| stored(&core, entry)).collect();
    drop(dir); // Up to 100 MB.
    for (number, block) in found.into_iter().enumerate() {
        let number = number as u64;
        let is_tip = block.hash == tip;
        if block.height == 0 || block.stale || !number.is_multiple_of(7) && !is_tip {
            blocks.push(block);
            continue;
        }
        let greedy = greedy_sibling(&block, number);
        let swapped = swapped_sibling(&block, number).filter(|_| !is_tip || number.is_multiple_of(2));
        let connected = GeneratedBlock { undo: block.undo.clone(), ..sibling(&block, number, |_| {}) };
        blocks.push(greedy);
        if is_tip {
            blocks.push(block);
            blocks.extend(swapped.map(|swapped| GeneratedBlock { undo: None, ..swapped }));
            blocks.push(connected);
        } else {
            blocks.extend(swapped);
            blocks.push(connected);
            blocks.push(block);
        }
    }
    for scan in [false, true] {
        let dir = scratch();
        write(dir.path(), &blocks);
        let (done, _) = run_in_place(dir.path(), scan);
        let what = format!("{name}, scan {scan}");
        let report = done.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(report.hash, tip, "{what}");
        assert_eq!(hex_reversed(&report.hash_serialized_3), known["hash_serialized_3"], "{what}");
    }
}

#[test]
fn regtest_with_more_siblings_is_rebuilt_to_cores_hash() {
    ["regtest", "regtest-siblings"].into_iter().for_each(with_siblings_in);
}

/// On public networks no sibling has proof of work, but blocks can be stored twice, as after a crash.
fn with_copies_in(name: &str, network: Network) {
    let (Some(dir), Some(known)) = (unpack_core_datadir(name), known_tip(name)) else { return };
    let core = UndoFiles::read(dir.path(), network);
    let last = core.index.last_file;
    let mut tail = Vec::new();
    for entry in core.index.entries.iter().filter(|entry| entry.data_pos.is_some()) {
        if entry.hash.0[0] % 5 == 0 || entry.hash.to_string() == known["hash"].as_str().unwrap() {
            disk::blk::write_record(&mut tail, network.magic(), &stored(&core, entry).bytes);
        }
    }
    let (path, used) = (core.paths.blk_path(last), core.index.files[last.0 as usize].size);
    core.obfuscation.apply(&mut tail, used.into());
    testkit::corrupt::overwrite(&path, used.into(), &tail).unwrap();
    for scan in [false, true] {
        let output = scratch();
        let in_place = ReindexOptions::new(dir.path(), network, ScriptChecks::LeftOut);
        let options = changed(elsewhere(in_place, output.path()), |it| it.chain.scan = scan);
        let what = format!("{name}, scan {scan}");
        let report = acceptance::run(&options).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(hex_reversed(&report.hash_serialized_3), known["hash_serialized_3"], "{what}");
    }
}

#[test]
fn public_networks_with_copies_are_rebuilt_to_cores_hash() {
    with_copies_in("main", Network::Main);
    with_copies_in("testnet3", Network::Test);
    with_copies_in("signet", Network::Signet);
}

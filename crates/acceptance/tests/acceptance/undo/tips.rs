//! The chain that is rebuilt if undo data need not be there: stored blocks above the chainstate that are
//! invalid, siblings of which only one has undo data, false claims among undo data that is made.

use acceptance::{prelude::*, update::write_in_order as write};
use bitcoin::{Sequence, absolute::LockTime};

/// Height of the last block of the valid chain.
const TOP: u32 = 125;

/// What the blocks of a chain have, and its coins.
fn expected_of(blocks: &[GeneratedBlock]) -> Expected {
    let of = |block: &GeneratedBlock| {
        let valid = block_at(block.height);
        (block.header.prev, block.hash, valid.undo.clone().unwrap())
    };
    let hash_serialized_3 = Model::of(blocks).stats().hash_serialized_3;
    Expected { blocks: blocks.iter().skip(1).map(of).collect(), hash_serialized_3 }
}

/// The chain up to [`TOP`], with `count` blocks above it that were stored and never connected; the first one
/// of them pays its miner too much.
fn below_invalid_blocks(count: u32) -> Vec<GeneratedBlock> {
    let mut blocks = main_to(TOP as usize);
    let mut above: Vec<_> =
        chain().main().filter(|block| block.height > TOP).take(count as usize).cloned().collect();
    let greedy = greedy_sibling(&above[0], 1);
    replace(&mut above, 0, greedy);
    above.iter_mut().for_each(|block| (block.undo, block.stale) = (None, true));
    blocks.extend(above);
    blocks
}

fn all_ways(root: &Path) -> Vec<(String, ReindexOptions)> {
    let mut found = Vec::new();
    for undo in UndoPolicy::ALL {
        for scan in [false, true] {
            let options = changed(with_undo(&options(root), undo), |it| it.chain.scan = scan);
            found.push((format!("{undo:?}, scan {scan}"), options));
        }
    }
    found
}

/// Asserts that a rebuild with any of these options comes to the valid chain up to [`TOP`], and completes its
/// undo data. `prepare` changes the datadir before.
fn assert_is_top(blocks: &[GeneratedBlock], what: &str, prepare: impl Fn(&Path, UndoPolicy) -> bool) {
    let (expected, tip) = (expected_of(&main_to(TOP as usize)), block_at(TOP).hash);
    let (dir, mut failures) = (scratch(), String::new());
    for (way, options) in all_ways(dir.path()) {
        let _ = fs::remove_dir_all(dir.path().join("regtest"));
        write(dir.path(), blocks);
        if !prepare(dir.path(), options.chain.undo) {
            continue;
        }
        match run(&options) {
            Ok(report) => {
                let what = format!("{what}, {way}");
                let found = (report.hash_serialized_3, report.hash);
                assert_eq!(found, (expected.hash_serialized_3, tip), "{what}");
                assert_complete(dir.path(), Network::Regtest, &expected, &what);
            }
            Err(error) => failures += &format!("\n{what}, {way}: {error}"),
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// bitcoind connects the blocks above its chainstate, finds the invalid one, and stays where it is.
#[test]
fn an_invalid_block_that_was_never_connected_does_not_prevent_a_rebuild() {
    for count in [1, 3] {
        let blocks = below_invalid_blocks(count);
        assert_is_top(&blocks, &format!("{count} blocks"), |_, _| true);
        assert_is_top(&blocks, &format!("{count} blocks, a chainstate below"), |root, _| {
            run(&up_to(trusting(&options(root)), TOP - 2)).unwrap();
            true
        });
    }
    assert_is_top(&below_invalid_blocks(1), "all undo data is lost", |root, undo| {
        UndoDamage::AllGone.apply(root, Network::Regtest);
        undo != UndoPolicy::Trust
    });
}

/// bitcoind checks some rules only when a block arrives: it once connected such a block, and followed a chain
/// that Core rejects. It ends at a damaged one.
#[test]
fn a_scan_vouches_for_no_block_outside_the_chain_that_is_invalid_or_damaged() {
    let [near, above] = [TOP - 3, TOP + 1].map(block_at);
    let not_final = sibling(above, 1, |block| {
        block.txdata[0].lock_time = LockTime::from_consensus(2 * TOP);
        block.txdata[0].input[0].sequence = Sequence::ZERO;
    });
    let (sound, mut damaged) = (sibling(near, 1, |_| {}), sibling(near, 2, |_| {}));
    *damaged.bytes.last_mut().unwrap() ^= 1;
    let mut blocks = main_to(TOP as usize);
    blocks.extend([&sound, &damaged, &not_final].map(Clone::clone));
    let dir = scratch();
    for (way, options) in all_ways(dir.path()).into_iter().filter(|(_, options)| options.chain.scan) {
        let _ = fs::remove_dir_all(dir.path().join("regtest"));
        write(dir.path(), &blocks);
        assert_eq!(run(&options).unwrap().height, Height(TOP), "{way}");
        let files = UndoFiles::read(dir.path(), Network::Regtest);
        assert!(files.entry(&not_final.hash).status.is_failed(), "{way}");
        assert_eq!(files.entry(&sound.hash).status, BlockStatus::stored(true), "{way}");
        let header = IndexEntry::of_header(damaged.hash, damaged.header, Height(near.height));
        assert_eq!(*files.entry(&damaged.hash), header, "{way}");
    }
}

/// A stored sibling of the tip, which is invalid, with a block above it: a chain with more work than the
/// node's. It has the shape of the tip, so that a scan cannot know to which of them the undo data belongs.
#[test]
fn an_invalid_sibling_of_the_tip_with_a_block_above_it_is_left_out() {
    let tip = block_at(TOP);
    let greedy = greedy_sibling(tip, 1);
    let mut above = block_at(TOP + 1).clone();
    (above.undo, above.stale) = (None, true);
    rebase(std::iter::once(&mut above), greedy.hash);
    for first in [false, true] {
        let mut blocks = main_to(TOP as usize);
        let at = if first { TOP as usize } else { blocks.len() };
        blocks.insert(at, greedy.clone());
        blocks.push(above.clone());
        assert_is_top(&blocks, &format!("first {first}"), |_, _| true);
    }
}

/// An invalid block in the middle, with connected blocks above it: the chain is invalid, also if the block
/// has a valid sibling.
#[test]
fn an_invalid_block_below_connected_ones_is_an_error() {
    let mut blocks = main_to(TOP as usize + 3);
    let valid = blocks[TOP as usize].clone();
    let greedy = GeneratedBlock { undo: valid.undo.clone(), stale: false, ..greedy_sibling(&valid, 1) };
    let hash = greedy.hash;
    replace(&mut blocks, TOP as usize, greedy);
    let mut with_sibling = blocks.clone();
    with_sibling.insert(TOP as usize, GeneratedBlock { stale: true, undo: None, ..valid });
    for (blocks, policies) in [(blocks, &UndoPolicy::ALL[..]), (with_sibling, &[UndoPolicy::Auto])] {
        let dir = scratch();
        write(dir.path(), &blocks);
        let is_taken = |options: &ReindexOptions| policies.contains(&options.chain.undo);
        for (what, options) in all_ways(dir.path()).into_iter().filter(|(_, options)| is_taken(options)) {
            let error = refused(&options, ErrorKind::Consensus, &[]);
            assert_eq!(error.block_hash, Some(hash), "{what}: {error}");
            assert_eq!(leftovers(dir.path()), [] as [&Path; 0], "{what}");
        }
    }
}

/// Of two siblings at the tip, the one that was connected is the node's tip, whichever came first; without
/// any undo data, the one that was stored first.
#[test]
fn of_siblings_at_the_tip_the_one_with_undo_data_is_chosen() {
    for first in [false, true] {
        let mut blocks = main_to(TOP as usize);
        let tip = blocks.pop().unwrap();
        let other = sibling(&tip, 1, |_| {});
        assert!(other.undo.is_none());
        blocks.extend(if first { [other.clone(), tip.clone()] } else { [tip.clone(), other.clone()] });
        for undo in UndoPolicy::ALL {
            let dir = scratch();
            write(dir.path(), &blocks);
            let case = Case::of(dir);
            let report = run(&with_undo(&options(case.root()), undo)).unwrap();
            assert_eq!(report.hash, tip.hash, "first {first}, {undo:?}");
            assert_eq!(report.undo.map_or(0, |undo| undo.blocks), 0, "first {first}, {undo:?}");
            assert_complete(case.root(), Network::Regtest, &expected_of(&main_to(TOP as usize)), "siblings");
            if undo == UndoPolicy::Trust {
                continue;
            }
            // All undo data is lost: the chainstate still shows which one is the tip, and if it is gone too,
            // the one that was stored first is chosen.
            case.forget_undo(|_| true);
            UndoDamage::AllGone.apply(case.root(), Network::Regtest);
            for scan in [false, true] {
                let options = changed(with_undo(&options(case.root()), undo), |it| it.chain.scan = scan);
                assert_eq!(run(&options).unwrap().hash, tip.hash, "first {first}, {undo:?}, scan {scan}");
                UndoDamage::AllGone.apply(case.root(), Network::Regtest);
            }
            fs::remove_dir_all(case.net("chainstate")).unwrap();
            let chosen = if first { &other } else { &tip };
            let scan = changed(with_undo(&options(case.root()), undo), |it| it.chain.scan = true);
            let mut expected = expected_of(&main_to(TOP as usize - 1));
            let undo_data = tip.undo.clone().unwrap();
            expected.blocks.push((tip.header.prev, chosen.hash, undo_data));
            assert_eq!(run(&scan).unwrap().hash, chosen.hash, "first {first}, {undo:?}, nothing is left");
            assert_complete(case.root(), Network::Regtest, &expected, "nothing is left");
        }
    }
}

/// A false claim is found in the last merge, when undo data of other blocks has been made already.
#[test]
fn undo_data_is_made_once_if_a_false_claim_is_found_late() {
    let mut lying = chain().clone();
    let expected = Expected::of(chain());
    let is_long = |block: &GeneratedBlock| block.undo.as_ref().is_some_and(|undo| undo.len() > 60);
    let liar = lying.blocks.iter().rposition(is_long).unwrap();
    acceptance::lies::falsify_claim(
        &mut lying.blocks[liar],
        |claims| {
            let tx = claims.iter().position(|tx| tx.iter().any(|(code, _)| code >> 1 < 100)).unwrap();
            (tx, claims[tx].iter().position(|(code, _)| code >> 1 < 100).unwrap())
        },
        |_, amount, _| *amount += 1,
    );
    for (threads, bounded) in [(1, true), (2, true), (1, false)] {
        let dir = datadir_of(&lying);
        let case = Case::of(dir);
        let lacking = chain().main().filter(|block| block.height % 9 == 5 && block.height < 90);
        let lacking: Vec<_> = lacking.map(|block| block.hash).collect();
        case.forget_undo(|entry| lacking.contains(&entry.hash));
        let options = with_threads(&case.options(), threads);
        let options = if bounded { acceptance::bounded(&options) } else { options };
        let what = format!("{threads} threads, bounded {bounded}");
        let report = run(&options).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(report.hash_serialized_3, expected.hash_serialized_3, "{what}");
        assert_complete(case.root(), Network::Regtest, &expected, &what);
        assert_eq!(report.undo.unwrap().blocks as usize, lacking.len() + 1, "{what}: {:?}", report.matching);
    }
}

//! Peers that have other branches than the best one: the branch with the most work wins, and one with an
//! invalid block does not.

use acceptance::prelude::*;
use acceptance::sync::{appears_beside, run};
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, Transaction, consensus, script::Builder};
use testkit::block::{BITS, coinbase};

/// Whether a peer was asked for a block of the tests' chain that is not in a [`branch`] from height 60.
fn was_asked_above_fork(peer: &ScriptedPeer) -> bool {
    let asked = peer.asked();
    chain().main().skip(61).any(|block| asked.contains(&block.hash))
}

/// A peer that appears has a longer branch. It does not have the blocks of the other one, and saying so must
/// neither cost it the connection nor the blocks that it has at these heights.
#[test]
fn a_longer_branch_that_appears_is_taken_and_shared_blocks_are_not_downloaded_twice() {
    let dir = scratch();
    // At first without large blocks: on a slow machine, all blocks that it has are asked of it at once.
    let (other, longer) = (peer_with(&branch(60, 120)), honest());
    longer.set_offline(true);
    other.hold_at(30);
    let (report, seen) = run_while(&from(dir.path(), &[&other, &longer]), |_| {
        wait_until("30 blocks", || other.asked().len() > 30);
        // If all came, the run could end before the longer branch is known.
        appears_beside(&other, &longer, 30..110);
        wait_until("a block of the longer branch", || was_asked_above_fork(&longer));
        other.serve(&serving(&branch(60, tip() - 2)));
        other.hold_at(usize::MAX);
    });
    assert_sound(dir.path(), chain(), "a longer branch");
    assert!(longer.accepted() == 1, "{:?}", seen.reasons(&longer));
    let (before, after) = (other.asked(), longer.asked());
    assert!(before[..30].iter().all(|hash| !after.contains(hash)), "a block that had come was asked for");
    assert!(report.download.duplicate_bytes < 100_000, "{:?}", report.download);
}

/// Peers that had no more headers before were never asked for the blocks of the longer branch. When the peer
/// that had shown the branch was gone, the branch was given up.
#[test]
fn peers_that_go_over_to_a_longer_branch_are_asked_for_its_blocks() {
    for is_late in [false, true] {
        let (dir, other, longer) = (scratch(), peer_with(&branch(60, tip() - 2)), honest());
        longer.set_offline(true);
        longer.hold_at(0);
        other.hold_at(30);
        let (_, seen) = run_while(&from(dir.path(), &[&other, &longer]), |_| {
            wait_until("30 blocks", || other.asked().len() > 30);
            if !is_late {
                other.serve(&served());
            }
            appears_beside(&other, &longer, 30..60);
            other.hold_at(usize::MAX);
            let begun = Instant::now();
            if is_late {
                // Until the other peer has shown again that it has the shorter branch.
                thread::sleep(Duration::from_secs(1));
                other.serve(&served());
                longer.set_offline(true);
            }
            wait_until("a new block", || was_asked_above_fork(&other));
            assert!(is_late || begun.elapsed() < Duration::from_secs(8), "it is asked at once");
            longer.hold_at(usize::MAX);
        });
        assert_sound(dir.path(), chain(), &format!("late: {is_late}"));
        assert!(!seen.has_withheld(), "late: {is_late}");
    }
}

/// A chain in which a chainstate is brought to a branch that forks two blocks below, instead of rebuilt.
fn long() -> (Chain, Vec<GeneratedBlock>) {
    let long = Chain::generate(&ChainSpec { blocks: Some(320), stale: false, ..ChainSpec::new(23, 60_000) });
    let main = long.main().cloned().collect();
    (long, main)
}

/// A datadir that ends with a stale block, and a peer with one more block than it has.
fn at_a_stale_block() -> (Chain, TempDir, ScriptedPeer) {
    let (long, main) = long();
    let mut stale = main[..=301].to_vec();
    stale[301] = sibling(&stale[301], 1, |_| {});
    let (dir, peer) = (scratch(), peer_with(&stale));
    run(&from(dir.path(), &[&peer]));
    peer.serve(&serving(&main[..=302]));
    (long, dir, peer)
}

/// A node that was stopped at a stale block: the chainstate was rebuilt, and with pruning all was downloaded.
#[test]
fn a_stale_block_is_disconnected_without_a_rebuild() {
    let (long, dir, peer) = at_a_stale_block();
    let (report, _) = run(&from(dir.path(), &[&peer]));
    let update = report.update.unwrap();
    assert_eq!((report.download.blocks, update.disconnected, report.rebuild.is_none()), (2, 1, true));
    assert_synced_to(302, dir.path(), &long, "a stale block");
}

/// Undo data was deleted without which the chainstate cannot leave the stale block.
#[test]
fn pruning_keeps_what_a_chainstate_on_a_stale_block_needs() {
    let (long, dir, peer) = at_a_stale_block();
    let mut options = SyncOptions { prune_bytes: Some(1), ..from(dir.path(), &[&peer]) };
    // The new blocks are in other files than the stale one.
    (options.chain.hooks.block_file_len, options.chain.hooks.undo_blocks) = (1, 0);
    assert_eq!(run(&options).0.chainstate_height, Some(Height(301)), "it is left to the update");
    let updated = update(&update_options(dir.path(), AT_ONCE, None)).unwrap();
    assert_eq!(updated.disconnected, 1);
    assert_synced_to(302, dir.path(), &long, "a stale block, pruned");
}

#[test]
fn a_finished_datadir_moves_to_a_longer_branch() {
    let dir = scratch();
    let peer = peer_with(&branch(100, tip() - 1));
    let (report, _) = run(&from(dir.path(), &[&peer]));
    assert_eq!(report.height, Height(TIP - 1));
    peer.serve(&serving(&main_to(tip())));
    let (report, _) = run(&from(dir.path(), &[&peer]));
    assert_eq!(report.download.blocks as usize, tip() - 100, "only what is above the fork");
    assert_synced(dir.path(), chain(), "moved");
    let stored = assert_index_is_true(dir.path(), "moved");
    assert_eq!(stored.len(), tip() + 1 + tip() - 1 - 100, "the blocks of the other branch stay");
}

/// The connected blocks leave the chain with the better branch, and come back as its first block is invalid.
/// If they were downloaded again, they would lose their undo data, and bitcoind would not start.
#[test]
fn connected_blocks_that_come_back_are_not_downloaded_again() {
    let (long, mut main) = long();
    main.truncate(303);
    let evil = branch_of(main.clone(), 300, |block| sibling(block, 1, wrong_height));
    main.truncate(302);
    for follow in [false, true] {
        let dir = scratch();
        run(&from(dir.path(), &[&peer_with(&main)]));
        let liar = peer_with(if follow { &main } else { &evil });
        let late = ScriptedPeer::start(&serving(&main), Fault::LateHeaders);
        let options = SyncOptions { follow, ..from(dir.path(), &[&liar, &late]) };
        let (report, _) = run_while(&options, |seen| {
            if follow {
                seen.wait_for_tip();
                liar.serve(&serving(&evil));
            }
            wait_until("the invalid block", || seen.has_invalid(&evil[301]));
            // At the tip, the run does not wait for the late headers.
            thread::sleep(Duration::from_secs(u64::from(follow)));
        });
        assert_eq!((report.height, late.asked().len()), (Height(301), 0), "follow: {follow}");
        assert_synced_to(301, dir.path(), &long, "the blocks came back");
    }
}

/// They come back while a third peer keeps the run waiting for headers. What an interrupt saves has them too.
#[test]
fn connected_blocks_that_come_back_among_the_headers_stay_in_the_index() {
    let (long, main) = long();
    let other = branch_of(main[..303].to_vec(), 300, |block| sibling(block, 1, |_| ()));
    let dir = scratch();
    run(&from(dir.path(), &[&peer_with(&main[..302])]));
    let peers = [(&other[..], Fault::None), (&main[..305], Fault::LateHeaders), (&main[..], Fault::Mute)]
        .map(|(blocks, fault)| ScriptedPeer::start(&serving(blocks), fault));
    let begun = Instant::now();
    interrupt_when(&from(dir.path(), &peers.each_ref()), || begun.elapsed() >= Duration::from_secs(2));
    assert_eq!(peers.each_ref().map(|peer| peer.asked().len()), [0; 3], "no block is asked for yet");
    assert_eq!(index(dir.path()).entries.len(), 1 + 304, "the headers have come");
    assert_synced_to(301, dir.path(), &long, "the blocks came back");
}

pub fn wrong_height(block: &mut Block) {
    block.txdata[0].input[0].script_sig = Builder::new().push_int(77).push_slice([1; 4]).into_script();
}

/// The branch of a miner that breaks a rule: one more block than the honest peer has.
fn evil() -> Vec<GeneratedBlock> {
    branch_of(main_to(tip()), tip() - 2, |block| match block.height as usize == tip() - 1 {
        true => sibling(block, 1, wrong_height),
        false => block.clone(),
    })
}

/// Asserts that a report warns of this block alone, with Core's reject string.
fn assert_invalid(report: &SyncReport, block: &GeneratedBlock, core: &str) {
    let invalid = invalid_blocks(report);
    let is_it = |(hash, error): &(BlockHash, String)| *hash == block.hash && error.contains(core);
    assert!(invalid.len() == 1 && invalid.iter().all(is_it), "{invalid:?}");
}

#[test]
fn an_invalid_block_is_named_and_the_next_best_branch_is_taken() {
    let (dir, evil) = (scratch(), evil());
    let honest = peer_with(&main_to(tip() - 1));
    let liar = peer_with(&evil);
    let (report, seen) = run(&from(dir.path(), &[&honest, &liar]));
    assert_invalid(&report, &evil[tip() - 1], "bad-cb-height");
    assert_synced_to(TIP - 1, dir.path(), chain(), "the honest branch");
    assert_eq!(seen.reasons(&honest), [] as [&str; 0]);
    // Unless the run ends before the liar has repeated its headers.
    let reasons = seen.reasons(&liar);
    assert!(reasons.iter().all(|it| it == "headers: the headers break a consensus rule"), "{reasons:?}");
    let failed: Vec<_> = index(dir.path()).entries.into_iter().filter(|it| it.status.is_failed()).collect();
    let marked = failed.iter().map(|entry| entry.hash).collect::<BTreeSet<_>>();
    assert_eq!(marked, evil[tip() - 1..].iter().map(|block| block.hash).collect(), "with what follows it");
    // The next run knows the block, and asks nobody for it.
    let asked = liar.asked().len();
    let (report, _) = run(&from(dir.path(), &[&honest, &liar]));
    assert_eq!((invalid_blocks(&report).len(), liar.asked().len()), (0, asked));
    assert!(report.rebuild.is_none());
    assert_synced_to(TIP - 1, dir.path(), chain(), "the honest branch again");
}

/// Only connecting the block shows that it is invalid, and the chainstate is too near for a rebuild.
#[test]
fn an_invalid_block_above_the_chainstate_is_left_out_with_a_warning() {
    let (dir, below) = (scratch(), tip() - 1);
    let greedy = greedy_branch(below, tip(), tip(), 1);
    run(&from(dir.path(), &[&peer_with(&main_to(below))]));
    let (report, _) = run(&from(dir.path(), &[&peer_with(&greedy)]));
    assert_invalid(&report, &greedy[tip()], "bad-cb-amount");
    assert!(report.rebuild.is_none());
    assert_eq!(report.chainstate_height, Some(Height(below as u32)));
    assert_synced_to(below as u32, dir.path(), chain(), "below the invalid block");
}

/// Two branches of several batches of headers each, from different peers.
#[test]
fn competing_header_chains_of_several_batches_end_with_the_longer_one() {
    let spec = ChainSpec { blocks: Some(5), empty_tail: 4_300, stale: false, ..ChainSpec::new(4, 2_000) };
    let longer = Chain::generate(&spec);
    let shorter = branch_of(longer.main().take(4_200).cloned().collect(), 2, |block| match block.height {
        3 => sibling(block, 1, |_| {}),
        _ => block.clone(),
    });
    let (short, long) = (serving(&shorter), serving(longer.main()));
    for order in [[&short, &long, &short], [&long, &short, &long], [&short, &short, &long]] {
        let (dir, peers) = (scratch(), order.map(|chain| ScriptedPeer::start(chain, Fault::None)));
        let options = SyncOptions { blocks_only: true, ..from_to(dir.path(), &peers.each_ref(), 3) };
        let (report, seen) = run(&options);
        assert_eq!(report.header_height, Height(longer.tip().height));
        assert!(peers.iter().all(|peer| seen.reasons(peer).is_empty()));
        assert!(index(dir.path()).entries.iter().any(|entry| entry.hash == longer.tip().hash));
        let advice = diagnosed(dir.path(), false).advice;
        assert_eq!(advice, Advice::Sync, "a download that was not completed");
    }
    // Slow peers with the longer one were not waited for while what had come of it had less work.
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let (dir, first) = (scratch(), ScriptedPeer::start(&short, Fault::None));
    let slow = ScriptedPeer::start(&long, Fault::LateHeaders);
    let options = SyncOptions { blocks_only: true, ..from_to(dir.path(), &[&first, &slow], 3) };
    let (report, _) = run(&changed(options, |it| it.chain.hooks.now = || *START + START.elapsed() * 5));
    assert_eq!(report.header_height, Height(longer.tip().height));
}

/// Peers could delay the first block for hours, with a branch that takes no work.
#[test]
fn a_branch_that_never_becomes_the_chain_delays_the_blocks_by_a_minute() {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let headers = |count: u32, salt: u8| {
        let genesis = &chain().blocks[0];
        let (mut prev, mut time) = (genesis.hash, genesis.header.time);
        let mined = (0..count).map(|_| {
            time.0 += 1;
            let mut header = Header { version: 4, prev, merkle_root: [salt; 32], time, bits: BITS, nonce: 0 };
            prev = mine(&mut header, has_work);
            header.to_bytes().to_vec()
        });
        Arc::new(ServedChain::new([genesis.bytes.clone()].into_iter().chain(mined).collect()))
    };
    let (dir, honest) = (scratch(), ScriptedPeer::start(&headers(80_001, 1), Fault::None));
    // Each of its 40 batches takes 4.2 seconds of the clock.
    let slow = ScriptedPeer::start(&headers(80_000, 2), Fault::LateHeaders);
    let options = from_to(dir.path(), &[&honest, &slow], 0);
    let (report, _) = run(&changed(options, |it| it.chain.hooks.now = || *START + START.elapsed() * 14));
    assert_eq!((report.header_height, report.height), (Height(80_001), Height(0)));
    assert!(slow.headers_asked() < 30, "{}", slow.headers_asked());
}

/// Two transactions whose hashes, one after the other, are a transaction of 64 bytes: a block with that one
/// alone has the same merkle root, and so the same hash.
fn merkle_nodes() -> (ServedChain, ServedChain) {
    let genesis = &chain().blocks[0];
    let made = |extra: u64| coinbase(1, extra, vec![paying(0, Builder::new().push_int(1).into_script())]);
    let txid = |tx: &Transaction| tx.compute_txid().to_byte_array();
    // One input: the fifth byte.
    let first = (0..).map(made).find(|tx| txid(tx)[4] == 1).unwrap();
    let mut second = made(0);
    second.input[0].previous_output = bitcoin::OutPoint::new(bitcoin::Txid::from_byte_array([9; 32]), 0);
    second.lock_time = bitcoin::absolute::LockTime::from_consensus(SECOND_LOCK_TIME);
    let nodes = [txid(&first), txid(&second)].concat();
    assert!(consensus::deserialize::<Transaction>(&nodes).is_ok(), "search for another lock time");
    let mut header = Header {
        version: 4,
        prev: genesis.hash,
        merkle_root: digest::sha256::sha256d(&nodes),
        time: BlockTime(genesis.header.time.0 + 600),
        bits: BITS,
        nonce: 0,
    };
    mine(&mut header, has_work);
    let block = |txs: &[&[u8]]| [&header.to_bytes()[..], &[txs.len() as u8], &txs.concat()].concat();
    let honest = block(&[&consensus::serialize(&first), &consensus::serialize(&second)]);
    let chain = |block| ServedChain::new(vec![genesis.bytes.clone(), block]);
    (chain(honest), chain(block(&[&nodes])))
}

/// Found by trying.
const SECOND_LOCK_TIME: u32 = 983_617;

#[test]
fn a_block_of_merkle_nodes_costs_the_peer_and_not_the_block() {
    let (honest, nodes) = merkle_nodes();
    assert_eq!(honest.hashes, nodes.hashes);
    let dir = scratch();
    let [honest, liar] = [honest, nodes].map(|chain| ScriptedPeer::start(&Arc::new(chain), Fault::None));
    let options = |peers: &[&ScriptedPeer]| SyncOptions { blocks_only: true, ..from(dir.path(), peers) };
    // The honest one waits until the other is closed.
    honest.hold_at(0);
    let (report, seen) = run_while(&options(&[&liar, &honest]), |seen| {
        wait_until("closed", || !seen.reasons(&liar).is_empty());
        honest.hold_at(usize::MAX);
    });
    assert_eq!(seen.reasons(&liar), ["sent a block with changed contents"]);
    assert_eq!((report.height, invalid_blocks(&report).len()), (Height(1), 0));
    assert_eq!(assert_index_is_true(dir.path(), "merkle nodes").len(), 2);
}

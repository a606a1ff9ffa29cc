//! Tests of the header chain with regtest headers.

use super::*;
use std::collections::BTreeSet;
use testkit::block;
use wire::Network;

const NOW: BlockTime = BlockTime(1_700_000_000);

/// A chain of regtest headers above `parent`, each found by trying nonces.
fn mine(parent: (BlockHash, BlockTime), count: u32, salt: u8) -> (Vec<Header>, Vec<BlockHash>) {
    let params = ChainParams::of(Network::Regtest);
    let ((mut prev, mut time), merkle_root) = (parent, [salt; 32]);
    let mined = (0..count).map(|_| {
        time = BlockTime(time.0 + 1);
        let mut header = Header { version: 4, prev, merkle_root, time, nonce: 0, ..params.genesis };
        prev = block::mine(&mut header, block::has_work);
        (header, prev)
    });
    mined.unzip()
}

/// A chain of the genesis block alone; headers and hashes of so many blocks above it.
fn mined(count: u32) -> (HeaderChain, Vec<Header>, Vec<BlockHash>) {
    let params = ChainParams::of(Network::Regtest);
    let (headers, hashes) = mine((params.genesis_hash, params.genesis.time), count, 1);
    (HeaderChain::new(params), headers, hashes)
}

/// The same, where the chain has them.
fn grown(count: u32) -> (HeaderChain, Vec<Header>, Vec<BlockHash>) {
    let (mut chain, headers, hashes) = mined(count);
    chain.add(0, chain.tip, &headers, &hashes, NOW).unwrap();
    (chain, headers, hashes)
}

#[test]
fn the_chain_with_the_most_work_wins_and_known_headers_are_not_new() {
    let (mut chain, first, first_hashes) = mined(5);
    let (genesis, time) = (chain.tip, chain.headers[0].time);
    let added = chain.add(0, genesis, &first, &first_hashes, NOW).unwrap();
    let all = AddedHeaders { new: 5, height: Height(5), shared: Height(5), fork: None, from_future: None };
    assert_eq!((added, chain.tip_height()), (all, Height(5)));
    assert_eq!(chain.add(0, genesis, &first, &first_hashes, NOW).unwrap().new, 0);
    assert_eq!(chain.hash(Height(3)), Some(first_hashes[2]));

    // Another branch above block 2: as long, then longer.
    let (other, other_hashes) = mine((first_hashes[1], first[1].time), 4, 2);
    let added = chain.add(0, first_hashes[1], &other[..3], &other_hashes[..3], NOW).unwrap();
    assert_eq!(added, AddedHeaders { new: 3, height: Height(5), shared: Height(2), ..all });
    assert_eq!(chain.hash(Height(5)), Some(first_hashes[4]), "the first one stays");
    let added = chain.add(0, other_hashes[2], &other[3..], &other_hashes[3..], NOW).unwrap();
    let expected =
        AddedHeaders { new: 1, height: Height(6), shared: Height(6), fork: Some(Height(2)), ..all };
    assert_eq!(added, expected);
    let hashes: Vec<_> = (0..=6).filter_map(|height| chain.hash(Height(height))).collect();
    assert_eq!(hashes, [&[genesis], &first_hashes[..2], &other_hashes].concat());
    let work = (0..7).fold(U256::ZERO, |sum, _| sum.wrapping_add(rules::work(first[0].bits)));
    assert_eq!(chain.work, work);
    let times: Vec<_> = [time, first[0].time, first[1].time].to_vec();
    assert_eq!(chain.median_time_before(Height(3)), median_time_past(&times));
}

#[test]
fn wrong_headers_are_refused_and_change_nothing() {
    let (mut chain, headers, hashes) = mined(3);
    let refused = chain.add(0, hashes[0], &headers[1..], &hashes[1..], NOW).unwrap_err();
    assert!(matches!(refused, RefusedHeaders::Unconnected));
    let mut early = headers.clone();
    early[2].time = BlockTime(chain.headers[0].time.0 - 1);
    let early_hashes: Vec<_> = early.iter().map(Header::hash).collect();
    let refused = chain.add(0, chain.tip, &early, &early_hashes, NOW).unwrap_err();
    assert!(matches!(refused, RefusedHeaders::Invalid), "{refused:?}");
    assert_eq!(chain.tip_height(), Height(0));
}

/// All headers of a message were dropped once, because of the last ones.
#[test]
fn headers_before_one_from_the_future_are_kept() {
    let (mut chain, headers, hashes) = mined(5);
    let (genesis, time) = (chain.tip, chain.headers[0].time);
    for (clock, new) in [(0, 0), (2, 2), (2, 0), (5, 3)] {
        let now = BlockTime(time.0 + clock - 7_200);
        let added = chain.add(0, genesis, &headers, &hashes, now).unwrap();
        let next = headers.get(clock as usize).map(|header| header.time);
        assert_eq!((added.new, added.from_future), (new, next), "{clock}");
        assert_eq!((added.height, chain.tip_height()), (Height(clock), Height(clock)));
    }
}

/// It once removed the branch: its peers had to send that again.
#[test]
fn a_bad_header_does_not_lose_the_branch_that_it_follows() {
    let (mut chain, main, hashes) = grown(6);
    let (other, others) = mine((hashes[1], main[1].time), 7, 2);
    chain.add(0, hashes[1], &other[..4], &others[..4], NOW).unwrap();
    for (parent, time) in [(3, 1), (3, NOW.0 + 9_000), (1, 1), (1, NOW.0 + 9_000)] {
        let (mut bad, _) = mine((others[parent], other[parent].time), 1, 3);
        bad[0].time = BlockTime(time);
        let hash = block::mine(&mut bad[0], block::has_work);
        let added = chain.add(0, others[parent], &bad, &[hash], NOW);
        assert_eq!(added.is_ok_and(|added| added.new == 0), time > 1, "{parent}");
    }
    let added = chain.add(0, others[3], &other[4..], &others[4..], NOW).unwrap();
    assert_eq!((added.height, added.fork), (Height(9), Some(Height(2))));
}

/// It once cut the branch back, so that what its peer sent next was refused.
#[test]
fn a_second_copy_of_the_beginning_of_a_branch_changes_nothing() {
    let (mut chain, main, hashes) = grown(6);
    let (other, others) = mine((hashes[1], main[1].time), 7, 2);
    // The last copy begins below the fork.
    let (across, hashes_across) = ([&main[1..2], &other].concat(), [&hashes[1..2], &others].concat());
    for (parent, headers, copied, len, new) in
        [(1, &other, &others, 4, 4), (1, &other, &others, 2, 0), (0, &across, &hashes_across, 3, 0)]
    {
        let added = chain.add(0, hashes[parent], &headers[..len], &copied[..len], NOW).unwrap();
        let height = Height((parent + 1 + len) as u32);
        assert_eq!((added.new, added.height, added.shared), (new, height, Height(2)), "{len} headers");
    }
    let added = chain.add(0, others[3], &other[4..], &others[4..], NOW).unwrap();
    assert_eq!((added.height, added.fork), (Height(9), Some(Height(2))));
}

/// One header of another peer displaced a branch of thousands, and what followed there did not connect.
#[test]
fn no_peer_displaces_the_branch_of_another() {
    let (mut chain, main, hashes) = grown(6);
    let (other, others) = mine((hashes[1], main[1].time), 7, 2);
    chain.add(1, hashes[1], &other[..3], &others[..3], NOW).unwrap();
    let (short, of_short) = mine((hashes[0], main[0].time), 2, 3);
    chain.add(2, hashes[0], &short[..1], &of_short[..1], NOW).unwrap();
    let added = chain.add(1, others[2], &other[3..], &others[3..], NOW).unwrap();
    assert_eq!((added.new, added.height, added.fork), (4, Height(9), Some(Height(2))));
    let next = |chain: &mut HeaderChain| chain.add(2, of_short[0], &short[1..], &of_short[1..], NOW);
    assert!(next(&mut chain).is_ok_and(|added| added.height == Height(3)));
    chain.forget_branch(2);
    let gone = next(&mut chain);
    assert!(matches!(gone, Err(RefusedHeaders::Unconnected)), "{gone:?}");
}

/// A branch of another peer, but not the one that grows.
#[test]
fn of_branches_that_are_too_long_together_the_longest_is_forgotten() {
    let (mut chain, main, hashes) = grown(3);
    let (other, others) = mine((hashes[0], main[0].time), 1, 2);
    let work = chain.work;
    let long = |len| Branch { fork: Height(0), headers: main[..1].repeat(len), tip: hashes[0], work };
    let kept = |chain: &HeaderChain| chain.branches.keys().copied().collect::<BTreeSet<u64>>();
    chain.branches.extend([(1, long(400_000)), (2, long(500_000)), (3, long(100_000))]);
    chain.add(4, hashes[0], &other, &others, NOW).unwrap();
    assert_eq!(kept(&chain), BTreeSet::from([1, 3, 4]));
    chain.branches.insert(2, long(500_000));
    chain.limit_branches(2);
    assert_eq!(kept(&chain), BTreeSet::from([2, 3, 4]));
}

/// Its headers were once added above another block of the same height.
#[test]
fn a_branch_above_a_block_that_the_chain_has_lost_is_forgotten() {
    let (mut chain, first, hashes) = grown(6);
    let (branch, of_branch) = mine((hashes[3], first[3].time), 5, 2);
    chain.add(0, hashes[3], &branch[..1], &of_branch[..1], NOW).unwrap();
    let (better, of_better) = mine((hashes[1], first[1].time), 5, 3);
    assert_eq!(chain.add(0, hashes[1], &better, &of_better, NOW).unwrap().fork, Some(Height(2)));
    let above = chain.add(0, of_branch[0], &branch[1..], &of_branch[1..], NOW);
    assert!(matches!(above, Err(RefusedHeaders::Unconnected)), "{above:?}");
    let found: Vec<_> = (3..=7).filter_map(|height| chain.hash(Height(height))).collect();
    assert_eq!((found, chain.tip_height()), (of_better, Height(7)));
}

/// It kept its old fork: a reorganisation to it lost blocks that both have.
#[test]
fn a_branch_whose_first_blocks_are_in_the_chain_now_is_sent_again() {
    let (mut chain, main, hashes) = grown(6);
    let (other, others) = mine((hashes[1], main[1].time), 5, 2);
    let (third, thirds) = mine((others[1], other[1].time), 4, 3);
    chain.add(1, hashes[1], &other[..2], &others[..2], NOW).unwrap();
    chain.add(1, others[1], &third[..1], &thirds[..1], NOW).unwrap();
    assert_eq!(chain.add(2, hashes[1], &other, &others, NOW).unwrap().fork, Some(Height(2)));
    let above = chain.add(1, thirds[0], &third[1..], &thirds[1..], NOW);
    assert!(matches!(above, Err(RefusedHeaders::Unconnected)), "{above:?}");
    let added = chain.add(1, others[1], &third, &thirds, NOW).unwrap();
    assert_eq!((added.new, added.height, added.fork), (4, Height(8), Some(Height(4))));
}

#[test]
fn heights_are_found_in_what_the_chain_is_now() {
    let (mut chain, _, hashes) = grown(40);
    for tip in [40, 29, 5] {
        chain.truncate(Height(tip));
        let found: Vec<_> = hashes.iter().filter_map(|hash| chain.height_of(hash)).collect();
        assert_eq!(found, (1..=tip).map(Height).collect::<Vec<_>>());
    }
    let again = HeaderChain::of_validated(chain.params, chain.headers, chain.tip);
    let found = [again.params.genesis_hash, hashes[2]].map(|hash| again.height_of(&hash));
    assert_eq!(found, [Some(Height(0)), Some(Height(3))]);
}

/// Only one was kept beside the chain: blocks above the others were left out.
#[test]
fn of_many_branches_that_were_found_that_with_the_most_valid_work_is_taken() {
    let (chain, main, hashes) = grown(6);
    let branch = |at: usize, count, salt| mine((hashes[at], main[at].time), count, salt);
    let branches = [branch(4, 2, 2), branch(2, 6, 3), branch(3, 4, 4), branch(5, 1, 5)];
    let found = branches.iter().flat_map(|(headers, hashes)| headers.iter().copied().zip(hashes.clone()));
    let found: Vec<_> = found.collect();
    let mut bad = branch(1, 9, 6);
    bad.0[3].time = BlockTime(1);
    // It has more work, but only as far as below the header that breaks a rule.
    for is_beside_bad in [false, true] {
        let mut chain = HeaderChain::of_validated(chain.params, chain.headers.clone(), chain.tip);
        let mut found = found.clone();
        found.extend(bad.0.iter().copied().zip(bad.1.clone()).filter(|_| is_beside_bad));
        assert_eq!(chain.add_found(&mut found, NOW), Height(3), "{is_beside_bad}");
        assert_eq!((chain.tip_height(), chain.tip), (Height(9), branches[1].1[5]));
    }
}

/// One that no peer has comes back once that is forgotten; an invalid one never.
#[test]
fn an_invalid_or_withheld_block_and_what_follows_it_do_not_come_back() {
    for is_invalid in [true, false] {
        let (mut chain, headers, hashes) = grown(4);
        let refuse = if is_invalid { HeaderChain::invalidate } else { HeaderChain::set_aside };
        refuse(&mut chain, Height(3));
        assert_eq!((chain.tip_height(), chain.hash(Height(2))), (Height(2), Some(hashes[1])));
        assert_eq!(chain.is_invalid(&hashes[2]), is_invalid);
        let again = |chain: &mut HeaderChain| chain.add(0, hashes[1], &headers[2..], &hashes[2..], NOW);
        let refused = again(&mut chain).unwrap_err();
        assert_eq!(matches!(refused, RefusedHeaders::KnownInvalid), is_invalid);
        assert_eq!(matches!(refused, RefusedHeaders::Withheld), !is_invalid);
        let (other, other_hashes) = mine((hashes[1], headers[1].time), 1, 9);
        let added = chain.add(0, hashes[1], &other, &other_hashes, NOW).unwrap();
        assert_eq!((added.new, added.height), (1, Height(3)));
        chain.forget_withheld();
        assert_eq!(again(&mut chain).is_ok_and(|added| added.height == Height(4)), !is_invalid);
    }
}

#[test]
fn blocks_that_an_index_marks_as_invalid_are_refused() {
    let (mut chain, headers, hashes) = mined(2);
    chain.note_marked(hashes[1], Height(2));
    let refused = chain.add(0, chain.tip, &headers, &hashes, NOW).unwrap_err();
    assert!(matches!(refused, RefusedHeaders::Marked(hash, Height(2)) if hash == hashes[1]));
    let (before, _) = chain.first_refused(chain.tip, &hashes).unwrap();
    assert_eq!(before, 1, "the first block is not marked");
}

#[test]
fn the_genesis_block_alone_has_not_the_minimum_work() {
    assert!(!HeaderChain::new(ChainParams::of(Network::Main)).has_minimum_work());
    assert!(mined(0).0.has_minimum_work(), "that of regtest is 0");
}

#[test]
fn there_cannot_be_more_headers_than_the_time_allows() {
    let params = ChainParams::of(Network::Main);
    let chain = HeaderChain::new(params);
    let years = |years: u32| BlockTime(params.genesis.time.0 + years * 31_557_600);
    assert!((600_000..700_000).contains(&chain.most_headers(years(10))));
    let test = HeaderChain::new(ChainParams::of(Network::Test));
    assert!(test.most_headers(years(12)) > 4_000_000);
}

/// All honest peers were closed, as if they had sent more headers than there can be.
#[test]
fn with_a_clock_that_is_years_behind_the_next_header_is_from_the_future() {
    let regtest = ChainParams::of(Network::Regtest).clone();
    let changing = ChainParams { no_retargeting: false, allow_min_difficulty_blocks: false, ..regtest };
    let params: &ChainParams = Box::leak(Box::new(changing));
    let (genesis, now) = (params.genesis, params.genesis.time);
    let (headers, hashes) = mine((params.genesis_hash, BlockTime(now.0 + 31_557_600)), 2_601, 1);
    let (tip, below) = (hashes[2_599], [&[genesis][..], &headers[..2_600]].concat());
    let mut chain = HeaderChain::of_validated(params, below, tip);
    let added = chain.add(0, tip, &headers[2_600..], &hashes[2_600..], now).unwrap();
    assert_eq!((added.new, added.from_future), (0, Some(headers[2_600].time)));
}

//! Tests of the questions for spent coins.

use super::*;
use crate::address::{Host, PeerAddress};

const FORM: SpentCoinsForm = SpentCoinsForm::Draft;

fn hash(number: u8) -> BlockHash {
    BlockHash([number; 32])
}

fn target(number: u64) -> Target {
    Target::Address(PeerAddress { host: Host::V4([1, 2, 3, number as u8].into()), port: 8333 })
}

fn block(peer: u64, number: u8) -> HeldBlock {
    HeldBlock { peer: PeerId(peer), height: number.into(), hash: hash(number), bytes: vec![number; 100] }
}

fn coins(number: u8) -> Vec<u8> {
    [&hash(number).0[..], &[0]].concat()
}

/// Peers 0 and 1 offer coins. Of peer 0, those of blocks 1 to 3 are asked, with the pings 10 and 11.
fn asked() -> (SpentCoins, Instant) {
    let mut spent = SpentCoins::new(250);
    for peer in [0, 1] {
        spent.add_peer(PeerId(peer), &target(peer), FORM);
    }
    assert!(spent.ask(PeerId(0), &[hash(1)], 9).is_none(), "they are not wanted");
    spent.set_wanted(true);
    assert_eq!(spent.ask(PeerId(0), &[1, 2].map(hash), 10), Some((FORM, [1, 2].map(hash).to_vec())));
    let new = spent.ask(PeerId(0), &[2, 3].map(hash), 11);
    assert_eq!(new, Some((FORM, vec![hash(3)])), "once each");
    assert!(spent.ask(PeerId(7), &[hash(9)], 12).is_none(), "it does not offer them");
    (spent, Instant::now())
}

/// The numbers of blocks, and whether coins came with them.
fn handed(blocks: impl IntoIterator<Item = Handed>) -> Vec<(u32, bool)> {
    let mut found: Vec<_> =
        blocks.into_iter().map(|(block, coins)| (block.height, coins.is_some())).collect();
    found.sort_unstable();
    found
}

#[test]
fn a_block_waits_for_its_coins_but_they_do_not_wait_for_it() {
    let (mut spent, now) = asked();
    assert!(spent.block(block(0, 1), now).is_none());
    let Answer::Complete(held, sent) = spent.coins(PeerId(0), FORM, coins(1)) else { panic!("complete") };
    assert_eq!((held.height, sent.bytes, sent.target), (1, coins(1), target(0)));
    assert!(spent.block(block(5, 2), now).is_none(), "another peer has sent the block");
    assert!(matches!(spent.coins(PeerId(0), FORM, coins(2)), Answer::Complete(..)));
    assert!(matches!(spent.coins(PeerId(0), FORM, coins(3)), Answer::Unused(33)), "before the block");
    assert_eq!(handed(spent.block(block(0, 3), now)), [(3, false)]);
    assert_eq!(handed(spent.block(block(0, 9), now)), [(9, false)], "not asked for");
    assert_eq!(spent.held_bytes, 0);
}

#[test]
fn only_what_was_asked_is_taken() {
    let (mut spent, now) = asked();
    assert!(matches!(spent.coins(PeerId(7), FORM, coins(1)), Answer::Unused(33)), "it has no offer");
    for (peer, form, bytes) in [
        (1, FORM, coins(1)),
        (0, SpentCoinsForm::Reference, coins(1)),
        (0, FORM, coins(4)),
        (0, FORM, vec![1; 31]),
    ] {
        let len = bytes.len();
        let answer = spent.coins(PeerId(peer), form, bytes);
        assert!(matches!(answer, Answer::Unrequested(found) if found == len), "{answer:?}");
    }
    assert!(spent.block(block(0, 1), now).is_none());
    assert!(matches!(spent.coins(PeerId(0), FORM, coins(1)), Answer::Complete(..)));
    assert!(matches!(spent.coins(PeerId(0), FORM, coins(1)), Answer::Unrequested(33)), "twice");
}

#[test]
fn a_pong_without_coins_is_a_no() {
    let (mut spent, now) = asked();
    assert!(spent.block(block(0, 1), now).is_none() && spent.block(block(5, 3), now).is_none());
    let (blocks, is_faulty) = spent.pong(PeerId(1), 99);
    assert!(blocks.is_empty() && !is_faulty, "another peer's");
    let (blocks, is_faulty) = spent.pong(PeerId(0), 10);
    assert_eq!((handed(blocks), is_faulty), (vec![(1, false)], true));
    assert_eq!(handed(spent.block(block(5, 2), now)), [(2, false)], "the question is over");
    let (blocks, is_faulty) = spent.pong(PeerId(0), 11);
    assert_eq!((handed(blocks), is_faulty), (vec![(3, false)], false), "it may not have that block");
    assert_eq!((spent.held_bytes, spent.questions.len()), (0, 0));
}

#[test]
fn blocks_that_the_chain_has_lost_are_held_no_longer() {
    let (mut spent, now) = asked();
    assert!(spent.block(block(0, 1), now).is_none() && spent.block(block(0, 2), now).is_none());
    assert_eq!(handed(spent.truncate(2)), [(2, false)]);
    assert_eq!(handed(spent.block(block(5, 2), now)), [], "the chain has come back");
    assert_eq!(spent.held_bytes, 200, "the block below, and that which was asked for again");
}

#[test]
fn a_silent_peer_is_late_and_asked_no_more() {
    let (mut spent, now) = asked();
    assert!(spent.block(block(0, 1), now).is_none());
    assert_eq!((spent.late(now + PATIENCE / 2), spent.late(now + PATIENCE)), (None, Some(PeerId(0))));
    assert_eq!(spent.refuse(PeerId(0)), Some(target(0)));
    assert_eq!((handed(spent.forget(PeerId(0))), spent.held_bytes), (vec![(1, false)], 0));
    assert!(matches!(spent.coins(PeerId(0), FORM, coins(2)), Answer::Unused(33)), "it came late");
    spent.add_peer(PeerId(8), &target(0), FORM);
    assert!(spent.ask(PeerId(8), &[hash(1)], 13).is_none(), "the same peer again");
    assert_eq!(spent.other_peer(&hash(1)), Some(PeerId(1)));
    spent.ask(PeerId(1), &[hash(5)], 14);
    assert!(spent.block(block(1, 5), now).is_none());
    assert_eq!(handed(spent.refuse_target(&target(1))), [(5, false)], "it would wait for ever");
    assert_eq!((spent.other_peer(&hash(1)), spent.late(now + 2 * PATIENCE)), (None, None));
}

#[test]
fn blocks_that_wait_are_bounded() {
    let (mut spent, now) = asked();
    assert!(spent.block(block(0, 1), now).is_none() && spent.block(block(0, 2), now).is_none());
    assert_eq!(handed(spent.block(block(0, 3), now)), [(3, false)], "there is no space");
    assert!(matches!(spent.coins(PeerId(0), FORM, coins(3)), Answer::Unused(33)));
    assert!(matches!(spent.coins(PeerId(0), FORM, coins(2)), Answer::Complete(..)));
    let large = HeldBlock { bytes: vec![0; 1_000], ..block(0, 4) };
    assert!(matches!(spent.coins(PeerId(0), FORM, coins(1)), Answer::Complete(..)));
    spent.ask(PeerId(0), &[hash(4)], 12);
    assert!(spent.block(large, now).is_none(), "one block always fits");
}

#[test]
fn another_peer_is_asked_for_the_coins_of_a_few_blocks() {
    let (mut spent, _) = asked();
    assert_eq!(spent.other_peer(&hash(1)), None, "they were asked for");
    for number in 20..20 + MAX_ASKED_OF_OTHERS as u8 {
        assert!(spent.other_peer(&hash(number)).is_some());
        spent.ask(PeerId(1), &[hash(number)], number.into());
    }
    for number in 50..50 + MAX_ASKED_OF_OTHERS as u8 {
        spent.ask(PeerId(0), &[hash(number)], number.into());
    }
    assert_eq!(spent.other_peer(&hash(99)), None);
}

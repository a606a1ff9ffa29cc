//! Tests of the download with one peer or two: what it says of blocks, and branches that are left. What many
//! peers and faulty ones do to it is simulated: `tests/net/simulation.rs`.

use super::*;

const MS: Duration = Duration::from_millis(1);

fn hash_at(height: u32) -> BlockHash {
    let mut hash = [1; 32];
    hash[..4].copy_from_slice(&height.to_le_bytes());
    BlockHash(hash)
}

/// Gives a download a chain of which all blocks from `fork` on differ from those of [`hash_at`].
fn other_hash(height: u32) -> BlockHash {
    let mut hash = hash_at(height);
    hash.0[31] = 9;
    hash
}

/// A peer that is asked for all blocks of a short chain.
fn one_peer(blocks: u32) -> (Download, Instant) {
    let now = Instant::now();
    let sizes = SizeEstimate::new(wire::Network::Regtest);
    let mut download = Download::new(0, sizes, DownloadOptions::default());
    let group = |at| crate::address::Host::V4([at, 1, 1, 1].into()).group();
    download.add_peer(PeerId(0), group(1), 100, MS * 10);
    download.extend((0..blocks).map(hash_at), true);
    (download, now)
}

/// Hashes and marker of the only request.
fn only_request(download: &mut Download, now: Instant) -> (Vec<BlockHash>, u64) {
    let actions = download.poll(now, false);
    let [Action::Request { hashes, marker, .. }] = &actions[..] else { panic!("{actions:?}") };
    (hashes.clone(), *marker)
}

#[test]
fn several_peers_are_asked_for_few_blocks_each_until_many_have_come() {
    let (mut download, now) = one_peer(2_000);
    let group = crate::address::Host::V4([2, 1, 1, 1].into()).group();
    download.add_peer(PeerId(1), group, 2_000, MS * 10);
    download.raise_height(PeerId(0), 2_000);
    let (mut came, mut most) = (0, Vec::new());
    for round in 1..=40 {
        let actions = download.poll(now + MS * 20 * round, false);
        let mut largest = 0;
        for action in actions {
            let Action::Request { peer, hashes, marker } = action else { panic!("{action:?}") };
            largest = largest.max(hashes.len());
            for hash in hashes {
                download.received_bytes(peer, 250, now + MS * (20 * round + 10));
                download.received_block(peer, hash, 250, now + MS * (20 * round + 10));
                came += 1;
            }
            download.received_pong(peer, marker, now + MS * (20 * round + 10));
        }
        most.push((came, largest));
    }
    assert!(most.iter().all(|&(came, largest)| largest <= (came / 8).max(4)), "{most:?}");
    assert!(came == 2_000 && most.iter().any(|&(_, largest)| largest > 60), "it grows: {most:?}");
}

/// Nobody is asked for what headers have shown that it does not have.
#[test]
fn a_block_that_is_in_no_peers_chain_is_not_asked_for_and_withheld_after_half_a_minute() {
    let (mut download, now) = one_peer(10);
    download.set_shared(PeerId(0), Some(4));
    while download.lowest_height() < 5 {
        let (hashes, marker) = only_request(&mut download, now);
        for (hash, height) in hashes.into_iter().zip(download.lowest_height()..) {
            assert!(height < 5 && hash == hash_at(height));
            download.received_block(PeerId(0), hash, 250, now + MS);
            download.accept(height, hash);
        }
        download.received_pong(PeerId(0), marker, now + MS);
    }
    for second in 1..=30 {
        assert_eq!(download.poll(now + MS * 1_000 * second, false), []);
        assert_eq!(download.withheld(now + MS * 1_000 * second), None, "{second} s");
    }
    assert_eq!(download.poll(now + MS * 32_000, false), []);
    assert_eq!(download.withheld(now + MS * 32_000), Some(5));
    // The chain has other blocks above height 4, which the peer has.
    download.leave_branch(4, |_| false);
    download.truncate(5);
    download.extend((5..7).map(hash_at), true);
    assert_eq!(only_request(&mut download, now + MS * 33_000).0.len(), 2);
}

#[test]
fn a_block_of_the_branch_that_was_left_says_nothing_of_the_one_at_its_height() {
    let (mut download, now) = one_peer(2);
    let (hashes, marker) = only_request(&mut download, now);
    assert_eq!(hashes, [hash_at(0)]);
    // The chain has other blocks from height 0 on. The old one comes, and the peer lacks the next old one.
    download.truncate(0);
    download.extend((0..2).map(other_hash), true);
    assert_eq!(download.received_block(PeerId(0), hashes[0], 500, now), None);
    assert_eq!(download.totals().duplicate_bytes, 500);
    download.received_pong(PeerId(0), marker, now);
    let (hashes, marker) = only_request(&mut download, now + MS);
    assert_eq!(hashes[0], other_hash(0));
    assert_eq!(download.received_block(PeerId(0), other_hash(0), 500, now + MS), Some(0));
    // What the caller says of the old block at that height is not said of the new one.
    download.accept(0, hash_at(0));
    download.reject(0, hash_at(0));
    assert_eq!((download.lowest_height(), download.peers().count()), (0, 1));
    download.accept(0, other_hash(0));
    assert_eq!(download.lowest_height(), 1);
    download.received_pong(PeerId(0), marker, now + MS);
}

#[test]
fn a_peer_that_lacks_blocks_of_the_branch_that_was_left_is_asked_for_those_of_the_new_one() {
    let (mut download, now) = one_peer(100);
    let (hashes, marker) = only_request(&mut download, now);
    assert_eq!(download.received_block(PeerId(0), hashes[0], 200, now + MS), Some(0));
    download.received_pong(PeerId(0), marker, now + MS);
    let (hashes, marker) = only_request(&mut download, now + MS);
    assert!(hashes.len() > 64, "{} blocks of 200 bytes", hashes.len());
    download.truncate(1);
    download.extend((1..100).map(other_hash), true);
    download.received_pong(PeerId(0), marker, now + MS * 2);
    let (hashes, _) = only_request(&mut download, now + MS * 2);
    assert_eq!(hashes[0], other_hash(1), "it is neither closed nor passed over");
}

#[test]
fn what_is_in_flight_below_a_fork_is_not_asked_for_again() {
    let (mut download, now) = one_peer(100);
    let (hashes, marker) = only_request(&mut download, now);
    assert_eq!(download.received_block(PeerId(0), hashes[0], 200, now + MS), Some(0));
    download.received_pong(PeerId(0), marker, now + MS);
    let (hashes, _) = only_request(&mut download, now + MS);
    download.truncate(50);
    download.extend((50..100).map(other_hash), true);
    for (hash, height) in hashes.into_iter().zip(1..) {
        let arrival = download.received_block(PeerId(0), hash, 200, now + MS * 2);
        assert_eq!(arrival, if height < 50 { Some(height) } else { None });
        assert_eq!(download.totals().duplicate_bytes, 200 * u64::from(height.saturating_sub(49)));
    }
    let (hashes, _) = only_request(&mut download, now + MS * 2);
    assert_eq!(hashes[0], other_hash(50));
}

//! Tests of the download with a simulated network: links with a delay and a rate, peers that stall, lie, die
//! or lack blocks. Time is simulated; each run is repeated by its seed.

mod network;

use super::*;
use network::{Fault, Simulation, Spec};
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

fn honest(round_trip_ms: u64, bytes_per_second: u64) -> Spec {
    Spec { round_trip: MS * round_trip_ms as u32, rate: bytes_per_second, fault: Fault::None }
}

fn with(fault: Fault) -> Spec {
    Spec { round_trip: MS * 50, rate: 1_000_000, fault }
}

fn run(blocks: usize, size: u64, peers: &[Spec], seed: u64) -> Simulation {
    let mut simulation = Simulation::new(blocks, size, DownloadOptions::default(), seed);
    peers.iter().for_each(|spec| simulation.add(*spec));
    simulation.run(Duration::from_secs(3_600));
    simulation
}

#[test]
fn one_peer_is_used_fully_at_any_round_trip() {
    for round_trip in [1, 40, 300] {
        let simulation = run(400, 100_000, &[honest(round_trip, 10_000_000)], 1);
        let ideal = 40_000_000.0 / 10_000_000.0;
        let seconds = simulation.elapsed().as_secs_f64();
        assert!(
            seconds < ideal * 1.1 + 0.01 * round_trip as f64,
            "{round_trip} ms: {seconds:.2} s of {ideal}"
        );
        assert_eq!(simulation.download.totals().duplicate_bytes, 0);
    }
}

#[test]
fn small_blocks_come_in_lots() {
    let simulation = run(20_000, 250, &[honest(100, 2_000_000)], 1);
    let seconds = simulation.elapsed().as_secs_f64();
    assert!(seconds < 2.5 * 1.3 + 1.5, "{seconds:.2} s of 2.5");
    assert!(simulation.largest_request <= MAX_REQUESTED_AT_ONCE);
}

/// The links of the measurement in which bitcoind took 67 s for the last 120 blocks: 100, 20 and 2 Mbit/s.
#[test]
fn slow_peers_hold_nobody_up() {
    let peers = [honest(20, 12_500_000), honest(80, 2_500_000), honest(200, 250_000)];
    for (blocks, size) in [(3_000, 100_000), (120, 900_000)] {
        let simulation = run(blocks, size, &peers, 1);
        let ideal = (blocks as u64 * size) as f64 / 15_250_000.0;
        let seconds = simulation.elapsed().as_secs_f64();
        assert!(seconds < ideal * 1.15 + 0.5, "{blocks} blocks: {seconds:.2} s of {ideal:.2}");
        let totals = simulation.download.totals();
        assert!(totals.duplicate_bytes * 50 <= totals.bytes, "{totals:?}");
    }
}

/// Tiny blocks, of which hundreds are asked for at once, then full ones, and tiny ones again, which slow
/// peers send while full ones are still missing.
#[test]
fn blocks_that_become_larger_or_smaller_do_not_bind_the_download_to_slow_peers() {
    let links = [(1, 30, 10_000_000), (5, 80, 2_500_000), (2, 120, 625_000), (4, 200, 312_500)];
    for seed in 0..20 {
        let mut simulation = Simulation::new(2_750, 1_000_000, DownloadOptions::default(), seed);
        simulation.full = 150..650;
        for (count, round_trip, rate) in links {
            (0..count).for_each(|_| simulation.add(honest(round_trip, rate)));
        }
        simulation.run(Duration::from_secs(3_600));
        let seconds = simulation.elapsed().as_secs_f64();
        assert!(seconds < 500.0 / 25.0 * 1.15, "{seconds:.1} s of 20, seed {seed}");
        let totals = simulation.download.totals();
        assert!(totals.duplicate_bytes * 25 <= totals.bytes, "{totals:?}");
    }
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

#[test]
fn a_stalled_peer_is_closed_and_its_blocks_are_asked_again() {
    let peers = [honest(50, 1_000_000), with(Fault::Stall { after: 5 }), with(Fault::Silent)];
    let simulation = run(600, 50_000, &peers, 1);
    assert_eq!(simulation.closed(1), Some(&CloseReason::Stalled));
    assert_eq!(simulation.closed(2), Some(&CloseReason::Stalled));
    assert!(simulation.elapsed() < Duration::from_secs(36), "{:?}", simulation.elapsed());
}

#[test]
fn a_byte_a_second_is_no_progress() {
    let simulation = run(600, 50_000, &[honest(50, 500_000), with(Fault::Drip)], 1);
    assert_eq!(simulation.closed(1), Some(&CloseReason::TooSlow));
    assert!(simulation.elapsed() < Duration::from_secs(64), "{:?}", simulation.elapsed());
}

#[test]
fn a_peer_without_blocks_is_closed_by_its_pongs() {
    let simulation = run(600, 50_000, &[honest(50, 1_000_000), with(Fault::Lacks { part: 1 })], 1);
    assert_eq!(simulation.closed(1), Some(&CloseReason::HasNoBlocks));
    assert!(simulation.elapsed() < Duration::from_secs(33), "{:?}", simulation.elapsed());
}

#[test]
fn peers_that_have_every_other_block_are_used_for_these() {
    let peers = [with(Fault::Lacks { part: 2 }), honest(50, 1_000_000)];
    let simulation = run(600, 50_000, &peers, 1);
    assert_eq!(simulation.closed(0), None);
    assert!(simulation.delivered(0) > 100, "{}", simulation.delivered(0));
}

#[test]
fn a_block_that_nobody_has_is_reported() {
    let mut simulation = Simulation::new(10, 1_000, DownloadOptions::default(), 1);
    simulation.add(Spec { fault: Fault::LacksHeight(4), ..honest(50, 1_000_000) });
    simulation.run(Duration::from_secs(30));
    assert_eq!((simulation.download.unavailable(), simulation.download.lowest_height()), (Some(4), 4));
    simulation.add(honest(50, 1_000_000));
    simulation.run(Duration::from_secs(30));
    assert!(simulation.download.is_done());
    assert_eq!(simulation.download.unavailable(), None);
}

/// The only peer is itself downloading: it gets later what it does not have now.
#[test]
fn a_peer_that_lacked_blocks_is_asked_again() {
    let simulation = run(5, 50_000, &[with(Fault::LacksFor(70))], 1);
    assert!(simulation.download.is_done());
    assert!(simulation.elapsed() < Duration::from_secs(90), "{:?}", simulation.elapsed());
}

#[test]
fn a_block_that_all_peers_lack_for_half_a_minute_is_withheld() {
    let mut simulation = Simulation::new(10, 1_000, DownloadOptions::default(), 1);
    let lacking = || Spec { fault: Fault::LacksHeight(4), ..honest(50, 1_000_000) };
    (0..2).for_each(|_| simulation.add(lacking()));
    simulation.run(Duration::from_secs(25));
    assert_eq!((simulation.download.unavailable(), simulation.withheld()), (Some(4), None));
    simulation.run(Duration::from_secs(20));
    assert_eq!(simulation.withheld(), Some(4));
    simulation.add(honest(50, 1_000_000));
    assert_eq!(simulation.withheld(), None, "the new peer was not asked");
    simulation.run(Duration::from_secs(20));
    assert!(simulation.download.is_done());
}

/// Nobody is asked for what headers have shown that it does not have.
#[test]
fn a_block_that_is_in_no_peers_chain_is_not_asked_for_and_withheld_after_half_a_minute() {
    let (mut download, now) = one_peer(10);
    download.set_shared(PeerId(0), Some(4));
    while download.lowest_height() < 5 {
        let (hashes, marker) = only_request(&mut download, now);
        for (hash, height) in hashes.into_iter().zip(download.lowest_height()..) {
            assert!(height < 5 && hash == network::hash_at(height));
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
    download.extend((5..7).map(network::hash_at), true);
    assert_eq!(only_request(&mut download, now + MS * 33_000).0.len(), 2);
}

/// Gives a download a chain of which all blocks from `fork` on differ from those of [`network::hash_at`].
fn other_hash(height: u32) -> BlockHash {
    let mut hash = network::hash_at(height);
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
    download.extend((0..blocks).map(network::hash_at), true);
    (download, now)
}

/// Hashes and marker of the only request.
fn only_request(download: &mut Download, now: Instant) -> (Vec<BlockHash>, u64) {
    let actions = download.poll(now, false);
    let [Action::Request { hashes, marker, .. }] = &actions[..] else { panic!("{actions:?}") };
    (hashes.clone(), *marker)
}

#[test]
fn a_block_of_the_branch_that_was_left_says_nothing_of_the_one_at_its_height() {
    let (mut download, now) = one_peer(2);
    let (hashes, marker) = only_request(&mut download, now);
    assert_eq!(hashes, [network::hash_at(0)]);
    // The chain has other blocks from height 0 on. The old one comes, and the peer lacks the next old one.
    download.truncate(0);
    download.extend((0..2).map(other_hash), true);
    assert_eq!(download.received_block(PeerId(0), hashes[0], 500, now), Arrival::Duplicate);
    download.received_pong(PeerId(0), marker, now);
    let (hashes, marker) = only_request(&mut download, now + MS);
    assert_eq!(hashes[0], other_hash(0));
    assert_eq!(download.received_block(PeerId(0), other_hash(0), 500, now + MS), Arrival::New(0));
    // What the caller says of the old block at that height is not said of the new one.
    download.accept(0, network::hash_at(0));
    download.reject(0, network::hash_at(0));
    assert_eq!((download.lowest_height(), download.peers().count()), (0, 1));
    download.accept(0, other_hash(0));
    assert_eq!(download.lowest_height(), 1);
    download.received_pong(PeerId(0), marker, now + MS);
}

#[test]
fn a_peer_that_lacks_blocks_of_the_branch_that_was_left_is_asked_for_those_of_the_new_one() {
    let (mut download, now) = one_peer(100);
    let (hashes, marker) = only_request(&mut download, now);
    assert_eq!(download.received_block(PeerId(0), hashes[0], 200, now + MS), Arrival::New(0));
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
    assert_eq!(download.received_block(PeerId(0), hashes[0], 200, now + MS), Arrival::New(0));
    download.received_pong(PeerId(0), marker, now + MS);
    let (hashes, _) = only_request(&mut download, now + MS);
    download.truncate(50);
    download.extend((50..100).map(other_hash), true);
    for (hash, height) in hashes.into_iter().zip(1..) {
        let arrival = download.received_block(PeerId(0), hash, 200, now + MS * 2);
        assert_eq!(arrival, if height < 50 { Arrival::New(height) } else { Arrival::Duplicate });
    }
    let (hashes, _) = only_request(&mut download, now + MS * 2);
    assert_eq!(hashes[0], other_hash(50));
}

#[test]
fn mutated_and_unrequested_blocks_cost_the_peer() {
    let peers = [honest(50, 300_000), with(Fault::Mutates), with(Fault::Unrequested)];
    let simulation = run(300, 50_000, &peers, 1);
    assert_eq!(simulation.closed(1), Some(&CloseReason::Mutated));
    assert_eq!(simulation.closed(2), Some(&CloseReason::Unrequested));
    assert!(simulation.download.is_done());
}

#[test]
fn no_group_holds_more_than_a_quarter_of_the_window() {
    let options = DownloadOptions { window_blocks: 40, ..DownloadOptions::default() };
    let mut simulation = Simulation::new(400, 1_000, options, 1);
    (0..6).for_each(|_| simulation.add_in_group(with(Fault::Stall { after: 20 }), 7));
    simulation.add(honest(100, 50_000));
    simulation.run(Duration::from_secs(600));
    assert!(simulation.download.is_done());
    assert!(simulation.most_held_by_group <= 10, "{}", simulation.most_held_by_group);
}

#[test]
fn the_window_and_the_memory_are_bounds() {
    let options = DownloadOptions {
        window_blocks: 50,
        window_bytes: 2_000_000,
        memory_bytes: 800_000,
        ..DownloadOptions::default()
    };
    let mut simulation = Simulation::new(300, 100_000, options, 1);
    (0..20).for_each(|_| simulation.add(honest(100, 200_000)));
    simulation.run(Duration::from_secs(600));
    assert!(simulation.download.is_done());
    assert!(
        simulation.most_active <= 6,
        "{}: 400,000 bytes for blocks of up to 100,000",
        simulation.most_active
    );
    assert!(simulation.widest <= 50);
}

#[test]
fn the_slowest_of_many_gives_its_place_to_a_candidate() {
    let mut simulation = Simulation::new(6_000, 50_000, DownloadOptions::default(), 1);
    simulation.candidate_waits = true;
    (0..6).for_each(|_| simulation.add(honest(50, 1_000_000)));
    simulation.add(honest(50, 40_000));
    simulation.slow_down_after = Some(Duration::from_secs(20));
    simulation.run(Duration::from_secs(600));
    assert_eq!(simulation.closed(6), Some(&CloseReason::Slowest));
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::None),
        (0u32..40).prop_map(|after| Fault::Stall { after }),
        (0u32..40).prop_map(|after| Fault::Dies { after }),
        Just(Fault::Silent),
        Just(Fault::Drip),
        (1u32..4).prop_map(|part| Fault::Lacks { part }),
        Just(Fault::Mutates),
        Just(Fault::Unrequested),
        Just(Fault::LyingPong),
    ]
}

fn any_spec(fault: impl Strategy<Value = Fault>) -> impl Strategy<Value = Spec> {
    (1u32..400, 100_000u64..5_000_000, fault).prop_map(|(round_trip, rate, fault)| Spec {
        round_trip: MS * round_trip,
        rate,
        fault,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The simulation asserts that each block is delivered once, and in the window.
    #[test]
    fn the_download_ends_if_one_peer_is_honest(
        mut specs in prop::collection::vec(any_spec(any_fault()), 0..8),
        one in any_spec(Just(Fault::None)),
        place: usize,
        blocks in 1usize..300,
        size in 200u64..60_000,
        seed: u64,
    ) {
        specs.insert(place % (specs.len() + 1), one);
        let simulation = run(blocks, size, &specs, seed);
        prop_assert!(simulation.download.is_done(), "{:?}", simulation.download.unavailable());
        prop_assert_eq!(simulation.download.totals().blocks, blocks as u64);
    }

    #[test]
    fn honest_peers_send_less_than_two_percent_twice(
        specs in prop::collection::vec(any_spec(Just(Fault::None)), 1..8),
        size in 200u64..60_000,
        seed: u64,
    ) {
        let simulation = run(400, size, &specs, seed);
        let totals = simulation.download.totals();
        prop_assert!(simulation.download.is_done());
        prop_assert!(totals.duplicate_bytes * 50 <= totals.bytes, "{totals:?}");
        prop_assert!(simulation.closed_reasons().next().is_none(), "an honest peer was closed");
    }
}

/// A peer that turns out to be slow holds one block, not two, and at the end another peer takes it over.
#[test]
fn very_slow_peers_do_not_delay_the_end() {
    let rates = [(290, 7_016_000), (45, 67_000), (83, 34_000), (304, 5_382_000), (270, 29_000)];
    let peers = rates.map(|(round_trip, rate)| honest(round_trip, rate));
    let simulation = run(334, 1_500_000, &peers, 3);
    let seconds = simulation.elapsed().as_secs_f64();
    assert!(seconds < 48.0, "{seconds:.1} s, when all links together need 40");
    let totals = simulation.download.totals();
    assert!(totals.duplicate_bytes * 50 <= totals.bytes, "{totals:?}");
}

//! Headers and blocks from a simulated network: links with a delay and a rate, and peers that have other
//! branches, find blocks, lie, stall, die and come back. Each run is repeated by its seed.
//!
//! A failure of the random networks names its seed:
//! `SIMULATION_SEED=17 cargo test -p peregrine-net --test net simulation`.

use crate::common::*;
use crate::simulator::{Branches, Link, Simulation, explains};
use peregrine_net::download::DownloadOptions;
use rayon::prelude::*;
use std::ops::Range;

const SECOND: Duration = Duration::from_secs(1);

/// A simulation of a caller that knows all headers, and of this number of blocks of a size.
fn of_blocks(blocks: usize, size: u64, options: DownloadOptions, seed: u64) -> Simulation {
    let mut simulation = Simulation::new(Branches::one(blocks), options, seed).knowing_headers();
    simulation.size = size;
    simulation
}

fn run(blocks: usize, size: u64, links: &[Link], seed: u64) -> Simulation {
    let mut simulation = of_blocks(blocks, size, DownloadOptions::default(), seed);
    links.iter().for_each(|link| simulation.add(link.clone()));
    simulation.run(SECOND * 3_600);
    simulation
}

/// Asserts that the download has ended in this time, and that at most one byte of so many came twice.
fn assert_fast(simulation: &Simulation, seconds_max: f64, once_in: u64) {
    let (seconds, totals) = (simulation.elapsed().as_secs_f64(), simulation.download.totals());
    assert!(simulation.is_done() && seconds < seconds_max, "{seconds:.2} s of {seconds_max:.2}");
    assert!(totals.duplicate_bytes * once_in <= totals.bytes, "{totals:?}");
}

#[test]
fn one_peer_is_used_fully_at_any_round_trip() {
    for round_trip in [1, 40, 300] {
        let simulation = run(400, 100_000, &[Link::honest(round_trip, 10_000_000)], 1);
        assert_fast(&simulation, 4.0 * 1.1 + 0.01 * round_trip as f64, u64::MAX);
    }
}

#[test]
fn small_blocks_come_in_lots() {
    let simulation = run(20_000, 250, &[Link::honest(100, 2_000_000)], 1);
    assert_fast(&simulation, 2.5 * 1.3 + 1.5, 50);
}

/// The links of the measurement in which bitcoind took 67 s for the last 120 blocks: 100, 20 and 2 Mbit/s.
#[test]
fn slow_peers_hold_nobody_up() {
    let links = [Link::honest(20, 12_500_000), Link::honest(80, 2_500_000), Link::honest(200, 250_000)];
    for (blocks, size) in [(3_000, 100_000), (120, 900_000)] {
        let ideal = (blocks as u64 * size) as f64 / 15_250_000.0;
        assert_fast(&run(blocks, size, &links, 1), ideal * 1.15 + 0.5, 50);
    }
}

/// A peer that turns out to be slow holds one block, not two, and at the end another peer takes it over.
#[test]
fn very_slow_peers_do_not_delay_the_end() {
    let rates = [(290, 7_016_000), (45, 67_000), (83, 34_000), (304, 5_382_000), (270, 29_000)];
    let links = rates.map(|(round_trip, rate)| Link::honest(round_trip, rate));
    // All links together need 40 seconds.
    assert_fast(&run(334, 1_500_000, &links, 3), 48.0, 50);
}

/// Tiny blocks, of which hundreds are asked for at once, then full ones, and tiny ones again, which slow
/// peers send while full ones are still missing.
#[test]
fn blocks_that_become_larger_or_smaller_do_not_bind_the_download_to_slow_peers() {
    let links = [(1, 30, 10_000_000), (5, 80, 2_500_000), (2, 120, 625_000), (4, 200, 312_500)];
    for seed in 0..20 {
        let mut simulation = of_blocks(2_750, 1_000_000, DownloadOptions::default(), seed);
        simulation.full = 150..650;
        for (count, round_trip, rate) in links {
            (0..count).for_each(|_| simulation.add(Link::honest(round_trip, rate)));
        }
        simulation.run(SECOND * 3_600);
        assert_fast(&simulation, 500.0 / 25.0 * 1.15, 25);
    }
}

#[test]
fn honest_peers_are_kept_and_send_less_than_two_percent_twice() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed, "honest");
        let mut link = || Link::honest(1 + rng.below(400), 100_000 + rng.below(4_900_000));
        let links: Vec<Link> = (0..1 + seed % 7).map(|_| link()).collect();
        let simulation = run(400, 200 + rng.below(59_800), &links, seed);
        assert_fast(&simulation, 3_600.0, 50);
        assert_eq!(simulation.closed, []);
    }
}

/// Beside an honest peer, from the headers on.
#[test]
fn each_fault_in_answers_costs_the_peer_or_nothing() {
    for fault in Fault::IN_ANSWERS {
        let mut simulation = Simulation::new(Branches::one(600), DownloadOptions::default(), 1);
        simulation.add(Link::honest(50, 500_000));
        simulation.add(Link::new(40, 1_000_000, fault));
        simulation.run(SECOND * 3_600);
        // The honest peer alone needs 60 seconds.
        assert_fast(&simulation, 66.0, 25);
        let reasons: Vec<_> =
            simulation.closed.iter().map(|(peer, reason)| (*peer, reason.to_string())).collect();
        match fault.end() {
            End::Kept => {
                assert_eq!(reasons, [], "{fault:?}");
                let is_of_use = simulation.delivered(1) > 100;
                assert!(is_of_use || fault == Fault::NoHeaders || fault == Fault::IsSyncing, "{fault:?}");
            }
            End::Closed(words) | End::ClosedLate(words) => {
                let is_named = matches!(&reasons[..], [(1, reason)] if reason.contains(words));
                assert!(is_named, "{fault:?}: {reasons:?}");
            }
        }
    }
}

/// The only peer is itself downloading: it gets later what it does not have now.
#[test]
fn a_peer_that_lacked_blocks_is_asked_again() {
    let mut simulation = of_blocks(5, 50_000, DownloadOptions::default(), 1);
    let chain = Some(Arc::new(ServedChain::new(simulation.branches.best().blocks[..1].to_vec())));
    simulation.add(Link { chain, grows_after: Some(SECOND * 25), ..Link::honest(50, 1_000_000) });
    simulation.run(SECOND * 3_600);
    assert_fast(&simulation, 45.0, u64::MAX);
}

#[test]
fn a_block_that_all_peers_lack_for_half_a_minute_is_withheld() {
    let mut simulation = of_blocks(10, 1_000, DownloadOptions::default(), 1);
    (0..2).for_each(|_| simulation.add(Link::new(50, 1_000_000, Fault::LacksOne(4))));
    simulation.run(SECOND * 25);
    assert_eq!((simulation.download.unavailable(), simulation.download.lowest_height()), (Some(4), 4));
    assert!(simulation.withheld.is_empty());
    simulation.run(SECOND * 20);
    assert_eq!(simulation.withheld, [4]);
    simulation.add(Link::honest(50, 1_000_000));
    simulation.run(SECOND * 20);
    assert!(simulation.is_done() && simulation.withheld == [4], "the new peer was not asked");
    assert_eq!(simulation.download.unavailable(), None);
}

#[test]
fn no_group_holds_more_than_a_quarter_of_the_window() {
    let options = DownloadOptions { window_blocks: 40, ..DownloadOptions::default() };
    let mut simulation = of_blocks(400, 1_000, options, 1);
    let stalled = Link { group: Some(7), ..Link::new(50, 1_000_000, Fault::Stall(20)) };
    (0..6).for_each(|_| simulation.add(stalled.clone()));
    simulation.add(Link::honest(100, 50_000));
    simulation.run(SECOND * 600);
    assert!(simulation.is_done());
    assert!(simulation.most_held <= 10, "{}", simulation.most_held);
    assert!(simulation.widest <= 40, "{}", simulation.widest);
}

#[test]
fn the_window_and_the_memory_are_bounds() {
    let options = DownloadOptions {
        window_blocks: 50,
        window_bytes: 2_000_000,
        memory_bytes: 800_000,
        ..DownloadOptions::default()
    };
    let mut simulation = of_blocks(300, 100_000, options, 1);
    (0..20).for_each(|_| simulation.add(Link::honest(100, 200_000)));
    simulation.run(SECOND * 600);
    assert!(simulation.is_done());
    let active = simulation.most_active;
    assert!(active <= 6, "{active}: 400,000 bytes for blocks of up to 100,000");
    assert!(simulation.widest <= 20);
}

#[test]
fn the_slowest_of_many_gives_its_place_to_a_candidate() {
    let mut simulation = of_blocks(6_000, 50_000, DownloadOptions::default(), 1);
    simulation.candidate_waits = true;
    (0..6).for_each(|_| simulation.add(Link::honest(50, 1_000_000)));
    simulation.add(Link::honest(50, 40_000));
    simulation.slow_down_after = Some(SECOND * 20);
    simulation.run(SECOND * 600);
    assert_eq!(simulation.reason(6), Some(&CloseReason::Slowest));
}

/// Whatever happens, the best branch is downloaded in the end, each of its blocks once, and nobody is closed
/// without a reason.
#[test]
fn the_best_branch_is_downloaded_whatever_peers_do() {
    simulate(0..500);
}

mod long {
    #[test]
    fn the_best_branch_is_downloaded_in_thousands_of_networks() {
        super::simulate(500..3_000);
    }
}

fn simulate(seeds: Range<u64>) {
    if let Ok(seed) = std::env::var("SIMULATION_SEED") {
        simulate_one(seed.parse().unwrap());
        return;
    }
    let simulated: Duration = seeds.into_par_iter().map(simulate_one).sum();
    assert!(simulated > SECOND * 4 * 60 * 60, "hours of simulated time");
}

/// Returns the simulated time of one random network.
fn simulate_one(seed: u64) -> Duration {
    let mut rng = Rng::new(seed, "network");
    let branches = Branches::some(&mut rng);
    let options = DownloadOptions {
        window_blocks: [16_384, 1_000, 100][rng.below(3) as usize],
        memory_bytes: [64 << 20, 1 << 20][rng.below(2) as usize],
        ..DownloadOptions::default()
    };
    let links = Link::some(&mut rng, &branches);
    let is_long = branches.best().height() > 1_000;
    let size = if is_long { 1_000 } else { [200, 5_000, 200_000][rng.below(3) as usize] };
    let mut simulation = Simulation::new(branches, options, seed);
    (simulation.size, simulation.reconnects) = (size, true);
    links.into_iter().for_each(|link| simulation.add_after(link, SECOND * rng.below(8) as u32));
    simulation.run(SECOND * 3 * 60 * 60);
    assert!(simulation.is_done(), "{}", simulation.describe());
    for (peer, reason) in &simulation.closed {
        let (fault, has_all) = simulation.facts(*peer);
        let is_right = explains(fault, reason, has_all);
        assert!(is_right, "peer {peer} with {fault:?} was closed: {reason}; {}", simulation.describe());
    }
    let totals = simulation.download.totals();
    let most = (totals.bytes / 64).max(size * 40) + simulation.branches.len() as u64 * size;
    assert!(totals.duplicate_bytes <= most, "{}", simulation.describe());
    simulation.elapsed()
}

//! Headers and blocks from a simulated network, from a seed: peers with other branches, that find blocks,
//! lie, stall, die and come back. Whatever happens, the best branch is downloaded in the end, each of its
//! blocks once, and nobody who is honest is closed.
//!
//! A failure names its seed: `SIMULATION_SEED=17 cargo test -p peregrine-net --test net simulation`.

use crate::simulated;

use simulated::Simulation;
use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

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
        Simulation::new(seed.parse().unwrap()).run();
        return;
    }
    let (next, simulated) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    simulated.fetch_add(Simulation::new(seed).run().as_secs(), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(simulated.into_inner() > 4 * 60 * 60, "hours of simulated time");
}

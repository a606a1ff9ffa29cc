//! Runs each fuzz target for a second in every test run, and tests that the harness notices a failure.

use std::{path::Path, time::Duration};
use testkit::fuzz::{CANARY, TARGETS, hunt};

/// Returns the seed of the inputs; `FUZZ_SEED` sets it.
fn seed() -> u64 {
    let seed = std::env::var("FUZZ_SEED").map_or(1, |text| text.parse().expect("FUZZ_SEED is a number"));
    println!("FUZZ_SEED={seed}");
    seed
}

#[test]
fn no_target_fails() {
    let seed = seed();
    for target in TARGETS {
        let hunt = hunt(target, seed, Duration::from_secs(1));
        println!("{:16} {:7} inputs, {:7} accepted", target.name, hunt.inputs, hunt.accepted);
        if let Some(input) = hunt.failure {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{seed}", target.name));
            std::fs::write(&path, &input).unwrap();
            panic!("{} fails on {}: `fuzz/run {0} FILE` repeats it", target.name, path.display());
        }
    }
}

#[test]
fn canary_is_caught() {
    let hunt = hunt(&CANARY, seed(), Duration::from_secs(1));
    let input = hunt.failure.expect("the harness notices a false claim");
    assert!(std::panic::catch_unwind(|| (CANARY.body)(&input)).is_err(), "and reports the input");
}

#[test]
fn seeds_are_accepted() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        let refused: Vec<usize> = (0..seeds.len()).filter(|&at| !(target.body)(&seeds[at])).collect();
        assert!(!seeds.is_empty() && refused.is_empty(), "{} refuses its seeds {refused:?}", target.name);
    }
}

//! All fuzz targets in one binary. The environment variable `FUZZ_TARGET` selects one; see `testkit::fuzz`.
//!
//! At start it writes the target's seeds into its corpus folder.
#![no_main]

use std::{path::Path, sync::LazyLock};
use testkit::fuzz::{self, FuzzTarget, TARGETS};

static TARGET: LazyLock<&FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    fuzz::target(&name).unwrap_or_else(|| {
        // `fuzz/run` also gets the names in this way.
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        std::process::exit(0)
    })
});

libfuzzer_sys::fuzz_target!(
    init: {
        let corpus = Path::new("corpus").join(TARGET.name);
        std::fs::create_dir_all(&corpus).expect("the corpus folder can be created");
        for (number, seed) in (TARGET.seeds)().iter().enumerate() {
            std::fs::write(corpus.join(format!("seed-{number}")), seed).expect("a seed can be written");
        }
    },
    |bytes: &[u8]| { (TARGET.body)(bytes); }
);

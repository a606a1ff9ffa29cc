//! Measures how much a rebuild writes to sorted runs, for several sizes of the join: the measurements behind
//! `docs/adr/0005-bounded-memory.md`.
//!
//! `cargo run --release -p peregrine-engine --example spill_volume -- DATADIR ASSUMEVALID BYTES..`
#![allow(clippy::unwrap_used, reason = "an example")]

use peregrine_engine::{AssumeValid, Network, RealDisk, ScriptChecks, reindex::ReindexOptions};
use std::{num::NonZeroUsize, path::Path, sync::atomic::AtomicBool};

fn main() {
    let mut args = std::env::args().skip(1);
    let (datadir, assumed) = (args.next().unwrap(), args.next().unwrap().parse().unwrap());
    println!("join bytes, sorted runs, bytes written, peak bytes on disk, seconds, creations and spends");
    for bytes in args {
        let output = std::env::temp_dir().join(format!("spill-volume-{bytes}"));
        let _ = std::fs::remove_dir_all(&output);
        let mut options = ReindexOptions::new(Path::new(&datadir), Network::Regtest, ScriptChecks::LeftOut);
        options.output = Some(output.clone());
        options.chain.assume_valid = AssumeValid::Block(assumed);
        options.chain.hooks.join_bytes = Some(bytes.parse().unwrap());
        options.chain.threads = NonZeroUsize::new(2).unwrap();
        let report =
            peregrine_engine::reindex(&RealDisk, &options, &|_| {}, &AtomicBool::new(false)).unwrap();
        let spilled = report.spilled;
        println!(
            "{bytes}, {}, {}, {}, {:.1}, {}",
            spilled.runs,
            spilled.bytes_written,
            spilled.peak_bytes,
            report.elapsed.as_secs_f64(),
            report.counts.inputs + report.counts.outputs,
        );
        std::fs::remove_dir_all(&output).unwrap();
    }
}

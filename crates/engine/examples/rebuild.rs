//! Uses the engine as a library: rebuilds a chainstate into a new directory and prints a report.
//!
//! `cargo run --release -p peregrine-engine --example rebuild -- DATADIR CHAIN OUTPUT [HEIGHT]`
//!
//! The datadir is only read. Ctrl-C handling is left out: set `interrupt` from a signal handler for it.

use peregrine_engine::{
    Event, Height, RealDisk, ScriptChecks, Watch, hex_reversed, reindex, reindex::ReindexOptions,
};
use std::{env, error::Error, path::Path, sync::atomic::AtomicBool, thread};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [datadir, chain, output, height @ ..] = args.as_slice() else {
        return Err("usage: rebuild DATADIR CHAIN OUTPUT [HEIGHT]".into());
    };
    // `ScriptChecks::By(Arc::new(script::Core))` runs scripts with Bitcoin Core's own code; this example does
    // without that dependency.
    let scripts = ScriptChecks::LeftOut;
    let mut options = ReindexOptions {
        output: Some(output.into()),
        ..ReindexOptions::new(Path::new(datadir), chain.parse()?, scripts)
    };
    options.chain.threads = thread::available_parallelism()?;
    options.chain.stop_at_height = height.first().map(|height| height.parse().map(Height)).transpose()?;
    // The engine never prints: it sends events to a sink, here a closure, which is called from several
    // threads.
    let sink = |event| match event {
        Event::Started(stage) => eprintln!("{stage}"),
        Event::Progress(now) => eprintln!("{} of {} blocks", now.blocks, now.blocks_total),
        Event::Note(note) => eprintln!("note: {note}"),
        Event::Warning(warning) => eprintln!("warning: {warning}"),
        _ => {}
    };
    // An error has a kind (`error.kind`) and a location: block, transaction, file, byte.
    let report = reindex(&RealDisk, &options, Watch { sink: &sink, interrupt: &AtomicBool::new(false) })?;
    println!("height {} ({})", report.height, report.hash);
    println!("coins {}, {} satoshis", report.txouts, report.total_amount);
    println!("hash_serialized_3 {}", hex_reversed(&report.hash_serialized_3));
    println!("chainstate {}", report.chainstate.display());
    Ok(())
}

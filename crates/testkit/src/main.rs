//! The program `testkit`: writes generated chains as datadirs that Bitcoin Core and Peregrine open.

use bitcoin::hex::DisplayHex as _;
use clap::{Parser, Subcommand};
use parse_size::parse_size;
use std::{path::PathBuf, process::ExitCode, time::Instant};
use testkit::{
    ChainSpec,
    datadir::{DatadirWriter, Layout, WriteError},
    generate::generate,
    mutation::{base_chain, mutations},
};

/// Generates chains that look like Bitcoin's from a seed.
#[derive(Parser)]
#[command(name = "testkit", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a regtest chain as a Bitcoin Core datadir without a chainstate, and print its contents as JSON.
    Chain(ChainArgs),
    /// Print each mutation as a line of JSON: name, Core's reject string (null: valid), the valid blocks
    /// before it and the block itself in hex.
    Mutations(MutationArgs),
}

#[derive(clap::Args)]
struct MutationArgs {
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also write datadirs: the chain that is extended to DIR/base, each mutated chain to DIR/NAME.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only the mutation of this name.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

#[derive(clap::Args)]
struct ChainArgs {
    /// Datadir to write; blocks go to DIR/regtest/blocks.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bytes of block data to aim for, with suffix kB, MB, GB, KiB, MiB or GiB.
    #[arg(long, default_value = "200MB", value_parser = |text: &str| parse_size(text))]
    size: u64,
    /// Height of the last block before the empty tail [default: as the size needs]
    #[arg(long, value_name = "N")]
    blocks: Option<u32>,
    /// Number of coinbase-only blocks after that: with 2100, Core honours -assumevalid of a block below them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    empty_tail: u32,
    /// Write placeholders instead of signatures: faster, for runs that skip scripts.
    #[arg(long)]
    unsigned: bool,
    /// Number of threads that make transactions; 0: one per core. The bytes of the chain do not depend on it.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Number of outputs to aim for instead of bytes, with suffix k or M.
    #[arg(long, value_name = "N", value_parser = parse_count, conflicts_with = "size")]
    outputs: Option<u64>,
    /// One in N outputs stays unspent; on mainnet, N is about 20.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..))]
    unspent_one_in: u64,
    /// Number of coins that count as recent: a little over half of the spends take one of them, half of the
    /// others one of the next oldest coins, of which there are four times as many, and so on. With 32k, ages
    /// are about mainnet's.
    #[arg(long, value_name = "N", default_value = "512", value_parser = parse_count)]
    recent_coins: u64,
    /// Percentage of coins that anyone can spend: they take few bytes, for many coins in a small chain.
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u64).range(..101))]
    bare: u64,
    /// Approximate maximum number of unspent coins.
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    max_coins: u64,
    /// Height of a block with a transaction of 17,000 outputs; 0 for none.
    #[arg(long, value_name = "HEIGHT", default_value_t = 0)]
    wide_tx: u32,
    /// Upper limit of the size of a blk file.
    #[arg(long, default_value = "128MiB", value_parser = |text: &str| parse_size(text))]
    file_size: u64,
    /// Write no block index, for rebuilds with --scan.
    #[arg(long)]
    no_index: bool,
    /// Obfuscate block files with an xor.dat (the default).
    #[arg(long, overrides_with = "no_xor")]
    xor: bool,
    /// Write plain block files, as before Core had xor.dat.
    #[arg(long)]
    no_xor: bool,
}

/// Parses a number above 0, with suffix k or M.
fn parse_count(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(0) => Err("at least 1 is needed".to_owned()),
        done => done.map_err(|error| error.to_string()),
    }
}

fn chain(args: &ChainArgs) -> Result<(), WriteError> {
    let started = Instant::now();
    let spec = ChainSpec {
        blocks: args.blocks,
        empty_tail: args.empty_tail,
        signed: !args.unsigned,
        threads: args.threads,
        outputs: args.outputs,
        outputs_per_coin: args.unspent_one_in,
        max_coins: args.max_coins,
        recent: args.recent_coins as usize,
        bare: args.bare,
        wide_tx: args.wide_tx,
        ..ChainSpec::new(args.seed, args.size)
    };
    let mut layout = Layout { file_size: args.file_size, index: !args.no_index, ..Layout::new(args.seed) };
    if args.no_xor {
        layout.xor_key = None;
    }
    let mut writer = DatadirWriter::create(&args.out, layout)?;
    let totals = generate(&spec, |block| writer.push(block))?;
    writer.finish()?;
    let seconds = started.elapsed().as_secs_f64();
    eprintln!(
        "{:.1} MB in {seconds:.1} s, {:.1} MB/s, {:.2} million outputs/s",
        totals.bytes as f64 / 1e6,
        totals.bytes as f64 / 1e6 / seconds,
        totals.outputs as f64 / 1e6 / seconds
    );
    let json = serde_json::json!({
        "height": totals.height,
        "hash": totals.hash.to_string(),
        "hash_before_tail": totals.before_tail.to_string(),
        "blocks": totals.blocks,
        "stale_blocks": totals.stale_blocks,
        "transactions": totals.txs,
        "inputs": totals.inputs,
        "witness_inputs": totals.witness_inputs,
        "outputs": totals.outputs,
        "spend_age_blocks": {
            "p25": totals.ages.percentile(25),
            "p50": totals.ages.percentile(50),
            "p75": totals.ages.percentile(75),
            "p90": totals.ages.percentile(90),
            "p99": totals.ages.percentile(99),
            "max": totals.ages.percentile(100),
        },
        "txouts": totals.utxo.txouts,
        "total_amount_sat": totals.utxo.total_amount,
        "hash_serialized_3": totals.utxo.hash_hex(),
        "bytes": totals.bytes,
    });
    println!("{json}");
    Ok(())
}

fn print_mutations(args: &MutationArgs) -> Result<(), WriteError> {
    let base = base_chain(args.seed);
    let layout = Layout { preallocate: false, ..Layout::new(args.seed) };
    if let Some(out) = &args.out {
        base.write_datadir(&out.join("base"), &layout)?;
    }
    let is_wanted = |name: &str| args.only.as_ref().is_none_or(|only| only == name);
    for mutation in mutations().filter(|mutation| is_wanted(mutation.name)) {
        let mutated = mutation.apply(&base);
        if let Some(out) = &args.out {
            mutated.chain.write_datadir(&out.join(mutation.name), &layout)?;
        }
        let json = serde_json::json!({
            "name": mutation.name,
            "core": mutation.core,
            "stage": format!("{:?}", mutation.level),
            "setup": mutated.setup.iter().map(|block| block.bytes.to_lower_hex_string()).collect::<Vec<_>>(),
            "block": mutated.block.bytes.to_lower_hex_string(),
        });
        println!("{json}");
    }
    Ok(())
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Chain(args) => chain(&args),
        Command::Mutations(args) => print_mutations(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testkit: {error}");
            ExitCode::FAILURE
        }
    }
}

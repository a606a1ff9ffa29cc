//! The program `testkit`: writes generated chains as datadirs that Bitcoin Core and Peregrine open.

use clap::{Parser, Subcommand};
use parse_size::parse_size;
use std::{
    error::Error,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};
use testkit::{
    ChainSpec,
    datadir::{DatadirWriter, Layout},
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
    /// Write a small chain whose last block was made by a mutation, and print what Core says of it as JSON
    /// (null: the block is valid).
    Mutation {
        /// The mutation's name.
        name: String,
        /// Datadir to write.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
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
}

/// Parses a number above 0, with suffix k or M.
fn parse_count(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(0) => Err("at least 1 is needed".to_owned()),
        done => done.map_err(|error| error.to_string()),
    }
}

fn chain(args: &ChainArgs) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let spec = ChainSpec {
        blocks: args.blocks,
        empty_tail: args.empty_tail,
        signed: !args.unsigned,
        outputs: args.outputs,
        outputs_per_coin: args.unspent_one_in,
        max_coins: args.max_coins,
        recent: args.recent_coins as usize,
        bare: args.bare,
        ..ChainSpec::new(args.seed, args.size)
    };
    let mut writer = DatadirWriter::create(&args.out, Layout::new(args.seed))?;
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

fn mutation(name: &str, out: &Path) -> Result<(), Box<dyn Error>> {
    let mutation = mutations().find(|mutation| mutation.name == name);
    let mutation = mutation.ok_or_else(|| format!("there is no mutation {name}"))?;
    let layout = Layout { preallocate: false, ..Layout::new(1) };
    mutation.apply(&base_chain(1)).chain.write_datadir(out, &layout)?;
    println!("{}", serde_json::json!({"name": mutation.name, "core": mutation.core}));
    Ok(())
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Chain(args) => chain(&args),
        Command::Mutation { name, out } => mutation(&name, &out),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testkit: {error}");
            ExitCode::FAILURE
        }
    }
}

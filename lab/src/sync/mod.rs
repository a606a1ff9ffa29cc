//! `peregrine-bench sync`: downloads by Peregrine and by `bitcoind` from the same real nodes behind relays
//! that are as slow as links, in turns. `docs/benchmarks.md` explains the columns.
//!
//! All processes that it starts end with it.

mod link;
mod relay;
mod served;

use crate::{
    circumstances::Circumstances,
    measure::{Measured, ProgramArgs, add_datadir, measure, utxo_hash},
    place::{Scratch, environment},
    runs::{COMMON, Column, OURS, OutputArgs, Report, Rows, Run, WALL, shown},
};
use clap::Args as ClapArgs;
use cli::{
    output::{Done, interrupt, print_message},
    stop,
};
use engine::{Error, ErrorKind, Network, Stage};
use link::LinkSpec;
use relay::Relay;
use serde_json::{Value, json};
use served::{Served, peer, wait_for_all};
use std::{
    cmp, fs, io,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};
use testkit::node::Node;

/// The name of bitcoind's runs.
const BITCOIND: &str = "bitcoind";
/// Maximum number of links: each has an address of its own.
const LINKS: usize = 200;
/// The columns of the CSV.
const COLUMNS: &[&str] = &[
    "program",
    "commit",
    "threads",
    "run",
    "wall_s",
    "download_s",
    "after_s",
    "user_s",
    "system_s",
    "peak_rss_kib",
    "bytes",
    "received_bytes",
    "twice_bytes",
    "link_share",
    "utxo_hash",
    "read_bytes",
    "written_bytes",
    "exit",
];
/// Quantities of downloads. Beyond blocks is what came besides them.
const DOWNLOADS: [Column; 7] = [
    ("download_s", "to the last byte, s", |run| run.number("download_s")),
    ("after_s", "after it, s", |run| run.number("after_s")),
    ("mb_per_second", "blocks, MB/s", |run| {
        Some(run.number("bytes")? / 1e6 / run.number("download_s")?.max(1e-3))
    }),
    ("link_share_percent", "part of the links, %", |run| Some(run.number("link_share")? * 100.0)),
    ("received_mb", "received, MB", |run| Some(run.number("received_bytes")? / 1e6)),
    ("beyond_percent", "beyond blocks, %", |run| {
        Some((run.number("received_bytes")? / run.number("bytes")? - 1.0) * 100.0)
    }),
    ("twice_mb", "blocks twice, MB", |run| Some(run.number("twice_bytes")? / 1e6)),
];

#[derive(ClapArgs, Debug)]
pub struct SyncArgs {
    /// Data directory whose blocks are served; it is only read
    #[arg(long, value_name = "DIR")]
    pub datadir: PathBuf,

    /// Network, by Core's names
    #[arg(long, default_value_t = Network::Main)]
    pub chain: Network,

    /// Bitcoin Core's bitcoind, which serves
    #[arg(long, value_name = "FILE")]
    pub bitcoind: PathBuf,

    /// Peers, each behind a link of its own: COUNTxRATE/RTT, bits per second and time there and back,
    /// such as 4x100M/30ms, or 1xloopback. Can be given repeatedly
    #[arg(long = "link", value_name = "LINK", required = true)]
    pub links: Vec<LinkSpec>,

    /// Runs of each program, in turns
    #[arg(long, value_name = "N", default_value = "3")]
    pub runs: NonZeroU32,

    /// Measure this bitcoind as well
    #[arg(long)]
    pub against: bool,

    /// More arguments for it, separated by spaces
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true)]
    #[arg(allow_hyphen_values = true)]
    pub against_args: String,

    #[command(flatten)]
    pub program: ProgramArgs,

    /// Let Peregrine use these hints
    #[arg(long, value_name = "FILE")]
    pub hints: Option<PathBuf>,

    /// The block that all of them assume valid
    #[arg(long, value_name = "HASH")]
    pub assumevalid: Option<String>,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Measures the programs in turns, and returns the report.
pub fn run(args: &SyncArgs) -> Done {
    let count: usize = args.links.iter().map(|link| link.count).sum();
    if count > LINKS {
        return Err(Error::new(ErrorKind::Usage, format!("{count} links are more than {LINKS}")));
    }
    let interrupt = interrupt(args.output.json)?;
    // An interrupt must end the measured program first.
    stop::at_stage(Stage::Read);
    let circumstances = Circumstances::begin(&args.output)?;
    let rows = Rows::new(&args.output, COLUMNS)?;
    let mut bench = Bench::new(args, rows, &interrupt)?;
    for run in 1..=args.runs.get() {
        bench.once(run, OURS)?;
        if args.against {
            bench.once(run, BITCOIND)?;
        }
    }
    args.output.done(&report(args, circumstances, bench.rows.rows), Report::text)
}

/// Summarises the runs of both programs.
fn report(args: &SyncArgs, circumstances: Circumstances, rows: Vec<Run>) -> Report {
    let (datadir, chain, runs) = (shown(&args.datadir), args.chain.name(), args.runs);
    let links: Vec<&str> = args.links.iter().map(|link| link.text.as_str()).collect();
    let all = links.join(" ");
    let rate = links_rate(args).map(|rate| format!(", {:.1} MB/s in all", rate as f64 / 1e6));
    let rate = rate.unwrap_or_default();
    let title = format!("downloads of {datadir} ({chain}) over {all}{rate}, {runs} runs");
    let head = json!({
        "datadir": datadir, "chain": chain, "links": links, "links_bytes_per_second": links_rate(args),
        "runs": runs, "args": args.program.args, "against_args": args.against_args,
    });
    let more = |_: &str, own: &[&Run]| {
        let megabytes = link_mb(args, own);
        let line = |(link, mb): (&&str, &f64)| format!("  over {link:<30} {mb:>10.1} MB\n");
        let lines = links.iter().zip(&megabytes).map(line).collect();
        (json!({ "link_mb": megabytes }), lines)
    };
    let columns = [&[WALL][..], &DOWNLOADS, &COMMON].concat();
    Report::new(title, head, circumstances, &columns, rows, more, "")
}

/// Returns what came over the links of each `--link`, in megabytes, in the median run by time.
fn link_mb(args: &SyncArgs, rows: &[&Run]) -> Vec<f64> {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| a.number("wall_s").partial_cmp(&b.number("wall_s")).unwrap_or(cmp::Ordering::Equal));
    let Some(row) = rows.get(rows.len() / 2) else { return Vec::new() };
    let mut bytes = row.list("link_bytes").into_iter();
    args.links.iter().map(|link| bytes.by_ref().take(link.count).sum::<f64>() / 1e6).collect()
}

/// Returns the sum of the rates of all links in bytes per second; `None` if there is no limit.
fn links_rate(args: &SyncArgs) -> Option<u64> {
    let rate = |link: &LinkSpec| Some(link.shape?.bytes_per_second * link.count as u64);
    args.links.iter().map(rate).sum()
}

/// What came over the links during a run.
struct Download {
    /// Bytes by each link.
    by_link: Vec<u64>,
    /// Time from the start of the run to the last byte.
    last_byte: Duration,
}

struct Bench<'a> {
    args: &'a SyncArgs,
    interrupt: &'a AtomicBool,
    peregrine: PathBuf,
    bitcoind: PathBuf,
    rows: Rows,
    height: u64,
    links: Vec<Relay>,
    // Dropped before the folder in which they are.
    _peers: Vec<Node>,
    scratch: Scratch,
}

impl<'a> Bench<'a> {
    /// Starts the peers, and a relay before each.
    fn new(args: &'a SyncArgs, rows: Rows, stop: &'a AtomicBool) -> Result<Self, Error> {
        let peregrine = args.program.find()?;
        let missing = |error: io::Error| {
            let detail = format!("there is no bitcoind at {}: {error}", args.bitcoind.display());
            Error::new(ErrorKind::Usage, detail)
        };
        let bitcoind = args.bitcoind.canonicalize().map_err(missing)?;
        let scratch = Scratch::new(&args.output.work_dir)?;
        let served = Served::new(args, &bitcoind, &scratch.0.join("served"), stop)?;
        let shapes: Vec<_> =
            args.links.iter().flat_map(|link| std::iter::repeat_n(link.shape, link.count)).collect();
        print_message(&format!("starting {} peers", shapes.len()));
        let (mut peers, mut links) = (Vec::new(), Vec::new());
        for (at, shape) in (1..).zip(shapes) {
            interrupted(stop)?;
            let (node, address) = peer(args, &served, &scratch.0.join(format!("peer{at}")))?;
            peers.push(node);
            let relay = Relay::new(SocketAddr::from((Ipv4Addr::new(127, 0, 1, at), 0)), address, shape);
            links.push(relay.map_err(|error| failed("listen for the measured program", error))?);
        }
        wait_for_all(&mut peers, stop)?;
        let height = served.height;
        Ok(Self { args, interrupt: stop, peregrine, bitcoind, rows, height, _peers: peers, links, scratch })
    }

    /// Measures one run of one program, and compares its UTXO set.
    fn once(&mut self, run: u32, program: &str) -> Result<(), Error> {
        let datadir = self.scratch.0.join("datadir");
        if datadir.exists() {
            fs::remove_dir_all(&datadir).map_err(|error| environment("empty", &datadir, error))?;
        }
        fs::create_dir(&datadir).map_err(|error| environment("make", &datadir, error))?;
        // No run pays for what is still to be written from before.
        rustix::fs::sync();
        let (measured, download) = self.measure(program, &datadir)?;
        interrupted(self.interrupt)?;
        let answer: Value = serde_json::from_str(&measured.output).unwrap_or(Value::Null);
        let hash = match answer["rebuild"]["hash_serialized_3"].as_str() {
            Some(hash) => Some(hash.to_owned()),
            None => utxo_hash(&self.peregrine, self.args.chain, &datadir)
                .map_err(|error| environment("look at", &datadir, error))?,
        };
        // The size of the chain, which an earlier run may have reported.
        let known = || self.rows.rows.iter().find_map(|row| row.number("bytes"));
        let bytes = answer["bytes_downloaded"].as_u64().or_else(|| known().map(|bytes| bytes as u64));
        let (received, last) = (download.by_link.iter().sum::<u64>(), download.last_byte);
        let share = |bytes: u64| {
            let seconds = last.as_secs_f64().max(1e-3);
            Some(bytes as f64 / seconds / links_rate(self.args)? as f64)
        };
        let more = json!({
            "threads": answer["rebuild"]["threads"],
            "download_s": last.as_secs_f64(),
            "after_s": measured.wall.saturating_sub(last).as_secs_f64(),
            "bytes": bytes,
            "received_bytes": received,
            "twice_bytes": answer["bytes_downloaded_twice"],
            "link_share": bytes.and_then(share),
            "link_bytes": download.by_link,
        });
        let row = Run::new(program, run, &measured, hash, more);
        self.rows.add(row, self.args.runs, &measured)
    }

    /// Runs a program, and counts what comes over the links.
    fn measure(&self, program: &str, datadir: &Path) -> Result<(Measured, Download), Error> {
        let mut command = match program {
            OURS => self.peregrine(datadir),
            _ => self.bitcoind(datadir),
        };
        let before: Vec<_> = self.links.iter().map(Relay::received).collect();
        let started = Instant::now();
        let measured = measure(&mut command, &self.scratch.0, self.interrupt);
        let measured = measured.map_err(|error| failed("run a program", error))?;
        let after: Vec<_> = self.links.iter().map(Relay::received).collect();
        let last = after.iter().map(|received| received.last).max().unwrap_or(started);
        let bytes = after.iter().zip(before).map(|(now, before)| now.bytes - before.bytes);
        let download =
            Download { by_link: bytes.collect(), last_byte: last.saturating_duration_since(started) };
        Ok((measured, download))
    }

    fn peregrine(&self, datadir: &Path) -> Command {
        let mut command = tied(&self.peregrine);
        command.args(["sync", "--progress", "none", "--dnsseed", "0"]);
        add_datadir(&mut command, self.args.chain, datadir);
        command.args(self.links.iter().map(|link| format!("--connect={}", link.address)));
        command.args(self.args.assumevalid.iter().flat_map(|hash| ["--assumevalid", hash]));
        if let Some(hints) = &self.args.hints {
            command.arg("--hints").arg(hints);
        }
        command.args(self.args.program.further());
        command
    }

    fn bitcoind(&self, datadir: &Path) -> Command {
        let mut command = tied(&self.bitcoind);
        command.arg(format!("-chain={}", self.args.chain.name()));
        command.arg(format!("-datadir={}", datadir.display()));
        command.arg(format!("-stopatheight={}", self.height));
        command.args(["-listen=0", "-server=0", "-dnsseed=0", "-fixedseeds=0", "-printtoconsole=0"]);
        command.args(self.links.iter().map(|link| format!("-connect={}", link.address)));
        command.args(self.args.assumevalid.iter().map(|hash| format!("-assumevalid={hash}")));
        command.args(self.args.against_args.split_whitespace());
        command
    }
}

/// Returns a command that the system ends when this process ends, even by `kill -9`.
fn tied(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Fails if the user wants to stop.
fn interrupted(stop: &AtomicBool) -> Result<(), Error> {
    if stop.load(Ordering::Relaxed) { Err(Error::interrupted()) } else { Ok(()) }
}

fn failed(what: &str, error: io::Error) -> Error {
    Error::new(ErrorKind::Environment, format!("cannot {what}: {error}"))
}

//! `peregrine-bench sync`: downloads by Peregrine and by `bitcoind` from the same real nodes behind relays
//! that are as slow as links, in turns. `docs/benchmarks.md` explains the columns.
//!
//! All processes that it starts end with it.

mod link;
mod relay;
mod served;

use crate::{
    measure::{Bench, add_datadir, utxo_hash},
    place::{environment, failed},
    runs::{BenchArgs, COMMON, Column, OURS, Report, Run, WALL, shown},
};
use clap::Args as ClapArgs;
use cli::output::{Done, print_message};
use engine::{Error, ErrorKind, Network};
use link::LinkSpec;
use relay::Relay;
use serde_json::{Value, json};
use served::{Served, peer, wait_for_all};
use std::{
    cmp, fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};
use testkit::node::Node;

/// The name of bitcoind's runs.
const BITCOIND: &str = "bitcoind";
/// Maximum number of links: each has an address of its own.
const LINKS: usize = 200;
const COLUMNS: &str = "program,commit,threads,run,wall_s,download_s,after_s,user_s,system_s,peak_rss_kib,\
    bytes,received_bytes,twice_bytes,link_share,utxo_hash,read_bytes,written_bytes,exit";
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

    /// Measure this bitcoind as well
    #[arg(long)]
    pub against: bool,

    /// More arguments for it, separated by spaces
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true)]
    #[arg(allow_hyphen_values = true)]
    pub against_args: String,

    /// Let Peregrine use these hints
    #[arg(long, value_name = "FILE")]
    pub hints: Option<PathBuf>,

    /// The block that all of them assume valid
    #[arg(long, value_name = "HASH")]
    pub assumevalid: Option<String>,

    #[command(flatten)]
    pub bench: BenchArgs,
}

/// Measures the programs in turns, and returns the report.
pub fn run(args: &SyncArgs) -> Done {
    let count: usize = args.links.iter().map(|link| link.count).sum();
    if count > LINKS {
        return Err(Error::new(ErrorKind::Usage, format!("{count} links are more than {LINKS}")));
    }
    let bench = Bench::begin(&args.bench, args.bench.csv.as_deref(), COLUMNS)?;
    let mut downloads = Downloads::new(args, bench)?;
    for run in 1..=args.bench.runs.get() {
        downloads.once(run, OURS)?;
        if args.against {
            downloads.once(run, BITCOIND)?;
        }
    }
    args.bench.done(&report(args, downloads.bench), Report::text)
}

/// Summarises the runs of both programs.
fn report(args: &SyncArgs, bench: Bench) -> Report {
    let (datadir, chain, runs) = (shown(&args.datadir), args.chain.name(), args.bench.runs);
    let links: Vec<&str> = args.links.iter().map(|link| link.text.as_str()).collect();
    let all = links.join(" ");
    let rate = links_rate(args).map(|rate| format!(", {:.1} MB/s in all", rate as f64 / 1e6));
    let rate = rate.unwrap_or_default();
    let title = format!("downloads of {datadir} ({chain}) over {all}{rate}, {runs} runs");
    let head = json!({
        "datadir": datadir, "chain": chain, "links": links, "links_bytes_per_second": links_rate(args),
        "runs": runs, "args": args.bench.args, "against_args": args.against_args,
    });
    let more = |_: &str, own: &[&Run]| {
        let megabytes = link_mb(args, own);
        let line = |(link, mb): (&&str, &f64)| format!("  over {link:<30} {mb:>10.1} MB\n");
        let lines = links.iter().zip(&megabytes).map(line).collect();
        (json!({ "link_mb": megabytes }), lines)
    };
    let columns = [&[WALL][..], &DOWNLOADS, &COMMON].concat();
    Report::new(title, head, bench.circumstances, &columns, bench.rows.rows, more, "")
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

struct Downloads<'a> {
    args: &'a SyncArgs,
    bitcoind: PathBuf,
    height: u64,
    links: Vec<Relay>,
    // Dropped before the folder in which they are.
    _peers: Vec<Node>,
    bench: Bench,
}

impl<'a> Downloads<'a> {
    /// Starts the peers, and a relay before each.
    fn new(args: &'a SyncArgs, bench: Bench) -> Result<Self, Error> {
        let missing = |error: io::Error| {
            let detail = format!("there is no bitcoind at {}: {error}", args.bitcoind.display());
            Error::new(ErrorKind::Usage, detail)
        };
        let bitcoind = args.bitcoind.canonicalize().map_err(missing)?;
        let (scratch, stop) = (bench.scratch.path(), bench.interrupt);
        let served = Served::new(args, &bitcoind, &scratch.join("served"), stop)?;
        let shapes: Vec<_> =
            args.links.iter().flat_map(|link| std::iter::repeat_n(link.shape, link.count)).collect();
        print_message(&format!("starting {} peers", shapes.len()));
        let (mut peers, mut links) = (Vec::new(), Vec::new());
        for (at, shape) in (1..).zip(shapes) {
            Error::check_interrupt(stop)?;
            let (node, address) = peer(args, &served, &scratch.join(format!("peer{at}")))?;
            peers.push(node);
            let relay = Relay::new(SocketAddr::from((Ipv4Addr::new(127, 0, 1, at), 0)), address, shape);
            let cannot = |error| failed(format!("cannot listen for the measured program: {error}"));
            links.push(relay.map_err(cannot)?);
        }
        wait_for_all(&mut peers, stop)?;
        Ok(Self { args, bitcoind, height: served.height, _peers: peers, links, bench })
    }

    /// Measures one run of one program, and compares its UTXO set.
    fn once(&mut self, run: u32, program: &str) -> Result<(), Error> {
        let datadir = self.bench.scratch.path().join("datadir");
        if datadir.exists() {
            fs::remove_dir_all(&datadir).map_err(|error| environment("empty", &datadir, error))?;
        }
        fs::create_dir(&datadir).map_err(|error| environment("make", &datadir, error))?;
        // No run pays for what is still to be written from before.
        rustix::fs::sync();
        let mut command = if program == OURS { self.peregrine(&datadir) } else { self.bitcoind(&datadir) };
        let before: Vec<_> = self.links.iter().map(Relay::received).collect();
        let started = Instant::now();
        let measured = self.bench.measure(&mut command)?;
        let after: Vec<_> = self.links.iter().map(Relay::received).collect();
        let last = after.iter().map(|received| received.last).max().unwrap_or(started);
        let last = last.saturating_duration_since(started);
        let by_link: Vec<_> =
            after.iter().zip(before).map(|(now, before)| now.bytes - before.bytes).collect();
        let answer: Value = serde_json::from_str(&measured.output).unwrap_or(Value::Null);
        let hash = match answer["rebuild"]["hash_serialized_3"].as_str() {
            Some(hash) => Some(hash.to_owned()),
            None => utxo_hash(&self.bench.peregrine, self.args.chain, &datadir)?,
        };
        // The size of the chain, which an earlier run may have reported.
        let known = || self.bench.rows.rows.iter().find_map(|row| row.number("bytes"));
        let bytes = answer["bytes_downloaded"].as_u64().or_else(|| known().map(|bytes| bytes as u64));
        let share = |bytes: u64| {
            let seconds = last.as_secs_f64().max(1e-3);
            Some(bytes as f64 / seconds / links_rate(self.args)? as f64)
        };
        let more = json!({
            "threads": answer["rebuild"]["threads"],
            "download_s": last.as_secs_f64(),
            "after_s": measured.wall.saturating_sub(last).as_secs_f64(),
            "bytes": bytes,
            "received_bytes": by_link.iter().sum::<u64>(),
            "twice_bytes": answer["bytes_downloaded_twice"],
            "link_share": bytes.and_then(share),
            "link_bytes": by_link,
        });
        let row = Run::new(program, run, &measured, hash, more);
        self.bench.rows.add(row, self.args.bench.runs, &measured)
    }

    fn peregrine(&self, datadir: &Path) -> Command {
        let mut command = tied(&self.bench.peregrine);
        command.args(["sync", "--progress", "none", "--dnsseed", "0"]);
        add_datadir(&mut command, self.args.chain, datadir);
        command.args(self.links.iter().map(|link| format!("--connect={}", link.address)));
        command.args(self.args.assumevalid.iter().flat_map(|hash| ["--assumevalid", hash]));
        if let Some(hints) = &self.args.hints {
            command.arg("--hints").arg(hints);
        }
        command.args(self.args.bench.further());
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

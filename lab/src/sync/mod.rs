//! `peregrine-bench sync`: downloads by Peregrine and by `bitcoind` from the same real nodes behind emulated
//! links, in turns. `docs/benchmarks.md` explains the columns.
//!
//! All that it makes on the machine (namespaces, devices, processes) ends with it.

mod delay_line;
mod link;
mod namespace;
mod served;
mod tunnel;

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
use namespace::{Namespace, Received};
use serde_json::{Value, json};
use served::{PORT, Served, peer, wait_for_all};
use std::{
    cmp, fs, io,
    num::NonZeroU32,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use testkit::node::Node;
use tunnel::{Link, Tunnels};

/// The name of bitcoind's runs.
const BITCOIND: &str = "bitcoind";
/// Maximum number of links: each has a network of its own.
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
    "received_packets",
    "twice_bytes",
    "link_share",
    "utxo_hash",
    "read_bytes",
    "written_bytes",
    "exit",
];
/// Quantities of downloads. Beyond blocks is what came besides them, without the headers of packets.
const DOWNLOADS: [Column; 7] = [
    ("download_s", "to the last byte, s", |run| run.number("download_s")),
    ("after_s", "after it, s", |run| run.number("after_s")),
    ("mb_per_second", "blocks, MB/s", |run| {
        Some(run.number("bytes")? / 1e6 / run.number("download_s")?.max(1e-3))
    }),
    ("link_share_percent", "part of the links, %", |run| Some(run.number("link_share")? * 100.0)),
    ("received_mb", "received, MB", |run| Some(run.number("received_bytes")? / 1e6)),
    ("beyond_percent", "beyond blocks, %", |run| {
        let headers = run.number("received_packets")? * PACKET_HEADERS;
        Some(((run.number("received_bytes")? - headers) / run.number("bytes")? - 1.0) * 100.0)
    }),
    ("twice_mb", "blocks twice, MB", |run| Some(run.number("twice_bytes")? / 1e6)),
];
/// Bytes of the headers of IPv4 and TCP (with time stamps) in each packet.
const PACKET_HEADERS: f64 = 52.0;
/// How often the counters of received bytes are read.
const SAMPLE_EVERY: Duration = Duration::from_millis(10);
/// More bytes between two samples than pings and the like are part of the download.
const DOWNLOADING: u64 = 1000;

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
    if !rustix::process::geteuid().is_root() {
        let detail = "network namespaces and TUN devices need root: run this command as root";
        return Err(Error::new(ErrorKind::Usage, detail));
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
    args.output.done(&report(args, circumstances, bench.rows.finish()?), Report::text)
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

/// The network between the measured program and its peers.
struct Links {
    /// Where the measured program runs.
    client: Namespace,
    /// Addresses of the peers.
    addresses: Vec<String>,
    /// The interfaces by which the program hears of each peer. Peers on the loopback device share one.
    interfaces: Vec<String>,
    /// Where the peers are; `None`: in `client`.
    peers: Vec<Option<Namespace>>,
    _tunnels: Tunnels,
}

impl Links {
    fn new(args: &SyncArgs) -> Result<Self, Error> {
        let client = Namespace::new()?;
        let (mut addresses, mut interfaces, mut peers, mut tunnels) = (vec![], vec![], vec![], vec![]);
        let shapes = args.links.iter().flat_map(|link| std::iter::repeat_n(link.shape, link.count));
        for (at, shape) in shapes.enumerate() {
            let Some(shape) = shape else {
                addresses.push(format!("127.0.1.{}", at + 1));
                interfaces.push("lo".to_owned());
                peers.push(None);
                continue;
            };
            // Public addresses, each in another /16: programs treat private ones, and neighbours,
            // differently.
            let network = 11 + at + usize::from(11 + at >= 127);
            let [near, far] = [1, 2].map(|host| format!("{network}.7.0.{host}"));
            let (link, [client_device, peer_device]) = Link::new(at, shape)?;
            let namespace = Namespace::new()?;
            client.take(&client_device, &near, &far)?;
            namespace.take(&peer_device, &far, &near)?;
            addresses.push(far);
            interfaces.push(client_device);
            peers.push(Some(namespace));
            tunnels.push(link);
        }
        let _tunnels = Tunnels::new(tunnels)?;
        Ok(Self { client, addresses, interfaces, peers, _tunnels })
    }

    /// Returns what came by each of `interfaces`.
    fn received(&self) -> io::Result<Vec<Received>> {
        let counters = self.client.received()?;
        let of = |name: &String| counters.iter().find(|(known, _)| known == name).map(|(_, count)| *count);
        Ok(self.interfaces.iter().map(|name| of(name).unwrap_or_default()).collect())
    }

    /// Returns what came in all.
    fn received_in_all(&self) -> io::Result<Received> {
        let counters = self.client.received()?;
        let add = |sum: Received, (_, count): &(String, Received)| Received {
            bytes: sum.bytes + count.bytes,
            packets: sum.packets + count.packets,
        };
        Ok(counters.iter().fold(Received::default(), add))
    }

    /// Records when bytes last came, until the run is over.
    fn sample(&self, mut known: u64, is_over: &AtomicBool, last_byte: &Mutex<Duration>) {
        let started = Instant::now();
        while !is_over.load(Ordering::Acquire) {
            let bytes = self.received_in_all().map_or(known, |all| all.bytes);
            if bytes >= known + DOWNLOADING {
                *last_byte.lock().unwrap_or_else(PoisonError::into_inner) = started.elapsed();
            }
            known = bytes;
            thread::park_timeout(SAMPLE_EVERY);
        }
    }
}

/// What came over the links during a run.
struct Download {
    /// In all.
    received: Received,
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
    // Dropped in this order: nodes, network, and the folder in which all of it is.
    _peers: Vec<Node>,
    links: Links,
    scratch: Scratch,
}

impl<'a> Bench<'a> {
    /// Makes the network, and starts the peers.
    fn new(args: &'a SyncArgs, rows: Rows, stop: &'a AtomicBool) -> Result<Self, Error> {
        let peregrine = args.program.find()?;
        let missing = |error: io::Error| {
            let detail = format!("there is no bitcoind at {}: {error}", args.bitcoind.display());
            Error::new(ErrorKind::Usage, detail)
        };
        let bitcoind = args.bitcoind.canonicalize().map_err(missing)?;
        let links = Links::new(args)?;
        let scratch = Scratch::new(&args.output.work_dir)?;
        let served = Served::new(args, &bitcoind, &scratch.0.join("served"), stop)?;
        print_message(&format!("starting {} peers", links.addresses.len()));
        let mut peers = Vec::new();
        for (at, (address, namespace)) in links.addresses.iter().zip(&links.peers).enumerate() {
            interrupted(stop)?;
            let namespace = namespace.as_ref().unwrap_or(&links.client);
            peers.push(peer(args, &served, namespace, address, &scratch.0.join(format!("peer{at}")))?);
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
        let known = || self.rows.rows().iter().find_map(|row| row.number("bytes"));
        let bytes = answer["bytes_downloaded"].as_u64().or_else(|| known().map(|bytes| bytes as u64));
        let (Received { bytes: received, packets }, last) = (download.received, download.last_byte);
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
            "received_packets": packets,
            "twice_bytes": answer["bytes_downloaded_twice"],
            "link_share": bytes.and_then(share),
            "link_bytes": download.by_link,
        });
        let row = Run::new(program, run, &measured, hash, more);
        self.rows.add(row, self.args.runs, &measured)
    }

    /// Runs a program in the namespace of the links, and counts what comes over them.
    fn measure(&self, program: &str, datadir: &Path) -> Result<(Measured, Download), Error> {
        let mut command = match program {
            OURS => self.peregrine(datadir),
            _ => self.bitcoind(datadir),
        };
        let count = |error| failed("read the counters of the network", error);
        let (by_link, all) =
            (self.links.received().map_err(count)?, self.links.received_in_all().map_err(count)?);
        let (is_over, last_byte) = (AtomicBool::new(false), Mutex::new(Duration::ZERO));
        let links = &self.links;
        let measured = thread::scope(|scope| {
            let sampler = scope.spawn(|| links.sample(all.bytes, &is_over, &last_byte));
            let measured = measure(&mut command, &self.scratch.0, self.interrupt);
            is_over.store(true, Ordering::Release);
            sampler.thread().unpark();
            measured
        });
        let measured = measured.map_err(|error| failed("run a program", error))?;
        let now = self.links.received_in_all().map_err(count)?;
        let after = self.links.received().map_err(count)?;
        let download = Download {
            received: Received { bytes: now.bytes - all.bytes, packets: now.packets - all.packets },
            by_link: after.iter().zip(by_link).map(|(now, before)| now.bytes - before.bytes).collect(),
            last_byte: last_byte.into_inner().unwrap_or_else(PoisonError::into_inner),
        };
        Ok((measured, download))
    }

    fn peregrine(&self, datadir: &Path) -> Command {
        let mut command = self.links.client.command(&self.peregrine);
        command.args(["sync", "--progress", "none", "--dnsseed", "0"]);
        add_datadir(&mut command, self.args.chain, datadir);
        for address in &self.links.addresses {
            command.arg("--connect").arg(format!("{address}:{PORT}"));
        }
        command.args(self.args.assumevalid.iter().flat_map(|hash| ["--assumevalid", hash]));
        if let Some(hints) = &self.args.hints {
            command.arg("--hints").arg(hints);
        }
        command.args(self.args.program.further());
        command
    }

    fn bitcoind(&self, datadir: &Path) -> Command {
        let mut command = self.links.client.command(&self.bitcoind);
        command.arg(format!("-chain={}", self.args.chain.name()));
        command.arg(format!("-datadir={}", datadir.display()));
        command.arg(format!("-stopatheight={}", self.height));
        command.args(["-listen=0", "-server=0", "-dnsseed=0", "-fixedseeds=0", "-printtoconsole=0"]);
        command.args(self.links.addresses.iter().map(|address| format!("-connect={address}:{PORT}")));
        command.args(self.args.assumevalid.iter().map(|hash| format!("-assumevalid={hash}")));
        command.args(self.args.against_args.split_whitespace());
        command
    }
}

/// Fails if the user wants to stop.
fn interrupted(stop: &AtomicBool) -> Result<(), Error> {
    if stop.load(Ordering::Relaxed) { Err(Error::interrupted()) } else { Ok(()) }
}

fn failed(what: &str, error: io::Error) -> Error {
    Error::new(ErrorKind::Environment, format!("cannot {what}: {error}"))
}

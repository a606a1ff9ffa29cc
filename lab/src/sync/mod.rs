//! `peregrine-bench sync`: downloads by Peregrine and by `bitcoind` from the same real nodes behind emulated
//! links, in turns. `docs/benchmarks.md` explains the columns.
//!
//! All that it makes on the machine (namespaces, devices, control groups, processes) ends with it.

mod delay_line;
mod limits;
mod link;
mod namespace;
mod report;
mod served;
mod tunnel;

use crate::{
    circumstances::Circumstances,
    measure::{Measured, ProgramArgs, add_datadir, measure, utxo_hash},
    place::{self, Scratch, environment},
    rows::{OutputArgs, Rows},
};
use clap::Args as ClapArgs;
use cli::{
    output::{Done, interrupt, print_message},
    stop,
};
use engine::{Error, ErrorKind, Network, Stage};
use limits::{Groups, Limits};
use link::LinkSpec;
use namespace::{Namespace, Received};
use report::{Report, Row, Traffic};
use serde_json::Value;
use served::{PORT, Peers, Served, option};
use std::{
    fs, io,
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
use tunnel::{Devices, Tunnels};

/// Maximum number of links: each has a network of its own.
const LINKS: usize = 200;
/// Folder of the datadir with which each run starts.
const START: &str = "start";
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

    /// Bitcoin Core's bitcoind, which serves; bitcoin-cli must be beside it
    #[arg(long, value_name = "FILE")]
    pub bitcoind: PathBuf,

    /// Peers, each behind a link of its own: COUNTxRATE/RTT, bits per second and time there and back,
    /// such as 4x100M/30ms; then, if wanted, /loss=PERCENT%, /queue=TIME and /stall=BYTES (after which
    /// nothing comes). 1xstall, 1xloopback. Can be given repeatedly
    #[arg(long = "link", value_name = "LINK", required = true)]
    pub links: Vec<LinkSpec>,

    /// Rate of the line that all links share, in bits per second [default: unlimited]
    #[arg(long, value_name = "RATE", value_parser = link::rate)]
    pub access: Option<u64>,

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

    /// Let each run start with a datadir that has the blocks up to this height, and their chainstate: in a
    /// generated chain the first hundred are tiny, and then blocks are full at once
    #[arg(long, value_name = "HEIGHT")]
    pub from_height: Option<u32>,

    /// Give the measured program only a part of this machine: pi4, pi5, or cpu=N,memory=BYTES,disk=BYTES
    #[arg(long, value_name = "LIMITS")]
    pub limits: Option<Limits>,

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
    let rows = Rows::new(&args.output)?;
    let mut bench = Bench::new(args, rows, &interrupt)?;
    for run in 1..=args.runs.get() {
        bench.once(run, Program::Peregrine)?;
        if args.against {
            bench.once(run, Program::Bitcoind)?;
        }
    }
    args.output.done(&Report::new(args, circumstances, bench.rows.finish()?), Report::text)
}

/// A program that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Program {
    Peregrine,
    Bitcoind,
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
            let (devices, [client_device, peer_device]) = Devices::new(at)?;
            let namespace = Namespace::new()?;
            client.take(&client_device, &near, &far)?;
            namespace.take(&peer_device, &far, &near)?;
            addresses.push(far);
            interfaces.push(client_device);
            peers.push(Some(namespace));
            tunnels.push((devices, shape));
        }
        let _tunnels = Tunnels::new(tunnels, args.access)?;
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
    rows: Rows<Row>,
    height: u64,
    // Dropped in this order: nodes, network, and the folder in which all of it is.
    _peers: Peers,
    links: Links,
    scratch: Scratch,
}

impl<'a> Bench<'a> {
    /// Makes the network, and starts the peers.
    fn new(args: &'a SyncArgs, rows: Rows<Row>, stop: &'a AtomicBool) -> Result<Self, Error> {
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
        let mut peers = Peers::default();
        for (at, (address, namespace)) in links.addresses.iter().zip(&links.peers).enumerate() {
            interrupted(stop)?;
            let namespace = namespace.as_ref().unwrap_or(&links.client);
            peers.add(args, &served, namespace, address, &scratch.0.join(format!("peer{at}")))?;
        }
        peers.wait(stop)?;
        let height = served.height;
        let bench =
            Self { args, interrupt: stop, peregrine, bitcoind, rows, height, _peers: peers, links, scratch };
        bench.make_start()?;
        Ok(bench)
    }

    /// Makes the datadir with which each run starts.
    fn make_start(&self) -> Result<(), Error> {
        let datadir = self.scratch.0.join(START);
        fs::create_dir(&datadir).map_err(|error| environment("make", &datadir, error))?;
        let Some(height) = self.args.from_height else { return Ok(()) };
        let mut command = self.links.client.command(&self.peregrine);
        self.add_sync(&mut command, &datadir);
        command.args(["--stop-at-height", &height.to_string()]);
        let measured = measure(&mut command, &self.scratch.0, self.interrupt);
        let measured = measured.map_err(|error| failed("run a program", error))?;
        interrupted(self.interrupt)?;
        if !measured.status.success() {
            let detail =
                format!("the first blocks cannot be downloaded; peregrine said:\n{}", measured.messages);
            return Err(Error::new(ErrorKind::Environment, detail.trim_end()));
        }
        Ok(())
    }

    /// Measures one run of one program, and compares its UTXO set.
    fn once(&mut self, run: u32, program: Program) -> Result<(), Error> {
        let datadir = self.scratch.0.join("datadir");
        if datadir.exists() {
            fs::remove_dir_all(&datadir).map_err(|error| environment("empty", &datadir, error))?;
        }
        place::copy_files(&self.scratch.0.join(START), &datadir)
            .map_err(|error| environment("make", &datadir, error))?;
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
        let block_bytes = self.rows.rows().iter().find_map(|row| row.traffic.bytes);
        let traffic = Traffic::new(self.args, &download, &answer, block_bytes);
        let row = Row::new(program, run, &measured, download, &answer, traffic, hash);
        self.rows.add(row, self.args.runs, &measured)
    }

    /// Runs a program in the namespace of the links, and counts what comes over them.
    fn measure(&self, program: Program, datadir: &Path) -> Result<(Measured, Download), Error> {
        let limits = self.args.limits.clone().unwrap_or_default();
        let groups = Groups::new(&limits, &self.scratch.0)?;
        let mut words = groups.prefix().into_iter();
        let first = words.next().unwrap_or_else(|| "sh".into());
        let mut command = self.links.client.command(Path::new(&first));
        command.args(words);
        match program {
            Program::Peregrine => self.add_peregrine(&mut command, datadir),
            Program::Bitcoind => self.add_bitcoind(&mut command, datadir),
        }
        let count = |error| failed("read the counters of the network", error);
        let (by_link, all) =
            (self.links.received().map_err(count)?, self.links.received_in_all().map_err(count)?);
        let (is_over, last_byte) = (AtomicBool::new(false), Mutex::new(Duration::ZERO));
        let measured = thread::scope(|scope| {
            let sampler = scope.spawn(|| self.sample(all.bytes, &is_over, &last_byte));
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

    fn add_peregrine(&self, command: &mut Command, datadir: &Path) {
        self.add_sync(command.arg(&self.peregrine), datadir);
        if let Some(hints) = &self.args.hints {
            command.arg("--hints").arg(hints);
        }
        command.args(self.args.program.further());
    }

    /// Adds the arguments of any download by Peregrine.
    fn add_sync(&self, command: &mut Command, datadir: &Path) {
        command.args(["sync", "--progress", "none", "--dnsseed", "0"]);
        add_datadir(command, self.args.chain, datadir);
        for address in &self.links.addresses {
            command.arg("--connect").arg(format!("{address}:{PORT}"));
        }
        if let Some(hash) = &self.args.assumevalid {
            command.args(["--assumevalid", hash]);
        }
    }

    fn add_bitcoind(&self, command: &mut Command, datadir: &Path) {
        command.arg(&self.bitcoind).arg(format!("-chain={}", self.args.chain.name()));
        command.arg(option("-datadir=", datadir)).arg(format!("-stopatheight={}", self.height));
        command.args(["-listen=0", "-server=0", "-dnsseed=0", "-fixedseeds=0", "-printtoconsole=0"]);
        command.args(self.links.addresses.iter().map(|address| format!("-connect={address}:{PORT}")));
        command.args(self.args.assumevalid.iter().map(|hash| format!("-assumevalid={hash}")));
        command.args(self.args.against_args.split_whitespace());
    }

    /// Records when bytes last came, until the run is over.
    fn sample(&self, mut known: u64, is_over: &AtomicBool, last_byte: &Mutex<Duration>) {
        let started = Instant::now();
        while !is_over.load(Ordering::Acquire) {
            let bytes = self.links.received_in_all().map_or(known, |all| all.bytes);
            if bytes >= known + DOWNLOADING {
                *last_byte.lock().unwrap_or_else(PoisonError::into_inner) = started.elapsed();
            }
            known = bytes;
            thread::park_timeout(SAMPLE_EVERY);
        }
    }
}

/// Fails if the user wants to stop.
fn interrupted(stop: &AtomicBool) -> Result<(), Error> {
    if stop.load(Ordering::Relaxed) { Err(Error::interrupted()) } else { Ok(()) }
}

fn failed(what: &str, error: io::Error) -> Error {
    Error::new(ErrorKind::Environment, format!("cannot {what}: {error}"))
}

//! The measurements as CSV (one line per run), as JSON and as text.

use super::{Download, Program, SyncArgs};
use crate::{
    circumstances::Circumstances,
    measure::{Consumption, Measured},
    rows,
    statistics::Ratio,
    table::{Column, Quantity, add_comparison, add_table, or_empty, quantities},
};
use cli::version::commit_or_version;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;

/// Bytes of the headers of IPv4 and TCP (with time stamps) in each packet.
const PACKET_HEADERS: u64 = 52;

/// One run. The fields of CSV and JSON, and their order, are stable.
#[derive(Serialize, Clone, Debug)]
pub struct Row {
    pub program: &'static str,
    /// Commit of Peregrine's sources, or its version if that is not known, for its runs.
    pub commit: Option<&'static str>,
    pub threads: Option<u64>,
    pub run: u32,
    pub wall_s: f64,
    /// Time from the start to the last byte.
    pub download_s: f64,
    /// Time from the last byte to the end.
    pub after_s: f64,
    #[serde(flatten)]
    pub consumption: Consumption,
    #[serde(flatten)]
    pub traffic: Traffic,
    pub utxo_hash: Option<String>,
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    /// The exit code; `None` if a signal ended the program.
    pub exit: Option<i32>,
    /// Bytes that came over each link.
    pub link_bytes: Vec<u64>,
}

/// What came over the links, and what it is worth.
#[derive(Serialize, Clone, Debug)]
pub struct Traffic {
    /// Bytes of the blocks that the run had to download.
    pub bytes: Option<u64>,
    /// Bytes and packets that came over all links, headers of packets included.
    received_bytes: u64,
    received_packets: u64,
    /// Bytes of blocks that came twice, if the program reports them.
    twice_bytes: Option<u64>,
    /// Bytes of blocks per second until the last byte, as a part of the sum of the links.
    link_share: Option<f64>,
}

impl Traffic {
    /// `answer` is the JSON that the program printed, if it printed any; `block_bytes` is the size of the
    /// chain, if an earlier run reported it.
    pub fn new(args: &SyncArgs, download: &Download, answer: &Value, block_bytes: Option<u64>) -> Self {
        let bytes = answer["bytes_downloaded"].as_u64().or(block_bytes);
        let seconds = download.last_byte.as_secs_f64().max(1e-3);
        let share = |bytes: u64| Some(bytes as f64 / seconds / links_rate(args)? as f64);
        Self {
            bytes,
            received_bytes: download.received.bytes,
            received_packets: download.received.packets,
            twice_bytes: answer["bytes_downloaded_twice"].as_u64(),
            link_share: bytes.and_then(share),
        }
    }

    /// Bytes that came besides the blocks, for each byte of blocks, in percent.
    fn beyond_percent(&self) -> Option<f64> {
        let bytes = self.bytes? as f64;
        let payload = self.received_bytes.saturating_sub(self.received_packets * PACKET_HEADERS) as f64;
        Some((payload / bytes - 1.0) * 100.0)
    }
}

impl Row {
    /// `answer` is the JSON that the program printed, if it printed any.
    pub fn new(
        program: Program,
        run: u32,
        measured: &Measured,
        download: Download,
        answer: &Value,
        traffic: Traffic,
        utxo_hash: Option<String>,
    ) -> Self {
        let is_ours = program == Program::Peregrine;
        Self {
            program: if is_ours { "peregrine" } else { "bitcoind" },
            commit: is_ours.then(commit_or_version),
            threads: answer["rebuild"]["threads"].as_u64(),
            run,
            wall_s: measured.wall.as_secs_f64(),
            download_s: download.last_byte.as_secs_f64(),
            after_s: measured.wall.saturating_sub(download.last_byte).as_secs_f64(),
            consumption: Consumption::of(measured),
            traffic,
            utxo_hash,
            read_bytes: measured.io.map(|io| io.read),
            written_bytes: measured.io.map(|io| io.written),
            exit: measured.status.code(),
            link_bytes: download.by_link,
        }
    }
}

impl rows::Row for Row {
    const CSV_HEADER: &'static str = "program,commit,threads,run,wall_s,download_s,after_s,user_s,system_s,\
        peak_rss_kib,bytes,received_bytes,received_packets,twice_bytes,link_share,utxo_hash,read_bytes,\
        written_bytes,exit\n";

    fn program(&self) -> &str {
        self.program
    }

    fn run(&self) -> u32 {
        self.run
    }

    fn utxo_hash(&self) -> Option<&str> {
        self.utxo_hash.as_deref()
    }

    fn text(&self) -> String {
        format!(
            "{} {:.2} s, the last byte after {:.2} s, {}",
            self.program,
            self.wall_s,
            self.download_s,
            self.consumption.text()
        )
    }

    fn csv(&self) -> String {
        let fields = [
            self.program.to_owned(),
            or_empty(self.commit),
            or_empty(self.threads),
            self.run.to_string(),
            format!("{:.3}", self.wall_s),
            format!("{:.3}", self.download_s),
            format!("{:.3}", self.after_s),
            self.consumption.csv(),
            or_empty(self.traffic.bytes),
            self.traffic.received_bytes.to_string(),
            self.traffic.received_packets.to_string(),
            or_empty(self.traffic.twice_bytes),
            or_empty(self.traffic.link_share.map(|share| format!("{share:.3}"))),
            or_empty(self.utxo_hash.as_ref()),
            or_empty(self.read_bytes),
            or_empty(self.written_bytes),
            or_empty(self.exit),
        ];
        fields.join(",") + "\n"
    }
}

/// Returns the sum of the rates of all links in bytes per second, at most that of the line that they share;
/// `None` if there is no limit. Links that stall are counted: a program cannot know.
fn links_rate(args: &SyncArgs) -> Option<u64> {
    let rate = |link: &super::LinkSpec| Some(link.shape?.bytes_per_second * link.count as u64);
    let sum = args.links.iter().map(rate).sum::<Option<u64>>();
    [sum, args.access].into_iter().flatten().min()
}

/// The values in the report, and how each is taken from a run.
const QUANTITIES: &[Column<Row>] = &[
    ("wall_s", "time, s", |row| Some(row.wall_s)),
    ("download_s", "to the last byte, s", |row| Some(row.download_s)),
    ("after_s", "after it, s", |row| Some(row.after_s)),
    ("mb_per_second", "blocks, MB/s", |row| Some(row.traffic.bytes? as f64 / 1e6 / row.download_s.max(1e-3))),
    ("link_share_percent", "part of the links, %", |row| Some(row.traffic.link_share? * 100.0)),
    ("cpu_s", "CPU, s", |row| Some(row.consumption.cpu_s())),
    ("peak_rss_mib", "peak memory, MiB", |row| Some(row.consumption.peak_rss_mib())),
    ("received_mb", "received, MB", |row| Some(row.traffic.received_bytes as f64 / 1e6)),
    ("beyond_percent", "beyond blocks, %", |row| row.traffic.beyond_percent()),
    ("twice_mb", "blocks twice, MB", |row| Some(row.traffic.twice_bytes? as f64 / 1e6)),
    ("read_mb", "read from disk, MB", |row| Some(row.read_bytes? as f64 / 1e6)),
    ("written_mb", "written to disk, MB", |row| Some(row.written_bytes? as f64 / 1e6)),
];

#[derive(Serialize)]
struct Summary {
    program: &'static str,
    quantities: Vec<Quantity>,
    /// Megabytes that came over the links of each `--link`, in the median run by time.
    link_mb: Vec<f64>,
    utxo_hash: Option<String>,
}

/// The result of the benchmark.
#[derive(Serialize)]
pub struct Report {
    datadir: String,
    chain: &'static str,
    links: Vec<String>,
    /// Sum of the links in bytes per second; `None` if one of them is unlimited.
    links_bytes_per_second: Option<u64>,
    runs: u32,
    args: String,
    against_args: String,
    #[serde(flatten)]
    circumstances: Circumstances,
    programs: Vec<Summary>,
    /// Time of bitcoind divided by Peregrine's, and its 95 % interval.
    ratio: Option<Ratio>,
    rows: Vec<Row>,
}

impl Report {
    pub fn new(args: &SyncArgs, circumstances: Circumstances, rows: Vec<Row>) -> Self {
        let of = |program: &str| rows.iter().filter(|row| row.program == program).collect::<Vec<_>>();
        let times = |program| of(program).iter().map(|row| row.wall_s).collect::<Vec<_>>();
        let ratio = Ratio::of(&times("bitcoind"), &times("peregrine"));
        let summary = |program| {
            let rows = of(program);
            let first = rows.first()?;
            Some(Summary {
                program,
                quantities: quantities(QUANTITIES, &rows),
                link_mb: link_mb(args, &rows),
                utxo_hash: first.utxo_hash.clone(),
            })
        };
        Self {
            datadir: args.datadir.display().to_string(),
            chain: args.chain.name(),
            links: args.links.iter().map(|link| link.text.clone()).collect(),
            links_bytes_per_second: links_rate(args),
            runs: args.runs.get(),
            args: args.program.args.clone(),
            against_args: args.against_args.clone(),
            circumstances: circumstances.end(),
            programs: ["peregrine", "bitcoind"].into_iter().filter_map(summary).collect(),
            ratio,
            rows,
        }
    }

    /// Returns the report as text.
    pub fn text(&self) -> String {
        let rate = self.links_bytes_per_second.map(|rate| format!(", {:.1} MB/s in all", rate as f64 / 1e6));
        let mut text = format!(
            "downloads of {} ({}) over {}{}, {} runs\n",
            self.datadir,
            self.chain,
            self.links.join(" "),
            rate.unwrap_or_default(),
            self.runs
        );
        text += &self.circumstances.text();
        for program in &self.programs {
            add_table(&mut text, program.program, &program.quantities);
            for (link, megabytes) in self.links.iter().zip(&program.link_mb) {
                let _ = writeln!(text, "  over {link:<30} {megabytes:>10.1} MB");
            }
            let hash = program.utxo_hash.as_deref().unwrap_or("unknown");
            let _ = writeln!(text, "  UTXO set            {hash}");
        }
        let other = std::iter::once(("bitcoind", self.ratio));
        add_comparison(&mut text, "peregrine", other, self.runs);
        text.trim_end().to_owned()
    }
}

/// Returns what came over the links of each `--link`, in megabytes, in the median run by time.
fn link_mb(args: &SyncArgs, rows: &[&Row]) -> Vec<f64> {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| a.wall_s.total_cmp(&b.wall_s));
    let Some(row) = rows.get(rows.len() / 2) else { return Vec::new() };
    let mut bytes = row.link_bytes.iter();
    let mut sum = |count| bytes.by_ref().take(count).sum::<u64>() as f64 / 1e6;
    args.links.iter().map(|link| sum(link.count)).collect()
}

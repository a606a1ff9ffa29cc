//! The measurements as CSV (one line per run), as JSON and as text.

use super::{CompareArgs, Program};
use crate::{
    circumstances::Circumstances,
    measure::{Consumption, Measured},
    rows,
    statistics::{Ratio, Spread},
    table::{Column, Quantity, add_comparison, add_table, or_empty, quantities},
};
use cli::version::commit_or_version;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;

/// One run. The fields of CSV and JSON, and their order, are stable.
#[derive(Serialize, Clone, Debug)]
pub struct Row {
    pub program: String,
    /// Commit of Peregrine's sources, or its version if that is not known, for its runs.
    pub commit: Option<&'static str>,
    pub threads: Option<u64>,
    pub cache: &'static str,
    pub run: u32,
    pub wall_s: f64,
    #[serde(flatten)]
    pub consumption: Consumption,
    pub blocks: Option<u64>,
    pub bytes: Option<u64>,
    pub utxo_hash: Option<String>,
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    /// The exit code; `None` if a signal ended the program.
    pub exit: Option<i32>,
    pub cached_percent: Option<f64>,
    /// Which scripts were run: `all`, `none` or `above HEIGHT`; `None` if it is not known.
    pub scripts: Option<String>,
}

impl Row {
    /// `answer` is the JSON that the program printed, if it printed any.
    pub fn new(
        program: String,
        cache: &'static str,
        run: u32,
        cached_percent: Option<f64>,
        measured: &Measured,
        answer: &Value,
        utxo_hash: Option<String>,
    ) -> Self {
        Self {
            commit: (program == "peregrine").then(commit_or_version),
            program,
            threads: answer["threads"].as_u64(),
            cache,
            run,
            wall_s: measured.wall.as_secs_f64(),
            consumption: Consumption::of(measured),
            blocks: answer["blocks"].as_u64(),
            bytes: answer["block_bytes"].as_u64(),
            utxo_hash,
            read_bytes: measured.io.map(|io| io.read),
            written_bytes: measured.io.map(|io| io.written),
            exit: measured.status.code(),
            cached_percent,
            scripts: None,
        }
    }
}

impl rows::Row for Row {
    /// The columns of the recorded runs, then those that only this program measures.
    const CSV_HEADER: &'static str = "program,commit,threads,cache,run,wall_s,user_s,system_s,peak_rss_kib,\
        blocks,bytes,utxo_hash,read_bytes,written_bytes,exit,cached_percent,scripts\n";

    fn program(&self) -> &str {
        &self.program
    }

    fn run(&self) -> u32 {
        self.run
    }

    fn utxo_hash(&self) -> Option<&str> {
        self.utxo_hash.as_deref()
    }

    fn csv(&self) -> String {
        let program = self.program.replace([',', '"', '\n'], "_");
        let fields = [
            program,
            or_empty(self.commit),
            or_empty(self.threads),
            self.cache.to_owned(),
            self.run.to_string(),
            format!("{:.3}", self.wall_s),
            self.consumption.csv(),
            or_empty(self.blocks),
            or_empty(self.bytes),
            or_empty(self.utxo_hash.as_ref()),
            or_empty(self.read_bytes),
            or_empty(self.written_bytes),
            or_empty(self.exit),
            or_empty(self.cached_percent.map(|percent| format!("{percent:.1}"))),
            or_empty(self.scripts.as_ref()),
        ];
        fields.join(",") + "\n"
    }

    fn text(&self) -> String {
        format!("{} {:.2} s, {}", self.program, self.wall_s, self.consumption.text())
    }
}

/// The values in the report, and how each is taken from a run.
const QUANTITIES: &[Column<Row>] = &[
    ("wall_s", "time, s", |row| Some(row.wall_s)),
    ("cpu_s", "CPU, s", |row| Some(row.consumption.cpu_s())),
    ("peak_rss_mib", "peak memory, MiB", |row| Some(row.consumption.peak_rss_mib())),
    ("read_mb", "read from disk, MB", |row| Some(row.read_bytes? as f64 / 1e6)),
    ("written_mb", "written to disk, MB", |row| Some(row.written_bytes? as f64 / 1e6)),
];

#[derive(Serialize)]
struct Summary {
    program: String,
    /// The shell command; `None` for Peregrine.
    command: Option<String>,
    quantities: Vec<Quantity>,
    /// Its time divided by that of the first program, and the 95 % interval; `None` for the first.
    ratio: Option<Ratio>,
    /// Megabytes of blocks per second, at the median time.
    mb_per_second: Option<f64>,
    utxo_hash: Option<String>,
    /// Which scripts its runs checked, if that is known.
    scripts: Option<String>,
}

/// The result of the benchmark.
#[derive(Serialize)]
pub struct Report {
    datadir: String,
    chain: &'static str,
    cache: &'static str,
    runs: u32,
    args: String,
    #[serde(flatten)]
    circumstances: Circumstances,
    programs: Vec<Summary>,
    /// With two programs: the ratio of the second.
    ratio: Option<Ratio>,
    rows: Vec<Row>,
}

impl Report {
    pub fn new(
        args: &CompareArgs,
        circumstances: Circumstances,
        programs: Vec<Program>,
        rows: Vec<Row>,
    ) -> Self {
        let mut programs: Vec<_> = programs.into_iter().map(|program| summary(program, &rows)).collect();
        let times = |name: &str| {
            rows.iter().filter(|row| row.program == name).map(|row| row.wall_s).collect::<Vec<_>>()
        };
        let first = programs.first().map(|first| times(&first.program)).unwrap_or_default();
        for program in programs.iter_mut().skip(1) {
            program.ratio = Ratio::of(&times(&program.program), &first);
        }
        let ratio = if let [_, second] = &programs[..] { second.ratio } else { None };
        Self {
            datadir: args.datadir.display().to_string(),
            chain: args.chain.name(),
            cache: args.cache(),
            runs: args.runs.get(),
            args: args.program.args.clone(),
            circumstances: circumstances.end(),
            programs,
            ratio,
            rows,
        }
    }

    /// Returns the report as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "rebuilds of {} ({}), {} cache, {} runs{}\n",
            self.datadir,
            self.chain,
            self.cache,
            self.runs,
            if self.programs.len() > 1 { " of each, in turns" } else { "" }
        );
        text += &self.circumstances.text();
        for program in &self.programs {
            add_table(&mut text, &program.program, &program.quantities);
            if let Some(rate) = program.mb_per_second {
                let _ = writeln!(text, "  {:<20}{rate:>10.0}", "blocks, MB/s");
            }
            let hash = program.utxo_hash.as_deref().unwrap_or("unknown");
            let _ = writeln!(text, "  UTXO set            {hash}");
            if let Some(scripts) = &program.scripts {
                let _ = writeln!(text, "  scripts checked     {scripts}");
            }
        }
        let first = self.programs.first().map_or("", |program| &program.program);
        let others = self.programs.iter().skip(1).map(|program| (&*program.program, program.ratio));
        add_comparison(&mut text, first, others, self.runs);
        let mut known = self.programs.iter().filter_map(|program| program.scripts.as_ref());
        if let Some(first) = known.next()
            && known.any(|other| other != first)
        {
            text += "\nthe programs did not check the same scripts, which may explain a difference\n";
        }
        text.trim_end().to_owned()
    }
}

fn summary(program: Program, rows: &[Row]) -> Summary {
    let own: Vec<&Row> = rows.iter().filter(|row| row.program == program.name).collect();
    let utxo_hash = own.iter().find_map(|row| row.utxo_hash.clone());
    // Both programs read the same blocks, but the other one may not report their size.
    let bytes = rows.iter().find(|row| row.utxo_hash == utxo_hash && row.bytes.is_some());
    let bytes = bytes.and_then(|row| row.bytes).filter(|_| utxo_hash.is_some());
    let seconds = Spread::of(&own.iter().map(|row| row.wall_s).collect::<Vec<_>>());
    let seconds = seconds.map(|spread| spread.median);
    Summary {
        mb_per_second: bytes.zip(seconds).map(|(bytes, seconds)| bytes as f64 / 1e6 / seconds.max(1e-9)),
        ratio: None,
        program: program.name,
        command: program.command,
        quantities: quantities(QUANTITIES, &own),
        scripts: own.iter().find_map(|row| row.scripts.clone()),
        utxo_hash,
    }
}

//! What all benchmarks do with their runs: a line of CSV for each, the comparison of the UTXO sets, without
//! which times mean nothing, and a report at the end.

use crate::{
    circumstances::Circumstances,
    measure::Measured,
    place::{environment, failed},
    statistics::{Ratio, Spread},
};
use clap::Args;
use cli::{
    exit::Exit,
    output::{Done, json, print_message},
    run_log::create_new,
    version::commit_or_version,
};
use engine::Error;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{
    fmt::Write as _,
    fs::File,
    io::Write as _,
    num::NonZeroU32,
    path::{Path, PathBuf},
};

/// The name of Peregrine's own runs.
pub const OURS: &str = "peregrine";
/// With fewer runs, spreads and the interval of the ratio mean little.
const FEW: u32 = 5;

/// What all benchmarks are told.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Runs of each program or variant, in turns
    #[arg(long, value_name = "N", default_value = "5")]
    pub runs: NonZeroU32,

    /// The program to measure [default: peregrine in the folder of this program]
    #[arg(long, value_name = "FILE")]
    pub peregrine: Option<PathBuf>,

    /// More arguments for its command, separated by spaces
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true)]
    #[arg(allow_hyphen_values = true)]
    pub args: String,

    /// Where copies and results go while it runs; should be on the disk that is to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub work_dir: PathBuf,

    /// Write a line per run to this new file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Measure although the machine is busy: its load average is above 0.5. The result says so
    #[arg(long)]
    pub busy: bool,

    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
}

impl BenchArgs {
    /// Returns the report in the format that the user wants.
    pub fn done<R: Serialize>(&self, report: &R, text: impl FnOnce(&R) -> String) -> Done {
        Ok((if self.json { json(report) } else { text(report) }, Exit::Done))
    }

    /// Returns the further arguments of Peregrine's command.
    pub fn further(&self) -> impl Iterator<Item = &str> {
        self.args.split_whitespace()
    }
}

/// The runs of a benchmark.
pub struct Rows {
    pub rows: Vec<Run>,
    /// The first line of the CSV: the names of the columns, with commas between them.
    columns: &'static str,
    csv: Option<(PathBuf, File)>,
}

impl Rows {
    /// Creates the file for the runs, so that nothing is measured in vain.
    pub fn new(csv: Option<&Path>, columns: &'static str) -> Result<Self, Error> {
        let create = |path: &Path| create_new(path).map(|file| (path.to_owned(), file));
        Ok(Self { rows: Vec::new(), columns, csv: csv.map(create).transpose()? })
    }

    /// Adds a run to the CSV and shows it. Fails if the run failed, or if its UTXO set is not that of the
    /// runs before.
    pub fn add(&mut self, run: Run, runs: NonZeroU32, measured: &Measured) -> Result<(), Error> {
        if let Some((path, file)) = &mut self.csv {
            let header = if self.rows.is_empty() { self.columns.to_owned() + "\n" } else { String::new() };
            writeln!(file, "{header}{}", run.csv(self.columns))
                .map_err(|error| environment("write", path, error))?;
        }
        let (program, number) = (run.program(), run.number("run").unwrap_or_default());
        print_message(&format!("run {number} of {runs}: {program} {}", run.in_words()));
        if !measured.status.success() {
            let Measured { status, messages, output, .. } = measured;
            let detail = format!("run {number} of {program} failed ({status}); it said:\n{messages}{output}");
            return Err(failed(detail.trim_end()));
        }
        let mut same = self.rows.iter().filter(|other| other.text("proposal") == run.text("proposal"));
        let known = same.find_map(|other| Some((other.program(), other.answer()?)));
        if let (Some((other, known)), Some(hash)) = (known, run.answer())
            && known != hash
        {
            return Err(failed(format!(
                "the answers differ: UTXO set {known} by {other}, {hash} by {program}; give both the same \
                 last block"
            )));
        }
        self.rows.push(run);
        Ok(())
    }
}

/// Returns the names of all programs, in the order in which they were first run.
fn programs(rows: &[Run]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in rows.iter().map(Run::program) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The columns whose values are texts, even if these are digits.
const TEXTS: [&str; 4] = ["proposal", "variant", "commit", "answer"];

/// A run of Peregrine or of another program: a value for each column of its CSV, and others.
#[derive(Serialize, Clone, Debug)]
pub struct Run(Map<String, Value>);

impl Run {
    /// Takes what is known of each run, and `more` values.
    pub fn new(program: &str, run: u32, measured: &Measured, hash: Option<String>, more: Value) -> Self {
        let mut fields = json!({
            "program": program,
            // The commit of Peregrine's sources, or its version if that is not known.
            "commit": (program == OURS).then(commit_or_version),
            "run": run,
            "wall_s": measured.wall.as_secs_f64(),
            "user_s": measured.user.as_secs_f64(),
            "system_s": measured.system.as_secs_f64(),
            "peak_rss_kib": measured.peak_rss_bytes >> 10,
            "utxo_hash": hash,
            "read_bytes": measured.read_bytes,
            "written_bytes": measured.written_bytes,
            // `None` if a signal ended the program.
            "exit": measured.status.code(),
        });
        if let (Value::Object(fields), Value::Object(mut more)) = (&mut fields, more) {
            fields.append(&mut more);
        }
        Self::of(fields)
    }

    /// Returns a run of which all is given.
    pub fn of(fields: Value) -> Self {
        Self(if let Value::Object(fields) = fields { fields } else { Map::new() })
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }

    pub fn list(&self, name: &str) -> Vec<f64> {
        let list = self.0.get(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_f64).collect()
    }

    /// Returns the name of the program, or what is measured of a proposal.
    fn program(&self) -> String {
        let text = |name| self.text(name).unwrap_or_default();
        match self.text("proposal") {
            Some(proposal) => format!("{proposal}, {}", text("variant")),
            None => text("program").to_owned(),
        }
    }

    /// Returns the hash of the UTXO set in which the run resulted, or the answer to a step, if it is known.
    pub fn answer(&self) -> Option<&str> {
        self.text("utxo_hash").or_else(|| self.text("answer"))
    }

    /// Returns a line of CSV. Unknown values are empty.
    fn csv(&self, columns: &str) -> String {
        let cell = |column: &str| match self.0.get(column) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) if text.contains([',', '"', '\n', ' ']) => {
                format!("\"{}\"", text.replace(['"', '\n'], "'"))
            }
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        columns.split(',').map(cell).collect::<Vec<_>>().join(",")
    }

    /// Reads a line of CSV. What is not in quotation marks and a number is one.
    pub fn parse(line: &str, columns: &str) -> Option<Self> {
        let (mut cells, mut is_quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => cells.push(String::new()),
                c => cells.last_mut()?.push(c),
            }
        }
        let is_complete = cells.len() == columns.split(',').count() && !is_quoted;
        let value = |(column, cell): (&str, String)| {
            let is_text = TEXTS.contains(&column);
            let value =
                if is_text { json!(cell) } else { serde_json::from_str(&cell).unwrap_or(Value::Null) };
            (column.to_owned(), value)
        };
        is_complete.then(|| Self(columns.split(',').zip(cells).map(value).collect()))
    }

    /// Summarises the run in one line.
    fn in_words(&self) -> String {
        let number = |name| self.number(name).unwrap_or_default();
        let last_byte = self.number("download_s").map(|time| format!("the last byte after {time:.2} s, "));
        let cpu = self.number("cpu_s").unwrap_or(number("user_s") + number("system_s"));
        let (last_byte, peak) = (last_byte.unwrap_or_default(), number("peak_rss_kib") / 1024.0);
        format!("{:.3} s, {last_byte}{cpu:.3} s of CPU, {peak:.0} MiB", number("wall_s"))
    }
}

/// A quantity of runs: its name in JSON, its title in text, and how it is taken from a run.
pub type Column = (&'static str, &'static str, fn(&Run) -> Option<f64>);

/// The time that is compared.
pub const WALL: Column = ("wall_s", "time, s", |run| run.number("wall_s"));
/// Other quantities of all programs.
pub const COMMON: [Column; 4] = [
    ("cpu_s", "CPU, s", |run| Some(run.number("user_s")? + run.number("system_s")?)),
    ("peak_rss_mib", "peak memory, MiB", |run| Some(run.number("peak_rss_kib")? / 1024.0)),
    ("read_mb", "read from disk, MB", |run| Some(run.number("read_bytes")? / 1e6)),
    ("written_mb", "written to disk, MB", |run| Some(run.number("written_bytes")? / 1e6)),
];

#[derive(Serialize)]
struct Quantity {
    name: &'static str,
    #[serde(skip)]
    title: &'static str,
    #[serde(flatten)]
    spread: Spread,
}

/// What is known of all runs of a program.
#[derive(Serialize)]
struct Summary {
    program: String,
    quantities: Vec<Quantity>,
    /// Its time divided by that of the first program, and the 95 % interval; `None` for the first.
    ratio: Option<Ratio>,
    utxo_hash: Option<String>,
    #[serde(flatten)]
    more: Value,
    /// Lines below the table.
    #[serde(skip)]
    lines: String,
}

/// The result of a benchmark that compares programs.
#[derive(Serialize)]
pub struct Report {
    /// What was measured.
    #[serde(flatten)]
    head: Value,
    #[serde(flatten)]
    circumstances: Circumstances,
    programs: Vec<Summary>,
    rows: Vec<Run>,
    /// The first line of the text, and what stands at its end.
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    closing: &'static str,
}

impl Report {
    /// Summarises runs. `more` returns what else is known of a program by its runs: values, and lines of
    /// text.
    pub fn new(
        title: String,
        head: Value,
        circumstances: Circumstances,
        columns: &[Column],
        rows: Vec<Run>,
        more: impl Fn(&str, &[&Run]) -> (Value, String),
        closing: &'static str,
    ) -> Self {
        let names = programs(&rows);
        let of = |name: &str| rows.iter().filter(|row| row.program() == name).collect::<Vec<_>>();
        let times = |name: &str| -> Vec<f64> {
            of(name).into_iter().filter_map(|row| row.number("wall_s")).collect()
        };
        let summary = |(at, name): (usize, &String)| {
            let own = of(name);
            let quantity = |&(name, title, of): &Column| {
                let values: Vec<f64> = own.iter().filter_map(|row| of(row)).collect();
                Some(Quantity { name, title, spread: Spread::of(&values)? })
            };
            let (more, lines) = more(name, &own);
            Summary {
                quantities: columns.iter().filter_map(quantity).collect(),
                ratio: Ratio::of(&times(name), &times(&names[0])).filter(|_| at > 0),
                utxo_hash: own.iter().find_map(|row| row.answer()).map(str::to_owned),
                program: name.clone(),
                more,
                lines,
            }
        };
        let programs = names.iter().enumerate().map(summary).collect();
        Self { title, closing, head, circumstances: circumstances.end(), programs, rows }
    }

    pub fn text(&self) -> String {
        let mut text = format!("{}\n{}", self.title, self.circumstances.text());
        for Summary { program, quantities, utxo_hash, lines, .. } in &self.programs {
            let _ = writeln!(text, "\n{program:<22}{:>10}  {:>21}  {:>21}", "median", "middle half", "all");
            for Quantity { title, spread, .. } in quantities {
                let middle = format!("{:.2} to {:.2}", spread.lower_quartile, spread.upper_quartile);
                let all = format!("{:.2} to {:.2}", spread.lowest, spread.highest);
                let _ = writeln!(text, "  {title:<20}{:>10.2}  {middle:>21}  {all:>21}", spread.median);
            }
            let hash = utxo_hash.as_deref().unwrap_or("unknown");
            let _ = writeln!(text, "{lines}  UTXO set            {hash}");
        }
        let first = self.programs.first().map_or("", |program| &program.program);
        for Summary { program, ratio, .. } in &self.programs {
            if let Some(Ratio { ratio, low, high }) = ratio {
                let _ = writeln!(
                    text,
                    "\n{program} takes {ratio:.2} times as long as {first} (95 % interval {low:.2} to \
                     {high:.2})"
                );
            }
        }
        text += few_runs(self.rows.iter().filter_map(|run| run.number("run")).fold(0.0, f64::max) as u32);
        text += self.closing;
        text.trim_end().to_owned()
    }
}

/// Returns what few runs mean; nothing if there are enough.
pub fn few_runs(runs: u32) -> &'static str {
    if runs < FEW { "\nfewer than 5 runs: spread and interval say little\n" } else { "" }
}

/// Returns a path as JSON has it.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_read_as_it_was_written() {
        let columns = "proposal,variant,commit,run,wall_s,size,answer";
        for line in ["hash,\"2-4, padded\",12,3,1.25,,\"7 hashes\"", "verify,verify,abc,1,0.5,12,00ff"] {
            let run = Run::parse(line, columns).unwrap();
            assert_eq!(run.csv(columns), line);
            assert!(run.text("commit").is_some() && run.number("wall_s").is_some());
        }
        assert!(Run::parse("hash,\"x,abc", columns).is_none() && Run::parse("a,b", columns).is_none());
    }
}

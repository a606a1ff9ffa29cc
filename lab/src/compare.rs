//! `peregrine-bench reindex`: rebuilds by Peregrine and by another program on the same blocks, in turns,
//! measured so that others can repeat it. `docs/benchmarks.md` explains the columns.

mod scripts;

use crate::{
    measure::{Bench, add_datadir, output, stored_height, utxo_hash},
    place::{self, Copy, copy_blocks, environment, failed},
    runs::{BenchArgs, COMMON, OURS, Report, Run, WALL, shown},
    statistics::median,
};
use clap::Args as ClapArgs;
use cli::output::{Done, print_message};
use disk::datadir::Datadir;
use engine::{Disk as _, Error, ErrorKind, HumanSize, Network, RealDisk};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
};

/// The columns of the CSV: those of the recorded runs, then those that only this program measures.
const COLUMNS: &str = "program,commit,threads,cache,run,wall_s,user_s,system_s,peak_rss_kib,blocks,bytes,\
    utxo_hash,read_bytes,written_bytes,exit,cached_percent,scripts";

#[derive(ClapArgs, Debug)]
pub struct CompareArgs {
    /// Bitcoin Core's data directory
    #[arg(long, value_name = "DIR")]
    pub datadir: PathBuf,

    /// Network, by Core's names
    #[arg(long, default_value_t = Network::Main)]
    pub chain: Network,

    /// Measure this shell command too, under this name; can be given repeatedly. {datadir} becomes a copy of
    /// the datadir that it may write to, {height} the height of the last stored block, {run} the number of
    /// the run
    #[arg(long, value_name = "[NAME=]COMMAND")]
    pub against: Vec<Against>,

    /// Run this shell command before each run of a command of --against, without measuring it, such as one
    /// that syncs to block 1; it has the same placeholders
    #[arg(long, value_name = "COMMAND", requires = "against")]
    pub prepare: Option<String>,

    /// Measure only the commands of --against, the first of which is what others are compared with
    #[arg(long, requires = "against")]
    pub no_peregrine: bool,

    /// Drop the block files from the page cache before each run; otherwise they are read once
    #[arg(long)]
    pub cold: bool,

    #[command(flatten)]
    pub bench: BenchArgs,
}

impl CompareArgs {
    fn cache(&self) -> &'static str {
        if self.cold { "cold" } else { "warm" }
    }
}

/// Measures the programs in turns, and returns the report.
pub fn run(args: &CompareArgs) -> Done {
    let programs = programs(args)?;
    let bench = Bench::begin(&args.bench, args.bench.csv.as_deref(), COLUMNS)?;
    let mut comparison = Comparison::new(args, bench)?;
    for run in 1..=args.bench.runs.get() {
        for program in &programs {
            comparison.once(run, program)?;
        }
    }
    args.bench.done(&report(args, comparison.bench, &programs), Report::text)
}

/// Summarises the runs of all programs.
fn report(args: &CompareArgs, bench: Bench, programs: &[Against]) -> Report {
    let (datadir, chain, cache) = (shown(&args.datadir), args.chain.name(), args.cache());
    let (rows, runs) = (bench.rows.rows, args.bench.runs);
    let turns = if programs.len() > 1 { " of each, in turns" } else { "" };
    let title = format!("rebuilds of {datadir} ({chain}), {cache} cache, {runs} runs{turns}");
    let head = json!({
        "datadir": datadir, "chain": chain, "cache": cache, "runs": runs, "args": args.bench.args,
    });
    let all = rows.clone();
    let kinds: Vec<&str> = rows.iter().filter_map(|run| run.text("scripts")).collect();
    let differ = kinds.iter().any(|kind| kind != &kinds[0]);
    let note = "\nthe programs did not check the same scripts, which may explain a difference\n";
    let more = |name: &str, own: &[&Run]| {
        let known = |field: &str| own.iter().find_map(|run| run.text(field)).map(str::to_owned);
        // All programs read the same blocks, but not all of them report their size.
        let has_size = |run: &&Run| run.answer() == own[0].answer() && run.answer().is_some();
        let bytes = all.iter().filter(has_size).find_map(|run| run.number("bytes"));
        let times: Vec<f64> = own.iter().filter_map(|run| run.number("wall_s")).collect();
        let seconds = median(&times).map_or(f64::NAN, |median| median.max(1e-9));
        let rate = bytes.map(|bytes| bytes / 1e6 / seconds);
        let mut lines = rate.map_or(String::new(), |rate| format!("  {:<20}{rate:>10.0}\n", "blocks, MB/s"));
        let scripts = known("scripts");
        lines.extend(scripts.iter().map(|scripts| format!("  scripts checked     {scripts}\n")));
        let command = programs.iter().find(|program| program.name == name);
        let command = command.and_then(|program| program.command.clone());
        (json!({ "command": command, "mb_per_second": rate, "scripts": scripts }), lines)
    };
    let columns = [&[WALL][..], &COMMON].concat();
    let closing = if differ { note } else { "" };
    Report::new(title, head, bench.circumstances, &columns, rows, more, closing)
}

/// A program to measure, and its name in reports.
#[derive(Clone, PartialEq, Debug)]
pub struct Against {
    name: String,
    /// The shell command with its placeholders; `None` for Peregrine's reindex.
    command: Option<String>,
}

impl FromStr for Against {
    type Err = String;

    /// Parses `NAME=COMMAND` or `COMMAND`. A word in capitals before the first equals sign is a variable of
    /// the command's environment, as in a shell.
    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |name: &str| {
            let is_part = |c: char| c.is_alphanumeric() || "-_.+@".contains(c);
            name.chars().all(is_part) && name.contains(|c: char| !c.is_ascii_uppercase() && c != '_')
        };
        let named = text.split_once('=').filter(|(name, _)| is_name(name));
        let (name, command) =
            named.map_or_else(|| (program_name(text), text), |(name, rest)| (name.to_owned(), rest));
        if !command.contains("{datadir}") {
            return Err("it must say {datadir} where the command takes its data directory".to_owned());
        }
        if name == OURS {
            return Err(format!("the name {OURS} is that of this program"));
        }
        Ok(Self { name, command: Some(command.to_owned()) })
    }
}

/// Returns the programs to compare, in the order of their turns.
fn programs(args: &CompareArgs) -> Result<Vec<Against>, Error> {
    let ours = (!args.no_peregrine).then(|| Against { name: OURS.to_owned(), command: None });
    let programs: Vec<_> = ours.into_iter().chain(args.against.iter().cloned()).collect();
    for (at, Against { name, .. }) in programs.iter().enumerate() {
        if programs.iter().take(at).any(|other| other.name == *name) {
            let detail = format!("two commands are called {name}; name them with --against NAME=COMMAND");
            return Err(Error::new(ErrorKind::Usage, detail));
        }
    }
    Ok(programs)
}

struct Comparison<'a> {
    args: &'a CompareArgs,
    bench: Bench,
    /// Height of the last stored block, if a command asks for it.
    height: Option<u64>,
    /// What all programs rebuild from.
    datadir: PathBuf,
    copy: Option<Copy>,
}

impl<'a> Comparison<'a> {
    /// Checks that there are blocks and enough disk space, and copies the blocks for other programs.
    fn new(args: &'a CompareArgs, bench: Bench) -> Result<Self, Error> {
        let (blocks, work_dir) = (Datadir::at(&args.datadir, args.chain).blocks_dir(), &args.bench.work_dir);
        let bytes = place::files(&blocks).and_then(|files| place::bytes(&files));
        let bytes = bytes.map_err(|error| environment("read the blocks", &blocks, error))?;
        // On every public network, the chainstate is at most an eighth of the blocks.
        let results = (bytes / 8).max(64 << 20);
        let needed = if !args.against.is_empty() { bytes + 2 * results } else { results };
        let free = RealDisk.free_space(work_dir);
        let free = free.map_err(|error| environment("look at the disk of", work_dir, error))?;
        print_message(&format!(
            "needs about {} of the {} free in {}",
            HumanSize(needed),
            HumanSize(free),
            work_dir.display()
        ));
        if free < needed {
            let detail = "too little free disk; name another place with --work-dir";
            return Err(failed(detail).in_file(work_dir, None));
        }
        let commands =
            args.against.iter().filter_map(|against| against.command.as_ref()).chain(&args.prepare);
        let asks_height = commands.into_iter().any(|command| command.contains("{height}"));
        let height = || stored_height(&bench.peregrine, args.chain, &args.datadir);
        let height = asks_height.then(height).transpose()?;
        let (mut datadir, mut copy) = (args.datadir.clone(), None);
        if !args.against.is_empty() {
            datadir = bench.scratch.path().join("datadir");
            copy = Some(copy_blocks(&args.datadir, args.chain, &datadir)?);
        }
        Ok(Self { args, bench, height, datadir, copy })
    }

    /// Measures one run of one program: restores the copy, prepares the cache, runs the program, and compares
    /// its UTXO set.
    fn once(&mut self, run: u32, program: &Against) -> Result<(), Error> {
        if let Some(copy) = &mut self.copy {
            copy.restore().map_err(|error| environment("put right the copy in", &self.datadir, error))?;
        }
        let results = self.bench.scratch.path().join("output");
        if results.exists() {
            fs::remove_dir_all(&results).map_err(|error| environment("empty", &results, error))?;
        }
        let mut command = match &program.command {
            None => {
                let mut command = Command::new(&self.bench.peregrine);
                command.args(["reindex", "--progress", "none"]);
                add_datadir(&mut command, self.args.chain, &self.datadir);
                command.arg("--output").arg(results).args(self.args.bench.further());
                command
            }
            Some(line) => {
                if let Some(line) = &self.args.prepare {
                    output(&mut self.shell(run, line), "prepare a run")?;
                }
                self.shell(run, line)
            }
        };
        let cached = self.prepare_cache()?;
        let measured = self.bench.measure(&mut command)?;
        let answer: Value = serde_json::from_str(&measured.output).unwrap_or(Value::Null);
        let hash = match (&program.command, answer["hash_serialized_3"].as_str()) {
            (_, Some(hash)) => Some(hash.to_owned()),
            (Some(_), None) if measured.status.success() => {
                utxo_hash(&self.bench.peregrine, self.args.chain, &self.datadir)?
            }
            _ => None,
        };
        let scripts = match program.command {
            None => scripts::of_answer(&answer),
            Some(_) => scripts::of_log(&self.source().net_dir().join("debug.log")),
        };
        let more = json!({
            "threads": answer["threads"], "cache": self.args.cache(), "blocks": answer["blocks"],
            "bytes": answer["block_bytes"], "cached_percent": cached, "scripts": scripts,
        });
        let row = Run::new(&program.name, run, &measured, hash, more);
        self.bench.rows.add(row, self.args.bench.runs, &measured)
    }

    /// The datadir from which programs rebuild.
    fn source(&self) -> Datadir {
        Datadir::at(&self.datadir, self.args.chain)
    }

    /// Returns a shell with this command, whose placeholders are replaced.
    fn shell(&self, run: u32, line: &str) -> Command {
        let height = self.height.map_or(String::new(), |height| height.to_string());
        let line = line.replace("{height}", &height).replace("{run}", &run.to_string());
        let mut command = Command::new("sh");
        command.arg("-c").arg(line.replace("{datadir}", &quoted(&self.datadir)));
        command
    }

    /// Prepares the page cache; returns the share of the pages that is in it, in percent.
    fn prepare_cache(&self) -> Result<Option<f64>, Error> {
        let blocks = self.source().blocks_dir();
        let prepare =
            |files: &[PathBuf]| if self.args.cold { place::evict(files) } else { place::warm(files) };
        let files = place::files(&blocks).and_then(|files| prepare(&files).map(|()| files));
        let files = files.map_err(|error| environment("prepare the page cache for", &blocks, error))?;
        let cached = place::cached_percent(&files);
        let state = cached.map_or("an unknown share".to_owned(), |percent| format!("{percent:.0} %"));
        if self.args.cold && cached.is_none_or(|percent| percent >= 1.0) {
            print_message(&format!("note: not surely cold: {state} of the pages is still in the page cache"));
        } else if !self.args.cold && cached.is_none_or(|percent| percent <= 99.0) {
            print_message(&format!("note: not surely warm: {state} of the pages is in the page cache"));
        }
        Ok(cached)
    }
}

/// Returns the name of a shell command that has been given none: the file name of its first word, unless that
/// is `peregrine`.
fn program_name(command: &str) -> String {
    let word = command.split_whitespace().find(|word| !word.contains('=')).unwrap_or("command");
    let name = word.trim_matches(['\'', '"']).rsplit('/').next().unwrap_or(word);
    if name == OURS { "against".to_owned() } else { name.to_owned() }
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_names() {
        assert_eq!(program_name("A=1 bin/bitcoind -datadir={datadir}"), "bitcoind");
        assert_eq!(program_name("'other/peregrine' reindex"), "against");
        assert_eq!(program_name(""), "command");
    }

    #[test]
    fn a_name_is_before_the_first_equals_sign_unless_it_is_a_variable() {
        let parsed = |text: &str| text.parse::<Against>().map(|Against { name, command }| (name, command));
        let known = |name: &str, command: &str| Ok((name.to_owned(), Some(command.to_owned())));
        assert_eq!(parsed("v30.0=bitcoind {datadir}"), known("v30.0", "bitcoind {datadir}"));
        assert_eq!(parsed("head=A=1 bitcoind {datadir}"), known("head", "A=1 bitcoind {datadir}"));
        for unnamed in
            ["A_B=1 bitcoind {datadir}", "bitcoind -datadir={datadir}", "bin/bitcoind -d={datadir}"]
        {
            let (name, command) = parsed(unnamed).unwrap();
            assert!(name.starts_with("bitcoind"), "{name}: {command:?}");
            assert!(command.as_deref() == Some(unnamed), "{name}: {command:?}");
        }
        assert!(parsed("a=true").unwrap_err().contains("{datadir}"));
        assert!(parsed("peregrine=x {datadir}").is_err());
    }

    #[test]
    fn a_shell_takes_a_quoted_path_for_one_word() {
        let line = format!("printf %s {}", quoted(Path::new("it's $HOME")));
        assert_eq!(Command::new("sh").arg("-c").arg(line).output().unwrap().stdout, b"it's $HOME");
    }
}

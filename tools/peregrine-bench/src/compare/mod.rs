//! `peregrine-bench reindex`: rebuilds by Peregrine and by another program on the same blocks, in turns,
//! measured so that others can repeat it. `docs/benchmarks.md` explains the columns.

mod report;

use crate::{
    measure::{Measured, add_datadir, find_program, measure, utxo_hash},
    place::{self, Copy, Scratch, copy_blocks, environment},
};
use clap::Args as ClapArgs;
use cli::{
    exit::Exit,
    output::{Done, json, print_message},
    run_log::create_new,
    stop::{self, interrupt},
};
use engine::{Disk as _, Error, ErrorKind, Network, RealDisk, Stage};
use report::{Report, Row, csv_row};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::Write,
    num::NonZeroU32,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

#[derive(ClapArgs, Debug)]
pub struct CompareArgs {
    /// Bitcoin Core's data directory
    #[arg(long, value_name = "DIR")]
    pub datadir: PathBuf,

    /// Network, by Core's names
    #[arg(long, default_value_t = Network::Main)]
    pub chain: Network,

    /// Runs of each program, in turns
    #[arg(long, value_name = "N", default_value = "5")]
    pub runs: NonZeroU32,

    /// Measure this shell command too; {datadir} becomes a copy of the datadir that it may write to
    #[arg(long, value_name = "COMMAND")]
    pub against: Option<String>,

    /// The program to measure [default: peregrine in the folder of this program]
    #[arg(long, value_name = "FILE")]
    pub peregrine: Option<PathBuf>,

    /// More arguments for its reindex, separated by spaces
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true)]
    #[arg(allow_hyphen_values = true)]
    pub args: String,

    /// Drop the block files from the page cache before each run
    #[arg(long, conflicts_with = "warm")]
    pub cold: bool,

    /// Read the block files once before each run (the default)
    #[arg(long)]
    pub warm: bool,

    /// Where copies and results go while it runs; should be on the disk that is to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub work_dir: PathBuf,

    /// Write a line per run to this new file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
}

impl CompareArgs {
    fn cache(&self) -> &'static str {
        if self.cold { "cold" } else { "warm" }
    }
}

/// Measures the programs in turns, and returns the report.
pub fn run(args: &CompareArgs) -> Done {
    if args.against.as_ref().is_some_and(|command| !command.contains("{datadir}")) {
        let detail = "--against must say {datadir} where the command takes its data directory";
        return Err(Error::new(ErrorKind::Usage, detail));
    }
    let interrupt = interrupt(args.json)?;
    // An interrupt must end the measured program first.
    stop::at_stage(Stage::Read);
    let csv = args.csv.as_deref().map(create_new).transpose()?;
    let mut bench = Comparison::new(args, csv, &interrupt)?;
    for run in 1..=args.runs.get() {
        for program in 0..bench.programs.len() {
            bench.once(run, program)?;
        }
    }
    let report = Report::new(args, bench.programs, bench.rows);
    Ok((if args.json { json(&report) } else { report.text() }, Exit::Done))
}

/// One of the programs to compare.
struct Program {
    name: String,
    /// The shell command, with `{datadir}` for its data directory; `None` for Peregrine's reindex.
    command: Option<String>,
}

struct Comparison<'a> {
    args: &'a CompareArgs,
    interrupt: &'a AtomicBool,
    csv: Option<File>,
    /// The executable of Peregrine.
    program: PathBuf,
    programs: Vec<Program>,
    /// What all programs rebuild from.
    datadir: PathBuf,
    copy: Option<Copy>,
    rows: Vec<Row>,
    // Dropped last: all of the above may be in it.
    scratch: Scratch,
}

impl<'a> Comparison<'a> {
    /// Checks that there are blocks and enough disk space, and creates a scratch directory.
    fn new(args: &'a CompareArgs, csv: Option<File>, interrupt: &'a AtomicBool) -> Result<Self, Error> {
        let folder = Path::new(args.chain.subdirectory().unwrap_or("")).join("blocks");
        let blocks = args.datadir.join(&folder);
        let files = place::files(&blocks).map_err(|error| environment("read the blocks", &blocks, error))?;
        let bytes = place::bytes(&files).map_err(|error| environment("read the blocks", &blocks, error))?;
        // On every public network, the chainstate is at most an eighth of the blocks.
        let results = (bytes / 8).max(64 << 20);
        let needed = if args.against.is_some() { bytes + 2 * results } else { results };
        let free = RealDisk
            .free_space(&args.work_dir)
            .map_err(|error| environment("look at the disk of", &args.work_dir, error))?;
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        print_message(&format!(
            "needs about {} MiB of the {} MiB free in {}",
            mib(needed),
            mib(free),
            args.work_dir.display()
        ));
        if free < needed {
            let detail = "too little free disk; name another place with --work-dir";
            return Err(Error::new(ErrorKind::Environment, detail).in_file(&args.work_dir, None));
        }
        let work_dir = fs::canonicalize(&args.work_dir);
        let scratch = work_dir.and_then(|folder| Scratch::new(&folder));
        let scratch = scratch.map_err(|error| environment("make a folder in", &args.work_dir, error))?;
        let program = find_program(args.peregrine.as_deref())?;
        let mut programs = vec![Program { name: "peregrine".to_owned(), command: None }];
        let (mut datadir, mut copy) = (args.datadir.clone(), None);
        if let Some(command) = &args.against {
            programs.push(Program { name: program_name(command), command: Some(command.clone()) });
            datadir = scratch.0.join("datadir");
            copy = Some(copy_blocks(&args.datadir, &folder, &datadir)?);
        }
        Ok(Self { args, interrupt, csv, program, programs, datadir, copy, rows: Vec::new(), scratch })
    }

    /// Measures one run of one program: restores the copy, prepares the cache, runs the program, and compares
    /// its UTXO set.
    fn once(&mut self, run: u32, program: usize) -> Result<(), Error> {
        if let Some(copy) = &mut self.copy {
            copy.restore().map_err(|error| environment("put right the copy in", &self.datadir, error))?;
        }
        let output = self.scratch.0.join("output");
        if output.exists() {
            fs::remove_dir_all(&output).map_err(|error| environment("empty", &output, error))?;
        }
        let cached = self.prepare_cache()?;
        let measured = self.measure(program, &output)?;
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(Error::interrupted());
        }
        let answer: Value = serde_json::from_str(&measured.output).unwrap_or(Value::Null);
        let ok = measured.status.success();
        let hash = match (&self.programs[program].command, answer["hash_serialized_3"].as_str()) {
            (_, Some(hash)) => Some(hash.to_owned()),
            (Some(_), None) if ok => utxo_hash(&self.program, self.args.chain, &self.datadir)
                .map_err(|error| environment("look at", &self.datadir, error))?,
            _ => None,
        };
        let name = self.programs[program].name.clone();
        let row = Row::new(name, self.args.cache(), run, cached, &measured, &answer, hash);
        if let Some(csv) = &mut self.csv {
            let header = if self.rows.is_empty() { report::CSV_HEADER } else { "" };
            write!(csv, "{header}{}", csv_row(&row)).map_err(|error| {
                environment("write", self.args.csv.as_deref().unwrap_or(Path::new("")), error)
            })?;
        }
        print_message(&format!("run {run} of {}: {}", self.args.runs, row.text()));
        if !ok {
            return Err(failed(&row, &measured));
        }
        let first = self.rows.iter().find_map(|row| Some((&row.program, row.utxo_hash.as_ref()?)));
        if let (Some((program, first)), Some(hash)) = (first, &row.utxo_hash)
            && first != hash
        {
            let detail = format!(
                "the answers differ: UTXO set {first} by {program}, {hash} by {}; give both the same \
                 last block",
                row.program
            );
            return Err(Error::new(ErrorKind::Environment, detail));
        }
        self.rows.push(row);
        Ok(())
    }

    /// Prepares the page cache; returns the share of the pages that is in it, in percent.
    fn prepare_cache(&self) -> Result<Option<f64>, Error> {
        let blocks = self.datadir.join(self.args.chain.subdirectory().unwrap_or("")).join("blocks");
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

    fn measure(&self, program: usize, output: &Path) -> Result<Measured, Error> {
        let mut command = match &self.programs[program].command {
            None => {
                let mut command = Command::new(&self.program);
                command.args(["reindex", "--progress", "none"]);
                add_datadir(&mut command, self.args.chain, &self.datadir);
                command.arg("--output").arg(output).args(self.args.args.split_whitespace());
                command
            }
            Some(line) => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(line.replace("{datadir}", &quoted(&self.datadir)));
                command
            }
        };
        measure(&mut command, &self.scratch.0, self.interrupt)
            .map_err(|error| Error::new(ErrorKind::Environment, format!("cannot run a program: {error}")))
    }
}

/// Returns the name of a shell command in reports: the file name of its first word, unless that is
/// `peregrine`.
fn program_name(command: &str) -> String {
    let word = command.split_whitespace().find(|word| !word.contains('=')).unwrap_or("command");
    let name = word.trim_matches(['\'', '"']).rsplit('/').next().unwrap_or(word);
    if name == "peregrine" { "against".to_owned() } else { name.to_owned() }
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

fn failed(row: &Row, measured: &Measured) -> Error {
    let detail = format!(
        "run {} of {} failed ({}); it said:\n{}{}",
        row.run, row.program, measured.status, measured.messages, measured.output
    );
    Error::new(ErrorKind::Environment, detail.trim_end())
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
    fn a_shell_takes_a_quoted_path_for_one_word() {
        let line = format!("printf %s {}", quoted(Path::new("it's $HOME")));
        assert_eq!(Command::new("sh").arg("-c").arg(line).output().unwrap().stdout, b"it's $HOME");
    }
}

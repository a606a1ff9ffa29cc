//! What all benchmarks do with their runs: a line of CSV for each, the comparison of the UTXO sets, without
//! which times mean nothing, and a report at the end.

use crate::{hyperfine::Results, measure::Measured, place::environment};
use clap::Args;
use cli::{
    exit::Exit,
    output::{Done, json, print_message},
    run_log::create_new,
};
use engine::{Error, ErrorKind};
use serde::Serialize;
use std::{fs::File, io::Write, num::NonZeroU32, path::PathBuf};

/// Where copies and results go.
#[derive(Args, Clone, Debug)]
pub struct OutputArgs {
    /// Where copies and results go while it runs; should be on the disk that is to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub work_dir: PathBuf,

    /// Write a line per run to this new file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write the times to this new file, in the format of hyperfine's --export-json
    #[arg(long, value_name = "FILE")]
    pub export_json: Option<PathBuf>,

    /// Measure although the machine is busy: its load average is above 0.5. The result says so
    #[arg(long)]
    pub busy: bool,

    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
}

impl OutputArgs {
    /// Returns the report in the format that the user wants.
    pub fn done<R: Serialize>(&self, report: &R, text: impl FnOnce(&R) -> String) -> Done {
        Ok((if self.json { json(report) } else { text(report) }, Exit::Done))
    }
}

/// A measured run of a program.
pub trait Row {
    /// The names of the columns of [`Self::csv`], and a newline.
    const CSV_HEADER: &'static str;

    /// Returns the name of the program.
    fn program(&self) -> &str;
    /// Returns the proposal that the run measures, if the benchmark measures proposals. The programs of one
    /// proposal have the same answer.
    fn proposal(&self) -> Option<&str> {
        None
    }
    /// Returns the number of the run, from 1.
    fn run(&self) -> u32;
    /// Returns the hash of the UTXO set in which the run resulted, if it is known.
    fn utxo_hash(&self) -> Option<&str>;
    /// Returns a line of CSV. Unknown values are empty.
    fn csv(&self) -> String;
    /// Summarises the run in one line.
    fn text(&self) -> String;
}

/// The runs of a benchmark.
pub struct Rows<R> {
    rows: Vec<R>,
    csv: Option<(PathBuf, File)>,
    export: Option<(PathBuf, File)>,
    results: Results,
}

impl<R: Row> Rows<R> {
    /// Creates the files for the runs, so that nothing is measured in vain.
    pub fn new(args: &OutputArgs) -> Result<Self, Error> {
        let create = |path: &Option<PathBuf>| {
            path.as_ref().map(|path| create_new(path).map(|file| (path.clone(), file))).transpose()
        };
        let (csv, export) = (create(&args.csv)?, create(&args.export_json)?);
        Ok(Self { rows: Vec::new(), csv, export, results: Results::default() })
    }

    /// Returns the runs so far.
    pub fn rows(&self) -> &[R] {
        &self.rows
    }

    /// Writes the times of all runs, if the user wants them, and returns the runs.
    pub fn finish(self) -> Result<Vec<R>, Error> {
        if let Some((path, mut file)) = self.export {
            let text = json(&self.results) + "\n";
            file.write_all(text.as_bytes()).map_err(|error| environment("write", &path, error))?;
        }
        Ok(self.rows)
    }

    /// Adds a run to the CSV and shows it. Fails if the run failed, or if its UTXO set is not that of the
    /// runs before.
    pub fn add(&mut self, row: R, runs: NonZeroU32, measured: &Measured) -> Result<(), Error> {
        if let Some((path, file)) = &mut self.csv {
            let header = if self.rows.is_empty() { R::CSV_HEADER } else { "" };
            write!(file, "{header}{}", row.csv()).map_err(|error| environment("write", path, error))?;
        }
        print_message(&format!("run {} of {runs}: {}", row.run(), row.text()));
        if !measured.status.success() {
            let detail = format!(
                "run {} of {} failed ({}); it said:\n{}{}",
                row.run(),
                row.program(),
                measured.status,
                measured.messages,
                measured.output
            );
            return Err(Error::new(ErrorKind::Environment, detail.trim_end()));
        }
        let mut same = self.rows.iter().filter(|other| other.proposal() == row.proposal());
        let known = same.find_map(|row| Some((row.program(), row.utxo_hash()?)));
        if let (Some((program, known)), Some(hash)) = (known, row.utxo_hash())
            && known != hash
        {
            let detail = format!(
                "the answers differ: UTXO set {known} by {program}, {hash} by {}; give both the same last \
                 block",
                row.program()
            );
            return Err(Error::new(ErrorKind::Environment, detail));
        }
        self.results.add(row.program(), row.proposal(), measured);
        self.rows.push(row);
        Ok(())
    }
}

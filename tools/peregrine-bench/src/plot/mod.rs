//! `peregrine-bench plot`: logs of rebuilds as one self-contained HTML page, and their numbers as CSV.

mod chart;
mod charts;
mod core_log;
mod input;
mod log;
mod numbers;
pub mod page;
pub mod tables;
pub mod text;

use crate::{hyperfine::Timing, place::environment};
use clap::Args as ClapArgs;
use cli::{exit::Exit, output::Done, run_log::create_new};
use engine::{Error, ErrorKind};
use input::Inputs;
use log::{Series, Writer};
use std::{
    fmt::Write as _,
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
};

/// Number of colours that the page has.
const STYLES: usize = 6;
/// Blocks below this height are small, so that long chains are compared above it.
const SMALL_BLOCKS: u32 = 400_000;

#[derive(ClapArgs, Debug)]
pub struct PlotArgs {
    /// Logs: of reindex --log, or Bitcoin Core's debug.log; or results of hyperfine's --export-json
    #[arg(required = true, value_name = "[LABEL=]FILE")]
    pub files: Vec<PathBuf>,

    /// The page to write
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,

    /// The numbers to write [default: beside the page]
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Overwrite files that this command has not written, too
    #[arg(long)]
    pub force: bool,

    /// The log, or without logs the result, that others are compared with, from 1 [default: the first of
    /// Bitcoin Core's, else the first]
    #[arg(long, value_name = "N")]
    pub baseline: Option<usize>,

    /// Compare from this height on [default: 400000 if the chain is longer, else 0]
    #[arg(long, value_name = "N")]
    pub from_height: Option<u32>,
}

/// The contents of a page.
pub struct Plot {
    series: Vec<Series>,
    timings: Vec<Timing>,
    /// Index into `series`, or into `timings` if there are no logs.
    baseline: usize,
    from_height: u32,
    csv: String,
    csv_name: String,
}

impl Plot {
    /// Returns the logs that are compared with the baseline.
    fn others(&self) -> impl Iterator<Item = (usize, &Series)> {
        self.series.iter().enumerate().filter(|(index, _)| *index != self.baseline)
    }

    /// Returns the colour of a log or a result: the first is for the baseline.
    fn style(&self, at: usize) -> usize {
        let is_alone = self.series.len().max(self.timings.len()) == 1;
        let style = if at == self.baseline && !is_alone {
            0
        } else {
            at + usize::from(at < self.baseline || is_alone)
        };
        style % STYLES
    }
}

/// Reads the logs, writes the page and the CSV, and returns a summary.
pub fn run(args: &PlotArgs) -> Done {
    let csv_path = args.csv.clone().unwrap_or_else(|| args.output.with_extension("csv"));
    for path in [&args.output, &csv_path] {
        exists(path, args.force)?;
    }
    let Inputs { series, timings } = input::read(&args.files)?;
    if series.len() > STYLES {
        let detail = format!("{} logs: at most {STYLES} fit one page", series.len());
        return Err(Error::new(ErrorKind::Usage, detail));
    }
    let compared = if series.is_empty() { timings.len() } else { series.len() };
    if args.baseline.is_some_and(|baseline| baseline == 0 || baseline > compared) {
        let detail = format!("--baseline must be from 1 to {compared}, the number of logs or results");
        return Err(Error::new(ErrorKind::Usage, detail));
    }
    let core = || series.iter().position(|series| series.writer == Some(Writer::Core));
    let baseline = args.baseline.map(|number| number - 1).or_else(core).unwrap_or(0);
    let is_long = series.iter().any(|series| series.height() > SMALL_BLOCKS);
    let from_height = args.from_height.unwrap_or(if is_long { SMALL_BLOCKS } else { 0 });
    let csv = numbers::csv(&series);
    let csv_name = csv_path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let plot = Plot { series, timings, baseline, from_height, csv, csv_name };
    write(&args.output, args.force, &page::page(&plot))?;
    let mut text = format!("wrote {}", args.output.display());
    if !plot.series.is_empty() {
        write(&csv_path, args.force, &plot.csv)?;
        let _ = write!(text, " and {}", csv_path.display());
    }
    for series in &plot.series {
        let _ = write!(text, "\n{}", found(series));
    }
    for timing in &plot.timings {
        let _ = write!(text, "\n{}: {}", timing.command, text::duration(timing.seconds()));
    }
    Ok((text, Exit::Done))
}

fn found(series: &Series) -> String {
    let bad = match series.bad_lines {
        0 => String::new(),
        lines => format!("; {lines} bad lines skipped"),
    };
    format!("{}: {} points, up to height {}{bad}", series.name, series.points.len(), series.height())
}

/// Returns whether a file exists. Without `force`, one that exists must be one that this command has written.
pub fn exists(path: &Path, force: bool) -> Result<bool, Error> {
    let exists = path.try_exists().map_err(|error| environment("look at", path, error))?;
    if exists && !force && !is_ours(path).map_err(|error| environment("read", path, error))? {
        let detail = "exists, and is not of this command; give --force to overwrite it, or name another file";
        return Err(Error::new(ErrorKind::Environment, detail).in_file(path, None));
    }
    Ok(exists)
}

/// Returns whether a file is a page or a table of this command.
fn is_ours(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    engine::open_regular(path)?.take(1024).read_to_end(&mut start)?;
    let start = String::from_utf8_lossy(&start);
    let mark = format!("<meta name=\"generator\" content=\"{}\">", page::GENERATOR);
    Ok(start.contains(&mark) || start.starts_with(numbers::COLUMNS))
}

/// Writes a file, which [`exists`] has allowed.
pub fn write(path: &Path, force: bool, text: &str) -> Result<(), Error> {
    let file = if exists(path, force)? {
        File::create(path).map_err(|error| environment("write", path, error))
    } else {
        create_new(path)
    };
    file?.write_all(text.as_bytes()).map_err(|error| environment("write", path, error))
}

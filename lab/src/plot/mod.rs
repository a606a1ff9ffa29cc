//! `peregrine-bench plot`: logs of rebuilds as one self-contained HTML page, and their numbers as CSV.

mod chart;
mod charts;
mod core_log;
mod input;
mod log;
mod page;
mod series;

use crate::{
    page::{MARK, STYLES, exists, write},
    table::or_empty,
    text::duration,
};
use clap::Args as ClapArgs;
use cli::{exit::Exit, output::Done};
use engine::{Error, ErrorKind};
use series::Series;
use std::{fmt::Write as _, path::PathBuf};

/// Blocks below this height are small, so that long chains are compared above it.
const SMALL_BLOCKS: u32 = 400_000;
/// The names of the columns of the CSV.
const COLUMNS: &str = "log,seconds,height,bytes,transactions,cache_bytes,cache_coins,memory_bytes";

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
    /// Logs first, then results.
    series: Vec<Series>,
    /// Number of logs.
    logs: usize,
    /// Index into `series`, among those that are compared.
    baseline: usize,
    from_height: u32,
    csv: String,
    csv_name: String,
}

impl Plot {
    /// Returns what the headline compares: the logs, or without logs the results.
    fn compared(&self) -> &[Series] {
        if self.logs == 0 { &self.series } else { &self.series[..self.logs] }
    }

    /// Returns those that are compared with the baseline.
    fn others(&self) -> impl Iterator<Item = &Series> {
        let all = self.compared().iter().enumerate();
        all.filter(|(at, _)| *at != self.baseline).map(|(_, series)| series)
    }

    fn has_same_height(&self) -> bool {
        self.compared().windows(2).all(|pair| pair[0].height() == pair[1].height())
    }

    /// Returns the colour of a log or a result: the first is for the baseline.
    fn style(&self, at: usize) -> usize {
        match at {
            at if at == self.baseline && self.series.len() > 1 => 0,
            at => (at + usize::from(at <= self.baseline)) % STYLES,
        }
    }
}

/// Reads the logs, writes the page and the CSV, and returns a summary.
pub fn run(args: &PlotArgs) -> Done {
    let csv_path = args.csv.clone().unwrap_or_else(|| args.output.with_extension("csv"));
    exists(&args.output, MARK, args.force)?;
    exists(&csv_path, COLUMNS, args.force)?;
    let (series, logs) = input::read(&args.files)?;
    let usage = |detail| Err(Error::new(ErrorKind::Usage, detail));
    if logs > STYLES {
        return usage(format!("{logs} logs: at most {STYLES} fit one page"));
    }
    let compared = if logs == 0 { series.len() } else { logs };
    if args.baseline.is_some_and(|baseline| baseline == 0 || baseline > compared) {
        return usage(format!("--baseline must be from 1 to {compared}, the number of logs or results"));
    }
    let of_core = series[..compared].iter().position(Series::is_of_core);
    let baseline = args.baseline.map(|number| number - 1).or(of_core).unwrap_or(0);
    let is_long = series.iter().any(|series| series.height() > SMALL_BLOCKS);
    let from_height = args.from_height.unwrap_or(if is_long { SMALL_BLOCKS } else { 0 });
    let csv = csv(&series[..logs]);
    let csv_name = csv_path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let plot = Plot { series, logs, baseline, from_height, csv, csv_name };
    write(&args.output, MARK, args.force, &page::page(&plot))?;
    let mut text = format!("wrote {}", args.output.display());
    if logs > 0 {
        write(&csv_path, COLUMNS, args.force, &plot.csv)?;
        let _ = write!(text, " and {}", csv_path.display());
    }
    for series in &plot.series {
        let _ = match series.points.len() {
            0 => write!(text, "\n{}: {}", series.name, duration(series.seconds())),
            points => {
                write!(text, "\n{}: {points} points, up to height {}", series.name, series.height())
            }
        };
        if series.bad_lines > 0 {
            let _ = write!(text, "; {} bad lines skipped", series.bad_lines);
        }
    }
    Ok((text, Exit::Done))
}

/// Returns the points of all logs as CSV. Unknown values are empty.
fn csv(logs: &[Series]) -> String {
    let mut text = format!("{COLUMNS}\n");
    for series in logs {
        let name = format!("\"{}\"", series.name.replace('"', "\"\"").replace(char::is_control, "_"));
        for point in &series.points {
            let known =
                [point.bytes, point.transactions, point.cache_bytes, point.cache_coins, point.memory_bytes];
            let known = known.map(or_empty).join(",");
            let _ = writeln!(text, "{name},{:.6},{},{known}", point.seconds, point.height);
        }
    }
    text
}

//! `peregrine-bench plot`: logs of rebuilds as one self-contained HTML page, and their numbers as CSV.

mod chart;
mod log;
mod page;

use clap::Args as ClapArgs;
use cli::{exit::Exit, output::Done, run_log::create_new};
use engine::{Error, ErrorKind};
use log::{Series, Writer};
use std::{
    fmt::Write as _,
    io::Write,
    path::{Path, PathBuf},
};

/// The page has this number of colours.
const MOST_LOGS: usize = 6;
/// Blocks below this height are small, so that long chains are compared above it.
const SMALL_BLOCKS: u32 = 400_000;

#[derive(ClapArgs, Debug)]
pub struct PlotArgs {
    /// Logs: of reindex --log, or Bitcoin Core's debug.log
    #[arg(required = true)]
    pub logs: Vec<PathBuf>,

    /// The page to write
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,

    /// The numbers to write [default: beside the page]
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// The log that others are compared with, from 1 [default: the first of Bitcoin Core's]
    #[arg(long, value_name = "N")]
    pub baseline: Option<usize>,

    /// Compare from this height on [default: 400000 if the chain is longer, else 0]
    #[arg(long, value_name = "N")]
    pub from_height: Option<u32>,
}

/// The contents of a page.
struct Plot {
    series: Vec<Series>,
    baseline: usize,
    from_height: u32,
}

/// Reads the logs, writes the page and the CSV, and returns a summary.
pub fn run(args: &PlotArgs) -> Done {
    if args.logs.len() > MOST_LOGS {
        let detail = format!("{} logs: at most {MOST_LOGS} fit one page", args.logs.len());
        return Err(Error::new(ErrorKind::Usage, detail));
    }
    if args.baseline.is_some_and(|baseline| baseline == 0 || baseline > args.logs.len()) {
        let detail = format!("--baseline must be from 1 to {}, the number of logs", args.logs.len());
        return Err(Error::new(ErrorKind::Usage, detail));
    }
    let series = args.logs.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let core = || series.iter().position(|series| series.writer == Some(Writer::Core));
    let baseline = args.baseline.map(|number| number - 1).or_else(core).unwrap_or(0);
    let top = series.iter().filter_map(|series| series.points.last()).map(|point| point.height).max();
    let whole = top.is_some_and(|height| height > SMALL_BLOCKS);
    let from_height = args.from_height.unwrap_or(if whole { SMALL_BLOCKS } else { 0 });
    let plot = Plot { series, baseline, from_height };
    let csv = args.csv.clone().unwrap_or_else(|| args.output.with_extension("csv"));
    write(&args.output, &page::html(&plot))?;
    write(&csv, &numbers(&plot.series))?;
    let mut text = format!("wrote {} and {}", args.output.display(), csv.display());
    for series in &plot.series {
        let _ = write!(text, "\n{}", found(series));
    }
    Ok((text, Exit::Done))
}

fn read(path: &Path) -> Result<Series, Error> {
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let series = log::read(path, name).map_err(|error| {
        Error::new(ErrorKind::Environment, format!("cannot be read: {error}")).in_file(path, None)
    })?;
    if series.points.is_empty() {
        let detail = format!(
            "no progress in it ({} bad lines); it must be a log of reindex --log, or a debug.log of Bitcoin \
             Core with time stamps and UpdateTip lines",
            series.bad_lines
        );
        return Err(Error::new(ErrorKind::Damaged, detail).in_file(path, None));
    }
    Ok(series)
}

fn found(series: &Series) -> String {
    let height = series.points.last().map_or(0, |point| point.height);
    let bad = match series.bad_lines {
        0 => String::new(),
        lines => format!("; {lines} bad lines skipped"),
    };
    format!("{}: {} points, up to height {height}{bad}", series.name, series.points.len())
}

/// Returns all points of all logs as CSV. Unknown values are empty.
fn numbers(series: &[Series]) -> String {
    fn or_empty(value: Option<u64>) -> String {
        value.map_or(String::new(), |value| value.to_string())
    }
    let mut text = "log,seconds,height,bytes,transactions,cache_bytes,cache_coins,memory_bytes\n".to_owned();
    for series in series {
        let name = format!("\"{}\"", series.name.replace('"', "\"\"").replace(char::is_control, "_"));
        for point in &series.points {
            let told =
                [point.bytes, point.transactions, point.cache_bytes, point.cache_coins, point.memory_bytes];
            let told = told.map(or_empty).join(",");
            let _ = writeln!(text, "{name},{:.6},{},{told}", point.seconds, point.height);
        }
    }
    text
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    create_new(path)?.write_all(text.as_bytes()).map_err(|error| {
        Error::new(ErrorKind::Environment, format!("cannot be written: {error}")).in_file(path, None)
    })
}

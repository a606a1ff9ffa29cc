//! `peregrine-bench plot`: logs of rebuilds as one self-contained HTML page, and their numbers as CSV.

mod chart;
mod core_log;
mod log;
mod page;

use crate::{place::environment, runs::or_empty, text::cut};
use clap::Args as ClapArgs;
use cli::{exit::Exit, output::Done, run_log::create_new};
use engine::{Error, ErrorKind, open_regular};
use log::Series;
use std::{
    fmt::Write as _,
    fs::File,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

/// Blocks below this height are small, so that long chains are compared above it.
const SMALL_BLOCKS: u32 = 400_000;
/// The names of the columns of the CSV.
const COLUMNS: &str = "log,seconds,height,bytes,transactions,cache_bytes,cache_coins,memory_bytes";
/// Characters of the longest label.
const MOST_LABEL: usize = 80;

#[derive(ClapArgs, Debug)]
pub struct PlotArgs {
    /// Logs: of reindex --log, or Bitcoin Core's debug.log
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

    /// The log that others are compared with, from 1 [default: the first of Bitcoin Core's, else the first]
    #[arg(long, value_name = "N")]
    pub baseline: Option<usize>,

    /// Compare from this height on [default: 400000 if the chain is longer, else 0]
    #[arg(long, value_name = "N")]
    pub from_height: Option<u32>,
}

/// Reads the logs, writes the page and the CSV, and returns a summary.
pub fn run(args: &PlotArgs) -> Done {
    let csv_path = args.csv.clone().unwrap_or_else(|| args.output.with_extension("csv"));
    let is_there = may_write(&args.output, page::MARK, args.force)?;
    let is_csv_there = may_write(&csv_path, COLUMNS, args.force)?;
    let usage = |detail| Err(Error::new(ErrorKind::Usage, detail));
    let count = args.files.len();
    if count > page::STYLES {
        return usage(format!("{count} logs: at most {} fit one page", page::STYLES));
    }
    if args.baseline.is_some_and(|baseline| baseline == 0 || baseline > count) {
        return usage(format!("--baseline must be from 1 to {count}, the number of logs"));
    }
    let mut series = read(&args.files)?;
    let of_core = series.iter().position(|series| series.is_core);
    let baseline = args.baseline.map(|number| number - 1).or(of_core).unwrap_or(0);
    let is_long = series.iter().any(|series| series.height() > SMALL_BLOCKS);
    let from_height = args.from_height.unwrap_or(if is_long { SMALL_BLOCKS } else { 0 });
    let (csv, mut text) = (csv(&series), format!("wrote {}", args.output.display()));
    let _ = write!(text, " and {}", csv_path.display());
    for Series { name, points, bad_lines, .. } in &series {
        let last = points.last().map_or(0, |point| point.height);
        let _ = write!(text, "\n{name}: {} points, up to height {last}", points.len());
        if *bad_lines > 0 {
            let _ = write!(text, "; {bad_lines} bad lines skipped");
        }
    }
    // The baseline comes first, and has the first colour.
    series[..=baseline].rotate_right(1);
    write(&args.output, is_there, &page::page(&series, from_height))?;
    write(&csv_path, is_csv_there, &csv)?;
    Ok((text, Exit::Done))
}

/// Reads the logs, which the command line names as `FILE` or `LABEL=FILE`. A file that exists is taken for
/// one even if its path has an equals sign.
fn read(words: &[PathBuf]) -> Result<Vec<Series>, Error> {
    let (mut all, mut unlabelled) = (Vec::new(), Vec::new());
    for (at, word) in words.iter().enumerate() {
        let named = word.to_str().and_then(|text| text.split_once('=')).filter(|_| !word.exists());
        let (label, path) = match named {
            Some((label, path)) if !label.is_empty() => (label.to_owned(), Path::new(path)),
            _ => {
                unlabelled.push(at);
                (word.with_extension("").display().to_string(), word.as_path())
            }
        };
        let series =
            log::read(path, cut(&label, MOST_LABEL)).map_err(|error| environment("read", path, error))?;
        if series.points.is_empty() {
            let detail = format!(
                "no progress in it ({} bad lines); it must be a log of reindex --log, or a debug.log of \
                 Bitcoin Core with time stamps and UpdateTip lines",
                series.bad_lines
            );
            return Err(Error::new(ErrorKind::Damaged, detail).in_file(path, None));
        }
        all.push(series);
    }
    name_after_folders(&mut all, &unlabelled);
    Ok(all)
}

/// Shortens the names of logs without a label to what distinguishes them: the last part of their paths in
/// which they differ.
fn name_after_folders(all: &mut [Series], unlabelled: &[usize]) {
    let parts = |name: &str| name.rsplit('/').map(str::to_owned).collect::<Vec<_>>();
    let names: Vec<_> = unlabelled.iter().map(|at| parts(&all[*at].name)).collect();
    for (at, own) in unlabelled.iter().zip(&names) {
        let is_alone =
            |part: &usize| names.iter().filter(|other| other.get(*part) == own.get(*part)).count() == 1;
        if let Some(part) = (0..own.len()).find(is_alone) {
            all[*at].name.clone_from(&own[part]);
        }
    }
}

/// Returns whether a file exists. Without `force`, one that exists must begin as one that this program has
/// written: with `mark` in its first lines.
fn may_write(path: &Path, mark: &str, force: bool) -> Result<bool, Error> {
    let exists = path.try_exists().map_err(|error| environment("look at", path, error))?;
    let is_ours = || -> std::io::Result<bool> {
        let mut start = Vec::new();
        open_regular(path)?.take(1024).read_to_end(&mut start)?;
        Ok(String::from_utf8_lossy(&start).contains(mark))
    };
    if exists && !force && !is_ours().map_err(|error| environment("read", path, error))? {
        let detail = "exists, and is not of this command; give --force to overwrite it, or name another file";
        return Err(Error::new(ErrorKind::Environment, detail).in_file(path, None));
    }
    Ok(exists)
}

fn write(path: &Path, exists: bool, text: &str) -> Result<(), Error> {
    let cannot = |error| environment("write", path, error);
    let mut file = if exists { File::create(path).map_err(cannot)? } else { create_new(path)? };
    file.write_all(text.as_bytes()).map_err(cannot)
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

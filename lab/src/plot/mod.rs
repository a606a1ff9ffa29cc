//! `peregrine-bench plot`: logs of rebuilds as one self-contained HTML page.

mod chart;
mod core_log;
mod log;
mod page;

use crate::place::environment;
use clap::Args as ClapArgs;
use cli::{exit::Exit, output::Done, run_log::create_new};
use engine::{Error, ErrorKind};
use log::Series;
use std::{
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
};

#[derive(ClapArgs, Debug)]
pub struct PlotArgs {
    /// Logs: of reindex --log, or Bitcoin Core's debug.log
    #[arg(required = true, num_args = 1..=page::STYLES, value_name = "[LABEL=]FILE")]
    pub files: Vec<PathBuf>,

    /// The page to write, a new file
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}

/// Reads the logs, writes the page, and returns a summary.
pub fn run(args: &PlotArgs) -> Done {
    let mut all = args.files.iter().map(|word| read(word)).collect::<Result<Vec<_>, _>>()?;
    // Others are compared with the first, which has the first colour: Bitcoin Core's, if there is one.
    all.sort_by_key(|series| !series.is_core);
    let written = create_new(&args.output)?.write_all(page::page(&all).as_bytes());
    written.map_err(|error| environment("write", &args.output, error))?;
    let mut text = format!("wrote {}", args.output.display());
    for series in &all {
        let (name, points, height) = (&series.name, series.points.len(), series.height());
        let _ = write!(text, "\n{name}: {points} points, up to height {height}");
        if series.bad_lines > 0 {
            let _ = write!(text, "; {} bad lines skipped", series.bad_lines);
        }
    }
    Ok((text, Exit::Done))
}

/// Reads a log, which the command line names as `FILE` or `LABEL=FILE`. A file that exists is taken for one
/// even if its path has an equals sign.
fn read(word: &Path) -> Result<Series, Error> {
    let named = word.to_str().and_then(|text| text.split_once('=')).filter(|_| !word.exists());
    let (name, path) = match named {
        Some((label, path)) => (label.to_owned(), Path::new(path)),
        None => (word.file_stem().unwrap_or_default().to_string_lossy().into_owned(), word),
    };
    let series = log::read(path, name).map_err(|error| environment("read", path, error))?;
    if series.points.is_empty() {
        let detail = format!(
            "no progress in it from the beginning of the chain ({} bad lines); it must be a log of reindex \
             --log, or a debug.log of Bitcoin Core with time stamps and UpdateTip lines",
            series.bad_lines
        );
        return Err(Error::new(ErrorKind::Damaged, detail).in_file(path, None));
    }
    Ok(series)
}

//! `peregrine export history`: what each output script got and spent, in files by script hash and height.

use super::written_text;
use crate::{args::common::ReadingArgs, prelude::*};
use engine::{
    blocks::HashAt,
    history::{HistoryRange, HistoryReport, ReadHistoryOptions},
};
use export::{FileFormat, HistoryTable};
use std::{fmt, num::NonZeroU32, str::FromStr, time::Instant};
use tables::{DatasetOptions, HistoryDataset, WrittenFiles};

/// Maximum number of files for the history of the scripts of a folder.
const FOLDER_FILES: u32 = HistoryDataset::FOLDER_FILES;

#[derive(Args, Debug)]
pub struct ExportHistoryArgs {
    #[command(flatten)]
    pub reading: ReadingArgs,

    /// Last block [default: the chainstate's best block]
    #[arg(long, value_name = "HEIGHT")]
    pub to: Option<u32>,

    /// Format of the files: parquet, arrow or csv
    #[arg(long, default_value_t = FileFormat::PARQUET)]
    pub format: FileFormat,

    /// Columns of the table history to write, of those that the documentation lists [default: all]
    #[arg(long, value_name = "NAME[,NAME..]", value_delimiter = ',')]
    pub columns: Vec<String>,

    /// Number of blocks whose rows are in one file
    #[arg(long, value_name = "N", default_value = "250000", hide_short_help = true)]
    pub file_blocks: NonZeroU32,

    /// Number of hexadecimal digits of script hashes that divide them into folders, 1 to 3 [default: as the
    /// amount of data needs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3))]
    #[arg(hide_short_help = true)]
    pub prefix_digits: Option<u32>,

    /// Only scripts whose hashes begin with these digits, such as 00-3f: other machines do the others
    #[arg(long, value_name = "FIRST[-LAST]", conflicts_with = "prefix_digits", hide_short_help = true)]
    pub prefixes: Option<Prefixes>,

    /// Directory to write; it must not exist. What an interrupted run has left of it is completed
    #[arg(long, short, value_name = "PATH")]
    pub output: PathBuf,

    /// Directory for temporary files [default: beside the output]
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,
}

/// Folders, by the digits of script hashes.
#[derive(Clone, Copy, Debug)]
pub struct Prefixes {
    digits: u32,
    first: u32,
    last: u32,
}

impl FromStr for Prefixes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let prefix = |text: &str| u32::from_str_radix(text, 16).ok().filter(|_| !text.starts_with('+'));
        match (prefix(first), prefix(last)) {
            (Some(from), Some(to))
                if (1..=3).contains(&first.len()) && first.len() == last.len() && from <= to =>
            {
                Ok(Self { digits: first.len() as u32, first: from, last: to })
            }
            _ => Err("must be one to three hexadecimal digits, or two such numbers, as in 00-3f"),
        }
    }
}

impl fmt::Display for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digits, first, last } = *self;
        write!(f, "{first:0digits$x}-{last:0digits$x}", digits = digits as usize)
    }
}

json_of! {
pub struct ExportedHistoryJson(
    files: WrittenFiles, asked: Option<String>, read: HistoryReport, begun: Instant
) {
    #[serde(flatten)]
    written: WrittenFiles = files,
    /// The first and the last prefix, if not all were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefixes: Option<String> = asked,
    #[serde(flatten)]
    report: HistoryReport = read,
    seconds: f64 = begun.elapsed().as_secs_f64(),
}
}

pub fn history(args: &ExportHistoryArgs) -> Done {
    let started = Instant::now();
    let (located, chain) = args.reading.locate()?;
    paths::check(&located, args.work_dir.as_deref(), &[("--output", Some(&args.output))])?;
    let dataset = DatasetOptions {
        output: args.output.clone(),
        format: args.format,
        columns: super::columns::<HistoryTable>(&args.columns, false, false)?,
        partitioned: true,
        append: false,
    };
    let asked = args.prefixes.map(|prefixes| prefixes.to_string());
    let begin = |range: &HistoryRange, hash_at: &HashAt<'_>| {
        check_file_blocks(args, range.to)?;
        HistoryDataset::open(dataset, args.file_blocks, range, asked.clone(), hash_at)
    };
    let options = options(args, chain);
    let (report, files) =
        args.reading.datadir.run(Some(&options.chain), stages::EXPORT_HISTORY, |watch| {
            engine::history::read(&RealDisk, &options, begin, watch)
        })?;
    let exported = ExportedHistoryJson::of(files.complete()?, asked, report, started);
    Ok(reply(&exported, Exit::Done, rows))
}

fn options(args: &ExportHistoryArgs, chain: ChainOptions) -> ReadHistoryOptions {
    let work_dir = Some(super::work_dir(args.work_dir.as_deref(), &args.output));
    ReadHistoryOptions {
        chain: ChainOptions { work_dir, stop_at_height: args.to.map(Height), ..chain },
        prefix_digits: args.prefixes.map(|prefixes| prefixes.digits).or(args.prefix_digits),
        prefixes: args.prefixes.map(|Prefixes { first, last, .. }| first..=last),
        sink_bytes: HistoryDataset::FOLDER_BYTES,
    }
}

/// Refuses files of so few blocks that too many would be open at the same time.
fn check_file_blocks(args: &ExportHistoryArgs, to: Height) -> Result<(), Error> {
    let folder_files = to.0 / args.file_blocks.get() + 1;
    if folder_files <= FOLDER_FILES {
        return Ok(());
    }
    let detail = format!(
        "the history of the scripts of a prefix would be in {folder_files} files, more than {FOLDER_FILES}: \
         --file-blocks must be at least {}",
        to.0 / FOLDER_FILES + 1
    );
    Err(Error::usage(detail))
}

fn rows(exported: &ExportedHistoryJson) -> Rows {
    let HistoryReport { range, rows, scripts, coins, total_amount, muhash, is_chainstate } = &exported.report;
    let compared = if *is_chainstate { "as of the chainstate" } else { "not compared with a chainstate" };
    Rows::default()
        .row("export", written_text(&exported.written, "of an interrupted run"))
        .row("last block", format!("{} ({})", range.to, range.last))
        .each("prefixes", exported.prefixes.iter().map(|prefixes| format!("{prefixes} only")))
        .row("rows", count(*rows))
        .row("scripts", count(*scripts))
        .row("coins", count(*coins))
        .row("amount", format!("{} BTC", btc(total_amount.0)))
        .row("muhash", format!("{} ({compared})", hex_reversed(muhash)))
}

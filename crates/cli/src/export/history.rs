//! `peregrine export history`: what each output script got and spent, in files by script hash and height.

use super::{DatasetColumn, Directory, PROGRAM, Tip, Units, WrittenFiles};
use crate::{
    args::common::ReadingArgs,
    paths,
    progress::stages,
    rows::Rows,
    units::{btc, count},
};
use clap::Args as ClapArgs;
use engine::{
    ChainOptions, Error, ErrorKind, Height, RealDisk,
    blocks::HashAt,
    hex_reversed,
    history::{
        HistoryConsumer, HistoryEntry, HistoryRange, HistoryReport, HistorySink, ReadHistoryOptions,
        ScriptHistory,
    },
};
use export::{Columns, FileFormat, HistoryTable, Parts, RowFile, ScriptTable, Table};
use peregrine::{
    exit::Exit,
    output::{Done, reply},
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    num::NonZeroU32,
    path::PathBuf,
    str::FromStr,
    time::Instant,
};
use tables::{history_row, with_script_row};

/// Memory in bytes of the files that are written for the scripts of a folder: rows that are not written yet,
/// and what the format makes of them.
const FOLDER_BYTES: u64 = 48 << 20;
/// Maximum number of files for the history of the scripts of a folder. All are open at the same time.
const FOLDER_FILES: u32 = 64;
/// Maximum number of rows of these files that are not written yet: as many as four files have that are not
/// flushed.
const FOLDER_ROWS: u32 = 1 << 17;

#[derive(ClapArgs, Debug)]
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

#[derive(Serialize, JsonSchema)]
pub struct ExportedHistoryJson {
    #[serde(flatten)]
    written: WrittenFiles,
    /// The first and the last prefix, if not all were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefixes: Option<String>,
    #[serde(flatten)]
    report: HistoryReport,
    seconds: f64,
}

/// Exports the history of all scripts.
pub fn history(args: &ExportHistoryArgs) -> Done {
    let started = Instant::now();
    let (located, chain) = args.reading.locate()?;
    paths::check_output(args.work_dir.as_deref(), &located, &args.output)?;
    let columns = super::columns::<HistoryTable>(&args.columns, false)?;
    let options = options(args, chain);
    let begin = |range: &HistoryRange, hash_at: &HashAt<'_>| Folders::open(args, columns, range, hash_at);
    let (report, folders) =
        args.reading.datadir.run(Some(&options.chain), stages::EXPORT_HISTORY, |sink, interrupt| {
            engine::history::read(&RealDisk, &options, begin, sink, interrupt)
        })?;
    let exported = ExportedHistoryJson {
        written: folders.directory.complete(&args.output, &folders.request)?,
        prefixes: args.prefixes.map(|prefixes| prefixes.to_string()),
        report,
        seconds: started.elapsed().as_secs_f64(),
    };
    Ok(reply(&exported, Exit::Done, rows))
}

fn options(args: &ExportHistoryArgs, chain: ChainOptions) -> ReadHistoryOptions {
    let work_dir = Some(super::work_dir(args.work_dir.as_deref(), &args.output));
    ReadHistoryOptions {
        chain: ChainOptions { work_dir, stop_at_height: args.to.map(Height), ..chain },
        prefix_digits: args.prefixes.map(|prefixes| prefixes.digits).or(args.prefix_digits),
        prefixes: args.prefixes.map(|Prefixes { first, last, .. }| first..=last),
        sink_bytes: FOLDER_BYTES,
    }
}

/// What a directory is for, in the file `.dataset.json` beside it: it determines all its files.
#[derive(Serialize)]
struct Dataset {
    program: &'static str,
    tables: [DatasetTable; 2],
    format: &'static str,
    chain: &'static str,
    /// Height of the first block.
    from: u32,
    /// Height of the last block.
    to: u32,
    /// Hash of the last block.
    block_hash: String,
    /// Number of hexadecimal digits of a script hash that are the value of `prefix`.
    prefix_digits: u32,
    /// The first and the last value of `prefix`, if not all were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefixes: Option<String>,
    /// The values of `from_height`.
    heights: Vec<DatasetHeights>,
    units: Units,
}

#[derive(Serialize)]
struct DatasetTable {
    table: &'static str,
    /// The files.
    files: String,
    columns: Vec<DatasetColumn>,
}

#[derive(Serialize)]
struct DatasetHeights {
    from_height: u32,
    /// Height of the last block.
    to: u32,
    /// Hash of the last block.
    block_hash: String,
}

impl Dataset {
    fn of(args: &ExportHistoryArgs, columns: &Columns, range: &HistoryRange, hash_at: &HashAt<'_>) -> Self {
        let (to, blocks) = (range.to.0, args.file_blocks.get());
        let heights = |number: u32| {
            let last = to.min(number.saturating_mul(blocks).saturating_add(blocks - 1));
            let block_hash = hash_at(Height(last)).to_string();
            DatasetHeights { from_height: number * blocks, to: last, block_hash }
        };
        let table =
            |table, columns| DatasetTable { table, files: format!("{table}/**/*.{}", args.format), columns };
        Self {
            program: PROGRAM,
            tables: [
                table(HistoryTable::NAME, DatasetColumn::all::<HistoryTable>(columns)),
                table(
                    ScriptTable::NAME,
                    DatasetColumn::all::<ScriptTable>(&Columns::all::<ScriptTable>(true)),
                ),
            ],
            format: args.format.name(),
            chain: range.network.name(),
            from: 0,
            to,
            block_hash: range.last.to_string(),
            prefix_digits: range.prefix_digits,
            prefixes: args.prefixes.map(|prefixes| prefixes.to_string()),
            heights: (0..=to / blocks).map(heights).collect(),
            units: Units::default(),
        }
    }
}

/// The directory that is written, with folders by script hash.
struct Folders {
    directory: Directory,
    request: String,
    range: HistoryRange,
    file_blocks: u32,
    /// Number of rows after which a file is flushed.
    flushed_rows: u64,
}

impl Folders {
    fn open(
        args: &ExportHistoryArgs,
        columns: Columns,
        range: &HistoryRange,
        hash_at: &HashAt<'_>,
    ) -> Result<Self, Error> {
        let file_blocks = args.file_blocks.get();
        let folder_files = range.to.0 / file_blocks + 1;
        if folder_files > FOLDER_FILES {
            let detail = format!(
                "the history of the scripts of a prefix would be in {folder_files} files, more than \
                 {FOLDER_FILES}: --file-blocks must be at least {}",
                range.to.0 / FOLDER_FILES + 1
            );
            return Err(Error::new(ErrorKind::Usage, detail));
        }
        let flushed_rows = u64::from(FOLDER_ROWS / folder_files);
        let dataset = Dataset::of(args, &columns, range, hash_at);
        let request = serde_json::to_string_pretty(&dataset).unwrap_or_default() + "\n";
        let parts = Parts::open(&RealDisk, &args.output, &request);
        let parts = parts.map_err(|error| super::refusal(error, &args.output))?;
        let tip = Tip { network: range.network, height: range.to, hash: range.last };
        let directory = Directory::new(parts, args.format, columns, &tip);
        Ok(Self { directory, request, range: *range, file_blocks, flushed_rows })
    }
}

impl HistoryConsumer for Folders {
    fn begin_bucket(&self, bucket: u32) -> Result<Box<dyn HistorySink + '_>, Error> {
        let prefix = format!("prefix={bucket:0digits$x}", digits = self.range.prefix_digits as usize);
        Ok(Box::new(Folder { folders: self, prefix, history: BTreeMap::new(), scripts: None }))
    }
}

/// The files for the scripts whose hashes begin with the same digits. A file of an interrupted run, which is
/// kept, is `None`.
struct Folder<'a> {
    folders: &'a Folders,
    /// The name of the folder in each table's folder.
    prefix: String,
    /// By the height of the first block.
    history: BTreeMap<u32, Option<RowFile<'static, HistoryTable>>>,
    /// Begins with the first script.
    scripts: Option<Option<RowFile<'static, ScriptTable>>>,
}

impl HistorySink for Folder<'_> {
    fn entry(&mut self, entry: &HistoryEntry) -> Result<(), Error> {
        let Self { folders: Folders { directory, file_blocks, flushed_rows, .. }, prefix, history, .. } =
            self;
        let from = entry.height.0 / file_blocks * file_blocks;
        let file = match history.entry(from) {
            Entry::Occupied(file) => file.into_mut(),
            Entry::Vacant(none) => {
                let table = HistoryTable::NAME;
                let name = format!("{table}/{prefix}/from_height={from:07}/{table}.{}", directory.format);
                none.insert(directory.begin(&name, &directory.columns)?)
            }
        };
        let Some(file) = file else { return Ok(()) };
        file.add(history_row(entry))?;
        if file.rows().is_multiple_of(*flushed_rows) {
            file.flush()?;
        }
        Ok(())
    }

    fn script(&mut self, script: &ScriptHistory<'_>) -> Result<(), Error> {
        let Self { folders: Folders { directory, range, .. }, prefix, .. } = self;
        if self.scripts.is_none() {
            let table = ScriptTable::NAME;
            let name = format!("{table}/{prefix}/{table}.{}", directory.format);
            self.scripts = Some(directory.begin(&name, &Columns::all::<ScriptTable>(true))?);
        }
        let Some(Some(file)) = &mut self.scripts else { return Ok(()) };
        with_script_row(script, range.network, |row| Ok(file.add(row)?))
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        let Self { folders: Folders { directory, range, file_blocks, .. }, history, scripts, .. } = *self;
        let to = range.to.0;
        for (from, file) in history.into_iter().filter_map(|(from, file)| Some((from, file?))) {
            directory.finish(file, &(from..=to.min(from.saturating_add(file_blocks - 1))))?;
        }
        scripts.flatten().map_or(Ok(()), |file| directory.finish(file, &(0..=to)))
    }
}

fn rows(exported: &ExportedHistoryJson) -> Rows {
    let HistoryReport { range, rows, scripts, coins, total_amount, muhash, is_chainstate } = &exported.report;
    let compared = if *is_chainstate { "as of the chainstate" } else { "not compared with a chainstate" };
    Rows::default()
        .row("export", exported.written.text("of an interrupted run"))
        .row("last block", format!("{} ({})", range.to, range.last))
        .each("prefixes", exported.prefixes.iter().map(|prefixes| format!("{prefixes} only")))
        .row("rows", count(*rows))
        .row("scripts", count(*scripts))
        .row("coins", count(*coins))
        .row("amount", format!("{} BTC", btc(total_amount.0)))
        .row("muhash", format!("{} ({compared})", hex_reversed(muhash)))
}

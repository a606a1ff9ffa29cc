//! The commands `peregrine undo check`, `make` and `export`.

use crate::{limits::WORKER_BYTES, prelude::*, report::undo_files_text};
use engine::{
    FileKind,
    undo::{ExportedUndo, MadeUndoReport, UndoCheck, UndoFileCheck},
};
use tables::affordable_threads;

#[derive(Subcommand, Debug)]
pub enum UndoCommand {
    /// Read all undo data, and report what is missing or damaged; exit code 4 if anything is
    Check(CheckUndoArgs),
    /// Make the undo data that is missing or damaged; the chainstate stays as it is
    Make(MakeUndoArgs),
    /// Write the coins that blocks spend as peers send them (BIP 455, a draft)
    Export(ExportUndoArgs),
}

#[derive(Args, Debug)]
pub struct CheckUndoArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Ignore the block index and find blocks and undo data by reading their files
    #[arg(long)]
    pub scan: bool,
}

#[derive(Args, Debug)]
pub struct MakeUndoArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Keep the replaced block index as blocks/index.old
    #[arg(long)]
    pub keep_old: bool,

    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args, Debug)]
pub struct ExportUndoArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// File to write; it must not exist
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,

    /// First block
    #[arg(long, value_name = "HEIGHT", default_value_t = 1)]
    pub from_height: u32,

    /// Last block [default: the chainstate's best block]
    #[arg(long, value_name = "HEIGHT", alias = "to-height")]
    pub to: Option<u32>,

    /// Ignore the block index and find blocks and undo data by reading their files
    #[arg(long)]
    pub scan: bool,

    /// Memory limit of the whole process: 128M, 1G, ... [default: a quarter of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
}

pub fn check(args: &CheckUndoArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let options = ChainOptions { scan: args.scan, ..args.datadir.default_options(&located, None) };
    let check = args
        .datadir
        .run(Some(&options), stages::CHECK, |watch| engine::undo::check(&RealDisk, &options, watch))?;
    let exit = if check.is_sound() { Exit::Done } else { Exit::Damaged };
    Ok(reply(&check, exit, check_rows))
}

fn check_rows(check: &UndoCheck) -> Rows {
    let UndoCheck { hash, height, sound, missing, damaged, .. } = check;
    let mut rows = Rows::default()
        .row("block", format!("{hash} ({height})"))
        .row("undo data", format!("{sound} sound, {missing} missing, {damaged} damaged"));
    for file in check.files.iter().filter(|file| file.missing + file.damaged > 0) {
        let (name, UndoFileCheck { kept, missing, damaged, .. }) = (FileKind::Rev.file_name(file.file), file);
        rows = rows.row(&name, format!("{kept} sound, {missing} missing, {damaged} damaged:"));
        for block in &file.first {
            let state = if block.is_missing { "missing" } else { "damaged" };
            rows = rows.line(format!("  {state} for block {} ({})", block.hash, block.height));
        }
        if (missing + damaged) as usize > file.first.len() {
            rows = rows.line("  ...");
        }
    }
    let help = (missing + damaged > 0).then_some("`undo make` makes what is missing or damaged");
    rows.each("help", help).each("note", check.notes.iter().map(warning_text))
}

pub fn make(args: &MakeUndoArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let chain = args.datadir.chain_options(&located, &args.run);
    let options = ChainOptions { keep_old: args.keep_old, ..chain };
    paths::check(&located, args.run.work_dir.as_deref(), &[])?;
    let made = args
        .datadir
        .run(Some(&options), stages::MAKE_UNDO, |watch| engine::undo::make(&RealDisk, &options, watch))?;
    Ok(reply(&made, Exit::Done, made_rows))
}

fn made_rows(made: &MadeUndoReport) -> Rows {
    let undo = match made.undo.blocks {
        0 => "all of it was sound".to_owned(),
        _ => undo_files_text(&made.undo),
    };
    Rows::default()
        .row("block", format!("{} ({})", made.hash, made.height))
        .row("undo data", undo)
        .each("kept", made.kept.iter().map(|path| path.display()))
        .each("note", made.notes.iter().map(warning_text))
}

pub fn export(args: &ExportUndoArgs) -> Done {
    let located = args.datadir.core.locate()?;
    paths::check(&located, None, &[("--output", Some(&args.output))])?;
    let chain = args.datadir.default_options(&located, args.memory);
    let threads = affordable_threads(chain.memory_bytes, WORKER_BYTES, chain.threads);
    let options = ChainOptions { threads, scan: args.scan, stop_at_height: args.to.map(Height), ..chain };
    let exported = args.datadir.run(Some(&options), stages::EXPORT_BLOCKS, |watch| {
        engine::undo::export(&RealDisk, &options, Height(args.from_height), &args.output, watch)
    })?;
    Ok(reply(&exported, Exit::Done, exported_rows))
}

fn exported_rows(exported: &ExportedUndo) -> Rows {
    let ExportedUndo { from, to, hash, coins, bytes, undo_bytes, .. } = exported;
    let size = |bytes: u64| match *coins {
        0 => HumanSize(bytes).to_string(),
        coins => format!("{} ({:.1} bytes each)", HumanSize(bytes), bytes as f64 / coins as f64),
    };
    let spent = format!("{} in {}; as undo data {}", count(*coins), size(*bytes), size(*undo_bytes));
    Rows::default().row("blocks", format!("{from} to {to} ({hash})")).row("spent coins", spent)
}

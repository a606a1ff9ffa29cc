//! The commands `peregrine undo check`, `make` and `export`.

use crate::{
    args::common::{DatadirArgs, RunArgs, size},
    core_args::Located,
    export::reading_threads,
    paths,
    progress::{Style, stages},
    report::{notes_text, undo_files_text},
    run,
    units::count,
};
use clap::{Args, Subcommand};
use engine::{
    ChainOptions, CheckUndoOptions, ExportUndoOptions, ExportedUndo, FileKind, Height, HumanSize,
    MadeUndoReport, MakeUndoOptions, RealDisk, UndoCheck,
};
use peregrine::{
    exit::Exit,
    output::{Done, reply},
};
use std::path::PathBuf;

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

    /// How to show progress
    #[arg(long, value_enum, default_value_t = Style::Auto)]
    pub progress: Style,
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

    /// How to show progress
    #[arg(long, value_enum, default_value_t = Style::Auto)]
    pub progress: Style,
}

impl CheckUndoArgs {
    /// Returns the engine's options for checking undo data.
    pub fn options(&self, located: &Located) -> CheckUndoOptions {
        CheckUndoOptions { chain: self.datadir.default_options(located), scan: self.scan }
    }
}

impl MakeUndoArgs {
    /// Returns the engine's options for making undo data.
    pub fn options(&self, located: &Located) -> MakeUndoOptions {
        let chain = self.datadir.chain_options(located, &self.run);
        MakeUndoOptions { chain, keep_old: self.keep_old }
    }
}

/// Runs a command.
pub fn run(command: &UndoCommand) -> Done {
    match command {
        UndoCommand::Check(args) => check(args),
        UndoCommand::Make(args) => make(args),
        UndoCommand::Export(args) => export(args),
    }
}

fn check(args: &CheckUndoArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let options = args.options(&located);
    let check = run::run(Some(&options.chain), args.progress, stages::CHECK, |sink, interrupt| {
        engine::check_undo(&RealDisk, &options, sink, interrupt)
    })?;
    let exit = if check.is_sound() { Exit::Done } else { Exit::Damaged };
    Ok(reply(&check, exit, check_text))
}

fn check_text(check: &UndoCheck) -> String {
    let UndoCheck { sound, missing, damaged, .. } = check;
    let mut text = format!(
        "block              {} ({})\n\
         undo data          {sound} sound, {missing} missing, {damaged} damaged",
        check.hash, check.height
    );
    for file in check.files.iter().filter(|file| file.missing + file.damaged > 0) {
        let name = FileKind::Rev.file_name(file.file);
        text += &format!(
            "\n{name}       {} sound, {} missing, {} damaged:",
            file.kept, file.missing, file.damaged
        );
        for block in &file.first {
            let state = if block.is_missing { "missing" } else { "damaged" };
            text += &format!("\n  {state} for block {} ({})", block.hash, block.height);
        }
        if (file.missing + file.damaged) as usize > file.first.len() {
            text += "\n  ...";
        }
    }
    if missing + damaged > 0 {
        text += "\nhelp               `undo make` makes what is missing or damaged";
    }
    text + &notes_text(&check.notes)
}

fn make(args: &MakeUndoArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let options = args.options(&located);
    paths::check_work_dir(&located, args.run.work_dir.as_deref())?;
    let made = run::run(Some(&options.chain), args.run.progress, stages::MAKE_UNDO, |sink, interrupt| {
        engine::make_undo(&RealDisk, &options, sink, interrupt)
    })?;
    Ok(reply(&made, Exit::Done, made_text))
}

fn made_text(made: &MadeUndoReport) -> String {
    let mut text = format!("block              {} ({})\n", made.hash, made.height);
    text += &match made.undo.blocks {
        0 => "undo data          all of it was sound".to_owned(),
        _ => format!("undo data          {}", undo_files_text(&made.undo)),
    };
    for path in &made.kept {
        text += &format!("\nkept               {}", path.display());
    }
    text + &notes_text(&made.notes)
}

fn export(args: &ExportUndoArgs) -> Done {
    let located = args.datadir.core.locate()?;
    paths::check_output(None, &located, &args.output)?;
    let chain = args.datadir.default_options(&located);
    let memory_bytes = args.memory.unwrap_or(chain.memory_bytes);
    let threads = reading_threads(memory_bytes, chain.threads);
    let options = ExportUndoOptions {
        chain: ChainOptions { memory_bytes, threads, ..chain },
        scan: args.scan,
        from: Height(args.from_height),
        to: args.to.map(Height),
    };
    let exported =
        run::run(Some(&options.chain), args.progress, stages::EXPORT_BLOCKS, |sink, interrupt| {
            engine::export_undo(&RealDisk, &options, &args.output, sink, interrupt)
        })?;
    Ok(reply(&exported, Exit::Done, exported_text))
}

fn exported_text(exported: &ExportedUndo) -> String {
    let ExportedUndo { from, to, hash, coins, bytes, undo_bytes, .. } = exported;
    let each = |bytes: u64| bytes as f64 / (*coins).max(1) as f64;
    format!(
        "blocks             {from} to {to} ({hash})\n\
         spent coins        {} in {} ({:.1} bytes each); as undo data {} ({:.1} bytes each)",
        count(*coins),
        HumanSize(*bytes),
        each(*bytes),
        HumanSize(*undo_bytes),
        each(*undo_bytes)
    )
}

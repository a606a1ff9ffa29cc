//! The commands `peregrine undo check` and `make`.

use crate::{
    args::{DatadirArgs, RunArgs},
    core_args::Located,
    json::{self, Report},
    limits,
    notes::NoteJson,
    paths,
    progress::{Progress, Style, stages},
    report::{notes_text, rev_names, undo_files_text},
};
use clap::{Args, Subcommand};
use engine::{CheckUndoOptions, MadeUndoReport, MakeUndoOptions, Network, RealDisk, UndoCheck};
use peregrine::{exit::Exit, output::Done, stop::interrupt};
use serde::Serialize;

#[derive(Subcommand, Debug)]
pub enum UndoCommand {
    /// Read all undo data, and report what is missing or damaged; exit code 4 if anything is
    Check(CheckUndoArgs),
    /// Make the undo data that is missing or damaged; the chainstate stays as it is
    Make(MakeUndoArgs),
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

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckJson {
    chain: &'static str,
    height: u32,
    block_hash: String,
    sound: u32,
    missing: u32,
    damaged: u32,
    files: Vec<FileJson>,
    seconds: f64,
    notes: Vec<NoteJson>,
}

/// The undo data of the blocks of one file.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FileJson {
    file: String,
    sound: u32,
    missing: u32,
    damaged: u32,
    first: Vec<FlawedJson>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FlawedJson {
    height: u32,
    block_hash: String,
    state: &'static str,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MadeJson {
    chain: &'static str,
    height: u32,
    block_hash: String,
    blocks_made: u32,
    files_made: Vec<String>,
    files_mended: Vec<String>,
    kept: Vec<String>,
    seconds: f64,
    notes: Vec<NoteJson>,
}

/// Runs a command. Returns whether its output is JSON, and its result.
pub fn run(command: &UndoCommand) -> (bool, Done) {
    match command {
        UndoCommand::Check(args) => (args.datadir.json, check(args)),
        UndoCommand::Make(args) => (args.datadir.json, make(args)),
    }
}

fn check(args: &CheckUndoArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let options = args.options(&located);
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.datadir.json)?;
    let progress = Progress::new(args.progress, stages::CHECK);
    let check = engine::check_undo(&RealDisk, &options, &progress, &interrupt);
    progress.close();
    let check = check?;
    let exit = if check.is_sound() { Exit::Done } else { Exit::Damaged };
    Ok(match args.datadir.json {
        true => json::report(Report::UndoCheck(check_json(&check, located.network())), exit),
        false => (check_text(&check), exit),
    })
}

fn check_json(check: &UndoCheck, network: Network) -> CheckJson {
    let [sound, missing, damaged] = check.totals();
    let file = |file: &engine::UndoFileCheck| FileJson {
        file: rev_names(&[file.file]).collect(),
        sound: file.kept,
        missing: file.missing,
        damaged: file.damaged,
        first: file
            .first
            .iter()
            .map(|block| FlawedJson {
                height: block.height.0,
                block_hash: block.hash.to_string(),
                state: if block.is_missing { "missing" } else { "damaged" },
            })
            .collect(),
    };
    CheckJson {
        chain: network.name(),
        height: check.height.0,
        block_hash: check.hash.to_string(),
        sound,
        missing,
        damaged,
        files: check.files.iter().map(file).collect(),
        seconds: check.elapsed.as_secs_f64(),
        notes: NoteJson::list(&check.notes),
    }
}

fn check_text(check: &UndoCheck) -> String {
    let [kept, missing, damaged] = check.totals();
    let mut text = format!(
        "block              {} ({})\n\
         undo data          of {kept} blocks is sound, of {missing} missing, of {damaged} damaged",
        check.hash, check.height
    );
    for file in check.files.iter().filter(|file| file.missing + file.damaged > 0) {
        let name: String = rev_names(&[file.file]).collect();
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
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.datadir.json)?;
    let progress = Progress::new(args.run.progress, stages::MAKE_UNDO);
    let made = engine::make_undo(&RealDisk, &options, &progress, &interrupt);
    progress.close();
    let made = made?;
    Ok(match args.datadir.json {
        true => json::report(Report::UndoMake(made_json(&made, located.network())), Exit::Done),
        false => (made_text(&made), Exit::Done),
    })
}

/// Returns the JSON report of `undo make`.
pub fn made_json(made: &MadeUndoReport, network: Network) -> MadeJson {
    MadeJson {
        chain: network.name(),
        height: made.height.0,
        block_hash: made.hash.to_string(),
        blocks_made: made.undo.blocks,
        files_made: rev_names(&made.undo.made).collect(),
        files_mended: rev_names(&made.undo.mended).collect(),
        kept: made.kept.iter().map(|path| path.display().to_string()).collect(),
        seconds: made.elapsed.as_secs_f64(),
        notes: NoteJson::list(&made.notes),
    }
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

//! The commands `peregrine undo check` and `make`.

use crate::{
    args::{CheckUndoArgs, MakeUndoArgs, UndoCommand},
    limits, paths,
    progress::Progress,
    report::{notes_text, rev_names, undo_files_text},
};
use engine::{MadeUndoReport, RealDisk, UndoCheck};
use peregrine::{
    exit::Exit,
    output::{Done, json},
    remedy::warning_text,
    stop::interrupt,
};
use serde::Serialize;

#[derive(Serialize)]
struct CheckJson {
    height: u32,
    hash: String,
    kept: u32,
    missing: u32,
    damaged: u32,
    files: Vec<FileJson>,
    seconds: f64,
    notes: Vec<String>,
}

/// The undo data of the blocks of one file.
#[derive(Serialize)]
struct FileJson {
    file: String,
    kept: u32,
    missing: u32,
    damaged: u32,
    first: Vec<FlawedJson>,
}

#[derive(Serialize)]
struct FlawedJson {
    height: u32,
    hash: String,
    state: &'static str,
}

#[derive(Serialize)]
struct MadeJson {
    height: u32,
    hash: String,
    blocks_made: u32,
    files_made: Vec<String>,
    files_mended: Vec<String>,
    kept: Vec<String>,
    seconds: f64,
    notes: Vec<String>,
}

/// Runs a command. Returns whether its output is JSON, and its result.
pub fn run(command: &UndoCommand) -> (bool, Done) {
    match command {
        UndoCommand::Check(args) => (args.datadir.json, check(args)),
        UndoCommand::Make(args) => (args.datadir.json, make(args)),
    }
}

fn check(args: &CheckUndoArgs) -> Done {
    let options = args.options();
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.datadir.json)?;
    let progress = Progress::new(args.progress);
    let check = engine::check_undo(&RealDisk, &options, &progress, &interrupt);
    progress.close();
    let check = check?;
    let exit = if check.is_sound() { Exit::Done } else { Exit::Damaged };
    Ok((if args.datadir.json { check_json(&check) } else { check_text(&check) }, exit))
}

fn check_json(check: &UndoCheck) -> String {
    let [kept, missing, damaged] = check.totals();
    let file = |file: &engine::UndoFileCheck| FileJson {
        file: rev_names(&[file.file]).collect(),
        kept: file.kept,
        missing: file.missing,
        damaged: file.damaged,
        first: file
            .first
            .iter()
            .map(|block| FlawedJson {
                height: block.height.0,
                hash: block.hash.to_string(),
                state: if block.is_missing { "missing" } else { "damaged" },
            })
            .collect(),
    };
    json(&CheckJson {
        height: check.height.0,
        hash: check.hash.to_string(),
        kept,
        missing,
        damaged,
        files: check.files.iter().map(file).collect(),
        seconds: check.elapsed.as_secs_f64(),
        notes: check.notes.iter().map(warning_text).collect(),
    })
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
    let options = args.options();
    paths::check_work_dir(&args.datadir, args.run.work_dir.as_deref())?;
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.datadir.json)?;
    let progress = Progress::new(args.run.progress);
    let made = engine::make_undo(&RealDisk, &options, &progress, &interrupt);
    progress.close();
    let made = made?;
    Ok((if args.datadir.json { made_json(&made) } else { made_text(&made) }, Exit::Done))
}

fn made_json(made: &MadeUndoReport) -> String {
    json(&MadeJson {
        height: made.height.0,
        hash: made.hash.to_string(),
        blocks_made: made.undo.blocks,
        files_made: rev_names(&made.undo.made).collect(),
        files_mended: rev_names(&made.undo.mended).collect(),
        kept: made.kept.iter().map(|path| path.display().to_string()).collect(),
        seconds: made.elapsed.as_secs_f64(),
        notes: made.notes.iter().map(warning_text).collect(),
    })
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

//! The command `peregrine doctor`: its arguments, its report, and the command that it advises to run next.

mod next_line;

use crate::{
    args::common::DatadirArgs,
    core_args::Located,
    progress::{Style, stages},
    run,
    run_note::RunNote,
    units::{count, durations},
};
use clap::Args as ClapArgs;
use engine::{
    Advice, DatadirState, DeepState, Diagnosis, DoctorOptions, ErrorKind, FileKind, Height, HumanSize,
    Network, RealDisk, ScriptWork,
};
use next_line::NextLine;
use peregrine::{
    exit::Exit,
    output::{Done, reply},
    shell::user_name,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    fs,
    time::{Duration, UNIX_EPOCH},
};

/// Number of blocks below which a datadir may be one that bitcoind began because a disk was not mounted.
const TINY: u32 = 100;

#[derive(ClapArgs, Debug)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Read and hash all blocks, undo data and coins too
    #[arg(long)]
    pub deep: bool,

    /// How to show progress
    #[arg(long, value_enum, default_value_t = Style::Auto)]
    pub progress: Style,
}

pub fn run(args: &DoctorArgs) -> Done {
    let located = args.datadir.core.locate()?;
    // The estimate is that of a rebuild, which runs scripts.
    let chain = args.datadir.checking_options(&located, None, None);
    let interrupted = RunNote::read(&located.datadir());
    let work_dir = interrupted.as_ref().map(|note| note.work_dir.clone());
    let options = DoctorOptions { chain, deep: args.deep, settings: located.settings.clone(), work_dir };
    let diagnosis = run::run(Some(&options.chain), args.progress, stages::DOCTOR, |sink, interrupt| {
        engine::diagnose(&RealDisk, &options, sink, interrupt)
    })?;
    let faults = diagnosis.found.iter().flat_map(|state| &state.start.faults);
    let is_of_node = faults
        .filter(|fault| fault.error.kind != ErrorKind::Damaged)
        .any(|fault| fault.advice == diagnosis.advice);
    let exit = match diagnosis.advice {
        _ if diagnosis.is_sound() => Exit::Done,
        _ if is_of_node => Exit::Environment,
        Advice::StopBitcoind | Advice::Wait | Advice::RunAs { .. } | Advice::ChangeOwner { .. } => {
            Exit::Environment
        }
        Advice::CheckDisk | Advice::RestoreLink { .. } => Exit::Environment,
        _ => Exit::Damaged,
    };
    let line = NextLine::new(&diagnosis, &located);
    let printable = |line: String| match line.contains(char::REPLACEMENT_CHARACTER) {
        true => "# a path in the next command is not UTF-8: rename it, and run doctor again".to_owned(),
        false => line,
    };
    let next = printable(line.of(&diagnosis.advice));
    let resumes = interrupted.as_ref().map(|note| printable(line.resume(note)));
    let command = interrupted.as_ref().and_then(RunNote::command);
    let is_next = command.is_some_and(|command| next.contains(&format!("peregrine {command} ")));
    let next = resumes.clone().filter(|_| is_next).unwrap_or(next);
    let is_repair = diagnosis.advice == Advice::Repair;
    let next_offline = is_repair.then(|| printable(line.repair_offline()));
    let next_from = is_repair.then(|| printable(line.repair_from()));
    let next_checked = line.reindex_checked(&diagnosis.advice).map(printable);
    let report = DoctorReport { diagnosis, next, next_offline, next_from, next_checked, resumes };
    Ok(reply(&report, exit, |report| text(report, &located)))
}

/// How blocks are taken from files with other names.
const FROM_HERE: &str = "if blocks are missing, they are taken from them by: peregrine repair --from";

/// What is found, and the command to run next.
#[derive(Serialize, JsonSchema)]
pub struct DoctorReport {
    #[serde(flatten)]
    diagnosis: Diagnosis,
    next: String,
    /// Another one, which needs no peers.
    next_offline: Option<String>,
    /// Another one, which needs other block files.
    next_from: Option<String>,
    /// Another one, which trusts what the block index says of scripts.
    next_checked: Option<String>,
    /// The command that resumes an interrupted run from its checkpoint.
    resumes: Option<String>,
}

fn text(report: &DoctorReport, located: &Located) -> String {
    let DoctorReport { diagnosis, next, next_offline, next_from, next_checked, resumes } = report;
    let mut lines = vec![];
    match &diagnosis.found {
        Ok(state) => state_lines(diagnosis.network, state, located, &mut lines),
        Err(absence) => {
            lines.push(("datadir", format!("{}: {absence}", located.root.display())));
        }
    }
    let advice = match &diagnosis.advice {
        Advice::RunAs { user } => format!("run doctor again as user {}", user_name(*user)),
        advice => advice.to_string(),
    };
    lines.push(("advice", advice));
    lines.extend(next_from.iter().map(|from| ("with other files", from.clone())));
    lines.extend(next_offline.iter().map(|offline| ("without peers", offline.clone())));
    lines.extend(resumes.iter().map(|resumes| ("to resume", resumes.clone())));
    lines.extend(next_checked.iter().map(|checked| ("trusting the index", checked.clone())));
    lines.push(("next", next.clone()));
    lines.iter().map(|(label, value)| format!("{label:<18} {value}")).collect::<Vec<_>>().join("\n")
}

fn state_lines(
    network: Network,
    state: &DatadirState,
    located: &Located,
    lines: &mut Vec<(&'static str, String)>,
) {
    lines.push(("network", format!("{network}, in {}", state.dir.display())));
    lines.push(("owner", owner_text(state)));
    lines.push(("in use", state.lock.to_string()));
    lines.push((
        "written by",
        state.start.last.version.clone().unwrap_or("unknown (no debug.log)".to_owned()),
    ));
    if let Some(error) = &state.key {
        lines.push(("xor.dat", error.fact_text()));
    }
    lines.push(("block index", state.index.to_string()));
    let dir = &state.blocks_dir;
    if *dir != state.dir.join("blocks") && dir.join("index").exists() {
        let text = format!("{}/index: bitcoind uses only the one in the datadir", dir.display());
        lines.push(("other index", text));
    }
    lines.push(("block files", state.blocks.to_string()));
    if let Ok(led) = fs::read_link(dir) {
        let text = format!("{}: no other node may write or prune there", led.display());
        lines.push(("blocks is a link", text));
    }
    lines.push(("undo files", state.undo.to_string()));
    lines.push(("chainstate", state.chainstate.to_string() + &tiny_text(state)));
    let snapshot = match (&state.snapshot.error, state.snapshot.exists) {
        (Some(error), _) => error.fact_text(),
        (None, true) => "there is one: bitcoind uses it first".to_owned(),
        (None, false) => "none".to_owned(),
    };
    lines.push(("snapshot", snapshot));
    let indexes: Vec<String> = state.indexes.iter().map(ToString::to_string).collect();
    lines.push(("other indexes", if indexes.is_empty() { "none".to_owned() } else { indexes.join("; ") }));
    lines.push(("pruned", pruned_text(state, located)));
    lines.push(("interrupted runs", leftovers_text(state)));
    if let Some(first) = state.blocks.other_names.first() {
        let more = state.blocks.other_names.len() - 1;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let dir = state.blocks_dir.display();
        let text = format!("{first}{more}: bitcoind does not read files with such names; {FROM_HERE} {dir}");
        lines.push(("other files", text));
    }
    lines.push(("disk space", space_text(state)));
    lines.push(("rebuild", duration_text(state)));
    lines.extend(checked_text(state).map(|text| ("", text)));
    if let Some(error) = &state.rebuild.refusal {
        lines.push(("rebuild refused", error.fact_text()));
    }
    let faults = state.start.faults.iter().map(|fault| fault.error.to_string());
    let ignored = located.ignored.iter().cloned();
    lines.extend(faults.chain(ignored).map(|text| ("start of bitcoind", text)));
    match &state.deep {
        Some(deep) => deep_lines(deep, lines),
        None => lines.push(("all coins", "not read, and no blocks: doctor --deep reads all".to_owned())),
    }
}

fn owner_text(state: &DatadirState) -> String {
    let owner = &state.owner;
    let mut text = user_name(owner.uid);
    if owner.uid != owner.user {
        text += &format!("; this is {}, so use sudo -u {text}", user_name(owner.user));
    }
    for path in &owner.foreign {
        text += &format!(
            "; {} belongs to another user or may not be written, so bitcoind cannot open it",
            path.display()
        );
    }
    text
}

fn pruned_text(state: &DatadirState, located: &Located) -> String {
    let text = match state.index.state.is_sound() {
        true if state.index.is_pruned => {
            "yes: peregrine sync --unprune makes it a full node, by downloading the deleted blocks again"
        }
        true if located.prune.is_some() => {
            "no, but the settings have prune=: bitcoind deletes old block files"
        }
        true => "no",
        false => "unknown",
    };
    let (last, conf) = (state.start.last.prune(located.network()), &state.start.last.conf);
    let missing = match (state.index.is_pruned && located.prune.is_none(), last, conf) {
        (false, ..) => String::new(),
        (true, Some(_), Some(conf)) => {
            format!("; its last start had prune= (bitcoind read {})", conf.display())
        }
        (true, ..) => {
            "; bitcoin.conf has no prune=, so bitcoind starts only with -prune on its command line".to_owned()
        }
    };
    format!("{text}{missing}")
}

/// What to ask about a datadir that has hardly any blocks.
fn tiny_text(state: &DatadirState) -> String {
    let is_tiny = state.index.state.is_sound() && state.index.header_height < Height(TINY);
    let Some(time) = state.chainstate.time.filter(|_| is_tiny) else { return String::new() };
    let date = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(time.0.into()));
    format!("; its last block is of {date}: if this node had more, is the disk with its blocks mounted?")
}

fn leftovers_text(state: &DatadirState) -> String {
    let left = &state.leftovers;
    let checkpoint = left
        .checkpoint
        .map(|(done, total)| format!("a checkpoint with {done} of {total} blocks: the same command resumes"));
    let found = [
        left.has_journal.then(|| "a replacement of databases that is not complete".to_owned()),
        (left.has_unfinished_databases && !left.has_journal)
            .then(|| "unfinished databases: the next command that writes removes them".to_owned()),
        checkpoint,
        left.has_made_undo.then(|| "undo data that is not in place".to_owned()),
        left.has_work_dirs.then(|| "temporary files: recover, or the next rebuild, removes them".to_owned()),
    ];
    let found: Vec<String> = found.into_iter().flatten().collect();
    if found.is_empty() { "none".to_owned() } else { found.join("; ") }
}

fn space_text(state: &DatadirState) -> String {
    let rebuild = &state.rebuild;
    if state.index.is_pruned {
        return rebuild.free.map_or("unknown".to_owned(), |free| format!("{} free", HumanSize(free)));
    }
    let free = rebuild.free.map_or("unknown".to_owned(), |free| HumanSize(free).to_string());
    let need = rebuild.need.total();
    let lacks = if rebuild.free.is_some_and(|free| free < need) { ", which is too little" } else { "" };
    format!("{free} free; a rebuild {}{lacks}", rebuild.need)
}

fn duration_text(state: &DatadirState) -> String {
    let rebuild = &state.rebuild;
    if state.index.is_pruned {
        return "not possible: the blocks for it were deleted".to_owned();
    }
    let Some(time) = &rebuild.duration else { return "nothing to rebuild from".to_owned() };
    let scripts = match time.script_work {
        None => "without scripts".to_owned(),
        Some(ScriptWork { bytes: 0, .. }) => "all scripts are assumed to be valid".to_owned(),
        Some(work) => {
            let blocks = match work {
                ScriptWork { blocks: 0, .. } => "all blocks".to_owned(),
                ScriptWork { above: None, blocks, .. } => format!("all {} blocks", count(blocks)),
                ScriptWork { above: Some(Height(height)), blocks, .. } => {
                    format!("the {} blocks above height {}", count(blocks), count(height))
                }
            };
            let (plain, run) = (durations(&time.blocks), durations(&time.scripts));
            format!("{plain} for the blocks, and {run} for the scripts of {blocks}")
        }
    };
    let busy = if time.is_busy { "; the machine is busy now, which makes it longer" } else { "" };
    format!("about {}, an estimate from small samples: {scripts}{busy}", durations(&time.total()))
}

/// How long a rebuild takes that trusts the block index.
fn checked_text(state: &DatadirState) -> Option<String> {
    let time = state.rebuild.checked_duration.as_ref()?;
    let height = count(time.script_work?.above?.0);
    let total = durations(&time.total());
    Some(format!(
        "about {total} with --assumevalid checked: by the block index, your bitcoind has checked the scripts \
         up to height {height}"
    ))
}

fn deep_lines(deep: &DeepState, lines: &mut Vec<(&'static str, String)>) {
    let mut read = format!("{} read, {} damaged", deep.blocks, deep.damaged);
    if deep.elsewhere > 0 {
        read += &format!(", {} of which lie sound at other places in the block files", deep.elsewhere);
    }
    let blocks = match &deep.refusal {
        Some(error) if deep.blocks == 0 => format!("cannot be read: {}", error.fact_text()),
        Some(error) => format!("{read}; {}", error.fact_text()),
        None if deep.blocks == 0 => "not read: the first ones were pruned".to_owned(),
        None => read,
    };
    lines.push(("all blocks", blocks));
    lines.extend(deep.first.iter().map(|error| ("", error.fact_text())));
    let undo = |file: &engine::UndoFileCheck| {
        let name = FileKind::Rev.file_name(file.file);
        format!("{name}: of {} blocks missing, of {} damaged", file.missing, file.damaged)
    };
    let undo: Vec<String> = deep.undo.iter().map(undo).collect();
    if deep.blocks > 0 {
        lines.push(("all undo data", if undo.is_empty() { "sound".to_owned() } else { undo.join("; ") }));
    }
    lines.push((
        "all coins",
        match &deep.coins {
            Ok((count, hash)) => format!("{count}, hash_serialized_3 {}", engine::hex_reversed(hash)),
            Err(error) => format!("cannot be read: {}", error.fact_text()),
        },
    ));
}

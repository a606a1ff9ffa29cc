//! The command `peregrine doctor`: its arguments, its report, and the command that it advises to run next.

use crate::{
    args::common::DatadirArgs,
    core_args::Located,
    progress::{Style, stages},
    run,
    units::{count, durations},
};
use clap::Args as ClapArgs;
use engine::{
    Advice, ChainstatePosition, DatadirState, DeepState, Diagnosis, DoctorOptions, FileKind, Height,
    HumanSize, Network, RealDisk, ScriptWork,
};
use peregrine::{
    exit::Exit,
    output::{Done, reply},
    shell::{as_user, command_line, user_name},
};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

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
    let options = DoctorOptions { chain, deep: args.deep };
    let shown = (args.progress, stages::DOCTOR);
    let diagnosis = run::run(Some(&options.chain), shown, |sink, interrupt| {
        engine::diagnose(&RealDisk, &options, sink, interrupt)
    })?;
    let exit = match diagnosis.advice {
        _ if diagnosis.is_sound() => Exit::Done,
        Advice::StopBitcoind | Advice::Wait | Advice::RunAs { .. } | Advice::ChangeOwner { .. } => {
            Exit::Environment
        }
        Advice::CheckDisk | Advice::RestoreLink { .. } => Exit::Environment,
        _ => Exit::Damaged,
    };
    let next = next_command(&diagnosis, &located, false);
    let has_offline = diagnosis.advice == Advice::Repair;
    let next_offline = has_offline.then(|| next_command(&diagnosis, &located, true));
    let report = DoctorReport { diagnosis, next, next_offline };
    Ok(reply(&report, exit, |report| text(report, &located)))
}

/// What is found, and the command to run next.
#[derive(Serialize, JsonSchema)]
pub struct DoctorReport {
    #[serde(flatten)]
    diagnosis: Diagnosis,
    next: String,
    /// Another one, which needs no peers.
    next_offline: Option<String>,
}

/// Returns the command to run next; with `is_offline`, the one that needs no peers, if there is one. A remark
/// that is no command begins with `#`.
fn next_command(diagnosis: &Diagnosis, located: &Located, is_offline: bool) -> String {
    let network = diagnosis.network;
    let state = diagnosis.found.as_ref().ok();
    let is_unindexed = state.is_some_and(|state| {
        !state.index.state.is_sound() || state.chainstate.position == Some(ChainstatePosition::NotStored)
    });
    let peregrine = |words: &[&str]| {
        let words = ["peregrine"].iter().chain(words).map(|&word| word.to_owned());
        words.chain(located.flags()).collect::<Vec<_>>()
    };
    let core = |program: &str, last: Option<&str>| {
        let dir = state.map_or(&*located.root, |state| core_datadir(&state.dir, network));
        let words = [program.to_owned()].into_iter().chain(located.core_flags(dir));
        let is_pruned = program == "bitcoind" && state.is_some_and(|state| state.index.is_pruned);
        // Without this, it asks for a new download of all blocks.
        let prune = is_pruned.then(|| format!("-prune={}", located.prune_target()));
        words.chain(prune).chain(last.map(str::to_owned)).collect()
    };
    let words: Vec<String> = match &diagnosis.advice {
        Advice::LetItRun => return "# nothing to do: bitcoind is running".to_owned(),
        Advice::Wait => return "# wait until the other program has ended".to_owned(),
        Advice::NameDatadir => {
            return "peregrine doctor --datadir DIR  # the directory that bitcoind uses as -datadir"
                .to_owned();
        }
        Advice::NameChallenge => {
            let words = ["peregrine", "doctor"].map(str::to_owned).into_iter();
            let line = command_line(words.chain(located.with_network(network).flags()));
            return format!("{line} --signetchallenge HEX  # the challenge that bitcoind uses");
        }
        Advice::NameBlocksdir { directory: Some(dir) } => peregrine(&["doctor"])
            .into_iter()
            .chain(["--blocksdir".to_owned(), dir.display().to_string()])
            .collect(),
        Advice::NameBlocksdir { directory: None } => {
            let line = command_line(peregrine(&["doctor"]).into_iter());
            return format!(
                "{line} --blocksdir DIR  # as for bitcoind -blocksdir; if it has none, the datadir"
            );
        }
        Advice::CheckDisk => return "sudo dmesg --level=err,warn".to_owned(),
        Advice::MoveAway { path } => {
            ["mv".to_owned(), path.display().to_string(), format!("{}.old", path.display())].into()
        }
        Advice::RestoreLink { path: link } => {
            let line =
                command_line(["ls", "-l"].map(str::to_owned).into_iter().chain([link.display().to_string()]));
            return format!("{line}  # mount the disk with what this link leads to, or restore that");
        }
        Advice::ChangeOwner { directories: paths } => {
            let owner = state.map_or(0, |state| state.owner.uid);
            let name = user_name(owner);
            let words = ["sudo", "chown", "-R", name.trim_start_matches('#')].map(str::to_owned);
            return command_line(
                words.into_iter().chain(paths.iter().map(|path| path.display().to_string())),
            );
        }
        Advice::RestoreKey { key } => {
            let file = state
                .map_or(located.datadir().blocks_dir(), |state| state.blocks_dir.clone())
                .join("xor.dat");
            let bytes: String = key.iter().map(|byte| format!("\\{byte:03o}")).collect();
            // A wrong key may belong to other files.
            let exists = file.exists();
            let quoted = |suffix| command_line([format!("{}{suffix}", file.display())].into_iter());
            let (file, old) = (quoted(""), quoted(".old"));
            let keep = if exists { format!("mv {file} {old} && ") } else { String::new() };
            let line = format!("{keep}printf '{bytes}' > {file}");
            match state.is_some_and(|state| state.owner.uid != state.owner.user) {
                true => ["sh".to_owned(), "-c".to_owned(), line].into(),
                false => return line,
            }
        }
        Advice::MoveSnapshotAway => {
            let dir = state.map_or(located.root.clone(), |state| state.dir.join("chainstate_snapshot"));
            let old = dir.with_extension("old");
            ["mv".to_owned(), dir.display().to_string(), old.display().to_string()].into()
        }
        Advice::StartBitcoind => core("bitcoind", None),
        Advice::StartWithoutUndo => core("bitcoind", Some("-checklevel=1")),
        Advice::StopBitcoind => core("bitcoin-cli", Some("stop")),
        Advice::BitcoindReindex => core("bitcoind", Some("-reindex")),
        Advice::ChooseNetwork { network: other } => {
            let words = ["peregrine", "doctor"].map(str::to_owned).into_iter();
            words.chain(located.with_network(*other).flags()).collect()
        }
        Advice::RunAs { .. } => peregrine(&["doctor"]),
        Advice::FinishReplacement => peregrine(&["recover"]),
        Advice::Sync => peregrine(&["sync"]),
        Advice::Repair if is_offline && is_unindexed => peregrine(&["reindex", "--scan", "--until-damage"]),
        Advice::Repair if is_offline => peregrine(&["reindex", "--until-damage"]),
        Advice::Repair => peregrine(&["repair"]),
        Advice::Reindex => peregrine(&["reindex"]),
        Advice::ReindexByScan => peregrine(&["reindex", "--scan"]),
        Advice::MakeUndo => peregrine(&["undo", "make"]),
        _ => peregrine(&["doctor"]),
    };
    match state.map(|state| &state.owner) {
        Some(owner) if owner.uid != owner.user => as_user(owner.uid, words.into_iter()),
        _ => command_line(words.into_iter()),
    }
}

/// The datadir as bitcoind is told it, which contains the directory of a network.
fn core_datadir(net_dir: &Path, network: Network) -> &Path {
    match network.subdirectory().and(net_dir.parent()) {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => net_dir,
    }
}

fn text(report: &DoctorReport, located: &Located) -> String {
    let DoctorReport { diagnosis, next, next_offline } = report;
    let (mut lines, has_prune) = (vec![], located.prune.is_some());
    match &diagnosis.found {
        Ok(state) => state_lines(diagnosis.network, state, has_prune, &mut lines),
        Err(absence) => {
            lines.push(("datadir", format!("{}: {absence}", located.root.display())));
        }
    }
    let advice = match &diagnosis.advice {
        Advice::RunAs { user } => format!("run doctor again as user {}", user_name(*user)),
        advice => advice.to_string(),
    };
    lines.push(("advice", advice));
    lines.extend(next_offline.iter().map(|offline| ("without peers", offline.clone())));
    lines.push(("next", next.clone()));
    lines.iter().map(|(label, value)| format!("{label:<18} {value}")).collect::<Vec<_>>().join("\n")
}

fn state_lines(
    network: Network,
    state: &DatadirState,
    has_prune: bool,
    lines: &mut Vec<(&'static str, String)>,
) {
    lines.push(("network", format!("{network}, in {}", state.dir.display())));
    lines.push(("owner", owner_text(state)));
    lines.push(("in use", state.lock.to_string()));
    lines.push(("written by", state.version.clone().unwrap_or("unknown (no debug.log)".to_owned())));
    if let Some(error) = &state.key {
        lines.push(("xor.dat", error.fact_text()));
    }
    lines.push(("block index", state.index.to_string()));
    lines.push(("block files", state.blocks.to_string()));
    lines.push(("undo files", state.undo.to_string()));
    lines.push(("chainstate", state.chainstate.to_string()));
    let snapshot = match (&state.snapshot_error, state.has_snapshot) {
        (Some(error), _) => error.fact_text(),
        (None, true) => "there is one: bitcoind uses it first".to_owned(),
        (None, false) => "none".to_owned(),
    };
    lines.push(("snapshot", snapshot));
    let indexes = if state.indexes.is_empty() { "none".to_owned() } else { state.indexes.join(", ") };
    lines.push(("other indexes", indexes));
    lines.push(("pruned", pruned_text(state, has_prune)));
    lines.push(("interrupted runs", leftovers_text(state)));
    lines.push(("disk space", space_text(state)));
    lines.push(("rebuild", duration_text(state)));
    if let Some(error) = &state.refusal {
        lines.push(("rebuild refused", error.fact_text()));
    }
    if let Some(deep) = &state.deep {
        deep_lines(deep, lines);
    }
}

fn owner_text(state: &DatadirState) -> String {
    let owner = &state.owner;
    let mut text = user_name(owner.uid);
    if owner.uid != owner.user {
        text += &format!("; this is {}, so use sudo -u {text}", user_name(owner.user));
    }
    for path in &owner.foreign {
        text += &format!("; {} belongs to another user, so bitcoind cannot open it", path.display());
    }
    text
}

fn pruned_text(state: &DatadirState, has_prune: bool) -> String {
    let text = match state.index.state.is_sound() {
        true if state.index.is_pruned => "yes: only bitcoind can repair it, by downloading all blocks again",
        true => "no",
        false => "unknown",
    };
    let has_option = !state.index.is_pruned || has_prune;
    let missing = "; bitcoin.conf has no prune=, so bitcoind starts only with -prune on its command line";
    format!("{text}{}", if has_option { "" } else { missing })
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

fn deep_lines(deep: &DeepState, lines: &mut Vec<(&'static str, String)>) {
    let blocks = match &deep.refusal {
        Some(error) => format!("cannot be read: {}", error.fact_text()),
        None if deep.blocks == 0 => "not read: the first ones were pruned".to_owned(),
        None => format!("{} read, {} damaged", deep.blocks, deep.damaged),
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

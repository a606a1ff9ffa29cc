//! The command `peregrine doctor`: its arguments, its report, and the command that it advises to run next.

pub mod json;

use crate::{
    args::DatadirArgs,
    core_args::Located,
    fault::fact_text,
    json::{Report, report},
    limits,
    progress::{Progress, Style, stages},
    report::rev_names,
    units::duration,
};
use clap::Args as ClapArgs;
use engine::{
    Absence, Advice, ChainstatePosition, DatabaseState, DatadirState, DeepState, Diagnosis, DoctorOptions,
    FileNo, FilesState, Height, HumanSize, LockState, Network, RealDisk,
};
use peregrine::{
    exit::Exit,
    output::{Done, as_user, command_line, user_name},
    stop::interrupt,
};
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
    let chain = args.datadir.default_options(&located);
    limits::check(&chain)?;
    let options = DoctorOptions { chain, deep: args.deep };
    let interrupt = interrupt(args.datadir.json)?;
    let progress = Progress::new(args.progress, stages::DOCTOR);
    let diagnosis = engine::diagnose(&RealDisk, &options, &progress, &interrupt);
    progress.close();
    let diagnosis = diagnosis?;
    let exit = match diagnosis.advice {
        _ if diagnosis.is_sound() => Exit::Done,
        Advice::StopBitcoind | Advice::Wait | Advice::RunAs(_) | Advice::ChangeOwner(_) => Exit::Environment,
        Advice::CheckDisk => Exit::Environment,
        _ => Exit::Damaged,
    };
    let next = next_command(&diagnosis, &located, false);
    let has_offline = diagnosis.advice == Advice::Repair;
    let offline = has_offline.then(|| next_command(&diagnosis, &located, true));
    Ok(match args.datadir.json {
        true => report(Report::Doctor(Box::new(json::diagnosis(&diagnosis, next, offline))), exit),
        false => (text(&diagnosis, &located.root, (&next, offline.as_deref())), exit),
    })
}

/// Returns the command to run next; with `is_offline`, the one that needs no peers, if there is one. A remark
/// that is no command begins with `#`.
fn next_command(diagnosis: &Diagnosis, located: &Located, is_offline: bool) -> String {
    let network = diagnosis.network;
    let state = diagnosis.found.as_ref().ok();
    let peregrine = |words: &[&str]| {
        let words = ["peregrine"].iter().chain(words).map(|&word| word.to_owned());
        words.chain(located.flags()).collect()
    };
    let core = |program: &str, last: Option<&str>| {
        let dir = state.map_or(&*located.root, |state| core_datadir(&state.dir, network));
        let words = [program.to_owned()].into_iter().chain(located.core_flags(dir));
        words.chain(last.map(str::to_owned)).collect()
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
        Advice::CheckDisk => return "sudo dmesg --level=err,warn".to_owned(),
        Advice::ChangeOwner(paths) => {
            let owner = state.map_or(0, |state| state.owner.uid);
            let name = user_name(owner);
            let words = ["sudo", "chown", "-R", name.trim_start_matches('#')].map(str::to_owned);
            return command_line(
                words.into_iter().chain(paths.iter().map(|path| path.display().to_string())),
            );
        }
        Advice::RestoreKey(key) => {
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
        Advice::StartBitcoind => core("bitcoind", None),
        Advice::StopBitcoind => core("bitcoin-cli", Some("stop")),
        Advice::BitcoindReindex => core("bitcoind", Some("-reindex")),
        Advice::ChooseNetwork(other) => {
            let words = ["peregrine", "doctor"].map(str::to_owned).into_iter();
            words.chain(located.with_network(*other).flags()).collect()
        }
        Advice::RunAs(_) => peregrine(&["doctor"]),
        Advice::FinishReplacement => peregrine(&["utxo", "stats"]),
        Advice::Sync => peregrine(&["sync"]),
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

fn text(diagnosis: &Diagnosis, datadir: &Path, (next, offline): (&str, Option<&str>)) -> String {
    let mut lines = vec![];
    match &diagnosis.found {
        Ok(state) => state_lines(diagnosis.network, state, &mut lines),
        Err(absence) => {
            let what = absence_text(absence, diagnosis.network);
            lines.push(("datadir", format!("{}: {what}", datadir.display())));
        }
    }
    lines.push(("advice", advice_text(&diagnosis.advice)));
    lines.extend(offline.map(|offline| ("without peers", offline.to_owned())));
    lines.push(("next", next.to_owned()));
    lines.iter().map(|(label, value)| format!("{label:<18} {value}")).collect::<Vec<_>>().join("\n")
}

fn absence_text(absence: &Absence, network: Network) -> String {
    match absence {
        Absence::NoDirectory => "no such directory".to_owned(),
        Absence::NoBlocks => "no Bitcoin Core datadir: it has no directory blocks".to_owned(),
        Absence::OtherNetworks(others) => {
            let names: Vec<_> = others.iter().map(|other| other.name()).collect();
            format!("it has no blocks of {network}, but of: {}", names.join(", "))
        }
    }
}

/// Words what to do next, without the command.
fn advice_text(advice: &Advice) -> String {
    let text = match advice {
        Advice::StartBitcoind => "start bitcoind; what is left to do, it does when it starts",
        Advice::LetItRun => "nothing: bitcoind is running, and nothing is wrong",
        Advice::StopBitcoind => "stop bitcoind, wait until it has ended, and examine again",
        Advice::Wait => "wait until the other program that uses the datadir has ended",
        Advice::NameDatadir => "pass the directory that bitcoind uses as its datadir",
        Advice::ChooseNetwork(network) => return format!("examine the blocks of {network}, which are here"),
        Advice::NameChallenge => "pass the challenge of this signet",
        Advice::RunAs(user) => return format!("run doctor again as user {}", user_name(*user)),
        Advice::ChangeOwner(_) => "give the databases to the owner of the datadir",
        Advice::CheckDisk => "look for errors of the disk: a file cannot be read",
        Advice::RestoreKey(_) => "restore xor.dat, whose contents follow from the block files",
        Advice::FinishReplacement => "finish the replacement of databases that was interrupted",
        Advice::Sync => "download the blocks that are missing",
        Advice::Repair => "download the blocks that are damaged or missing, and rebuild what needs it",
        Advice::Reindex => "rebuild the chainstate",
        Advice::ReindexByScan => "rebuild the block index and the chainstate from the block files",
        Advice::MakeUndo => "make the undo data that is missing or damaged",
        Advice::BitcoindReindex => "let bitcoind download blocks again: not all are stored and sound",
        _ => "run the command below",
    };
    text.to_owned()
}

fn state_lines(network: Network, state: &DatadirState, lines: &mut Vec<(&'static str, String)>) {
    lines.push(("network", format!("{network}, in {}", state.dir.display())));
    lines.push(("owner", owner_text(state)));
    lines.push(("in use", lock_text(&state.lock)));
    lines.push(("written by", state.version.clone().unwrap_or("unknown (no debug.log)".to_owned())));
    if let Some(error) = &state.key {
        lines.push(("xor.dat", fact_text(error)));
    }
    lines.push(("block index", index_text(state)));
    lines.push(("block files", files_text(&state.blocks, "blk")));
    lines.push(("undo files", files_text(&state.undo, "rev")));
    lines.push(("chainstate", chainstate_text(state)));
    let snapshot = if state.has_snapshot { "there is one: bitcoind uses it first" } else { "none" };
    lines.push(("snapshot", snapshot.to_owned()));
    let indexes = if state.indexes.is_empty() { "none".to_owned() } else { state.indexes.join(", ") };
    lines.push(("other indexes", indexes));
    let pruned = match state.index.state.is_sound() {
        true if state.index.is_pruned => "yes: only bitcoind can repair it, by downloading all blocks again",
        true => "no",
        false => "unknown",
    };
    lines.push(("pruned", pruned.to_owned()));
    lines.push(("interrupted runs", leftovers_text(state)));
    lines.push(("disk space", space_text(state)));
    lines.push(("rebuild", duration_text(state)));
    if let Some(error) = &state.refusal {
        lines.push(("rebuild refused", fact_text(error)));
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

fn lock_text(lock: &LockState) -> String {
    match lock {
        LockState::Free => "no".to_owned(),
        LockState::Unknown => "unknown (the lock files cannot be opened)".to_owned(),
        LockState::Held(holder) => {
            let program = holder.program.as_deref().unwrap_or("another program");
            let pid = holder.pid.map_or(String::new(), |pid| format!(" (process {pid})"));
            format!("yes: {program}{pid} is running on it")
        }
    }
}

/// Words the state of a database, unless it is sound.
fn flaw_text(state: &DatabaseState) -> Option<String> {
    match state {
        DatabaseState::Sound => None,
        DatabaseState::Absent => Some("absent".to_owned()),
        DatabaseState::Broken(error) => Some(format!("broken: {}", fact_text(error))),
        DatabaseState::Unreadable(error) => Some(format!("cannot be read: {}", fact_text(error))),
    }
}

fn index_text(state: &DatadirState) -> String {
    let index = &state.index;
    flaw_text(&index.state).unwrap_or_else(|| {
        format!(
            "sound: {} blocks and {} headers; blocks are stored up to height {}, headers reach {}",
            index.blocks, index.headers, index.stored_height, index.header_height
        )
    })
}

fn files_text(files: &FilesState, prefix: &str) -> String {
    let mut text = format!("{} with {}", files.files, HumanSize(files.bytes));
    for (numbers, what) in [(&files.missing, "missing"), (&files.short, "too short")] {
        if let Some(FileNo(first)) = numbers.first() {
            let others = numbers.len() - 1;
            let more = if others > 0 { format!(" and {others} more") } else { String::new() };
            text += &format!("; {prefix}{first:05}.dat{more} {what}");
        }
    }
    if files.lost > 0 {
        text += &format!("; {} blocks were in them", files.lost);
    }
    if files.lost_stale > 0 {
        text += &format!(", {} of them stale", files.lost_stale);
    }
    if files.unrecorded > 0 {
        text += &format!("; the block index places nothing for {} blocks", files.unrecorded);
    }
    if files.beyond_use > 0 {
        text += &format!("; the block index places {} blocks beyond the bytes in use", files.beyond_use);
    }
    if let Some((height, hash)) = files.first {
        text += &format!("; the first is {hash} ({height})");
    }
    text
}

fn chainstate_text(state: &DatadirState) -> String {
    let chainstate = &state.chainstate;
    let flaw = flaw_text(&chainstate.state);
    let flaw = flaw.or(chainstate
        .flush_interrupted
        .then(|| "bitcoind was stopped while it wrote, and completes that when it starts".to_owned()));
    let Some(best) = chainstate.best_block else { return flaw.unwrap_or("no best block".to_owned()) };
    let height = chainstate.height.map_or("height unknown".to_owned(), |Height(height)| height.to_string());
    let position = match chainstate.position {
        None => String::new(),
        Some(ChainstatePosition::AtTip) => ", at the last stored block".to_owned(),
        Some(ChainstatePosition::Behind(blocks)) => format!(", {blocks} blocks below the last stored one"),
        Some(ChainstatePosition::NotInIndex) => ", which the block index does not contain".to_owned(),
    };
    let place = format!("block {best} ({height}){position}");
    flaw.map_or(format!("opens: {place}"), |flaw| format!("{flaw}; {place}"))
}

fn leftovers_text(state: &DatadirState) -> String {
    let left = &state.leftovers;
    let checkpoint = left
        .checkpoint
        .map(|(done, total)| format!("a checkpoint with {done} of {total} blocks: the same command resumes"));
    let found = [
        left.has_journal.then(|| "a replacement of databases: the next command finishes it".to_owned()),
        (left.has_unfinished_databases && !left.has_journal)
            .then(|| "unfinished databases: the next command removes them".to_owned()),
        checkpoint,
        left.has_made_undo.then(|| "undo data that is not in place".to_owned()),
    ];
    let found: Vec<String> = found.into_iter().flatten().collect();
    if found.is_empty() { "none".to_owned() } else { found.join("; ") }
}

fn space_text(state: &DatadirState) -> String {
    let rebuild = &state.rebuild;
    let free = rebuild.free.map_or("unknown".to_owned(), |free| HumanSize(free).to_string());
    let need = needed_bytes(state);
    let lacks = if rebuild.free.is_some_and(|free| free < need) { ", which is too little" } else { "" };
    format!("{free} free; a rebuild {}{lacks}", rebuild.need)
}

/// All disk space that a rebuild needs, in bytes, if it is all on one disk.
fn needed_bytes(state: &DatadirState) -> u64 {
    let need = &state.rebuild.need;
    need.chainstate + need.temporary + need.undo
}

fn duration_text(state: &DatadirState) -> String {
    let rebuild = &state.rebuild;
    let Some((time, speed)) = rebuild.duration.zip(rebuild.bytes_per_second) else {
        return "nothing to rebuild from".to_owned();
    };
    format!(
        "about {}, an estimate: {}/s in a small sample, without scripts",
        duration(time),
        HumanSize(speed)
    )
}

fn deep_lines(deep: &DeepState, lines: &mut Vec<(&'static str, String)>) {
    let blocks = match &deep.refusal {
        Some(error) => format!("cannot be read: {}", fact_text(error)),
        None if deep.blocks == 0 => "not read: the first ones were pruned".to_owned(),
        None => format!("{} read, {} damaged", deep.blocks, deep.damaged),
    };
    lines.push(("all blocks", blocks));
    lines.extend(deep.first.iter().map(|error| ("", fact_text(error))));
    let undo = |file: &engine::UndoFileCheck| {
        let name: String = rev_names(&[file.file]).collect();
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
            Err(error) => format!("cannot be read: {}", fact_text(error)),
        },
    ));
}

//! The command `peregrine doctor`: its arguments, its report, and the command that it advises to run next.

mod json;

use crate::{
    args::DatadirArgs,
    limits,
    progress::{Progress, Style},
    report::rev_names,
};
use clap::Args as ClapArgs;
use engine::{
    Absence, Advice, ChainstatePosition, DatabaseState, DatadirState, DeepState, Diagnosis, DoctorOptions,
    Error, FileNo, FilesState, Height, HumanSize, LockState, Network, RealDisk,
};
use peregrine::{
    exit::Exit,
    output::{Done, as_user, command_line, user_name},
    remedy::error_text,
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
    let chain = args.datadir.default_options();
    limits::check(&chain)?;
    let options = DoctorOptions { chain, deep: args.deep };
    let interrupt = interrupt(args.datadir.json)?;
    let progress = Progress::new(args.progress);
    let diagnosis = engine::diagnose(&RealDisk, &options, &progress, &interrupt);
    progress.close();
    let diagnosis = diagnosis?;
    let exit = match diagnosis.advice {
        _ if diagnosis.is_sound() => Exit::Done,
        Advice::StopBitcoind | Advice::Wait | Advice::RunAs(_) | Advice::ChangeOwner(_) => Exit::Environment,
        Advice::CheckDisk => Exit::Environment,
        _ => Exit::Damaged,
    };
    let next = next_command(&diagnosis, &args.datadir.datadir);
    let text = match args.datadir.json {
        true => json::text(&diagnosis, next),
        false => text(&diagnosis, &args.datadir.datadir, &next),
    };
    Ok((text, exit))
}

/// Returns the command to run next. A remark that is no command begins with `#`.
fn next_command(diagnosis: &Diagnosis, datadir: &Path) -> String {
    let network = diagnosis.network;
    let state = diagnosis.found.as_ref().ok();
    let peregrine = |words: &[&str], network: Network| {
        let chain = ["--chain".to_owned(), network.name().to_owned()];
        let chain = chain.into_iter().filter(|_| network != Network::Main);
        let words = ["peregrine"].iter().chain(words).map(|&word| word.to_owned());
        words.chain(["--datadir".to_owned(), datadir.display().to_string()]).chain(chain).collect()
    };
    let core = |program: &str, last: Option<&str>| {
        let dir = state.map_or(datadir, |state| core_datadir(&state.dir, network));
        let chain = (network != Network::Main).then(|| format!("-chain={}", network.name()));
        let words = [program.to_owned(), format!("-datadir={}", dir.display())].into_iter();
        words.chain(chain).chain(last.map(str::to_owned)).collect()
    };
    let words: Vec<String> = match &diagnosis.advice {
        Advice::LetItRun => return "# nothing to do: bitcoind is running".to_owned(),
        Advice::Wait => return "# wait until the other program has ended".to_owned(),
        Advice::NameDatadir => {
            return "peregrine doctor --datadir DIR  # the directory that bitcoind uses as -datadir"
                .to_owned();
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
            let file = state.map_or(datadir, |state| &state.dir).join("blocks/xor.dat");
            let bytes: String = key.iter().map(|byte| format!("\\{byte:03o}")).collect();
            let file = command_line([file.display().to_string()].into_iter());
            let line = format!("printf '{bytes}' > {file}");
            match state.is_some_and(|state| state.owner.uid != state.owner.user) {
                true => ["sh".to_owned(), "-c".to_owned(), line].into(),
                false => return line,
            }
        }
        Advice::StartBitcoind => core("bitcoind", None),
        Advice::StopBitcoind => core("bitcoin-cli", Some("stop")),
        Advice::BitcoindReindex => core("bitcoind", Some("-reindex")),
        Advice::ChooseNetwork(other) => peregrine(&["doctor"], *other),
        Advice::RunAs(_) => peregrine(&["doctor"], network),
        Advice::FinishReplacement => peregrine(&["utxo", "stats"], network),
        Advice::Sync => peregrine(&["sync"], network),
        Advice::Reindex => peregrine(&["reindex"], network),
        Advice::ReindexByScan => peregrine(&["reindex", "--scan"], network),
        Advice::MakeUndo => peregrine(&["undo", "make"], network),
        _ => peregrine(&["doctor"], network),
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

fn text(diagnosis: &Diagnosis, datadir: &Path, next: &str) -> String {
    let mut lines = vec![];
    match &diagnosis.found {
        Ok(state) => state_lines(diagnosis.network, state, &mut lines),
        Err(absence) => {
            let what = match absence {
                Absence::NoDirectory => "no such directory".to_owned(),
                Absence::NoBlocks => "no Bitcoin Core datadir: it has no directory blocks".to_owned(),
                Absence::OtherNetworks(others) => {
                    let names: Vec<_> = others.iter().map(|other| other.name()).collect();
                    format!("it has no blocks of {}, but of: {}", diagnosis.network, names.join(", "))
                }
            };
            lines.push(("datadir", format!("{}: {what}", datadir.display())));
        }
    }
    lines.push(("next", next.to_owned()));
    lines.iter().map(|(label, value)| format!("{label:<18} {value}")).collect::<Vec<_>>().join("\n")
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

/// Words an error without what helps: that is the command at the end.
fn fact_text(error: &Error) -> String {
    let mut error = error.clone();
    error.remedies.clear();
    error_text(&error)
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
    let seconds = time.as_secs();
    let time = match seconds {
        0..120 => format!("{} s", seconds.max(1)),
        120..7200 => format!("{} minutes", seconds / 60),
        _ => format!("{:.1} hours", time.as_secs_f64() / 3600.0),
    };
    format!("about {time}, an estimate: {}/s in a small sample, without scripts", HumanSize(speed))
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

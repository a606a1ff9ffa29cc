//! The command `peregrine doctor`: its arguments, its report, and the command that it advises to run next.

mod next_line;

use crate::{prelude::*, run_note::RunNote, units::durations};
use engine::{
    FileKind,
    doctor::{Advice, DatadirState, DeepState, Diagnosis, DoctorOptions, Owner, ScriptWork},
};
use next_line::NextLine;
use peregrine::shell::{as_user, user_name};
use std::{
    fs,
    time::{Duration, UNIX_EPOCH},
};

/// Number of blocks below which a datadir may be one that bitcoind began because a disk was not mounted.
const TINY: u32 = 100;

#[derive(Args, Debug)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Read and hash all blocks, undo data and coins too
    #[arg(long)]
    pub deep: bool,
}

pub fn run(args: &DoctorArgs) -> Done {
    let located = args.datadir.core.locate()?;
    // The estimate is that of a rebuild, which runs scripts.
    let chain = args.datadir.checking_options(&located, None, None);
    let interrupted = RunNote::read(&located.datadir());
    let work_dir = interrupted.as_ref().map(|note| note.work_dir.clone());
    let options = DoctorOptions { chain, deep: args.deep, settings: located.settings.clone(), work_dir };
    let diagnosis = args.datadir.run(Some(&options.chain), stages::DOCTOR, |watch| {
        engine::doctor::diagnose(&RealDisk, &options, watch)
    })?;
    let has_own_checkpoint = |state: &DatadirState| {
        state.leftovers.checkpoint.is_some() && state.leftovers.checkpoint_version.is_none()
    };
    let is_resumable = diagnosis.found.as_deref().is_ok_and(has_own_checkpoint);
    let interrupted = interrupted.filter(|_| is_resumable);
    let mut faults = diagnosis.found.iter().flat_map(|state| &state.start.faults);
    let is_of_node =
        faults.any(|fault| fault.error.kind != ErrorKind::Damaged && fault.advice == diagnosis.advice);
    let exit = match diagnosis.advice {
        _ if diagnosis.is_sound() => Exit::Done,
        _ if is_of_node => Exit::Environment,
        Advice::StopBitcoind
        | Advice::Wait
        | Advice::RunAs { .. }
        | Advice::ChangeOwner { .. }
        | Advice::CheckDisk
        | Advice::RestoreLink { .. } => Exit::Environment,
        _ => Exit::Damaged,
    };
    let line = NextLine::new(&diagnosis, &located);
    let printable = |line: String| match line.contains(char::REPLACEMENT_CHARACTER) {
        true => "# a path in the next command is not UTF-8: rename it, and run doctor again".to_owned(),
        false => line,
    };
    let next = printable(line.of(&diagnosis.advice));
    let resumes = interrupted.as_ref().map(|note| printable(line.resume(note)));
    let is_next = interrupted.as_ref().is_some_and(|note| line.is_resumed(&diagnosis.advice, note));
    let next = resumes.clone().filter(|_| is_next).unwrap_or(next);
    let is_repair = diagnosis.advice == Advice::Repair;
    let next_offline = line.repair_offline().filter(|_| is_repair).map(printable);
    let next_from = is_repair.then(|| printable(line.repair_from()));
    let next_checked = line.reindex_checked(&diagnosis.advice).map(printable);
    let report = DoctorReport { diagnosis, next, next_offline, next_from, next_checked, resumes };
    Ok(reply(&report, exit, |report| rows(report, &located)))
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

fn rows(report: &DoctorReport, located: &Located) -> Rows {
    let DoctorReport { diagnosis, next, next_offline, next_from, next_checked, resumes } = report;
    let found = match &diagnosis.found {
        Ok(state) => state_rows(diagnosis.network, state, located),
        Err(absence) => Rows::default().row("datadir", format!("{}: {absence}", located.root.display())),
    };
    let advice = match &diagnosis.advice {
        Advice::RunAs { user } => format!("run doctor again as user {}", user_name(*user)),
        advice => advice.to_string(),
    };
    found
        .row("advice", advice)
        .each("with other files", next_from)
        .each("without peers", next_offline)
        .each("to resume", resumes)
        .each("trusting the index", next_checked)
        .row("next", next)
}

fn state_rows(network: Network, state: &DatadirState, located: &Located) -> Rows {
    let (dir, blocks) = (&state.dir, &state.blocks_dir);
    let other_index = (*blocks != dir.join("blocks") && blocks.join("index").exists())
        .then(|| format!("{}/index: bitcoind uses only the one in the datadir", blocks.display()));
    let link =
        fs::read_link(blocks).map(|led| format!("{}: no other node may write or prune there", led.display()));
    let snapshot = match (&state.snapshot.error, state.snapshot.exists) {
        (Some(error), _) => error.fact_text(),
        (None, true) => "there is one: bitcoind uses it first".to_owned(),
        (None, false) => "none".to_owned(),
    };
    let indexes: Vec<String> = state.indexes.iter().map(ToString::to_string).collect();
    let other_files = state.blocks.other_names.first().map(|first| {
        let more = state.blocks.other_names.len() - 1;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let here = format!("{FROM_HERE} {}", blocks.display());
        format!("{first}{more}: bitcoind does not read files with such names; {here}")
    });
    let version = state.start.last.version.as_deref().unwrap_or("unknown (no debug.log)");
    let rows = Rows::default()
        .row("network", format!("{network}, in {}", dir.display()))
        .row("owner", owner_text(&state.owner))
        .row("in use", &state.lock)
        .row("written by", version)
        .each("xor.dat", state.key.as_ref().map(Error::fact_text))
        .row("block index", &state.index)
        .each("other index", other_index)
        .row("block files", &state.blocks)
        .each("blocks is a link", link)
        .row("undo files", &state.undo)
        .row("chainstate", format!("{}{}", state.chainstate, tiny_text(state)))
        .row("snapshot", snapshot)
        .row("other indexes", if indexes.is_empty() { "none".to_owned() } else { indexes.join("; ") })
        .row("pruned", pruned_text(state, located))
        .row("interrupted runs", leftovers_text(state))
        .each("other files", other_files)
        .row("disk space", space_text(state))
        .row("rebuild", duration_text(state))
        .each("", checked_text(state))
        .each("refused", state.rebuild.refusal.as_ref().map(Error::fact_text))
        .each("start of bitcoind", state.start.faults.iter().map(|fault| &fault.error))
        .each("start of bitcoind", &located.bitcoin_conf.ignored);
    match &state.deep {
        Some(deep) => rows.and(deep_rows(deep)),
        None => rows.row("all coins", "not read, and no blocks: doctor --deep reads all"),
    }
}

fn owner_text(owner: &Owner) -> String {
    let mut text = user_name(owner.uid);
    if owner.uid != owner.user {
        text += &format!("; this is {}, so use {}", user_name(owner.user), as_user(owner.uid, []));
    }
    for path in owner.foreign.iter().map(|path| path.display()) {
        text +=
            &format!("; {path} belongs to another user or may not be written, so bitcoind cannot open it");
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
    let resumes = match &left.checkpoint_version {
        None => "the same command resumes".to_owned(),
        Some(version) => format!("only peregrine {version} resumes"),
    };
    let checkpoint =
        left.checkpoint.map(|(done, total)| format!("a checkpoint with {done} of {total} blocks: {resumes}"));
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
    let lacks = if rebuild.lacks_space { ", for which a disk has too little" } else { "" };
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

fn deep_rows(deep: &DeepState) -> Rows {
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
    let undo = |file: &engine::undo::UndoFileCheck| {
        let name = FileKind::Rev.file_name(file.file);
        format!("{name}: of {} blocks missing, of {} damaged", file.missing, file.damaged)
    };
    let undo: Vec<String> = deep.undo.iter().map(undo).collect();
    let undo = if undo.is_empty() { "sound".to_owned() } else { undo.join("; ") };
    let coins = deep.coins.as_ref().map(|coins| match coins {
        Ok((count, hash)) => format!("{count}, hash_serialized_3 {}", engine::hex_reversed(hash)),
        Err(error) => format!("cannot be read: {}", error.fact_text()),
    });
    Rows::default()
        .row("all blocks", blocks)
        .each("", deep.first.iter().map(Error::fact_text))
        .each("all undo data", (deep.blocks > 0).then_some(undo))
        .each("all coins", coins)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a shell, the number of the user began a comment.
    #[test]
    fn an_owner_without_a_name_is_one_word_of_the_command() {
        let text = owner_text(&Owner { uid: 4_000_000_000, user: 0, foreign: Vec::new() });
        assert_eq!(text, "#4000000000; this is root, so use sudo -u '#4000000000'");
    }
}

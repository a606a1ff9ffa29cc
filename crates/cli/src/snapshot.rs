//! The commands `peregrine snapshot make`, `info`, `verify` and `load`.

use crate::{
    args::{LoadSnapshotArgs, MakeArgs, SnapshotCommand, SnapshotFileArgs, VerifySnapshotArgs},
    core_args::CoreArgs,
    json::{self, Report},
    limits, paths,
    progress::{Progress, stages},
    report::{notes_text, pinned_text},
};
use engine::{ChainOptions, RealDisk, SnapshotMetadata, hex_reversed};
use peregrine::{
    exit::Exit,
    output::Done,
    remedy::{about_height, warning_text},
    stop::interrupt,
};
use serde::Serialize;
use std::{num::NonZeroUsize, path::Path, thread};

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NewSnapshotJson {
    file: String,
    chain: &'static str,
    height: u32,
    block_hash: String,
    coins: u64,
    bytes: u64,
    hash_serialized_3: String,
    /// `null` if Core's source has no hash for this block.
    matches_core_assumeutxo_hash: Option<bool>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SnapshotJson {
    file: String,
    chain: &'static str,
    /// The snapshot's base block.
    block_hash: String,
    coins: u64,
    /// Whether the coins were read. If not, all other fields come from the metadata at the start of the file.
    coins_read: bool,
    hash_serialized_3: Option<String>,
    matches_core_assumeutxo_hash: Option<bool>,
    matches_blocks: Option<bool>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LoadedSnapshotJson {
    file: String,
    chain: &'static str,
    height: u32,
    block_hash: String,
    coins: u64,
    hash_serialized_3: String,
    /// Always true: otherwise the snapshot is not loaded.
    matches_core_assumeutxo_hash: Option<bool>,
    /// Path of the new chainstate.
    chainstate: String,
    seconds: f64,
    notes: Vec<String>,
}

/// Runs a command. Returns whether its output is JSON, and its result.
pub fn run(command: &SnapshotCommand) -> (bool, Done) {
    match command {
        SnapshotCommand::Make(args) => (args.check.datadir.json, make(args)),
        SnapshotCommand::Info(args) => (args.json, info(args)),
        SnapshotCommand::Verify(args) => (args.file.json, verify(args)),
        SnapshotCommand::Load(args) => (args.datadir.json, load(args)),
    }
}

fn make(args: &MakeArgs) -> Done {
    let located = args.check.datadir.core.locate()?;
    let options = args.options(&located);
    paths::check_output(args.check.run.work_dir.as_deref(), &located, &args.output)?;
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.check.datadir.json)?;
    let progress = Progress::new(args.check.run.progress, stages::MAKE);
    let made = engine::make_snapshot(&RealDisk, &options, &args.output, &progress, &interrupt);
    progress.close();
    let made = made.map_err(|error| about_height(error, "--height"))?;
    let new = NewSnapshotJson {
        file: args.output.display().to_string(),
        chain: located.network().name(),
        height: made.height.0,
        block_hash: made.hash.to_string(),
        coins: made.coins,
        bytes: made.bytes,
        hash_serialized_3: hex_reversed(&made.hash_serialized_3),
        matches_core_assumeutxo_hash: made.is_pinned.then_some(true),
    };
    if args.check.datadir.json {
        return Ok(json::report(Report::SnapshotMake(new), Exit::Done));
    }
    let text = format!(
        "snapshot           {}\n\
             block              {} ({})\n\
             coins              {}\n\
             size               {} bytes\n\
             hash_serialized_3  {}{}",
        new.file,
        new.block_hash,
        new.height,
        new.coins,
        new.bytes,
        new.hash_serialized_3,
        pinned_text(new.matches_core_assumeutxo_hash)
    );
    Ok((text, Exit::Done))
}

fn info(args: &SnapshotFileArgs) -> Done {
    let metadata = engine::snapshot_info(&RealDisk, &args.file)?;
    Ok(reply(from_metadata(&args.file, &metadata), args.json, Report::SnapshotInfo, Exit::Done))
}

fn verify(args: &VerifySnapshotArgs) -> Done {
    let interrupt = interrupt(args.file.json)?;
    let progress = Progress::new(args.progress, stages::UNKNOWN);
    let file = &args.file.file;
    let network = engine::snapshot_info(&RealDisk, file)?.network();
    let threads = args.threads.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let core = CoreArgs { chain: args.core.chain.or(Some(network)), ..args.core.clone() };
    let located = core.datadir.as_ref().map(|_| core.locate()).transpose()?;
    let options = located.map(|located| ChainOptions { threads, ..located.chain_options() });
    let verdict =
        engine::verify_snapshot(&RealDisk, file, options.as_ref(), args.aggregate, &progress, &interrupt);
    progress.close();
    let verdict = verdict?;
    let wrong = verdict.pinned == Some(false) || verdict.proven == Some(false);
    let checked = SnapshotJson {
        coins_read: true,
        hash_serialized_3: Some(hex_reversed(&verdict.hash_serialized_3)),
        matches_core_assumeutxo_hash: verdict.pinned,
        matches_blocks: verdict.proven,
        ..from_metadata(file, &verdict.metadata)
    };
    let exit = if wrong { Exit::Damaged } else { Exit::Done };
    Ok(reply(checked, args.file.json, Report::SnapshotVerify, exit))
}

fn load(args: &LoadSnapshotArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let options = args.datadir.default_options(&located);
    let interrupt = interrupt(args.datadir.json)?;
    let progress = Progress::new(args.progress, stages::LOAD);
    let loaded = engine::load_snapshot(&RealDisk, &args.file, &options, &progress, &interrupt);
    progress.close();
    let loaded = loaded?;
    if args.datadir.json {
        let report = LoadedSnapshotJson {
            file: args.file.display().to_string(),
            chain: loaded.network.name(),
            height: loaded.height.0,
            block_hash: loaded.hash.to_string(),
            coins: loaded.coins,
            hash_serialized_3: hex_reversed(&loaded.hash_serialized_3),
            matches_core_assumeutxo_hash: Some(true),
            chainstate: loaded.chainstate.display().to_string(),
            seconds: loaded.elapsed.as_secs_f64(),
            notes: loaded.notes.iter().map(warning_text).collect(),
        };
        return Ok(json::report(Report::SnapshotLoad(report), Exit::Done));
    }
    let text = format!(
        "chainstate of {} at height {} is in {}\n\
         block              {}\n\
         coins              {}\n\
         hash_serialized_3  {}{}{}\n\
         next               start bitcoind: it continues from this block, and validates the blocks below it",
        loaded.network.name(),
        loaded.height,
        loaded.chainstate.display(),
        loaded.hash,
        loaded.coins,
        hex_reversed(&loaded.hash_serialized_3),
        pinned_text(Some(true)),
        notes_text(&loaded.notes)
    );
    Ok((text, Exit::Done))
}

fn from_metadata(file: &Path, metadata: &SnapshotMetadata) -> SnapshotJson {
    SnapshotJson {
        file: file.display().to_string(),
        chain: metadata.network().name(),
        block_hash: metadata.base_block.to_string(),
        coins: metadata.coins,
        coins_read: false,
        hash_serialized_3: None,
        matches_core_assumeutxo_hash: None,
        matches_blocks: None,
    }
}

fn reply(
    snapshot: SnapshotJson,
    as_json: bool,
    of: fn(SnapshotJson) -> Report,
    exit: Exit,
) -> (String, Exit) {
    if as_json { json::report(of(snapshot), exit) } else { (text(&snapshot), exit) }
}

fn text(snapshot: &SnapshotJson) -> String {
    let mut text = format!(
        "snapshot           {}\n\
         chain              {}\n\
         block              {}\n\
         coins              {}",
        snapshot.file, snapshot.chain, snapshot.block_hash, snapshot.coins
    );
    if !snapshot.coins_read {
        text +=
            "\nchecked            only the metadata and the file length; `snapshot verify` checks the coins";
    }
    if let Some(hash) = &snapshot.hash_serialized_3 {
        text += &format!("\nhash_serialized_3  {hash}");
        text += match snapshot.matches_core_assumeutxo_hash {
            None => " (Bitcoin Core's source has no hash for this block)",
            known => pinned_text(known),
        };
    }
    text += match snapshot.matches_blocks {
        Some(true) => "\nproof              the coins match the blocks",
        Some(false) => "\nproof              WRONG: the coins do not match the blocks",
        None => "",
    };
    text
}

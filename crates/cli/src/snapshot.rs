//! `peregrine snapshot`: make, info, verify.

use crate::{
    args::{MakeSnapshotArgs, SnapshotCommand, SnapshotFileArgs, VerifySnapshotArgs},
    limits, paths,
    progress::Progress,
};
use cli::{
    exit::Exit,
    output::{Done, json},
    stop::interrupt,
};
use engine::{RealDisk, ReindexOptions, SnapshotMetadata, hex_reversed};
use serde::Serialize;
use std::{num::NonZeroUsize, path::Path, thread};

#[derive(Serialize)]
struct MadeJson {
    file: String,
    height: u32,
    hash: String,
    coins: u64,
    bytes: u64,
    hash_serialized_3: String,
}

#[derive(Serialize)]
struct VerdictJson {
    file: String,
    chain: &'static str,
    base_block: String,
    coins: u64,
    /// Whether the coins were read; without, all of this is what the file's first bytes say.
    coins_read: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash_serialized_3: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    matches_core_assumeutxo_hash: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    matches_blocks: Option<bool>,
}

/// Runs a command and tells whether its answer is JSON.
pub fn run(command: &SnapshotCommand) -> (bool, Done) {
    match command {
        SnapshotCommand::Make(args) => (args.check.datadir.json, make(args)),
        SnapshotCommand::Info(args) => (args.json, info(args)),
        SnapshotCommand::Verify(args) => (args.file.json, verify(args)),
    }
}

fn make(args: &MakeSnapshotArgs) -> Done {
    let options = ReindexOptions { stop_at_height: args.height.0, ..args.check.resumable(&args.resume) };
    paths::check_output(&args.check, &args.output)?;
    limits::check(&options)?;
    let interrupt = interrupt(args.check.datadir.json)?;
    let progress = Progress::new(args.check.progress);
    let made = engine::make_snapshot(&RealDisk, &options, &args.output, &progress, &interrupt);
    progress.close();
    let made = made?;
    let told = MadeJson {
        file: args.output.display().to_string(),
        height: made.height.0,
        hash: made.hash.to_string(),
        coins: made.coins,
        bytes: made.bytes,
        hash_serialized_3: hex_reversed(&made.hash_serialized_3),
    };
    let text = if args.check.datadir.json {
        json(&told)
    } else {
        format!(
            "snapshot           {}\n\
             block              {} ({})\n\
             coins              {}\n\
             size               {} bytes\n\
             hash_serialized_3  {}",
            told.file, told.hash, told.height, told.coins, told.bytes, told.hash_serialized_3
        )
    };
    Ok((text, Exit::Done))
}

fn info(args: &SnapshotFileArgs) -> Done {
    let metadata = engine::snapshot_info(&RealDisk, &args.file)?;
    Ok((text(&told(&args.file, &metadata), args.json), Exit::Done))
}

fn verify(args: &VerifySnapshotArgs) -> Done {
    let interrupt = interrupt(args.file.json)?;
    let progress = Progress::new(args.progress);
    let file = &args.file.file;
    let network = engine::snapshot_info(&RealDisk, file)?.network;
    let threads = args.threads.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let options =
        args.datadir.as_ref().map(|dir| ReindexOptions { threads, ..ReindexOptions::new(dir, network) });
    let verdict =
        engine::verify_snapshot(&RealDisk, file, options.as_ref(), args.aggregate, &progress, &interrupt);
    progress.close();
    let verdict = verdict?;
    let wrong = verdict.pinned == Some(false) || verdict.proven == Some(false);
    let told = VerdictJson {
        coins_read: true,
        hash_serialized_3: Some(hex_reversed(&verdict.hash_serialized_3)),
        matches_core_assumeutxo_hash: verdict.pinned,
        matches_blocks: verdict.proven,
        ..told(file, &verdict.metadata)
    };
    Ok((text(&told, args.file.json), if wrong { Exit::Damaged } else { Exit::Done }))
}

fn told(file: &Path, metadata: &SnapshotMetadata) -> VerdictJson {
    VerdictJson {
        file: file.display().to_string(),
        chain: metadata.network.name(),
        base_block: metadata.base_block.to_string(),
        coins: metadata.coins,
        coins_read: false,
        hash_serialized_3: None,
        matches_core_assumeutxo_hash: None,
        matches_blocks: None,
    }
}

fn text(told: &VerdictJson, as_json: bool) -> String {
    if as_json {
        return json(told);
    }
    let mut text = format!(
        "snapshot           {}\n\
         chain              {}\n\
         block              {}\n\
         coins              {}",
        told.file, told.chain, told.base_block, told.coins
    );
    if !told.coins_read {
        text +=
            "\nchecked            only the first 51 bytes and the length; `snapshot verify` reads the coins";
    }
    if let Some(hash) = &told.hash_serialized_3 {
        text += &format!("\nhash_serialized_3  {hash}");
        text += match told.matches_core_assumeutxo_hash {
            Some(true) => " (as Bitcoin Core's source has it)",
            Some(false) => " (NOT what Bitcoin Core's source has for this block)",
            None => " (Bitcoin Core's source names none for this block)",
        };
    }
    text += match told.matches_blocks {
        Some(true) => "\nproof              the coins are those that the blocks leave",
        Some(false) => "\nproof              WRONG: the coins are not those that the blocks leave",
        None => "",
    };
    text
}

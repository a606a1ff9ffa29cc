//! The commands `peregrine snapshot make`, `info` and `verify`.

use crate::{
    args::{MakeArgs, SnapshotCommand, SnapshotFileArgs, VerifySnapshotArgs},
    limits, paths,
    progress::Progress,
};
use engine::{ChainOptions, RealDisk, SnapshotMetadata, hex_reversed};
use peregrine::{
    exit::Exit,
    output::{Done, json},
    stop::interrupt,
};
use serde::Serialize;
use std::{num::NonZeroUsize, path::Path, thread};

#[derive(Serialize)]
struct NewSnapshotJson {
    file: String,
    height: u32,
    hash: String,
    coins: u64,
    bytes: u64,
    hash_serialized_3: String,
}

#[derive(Serialize)]
struct SnapshotJson {
    file: String,
    chain: &'static str,
    base_block: String,
    coins: u64,
    /// Whether the coins were read. If not, all other fields come from the metadata at the start of the file.
    coins_read: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash_serialized_3: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    matches_core_assumeutxo_hash: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    matches_blocks: Option<bool>,
}

/// Runs a command. Returns whether its output is JSON, and its result.
pub fn run(command: &SnapshotCommand) -> (bool, Done) {
    match command {
        SnapshotCommand::Make(args) => (args.check.datadir.json, make(args)),
        SnapshotCommand::Info(args) => (args.json, info(args)),
        SnapshotCommand::Verify(args) => (args.file.json, verify(args)),
    }
}

fn make(args: &MakeArgs) -> Done {
    let options = args.options();
    paths::check_output(&args.check, &args.output)?;
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.check.datadir.json)?;
    let progress = Progress::new(args.check.run.progress);
    let made = engine::make_snapshot(&RealDisk, &options, &args.output, &progress, &interrupt);
    progress.close();
    let made = made?;
    let new = NewSnapshotJson {
        file: args.output.display().to_string(),
        height: made.height.0,
        hash: made.hash.to_string(),
        coins: made.coins,
        bytes: made.bytes,
        hash_serialized_3: hex_reversed(&made.hash_serialized_3),
    };
    let text = if args.check.datadir.json {
        json(&new)
    } else {
        format!(
            "snapshot           {}\n\
             block              {} ({})\n\
             coins              {}\n\
             size               {} bytes\n\
             hash_serialized_3  {}",
            new.file, new.hash, new.height, new.coins, new.bytes, new.hash_serialized_3
        )
    };
    Ok((text, Exit::Done))
}

fn info(args: &SnapshotFileArgs) -> Done {
    let metadata = engine::snapshot_info(&RealDisk, &args.file)?;
    Ok((text(&from_metadata(&args.file, &metadata), args.json), Exit::Done))
}

fn verify(args: &VerifySnapshotArgs) -> Done {
    let interrupt = interrupt(args.file.json)?;
    let progress = Progress::new(args.progress);
    let file = &args.file.file;
    let network = engine::snapshot_info(&RealDisk, file)?.network;
    let threads = args.threads.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let options =
        args.datadir.as_ref().map(|dir| ChainOptions { threads, ..ChainOptions::new(dir, network) });
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
    Ok((text(&checked, args.file.json), if wrong { Exit::Damaged } else { Exit::Done }))
}

fn from_metadata(file: &Path, metadata: &SnapshotMetadata) -> SnapshotJson {
    SnapshotJson {
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

fn text(snapshot: &SnapshotJson, as_json: bool) -> String {
    if as_json {
        return json(snapshot);
    }
    let mut text = format!(
        "snapshot           {}\n\
         chain              {}\n\
         block              {}\n\
         coins              {}",
        snapshot.file, snapshot.chain, snapshot.base_block, snapshot.coins
    );
    if !snapshot.coins_read {
        text +=
            "\nchecked            only the metadata and the file length; `snapshot verify` checks the coins";
    }
    if let Some(hash) = &snapshot.hash_serialized_3 {
        text += &format!("\nhash_serialized_3  {hash}");
        text += match snapshot.matches_core_assumeutxo_hash {
            Some(true) => " (matches the hash in Bitcoin Core's source)",
            Some(false) => " (DIFFERS from the hash in Bitcoin Core's source for this block)",
            None => " (Bitcoin Core's source has no hash for this block)",
        };
    }
    text += match snapshot.matches_blocks {
        Some(true) => "\nproof              the coins match the blocks",
        Some(false) => "\nproof              WRONG: the coins do not match the blocks",
        None => "",
    };
    text
}

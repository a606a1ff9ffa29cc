//! The report of `peregrine doctor` as JSON. Names and order of the fields are stable.

use super::{fact_text, needed_bytes};
use crate::report::{blk_names, rev_names};
use engine::{
    Absence, Advice, ChainstatePosition, DatabaseState, DatadirState, DeepState, Diagnosis, FilesState,
    LockState,
};
use peregrine::output::json;
use serde::Serialize;

#[derive(Serialize)]
struct DiagnosisJson {
    chain: &'static str,
    is_sound: bool,
    absence: Option<&'static str>,
    datadir: Option<DatadirJson>,
    advice: &'static str,
    next: String,
    seconds: f64,
}

#[derive(Serialize)]
struct DatadirJson {
    directory: String,
    owner: u32,
    user: u32,
    foreign_databases: Vec<String>,
    lock: LockJson,
    version: Option<String>,
    xor_error: Option<String>,
    block_index: IndexJson,
    block_files: FilesJson,
    undo_files: FilesJson,
    chainstate: ChainstateJson,
    has_snapshot: bool,
    indexes: Vec<String>,
    leftovers: LeftoversJson,
    free_bytes: Option<u64>,
    rebuild_needs_bytes: u64,
    sample_bytes_per_second: Option<u64>,
    rebuild_seconds_estimate: Option<f64>,
    rebuild_refused: Option<String>,
    deep: Option<DeepJson>,
}

#[derive(Serialize)]
struct LockJson {
    state: &'static str,
    pid: Option<u32>,
    program: Option<String>,
}

#[derive(Serialize)]
struct IndexJson {
    state: &'static str,
    error: Option<String>,
    blocks: u32,
    headers: u32,
    header_height: u32,
    stored_height: u32,
    pruned: bool,
}

#[derive(Serialize)]
struct FilesJson {
    files: u32,
    bytes: u64,
    missing: Vec<String>,
    short: Vec<String>,
    blocks_lost: u32,
    stale_blocks_lost: u32,
    blocks_unrecorded: u32,
    blocks_beyond_use: u32,
    first_height: Option<u32>,
    first_hash: Option<String>,
}

#[derive(Serialize)]
struct ChainstateJson {
    state: &'static str,
    error: Option<String>,
    best_block: Option<String>,
    height: Option<u32>,
    position: Option<&'static str>,
    blocks_behind: Option<u32>,
    flush_interrupted: bool,
}

#[derive(Serialize)]
struct LeftoversJson {
    journal: bool,
    unfinished_databases: bool,
    checkpoint_blocks_done: Option<u32>,
    checkpoint_blocks_total: Option<u32>,
    made_undo: bool,
}

#[derive(Serialize)]
struct DeepJson {
    blocks: u32,
    blocks_damaged: u32,
    first_damaged: Vec<String>,
    blocks_error: Option<String>,
    undo_missing: u32,
    undo_damaged: u32,
    txouts: Option<u64>,
    hash_serialized_3: Option<String>,
    coins_error: Option<String>,
}

/// The whole report; `next` is the command to run next.
pub fn text(diagnosis: &Diagnosis, next: String) -> String {
    let absence = diagnosis.found.as_ref().err().map(|absence| match absence {
        Absence::NoDirectory => "no-directory",
        Absence::NoBlocks => "no-blocks",
        Absence::OtherNetworks(_) => "other-networks",
    });
    json(&DiagnosisJson {
        chain: diagnosis.network.name(),
        is_sound: diagnosis.is_sound(),
        absence,
        datadir: diagnosis.found.as_ref().ok().map(|state| datadir(state)),
        advice: advice_name(&diagnosis.advice),
        next,
        seconds: diagnosis.elapsed.as_secs_f64(),
    })
}

fn advice_name(advice: &Advice) -> &'static str {
    match advice {
        Advice::StartBitcoind => "start-bitcoind",
        Advice::LetItRun => "let-it-run",
        Advice::StopBitcoind => "stop-bitcoind",
        Advice::Wait => "wait",
        Advice::NameDatadir => "name-datadir",
        Advice::ChooseNetwork(_) => "choose-network",
        Advice::RunAs(_) => "run-as",
        Advice::ChangeOwner(_) => "change-owner",
        Advice::CheckDisk => "check-disk",
        Advice::RestoreKey(_) => "restore-key",
        Advice::FinishReplacement => "finish-replacement",
        Advice::Sync => "sync",
        Advice::Reindex => "reindex",
        Advice::ReindexByScan => "reindex-by-scan",
        Advice::MakeUndo => "make-undo",
        Advice::BitcoindReindex => "bitcoind-reindex",
        _ => "other",
    }
}

fn datadir(state: &DatadirState) -> DatadirJson {
    let (index, rebuild, left) = (&state.index, &state.rebuild, &state.leftovers);
    let (lock, holder) = match &state.lock {
        LockState::Free => ("free", None),
        LockState::Held(holder) => ("held", Some(holder)),
        LockState::Unknown => ("unknown", None),
    };
    let (index_state, index_error) = database(&index.state);
    DatadirJson {
        directory: state.dir.display().to_string(),
        owner: state.owner.uid,
        user: state.owner.user,
        foreign_databases: state.owner.foreign.iter().map(|path| path.display().to_string()).collect(),
        lock: LockJson {
            state: lock,
            pid: holder.and_then(|holder| holder.pid),
            program: holder.and_then(|holder| holder.program.clone()),
        },
        version: state.version.clone(),
        xor_error: state.key.as_ref().map(fact_text),
        block_index: IndexJson {
            state: index_state,
            error: index_error,
            blocks: index.blocks,
            headers: index.headers,
            header_height: index.header_height.0,
            stored_height: index.stored_height.0,
            pruned: index.is_pruned,
        },
        block_files: files(&state.blocks, blk_names(&state.blocks.missing), blk_names(&state.blocks.short)),
        undo_files: files(&state.undo, rev_names(&state.undo.missing), rev_names(&state.undo.short)),
        chainstate: chainstate(state),
        has_snapshot: state.has_snapshot,
        indexes: state.indexes.clone(),
        leftovers: LeftoversJson {
            journal: left.has_journal,
            unfinished_databases: left.has_unfinished_databases,
            checkpoint_blocks_done: left.checkpoint.map(|(done, _)| done),
            checkpoint_blocks_total: left.checkpoint.map(|(_, total)| total),
            made_undo: left.has_made_undo,
        },
        free_bytes: rebuild.free,
        rebuild_needs_bytes: needed_bytes(state),
        sample_bytes_per_second: rebuild.bytes_per_second,
        rebuild_seconds_estimate: rebuild.duration.map(|time| time.as_secs_f64()),
        rebuild_refused: state.refusal.as_ref().map(fact_text),
        deep: state.deep.as_ref().map(deep),
    }
}

fn database(state: &DatabaseState) -> (&'static str, Option<String>) {
    match state {
        DatabaseState::Sound => ("sound", None),
        DatabaseState::Absent => ("absent", None),
        DatabaseState::Broken(error) => ("broken", Some(fact_text(error))),
        DatabaseState::Unreadable(error) => ("unreadable", Some(fact_text(error))),
    }
}

fn files(
    files: &FilesState,
    missing: impl Iterator<Item = String>,
    short: impl Iterator<Item = String>,
) -> FilesJson {
    FilesJson {
        files: files.files,
        bytes: files.bytes,
        missing: missing.collect(),
        short: short.collect(),
        blocks_lost: files.lost,
        stale_blocks_lost: files.lost_stale,
        blocks_unrecorded: files.unrecorded,
        blocks_beyond_use: files.beyond_use,
        first_height: files.first.map(|(height, _)| height.0),
        first_hash: files.first.map(|(_, hash)| hash.to_string()),
    }
}

fn chainstate(state: &DatadirState) -> ChainstateJson {
    let chainstate = &state.chainstate;
    let (name, error) = database(&chainstate.state);
    let (position, blocks_behind) = match chainstate.position {
        None => (None, None),
        Some(ChainstatePosition::AtTip) => (Some("at-tip"), Some(0)),
        Some(ChainstatePosition::Behind(blocks)) => (Some("behind"), Some(blocks)),
        Some(ChainstatePosition::NotInIndex) => (Some("not-in-index"), None),
    };
    ChainstateJson {
        state: name,
        error,
        best_block: chainstate.best_block.map(|hash| hash.to_string()),
        height: chainstate.height.map(|height| height.0),
        position,
        blocks_behind,
        flush_interrupted: chainstate.flush_interrupted,
    }
}

fn deep(deep: &DeepState) -> DeepJson {
    let coins = deep.coins.as_ref();
    DeepJson {
        blocks: deep.blocks,
        blocks_damaged: deep.damaged,
        first_damaged: deep.first.iter().map(fact_text).collect(),
        blocks_error: deep.refusal.as_ref().map(fact_text),
        undo_missing: deep.undo.iter().map(|file| file.missing).sum(),
        undo_damaged: deep.undo.iter().map(|file| file.damaged).sum(),
        txouts: coins.ok().map(|(count, _)| *count),
        hash_serialized_3: coins.ok().map(|(_, hash)| engine::hex_reversed(hash)),
        coins_error: coins.err().map(fact_text),
    }
}

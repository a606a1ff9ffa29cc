//! The report of `peregrine doctor` as JSON.

use super::{absence_text, advice_text, chainstate_text, files_text, index_text, lock_text, needed_bytes};
use crate::{
    fault::FaultJson,
    report::{blk_names, rev_names},
};
use engine::{
    Absence, Advice, ChainstatePosition, DatabaseState, DatadirState, DeepState, Diagnosis, FileNo,
    FilesState, LockState,
};
use serde::Serialize;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiagnosisJson {
    chain: &'static str,
    is_sound: bool,
    /// Why there is nothing to examine.
    absence: Option<AbsenceJson>,
    datadir: Option<DatadirJson>,
    advice: AdviceJson,
    /// The command to run next.
    next: String,
    next_offline: Option<String>,
    seconds: f64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DatadirJson {
    directory: String,
    owner: u32,
    user: u32,
    foreign_databases: Vec<String>,
    lock: LockJson,
    version: Option<String>,
    xor_error: Option<FaultJson>,
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
    rebuild_refused: Option<FaultJson>,
    deep: Option<DeepJson>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LockJson {
    state: LockStateJson,
    pid: Option<u32>,
    program: Option<String>,
    text: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct IndexJson {
    state: DatabaseStateJson,
    error: Option<FaultJson>,
    blocks: u32,
    headers: u32,
    header_height: u32,
    stored_height: u32,
    pruned: bool,
    text: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    first_block_hash: Option<String>,
    text: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ChainstateJson {
    state: DatabaseStateJson,
    error: Option<FaultJson>,
    block_hash: Option<String>,
    height: Option<u32>,
    position: Option<PositionJson>,
    blocks_behind: Option<u32>,
    flush_interrupted: bool,
    text: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LeftoversJson {
    journal: bool,
    unfinished_databases: bool,
    checkpoint_blocks_done: Option<u32>,
    checkpoint_blocks_total: Option<u32>,
    made_undo: bool,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DeepJson {
    blocks: u32,
    blocks_damaged: u32,
    first_damaged: Vec<FaultJson>,
    blocks_error: Option<FaultJson>,
    undo_missing: u32,
    undo_damaged: u32,
    coins: Option<u64>,
    hash_serialized_3: Option<String>,
    coins_error: Option<FaultJson>,
}

/// Why there is nothing to examine.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AbsenceJson {
    #[serde(flatten)]
    code: AbsenceCode,
    text: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "code", rename_all = "kebab-case")]
enum AbsenceCode {
    NoDirectory,
    NoBlocks,
    OtherNetworks { chains: Vec<&'static str> },
}

/// What to do next. Codes are stable.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AdviceJson {
    #[serde(flatten)]
    code: AdviceCode,
    text: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "code", rename_all = "kebab-case")]
enum AdviceCode {
    StartBitcoind,
    LetItRun,
    StopBitcoind,
    Wait,
    NameDatadir,
    ChooseNetwork {
        chain: &'static str,
    },
    NameChallenge,
    /// `user` is a user id.
    RunAs {
        user: u32,
    },
    ChangeOwner {
        directories: Vec<String>,
    },
    CheckDisk,
    /// `key` has the contents of `xor.dat`, in hexadecimal digits.
    RestoreKey {
        key: String,
    },
    FinishReplacement,
    Sync,
    Repair,
    Reindex,
    ReindexByScan,
    MakeUndo,
    BitcoindReindex,
    Other,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum LockStateJson {
    Free,
    Held,
    /// The lock files cannot be opened.
    Unknown,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum DatabaseStateJson {
    Sound,
    Absent,
    Broken,
    /// It cannot be read: no permission, an I/O error, or another process is writing to it.
    Unreadable,
}

/// Where the chainstate's best block is relative to the stored blocks.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum PositionJson {
    AtTip,
    Behind,
    NotInIndex,
}

/// The whole report; `next` is the command to run next, `next_offline` another one that needs no peers.
pub fn diagnosis(diagnosis: &Diagnosis, next: String, next_offline: Option<String>) -> DiagnosisJson {
    let absence = diagnosis.found.as_ref().err().map(|absence| AbsenceJson {
        code: match absence {
            Absence::NoDirectory => AbsenceCode::NoDirectory,
            Absence::NoBlocks => AbsenceCode::NoBlocks,
            Absence::OtherNetworks(others) => {
                AbsenceCode::OtherNetworks { chains: others.iter().map(|other| other.name()).collect() }
            }
        },
        text: absence_text(absence, diagnosis.network),
    });
    DiagnosisJson {
        chain: diagnosis.network.name(),
        is_sound: diagnosis.is_sound(),
        absence,
        datadir: diagnosis.found.as_ref().ok().map(|state| datadir(state)),
        advice: AdviceJson { code: AdviceCode::new(&diagnosis.advice), text: advice_text(&diagnosis.advice) },
        next,
        next_offline,
        seconds: diagnosis.elapsed.as_secs_f64(),
    }
}

impl AdviceCode {
    fn new(advice: &Advice) -> Self {
        match advice {
            Advice::StartBitcoind => Self::StartBitcoind,
            Advice::LetItRun => Self::LetItRun,
            Advice::StopBitcoind => Self::StopBitcoind,
            Advice::Wait => Self::Wait,
            Advice::NameDatadir => Self::NameDatadir,
            Advice::ChooseNetwork(network) => Self::ChooseNetwork { chain: network.name() },
            Advice::NameChallenge => Self::NameChallenge,
            Advice::RunAs(user) => Self::RunAs { user: *user },
            Advice::ChangeOwner(paths) => Self::ChangeOwner {
                directories: paths.iter().map(|path| path.display().to_string()).collect(),
            },
            Advice::CheckDisk => Self::CheckDisk,
            Advice::RestoreKey(key) => Self::RestoreKey { key: hex_of(key) },
            Advice::FinishReplacement => Self::FinishReplacement,
            Advice::Sync => Self::Sync,
            Advice::Repair => Self::Repair,
            Advice::Reindex => Self::Reindex,
            Advice::ReindexByScan => Self::ReindexByScan,
            Advice::MakeUndo => Self::MakeUndo,
            Advice::BitcoindReindex => Self::BitcoindReindex,
            _ => Self::Other,
        }
    }
}

fn hex_of(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn datadir(state: &DatadirState) -> DatadirJson {
    let (index, rebuild, left) = (&state.index, &state.rebuild, &state.leftovers);
    let (lock, holder) = match &state.lock {
        LockState::Free => (LockStateJson::Free, None),
        LockState::Held(holder) => (LockStateJson::Held, Some(holder)),
        LockState::Unknown => (LockStateJson::Unknown, None),
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
            text: lock_text(&state.lock),
        },
        version: state.version.clone(),
        xor_error: state.key.as_ref().map(FaultJson::new),
        block_index: IndexJson {
            state: index_state,
            error: index_error,
            blocks: index.blocks,
            headers: index.headers,
            header_height: index.header_height.0,
            stored_height: index.stored_height.0,
            pruned: index.is_pruned,
            text: index_text(state),
        },
        block_files: files(&state.blocks, "blk", |numbers| blk_names(numbers).collect()),
        undo_files: files(&state.undo, "rev", |numbers| rev_names(numbers).collect()),
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
        rebuild_refused: state.refusal.as_ref().map(FaultJson::new),
        deep: state.deep.as_ref().map(deep),
    }
}

fn database(state: &DatabaseState) -> (DatabaseStateJson, Option<FaultJson>) {
    match state {
        DatabaseState::Sound => (DatabaseStateJson::Sound, None),
        DatabaseState::Absent => (DatabaseStateJson::Absent, None),
        DatabaseState::Broken(error) => (DatabaseStateJson::Broken, Some(FaultJson::new(error))),
        DatabaseState::Unreadable(error) => (DatabaseStateJson::Unreadable, Some(FaultJson::new(error))),
    }
}

/// Describes files whose names begin with `prefix`; `names` makes these names.
fn files(files: &FilesState, prefix: &str, names: fn(&[FileNo]) -> Vec<String>) -> FilesJson {
    FilesJson {
        files: files.files,
        bytes: files.bytes,
        missing: names(&files.missing),
        short: names(&files.short),
        blocks_lost: files.lost,
        stale_blocks_lost: files.lost_stale,
        blocks_unrecorded: files.unrecorded,
        blocks_beyond_use: files.beyond_use,
        first_height: files.first.map(|(height, _)| height.0),
        first_block_hash: files.first.map(|(_, hash)| hash.to_string()),
        text: files_text(files, prefix),
    }
}

fn chainstate(state: &DatadirState) -> ChainstateJson {
    let chainstate = &state.chainstate;
    let (database_state, error) = database(&chainstate.state);
    let (position, blocks_behind) = match chainstate.position {
        None => (None, None),
        Some(ChainstatePosition::AtTip) => (Some(PositionJson::AtTip), Some(0)),
        Some(ChainstatePosition::Behind(blocks)) => (Some(PositionJson::Behind), Some(blocks)),
        Some(ChainstatePosition::NotInIndex) => (Some(PositionJson::NotInIndex), None),
    };
    ChainstateJson {
        state: database_state,
        error,
        block_hash: chainstate.best_block.map(|hash| hash.to_string()),
        height: chainstate.height.map(|height| height.0),
        position,
        blocks_behind,
        flush_interrupted: chainstate.flush_interrupted,
        text: chainstate_text(state),
    }
}

fn deep(deep: &DeepState) -> DeepJson {
    let coins = deep.coins.as_ref();
    DeepJson {
        blocks: deep.blocks,
        blocks_damaged: deep.damaged,
        first_damaged: deep.first.iter().map(FaultJson::new).collect(),
        blocks_error: deep.refusal.as_ref().map(FaultJson::new),
        undo_missing: deep.undo.iter().map(|file| file.missing).sum(),
        undo_damaged: deep.undo.iter().map(|file| file.damaged).sum(),
        coins: coins.ok().map(|(count, _)| *count),
        hash_serialized_3: coins.ok().map(|(_, hash)| engine::hex_reversed(hash)),
        coins_error: coins.err().map(FaultJson::new),
    }
}

//! Notes and warnings as JSON: a stable code, the facts as fields, and the text for people.

use crate::{fault::FaultJson, report::blk_names, sync::ConnectedJson};
use engine::{DiskNeed, Gap, Height, LowerPart, LowerTip, Note, Recovery, Warning, WrongHint, hex};
use peregrine::remedy::warning_text;
use serde::Serialize;
use std::path::Path;

/// A note of a report.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NoteJson {
    #[serde(flatten)]
    code: NoteCode,
    /// For people; it may change at any time.
    text: String,
}

impl NoteJson {
    /// The notes of a report.
    pub fn list(warnings: &[Warning]) -> Vec<Self> {
        let note = |warning| Self { code: NoteCode::of_warning(warning), text: warning_text(warning) };
        warnings.iter().map(note).collect()
    }

    /// The codes of the notes of a report, without anything else.
    pub fn codes(warnings: &[Warning]) -> Vec<String> {
        let code = |warning| {
            let object = serde_json::to_value(NoteCode::of_warning(warning)).ok()?;
            Some(object.get("code")?.as_str()?.to_owned())
        };
        warnings.iter().filter_map(code).collect()
    }
}

/// What a note or a warning is about. Codes are stable; `other` is one that this version does not describe.
#[derive(Serialize, PartialEq, Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "code", rename_all = "kebab-case")]
pub enum NoteCode {
    /// The block of `--assumevalid`, or that of Core's release, is not among the headers.
    UnknownAssumedBlock {
        block_hash: String,
        is_default: bool,
    },
    DiskNeed {
        chainstate_bytes: u64,
        temporary_bytes: u64,
        undo_bytes: u64,
    },
    FewerThreads {
        threads: usize,
        threads_wanted: usize,
        memory_bytes: u64,
    },
    Resuming {
        blocks_done: u32,
        blocks_total: u64,
        bytes_done: u64,
        bytes_total: u64,
    },
    FilesChanged {
        files: u64,
        blocks: u64,
    },
    MadeUndoGone,
    CheckingWithoutUndo,
    HintsFailed {
        error: FaultJson,
    },
    DownloadingHints {
        url: String,
        bytes: u64,
        bytes_total: Option<u64>,
    },
    HintsDownloaded {
        url: String,
        bytes: u64,
        sha256: String,
    },
    ReusingHints {
        url: String,
        file: String,
    },
    NoPeers {
        last_attempt: Option<String>,
    },
    FoundDamage {
        blocks: u32,
        missing_blocks: u32,
        undo: u32,
    },
    StoredGivenBlocks {
        blocks: u32,
    },
    FixedSeeds {
        addresses: usize,
    },
    LowWork {
        height: u32,
    },
    HeaderFromFuture,
    Withheld {
        height: u32,
        block_hash: String,
    },
    FoundBlocks {
        blocks: u32,
    },
    AtTip {
        height: u32,
        block_hash: String,
    },
    ConnectedAtTip(ConnectedJson),
    RebuildingWithoutHints {
        first_wrong: Option<WrongHintJson>,
    },
    /// An earlier run was interrupted while it replaced the databases.
    Recovered {
        outcome: RecoveryJson,
    },
    CleanUpPending {
        error: FaultJson,
    },
    WorkFilesRemain {
        error: FaultJson,
    },
    LacksLastUndo {
        blocks: u64,
    },
    InvalidBlock {
        block_hash: String,
        error: FaultJson,
    },
    LowerTip(LowerTipJson),
    Unconnected {
        blocks: u32,
        height: u32,
        may_be_lost: bool,
    },
    MissingBlockFiles {
        files: Vec<String>,
    },
    MarkDropped {
        height: u32,
        block_hash: String,
    },
    MarkedInvalid {
        height: u32,
        block_hash: String,
        tip_height: u32,
    },
    BlocksBeyondIndex {
        blocks: u32,
        file: String,
        used_bytes: u64,
    },
    IndexSetAside {
        index: String,
        kept: String,
    },
    IndexesUnchanged {
        directory: String,
        indexes: Vec<String>,
    },
    SnapshotWithoutBase {
        directory: String,
    },
    SnapshotUnchanged {
        directory: String,
        base_block_hash: String,
    },
    /// The rebuild ends below the lowest block that is damaged, or whose undo data is.
    Damage {
        blocks: u32,
        undo: u32,
        /// The lowest damaged blocks.
        errors: Vec<FaultJson>,
    },
    Other,
}

/// A hint that contradicts the chain.
#[derive(Serialize, PartialEq, Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WrongHintJson {
    height: u32,
    block_hash: String,
    /// The output's index within its block, in the file's numbering.
    index: u32,
    hinted_unspent: bool,
}

impl WrongHintJson {
    pub fn new(wrong: &WrongHint) -> Self {
        Self {
            height: wrong.height.0,
            block_hash: wrong.hash.to_string(),
            index: wrong.index,
            hinted_unspent: wrong.hinted_unspent,
        }
    }
}

#[derive(Serialize, PartialEq, Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryJson {
    /// The replacement is finished.
    Finished,
    /// The old databases are back in place.
    Undone,
    /// The databases in use were kept, and the others removed.
    Abandoned,
}

/// A result that is lower than what it replaced.
#[derive(Serialize, PartialEq, Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LowerTipJson {
    /// Height of the last block of the result.
    tip_height: u32,
    part: LowerPartJson,
    /// Height and last block of what was replaced, if known.
    height: Option<u32>,
    block_hash: Option<String>,
    lost_blocks: u32,
    /// Why the result ends below it; `null` if that was asked for.
    gap: Option<GapJson>,
    /// Height of the block that is missing, damaged or invalid.
    gap_height: Option<u32>,
    /// Whether `--until-damage` has accepted it.
    by_damage: bool,
}

#[derive(Serialize, PartialEq, Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum LowerPartJson {
    Chainstate,
    BlockIndex,
    Blocks,
}

#[derive(Serialize, PartialEq, Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum GapJson {
    /// The block is not on disk, or damaged.
    MissingBlock,
    /// Its undo data is not on disk, or damaged.
    MissingUndo,
    /// It is marked invalid, or its header breaks a rule.
    Invalid,
    /// The last block is not in any block file.
    Lost,
}

impl LowerTipJson {
    fn new(lower: &LowerTip) -> Self {
        let (gap, gap_height) = match lower.gap {
            None => (None, None),
            Some(Gap::Block(Height(height))) => (Some(GapJson::MissingBlock), Some(height)),
            Some(Gap::Undo(Height(height))) => (Some(GapJson::MissingUndo), Some(height)),
            Some(Gap::Invalid(Height(height))) => (Some(GapJson::Invalid), Some(height)),
            Some(Gap::Lost) => (Some(GapJson::Lost), None),
        };
        Self {
            tip_height: lower.tip.0,
            part: match lower.what {
                LowerPart::Chainstate => LowerPartJson::Chainstate,
                LowerPart::BlockIndex => LowerPartJson::BlockIndex,
                LowerPart::Blocks => LowerPartJson::Blocks,
            },
            height: lower.height.map(|height| height.0),
            block_hash: lower.hash.map(|hash| hash.to_string()),
            lost_blocks: lower.blocks,
            gap,
            gap_height,
            by_damage: lower.is_by_damage,
        }
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

impl NoteCode {
    pub fn of_note(note: &Note) -> Self {
        match note {
            Note::UnknownAssumedBlock { hash } => {
                Self::UnknownAssumedBlock { block_hash: hash.to_string(), is_default: true }
            }
            Note::DiskNeed(DiskNeed { chainstate, temporary, undo }) => Self::DiskNeed {
                chainstate_bytes: *chainstate,
                temporary_bytes: *temporary,
                undo_bytes: *undo,
            },
            Note::FewerThreads { threads, wanted, memory } => {
                Self::FewerThreads { threads: *threads, threads_wanted: *wanted, memory_bytes: *memory }
            }
            Note::Resuming { done, total, bytes, bytes_total } => Self::Resuming {
                blocks_done: *done,
                blocks_total: *total as u64,
                bytes_done: *bytes,
                bytes_total: *bytes_total,
            },
            Note::FilesChanged { files, blocks } => {
                Self::FilesChanged { files: *files as u64, blocks: *blocks as u64 }
            }
            Note::MadeUndoGone => Self::MadeUndoGone,
            Note::CheckingWithoutUndo => Self::CheckingWithoutUndo,
            Note::HintsFailed(error) => Self::HintsFailed { error: FaultJson::new(error) },
            Note::DownloadingHints { from, received, total } => {
                Self::DownloadingHints { url: from.clone(), bytes: *received, bytes_total: *total }
            }
            Note::HintsDownloaded { from, bytes, sha256 } => {
                Self::HintsDownloaded { url: from.clone(), bytes: *bytes, sha256: hex(sha256) }
            }
            Note::ReusingHints { from, copy } => Self::ReusingHints { url: from.clone(), file: path(copy) },
            Note::NoPeers { last } => Self::NoPeers { last_attempt: last.clone() },
            Note::FoundDamage { blocks, missing, undo } => {
                Self::FoundDamage { blocks: *blocks, missing_blocks: *missing, undo: *undo }
            }
            Note::StoredGivenBlocks { blocks } => Self::StoredGivenBlocks { blocks: *blocks },
            Note::FixedSeeds { addresses } => Self::FixedSeeds { addresses: *addresses },
            Note::LowWork { height } => Self::LowWork { height: height.0 },
            Note::HeaderFromFuture => Self::HeaderFromFuture,
            Note::Withheld { hash, height } => {
                Self::Withheld { height: height.0, block_hash: hash.to_string() }
            }
            Note::FoundBlocks { blocks } => Self::FoundBlocks { blocks: *blocks },
            Note::AtTip { height, hash } => Self::AtTip { height: height.0, block_hash: hash.to_string() },
            Note::ConnectedAtTip(step) => Self::ConnectedAtTip(ConnectedJson::new(step)),
            Note::RebuildingWithoutHints { first_wrong } => {
                Self::RebuildingWithoutHints { first_wrong: first_wrong.as_ref().map(WrongHintJson::new) }
            }
            _ => Self::Other,
        }
    }

    pub fn of_warning(warning: &Warning) -> Self {
        match warning {
            Warning::Recovered(recovery) => Self::Recovered {
                outcome: match recovery {
                    Recovery::Finished => RecoveryJson::Finished,
                    Recovery::Undone => RecoveryJson::Undone,
                    Recovery::Abandoned => RecoveryJson::Abandoned,
                },
            },
            Warning::CleanUpPending(error) => Self::CleanUpPending { error: FaultJson::new(error) },
            Warning::WorkFilesRemain(error) => Self::WorkFilesRemain { error: FaultJson::new(error) },
            Warning::UnknownAssumedBlock { hash } => {
                Self::UnknownAssumedBlock { block_hash: hash.to_string(), is_default: false }
            }
            Warning::LacksLastUndo { blocks } => Self::LacksLastUndo { blocks: *blocks as u64 },
            Warning::InvalidBlock { hash, error } => {
                Self::InvalidBlock { block_hash: hash.to_string(), error: FaultJson::new(error) }
            }
            Warning::LowerTip(lower) => Self::LowerTip(LowerTipJson::new(lower)),
            Warning::Unconnected { blocks, tip, may_be_lost } => {
                Self::Unconnected { blocks: *blocks, height: tip.0, may_be_lost: *may_be_lost }
            }
            Warning::MissingBlockFiles { files } => {
                Self::MissingBlockFiles { files: blk_names(files).collect() }
            }
            Warning::MarkDropped { height, hash } => {
                Self::MarkDropped { height: height.0, block_hash: hash.to_string() }
            }
            Warning::MarkedInvalid { height, hash, tip } => {
                Self::MarkedInvalid { height: height.0, block_hash: hash.to_string(), tip_height: tip.0 }
            }
            Warning::BlocksBeyondIndex { blocks, file, used } => {
                Self::BlocksBeyondIndex { blocks: *blocks, file: path(file), used_bytes: *used }
            }
            Warning::IndexSetAside { name, kept } => {
                Self::IndexSetAside { index: name.clone(), kept: path(kept) }
            }
            Warning::IndexesUnchanged { dir, names } => {
                Self::IndexesUnchanged { directory: path(dir), indexes: names.clone() }
            }
            Warning::SnapshotWithoutBase { dir } => Self::SnapshotWithoutBase { directory: path(dir) },
            Warning::SnapshotUnchanged { dir, base } => {
                Self::SnapshotUnchanged { directory: path(dir), base_block_hash: base.to_string() }
            }
            Warning::Damage { blocks, undo, first } => {
                let errors = first.iter().map(FaultJson::new).collect();
                Self::Damage { blocks: *blocks, undo: *undo, errors }
            }
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{BlockHash, Error, ErrorKind};

    fn object(warning: Warning) -> serde_json::Value {
        serde_json::to_value(NoteJson::list(&[warning])).unwrap()[0].clone()
    }

    #[test]
    fn a_note_has_a_code_and_its_facts_and_a_text() {
        let lower = LowerTip {
            tip: Height(7),
            what: LowerPart::BlockIndex,
            height: Some(Height(9)),
            hash: None,
            blocks: 2,
            gap: Some(Gap::Undo(Height(8))),
            is_by_damage: false,
        };
        let note = object(Warning::LowerTip(lower));
        assert_eq!((&note["code"], &note["part"]), (&"lower-tip".into(), &"block-index".into()));
        assert_eq!((&note["gap"], &note["gap_height"]), (&"missing-undo".into(), &8.into()));
        assert!(note["text"].as_str().unwrap().contains("--accept-lower-tip"), "{note}");
        let error = Error::new(ErrorKind::Damaged, "torn").in_file("there", Some(5)).missing();
        let note = object(Warning::InvalidBlock { hash: BlockHash([1; 32]), error });
        assert_eq!((&note["code"], &note["error"]["kind"]), (&"invalid-block".into(), &"missing".into()));
        assert_eq!((&note["error"]["file"], &note["error"]["offset"]), (&"there".into(), &5.into()));
        assert_eq!(note["error"]["text"], "there at byte 5: torn");
    }

    #[test]
    fn notes_of_progress_have_codes_too() {
        let code = |note| serde_json::to_value(NoteCode::of_note(&note)).unwrap()["code"].clone();
        assert_eq!(code(Note::Resuming { done: 1, total: 2, bytes: 3, bytes_total: 4 }), "resuming");
        assert_eq!(code(Note::MadeUndoGone), "made-undo-gone");
        assert_eq!(code(Note::UnknownAssumedBlock { hash: BlockHash([2; 32]) }), "unknown-assumed-block");
    }
}

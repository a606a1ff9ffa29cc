//! What `--json` prints: the report of a command with the facts that all reports have.

#[cfg(feature = "export")]
use crate::export::{ExportedBlocksJson, ExportedUtxo};
use crate::{
    args::{Command, HintsCommand, SnapshotCommand},
    doctor::json::DiagnosisJson,
    hints::{self, InfoJson},
    peers::PeersJson,
    range::{DeltaJson, FilesJson, PlanJson, RangesJson},
    repair::RepairJson,
    report::json::{ReindexJson, VerifyJson},
    snapshot::{LoadedSnapshotJson, NewSnapshotJson, SnapshotJson},
    sync::SyncJson,
    undo,
    undo::UndoCommand,
    update::UpdateJson,
    utxo::{GetJson, ScanJson, StatsReport, UtxoCommand},
};
use peregrine::{
    exit::Exit,
    output::{self, SCHEMA},
};
use serde::Serialize;

/// What a command that has not failed prints. Fields are only added; docs/json.md has the promise.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Output {
    /// Version of this format.
    schema: u32,
    /// The exit code of the process.
    exit_code: u8,
    #[serde(flatten)]
    report: Report,
}

/// The report of each command.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "command")]
pub enum Report {
    #[serde(rename = "doctor")]
    Doctor(Box<DiagnosisJson>),
    #[serde(rename = "reindex")]
    Reindex(Box<ReindexJson>),
    #[serde(rename = "update")]
    Update(UpdateJson),
    #[serde(rename = "sync")]
    Sync(Box<SyncJson>),
    #[serde(rename = "repair")]
    Repair(Box<RepairJson>),
    #[serde(rename = "peers")]
    Peers(PeersJson),
    #[serde(rename = "verify")]
    Verify(VerifyJson),
    #[serde(rename = "hints make")]
    HintsMake(InfoJson),
    #[serde(rename = "hints info")]
    HintsInfo(InfoJson),
    #[serde(rename = "hints convert")]
    HintsConvert(InfoJson),
    #[serde(rename = "hints check")]
    HintsCheck(hints::CheckJson),
    #[serde(rename = "snapshot make")]
    SnapshotMake(NewSnapshotJson),
    #[serde(rename = "snapshot info")]
    SnapshotInfo(SnapshotJson),
    #[serde(rename = "snapshot verify")]
    SnapshotVerify(SnapshotJson),
    #[serde(rename = "snapshot load")]
    SnapshotLoad(LoadedSnapshotJson),
    #[serde(rename = "undo check")]
    UndoCheck(undo::CheckJson),
    #[serde(rename = "undo make")]
    UndoMake(undo::MadeJson),
    #[serde(rename = "utxo stats")]
    UtxoStats(StatsReport),
    #[serde(rename = "utxo get")]
    UtxoGet(GetJson),
    #[serde(rename = "utxo scan")]
    UtxoScan(ScanJson),
    #[serde(rename = "range plan")]
    RangePlan(PlanJson),
    #[serde(rename = "range files")]
    RangeFiles(FilesJson),
    #[serde(rename = "range check")]
    RangeCheck(DeltaJson),
    #[serde(rename = "range merge")]
    RangeMerge(DeltaJson),
    #[serde(rename = "range finish")]
    RangeFinish(Box<RangesJson>),
    #[cfg(feature = "export")]
    #[serde(rename = "export utxo")]
    ExportUtxo(ExportedUtxo),
    #[cfg(feature = "export")]
    #[serde(rename = "export blocks")]
    ExportBlocks(ExportedBlocksJson),
    #[cfg(feature = "export")]
    #[serde(rename = "export transactions")]
    ExportTransactions(ExportedBlocksJson),
    #[cfg(feature = "export")]
    #[serde(rename = "export inputs")]
    ExportInputs(ExportedBlocksJson),
    #[cfg(feature = "export")]
    #[serde(rename = "export outputs")]
    ExportOutputs(ExportedBlocksJson),
}

impl Command {
    /// Its name for programs, as in the field `command`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Doctor(_) => "doctor",
            Self::Reindex(_) => "reindex",
            Self::Update(_) => "update",
            Self::Sync(_) => "sync",
            Self::Repair(_) => "repair",
            Self::Peers(_) => "peers",
            Self::Verify(_) => "verify",
            Self::Hints { command } => match command {
                HintsCommand::Make(_) => "hints make",
                HintsCommand::Info(_) => "hints info",
                HintsCommand::Convert(_) => "hints convert",
                HintsCommand::Check(_) => "hints check",
            },
            Self::Snapshot { command } => match command {
                SnapshotCommand::Make(_) => "snapshot make",
                SnapshotCommand::Info(_) => "snapshot info",
                SnapshotCommand::Verify(_) => "snapshot verify",
                SnapshotCommand::Load(_) => "snapshot load",
            },
            Self::Undo { command: UndoCommand::Check(_) } => "undo check",
            Self::Undo { command: UndoCommand::Make(_) } => "undo make",
            Self::Utxo { command: UtxoCommand::Stats(_) } => "utxo stats",
            Self::Utxo { command: UtxoCommand::Get(_) } => "utxo get",
            Self::Utxo { command: UtxoCommand::Scan(_) } => "utxo scan",
            Self::Range(command) => command.name(),
            #[cfg(feature = "export")]
            Self::Export { command } => command.name(),
            Self::Completions(_) => "completions",
            Self::Man(_) => "man",
        }
    }
}

/// Returns what is printed, and the exit code.
pub fn report(report: Report, exit: Exit) -> (String, Exit) {
    (output::json(&Output { schema: SCHEMA, exit_code: exit as u8, report }), exit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{progress::ProgressJson, shared_report::SharedReport};
    use schemars::{JsonSchema, schema_for};

    /// Compares a schema with the one in `docs`, or replaces that if UPDATE_DOCS is set.
    fn check<T: JsonSchema>(name: &str) {
        let schema = serde_json::to_string_pretty(&schema_for!(T)).unwrap() + "\n";
        let path = format!("{}/../../docs/json/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &schema).unwrap();
        }
        let documented = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(documented == schema, "{path} is not current: run the tests with UPDATE_DOCS=1");
    }

    #[test]
    fn the_schemas_in_the_documentation_are_current() {
        check::<Output>("report");
        check::<ProgressJson>("progress");
        check::<SharedReport>("shared-report");
    }
}

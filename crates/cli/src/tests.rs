//! The schemas of what is printed as JSON are those in `docs/json`.

use crate::{
    args::Args,
    command_options::command_names,
    doctor::DoctorReport,
    hints::{CheckJson, InfoJson},
    index::WithIndexes,
    peers::PeersJson,
    range::{DeltaJson, FilesJson, PlanJson},
    report::WithFile,
    shared_report::SharedReport,
    shared_snapshot::SharedSets,
    snapshot::SnapshotJson,
    stats_at::StatsAt,
    utxo::{GetJson, ScanJson},
};
use clap::CommandFactory as _;
use engine::{
    recover::RecoveryReport,
    reindex::ReindexReport,
    snapshot::{FetchedSnapshotReport, LoadedSnapshotReport, SnapshotReport},
    undo::{ExportedUndo, MadeUndoReport, UndoCheck},
    update::UpdateReport,
    utxo::UtxoStatsReport,
    verify::VerifyReport,
};
use indexes::{CheckedIndexesReport, MadeIndexesReport};
use peregrine::output::{ProgressJson, SCHEMA};
use ranges::RangesReport;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema, schema_for};
use sync::{RepairReport, SyncReport};

/// `utxo stats` without `--at`, or with it.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum Stats {
    OfChainstate(UtxoStatsReport),
    AtHeights(StatsAt),
}

/// The report of each command.
fn reports(of: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
    vec![
        ("doctor", of.subschema_for::<DoctorReport>()),
        ("reindex", of.subschema_for::<WithIndexes<ReindexReport>>()),
        ("update", of.subschema_for::<WithIndexes<UpdateReport>>()),
        ("sync", of.subschema_for::<WithIndexes<SyncReport>>()),
        ("repair", of.subschema_for::<WithIndexes<RepairReport>>()),
        ("recover", of.subschema_for::<RecoveryReport>()),
        ("peers", of.subschema_for::<PeersJson>()),
        ("verify", of.subschema_for::<VerifyReport>()),
        ("hints make", of.subschema_for::<InfoJson>()),
        ("hints info", of.subschema_for::<InfoJson>()),
        ("hints convert", of.subschema_for::<InfoJson>()),
        ("hints check", of.subschema_for::<CheckJson>()),
        ("snapshot make", of.subschema_for::<WithFile<SnapshotReport>>()),
        ("snapshot info", of.subschema_for::<SnapshotJson>()),
        ("snapshot verify", of.subschema_for::<SnapshotJson>()),
        ("snapshot load", of.subschema_for::<WithFile<LoadedSnapshotReport>>()),
        ("snapshot share", of.subschema_for::<SharedSets>()),
        ("snapshot fetch", of.subschema_for::<WithFile<FetchedSnapshotReport>>()),
        ("undo check", of.subschema_for::<UndoCheck>()),
        ("undo export", of.subschema_for::<ExportedUndo>()),
        ("undo make", of.subschema_for::<MadeUndoReport>()),
        ("index make", of.subschema_for::<MadeIndexesReport>()),
        ("index check", of.subschema_for::<CheckedIndexesReport>()),
        ("index update", of.subschema_for::<MadeIndexesReport>()),
        ("utxo stats", of.subschema_for::<Stats>()),
        ("utxo get", of.subschema_for::<GetJson>()),
        ("utxo scan", of.subschema_for::<ScanJson>()),
        #[cfg(feature = "export")]
        ("utxo ages", of.subschema_for::<crate::ages::AgesJson>()),
        #[cfg(feature = "export")]
        ("export utxo", of.subschema_for::<crate::export::utxo::ExportedUtxo>()),
        #[cfg(feature = "export")]
        ("export blocks", of.subschema_for::<crate::export::blocks::ExportedBlocksJson>()),
        #[cfg(feature = "export")]
        ("export transactions", of.subschema_for::<crate::export::blocks::ExportedBlocksJson>()),
        #[cfg(feature = "export")]
        ("export inputs", of.subschema_for::<crate::export::blocks::ExportedBlocksJson>()),
        #[cfg(feature = "export")]
        ("export outputs", of.subschema_for::<crate::export::blocks::ExportedBlocksJson>()),
        #[cfg(feature = "export")]
        ("export history", of.subschema_for::<crate::export::history::ExportedHistoryJson>()),
        ("range plan", of.subschema_for::<PlanJson>()),
        ("range files", of.subschema_for::<FilesJson>()),
        ("range check", of.subschema_for::<DeltaJson>()),
        ("range merge", of.subschema_for::<DeltaJson>()),
        ("range finish", of.subschema_for::<RangesReport>()),
    ]
}

/// The schema of what a command prints that has not failed.
fn output() -> Schema {
    let mut generator = SchemaGenerator::default();
    let mut reports = reports(&mut generator);
    for (name, report) in &mut reports {
        report.insert("properties".to_owned(), json_schema!({ "command": { "const": name } }).into());
        report.insert("required".to_owned(), vec!["command"].into());
    }
    let reports: Vec<_> = reports.into_iter().map(|(_, report)| report).collect();
    json_schema!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Output",
        "description": "What a command that has not failed prints. Fields are only added; docs/json.md has \
                        the promise.",
        "type": "object",
        "properties": {
            "schema": { "description": "Version of this format.", "const": SCHEMA },
            "exit_code": {
                "description": "The exit code of the process.",
                "type": "integer", "minimum": 0, "maximum": 255
            },
        },
        "required": ["schema", "exit_code"],
        "oneOf": reports,
        "$defs": generator.take_definitions(true),
    })
}

fn check(name: &str, schema: &Schema) {
    let schema = serde_json::to_string_pretty(schema).unwrap() + "\n";
    testkit::pages::assert_file(&format!("docs/json/{name}.schema.json"), &schema);
}

#[test]
fn the_schemas_in_the_documentation_are_current() {
    check("report", &output());
    check("failure", &schema_for!(peregrine::output::FailureJson<'_>));
    check("progress", &schema_for!(ProgressJson<'_>));
    check("shared-report", &schema_for!(SharedReport));
}

#[test]
fn each_command_has_a_schema() {
    let known: Vec<_> = reports(&mut SchemaGenerator::default()).into_iter().map(|(name, _)| name).collect();
    for name in command_names(&Args::command()) {
        let prints_files = ["completions", "man", "help"].contains(&&*name);
        assert!(prints_files || known.contains(&&*name), "{name}");
    }
}

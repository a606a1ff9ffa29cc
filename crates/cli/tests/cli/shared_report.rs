//! The file of `--report` shows what a run did, and neither where nor by whom.

use crate::common;

use common::{command, json};
use serde_json::Value;
use std::{fs, path::Path};
use tempfile::TempDir;
use testkit::{Chain, ChainSpec, corrupt::flip_bit, datadir::Layout};

/// A datadir whose path has a name of its own.
fn datadir() -> (TempDir, Chain) {
    let chain = Chain::generate(&ChainSpec { blocks: Some(130), ..ChainSpec::new(17, 200_000) });
    let dir = tempfile::Builder::new().prefix("alices-node").tempdir().unwrap();
    chain.write_datadir(dir.path(), &Layout { preallocate: false, ..Layout::new(17) }).unwrap();
    (dir, chain)
}

/// Runs a command with `--report`. Returns its exit code and the report, which names nothing.
fn shared(words: &str, dir: &Path) -> (i32, Value) {
    let file = dir.join("shared.json");
    let _ = fs::remove_file(&file);
    let words = format!("{words} --chain regtest --json --report {}", file.display());
    let output = command(&words.split(' ').collect::<Vec<_>>(), dir).output().unwrap();
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    for name in names(dir) {
        assert!(!text.contains(&name), "{name} is in {text}");
    }
    let mut report: Value = serde_json::from_str(&text).unwrap();
    report["machine"]["cpu"] = Value::Null;
    assert!(!report.to_string().contains('/'), "nothing looks like a path: {report}");
    assert_eq!(report["exit_code"], output.status.code().unwrap(), "{report}");
    if output.status.success() {
        assert_eq!(json(&output)["block_hash"], report[part(&report)]["block_hash"], "{report}");
    }
    (output.status.code().unwrap(), report)
}

/// The directory, its parts, and the names of user and host, as far as they are not words of a report.
fn names(dir: &Path) -> Vec<String> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let user = ["USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    let parts = dir.iter().map(|part| part.to_string_lossy().into_owned());
    let names = user.chain(parts).chain([host, dir.display().to_string()]);
    names.filter(|name| name.len() > 3 && name != "disk").collect()
}

fn part(report: &Value) -> &'static str {
    if report["rebuild"].is_null() { "verification" } else { "rebuild" }
}

#[test]
fn a_shared_report_has_machine_times_and_result_without_names() {
    let (dir, chain) = datadir();
    let log = dir.path().join("run.jsonl");
    let (code, report) = shared(&format!("reindex --log {}", log.display()), dir.path());
    assert_eq!((code, &report["command"]), (0, &"reindex".into()));
    let rebuild = &report["rebuild"];
    assert_eq!(rebuild["hash_serialized_3"], chain.model.stats().hash_hex());
    assert!(rebuild["stages"].as_array().unwrap().len() >= 5, "{rebuild}");
    assert_eq!(report["stages"][0]["stage"], "plan");
    assert_eq!(report["program"]["rules_core_version"], engine::CORE_VERSION);
    assert_eq!(report["machine"]["architecture"], std::env::consts::ARCH);
    let file_system = &report["machine"]["blocks_disk"]["file_system"];
    assert!(file_system.is_string(), "{report}");
    let log = fs::read_to_string(log).unwrap();
    let start: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!(start["machine"]["filesystem"], *file_system);
    let (code, report) = shared("verify --against-chainstate --threads 1", dir.path());
    let options = &report["options"];
    assert_eq!((code, &options["against_chainstate"], &options["threads"]), (0, &true.into(), &1.into()));
    assert_eq!(report["verification"]["chainstate_differences"], 0, "{report}");
}

#[test]
fn a_failed_run_is_reported_as_codes() {
    let (dir, _) = datadir();
    flip_bit(&dir.path().join("regtest/blocks/blk00000.dat"), 60_000, 3).unwrap();
    let (code, report) = shared("reindex", dir.path());
    assert_eq!((code, &report["error"]["kind"]), (4, &"damaged".into()), "{report}");
    assert!(report["rebuild"].is_null() && report["error"]["height"].is_number(), "{report}");
}

#[test]
fn a_report_replaces_no_file_and_is_not_put_among_block_files() {
    let (dir, _) = datadir();
    let run = |file: &Path| {
        let words = ["reindex", "--chain", "regtest", "--json", "--report", file.to_str().unwrap()];
        command(&words, dir.path()).output().unwrap()
    };
    let existing = dir.path().join("mine");
    fs::write(&existing, "mine").unwrap();
    let output = run(&existing);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert_eq!(fs::read(&existing).unwrap(), b"mine");
    let output = run(&dir.path().join("regtest/blocks/report.json"));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(!dir.path().join("regtest/chainstate").exists(), "both are refused before the work begins");
}

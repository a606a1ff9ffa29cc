//! Real output of the commands, compared with the schemas in `docs/json`.

use crate::common;

use common::{command, json};
use serde_json::Value;
use std::{fs, path::Path};
use tempfile::TempDir;
use testkit::{Chain, ChainSpec, corrupt::interrupt_replacement, datadir::Layout};

/// A schema as `schemars` generates it.
struct Schema(Value);

impl Schema {
    fn read(name: &str) -> Self {
        let path = format!("{}/../../docs/json/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
        Self(serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
    }

    fn check(&self, value: &Value) {
        let mut known = Vec::new();
        self.matches(&self.0, value, &mut known).unwrap_or_else(|error| panic!("{error}: {value}"));
        // What no part of the schema describes was added without it.
        let unknown = value.as_object().unwrap().keys().find(|name| !known.contains(name));
        assert_eq!(unknown, None, "{value}");
    }

    /// Checks a value against a part of the schema; adds the fields that this describes to `known`.
    fn matches<'a>(
        &'a self,
        part: &'a Value,
        value: &Value,
        known: &mut Vec<&'a String>,
    ) -> Result<(), String> {
        let Some(part) = part.as_object() else { return Ok(()) };
        for (keyword, rule) in part {
            let list = || rule.as_array().into_iter().flatten();
            let is_right = match keyword.as_str() {
                "$ref" => {
                    let name = rule.as_str().unwrap().trim_start_matches("#/$defs/");
                    self.matches(&self.0["$defs"][name], value, known)?;
                    true
                }
                "type" if rule.is_array() => list().any(|name| is_of_type(name, value)),
                "type" => is_of_type(rule, value),
                "const" => rule == value,
                "enum" => list().any(|one| one == value),
                "required" => list().all(|name| value.get(name.as_str().unwrap()).is_some()),
                "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
                "anyOf" | "oneOf" => list().any(|one| {
                    let mut found = Vec::new();
                    let is_right = self.matches(one, value, &mut found).is_ok();
                    known.extend(found.into_iter().filter(|_| is_right));
                    is_right
                }),
                "properties" => {
                    for (name, property) in rule.as_object().unwrap() {
                        if let Some(value) = value.get(name) {
                            self.matches(property, value, &mut Vec::new())
                                .map_err(|error| format!("{name}: {error}"))?;
                        }
                        known.push(name);
                    }
                    true
                }
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        self.matches(rule, item, &mut Vec::new())?;
                    }
                    true
                }
                "$schema" | "$defs" | "title" | "description" | "format" => true,
                other => return Err(format!("this test does not know the keyword {other}")),
            };
            if !is_right {
                return Err(format!("{keyword} {rule} does not match {value}"));
            }
        }
        Ok(())
    }
}

fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    }
}

/// Runs a command that takes `--datadir` or, without one, only files, and returns what it prints as JSON.
fn run(words: &str, datadir: &Path) -> Value {
    let words: Vec<&str> = words.split(' ').chain(["--json"]).collect();
    let report = json(&command(&words, datadir).output().unwrap());
    assert_eq!(report["schema"], 1, "{report}");
    report
}

#[test]
fn reports_of_all_commands_match_the_schema() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::generate(&ChainSpec { blocks: Some(130), ..ChainSpec::new(17, 200_000) });
    chain.write_datadir(dir.path(), &Layout::new(17)).unwrap();
    let schema = Schema::read("report");
    let paths = ["hints", "utxo.dat", "coins"].map(|name| dir.path().join(name));
    let [hints, snapshot, coins] = [0, 1, 2].map(|at| paths[at].to_str().unwrap());
    let mut commands = Vec::new();
    for words in [
        "reindex",
        "reindex --stop-at-height 100 --accept-lower-tip",
        "update --stop-at-height 110 --memory 200M --assumevalid 0",
        "update",
        "verify --against-chainstate",
        "doctor",
        "doctor --deep",
        "undo check",
        "undo make",
        &format!("undo export --output {coins}"),
        "index make txindex blockfilterindex coinstatsindex txospenderindex",
        "index check",
        "index update",
        "utxo stats",
        "utxo stats --muhash",
        "utxo stats --at 100,0-3",
        "utxo scan 51 --range 5-6",
        "utxo ages --every 50",
        &format!("hints make --output {hints}"),
        &format!("hints check {hints}"),
        &format!("snapshot make --output {snapshot}"),
        &format!("reindex --hints {hints}"),
    ] {
        let report = run(&format!("{words} --chain regtest"), dir.path());
        schema.check(&report);
        assert_eq!((&report["chain"], &report["exit_code"]), (&"regtest".into(), &0.into()), "{report}");
        let first = &report["heights"][0]["height"];
        let height = report["height"].as_u64().or(report["datadir"]["chainstate"]["height"].as_u64());
        let height = height.or(first.as_u64()).or(report["to_height"].as_u64());
        assert!(height.is_some(), "{words}: {report}");
        commands.push(report["command"].as_str().unwrap().to_owned());
    }
    let hints_file = ["hints", "info", hints, "--json"];
    let snapshot_file = ["snapshot", "info", snapshot, "--json"];
    let verified = ["snapshot", "verify", snapshot, "--json"];
    let (sets, fetched) = (dir.path().join("sets"), dir.path().join("fetched.dat"));
    let folder = sets.join(chain.tip().hash.to_string());
    let shared = ["snapshot", "share", "--from", snapshot, "-o", sets.to_str().unwrap(), "--json"];
    let (folder, fetched) = (folder.to_str().unwrap(), fetched.to_str().unwrap());
    let fetched = ["snapshot", "fetch", folder, "-o", fetched, "--trust-sources", "--json"];
    for words in [&hints_file[..], &snapshot_file, &verified, &shared, &fetched] {
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_peregrine")).args(words).output().unwrap();
        let report = json(&output);
        schema.check(&report);
        assert_eq!(report["command"], words[..2].join(" "), "{report}");
    }
    assert!(commands.iter().any(|name| name == "snapshot make"), "{commands:?}");
    for outcome in ["finished".into(), Value::Null] {
        if !outcome.is_null() {
            interrupt_replacement(&dir.path().join("regtest")).unwrap();
        }
        let report = run("recover --chain regtest", dir.path());
        schema.check(&report);
        assert_eq!((&report["command"], &report["outcome"]), (&"recover".into(), &outcome), "{report}");
    }
    let (outpoint, _) = chain.model.coins.first_key_value().unwrap();
    let report = run(&format!("utxo get {outpoint} --chain regtest"), dir.path());
    schema.check(&report);
    assert_eq!(report["unspent"][0]["txid"], outpoint.txid.to_string());
}

#[test]
fn reports_about_ranges_match_the_schema() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::generate(&ChainSpec { blocks: Some(130), ..ChainSpec::new(17, 200_000) });
    let datadir = dir.path().join("node");
    chain.write_datadir(&datadir, &Layout::new(17)).unwrap();
    let schema = Schema::read("report");
    let run = |words: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_peregrine"));
        let words: Vec<&str> = words.split(' ').chain(["--json"]).collect();
        let report = json(&command.args(&words).current_dir(dir.path()).output().unwrap());
        schema.check(&report);
        assert_eq!(report["exit_code"], 0, "{report}");
        assert_eq!(report["command"], words[..2].join(" "), "{report}");
        report
    };
    let plan = run("range plan --datadir node --chain regtest --ranges 3 --shards 2 -o plan.json");
    assert_eq!(plan["ranges"][2]["to"], chain.tip().height, "{plan}");
    let written: Value = serde_json::from_slice(&fs::read(dir.path().join("plan.json")).unwrap()).unwrap();
    assert_eq!(written["blocks_sha256"], plan["blocks_sha256"]);
    for range in 0..3 {
        let files = run(&format!("range files --plan plan.json --range {range}"));
        assert_eq!(files["files"][0]["file"], "blk00000.dat", "{files}");
        // The plan names the chain.
        let words = format!("--plan plan.json --range {range} --datadir node -o r{range} --checker c{range}");
        let first = run(&format!("range check {words}"));
        let again = run(&format!("range check {words}"));
        assert_eq!((&first["was_there"], &again["was_there"]), (&false.into(), &true.into()));
        assert_eq!(first["content_sha256"], again["content_sha256"]);
    }
    for shard in 0..2 {
        let merged = run(&format!("range merge --plan plan.json r2 r0 r1 --shard {shard} -o s{shard}"));
        assert_eq!((&merged["spends"], &merged["ranges"]), (&0.into(), &3.into()), "{merged}");
    }
    let report = run("range finish --plan plan.json s0 s1 --output new --recheck 40 --datadir node");
    assert_eq!(report["hash_serialized_3"], chain.model.stats().hash_hex(), "{report}");
    let ranges = report["ranges"].as_array().unwrap();
    assert_eq!(ranges.iter().filter(|range| range["rechecked"] == true).count(), 2, "{report}");
    assert!(ranges.iter().map(|range| &range["checker"]).eq(&["c0", "c1", "c2"]), "{report}");
    let stats = self::run("utxo stats --muhash --chain regtest", &dir.path().join("new"));
    assert_eq!(
        (&stats["hash_serialized_3"], &stats["muhash"]),
        (&report["hash_serialized_3"], &report["muhash"])
    );
}

#[test]
fn shared_reports_match_their_schema() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::generate(&ChainSpec { blocks: Some(130), ..ChainSpec::new(17, 200_000) });
    chain.write_datadir(dir.path(), &Layout::new(17)).unwrap();
    let schema = Schema::read("shared-report");
    for words in ["reindex", "verify", "reindex --stop-at-height 9999"] {
        let file = dir.path().join("shared.json");
        let _ = fs::remove_file(&file);
        let words = format!("{words} --chain regtest --report {}", file.display());
        run(&words, dir.path());
        let shared: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        schema.check(&shared);
        assert_eq!(shared["error"].is_null(), !words.contains("9999"), "{shared}");
    }
}

#[test]
fn failures_match_their_schema() {
    let dir = TempDir::new().unwrap();
    let report = run("reindex", dir.path());
    Schema::read("failure").check(&report);
    assert_eq!((&report["command"], &report["exit_code"]), (&"reindex".into(), &4.into()), "{report}");
    assert_eq!((&report["chain"], &report["error"]["kind"]), (&"main".into(), &"missing".into()), "{report}");
}

#[test]
fn each_line_of_progress_matches_its_schema() {
    let dir = TempDir::new().unwrap();
    let chain = Chain::generate(&ChainSpec { blocks: Some(130), ..ChainSpec::new(17, 200_000) });
    chain.write_datadir(dir.path(), &Layout::new(17)).unwrap();
    let schema = Schema::read("progress");
    let words = ["reindex", "--chain", "regtest", "--progress", "json"];
    let output = command(&words, dir.path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let mut stages = Vec::new();
    for line in stderr.lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        schema.check(&object);
        stages.extend(object["number"].as_u64());
    }
    assert_eq!(stages, [1, 2, 3, 4, 5], "{stderr}");
    let guessed = command(&["verify", "--progress", "json"], dir.path()).output().unwrap();
    let stderr = String::from_utf8(guessed.stderr).unwrap();
    assert!(guessed.status.success() && stderr.lines().all(|line| line.starts_with('{')), "{stderr}");
    let empty = TempDir::new().unwrap();
    let failed = command(&["verify", "--progress", "json"], empty.path()).output().unwrap();
    let stderr = String::from_utf8(failed.stderr).unwrap();
    let last: Value = serde_json::from_str(stderr.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["error"]["kind"]), (&"error".into(), &"missing".into()), "{stderr}");
}

//! Imports go down only: the rooms' arrows of the design, held against what cargo says the workspace is.

use serde_json::Value;
use std::{collections::BTreeSet, path::Path, process::Command};

/// Each room and the rooms it may import.
const ARROWS: &[(&str, &[&str])] = &[
    ("cli", &["engine", "script"]),
    ("engine", &["rules", "coins", "disk", "wire", "digest"]),
    ("script", &["wire"]),
    ("rules", &["wire", "digest"]),
    ("coins", &["wire", "digest"]),
    ("disk", &["wire", "digest"]),
    ("wire", &["digest"]),
    ("digest", &[]),
    ("testkit", &["rules", "coins", "disk", "wire", "digest"]),
    ("oracle", &["testkit", "engine", "script", "rules", "coins", "disk", "wire", "digest"]),
    ("bench", &["testkit", "engine", "rules", "coins", "disk", "wire", "digest"]),
    ("peregrine-bench", &["cli", "engine"]),
    ("hostile", &["testkit", "disk", "wire"]),
];

/// Rooms that no product holds: listed last, above all they import.
const DEV_ONLY: &[&str] = &["testkit", "oracle", "bench", "peregrine-bench", "hostile"];

/// Rooms whose tests may use `testkit` and what it stands on; it stands above the others, so theirs cannot.
const TESTED_WITH_TESTKIT: &[&str] = &["cli", "engine", "script", "peregrine-bench"];

/// The rooms that may know Bitcoin Core's own code.
const KNOW_CORE: &[&str] = &["script", "oracle", "bench"];

/// Whether a room is `testkit` or one that it imports.
fn in_testkit(target: &str) -> bool {
    target == "testkit" || ARROWS.iter().any(|(room, below)| *room == "testkit" && below.contains(&target))
}

fn packages() -> Vec<Value> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"])
        .arg(manifest)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("a list").clone()
}

fn name(value: &Value) -> &str {
    value["name"].as_str().expect("a name")
}

#[test]
fn rooms_are_all_known() {
    let found: BTreeSet<String> = packages().iter().map(|package| name(package).to_owned()).collect();
    let known: BTreeSet<String> = ARROWS.iter().map(|(room, _)| (*room).to_owned()).collect();
    assert_eq!(found, known, "a new room needs a row in ARROWS and in the design");
}

#[test]
fn imports_go_down_only() {
    let rooms: BTreeSet<&str> = ARROWS.iter().map(|(room, _)| *room).collect();
    for package in packages() {
        let room = name(&package);
        let (_, allowed) = ARROWS.iter().find(|(known, _)| *known == room).unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let target = name(dependency);
            // A crate of the registry may be called like a room; ours have a path.
            if !rooms.contains(target) || dependency["path"].is_null() {
                continue;
            }
            let is_dev = dependency["kind"] == "dev";
            let for_tests = is_dev && TESTED_WITH_TESTKIT.contains(&room) && in_testkit(target);
            assert!(allowed.contains(&target) || for_tests, "{room} must not import {target}");
        }
    }
}

#[test]
fn arrows_have_no_circle() {
    for (at, (room, allowed)) in ARROWS.iter().enumerate() {
        for target in *allowed {
            let below = ARROWS.iter().position(|(other, _)| other == target).unwrap();
            assert!(below > at || DEV_ONLY.contains(room) && target != room, "{room} -> {target} goes up");
        }
    }
}

#[test]
fn only_few_know_core() {
    for package in packages() {
        let room = name(&package);
        let knows =
            package["dependencies"].as_array().unwrap().iter().any(|dep| name(dep) == "bitcoinkernel");
        assert!(!knows || KNOW_CORE.contains(&room), "{room} must not know Bitcoin Core's code");
    }
}

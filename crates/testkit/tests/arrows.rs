//! Crates depend only on the crates below them: compares the allowed dependencies with those that cargo
//! reports.

use serde_json::Value;
use std::{collections::BTreeSet, path::Path, process::Command};

/// Each crate of the workspace and the crates that it may depend on.
const ARROWS: &[(&str, &[&str])] = &[
    ("cli", &["engine", "script"]),
    ("engine", &["rules", "coins", "disk", "wire", "digest"]),
    ("script", &["wire"]),
    ("net", &["wire", "digest"]),
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

/// Crates that are not part of the product. They are listed last, although they depend on others.
const DEV_ONLY: &[&str] = &["testkit", "oracle", "bench", "peregrine-bench", "hostile"];

/// Crates whose tests may use `testkit` and its dependencies. `testkit` depends on the other crates, so their
/// tests cannot.
const TESTED_WITH_TESTKIT: &[&str] = &["cli", "engine", "script", "peregrine-bench"];

/// The crates that may depend on Bitcoin Core's own code.
const USE_CORE: &[&str] = &["script", "oracle", "bench"];

/// Returns whether a crate is `testkit` or one of its dependencies.
fn in_testkit(target: &str) -> bool {
    target == "testkit" || ARROWS.iter().any(|(name, below)| *name == "testkit" && below.contains(&target))
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
fn all_crates_are_listed() {
    let found: BTreeSet<String> = packages().iter().map(|package| name(package).to_owned()).collect();
    let known: BTreeSet<String> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, known, "a new crate needs a row in ARROWS and in ARCHITECTURE.md");
}

#[test]
fn crates_depend_only_on_crates_below() {
    let crates: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    for package in packages() {
        let importer = name(&package);
        let (_, allowed) = ARROWS.iter().find(|(known, _)| *known == importer).unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let target = name(dependency);
            // A crate of the registry may have the same name; those of the workspace have a path.
            if !crates.contains(target) || dependency["path"].is_null() {
                continue;
            }
            let is_dev = dependency["kind"] == "dev";
            let for_tests = is_dev && TESTED_WITH_TESTKIT.contains(&importer) && in_testkit(target);
            assert!(allowed.contains(&target) || for_tests, "{importer} must not depend on {target}");
        }
    }
}

#[test]
fn allowed_dependencies_have_no_cycle() {
    for (at, (importer, allowed)) in ARROWS.iter().enumerate() {
        for target in *allowed {
            let below = ARROWS.iter().position(|(other, _)| other == target).unwrap();
            assert!(
                below > at || DEV_ONLY.contains(importer) && target != importer,
                "{importer} -> {target} goes up"
            );
        }
    }
}

#[test]
fn few_crates_depend_on_core() {
    for package in packages() {
        let importer = name(&package);
        let depends =
            package["dependencies"].as_array().unwrap().iter().any(|dep| name(dep) == "bitcoinkernel");
        assert!(
            !depends || USE_CORE.contains(&importer),
            "{importer} must not depend on Bitcoin Core's code"
        );
    }
}

//! Crates depend only on the crates below them: compares the allowed dependencies with those that cargo
//! reports, and draws these in `ARCHITECTURE.md`.

use crate::workspace;

use std::collections::{BTreeMap, BTreeSet};
use workspace::{name, packages};

/// Each crate of the project and the crates that it may depend on.
const ARROWS: &[(&str, &[&str])] = &[
    ("cli", &["tables", "sync", "ranges", "indexes", "engine", "export", "script"]),
    ("python", &["tables", "engine", "export", "script"]),
    ("tables", &["engine", "export"]),
    ("sync", &["engine", "pipeline", "chain", "api", "rules", "disk", "net", "vfs", "wire"]),
    ("indexes", &["pipeline", "chain", "api", "rules", "disk", "leveldb", "vfs", "wire", "digest"]),
    ("ranges", &["pipeline", "chain", "api", "rules", "coins", "disk", "vfs", "wire"]),
    ("engine", &["pipeline", "chain", "api", "rules", "coins", "disk", "hints", "vfs", "wire", "digest"]),
    ("pipeline", &["chain", "api", "rules", "coins", "disk", "hints", "vfs", "wire", "digest"]),
    ("chain", &["api", "rules", "coins", "disk", "vfs", "wire", "digest"]),
    ("api", &["rules", "coins", "disk", "hints", "vfs", "wire", "digest"]),
    ("export", &["vfs", "wire"]),
    ("script", &["wire"]),
    ("net", &["wire", "digest"]),
    ("rules", &["wire", "digest"]),
    ("coins", &["wire", "digest"]),
    ("disk", &["leveldb", "vfs", "wire", "digest"]),
    ("hints", &["vfs", "wire", "digest"]),
    ("leveldb", &["vfs"]),
    ("vfs", &[]),
    ("wire", &["digest"]),
    ("digest", &["sha256d"]),
    ("sha256d", &[]),
    ("testdata", &[]),
    ("testkit", &["testdata", "rules", "disk", "hints", "leveldb", "net", "vfs", "wire", "digest"]),
    (
        "acceptance",
        &[
            "testkit", "sync", "ranges", "indexes", "engine", "rules", "disk", "hints", "leveldb", "vfs",
            "wire", "digest",
        ],
    ),
    ("oracle", &["testkit", "sync", "engine", "script", "rules", "disk", "leveldb", "vfs", "wire"]),
    ("bench", &["testkit", "rules", "coins", "disk", "vfs", "wire", "digest"]),
    ("peregrine-bench", &["bench", "testkit", "cli", "engine", "disk", "wire", "digest"]),
    ("hostile", &["testkit", "disk", "leveldb", "vfs", "wire"]),
];

/// Crates that are not part of the product. They are listed last, although they depend on others.
const DEV_ONLY: &[&str] =
    &["testdata", "testkit", "acceptance", "oracle", "bench", "peregrine-bench", "hostile"];

/// Crates whose tests may use `testkit` and its dependencies; all may use `testdata`. `testkit` depends on
/// the other crates, so their unit tests cannot: only those of `disk`, `hints`, `net` and `rules` outside of
/// the crate do, where its types are those of `testkit`.
const TESTED_WITH_TESTKIT: &[&str] =
    &["cli", "tables", "pipeline", "chain", "export", "script", "rules", "net", "disk", "hints"];

/// The crates that may depend on Bitcoin Core's own code.
const USE_CORE: &[&str] = &["script", "oracle", "bench"];

/// Returns whether a crate is `testkit` or one of its dependencies.
fn in_testkit(target: &str) -> bool {
    target == "testkit" || ARROWS.iter().any(|(name, below)| *name == "testkit" && below.contains(&target))
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
        let dependencies = package["dependencies"].as_array().unwrap();
        let depends_on = |target: &str| dependencies.iter().any(|it| name(it) == target);
        let unused = allowed.iter().find(|target| !depends_on(target));
        assert_eq!(unused, None, "{importer} does not depend on it: ARROWS must not allow it");
        let is_allowed = !depends_on("bitcoinkernel") || USE_CORE.contains(&importer);
        assert!(is_allowed, "{importer} must not depend on Bitcoin Core's code");
        for dependency in dependencies {
            let target = name(dependency);
            // A crate of the registry may have the same name; those of the workspace have a path.
            if !crates.contains(target) || dependency["path"].is_null() {
                continue;
            }
            let is_dev = dependency["kind"] == "dev";
            let for_tests = is_dev
                && (target == "testdata" || TESTED_WITH_TESTKIT.contains(&importer) && in_testkit(target));
            assert!(allowed.contains(&target) || for_tests, "{importer} must not depend on {target}");
        }
    }
}

#[test]
fn allowed_dependencies_have_no_cycle() {
    for (at, (importer, allowed)) in ARROWS.iter().enumerate() {
        for target in *allowed {
            let below = ARROWS.iter().position(|(other, _)| other == target).unwrap();
            let is_below = below > at || DEV_ONLY.contains(importer) && target != importer;
            assert!(is_below, "{importer} -> {target} goes up");
        }
    }
}

/// The crates that each crate imports, except in tests, and except what these import in turn.
fn direct_imports() -> BTreeMap<String, BTreeSet<String>> {
    let all: BTreeMap<String, BTreeSet<String>> = packages()
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            let ours = dependencies.filter(|it| !it["path"].is_null() && it["kind"] != "dev");
            (name(package).to_owned(), ours.map(|it| name(it).to_owned()).collect())
        })
        .collect();
    fn reaches(all: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
        all[from].iter().any(|next| next == to || reaches(all, next, to))
    }
    let is_direct =
        |from: &str, to: &str| !all[from].iter().any(|next| next != to && reaches(&all, next, to));
    let mut direct = all.clone();
    direct.iter_mut().for_each(|(from, below)| below.retain(|to| is_direct(from, to)));
    direct
}

#[test]
fn the_picture_of_the_crates_is_up_to_date() {
    let mut picture = "```mermaid\ngraph TD\n".to_owned();
    for (from, below) in direct_imports().into_iter().filter(|(_, below)| !below.is_empty()) {
        let below: Vec<String> = below.into_iter().collect();
        picture += &format!("{from} --> {}\n", below.join(" & "));
    }
    testkit::pages::assert_named_table("ARCHITECTURE.md", "imports of crates", &(picture + "```\n"));
}

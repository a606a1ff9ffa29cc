//! `peregrine-bench proposals` as its users meet it, on a small generated chain.

use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;
use testkit::{Chain, ChainSpec, corrupt::snapshot, datadir::Layout};

/// The program to measure. A test run of the whole workspace builds it; without it, tests that need it are
/// skipped.
fn has_peregrine() -> bool {
    let path = Path::new(env!("CARGO_BIN_EXE_peregrine-bench")).with_file_name("peregrine");
    let exists = path.is_file();
    if !exists {
        println!("skipped: there is no {}; build it with cargo build -p peregrine", path.display());
    }
    exists
}

fn bench(work: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine-bench"));
    command.args(["proposals", "--runs", "1", "--work-dir"]).arg(work).args(more).output().unwrap()
}

/// The answers of the variants of each proposal.
fn answers(report: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let mut answers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in report["rows"].as_array().unwrap() {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        answers.entry(text("proposal")).or_default().insert(text("answer"));
    }
    answers
}

/// Checks a report with all proposals.
fn check(report: &Value) {
    let answers = answers(report);
    assert_eq!(answers.len(), report["proposals"].as_array().unwrap().len());
    for (proposal, answers) in &answers {
        assert_eq!(answers.len(), 1, "the variants of {proposal} have the same answer: {answers:?}");
    }
    assert_eq!(answers["engines"], answers["xor"], "all rebuilds have the same UTXO set");
    assert_eq!(answers["cache-hash"], answers["preallocate"], "all tables have the same coins");
    for proposal in report["proposals"].as_array().unwrap() {
        let variants = proposal["variants"].as_array().unwrap();
        assert!(variants.len() > 1 && variants[0]["ratio"].is_null(), "{proposal}");
        for variant in &variants[1..] {
            let of = |name: &str| variant["ratio"][name].as_f64().unwrap();
            assert!(of("low") > 0.0 && of("low") <= of("ratio") && of("ratio") <= of("high"), "{variant}");
        }
        let is_step = report["rows"]
            .as_array()
            .unwrap()
            .iter()
            .any(|row| row["proposal"] == proposal["name"] && row["peak_rss_kib"].is_null());
        let is_share = is_step && proposal["clock"] == "processor";
        assert_eq!(variants[1]["share_percent"].is_number(), is_share, "{proposal}");
    }
}

#[test]
fn all_variants_of_a_proposal_have_the_same_answer() {
    if !has_peregrine() {
        return;
    }
    let (dir, work) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let chain =
        Chain::generate(&ChainSpec { blocks: Some(120), empty_tail: 2_100, ..ChainSpec::new(29, 100_000) });
    let layout = Layout { file_size: 64 << 10, preallocate: false, ..Layout::new(29) };
    chain.write_datadir(dir.path(), &layout).unwrap();
    let files = || -> Vec<(PathBuf, Vec<u8>)> {
        let all = snapshot(dir.path()).unwrap().into_iter();
        all.filter(|(path, _)| !path.ends_with(".lock") && !path.ends_with("LOCK")).collect()
    };
    let before = files();
    let (csv, page) = (work.path().join("raw.csv"), work.path().join("page.html"));
    let outputs = ["--csv", csv.to_str().unwrap(), "--page", page.to_str().unwrap(), "--json"];
    let assumed = format!("--assumevalid {}", chain.totals.before_tail);
    let datadir = ["--chain", "regtest", "--datadir", dir.path().to_str().unwrap()];
    let datadir = [&datadir[..], &["--hints-height", "120", "--args", &assumed]].concat();
    let output = bench(work.path(), &[&datadir[..], &outputs[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    check(&report);
    let hash = chain.model.stats().hash_hex();
    assert_eq!(answers(&report)["engines"].first(), Some(&hash));
    assert_eq!(report["about"]["block_hash"], chain.tip().hash.to_string());
    let cores = report["about"]["machine"]["cores"].as_u64().unwrap();
    assert!(cores > 0 && report["about"]["load"][0].is_number(), "{report}");
    assert!(files() == before, "the datadir is only read");

    let rows = report["rows"].as_array().unwrap();
    let text = fs::read_to_string(&csv).unwrap();
    assert_eq!(text.lines().count(), rows.len() + 1, "{text}");
    let html = fs::read_to_string(&page).unwrap().replace("<span>", "").replace("</span>", "");
    for part in ["Hash of an outpoint", "33.92 to 16.61 ns", "Raspberry Pi 5", "times as fast", "95 %"] {
        assert!(html.contains(part), "{part}");
    }
    for foreign in ["<script", "http:", "https:", "url(", "NaN", "inf"] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 2, "nothing stays but CSV and page");
}

#[test]
fn a_chain_is_generated_and_proposals_are_selected() {
    if !has_peregrine() {
        return;
    }
    let work = TempDir::new().unwrap();
    let output = bench(work.path(), &["--size", "200kB", "--only", "hash,duplicates,xor"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in
        ["machine", "generated, 200000 bytes, seed 1", "sorted keys", "document: hash: 33.92 to 16.61 ns"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("fewer than 5 runs") && !text.contains("muhash"), "{text}");
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0, "nothing stays");
}

#[test]
fn a_malformed_block_is_named() {
    if !has_peregrine() {
        return;
    }
    let (dir, work) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut chain = Chain::generate(&ChainSpec { blocks: Some(110), ..ChainSpec::new(29, 50_000) });
    let block = chain.blocks.iter_mut().find(|block| block.height == 60).unwrap();
    block.bytes.truncate(100);
    let hash = block.hash.to_string();
    chain.write_datadir(dir.path(), &Layout::new(29)).unwrap();
    let datadir = ["--chain", "regtest", "--datadir", dir.path().to_str().unwrap(), "--only", "hash"];
    let output = bench(work.path(), &datadir);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    for part in [hash.as_str(), "blk00000.dat, byte ", "peregrine doctor"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}

#[test]
fn nonsense_is_refused_before_anything_runs() {
    let work = TempDir::new().unwrap();
    let page = work.path().join("page.html");
    fs::write(&page, "mine").unwrap();
    let refused: [(&[&str], i32, &str); 4] = [
        (&["--only", "flux"], 2, "flux"),
        (&["--datadir", "x", "--size", "1MB"], 2, "cannot be used with"),
        (&["--page", page.to_str().unwrap()], 5, "not of this command"),
        (&["--datadir", work.path().to_str().unwrap(), "--peregrine", page.to_str().unwrap()], 5, "blocks"),
    ];
    for (more, code, said) in refused {
        let output = bench(work.path(), more);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(said), "{said}: {stderr}");
    }
    assert_eq!(fs::read_to_string(&page).unwrap(), "mine");
}

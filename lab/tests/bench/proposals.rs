//! `peregrine-bench proposals` as its users meet it, on a small generated chain.

use crate::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn bench(work: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine-bench"));
    command.args(["proposals", "--busy", "--work-dir"]).arg(work).args(more);
    if !more.contains(&"--runs") {
        command.args(["--runs", "1"]);
    }
    command.output().unwrap()
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
    assert_eq!(answers["engines"], answers["control-run"], "all rebuilds have the same UTXO set");
    assert_eq!(answers["cumulative"], answers["xor-whole-large"], "all engines write the same files");
    for proposal in report["proposals"].as_array().unwrap() {
        let variants = proposal["variants"].as_array().unwrap();
        assert!(variants[0]["ratio"].is_null(), "{proposal}");
        for variant in &variants[1..] {
            let of = |name: &str| variant["ratio"][name].as_f64().unwrap();
            assert!(of("low") > 0.0 && of("low") <= of("ratio") && of("ratio") <= of("high"), "{variant}");
        }
    }
    let proposal = |name: &str| {
        let mut all = report["proposals"].as_array().unwrap().iter();
        all.find(|proposal| proposal["name"] == name).unwrap()
    };
    assert!(proposal("obfuscation")["variants"][1]["share_percent"].is_number());
    assert!(proposal("hash")["variants"][1]["share_percent"].is_null());
    assert!(proposal("hash")["variants"][1]["is_noise"].is_boolean());
    assert!(proposal("cumulative")["variants"][1]["share_percent"].is_null());
    assert!(proposal("cumulative")["variants"][2]["step"]["ratio"].is_number());
    assert!(proposal("hash")["variants"][2]["step"].is_null());
    let bytes = |at: usize| proposal("spent-coins")["variants"][at]["size"].as_u64().unwrap();
    assert!(bytes(1) > 0 && bytes(1) < bytes(0), "undo data is smaller than blocks");
}

/// The variants of a proposal, in the order in which they ran in a round.
fn order(report: &Value, proposal: &str, run: u64) -> Vec<String> {
    let rows = report["rows"].as_array().unwrap().iter();
    let own = rows.filter(|row| row["proposal"] == proposal && row["run"] == run);
    own.map(|row| row["variant"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn all_variants_of_a_proposal_have_the_same_answer() {
    let Some(_) = peregrine() else { return };
    let (dir, work) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let chain =
        Chain::generate(&ChainSpec { blocks: Some(120), empty_tail: 2_100, ..ChainSpec::new(29, 100_000) });
    let layout = Layout { file_size: 64 << 10, preallocate: false, xor_key: None, ..Layout::new(29) };
    chain.write_datadir(dir.path(), &layout).unwrap();
    let before = unlocked_files(dir.path());
    let assumed = format!("--assumevalid {}", chain.totals.before_tail);
    let datadir = ["--chain", "regtest", "--datadir", dir.path().to_str().unwrap()];
    let datadir = [&datadir[..], &["--hints-height", "120", "--args", &assumed, "--coins", "1000"]].concat();
    let report = done(&bench(work.path(), &[&datadir[..], &["--json"]].concat()));
    check(&report);
    let hash = chain.model.stats().hash_hex();
    assert_eq!(answers(&report)["engines"].first(), Some(&hash));
    assert_eq!(report["about"]["block_hash"], chain.tip().hash.to_string());
    let cores = report["about"]["machine"]["cores"].as_u64().unwrap();
    assert!(cores > 0 && report["about"]["load"][0].is_number(), "{report}");
    assert!(unlocked_files(dir.path()) == before, "the datadir is only read");
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0, "nothing stays");
}

#[test]
fn a_recorded_run_becomes_a_page() {
    let Some(_) = peregrine() else { return };
    let work = TempDir::new().unwrap();
    let (record, core) = (work.path().join("2026-11-01-test"), work.path().join("core.json"));
    let result = r#"{"name": "ObfuscationBench", "unit": "byte", "batch": 100, "median(elapsed)": 5e-8}"#;
    fs::write(&core, format!("{{\"results\": [{result}]}}")).unwrap();
    let only = "hash,duplicates,obfuscation,hint-sizes,control-run";
    let files = ["--record", record.to_str().unwrap(), "--bench-bitcoin", core.to_str().unwrap(), "--json"];
    let more = [&["--size", "200kB", "--only", only, "--runs", "2"], &files[..]].concat();
    let report = done(&bench(work.path(), &more));
    let (first, mut second) = (order(&report, "hash", 1), order(&report, "hash", 2));
    second.reverse();
    assert!(first.len() > 1 && first == second, "every second round goes backwards: {first:?}, {second:?}");
    let sizes = [1, 2].map(|run| order(&report, "hint-sizes", run).len());
    assert_eq!(sizes, [14, 0], "sizes are measured once");
    let rows = report["rows"].as_array().unwrap();
    let csv = fs::read_to_string(record.join("raw.csv")).unwrap();
    assert_eq!(csv.lines().count(), rows.len() + 1, "{csv}");
    let summary = fs::read_to_string(record.join("summary")).unwrap();
    for part in ["machine", "generated, 200000 bytes, seed 1", "| 33.92 to 16.61 ns | 2.04 |", " MiB"] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine-bench"));
    let page = command.arg("documents").arg(&record).output().unwrap();
    assert_eq!(page.status.code(), Some(0), "{page:?}");
    let page = String::from_utf8(page.stdout).unwrap();
    let of_hash = report["proposals"].as_array().unwrap().iter().find(|it| it["name"] == "hash").unwrap();
    let speed = of_hash["variants"][3]["speed"].as_str().unwrap();
    for part in [
        "; Raspberry Pi 5 | 33.92 to 16.61 ns | 2.04 |",
        "bench_bitcoin: XOR of memory | 1,907.35 MiB/s |",
        speed,
        "To be recorded of `cumulative`: all in the old way;",
        "2026-11-01-test/summary",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

/// The page is printed from the runs that a file names; without one it says what is to be recorded.
#[test]
fn the_page_of_the_documents_is_printed_by_this_program() {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("runs");
    let names = fs::read_to_string(runs.join("documents")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine-bench"));
    let output = command.arg("documents").args(names.lines().map(|name| runs.join(name))).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    testkit::pages::assert_file("docs/documents.md", &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn a_malformed_block_is_named() {
    let Some(_) = peregrine() else { return };
    let (dir, work) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut chain = Chain::generate(&ChainSpec { blocks: Some(110), ..ChainSpec::new(29, 50_000) });
    let block = chain.blocks.iter_mut().find(|block| block.height == 60).unwrap();
    block.bytes.truncate(100);
    let hash = block.hash.to_string();
    chain.write_datadir(dir.path(), &Layout::new(29)).unwrap();
    let datadir = ["--chain", "regtest", "--datadir", dir.path().to_str().unwrap(), "--only", "hash"];
    refused(&bench(work.path(), &datadir), 4, &[&hash, "blk00000.dat, byte ", "peregrine doctor"]);
}

#[test]
fn nonsense_is_refused_before_anything_runs() {
    let (work, file) = testkit::fresh_path("raw.csv");
    fs::write(&file, "mine").unwrap();
    let (folder, file) = (work.path().to_str().unwrap(), file.to_str().unwrap());
    let cases: [(&[&str], i32, &str); 5] = [
        (&["--only", "flux"], 2, "flux"),
        (&["--datadir", "x", "--size", "1MB"], 2, "cannot be used with"),
        (&["--bench-bitcoin", file], 5, "bench_bitcoin -output-json"),
        (&["--record", folder], 5, "raw.csv"),
        (&["--datadir", folder, "--peregrine", file], 5, "blocks"),
    ];
    for (more, code, said) in cases {
        refused(&bench(work.path(), more), code, &[said]);
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "mine");
}

//! `peregrine-bench sync` as its users meet it: a small generated chain, served by a real `bitcoind`.

use crate::prelude::*;
use std::{
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A datadir to serve, and the block up to which its scripts are not run: only a program with Bitcoin Core's
/// kernel could run them.
fn datadir() -> (TempDir, String) {
    let dir = TempDir::new().unwrap();
    // Work of two weeks must be above that block.
    let spec =
        ChainSpec { blocks: Some(150), signed: false, empty_tail: 2100, ..ChainSpec::new(31, 3_000_000) };
    let chain = Chain::generate(&spec);
    chain.write_datadir(dir.path(), &Layout { file_size: 1 << 20, ..Layout::new(31) }).unwrap();
    (dir, chain.totals.before_tail.to_string())
}

fn bench(datadir: &Path, work: &Path, bitcoind: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine-bench"));
    command.args(["sync", "--busy", "--chain", "regtest", "--datadir"]).arg(datadir);
    command.arg("--bitcoind").arg(bitcoind).arg("--work-dir").arg(work).args(more);
    command
}

/// What the tests with peers need: Peregrine and `bitcoind`. Without one of them, they are skipped.
fn programs() -> Option<(PathBuf, PathBuf)> {
    let peregrine = peregrine()?;
    let built = || peregrine.with_file_name("../bitcoind/bin/bitcoind");
    let bitcoind = std::env::var_os("PEREGRINE_BITCOIND").map_or_else(built, PathBuf::from);
    if !bitcoind.is_file() {
        testkit::data::skip(format!("there is no {}: make bitcoind", bitcoind.display()));
        return None;
    }
    Some((peregrine, bitcoind))
}

/// Returns whether a process runs that has this path among its arguments.
fn is_used(path: &Path) -> bool {
    let path = path.display().to_string();
    let processes = fs::read_dir("/proc").unwrap().map_while(Result::ok);
    processes
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).contains(&path))
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(120), "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn both_programs_download_the_same_chain_over_links() {
    let Some((peregrine, bitcoind)) = programs() else { return };
    let ((dir, assumed), work) = (datadir(), TempDir::new().unwrap());
    let csv = work.path().join("raw.csv");
    let (peregrine, csv_text) = (peregrine.to_str().unwrap(), csv.to_str().unwrap());
    let links = ["--link", "2x30M/10ms", "--link", "1x10M/20ms", "--link", "1x10M/30ms"];
    let more = ["--peregrine", peregrine, "--runs", "1", "--against", "--json", "--csv", csv_text];
    let more = [&links[..], &more[..], &["--assumevalid", &assumed]].concat();
    let report = done(&bench(dir.path(), work.path(), &bitcoind, &more).output().unwrap());
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| &row["program"]).collect::<Vec<_>>(), ["peregrine", "bitcoind"]);
    assert!(rows[0]["utxo_hash"].is_string() && rows[0]["utxo_hash"] == rows[1]["utxo_hash"], "{report}");
    assert_eq!(report["links_bytes_per_second"], 10_000_000);
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap();
        assert!(number("received_bytes") >= number("bytes") && number("bytes") > 100_000.0, "{row}");
        assert!(number("download_s") > 0.0 && number("download_s") <= number("wall_s"), "{row}");
        assert!(number("link_share") > 0.0 && number("link_share") < 1.0, "{row}");
        assert_eq!(row["link_bytes"].as_array().unwrap().len(), 4);
    }
    let text = fs::read_to_string(&csv).unwrap();
    let columns = |line: &str| line.split(',').count();
    assert!(text.lines().count() == 3 && text.lines().all(|line| columns(line) == 18), "{text}");
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 1, "nothing stays but the CSV");
    wait_until("no process is left", || !is_used(work.path()));
}

/// Starts a benchmark, and waits until its peers run.
fn started(dir: &(TempDir, String), work: &Path, bitcoind: &Path, peregrine: &Path) -> Child {
    let peregrine = peregrine.to_str().unwrap();
    let more = ["--link", "2x8k/500ms", "--peregrine", peregrine, "--runs", "1", "--assumevalid", &dir.1];
    let mut command = bench(dir.0.path(), work, bitcoind, &more);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let folder = work.join(format!("peregrine-bench-{}", child.id()));
    wait_until("a run starts", || folder.join("datadir").exists() && is_used(&folder.join("peer2")));
    child
}

#[test]
fn a_signal_removes_everything_and_a_kill_leaves_no_process() {
    let Some((peregrine, bitcoind)) = programs() else { return };
    let (dir, work) = (datadir(), TempDir::new().unwrap());
    let mut child = started(&dir, work.path(), &bitcoind, &peregrine);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0, "nothing stays");
    assert!(!is_used(work.path()));

    let mut child = started(&dir, work.path(), &bitcoind, &peregrine);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("no process is left", || !is_used(work.path()));
}

#[test]
fn nonsense_is_refused_before_anything_runs() {
    let (dir, none) = (TempDir::new().unwrap(), Path::new("no-such-bitcoind"));
    let own = env!("CARGO_BIN_EXE_peregrine-bench");
    let cases: [(&[&str], &str); 4] = [
        (&[], "--link"),
        (&["--link", "4x100M"], "the round trip is missing"),
        (&["--link", "201x1M/1ms"], "201 links are more than 200"),
        (&["--link", "1xloopback", "--peregrine", own], "there is no bitcoind at no-such-bitcoind"),
    ];
    for (more, said) in cases {
        refused(&bench(dir.path(), dir.path(), none, more).output().unwrap(), 2, &[said]);
    }
}

//! `peregrine-bench plot` as its users meet it: a page from a log of Peregrine and from one as Bitcoin Core
//! writes it, and what a browser makes of it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use cli::run_log::RunLog;
use engine::{Event, Network, RealDisk, ReindexOptions};
use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::AtomicBool,
};
use tempfile::TempDir;
use testkit::{Chain, ChainSpec, datadir::Layout};

fn plot(words: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_peregrine-bench")).arg("plot").args(words).args(paths).output().unwrap()
}

/// The log of a rebuild of a small chain, as `peregrine reindex --log` writes it.
fn our_log(dir: &Path) -> PathBuf {
    let chain = Chain::generate(&ChainSpec { blocks: Some(120), ..ChainSpec::new(31, 100_000) });
    chain.write_datadir(&dir.join("datadir"), &Layout { preallocate: false, ..Layout::new(31) }).unwrap();
    let path = dir.join("ours.jsonl");
    let log = RunLog::create(&path).unwrap();
    let options = ReindexOptions::new(&dir.join("datadir"), Network::Regtest);
    let sink = |event: Event| log.event(&event);
    let report = engine::reindex(&RealDisk, &options, &sink, &AtomicBool::new(false)).unwrap();
    log.close(Some(&report));
    path
}

/// A log with a block every two seconds, and some irrelevant lines.
fn cores_log(dir: &Path, name: &str, blocks: u32) -> PathBuf {
    let mut text = "2026-01-02T00:00:00.000000Z Bitcoin Core version v31.0.0 (release build)\n".to_owned();
    for height in 0..blocks {
        let seconds = 2 * height + 1;
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        let _ = writeln!(
            text,
            "2026-01-02T{:02}:{:02}:{seconds:02}Z UpdateTip: new best=00 height={height} version=0x20000000 \
             log2_work=7.9 tx={} date='2011-02-03T00:00:00Z' progress=0.1 cache={}.5MiB({}txo)",
            minutes / 60,
            minutes % 60,
            height * 3,
            height % 50,
            height * 10,
        );
    }
    text += "2026-01-02T09:00:00Z UpdateTip: new best=00 height=none\n\u{0}<script>alert(1)</script>\n";
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_page_needs_nothing_else_and_holds_the_numbers() {
    let dir = TempDir::new().unwrap();
    let ours = our_log(dir.path());
    let log = fs::read_to_string(&ours).unwrap();
    assert!(
        log.starts_with("{\"event\":\"start\"") && log.contains("{\"event\":\"end\",\"seconds\":"),
        "{log}"
    );
    assert!(log.contains("\"event\":\"progress\"") && log.contains("\"blocks\":121,"), "{log}");
    let core = cores_log(dir.path(), "<core> & co.log", 500);
    let page = dir.path().join("report.html");
    let done = plot(&["-o"], &[&page, &ours, &core]);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(said.contains("500 points, up to height 499; 1 bad lines skipped"), "{said}");
    let html = fs::read_to_string(&page).unwrap();
    for title in ["Time by height", "Time by block data", "Cache and memory", "compared with &lt;core&gt;"] {
        assert!(html.contains(title), "{title}");
    }
    for foreign in ["<script", "http:", "https:", "url(", "NaN", "inf", "<core>"] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert!(html.contains("prefers-color-scheme: dark") && html.contains("<td>999</td>"), "{html}");
    let csv = fs::read_to_string(dir.path().join("report.csv")).unwrap();
    assert!(csv.contains("\"<core> & co\",999.000000,499,,1497,"), "{csv}");
    let again = plot(&["-o"], &[&page, &core]);
    assert_eq!(again.status.code(), Some(5), "nothing is overwritten");
}

#[test]
fn what_is_no_log_is_refused() {
    let dir = TempDir::new().unwrap();
    let (nothing, page) = (dir.path().join("nothing"), dir.path().join("page.html"));
    fs::write(&nothing, b"\xff\xfe{}\n{\"event\":\"progress\"}\nUpdateTip: new best=\n").unwrap();
    let output = plot(&["-o"], &[&page, &nothing]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(4) && stderr.contains("no progress in it"), "{stderr}");
    assert_eq!(plot(&["-o"], &[&page, dir.path()]).status.code(), Some(5), "a folder");
    let core = cores_log(dir.path(), "core.log", 5);
    let output = plot(&["--baseline", "2", "-o"], &[&page, &core]);
    assert_eq!(output.status.code(), Some(2), "there is no second log");
    assert!(!page.exists());
}

/// Chromium renders the page. Skipped if it is not installed.
#[test]
fn a_browser_draws_the_page() {
    let browser = ["chromium", "chromium-browser", "google-chrome"].into_iter();
    let found =
        |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
    let Some(browser) = browser.into_iter().find(found) else {
        println!("skipped: no Chromium is installed");
        return;
    };
    let dir = TempDir::new().unwrap();
    let logs =
        [("slow.log", 900), ("fast.log", 700)].map(|(name, blocks)| cores_log(dir.path(), name, blocks));
    let (page, picture) = (dir.path().join("page.html"), dir.path().join("page.png"));
    let done = plot(&["-o"], &[&page, &logs[0], &logs[1]]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,1800"]);
    command.arg(format!("--user-data-dir={}", dir.path().join("profile").display()));
    command.arg(format!("--screenshot={}", picture.display()));
    let output = command.arg(format!("file://{}", page.display())).output().unwrap();
    let bytes = fs::read(&picture).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    // An empty page of this size is some 8 kB.
    assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 30_000, "{} bytes", bytes.len());
}

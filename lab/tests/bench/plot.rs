//! `peregrine-bench plot` as its users meet it: a page from a log of Peregrine and from one as Bitcoin Core
//! writes it. `page.rs` asks a browser what it makes of such a page.

use crate::prelude::*;
use cli::run_log::{Run, RunLog};
use engine::{Event, Network, RealDisk, ScriptChecks, Watch, reindex::ReindexOptions};
use std::{fmt::Write, sync::atomic::AtomicBool};

fn plot(words: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_peregrine-bench")).arg("plot").args(words).args(paths).output().unwrap()
}

/// The log of a rebuild of a small chain, as `peregrine reindex --log` writes it.
fn our_log(dir: &Path) -> PathBuf {
    let chain = Chain::generate(&ChainSpec { blocks: Some(120), ..ChainSpec::new(31, 100_000) });
    chain.write_datadir(&dir.join("datadir"), &Layout { preallocate: false, ..Layout::new(31) }).unwrap();
    let path = dir.join("ours.jsonl");
    let options = ReindexOptions::new(&dir.join("datadir"), Network::Regtest, ScriptChecks::LeftOut);
    let log = RunLog::create(&path, Run::of(&options.chain)).unwrap();
    let sink = |event: Event| log.event(&event);
    let report =
        engine::reindex(&RealDisk, &options, Watch { sink: &sink, interrupt: &AtomicBool::new(false) })
            .unwrap();
    log.close(Ok(&report));
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
    assert!(log.starts_with("{\"event\":\"start\""), "{log}");
    assert!(log.contains("{\"event\":\"end\",\"seconds\":"), "{log}");
    assert!(log.contains("\"event\":\"progress\"") && log.contains("\"blocks\":121,"), "{log}");
    let core = cores_log(dir.path(), "core.log", 500);
    let core = PathBuf::from(format!("<core> & co={}", core.display()));
    let page = dir.path().join("report.html");
    let done = plot(&["-o"], &[&page, &ours, &core]);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(said.contains("500 points, up to height 499; 1 bad lines skipped"), "{said}");
    let html = fs::read_to_string(&page).unwrap();
    for title in ["Time to reach each height", "Memory and coins cache"] {
        assert!(html.contains(title), "{title}");
    }
    assert!(html.contains("&lt;core&gt; &amp; co") && html.contains("One run each."), "{html}");
    assert!(!html.contains("× as fast"), "one run of each does not carry a ratio: {html}");
    for foreign in ["<script", "http:", "https:", "url(", "NaN", "inf", "<core>"] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    let home = dir.path().to_str().unwrap();
    assert!(!html.contains(home), "the page names no path: {html}");
    assert!(html.contains("ended after 16 min 39 s"), "{html}");
    assert!(html.contains("height 120, the highest that both"), "{html}");
}

#[test]
fn a_page_of_one_run_does_not_speak_of_another_program() {
    let (dir, page) = testkit::fresh_path("report.html");
    assert_eq!(plot(&["-o"], &[&page, &our_log(dir.path())]).status.code(), Some(0));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("Rebuilt in ") && html.contains("<dt>stages</dt>"), "{html}");
    for absent in ["compared", "as fast", "baseline"] {
        assert!(!html.contains(absent), "{absent}");
    }
}

#[test]
fn what_a_run_log_says_of_itself_is_in_the_card() {
    let dir = TempDir::new().unwrap();
    let log = |name: &str, hash: &str| {
        let text = format!(
            concat!(
                r#"{{"event":"start","version":"9.8.7","schema":1,"commit":"0123456789abcdef0123","#,
                r#""threads":16,"arguments":["peregrine","reindex","--datadir","my dir"],"#,
                r#""memory_bytes":2147483648,"assumevalid":"00ff","machine":{{"cpu":"EPYC","cores":16,"#,
                r#""memory_bytes":68719476736,"kernel":"Linux 6.12","filesystem":"ext4"}}}}"#,
                "\n",
                r#"{{"event":"stage","seconds":0.0,"stage":"plan"}}"#,
                "\n",
                r#"{{"event":"stage","seconds":1.0,"stage":"check"}}"#,
                "\n",
                r#"{{"event":"progress","seconds":9.0,"blocks":10,"blocks_total":10,"bytes":1000,"#,
                r#""bytes_total":1000,"memory_bytes":null}}"#,
                "\n",
                r#"{{"event":"end","seconds":10.0,"hash_serialized_3":"{}","exit_code":0}}"#,
                "\n"
            ),
            hash
        );
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let logs = [log("a.jsonl", "aa11"), log("b.jsonl", "aa11"), log("c.jsonl", "bb22")];
    let page = dir.path().join("page.html");
    assert_eq!(plot(&["-o"], &[&page, &logs[0], &logs[1]]).status.code(), Some(0));
    let html = fs::read_to_string(&page).unwrap();
    for fact in [
        "EPYC, 16 cores, 64 GiB, Linux 6.12, ext4",
        "Peregrine 9.8.7 (0123456789)",
        "16 threads, 2 GiB memory limit, assumevalid 00ff",
        "hash_serialized_3 aa11",
        "<p>✓ UTXO hash equal: aa11</p>",
        "plan 1 s, check 9 s",
    ] {
        assert!(html.contains(fact), "{fact}: {html}");
    }
    assert!(!html.contains("my dir"), "pages are made to be shown: {html}");
    fs::remove_file(&page).unwrap();
    assert_eq!(plot(&["-o"], &[&page, &logs[0], &logs[2]]).status.code(), Some(0));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("Their UTXO sets differ") && !html.contains("✓"), "{html}");
}

#[test]
fn no_file_is_overwritten() {
    let dir = TempDir::new().unwrap();
    let core = cores_log(dir.path(), "core.log", 20);
    let page = dir.path().join("page.html");
    fs::write(&page, "mine").unwrap();
    refused(&plot(&["-o"], &[&page, &core]), 5, &["choose another file"]);
    assert_eq!(fs::read_to_string(&page).unwrap(), "mine");
}

#[test]
fn logs_have_the_labels_that_the_command_line_gives() {
    let dir = TempDir::new().unwrap();
    let log = cores_log(dir.path(), "debug.log", 30);
    let page = dir.path().join("page.html");
    let labelled = PathBuf::from(format!("faster flush={}", log.display()));
    let output = plot(&["-o"], &[&page, &log, &labelled]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\ndebug: 30 points") && text.contains("\nfaster flush: 30 points"), "{text}");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("<h1>59 s instead of 59 s</h1>"), "{html}");
    assert!(html.contains("Bitcoin Core v31.0.0"), "{html}");
    assert!(html.contains("<p>✓ Last block equal: 00</p>"), "{html}");
}

/// A headline once said "19.9x as fast", of one run each, in which Core wrote the log of its databases.
#[test]
fn logs_of_databases_and_unequal_settings_are_named_below_the_headline() {
    let dir = TempDir::new().unwrap();
    let [plain, busy] = ["plain.log", "busy.log"].map(|name| cores_log(dir.path(), name, 20));
    let page = dir.path().join("page.html");
    let args = |size: u32| format!("2026-01-02T00:00:00Z Command-line arg: dbcache=\"{size}\"\n");
    for (log, size) in [(&plain, 450), (&busy, 4500)] {
        let text = fs::read_to_string(log).unwrap();
        let (version, rest) = text.split_once('\n').unwrap();
        let rest = match size {
            450 => rest.to_owned(),
            _ => {
                let begin = rest.find("2026-01-02T00:00:11").unwrap();
                let logged = "2026-01-02T00:00:10Z Committed 5 changed transaction outputs";
                format!("{}{logged} (out of 9)\n{}", &rest[..begin], &rest[begin..])
            }
        };
        fs::write(log, format!("{version}\n{}{rest}", args(size))).unwrap();
    }
    assert_eq!(plot(&["-o"], &[&page, &plain, &busy]).status.code(), Some(0));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("busy also logged what its databases did"), "{html}");
    assert!(!html.contains("plain also logged"), "{html}");
    assert!(html.contains("Settings differ: plain: ") && html.contains("; busy: "), "{html}");
}

#[test]
fn what_is_no_log_is_refused() {
    let dir = TempDir::new().unwrap();
    let (nothing, page) = (dir.path().join("nothing"), dir.path().join("page.html"));
    fs::write(&nothing, b"\xff\xfe{}\n{\"event\":\"progress\"}\nUpdateTip: new best=\n").unwrap();
    refused(&plot(&["-o"], &[&page, &nothing]), 4, &["no progress in it"]);
    assert_eq!(plot(&["-o"], &[&page, dir.path()]).status.code(), Some(5), "a folder");
    let core = cores_log(dir.path(), "core.log", 5);
    let output = plot(&["-o"], &[&[page.as_path()], &[core.as_path(); 7][..]].concat());
    assert_eq!(output.status.code(), Some(2), "there are six colours");
    assert!(!page.exists());
}

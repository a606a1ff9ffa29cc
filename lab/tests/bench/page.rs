//! What a browser makes of a page of `peregrine-bench plot`: nothing sticks out, all text is large enough and
//! has enough contrast, in both colour schemes. Skipped where no Chromium is installed.

use crate::prelude::*;
use std::fmt::Write;

const SCRIPT: &str = include_str!("page.js");

fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let is_there =
        |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
    let found = names.into_iter().find(is_there);
    if found.is_none() {
        testkit::data::skip("no Chromium is installed");
    }
    found
}

/// A log of Bitcoin Core with some activity of its databases.
fn cores_log(path: &Path, pace: u32) {
    let mut text = "2026-01-02T00:00:00Z Bitcoin Core version v31.0.0 (release build)\n\
        2026-01-02T00:00:00Z Command-line arg: datadir=\"a/folder/with/a/rather/long/name/for/a/phone\"\n\
        2026-01-02T00:00:00Z Command-line arg: dbcache=\"450\"\n"
        .to_owned();
    for height in 0..900 {
        let seconds = pace * height / 10 + 1;
        let stamp = format!("2026-01-02T{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60);
        let _ = writeln!(
            text,
            "{stamp} UpdateTip: new best=00ff height={height} tx={height} cache={}.5MiB(10txo)",
            height % 50
        );
        if height % 100 == 50 {
            let _ = writeln!(
                text,
                "{stamp} [coindb] Writing final batch of 15.00 MiB\n\
                 {stamp} [leveldb] Compacted 4@0 + 1@1 files => 2097152 bytes\n\
                 {stamp} [bench] write coins cache to disk (1 out of 1 coins) completed (850.00ms)"
            );
        }
    }
    fs::write(path, text).unwrap();
}

/// A log of Peregrine, of as many blocks.
fn our_log(path: &Path, pace: f64) {
    let hash = "5d6b3960b662ed844676eb4de106a452e5d8d734ae9d44eb45c51e27905401a0";
    let mut text =
        "{\"event\":\"start\",\"version\":\"1.0.0\",\"machine\":{\"cpu\":\"A CPU\",\"cores\":2}}\n\
        {\"event\":\"stage\",\"seconds\":0.0,\"stage\":\"plan\"}\n"
            .to_owned();
    let _ = writeln!(text, "{{\"event\":\"stage\",\"seconds\":{pace},\"stage\":\"check\"}}");
    for blocks in (10..=900).step_by(10) {
        let seconds = pace + pace * f64::from(blocks) / 100.0;
        let _ = writeln!(
            text,
            "{{\"event\":\"progress\",\"seconds\":{seconds},\"blocks\":{blocks},\"blocks_total\":900,\
             \"bytes\":{},\"bytes_total\":9000000,\"memory_bytes\":100000000}}",
            blocks * 10_000
        );
    }
    for (stage, share) in [("finish", 10.1), ("prove", 11.0), ("commit", 11.5)] {
        let _ = writeln!(text, "{{\"event\":\"stage\",\"seconds\":{},\"stage\":\"{stage}\"}}", pace * share);
    }
    let end = pace * 12.0;
    let _ = writeln!(
        text,
        "{{\"event\":\"end\",\"seconds\":{end},\"hash_serialized_3\":\"{hash}\",\"exit_code\":0}}"
    );
    fs::write(path, text).unwrap();
}

/// A page with everything that a page can have.
fn full_page(dir: &Path) -> String {
    let page = dir.join("page.html");
    cores_log(&dir.join("debug.log"), 100);
    cores_log(&dir.join("head.log"), 97);
    our_log(&dir.join("ours.jsonl"), 3.0);
    our_log(&dir.join("hints.jsonl"), 2.9);
    let files =
        ["debug.log", "head.log", "Peregrine=ours.jsonl", "Peregrine with SwiftSync hints=hints.jsonl"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine-bench"));
    let output = command.current_dir(dir).args(["plot", "-o", "page.html"]).args(files).output();
    assert!(output.as_ref().is_ok_and(|output| output.status.success()), "{output:?}");
    fs::read_to_string(page).unwrap()
}

/// What the script finds in a page that is as wide as `width`.
fn measured(browser: &str, dir: &Path, page: &str, width: u32, is_dark: bool) -> Value {
    let frame = page.replace('&', "&amp;").replace('"', "&quot;");
    let document = format!(
        "<!doctype html><meta charset=\"utf-8\"><iframe style=\"width:{width}px;height:900px;border:0\" \
         srcdoc=\"{frame}\"></iframe><pre></pre><script>{SCRIPT}</script>"
    );
    let file = dir.join(format!("frame-{width}-{is_dark}.html"));
    fs::write(&file, document).unwrap();
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"]);
    command.args(["--virtual-time-budget=5000", "--dump-dom"]);
    command.arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!is_dark)));
    command.arg(format!("--user-data-dir={}", dir.join("profile").display()));
    let output = command.arg(format!("file://{}", file.display())).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.split("<pre>").last().and_then(|text| text.split("</pre>").next()).unwrap_or_default();
    let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&found).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn nothing_sticks_out_and_all_text_can_be_read_on_phones_and_screens_light_and_dark() {
    let Some(browser) = browser() else { return };
    let dir = TempDir::new().unwrap();
    let page = full_page(dir.path());
    for (width, is_dark) in [(360, false), (360, true), (768, true), (1280, false)] {
        let found = measured(browser, dir.path(), &page, width, is_dark);
        let place = format!("{width} px, dark: {is_dark}: {found}");
        assert_eq!(found["isDark"], is_dark, "{place}");
        assert!(found["wide"].as_i64().unwrap() <= 0, "sticks out: {place}");
        assert!(found["texts"].as_u64().unwrap() > 70 && found["pictures"].as_u64().unwrap() > 25, "{place}");
        for what in ["faint", "small", "outside", "covered"] {
            assert_eq!(found[what].as_array().map(Vec::len), Some(0), "{what}: {place}");
        }
    }
    for (flaw, from, to) in [
        ("small", "@media (max-width: 44rem)", "@media (max-width: 1px)"),
        ("faint", "--faint: #57606f", "--faint: #aaaaaa"),
    ] {
        let found = measured(browser, dir.path(), &page.replace(from, to), 360, false);
        let texts = found[flaw].as_array().unwrap();
        assert!(!texts.is_empty(), "the script finds text that is too {flaw}: {found}");
    }
}

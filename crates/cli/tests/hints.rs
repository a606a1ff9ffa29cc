//! Hints and snapshots on the command line: what is made is told, what is wrong ends with its own code, and a
//! report says what was checked and what was trusted.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use common::{command, json};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};
use tempfile::TempDir;
use testkit::{Chain, ChainSpec, corrupt::flip_bit, datadir::Layout};

/// All but the last blocks are buried deep enough to be assumed valid.
fn chain() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    let spec = ChainSpec { blocks: Some(130), empty_tail: 2020, ..ChainSpec::new(27, 200_000) };
    CHAIN.get_or_init(|| Chain::generate(&spec))
}

/// A datadir and a place for files.
struct Desk {
    datadir: TempDir,
    files: TempDir,
}

impl Desk {
    fn new() -> Self {
        let (datadir, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let layout = Layout { file_size: 64 << 10, preallocate: false, ..Layout::new(27) };
        chain().write_datadir(datadir.path(), &layout).unwrap();
        Self { datadir, files }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// A command about the datadir.
    fn on(&self, words: &[&str]) -> Output {
        let words = [words, &["--chain", "regtest", "--progress", "none"]].concat();
        command(&words, self.datadir.path()).output().unwrap()
    }

    /// Makes hints of a height.
    fn hints(&self, height: &str, format: &str) -> PathBuf {
        let path = self.file(&format!("{format}-{height}"));
        let words = ["hints", "make", "--height", height, "--format", format, "-o", text(&path)];
        ok(self.on(&words));
        path
    }

    fn reindex(&self, more: &[&str]) -> Output {
        self.on(&[&["reindex"], more].concat())
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn peregrine(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_peregrine")).args(words).output().unwrap()
}

/// What it printed; it must have ended well.
fn ok(output: Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What it said of an error.
fn refused(output: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    words.iter().for_each(|word| assert!(said.contains(word), "no {word:?} in {said}"));
}

/// Indices of a chain's unspent outputs are as many as its coins.
fn coins() -> u64 {
    chain().model.stats().txouts
}

#[test]
fn hints_are_made_shown_converted_and_checked() {
    let desk = Desk::new();
    let ours = desk.hints("tip", "peregrine");
    let tip = chain().totals.height;
    let told = ok(peregrine(&["hints", "info", text(&ours)]));
    for line in [
        "format    peregrine".to_owned(),
        "chain     regtest".to_owned(),
        format!("block     {tip} ({})", chain().totals.hash),
        format!("unspent   {} of ", coins()),
    ] {
        assert!(told.contains(&line), "no {line:?} in {told}");
    }
    let info: Value =
        serde_json::from_str(&ok(peregrine(&["hints", "info", text(&ours), "--json"]))).unwrap();
    assert_eq!(
        (&info["format"], &info["height"], &info["hints"]),
        (&"peregrine".into(), &tip.into(), &coins().into())
    );
    assert_eq!((&info["chain"], info["sha256"].as_str().unwrap().len()), (&"regtest".into(), 64));
    for format in ["bip456", "bip456-lsb", "thestack", "swiftsync2140", "btcd", "bitmap"] {
        let made = desk.hints("tip", format);
        let converted = desk.file(&format!("{format}-converted"));
        let words =
            ["hints", "convert", text(&ours), text(&converted), "--format", format, "--chain", "regtest"];
        ok(command(&words, desk.datadir.path()).output().unwrap());
        assert!(std::fs::read(&made).unwrap() == std::fs::read(&converted).unwrap(), "{format}");
        // Detected, not told.
        let info = ok(peregrine(&["hints", "info", text(&made), "--json"]));
        assert_eq!(serde_json::from_str::<Value>(&info).unwrap()["format"], format);
        assert!(ok(desk.on(&["hints", "check", text(&made)])).ends_with("all hints are right\n"), "{format}");
    }
    let bare = desk.file("bare");
    let again = peregrine(&["hints", "convert", text(&ours), text(&ours), "--format", "bip456"]);
    refused(&again, 2, &["a file exists there already"]);
    let without = peregrine(&["hints", "convert", text(&ours), text(&bare), "--format", "thestack"]);
    refused(&without, 2, &["pass --datadir"]);
    assert!(!bare.exists());
    refused(&desk.on(&["hints", "make", "-o", text(&ours)]), 2, &["a file exists there already"]);
    refused(&desk.on(&["hints", "make", "--height", "9999", "-o", text(&bare)]), 2, &["9999"]);
    refused(&peregrine(&["hints", "make", "--height", "top"]), 2, &["tip"]);
    flip_bit(&ours, 200, 1).unwrap();
    refused(&peregrine(&["hints", "info", text(&ours)]), 4, &["the SHA-256 of the file differs"]);
}

/// Text and JSON say the same of what was checked and what was trusted.
#[test]
fn reports_say_what_was_checked_and_what_was_trusted() {
    let desk = Desk::new();
    let hints = desk.hints("130", "peregrine");
    let valid = chain().totals.before_tail.to_string();
    let hash = chain().model.stats().hash_hex();
    let with = ["--hints", text(&hints), "--assumevalid", &valid];
    for (aggregate, more) in [("sha256", vec![]), ("siphash128", vec!["--without-undo"]), ("muhash", vec![])]
    {
        let words = [&with[..], &["--aggregate", aggregate], &more].concat();
        let told = ok(desk.reindex(&words));
        assert!(told.contains(&hash) && told.contains(&format!("the sum ({aggregate}) is zero")), "{told}");
        assert_eq!(told.contains("\ntrusted   "), !more.is_empty(), "{told}");
        let report = json(&desk.reindex(&[&words[..], &["--json"]].concat()));
        assert_eq!(
            (&report["hash_serialized_3"], &report["matching"]),
            (&hash.as_str().into(), &"swiftsync".into())
        );
        let hints = &report["hints"];
        assert_eq!((&hints["height"], &hints["aggregate"]), (&130.into(), &aggregate.into()));
        assert_eq!(
            (&hints["with_undo"], hints["trusted"].is_null()),
            (&more.is_empty().into(), more.is_empty())
        );
    }
    let plain = json(&desk.reindex(&["--json", "--assumevalid", &valid]));
    assert!(plain["hints"].is_null() && plain["hash_serialized_3"] == *hash);
    // Nobody vouches for these blocks.
    let alone = desk.reindex(&["--hints", text(&hints), "--without-undo"]);
    refused(&alone, 2, &["scripts cannot be checked without undo data", "--assumevalid"]);
    refused(&desk.reindex(&["--without-undo"]), 2, &["--hints"]);
}

/// Exit code 6, and what to do; then it is done.
#[test]
fn wrong_hints_end_with_6_and_the_join_names_the_first() {
    let desk = Desk::new();
    // The hints of a lower block, in a format that does not say which: one more block is called empty.
    let hints = desk.file("wrong");
    let mut bytes = std::fs::read(desk.hints("129", "bip456")).unwrap();
    bytes[5..9].copy_from_slice(&130_u32.to_le_bytes());
    bytes.push(0);
    std::fs::write(&hints, bytes).unwrap();
    let before = testkit::corrupt::snapshot(&desk.datadir.path().join("regtest/blocks")).unwrap();
    let stopped = desk.reindex(&["--hints", text(&hints), "--json"]);
    refused(&stopped, 6, &["the hints, or the block or undo files, are wrong", "--on-hint-failure join"]);
    assert_eq!(json(&stopped)["error"]["kind"], "hints");
    assert!(!desk.datadir.path().join("regtest/chainstate").exists());
    let checked = desk.on(&["hints", "check", text(&hints)]);
    assert_eq!(checked.status.code(), Some(6));
    let told = String::from_utf8(checked.stdout).unwrap();
    assert!(told.contains("are wrong; the first: output "), "{told}");
    let checked = json(&desk.on(&["hints", "check", text(&hints), "--json"]));
    let first = checked["first_wrong"].as_str().unwrap();
    assert!(checked["wrong_blocks"].as_u64().unwrap() > 0 && told.contains(first), "{checked}");
    let words =
        ["reindex", "--chain", "regtest", "--hints", text(&hints), "--on-hint-failure", "join", "--json"];
    let joined =
        command(&[&words[..], &["--progress", "log"]].concat(), desk.datadir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&joined.stderr);
    assert!(said.contains(&format!("the first wrong hint: {first}")), "{said}");
    let report = json(&joined);
    assert_eq!((&report["matching"], report["hints"].is_null()), (&"parallel".into(), true));
    assert_eq!(report["hash_serialized_3"], chain().model.stats().hash_hex());
    assert!(
        testkit::corrupt::snapshot(&desk.datadir.path().join("regtest/blocks")).unwrap().len()
            >= before.len()
    );
}

#[test]
fn snapshots_are_made_shown_and_verified() {
    let desk = Desk::new();
    let path = desk.file("utxo.dat");
    let model = chain().model.stats();
    let made = json(&desk.on(&["snapshot", "make", "-o", text(&path), "--json"]));
    assert_eq!(made["hash_serialized_3"], model.hash_hex());
    assert_eq!((&made["coins"], &made["height"]), (&model.txouts.into(), &chain().totals.height.into()));
    assert_eq!(made["bytes"], std::fs::metadata(&path).unwrap().len());
    let told = ok(peregrine(&["snapshot", "info", text(&path)]));
    assert!(
        told.contains(&format!("coins              {}", model.txouts)) && told.contains("regtest"),
        "{told}"
    );
    assert!(told.contains("checked            only the first 51 bytes and the length"), "{told}");
    assert_eq!(json(&peregrine(&["snapshot", "info", text(&path), "--json"]))["coins_read"], false);
    let told = ok(peregrine(&["snapshot", "verify", text(&path)]));
    assert!(told.contains(&model.hash_hex()) && !told.contains("proof"), "{told}");
    assert!(told.contains("Bitcoin Core's source names none for this block"), "{told}");
    let datadir = ["--datadir", text(desk.datadir.path())];
    let verify =
        |more: &[&str]| peregrine(&[&["snapshot", "verify", text(&path)], &datadir[..], more].concat());
    for aggregate in ["sha256", "siphash128", "muhash"] {
        let verdict = json(&verify(&["--json", "--aggregate", aggregate]));
        assert_eq!(verdict["matches_blocks"], true, "{aggregate}");
        assert!(verdict.get("matches_core_assumeutxo_hash").is_none());
    }
    assert!(ok(verify(&[])).contains("proof              the coins are those that the blocks leave"));
    let low = desk.file("low.dat");
    ok(desk.on(&["snapshot", "make", "--height", "110", "-o", text(&low)]));
    // The coins of height 110, said to be those of the tip.
    let mut bytes = std::fs::read(&low).unwrap();
    bytes[11..43].copy_from_slice(&std::fs::read(&path).unwrap()[11..43]);
    std::fs::write(&low, bytes).unwrap();
    let wrong = peregrine(&[&["snapshot", "verify", text(&low)], &datadir[..]].concat());
    assert_eq!(wrong.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&wrong.stdout).contains("WRONG"), "{wrong:?}");
    std::fs::write(&low, b"utxo").unwrap();
    refused(&peregrine(&["snapshot", "info", text(&low)]), 4, &["at least 51 bytes"]);
    refused(&desk.on(&["snapshot", "make", "-o", text(&path)]), 2, &["a file exists there already"]);
}

#[test]
fn what_an_interrupted_run_has_left_is_named_and_forgotten_on_request() {
    let desk = Desk::new();
    for words in [["hints", "make"], ["snapshot", "make"]] {
        let path = desk.file(words[0]);
        let words = [&words, &["-o", text(&path)][..]].concat();
        let left = desk.file("peregrine-work");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("manifest"), b"of something else").unwrap();
        refused(&desk.on(&words), 4, &["peregrine-work/manifest", "--restart"]);
        assert!(!path.exists());
        ok(desk.on(&[&words, &["--restart", "--checkpoint-every", "5"][..]].concat()));
        assert!(path.exists() && !left.exists());
    }
}

//! Hints and snapshots on the command line: reports describe what was made, what was checked and what was
//! trusted; each kind of error has its exit code.

use crate::common;

use common::{command, json};
use indicatif::HumanCount;
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};
use tempfile::TempDir;
use testkit::{Chain, ChainSpec, corrupt::flip_bit, datadir::Layout};

/// A chain whose blocks, except the last ones, are buried deep enough to be assumed valid.
fn chain() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    let spec = ChainSpec { blocks: Some(130), empty_tail: 2020, ..ChainSpec::new(27, 200_000) };
    CHAIN.get_or_init(|| Chain::generate(&spec))
}

/// A datadir and a folder for other files.
struct Fixture {
    datadir: TempDir,
    files: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let (datadir, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let layout = Layout { file_size: 64 << 10, preallocate: false, ..Layout::new(27) };
        chain().write_datadir(datadir.path(), &layout).unwrap();
        Self { datadir, files }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Runs a command on the datadir.
    fn run(&self, args: &[&str]) -> Output {
        let args = [args, &["--chain", "regtest", "--progress", "none"]].concat();
        command(&args, self.datadir.path()).output().unwrap()
    }

    /// Makes hints for a height.
    fn hints(&self, height: &str, format: &str) -> PathBuf {
        let path = self.file(&format!("{format}-{height}"));
        let words = ["hints", "make", "--height", height, "--format", format, "-o", text(&path)];
        ok(self.run(&words));
        path
    }

    fn reindex(&self, more: &[&str]) -> Output {
        self.run(&[&["reindex"], more].concat())
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn peregrine(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_peregrine")).args(words).output().unwrap()
}

/// Returns what a successful command printed.
fn ok(output: Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Checks the exit code of a command, and that its error contains `words`.
fn refused(output: &Output, code: i32, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    words.iter().for_each(|word| assert!(stderr.contains(word), "no {word:?} in {stderr}"));
}

/// Returns the number of coins of the chain, which is also the number of hints.
fn coins() -> u64 {
    chain().model.stats().txouts
}

/// The same hints from the coins of a snapshot, and without undo files.
#[test]
fn hints_are_made_from_a_snapshot_and_without_undo_files() {
    let fixture = Fixture::new();
    let expected = std::fs::read(fixture.hints("tip", "peregrine")).unwrap();
    let utxo = fixture.file("utxo.dat");
    for file in std::fs::read_dir(fixture.datadir.path().join("regtest/blocks")).unwrap() {
        let path = file.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("rev") {
            std::fs::remove_file(path).unwrap();
        }
    }
    ok(fixture.run(&["snapshot", "make", "-o", text(&utxo)]));
    let made = fixture.file("made");
    for source in [&["--snapshot", text(&utxo)][..], &[]] {
        ok(fixture.run(&[&["hints", "make", "-o", text(&made)], source].concat()));
        assert!(std::fs::read(&made).unwrap() == expected, "{source:?}");
        std::fs::remove_file(&made).unwrap();
    }
    let low = ["hints", "make", "-o", text(&made), "--snapshot", text(&utxo), "--height", "7"];
    refused(&fixture.run(&low), 2, &["its coins are those of height", "not 7"]);
    refused(&fixture.run(&["hints", "make", "-o", text(&made), "--chainstate"]), 4, &["chainstate"]);
}

#[test]
fn hints_can_be_made_inspected_converted_and_checked() {
    let fixture = Fixture::new();
    let native = fixture.hints("tip", "peregrine");
    let tip = chain().totals.height;
    let text_report = ok(peregrine(&["hints", "info", text(&native)]));
    for line in [
        "format    peregrine".to_owned(),
        "chain     regtest".to_owned(),
        format!("block     {tip} ({})", chain().totals.hash),
        format!("unspent   {} of ", HumanCount(coins())),
    ] {
        assert!(text_report.contains(&line), "no {line:?} in {text_report}");
    }
    let info: Value =
        serde_json::from_str(&ok(peregrine(&["hints", "info", text(&native), "--json"]))).unwrap();
    assert_eq!(
        (&info["format"], &info["height"], &info["hints"]),
        (&"peregrine".into(), &tip.into(), &coins().into())
    );
    assert_eq!((&info["chain"], info["sha256"].as_str().unwrap().len()), (&"regtest".into(), 64));
    for format in ["bip456", "bip456-lsb", "thestack", "swiftsync2140", "btcd", "bitmap"] {
        let made = fixture.hints("tip", format);
        let converted = fixture.file(&format!("{format}-converted"));
        let words = [
            "hints",
            "convert",
            text(&native),
            "-o",
            text(&converted),
            "--format",
            format,
            "--chain",
            "regtest",
        ];
        ok(command(&words, fixture.datadir.path()).output().unwrap());
        assert!(std::fs::read(&made).unwrap() == std::fs::read(&converted).unwrap(), "{format}");
        // The format is detected.
        let info = ok(peregrine(&["hints", "info", text(&made), "--json"]));
        assert_eq!(serde_json::from_str::<Value>(&info).unwrap()["format"], format);
        assert!(
            ok(fixture.run(&["hints", "check", text(&made)])).ends_with("all hints are correct\n"),
            "{format}"
        );
    }
    let bare = fixture.file("bare");
    let again = peregrine(&["hints", "convert", text(&native), "-o", text(&native), "--format", "bip456"]);
    refused(&again, 2, &["a file exists there already"]);
    let without = peregrine(&["hints", "convert", text(&native), "-o", text(&bare), "--format", "thestack"]);
    refused(&without, 2, &["pass --datadir"]);
    assert!(!bare.exists());
    refused(&fixture.run(&["hints", "make", "-o", text(&native)]), 2, &["a file exists there already"]);
    refused(&fixture.run(&["hints", "make", "--height", "9999", "-o", text(&bare)]), 2, &["9999"]);
    refused(&peregrine(&["hints", "make", "--height", "top"]), 2, &["tip"]);
    flip_bit(&native, 200, 1).unwrap();
    refused(&peregrine(&["hints", "info", text(&native)]), 4, &["the SHA-256 of the file differs"]);
}

/// Text and JSON agree.
#[test]
fn reports_state_what_was_checked_and_what_was_trusted() {
    let fixture = Fixture::new();
    let hints = fixture.hints("130", "peregrine");
    let valid = chain().totals.before_tail.to_string();
    let hash = chain().model.stats().hash_hex();
    let with = ["--hints", text(&hints), "--assumevalid", &valid];
    for (aggregate, more) in [("sha256", vec![]), ("siphash128", vec!["--without-undo"]), ("muhash", vec![])]
    {
        let words = [&with[..], &["--aggregate", aggregate], &more].concat();
        let text_report = ok(fixture.reindex(&words));
        assert!(
            text_report.contains(&hash) && text_report.contains(&format!("the sum ({aggregate}) is zero")),
            "{text_report}"
        );
        assert_eq!(text_report.contains("\ntrusted   "), !more.is_empty(), "{text_report}");
        let report = json(&fixture.reindex(&[&words[..], &["--json"]].concat()));
        assert_eq!(
            (&report["hash_serialized_3"], &report["matching"]),
            (&hash.as_str().into(), &"swiftsync".into())
        );
        let hints = &report["hints"];
        assert_eq!((&hints["height"], &hints["aggregate"]), (&130.into(), &aggregate.into()));
        assert_eq!(
            (&hints["with_undo"], hints["trusted"] == serde_json::json!([])),
            (&more.is_empty().into(), more.is_empty())
        );
    }
    let plain = json(&fixture.reindex(&["--json", "--assumevalid", &valid]));
    assert!(plain["hints"].is_null() && plain["hash_serialized_3"] == *hash);
    // Without --assumevalid, nothing vouches for the scripts of these blocks.
    let alone = fixture.reindex(&["--hints", text(&hints), "--without-undo"]);
    refused(&alone, 2, &["scripts cannot be checked without undo data", "--assumevalid"]);
    refused(&fixture.reindex(&["--without-undo"]), 2, &["--hints"]);
    let index = ["--without-undo", "--index", "blockfilterindex"];
    let index = fixture.reindex(&[&with[..], &index].concat());
    refused(&index, 2, &["blockfilterindex and coinstatsindex are made from undo data"]);
}

/// The error also names the flag that helps, and with it the rebuild succeeds.
#[test]
fn wrong_hints_exit_with_6_and_parallel_matching_names_the_first() {
    let fixture = Fixture::new();
    // The hints of a lower block, in a format that does not name the block, with one more block added as
    // empty.
    let hints = fixture.file("wrong");
    let mut bytes = std::fs::read(fixture.hints("129", "bip456")).unwrap();
    bytes[5..9].copy_from_slice(&130_u32.to_le_bytes());
    bytes.push(0);
    std::fs::write(&hints, bytes).unwrap();
    let before = testkit::corrupt::snapshot(&fixture.datadir.path().join("regtest/blocks")).unwrap();
    let stopped = fixture.reindex(&["--hints", text(&hints), "--json"]);
    refused(&stopped, 6, &["the hints, or the block or undo files, are wrong", "--on-hint-failure join"]);
    assert_eq!(json(&stopped)["error"]["kind"], "hints");
    assert!(!fixture.datadir.path().join("regtest/chainstate").exists());
    let checked = fixture.run(&["hints", "check", text(&hints)]);
    assert_eq!(checked.status.code(), Some(6));
    let text_report = String::from_utf8(checked.stdout).unwrap();
    assert!(text_report.contains("are wrong; the first: output "), "{text_report}");
    let checked = json(&fixture.run(&["hints", "check", text(&hints), "--json"]));
    let wrong = &checked["first_wrong"];
    let place = ["index", "height", "block_hash"].map(|name| wrong[name].to_string().replace('"', ""));
    let first = &format!("output {} of the block at height {} ({})", place[0], place[1], place[2]);
    assert!(checked["wrong_blocks"].as_u64().unwrap() > 0 && text_report.contains(first), "{checked}");
    let words =
        ["reindex", "--chain", "regtest", "--hints", text(&hints), "--on-hint-failure", "join", "--json"];
    let joined =
        command(&[&words[..], &["--progress", "lines"]].concat(), fixture.datadir.path()).output().unwrap();
    let stderr = String::from_utf8_lossy(&joined.stderr);
    assert!(stderr.contains(&format!("the first wrong hint: {first}")), "{stderr}");
    let report = json(&joined);
    assert_eq!((&report["matching"], report["hints"].is_null()), (&"parallel".into(), true));
    assert_eq!(report["hash_serialized_3"], chain().model.stats().hash_hex());
    assert!(
        testkit::corrupt::snapshot(&fixture.datadir.path().join("regtest/blocks")).unwrap().len()
            >= before.len()
    );
}

#[test]
fn snapshots_can_be_made_inspected_and_verified() {
    let fixture = Fixture::new();
    let path = fixture.file("utxo.dat");
    let model = chain().model.stats();
    let made = json(&fixture.run(&["snapshot", "make", "-o", text(&path), "--json"]));
    assert_eq!(made["hash_serialized_3"], model.hash_hex());
    assert_eq!((&made["coins"], &made["height"]), (&model.txouts.into(), &chain().totals.height.into()));
    assert_eq!(made["bytes"], std::fs::metadata(&path).unwrap().len());
    let text_report = ok(peregrine(&["snapshot", "info", text(&path)]));
    assert!(
        text_report.contains(&format!("coins              {}", HumanCount(model.txouts)))
            && text_report.contains("regtest"),
        "{text_report}"
    );
    assert!(
        text_report.contains("checked            only the metadata and the file length"),
        "{text_report}"
    );
    assert_eq!(json(&peregrine(&["snapshot", "info", text(&path), "--json"]))["coins_read"], false);
    let text_report = ok(peregrine(&["snapshot", "verify", text(&path)]));
    assert!(text_report.contains(&model.hash_hex()) && !text_report.contains("proof"), "{text_report}");
    assert!(text_report.contains("Bitcoin Core's source has no hash for this block"), "{text_report}");
    let datadir = ["--datadir", text(fixture.datadir.path())];
    let verify =
        |more: &[&str]| peregrine(&[&["snapshot", "verify", text(&path)], &datadir[..], more].concat());
    for aggregate in ["sha256", "siphash128", "muhash"] {
        let verdict = json(&verify(&["--json", "--aggregate", aggregate]));
        assert_eq!(verdict["matches_blocks"], true, "{aggregate}");
        assert!(verdict["matches_core_assumeutxo_hash"].is_null());
    }
    assert!(ok(verify(&[])).contains("proof              the coins match the blocks"));
    let low = fixture.file("low.dat");
    ok(fixture.run(&["snapshot", "make", "--height", "110", "-o", text(&low)]));
    // The coins of height 110, with metadata that names the tip.
    let mut bytes = std::fs::read(&low).unwrap();
    bytes[11..43].copy_from_slice(&std::fs::read(&path).unwrap()[11..43]);
    std::fs::write(&low, bytes).unwrap();
    let wrong = peregrine(&[&["snapshot", "verify", text(&low)], &datadir[..]].concat());
    assert_eq!(wrong.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&wrong.stdout).contains("WRONG"), "{wrong:?}");
    std::fs::write(&low, b"utxo").unwrap();
    refused(&peregrine(&["snapshot", "info", text(&low)]), 4, &["at least 51 bytes"]);
    refused(&fixture.run(&["snapshot", "make", "-o", text(&path)]), 2, &["a file exists there already"]);
    let stored = ["snapshot", "make", "-o", "new.dat", "--chainstate"];
    refused(&fixture.run(&stored), 4, &["there is no chainstate"]);
    refused(&fixture.run(&[&stored[..], &["--height", "1"]].concat()), 2, &["cannot be used with"]);
}

#[test]
fn unreadable_checkpoint_is_named_and_ignored_with_restart() {
    let fixture = Fixture::new();
    for words in [["hints", "make"], ["snapshot", "make"]] {
        let path = fixture.file(words[0]);
        let words = [&words, &["-o", text(&path)][..]].concat();
        let left = fixture.file("peregrine-work");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("manifest"), b"of something else").unwrap();
        refused(&fixture.run(&words), 4, &["peregrine-work/manifest", "--restart"]);
        assert!(!path.exists());
        ok(fixture.run(&[&words, &["--restart", "--checkpoint-every", "5"][..]].concat()));
        assert!(path.exists() && !left.exists());
    }
}

//! `peregrine-bench reindex` as its users meet it, on a small generated chain.

use crate::prelude::*;
use std::sync::OnceLock;

fn chain() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    CHAIN.get_or_init(|| Chain::generate(&ChainSpec { blocks: Some(120), ..ChainSpec::new(29, 100_000) }))
}

/// A datadir and a folder to work in.
fn places() -> (TempDir, TempDir) {
    let dir = TempDir::new().unwrap();
    let layout = Layout { file_size: 64 << 10, preallocate: false, ..Layout::new(29) };
    chain().write_datadir(dir.path(), &layout).unwrap();
    (dir, TempDir::new().unwrap())
}

fn bench((datadir, work): (&Path, &Path), more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine-bench"));
    command.args(["reindex", "--busy", "--chain", "regtest", "--datadir"]).arg(datadir);
    command.arg("--work-dir").arg(work).args(more).output().unwrap()
}

/// A shell command that rebuilds with the program.
fn rebuild_by(peregrine: &Path) -> String {
    format!("'{}' reindex --chain regtest --progress none --datadir {{datadir}}", peregrine.display())
}

#[test]
fn two_programs_run_in_turns_and_their_answers_are_compared() {
    let Some(program) = peregrine() else { return };
    let (dir, work) = places();
    let before = unlocked_files(dir.path());
    let csv = work.path().join("raw.csv");
    let more = ["--runs", "2", "--json", "--args", "--threads 1", "--csv", csv.to_str().unwrap()];
    let output =
        bench((dir.path(), work.path()), &[&more[..], &["--against", &rebuild_by(&program)]].concat());
    let report = done(&output);
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("needs about "), "room is told first");
    let hash = chain().model.stats().hash_hex();
    let turns: Vec<_> = report["rows"].as_array().unwrap().iter().map(|row| &row["program"]).collect();
    assert_eq!(turns, ["peregrine", "against", "peregrine", "against"]);
    for row in report["rows"].as_array().unwrap() {
        assert_eq!((&row["utxo_hash"], &row["exit"]), (&Value::from(hash.clone()), &Value::from(0)), "{row}");
        assert!(row["wall_s"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["peak_rss_kib"].as_u64().unwrap() > 1000, "{row}");
        assert_eq!(row["cache"], "warm");
    }
    assert_eq!(report["rows"][0]["threads"], 1);
    assert!(report["machine"]["cores"].as_u64().unwrap() > 0 && report["load"][1].is_number(), "{report}");
    assert_eq!(report["rows"][0]["bytes"], chain().totals.bytes);
    let ratio = &report["programs"][1]["ratio"];
    let [low, middle, high] = ["low", "ratio", "high"].map(|name| ratio[name].as_f64().unwrap());
    assert!(low <= middle && middle <= high, "{ratio}");
    let text = fs::read_to_string(&csv).unwrap();
    assert_eq!(text.lines().count(), 5);
    let columns = |line: &str| line.split(',').count();
    assert!(text.lines().all(|line| columns(line) == columns(text.lines().next().unwrap())), "{text}");
    assert!(unlocked_files(dir.path()) == before, "the datadir is only read");
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 1, "nothing stays but the CSV");
}

#[test]
fn commands_with_names_are_compared_without_peregrine() {
    let Some(program) = peregrine() else { return };
    let (dir, work) = places();
    let rebuild = rebuild_by(&program) + " --json --stop-at-height {height}";
    let against = [format!("base={rebuild}"), format!("head=test {{run}} -le 2 && {rebuild}")];
    let prepared = work.path().join("prepared");
    let prepare = format!("test -d {{datadir}} && echo {{run}} {{height}} >>'{}'", prepared.display());
    let more = ["--runs", "2", "--json", "--no-peregrine"];
    let more = [&more[..], &["--prepare", &prepare]].concat();
    let more = [&more[..], &["--against", &against[0], "--against", &against[1]]].concat();
    let report = done(&bench((dir.path(), work.path()), &more));
    let turns: Vec<_> = report["rows"].as_array().unwrap().iter().map(|row| &row["program"]).collect();
    assert_eq!(turns, ["base", "head", "base", "head"]);
    let hash = chain().model.stats().hash_hex();
    assert!(report["rows"].as_array().unwrap().iter().all(|row| row["utxo_hash"] == *hash), "{report}");
    assert!(report["programs"][0]["ratio"].is_null(), "{report}");
    assert!(report["programs"][1]["ratio"]["ratio"].is_number(), "{report}");
    let height = chain().tip().height;
    let expected: String = [1, 1, 2, 2].map(|run| format!("{run} {height}\n")).concat();
    assert_eq!(fs::read_to_string(&prepared).unwrap(), expected, "before each run of a command");
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 1, "nothing stays but what the command prepared");
}

#[test]
fn a_run_that_fails_ends_the_benchmark_and_is_shown() {
    let Some(program) = peregrine() else { return };
    let (dir, work) = places();
    let against = "echo what went wrong >&2; ls {datadir}; exit 7";
    let fails = |more: &[&str], words: &[&str]| refused(&bench((dir.path(), work.path()), more), 5, words);
    let words = ["what went wrong", "exit status: 7", "run 1 of echo failed", "regtest"];
    fails(&["--runs", "2", "--against", against], &words);
    let prepare =
        ["--runs", "1", "--prepare", "echo not prepared >&2; exit 3", "--against", &rebuild_by(&program)];
    fails(&prepare, &["not prepared"]);
    let stop = ["--runs", "1", "--args", "--stop-at-height 60", "--against", &rebuild_by(&program)];
    fails(&stop, &["the answers differ"]);
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0, "nothing stays");
}

#[test]
fn cold_runs_say_what_is_still_cached() {
    let Some(_) = peregrine() else { return };
    let (dir, work) = places();
    let output = bench((dir.path(), work.path()), &["--runs", "1", "--cold", "--json"]);
    let (report, stderr) = (done(&output), String::from_utf8_lossy(&output.stderr));
    let cached = report["rows"][0]["cached_percent"].as_f64();
    let surely = cached.is_some_and(|percent| percent < 1.0);
    assert_eq!(stderr.contains("not surely cold"), !surely, "{cached:?}: {stderr}");
    assert!(report["programs"][0]["ratio"].is_null() && report["cache"] == "cold");
    let text = bench((dir.path(), work.path()), &["--runs", "1"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("time, s") && text.contains("fewer than 5 runs"), "{text}");
}

#[test]
fn nonsense_is_refused_before_anything_runs() {
    let (dir, work) = places();
    let csv = work.path().join("raw.csv");
    fs::write(&csv, "measured before").unwrap();
    let cases: [(&[&str], i32, &str); 5] = [
        (&["--csv", csv.to_str().unwrap()], 5, "choose another file"),
        (&["--against", "true"], 2, "{datadir}"),
        (&["--no-peregrine"], 2, "--against"),
        (&["--against", "a=x {datadir}", "--against", "a=y {datadir}"], 2, "two commands are called a"),
        (&["--runs", "0"], 2, "--runs"),
    ];
    for (more, code, said) in cases {
        refused(&bench((dir.path(), work.path()), more), code, &[said]);
    }
    assert_eq!(fs::read_to_string(&csv).unwrap(), "measured before");
    let output = bench((work.path(), work.path()), &[]);
    assert_eq!(output.status.code(), Some(5), "no blocks: {output:?}");
}

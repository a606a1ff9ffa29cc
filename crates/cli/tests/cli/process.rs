//! The program as users meet it: its exit code, report, error object and messages, from a real process.

use crate::common;

use common::{Running, command, json};
use disk::{
    datadir::Datadir,
    index::{BlockStatus, IndexEntry, IndexRows},
};
use engine::{Height, Network};
use rustix::{
    fs::{FlockOperation, fcntl_lock},
    process::Signal,
};
use serde_json::Value;
use std::{
    fs::{File, OpenOptions},
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use testkit::{
    Chain, ChainSpec, GeneratedBlock,
    corrupt::{flip_bit, snapshot},
    datadir::Layout,
    mutation::{base_chain, mutations},
    peer::{Fault, ScriptedPeer, ServedChain},
};
use vfs::RealDisk;

fn chain() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    CHAIN.get_or_init(|| Chain::generate(&ChainSpec { blocks: Some(130), ..ChainSpec::new(17, 200_000) }))
}

fn write_datadir(chain: &Chain) -> TempDir {
    let dir = TempDir::new().unwrap();
    let layout = Layout { file_size: 64 << 10, preallocate: false, ..Layout::new(17) };
    chain.write_datadir(dir.path(), &layout).unwrap();
    dir
}

fn reindex(datadir: &Path, more: &[&str]) -> Output {
    command(&[&["reindex", "--chain", "regtest", "--json"], more].concat(), datadir).output().unwrap()
}

/// Reads all files below `dir`, except the lock files.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let all = snapshot(dir).unwrap().into_iter();
    all.filter(|(path, _)| !path.ends_with(".lock") && !path.ends_with("LOCK")).collect()
}

/// Checks that `reindex` ends with that exit code, reports the same error on stderr and as JSON, and changes
/// no file.
fn refused(datadir: &Path, more: &[&str], code: i32, kind: &str) -> Value {
    let before = files(datadir);
    let output = reindex(datadir, more);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let error = json(&output)["error"].clone();
    assert_eq!(error["kind"], kind, "{error}");
    let detail = error["detail"].as_str().unwrap();
    assert!(stderr.contains("error") && stderr.contains(detail), "{stderr}");
    assert!(files(datadir) == before, "the datadir was touched: {stderr}");
    error
}

/// The coins of each block behind their length, and nothing else; the other errors are those of reading.
#[test]
fn undo_data_is_exported_once_and_in_frames() {
    let dir = write_datadir(chain());
    let coins = dir.path().join("coins");
    let output = coins.display().to_string();
    let export = |more: &[&str]| {
        let words = ["undo", "export", "--chain", "regtest", "--json", "--output", &output];
        command(&[&words, more].concat(), dir.path()).output().unwrap()
    };
    let report = json(&export(&["--from-height", "3", "--to-height", "60"]));
    assert_eq!((&report["from_height"], &report["to_height"]), (&3.into(), &60.into()), "{report}");
    let bytes = std::fs::read(&coins).unwrap();
    assert_eq!(report["bytes"], bytes.len(), "{report}");
    let (mut rest, mut hashes) = (&bytes[..], Vec::new());
    while let Some((len, after)) = rest.split_first_chunk() {
        hashes.push(after[..32].to_vec());
        rest = &after[u32::from_le_bytes(*len) as usize..];
    }
    let expected = chain().main().skip(3).take(58).map(|block| block.hash.0.to_vec());
    assert_eq!((rest.len(), hashes), (0, expected.collect()));
    let again = export(&[]);
    assert_eq!((again.status.code(), std::fs::read(&coins).unwrap()), (Some(2), bytes), "{again:?}");
    std::fs::remove_file(&coins).unwrap();
    let text = export(&["--to-height", "999"]);
    assert_eq!((text.status.code(), coins.exists()), (Some(2), false), "{text:?}");
}

#[test]
fn report_describes_the_rebuild() {
    let dir = write_datadir(chain());
    let output = reindex(dir.path(), &["--threads", "2"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = json(&output);
    let (totals, model) = (&chain().totals, chain().model.stats());
    assert_eq!((&report["schema"], &report["command"]), (&1.into(), &"reindex".into()));
    assert_eq!((&report["chain"], &report["exit_code"]), (&"regtest".into(), &0.into()));
    assert_eq!(report["height"], totals.height);
    assert_eq!(report["block_hash"], totals.hash.to_string());
    assert_eq!(report["blocks"], totals.blocks);
    assert_eq!(report["transactions"], totals.txs);
    assert_eq!(report["inputs"], totals.inputs);
    assert_eq!(report["outputs_created"], totals.outputs);
    assert_eq!(report["coins"], model.txouts);
    assert_eq!(report["total_amount_sat"], model.total_amount);
    assert_eq!(report["hash_serialized_3"], model.hash_hex());
    assert_eq!(report["threads"], 2);
    assert_eq!(report["block_bytes"], totals.bytes);
    assert_eq!(report["resumed_blocks"], 0);
    for field in ["scripts", "matching", "seconds", "peak_memory_bytes", "memory_budget_bytes"] {
        assert!(!report[field].is_null(), "{field}");
    }
    let stats = command(&["utxo", "stats", "--chain", "regtest", "--json"], dir.path()).output().unwrap();
    assert_eq!(stats.status.code(), Some(0));
    assert_eq!(json(&stats)["hash_serialized_3"], model.hash_hex());
    assert_eq!(json(&stats)["height"], totals.height);
    let text =
        command(&["reindex", "--chain", "regtest", "--progress", "none"], dir.path()).output().unwrap();
    assert!(text.stderr.is_empty(), "nothing but the report was asked for");
    assert!(String::from_utf8_lossy(&text.stdout).contains(&model.hash_hex()));
}

#[test]
fn output_datadir_can_be_inspected() {
    let (dir, output) = (write_datadir(chain()), TempDir::new().unwrap());
    let before = files(dir.path());
    let target = output.path().join("new");
    let done = reindex(dir.path(), &["--output", target.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(files(dir.path()) == before);
    let stats = command(&["utxo", "stats", "--chain", "regtest", "--json"], &target).output().unwrap();
    assert_eq!(json(&stats)["hash_serialized_3"], chain().model.stats().hash_hex());
}

/// Kernels whose instructions this machine lacks are refused by name.
#[test]
fn every_sha256_kernel_gives_the_same_chainstate() {
    let dir = write_datadir(chain());
    let mut ran = 0;
    for kernel in ["portable", "avx2", "shani", "avx512", "neon", "armsha"] {
        let mut command = command(&["reindex", "--chain", "regtest", "--json"], dir.path());
        let output = command.env("PEREGRINE_SHA256", kernel).output().unwrap();
        let report = json(&output);
        match output.status.code() {
            Some(0) => {
                assert_eq!(report["sha256"], kernel);
                let share = report["sha256_limit"]["share"].as_f64().unwrap();
                assert!(0.0 < share && share < 1.0, "{share}");
                assert_eq!(report["hash_serialized_3"], chain().model.stats().hash_hex(), "{kernel}");
                ran += 1;
            }
            Some(2) => {
                let detail = report["error"]["detail"].as_str().unwrap();
                assert!(detail.contains(kernel) && detail.contains("use one of"), "{detail}");
                println!("this machine cannot run {kernel}");
            }
            code => panic!("{kernel}: {code:?} {report}"),
        }
    }
    assert!(ran > 0, "portable runs everywhere");
}

#[test]
fn usage_errors_exit_with_2() {
    let dir = write_datadir(chain());
    let error = refused(dir.path(), &["--stop-at-height", "9999"], 2, "usage");
    let detail = error["detail"].as_str().unwrap();
    let help = error["help"][0].as_str().unwrap();
    assert!(detail.contains("height 9999 is above") && help.starts_with("pass --stop-at-height "), "{error}");
    assert_eq!(error["remedies"], serde_json::json!(["stop-at-height"]));
    let unknown = command(&["reindex", "--chain", "bitcoin"], dir.path()).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    refused(
        dir.path(),
        &["--output", dir.path().join("o").to_str().unwrap(), "--stop-at-height", "9999"],
        2,
        "usage",
    );
}

#[test]
fn consensus_violation_exits_with_3() {
    let mutation = mutations().find(|mutation| mutation.core == Some("bad-cb-amount")).unwrap();
    let mutated = mutation.apply(&base_chain(9));
    let dir = write_datadir(&mutated.chain);
    let error = refused(dir.path(), &[], 3, "consensus");
    assert_eq!(error["core"], "bad-cb-amount");
    assert_eq!(error["height"], mutated.block.height);
    assert_eq!(error["block_hash"], mutated.block.hash.to_string());
    assert!(error["rule"].is_string() && error["file"].is_string() && error["offset"].is_u64(), "{error}");
}

#[test]
fn damaged_files_exit_with_4() {
    let dir = write_datadir(chain());
    let path = dir.path().join("regtest/blocks/rev00001.dat");
    flip_bit(&path, 60, 3).unwrap();
    let error = refused(dir.path(), &["--undo", "trust"], 4, "damaged");
    assert_eq!(error["file"], path.to_str().unwrap());
    assert!(error["offset"].is_u64() && error["height"].is_u64() && error["core"].is_null(), "{error}");
    let empty = TempDir::new().unwrap();
    refused(empty.path(), &[], 4, "missing");
    let missing = empty.path().join("none");
    let output = reindex(&missing, &[]);
    assert_eq!(output.status.code(), Some(4));
    assert!(json(&output)["error"]["detail"].as_str().unwrap().contains("no such directory"));
}

#[test]
fn datadir_in_use_exits_with_5() {
    let dir = write_datadir(chain());
    for name in [".lock", "blocks/.lock", "blocks/index/LOCK"] {
        let path = dir.path().join("regtest").join(name);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        // The lock that bitcoind takes. It excludes other processes, such as the one that is started here.
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let output = TempDir::new().unwrap();
        for more in [vec![], vec!["--output", output.path().to_str().unwrap()]] {
            let error = locked(dir.path(), &more);
            assert!(error.contains(name) && error.contains("stop bitcoind"), "{error}");
        }
        let stats = command(&["utxo", "stats", "--chain", "regtest"], dir.path()).output().unwrap();
        assert_eq!(stats.status.code(), Some(5), "{stats:?}");
        drop(file);
    }
    assert_eq!(reindex(dir.path(), &[]).status.code(), Some(0));
}

/// Regression: the path of the current directory was empty, so that it could not be synced.
#[test]
fn a_result_in_the_current_directory_can_have_a_checkpoint() {
    let dir = write_datadir(chain());
    let args = ["snapshot", "make", "--chain", "regtest", "--output", "utxo.dat", "--checkpoint-every", "0"];
    let output = command(&args, dir.path()).current_dir(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(dir.path().join("utxo.dat").exists());
}

/// Returns the error of a run that finds a lock held by this process. Does not compare files: closing a lock
/// file that was read would release the lock.
fn locked(datadir: &Path, more: &[&str]) -> String {
    let output = reindex(datadir, more);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let error = json(&output)["error"].clone();
    assert_eq!(error["kind"], "environment");
    [&error["detail"], &error["help"]].map(ToString::to_string).join("; ")
}

#[test]
fn output_below_a_file_exits_with_5() {
    let dir = write_datadir(chain());
    std::fs::write(dir.path().join("file"), "").unwrap();
    let below = dir.path().join("file/deeper");
    let error = refused(dir.path(), &["--output", below.to_str().unwrap()], 5, "environment");
    assert!(error["help"].to_string().contains("--output"), "{error}");
    // Among block files, it is refused before it is tried.
    let below = dir.path().join("regtest/blocks/new");
    let error = refused(dir.path(), &["--output", below.to_str().unwrap()], 2, "usage");
    assert!(error["detail"].as_str().unwrap().contains("which holds other data"), "{error}");
}

/// Interrupts the run in stage plan, and again in stage check, whose scripts take seconds, so that a busy
/// machine is not too late. The checkpoint goes to a folder outside the datadir.
#[test]
fn a_signal_exits_with_130_and_changes_nothing() {
    let dir = write_datadir(&Chain::generate(&ChainSpec::new(18, 12_000_000)));
    let before = files(dir.path());
    for (line, signal) in [("plan", Signal::INT), ("check", Signal::HUP)] {
        let work = TempDir::new().unwrap();
        let work_dir = work.path().to_str().unwrap();
        let mut running = start(dir.path(), &["--threads", "1", "--work-dir", work_dir]);
        assert!(running.wait_for_line(line), "no line {line}");
        running.signal(signal);
        let (output, stderr) = running.wait();
        assert_eq!(output.status.code(), Some(130), "{stderr}");
        assert_eq!(json(&output)["error"]["kind"], "interrupted");
        assert!(stderr.contains("the datadir is unchanged"), "{stderr}");
        // Only a run with a checkpoint can be resumed.
        if work.path().join("peregrine-work/manifest").exists() {
            std::fs::remove_file(dir.path().join("regtest/peregrine-command")).unwrap();
        }
        assert!(files(dir.path()) == before, "interrupted at {line}");
    }
}

/// Returns a datadir that keeps a process busy for some tenths of a second, and the arguments that make it
/// skip the scripts, which are unsigned.
fn long_work() -> (TempDir, [String; 2]) {
    let spec = ChainSpec { signed: false, empty_tail: 2100, ..ChainSpec::new(18, 12_000_000) };
    let chain = Chain::generate(&spec);
    (write_datadir(&chain), ["--assumevalid".to_owned(), chain.totals.before_tail.to_string()])
}

fn start(datadir: &Path, more: &[&str]) -> Running {
    let words = ["reindex", "--chain", "regtest", "--json", "--progress", "lines"];
    Running::start(command(&[&words, more].concat(), datadir))
}

/// Starts a run and pauses it (SIGSTOP) as soon as it prints `line`: it holds all its locks.
fn start_and_stop(datadir: &Path, more: &[&str], line: &str) -> Running {
    let mut running = start(datadir, more);
    assert!(running.wait_for_line(line), "no line {line}");
    running.signal(Signal::STOP);
    running
}

/// Continues a paused run, waits for its end and returns its report.
fn resume(running: Running) -> Value {
    running.signal(Signal::CONT);
    let (output, stderr) = running.wait();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    json(&output)
}

/// The run is paused, so that the second signal does not come after its end.
#[test]
fn a_second_signal_ends_a_run_without_a_report() {
    let (dir, [flag, hash]) = long_work();
    let running = start_and_stop(dir.path(), &[&flag, &hash], "check");
    for signal in [Signal::INT, Signal::TERM, Signal::CONT] {
        running.signal(signal);
    }
    let (output, stderr) = running.wait();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn second_run_on_a_datadir_exits_with_5() {
    let (dir, [flag, hash]) = long_work();
    let first = start_and_stop(dir.path(), &[&flag, &hash], "check");
    let note = || std::fs::read(dir.path().join("regtest/peregrine-command")).unwrap();
    let before = note();
    let error = locked(dir.path(), &[]);
    assert!(error.contains("regtest/.lock is in use"), "{error}");
    let error = locked(dir.path(), &["--output", dir.path().join("new").to_str().unwrap()]);
    assert!(error.contains("regtest/.lock is in use"), "{error}");
    assert_eq!(note(), before, "the note of the first one");
    let report = resume(first);
    assert_eq!(report["resumed_blocks"], 0);
}

/// Runs that only read the same datadir do not disturb each other, unless they write to the same place.
#[test]
fn second_run_into_an_output_or_work_dir_exits_with_5() {
    let (dir, [flag, hash]) = long_work();
    let outputs = TempDir::new().unwrap();
    let place = |name: &str| outputs.path().join(name).to_str().unwrap().to_owned();
    let (work, one, two) = (place("work"), place("one"), place("two"));
    let words = |output| [&flag, &hash, "--work-dir", &work, "--checkpoint-every", "0", "--output", output];
    // In stage finish its checkpoint is saved, and it holds the work directory.
    let first = start_and_stop(dir.path(), &words(&one), "finish");
    assert!(Path::new(&work).join("peregrine-work/manifest").exists());
    let error = locked(dir.path(), &words(&two));
    assert!(
        error.contains("another peregrine process works there") && error.contains("--work-dir"),
        "{error}"
    );
    let error = locked(dir.path(), &["--output", &one]);
    assert!(error.contains("one/regtest/.lock is in use"), "{error}");
    let elsewhere = reindex(dir.path(), &[&flag, &hash, "--output", &two]);
    assert_eq!(elsewhere.status.code(), Some(0), "{elsewhere:?}");
    assert_eq!(resume(first)["hash_serialized_3"], json(&elsewhere)["hash_serialized_3"]);
    assert!(!Path::new(&work).join("peregrine-work").exists());
}

#[test]
fn restart_ignores_the_checkpoint_of_an_interrupted_run() {
    let (dir, [flag, hash]) = long_work();
    let work = TempDir::new().unwrap();
    let work_dir = work.path().to_str().unwrap();
    let words = [&flag, &hash, "--memory", "128M", "--checkpoint-every", "0", "--work-dir", work_dir];
    for (more, resumes) in [(vec!["--restart"], false), (vec![], true)] {
        // In stage finish, a run has already saved a checkpoint.
        let running = start_and_stop(dir.path(), &words, "finish");
        running.signal(Signal::INT);
        running.signal(Signal::CONT);
        let (output, stderr) = running.wait();
        assert_eq!(output.status.code(), Some(130), "{stderr}");
        let doctor = command(&["doctor", "--chain", "regtest", "--json"], dir.path()).output().unwrap();
        let (doctor, words_of_run) = (json(&doctor), words.join(" "));
        assert!(doctor["resumes"].as_str().unwrap().contains(&words_of_run), "{doctor}");
        // The second time, the chainstate is complete.
        assert_eq!(doctor["next"] == doctor["resumes"], !resumes, "{doctor}");
        // Words of somebody else are no command that resumes.
        let note = dir.path().join("regtest/peregrine-command");
        let text = std::fs::read_to_string(&note).unwrap();
        for (from, to) in [("\"reindex\"", "\"recover\""), ("128M", "128M\\n")] {
            assert!(text.contains(from), "{text}");
            std::fs::write(&note, text.replacen(from, to, 1)).unwrap();
            let doctor = command(&["doctor", "--chain", "regtest", "--json"], dir.path()).output().unwrap();
            assert!(json(&doctor)["resumes"].is_null(), "{to}");
        }
        std::fs::write(&note, text).unwrap();
        let (output, stderr) = start(dir.path(), &[&words, &more[..]].concat()).wait();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        let report = json(&output);
        assert_eq!(stderr.contains("resuming an interrupted run"), resumes, "{stderr}");
        assert_eq!(report["resumed_blocks"].as_u64().unwrap() > 0, resumes, "{report}");
        assert_eq!(report["memory_budget_bytes"], 128 << 20);
        assert!(!work.path().join("peregrine-work").exists());
        assert!(!dir.path().join("regtest/peregrine-command").exists());
    }
}

#[test]
fn too_low_memory_limit_is_refused() {
    let dir = write_datadir(chain());
    let before = files(dir.path());
    let output = reindex(dir.path(), &["--memory", "64M"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("--memory") && stderr.contains("at least 128 MiB"), "{stderr}");
    assert!(files(dir.path()) == before);
}

/// A report that nobody reads does not make the rebuild fail.
#[test]
fn closed_pipe_is_not_an_error() {
    let dir = write_datadir(chain());
    let mut child = command(&["reindex", "--chain", "regtest"], dir.path())
        .stdout(Stdio::piped())
        .stderr(File::create(dir.path().join("log")).unwrap())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn undo_data_is_checked_and_made() {
    let datadir = write_datadir(chain());
    let undo = |words: &[&str]| {
        let words = [&["undo"], words, &["--chain", "regtest", "--progress", "none"]].concat();
        command(&words, datadir.path()).output().unwrap()
    };
    assert_eq!(undo(&["check"]).status.code(), Some(0));
    std::fs::remove_file(datadir.path().join("regtest/blocks/rev00001.dat")).unwrap();
    let before = files(datadir.path());
    let output = undo(&["check", "--json"]);
    assert_eq!(output.status.code(), Some(4));
    let found = json(&output);
    let missing = found["missing"].as_u64().unwrap();
    assert!(missing > 0 && found["damaged"] == 0, "{found}");
    let file = &found["files"][1];
    assert_eq!((&file["file"], &file["missing"]), (&"rev00001.dat".into(), &missing.into()));
    assert_eq!(file["first"][0]["state"], "missing");
    let text = String::from_utf8(undo(&["check"]).stdout).unwrap();
    assert!(text.contains(&format!(" {missing} missing")) && text.contains("undo make"), "{text}");
    assert!(files(datadir.path()) == before, "a check writes nothing");
    let made = json(&undo(&["make", "--json"]));
    assert_eq!((&made["blocks_made"], &made["files_made"][0]), (&missing.into(), &"rev00001.dat".into()));
    assert_eq!(undo(&["check"]).status.code(), Some(0));
    let text = String::from_utf8(undo(&["make"]).stdout).unwrap();
    assert!(text.contains("all of it was sound"), "{text}");
}

/// Without a peer, a new datadir has only the genesis block; that is one on which bitcoind starts.
#[test]
fn sync_without_a_peer_can_be_stopped_and_leaves_a_datadir() {
    let dir = TempDir::new().unwrap();
    // A port on which nobody listens.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = listener.local_addr().unwrap().to_string();
    drop(listener);
    let words = ["sync", "--chain", "regtest", "--json", "--progress", "lines", "--connect", &peer];
    let mut running = Running::start(command(&words, dir.path()));
    assert!(running.wait_for_line(&format!("peer {peer}: could not connect: connection refused")));
    running.signal(Signal::INT);
    let (output, stderr) = running.wait();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("the blocks that were downloaded are kept"), "{stderr}");
    let output = reindex(dir.path(), &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(json(&output)["height"], 0);
}

/// Each way on that the error about a damaged block names.
#[test]
fn a_damaged_block_has_ways_on() {
    let damaged = || {
        let dir = write_datadir(chain());
        assert_eq!(reindex(dir.path(), &[]).status.code(), Some(0));
        flip_bit(&dir.path().join("regtest/blocks/blk00001.dat"), 5_000, 1).unwrap();
        dir
    };
    let dir = damaged();
    let error = refused(dir.path(), &[], 4, "damaged");
    let remedies: Vec<&str> =
        error["remedies"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(remedies[..3], ["repair", "give-block", "end-below-damage"], "{error}");
    for flag in ["peregrine repair", "--block FILE", "--until-damage"] {
        assert!(error["help"].to_string().contains(flag), "{flag}: {error}");
    }
    let height = error["height"].as_u64().unwrap();
    let output = reindex(dir.path(), &["--until-damage"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = json(&output);
    assert_eq!((&report["height"], &report["damaged_blocks"]), (&(height - 1).into(), &1.into()));
    assert!(report["lost_blocks"].as_u64() > Some(0), "{report}");
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note["code"] == "lower-tip" && note["by_damage"] == true), "{report}");
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(shown.contains("accepted by --until-damage"), "{shown}");

    let dir = damaged();
    let file = dir.path().join("block");
    let other = chain().main().nth(height as usize - 1).unwrap();
    std::fs::write(&file, &other.bytes).unwrap();
    let file_arg = file.to_str().unwrap();
    let error = refused(dir.path(), &["--block", file_arg], 2, "usage");
    assert!(error["detail"].as_str().unwrap().contains(&other.hash.to_string()), "{error}");
    std::fs::write(&file, &chain().main().nth(height as usize).unwrap().bytes).unwrap();
    assert_eq!(reindex(dir.path(), &["--block", file_arg, "--scan"]).status.code(), Some(2));
    let output = reindex(dir.path(), &["--block", file_arg]);
    assert_eq!((output.status.code(), &json(&output)["height"]), (Some(0), &chain().totals.height.into()));

    // Nothing is damaged now, so that no peer is needed.
    let repair = command(&["repair", "--chain", "regtest", "--json"], dir.path()).output().unwrap();
    let report = json(&repair);
    assert_eq!((repair.status.code(), &report["command"]), (Some(0), &"repair".into()), "{repair:?}");
    assert_eq!((&report["damaged_blocks"], &report["blocks_downloaded"]), (&0.into(), &0.into()));
    assert!(report["rebuild"].is_null() && report["undo"].is_null(), "{report}");
    let text = command(&["repair", "--chain", "regtest", "--progress", "none"], dir.path()).output().unwrap();
    assert!(
        String::from_utf8_lossy(&text.stdout).starts_with("blocks             none is damaged or missing")
    );
}

/// A run that waits for a peer says so, whatever else is hidden.
#[test]
fn a_named_peer_that_cannot_be_reached_is_named() {
    let dir = TempDir::new().unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for style in ["none", "lines"] {
        let words = ["sync", "--chain", "regtest", "--connect", &address, "--progress", style];
        let mut child = command(&words, dir.path()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let start = Instant::now();
        let note = lines.find(|line| line.contains("no peer is connected")).unwrap();
        assert!(note.contains(&address) && start.elapsed() < Duration::from_secs(10), "{style}: {note}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// What `invalidateblock` leaves: the tip's header, marked as invalid. A peer goes on with that block.
#[test]
fn an_end_below_a_marked_block_has_an_exit_code_of_its_own() {
    let main: Vec<GeneratedBlock> = chain().main().cloned().collect();
    let (dir, tip) = (TempDir::new().unwrap(), main.last().unwrap());
    let peer =
        |blocks: &[GeneratedBlock]| ScriptedPeer::start(&Arc::new(ServedChain::of(blocks)), Fault::None);
    let (below, ahead) = (peer(&main[..main.len() - 1]), peer(&main));
    let sync = |peer: &ScriptedPeer| {
        let address = peer.address().to_string();
        let words = ["sync", "--chain", "regtest", "--connect", &address, "--json", "--progress", "none"];
        command(&words, dir.path()).output().unwrap()
    };
    let height = Value::from(tip.height - 1);
    let first = sync(&below);
    assert_eq!((first.status.code(), &json(&first)["chainstate_height"]), (Some(0), &height), "{first:?}");
    let index = Datadir::at(dir.path(), Network::Regtest).index_dir();
    let mut entry = IndexEntry::of_header(tip.hash, tip.header, Height(tip.height));
    entry.status.0 |= BlockStatus::FAILED_VALID;
    IndexRows::open(&RealDisk, &index).unwrap().update(&[entry], &[]).unwrap();
    let second = sync(&ahead);
    let report = json(&second);
    assert_eq!(second.status.code(), Some(3), "{second:?}");
    assert_eq!([&report["height"], &report["headers"], &report["chainstate_height"]], [&height; 3]);
    assert_eq!(
        (&report["notes"][0]["code"], &report["notes"][0]["height"]),
        (&"marked-invalid".into(), &tip.height.into())
    );
}

//! The program beside other processes: locks, signals, a second run, and peers.

use crate::prelude::*;
use testkit::corrupt::mark_next;

fn reindex(datadir: &Path, more: &[&str]) -> Output {
    run(datadir, &[&["reindex", "--json"], more].concat())
}

#[test]
fn datadir_in_use_exits_with_5() {
    let dir = given("small");
    for name in [".lock", "blocks/.lock", "blocks/index/LOCK"] {
        let file = lock(&dir.path().join("regtest").join(name));
        let output = TempDir::new().unwrap();
        for more in [vec![], vec!["--output", output.path().to_str().unwrap()]] {
            assert_locked(dir.path(), &more, &[name, "stop bitcoind"]);
        }
        let stats = run(dir.path(), &["utxo", "stats"]);
        assert_eq!(stats.status.code(), Some(5), "{stats:?}");
        drop(file);
    }
    assert_eq!(reindex(dir.path(), &[]).status.code(), Some(0));
}

/// Checks the error of a run that finds a lock held by another process, or by this one. Does not compare
/// files: closing a lock file that was read would release the lock.
#[track_caller]
fn assert_locked(datadir: &Path, more: &[&str], words: &[&str]) {
    let output = reindex(datadir, more);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let error = json(&output)["error"].clone();
    assert_eq!(error["kind"], "environment");
    let text = [&error["detail"], &error["help"]].map(ToString::to_string).join("; ");
    words.iter().for_each(|word| assert!(text.contains(word), "no {word:?} in {text}"));
}

#[test]
fn a_command_line_that_is_refused_is_also_reported_as_json() {
    let output = peregrine(&["utxo", "stats", "--json", "--at"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = json(&output)["error"].clone();
    assert_eq!(error["kind"], "usage");
    assert!(error["detail"].as_str().unwrap().starts_with("a value is required for '--at"), "{error}");
    let output = peregrine(&["reindex", "--progress", "json", "--bogus"]);
    let line: Value = serde_json::from_slice(&output.stderr).unwrap();
    let found = (output.status.code(), &line["event"], &line["error"]["kind"]);
    assert_eq!(found, (Some(2), &"error".into(), &"usage".into()), "{line}");
}

/// Interrupts the run in stage plan, and again in stage check, whose scripts take seconds, so that a busy
/// machine is not too late. The checkpoint goes to a folder outside the datadir.
#[test]
fn a_signal_exits_with_130_and_changes_nothing() {
    let dir = TempDir::new().unwrap();
    datadirs::write_chain(&Chain::generate(&ChainSpec::new(18, 12_000_000)), dir.path());
    let before = unlocked_files(dir.path());
    for (line, signal) in [("plan", Signal::INT), ("check", Signal::HUP)] {
        let work = TempDir::new().unwrap();
        let work_dir = work.path().to_str().unwrap();
        let run = reindexing(dir.path(), &["--threads", "1", "--work-dir", work_dir]);
        let running = Running::until_line(with_hangup("default", &run), line);
        let (output, stderr) = running.interrupt(&[signal]);
        assert_eq!(json(&output)["error"]["kind"], "interrupted");
        assert!(stderr.contains("the datadir is unchanged"), "{stderr}");
        // Only a run with a checkpoint can be resumed.
        if work.path().join("peregrine-work/manifest").exists() {
            fs::remove_file(dir.path().join("regtest/peregrine-command")).unwrap();
        }
        assert!(unlocked_files(dir.path()) == before, "interrupted at {line}");
    }
}

/// Returns a datadir that keeps a process busy for some tenths of a second, and the arguments that make it
/// skip the scripts, which are unsigned.
fn long_work() -> (TempDir, [String; 2]) {
    (given("busy"), ["--assumevalid".to_owned(), datadirs::busy().totals.before_tail.to_string()])
}

fn reindexing(datadir: &Path, more: &[&str]) -> Command {
    let words = ["reindex", "--chain", "regtest", "--json", "--progress", "lines"];
    command(&[&words, more].concat(), datadir)
}

/// The same command with SIGHUP as by default, or ignored.
fn with_hangup(how: &str, of: &Command) -> Command {
    let mut command = Command::new("env");
    command.arg(format!("--{how}-signal=HUP")).arg(of.get_program()).args(of.get_args());
    command
}

/// Starts a run and pauses it (SIGSTOP) as soon as it prints `line`: it holds all its locks.
fn start_and_stop(datadir: &Path, more: &[&str], line: &str) -> Running {
    let running = Running::until_line(reindexing(datadir, more), line);
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

#[test]
fn a_run_under_nohup_goes_on_after_its_terminal_has_ended() {
    let (dir, [flag, hash]) = long_work();
    let run = reindexing(dir.path(), &[&flag, &hash]);
    let running = Running::until_line(with_hangup("ignore", &run), "check");
    running.signal(Signal::HUP);
    resume(running);
}

/// The run is paused, so that the second signal does not come after its end.
#[test]
fn a_second_signal_ends_a_run_without_a_report() {
    let (dir, [flag, hash]) = long_work();
    let running = start_and_stop(dir.path(), &[&flag, &hash], "check");
    let (output, _) = running.interrupt(&[Signal::INT, Signal::TERM, Signal::CONT]);
    assert!(output.stdout.is_empty(), "{output:?}");
}

/// A machine that stops and a terminal that is closed send two signals: the second one ended the run at once.
#[test]
fn a_hangup_is_not_a_second_signal() {
    let (dir, [flag, hash]) = long_work();
    let run = reindexing(dir.path(), &[&flag, &hash]);
    let running = Running::until_line(with_hangup("default", &run), "check");
    running.signal(Signal::STOP);
    let (output, _) = running.interrupt(&[Signal::TERM, Signal::HUP, Signal::CONT]);
    assert_eq!(json(&output)["error"]["kind"], "interrupted");
}

/// It once said that the datadir is unchanged, and the whole rebuild was made again.
#[test]
fn a_signal_while_indexes_are_made_says_that_the_chainstate_is_in_place() {
    let (dir, [flag, hash]) = long_work();
    let running = start_and_stop(dir.path(), &[&flag, &hash, "--index", "txindex"], "read");
    let (output, _) = running.interrupt(&[Signal::INT, Signal::CONT]);
    let error = &json(&output)["error"];
    let expected = "interrupted; the chainstate is in place, but not all indexes";
    assert_eq!((&error["kind"], &error["detail"]), (&"interrupted".into(), &expected.into()), "{error}");
    assert!(error["help"][0].as_str().unwrap().contains("peregrine index make"), "{error}");
}

/// The command that was to be repeated was refused, because its log existed.
#[test]
fn an_interrupted_run_with_a_log_asks_for_another_one() {
    let ((dir, [flag, hash]), outside) = (long_work(), TempDir::new().unwrap());
    let log = outside.path().join("log");
    let words = [&flag, &hash, "--memory", "128M", "--checkpoint-every", "0", "--log", text(&log)];
    let (output, _) = start_and_stop(dir.path(), &words, "finish").interrupt(&[Signal::INT, Signal::CONT]);
    let help = json(&output)["error"]["help"][0].as_str().unwrap_or_default().to_owned();
    let expected = " (with another --log: this one exists)";
    assert!(help.starts_with("run the same command again") && help.ends_with(expected), "{help}");
}

#[test]
fn second_run_on_a_datadir_exits_with_5() {
    let (dir, [flag, hash]) = long_work();
    let first = start_and_stop(dir.path(), &[&flag, &hash], "check");
    let note = || fs::read(dir.path().join("regtest/peregrine-command")).unwrap();
    let before = note();
    assert_locked(dir.path(), &[], &["regtest/.lock is in use"]);
    assert_locked(dir.path(), &["--output", text(&dir.path().join("new"))], &["regtest/.lock is in use"]);
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
    assert_locked(dir.path(), &words(&two), &["another peregrine process works there", "--work-dir"]);
    assert_locked(dir.path(), &["--output", &one], &["one/regtest/.lock is in use"]);
    // In place, since the first one only reads the datadir.
    assert_locked(dir.path(), &[], &["blocks/index/LOCK is in use"]);
    let other_work = place("other-work");
    let options = [&flag, &hash, "--work-dir", &other_work, "--output", &two];
    let elsewhere = report(dir.path(), &[&["reindex"], &options[..]].concat());
    assert_eq!(elsewhere["resumed_blocks"], 0);
    assert_eq!(resume(first)["hash_serialized_3"], elsewhere["hash_serialized_3"]);
    assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
    // The refused run succeeds later.
    fs::remove_dir_all(Path::new(&two).join("regtest")).unwrap();
    let later = report(dir.path(), &[&["reindex"], &words(&two)[..]].concat());
    assert_eq!(later["resumed_blocks"], 0);
    assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
}

/// Regression: a checkpoint was written after each 16 blocks, whatever it cost, and no progress was shown.
#[test]
fn checkpoints_without_a_pause_leave_time_for_progress() {
    let (dir, [flag, hash]) = long_work();
    let log = dir.path().join("log");
    let words = [&flag, &hash, "--checkpoint-every", "0", "--log", log.to_str().unwrap()];
    assert_eq!(reindex(dir.path(), &words).status.code(), Some(0));
    let lines = fs::read_to_string(&log).unwrap();
    let count = |event: &str| lines.lines().filter(|line| line.contains(event)).count();
    // The last one is that of the whole.
    assert!(count(r#"{"event":"progress""#) > 1, "{lines}");
    assert_eq!(count(r#"{"event":"memory""#), 1, "{lines}");
}

/// Run by root, it overwrote the file to which the link leads, and gave it to the owner of the datadir.
#[test]
fn a_link_with_the_name_of_the_note_is_not_followed() {
    let (dir, [flag, hash]) = long_work();
    let (mine, note) = (dir.path().join("mine"), dir.path().join("regtest/peregrine-command"));
    fs::write(&mine, "mine").unwrap();
    std::os::unix::fs::symlink(&mine, &note).unwrap();
    resume(start_and_stop(dir.path(), &[&flag, &hash], "check"));
    assert!(fs::read_to_string(&mine).unwrap() == "mine" && note.is_symlink());
}

#[test]
fn restart_ignores_the_checkpoint_of_an_interrupted_run() {
    let (dir, [flag, hash]) = long_work();
    let work = TempDir::new().unwrap();
    let work_dir = work.path().to_str().unwrap();
    let words = [&flag, &hash, "--memory", "128M", "--checkpoint-every", "0", "--work-dir", work_dir];
    for (more, resumes) in [(vec!["--restart"], false), (vec![], true)] {
        // In stage finish, a run has already saved a checkpoint.
        start_and_stop(dir.path(), &words, "finish").interrupt(&[Signal::INT, Signal::CONT]);
        let doctor = || json(&run(dir.path(), &["doctor", "--json"]));
        let found = doctor();
        assert!(found["resumes"].as_str().unwrap().contains(&words.join(" ")), "{found}");
        let other = reindex(dir.path(), &["--assumevalid", "0", "--work-dir", work_dir]);
        assert_eq!(other.status.code(), Some(2), "it cannot resume that run: {other:?}");
        assert_eq!(doctor()["resumes"], found["resumes"]);
        // The second time, the chainstate is complete.
        assert_eq!(found["next"] == found["resumes"], !resumes, "{found}");
        // Words of somebody else are no command that resumes, nor are those of a copy's original.
        let note = dir.path().join("regtest/peregrine-command");
        let text = fs::read_to_string(&note).unwrap();
        let elsewhere = ("\"net_dir\":\"", "\"net_dir\":\"/original");
        for (from, to) in [("\"reindex\"", "\"recover\""), ("128M", "128M\\n"), elsewhere] {
            assert!(text.contains(from), "{text}");
            fs::write(&note, text.replacen(from, to, 1)).unwrap();
            assert!(doctor()["resumes"].is_null(), "{to}");
        }
        fs::write(&note, text).unwrap();
        let checkpoint = work.path().join("peregrine-work/manifest");
        let saved = fs::read(&checkpoint).unwrap();
        fs::write(&checkpoint, "x").unwrap();
        assert!(doctor()["resumes"].is_null(), "a forged checkpoint");
        fs::write(&checkpoint, saved).unwrap();
        let again = reindexing(dir.path(), &[&words, &more[..]].concat());
        let (output, stderr) = Running::start(again).wait();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        let report = json(&output);
        assert_eq!(stderr.contains("resuming an interrupted run"), resumes, "{stderr}");
        assert_eq!(report["resumed_blocks"].as_u64().unwrap() > 0, resumes, "{report}");
        assert_eq!(report["memory_budget_bytes"], 128 << 20);
        assert!(!work.path().join("peregrine-work").exists());
        assert!(!dir.path().join("regtest/peregrine-command").exists());
    }
}

/// Without a peer, a new datadir has only the genesis block; that is one on which bitcoind starts.
#[test]
fn sync_without_a_peer_can_be_stopped_and_leaves_a_datadir() {
    let dir = TempDir::new().unwrap();
    let peer = format!("127.0.0.1:{}", free_port().unwrap());
    let words = ["sync", "--chain", "regtest", "--json", "--progress", "lines", "--connect", &peer];
    let line = format!("peer {peer}: could not connect: connection refused");
    let (_, stderr) = Running::until_line(command(&words, dir.path()), &line).interrupt(&[Signal::INT]);
    assert!(stderr.contains("the blocks that were downloaded are kept"), "{stderr}");
    assert_eq!(report(dir.path(), &["reindex"])["height"], 0);
}

/// A run that waits for a peer says so, whatever else is hidden.
#[test]
fn a_named_peer_that_cannot_be_reached_is_named() {
    let dir = TempDir::new().unwrap();
    let address = format!("127.0.0.1:{}", free_port().unwrap());
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

/// Nothing said so.
#[test]
fn hints_are_not_used_if_the_chainstate_is_complete() {
    let ((dir, chain), files) = (rebuilt(), TempDir::new().unwrap());
    let hints = files.path().join("hints");
    done(run(dir.path(), &["hints", "make", "--to", "60", "-o", text(&hints), "--progress", "none"]));
    let peer = peer_with(chain.main());
    let address = peer.address().to_string();
    let words = ["sync", "--connect", &address, "--hints", text(&hints), "--progress", "none"];
    let report = done(run(dir.path(), &words));
    assert!(report.contains("\nhints              not used: the chainstate was not rebuilt"), "{report}");
}

/// What `invalidateblock` leaves: the tip's header, marked as invalid. A peer goes on with that block.
#[test]
fn an_end_below_a_marked_block_has_an_exit_code_of_its_own() {
    let main: Vec<GeneratedBlock> = datadirs::small().main().cloned().collect();
    let (dir, tip) = (TempDir::new().unwrap(), main.last().unwrap());
    let (below, ahead) = (peer_with(&main[..main.len() - 1]), peer_with(&main));
    let sync = |peer: &ScriptedPeer, more: &[&str]| {
        let address = peer.address().to_string();
        let words = ["sync", "--connect", &address, "--json", "--progress", "none"];
        run(dir.path(), &[&words[..], more].concat())
    };
    let height = Value::from(tip.height - 1);
    let first = sync(&below, &[]);
    assert_eq!((first.status.code(), &json(&first)["chainstate_height"]), (Some(0), &height), "{first:?}");
    mark_next(&dir.path().join("regtest/blocks/index"), tip).unwrap();
    let second = sync(&ahead, &["--index", "txindex"]);
    let report = json(&second);
    assert_eq!(second.status.code(), Some(3), "{second:?}");
    assert_eq!([&report["height"], &report["headers"], &report["chainstate_height"]], [&height; 3]);
    assert_eq!(report["indexes"]["height"], height, "the index is made all the same: {report}");
    assert_eq!(report["notes"][0]["code"], "marked-invalid");
    assert_eq!(report["notes"][0]["height"], tip.height);
    // It was that of the download also if the run had stayed at the tip until it was told to end.
    let address = ahead.address().to_string();
    let words = ["sync", "--chain", "regtest", "--connect", &address, "--json", "--progress", "lines"];
    let running = Running::until_line(command(&[&words[..], &["--follow"]].concat(), dir.path()), "follow");
    running.signal(Signal::INT);
    let (output, stderr) = running.wait();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let report = json(&output);
    assert_eq!(report["left_out"]["height"], tip.height, "{report}");
}

#[test]
fn the_process_that_uses_the_datadir_is_named() {
    let dir = given("rebuilt");
    let doctor = || run(dir.path(), &["doctor", "--json", "--progress", "none"]);
    let _lock = lock(&dir.path().join("regtest/.lock"));
    let output = doctor();
    let object = json(&output);
    assert_eq!((output.status.code(), &object["advice"]["code"]), (Some(0), &"wait".into()), "{object}");
    let held = &object["datadir"]["lock"];
    assert_eq!((&held["state"], &held["pid"]), (&"held".into(), &std::process::id().into()));
    fs::write(dir.path().join("regtest/chainstate/CURRENT"), "nothing").unwrap();
    let output = doctor();
    let object = json(&output);
    assert_eq!(object["datadir"]["chainstate"]["state"], "unreadable", "it may be changing");
    assert_eq!((output.status.code(), &object["advice"]["code"]), (Some(0), &"wait".into()), "{object}");
    fs::remove_file(dir.path().join("regtest/blocks/blk00001.dat")).unwrap();
    assert_eq!(doctor().status.code(), Some(5));
}

const PLAN: &str = "range plan --datadir node --chain regtest --ranges 4 --assumevalid 0 -o plan.json";

/// A directory with the datadir `node` and a plan for it.
fn planned() -> TempDir {
    let dir = TempDir::new().unwrap();
    datadirs::write("small", &dir.path().join("node"));
    done(command_in(dir.path(), PLAN).output().unwrap());
    dir
}

fn command_in(dir: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    command.args(words.split(' ')).current_dir(dir);
    command
}

/// The second one replaced the second file of the first one's plan, and was refused only then.
#[test]
fn of_two_runs_that_write_one_plan_only_one_writes_its_second_file() {
    let dir = planned();
    let [plan, unfinished, blocks] =
        ["plan.json", "plan.json.peregrine-part", "plan.blocks"].map(|name| dir.path().join(name));
    // The first one is about to give the first file its name.
    fs::rename(&plan, &unfinished).unwrap();
    let (held, before) = (lock(&unfinished), fs::read(&blocks).unwrap());
    let second = command_in(dir.path(), PLAN).output().unwrap();
    refused(&second, 5, &["another peregrine writes this file"]);
    assert!(fs::read(&blocks).unwrap() == before && unfinished.exists());
    // It was killed.
    drop(held);
    done(command_in(dir.path(), PLAN).output().unwrap());
    done(command_in(dir.path(), "range files --plan plan.json --range 0").output().unwrap());
}

#[test]
fn a_killed_check_of_a_range_leaves_no_output_and_can_be_repeated() {
    let dir = planned();
    let check = "range check --plan plan.json --range 2 --datadir node -o r2 --progress lines";
    let running = Running::until_line(command_in(dir.path(), check), "check");
    running.signal(Signal::KILL);
    let (output, _) = running.wait();
    assert!(output.status.code().is_none() || dir.path().join("r2").exists());
    let text = done(command_in(dir.path(), check).output().unwrap());
    assert!(text.contains("delta              r2 ("), "{text}");
    assert!(!dir.path().join("r2.peregrine-part").exists());
}

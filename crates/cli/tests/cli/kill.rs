//! A rebuild that is killed or interrupted at any moment resumes and ends with the same coins. Runs a real
//! process on a real file system.
//!
//! `PEREGRINE_KILLS=2000 PEREGRINE_SEED=7 cargo test -p peregrine --test cli kill::` runs longer.

use crate::prelude::*;
use engine::{AssumeValid, ScriptChecks, Watch, reindex::ReindexOptions};
use std::{num::NonZeroUsize, os::unix::process::ExitStatusExt, sync::atomic::AtomicBool};

/// Environment variable of the process that rebuilds with little memory: the datadir.
const CHILD: &str = "PEREGRINE_TEST_DATADIR";
/// Environment variable of that process: the assumed-valid block.
const ASSUME_VALID: &str = "PEREGRINE_TEST_ASSUME_VALID";

/// Bytes of coins and spends that it holds in memory, so that sorted runs are written and merged all the
/// time. Not much more than the empty join duration; with less, there would be a sorted run for each block.
const JOIN_BYTES: usize = 150 << 10;

/// An interrupted run has two seconds to save its state; this leaves time for a busy machine.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(10);

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Counts what was found in the datadir after kills: temporary files, a checkpoint, a second chainstate, the
/// new chainstate in place.
#[derive(Default, Debug)]
struct Found {
    work: u32,
    checkpoint: u32,
    half_built: u32,
    replaced: u32,
    /// The highest number of a sorted run.
    last_run: u32,
}

/// A datadir whose chainstate is three blocks behind.
struct Case {
    dir: TempDir,
    before_tail: BlockHash,
    old_hash: String,
    new_hash: String,
    old_chainstate: Files,
    blocks: Files,
}

impl Case {
    /// Generates an unsigned chain, with a tail of blocks that lets the scripts before it be assumed valid.
    fn new(seed: u64, bytes: u64) -> Self {
        let chain =
            Chain::generate(&ChainSpec { signed: false, empty_tail: 2100, ..ChainSpec::new(seed, bytes) });
        let dir = TempDir::new().unwrap();
        let layout = Layout { file_size: 1 << 20, preallocate: false, ..Layout::new(seed) };
        chain.write_datadir(dir.path(), &layout).unwrap();
        let mut behind = ReindexOptions::new(dir.path(), Network::Regtest, ScriptChecks::LeftOut);
        behind.chain.stop_at_height = Some(Height(chain.tip().height - 3));
        behind.chain.assume_valid = AssumeValid::Block(chain.totals.before_tail);
        let old =
            engine::reindex(&RealDisk, &behind, Watch { sink: &|_| {}, interrupt: &AtomicBool::new(false) })
                .unwrap();
        Self {
            before_tail: chain.totals.before_tail,
            old_hash: engine::hex_reversed(&old.hash_serialized_3),
            new_hash: chain.model.stats().hash_hex(),
            old_chainstate: snapshot(&old.chainstate).unwrap(),
            blocks: unlocked_files(&dir.path().join("regtest/blocks")),
            dir,
        }
    }

    fn root(&self) -> &Path {
        self.dir.path()
    }

    fn net(&self, name: &str) -> PathBuf {
        self.root().join("regtest").join(name)
    }

    /// Restores the old chainstate.
    fn restore(&self) {
        std::fs::remove_dir_all(self.net("chainstate")).unwrap();
        write_files(&self.old_chainstate, &self.net("chainstate")).unwrap();
    }

    /// The program, with the lowest memory limit.
    fn program(&self) -> Command {
        let args =
            "reindex --chain regtest --json --progress lines --threads 2 --memory 128M --checkpoint-every 0";
        let mut command = command(&args.split(' ').collect::<Vec<_>>(), self.root());
        command.args(["--assumevalid", &self.before_tail.to_string()]);
        command
    }

    /// This test binary, running only [`rebuild_with_little_memory`].
    fn little_memory(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "kill::rebuild_with_little_memory", "--nocapture"]);
        command.env(CHILD, self.root()).env(ASSUME_VALID, self.before_tail.to_string());
        command
    }

    /// Checks that the old chainstate opens or the new one, with `utxo stats`. Counts what else is there.
    fn inspect(&self, what: &str, found: &mut Found) {
        // Counted first, because it is removed then.
        found.half_built += u32::from(self.net("chainstate.peregrine").exists());
        let output = run(self.root(), &["recover", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{what}: {output:?}");
        let output = run(self.root(), &["utxo", "stats", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{what}: {output:?}");
        let hash = json(&output)["hash_serialized_3"].as_str().unwrap().to_owned();
        assert!(hash == self.old_hash || hash == self.new_hash, "{what}: {hash}");
        found.work += u32::from(self.net("peregrine-work").exists());
        found.checkpoint += u32::from(self.net("peregrine-work/manifest").exists());
        found.replaced += u32::from(hash == self.new_hash);
        let names = std::fs::read_dir(self.net("peregrine-work")).into_iter().flatten();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let number = |name: String| name.strip_prefix("run-")?.strip_suffix(".run")?.parse().ok();
        found.last_run = names.filter_map(number).fold(found.last_run, u32::max);
    }

    /// Checks that the run succeeded: it left the new chainstate and nothing else.
    fn assert_done(&self, output: &Output, what: &str) {
        assert_eq!(output.status.code(), Some(0), "{what}: {output:?}");
        let mut found = Found::default();
        self.inspect(what, &mut found);
        assert_eq!((found.replaced, found.half_built, found.work), (1, 0, 0), "{what}");
        let names = std::fs::read_dir(self.net("")).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, [".lock", "blocks", "chainstate"], "{what}");
    }

    /// Returns the number of blocks that are done, from the help for an interrupted run. Checks that it
    /// is right about the checkpoint.
    fn blocks_done(&self, help: &str) -> u64 {
        let checkpoint = self.net("peregrine-work/manifest").exists();
        let Some((before, _)) = help.split_once(" blocks are saved") else {
            assert!(!checkpoint, "the error does not mention the checkpoint: {help}");
            return 0;
        };
        assert!(checkpoint, "there is no checkpoint: {help}");
        // The text ends in "N of M".
        let words: Vec<_> = before.rsplit(' ').collect();
        words[2].parse().unwrap()
    }

    fn assert_blocks_untouched(&self) {
        assert!(unlocked_files(&self.net("blocks")) == self.blocks, "blocks or their index were touched");
    }
}

/// Returns the number of blocks that an earlier run had done, from the report.
fn resumed(output: &Output) -> u64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let report = text.lines().find(|line| line.starts_with('{')).unwrap();
    serde_json::from_str::<serde_json::Value>(report).unwrap()["resumed_blocks"].as_u64().unwrap()
}

/// Kills runs at random moments, up to six times in a row, and then lets a run resume.
fn kill_at_random(case: &Case, seed: u64, run: impl Fn() -> Command) -> Found {
    let wanted = from_environment("PEREGRINE_KILLS", 50);
    let mut rng = Rng::new(seed, "moments");
    let started = Instant::now();
    let whole = run().output().unwrap();
    let mut duration = started.elapsed();
    case.assert_done(&whole, "not killed");
    let (mut found, mut kills, mut resumed_runs) = (Found::default(), 0, 0);
    for round in 0.. {
        if kills >= wanted {
            break;
        }
        assert!(round < 20 * wanted, "runs end before they are killed");
        case.restore();
        let row = 1 + rng.below(6);
        let mut done = None;
        for _ in 0..row {
            let moment = Duration::from_micros(rng.below(duration.as_micros() as u64));
            let started = Instant::now();
            let running = Running::start(run());
            sleep(moment);
            running.signal(Signal::KILL);
            let (output, _) = running.wait();
            if output.status.signal() != Some(Signal::KILL.as_raw()) {
                duration = duration.min(started.elapsed());
                done = Some(output);
                break;
            }
            kills += 1;
            case.inspect(&format!("seed {seed}, kill {kills}, after {moment:?}"), &mut found);
        }
        let done = done.unwrap_or_else(|| run().output().unwrap());
        case.assert_done(&done, &format!("seed {seed}, {kills} kills, round {round}"));
        resumed_runs += u32::from(resumed(&done) > 0);
    }
    println!("a run takes {duration:?}; {kills} kills: {found:?}; {resumed_runs} runs resumed");
    let is_enough = wanted < 50 || found.checkpoint > 0 && resumed_runs > 0;
    assert!(is_enough, "no kill came after a checkpoint: {found:?}");
    case.assert_blocks_untouched();
    found
}

/// Undo data is made: the datadir has none. After a kill, what an interrupted run has put in place may be
/// there, but nothing refers to it.
#[test]
fn killed_run_that_makes_undo_data_resumes() {
    let (seed, case) = (from_environment("PEREGRINE_SEED", 5), Case::new(35, 4_000_000));
    let blocks = case.net("blocks");
    let is_rev = |(name, _): &(PathBuf, Vec<u8>)| name.to_string_lossy().starts_with("rev");
    let rev_files = || -> Vec<_> { unlocked_files(&blocks).into_iter().filter(is_rev).collect() };
    let (all, index) = (rev_files(), snapshot(&blocks.join("index")).unwrap());
    assert!(all.len() > 2, "several files");
    // The second file stays; the first one is truncated.
    let damage = || {
        assert!(!blocks.join("peregrine-undo").exists(), "it is left behind");
        for (number, (name, bytes)) in all.iter().enumerate() {
            let (path, kept) = (blocks.join(name), [bytes.len() / 3, bytes.len()].get(number).copied());
            let _ = std::fs::remove_file(&path);
            if let Some(kept) = kept {
                std::fs::write(path, &bytes[..kept]).unwrap();
            }
        }
        std::fs::remove_dir_all(blocks.join("index")).unwrap();
        write_files(&index, &blocks.join("index")).unwrap();
        case.restore();
    };
    let made = |what: &str| {
        let found = rev_files();
        assert_eq!(found.len(), all.len(), "{what}");
        for (number, ((path, bytes), (_, before))) in found.iter().zip(&all).enumerate() {
            let kept = [before.len() / 3, before.len()].get(number).copied().unwrap_or(0);
            assert!(bytes[..kept] == before[..kept], "{what}: bytes in use of {}", path.display());
        }
        found
    };
    let (mut rng, started) = (Rng::new(seed, "moments"), Instant::now());
    damage();
    case.assert_done(&case.program().output().unwrap(), "not killed");
    let (mut duration, whole) = (started.elapsed(), made("not killed"));
    let (mut found, mut kills, mut same) = (Found::default(), 0, 0);
    let wanted = from_environment("PEREGRINE_KILLS", 8);
    for round in 0..200 {
        if kills >= wanted {
            break;
        }
        damage();
        for _ in 0..1 + rng.below(3) {
            // Many of them in the last stage, where files are put in place.
            let (in_commit, moment) = (rng.chance(1, 2), rng.below(duration.as_micros() as u64));
            let mut running = Running::start(case.program());
            if in_commit && running.wait_for_line("commit") {
                sleep(Duration::from_micros(rng.below(15_000)));
            } else {
                sleep(Duration::from_micros(moment));
            }
            let started = Instant::now();
            running.signal(Signal::KILL);
            let (output, _) = running.wait();
            if output.status.signal() != Some(Signal::KILL.as_raw()) {
                duration = duration.min(Duration::from_micros(moment) + started.elapsed());
                break;
            }
            kills += 1;
            let what = format!("seed {seed}, round {round}, kill {kills}, commit {in_commit}, {moment} us");
            case.inspect(&what, &mut found);
        }
        let what = format!("seed {seed}, round {round}");
        case.assert_done(&case.program().output().unwrap(), &what);
        same += u32::from(made(&what) == whole);
        // All undo data is there.
        let trust = case.program().args(["--undo", "trust"]).output().unwrap();
        case.assert_done(&trust, &what);
    }
    println!("a run takes {duration:?}; {kills} kills: {found:?}; {same} times the files are the same");
    assert!(kills >= wanted, "{kills} kills: {found:?}");
}

/// The process that a test above kills. Does nothing if it is run as a test.
#[test]
fn rebuild_with_little_memory() {
    let Some(datadir) = std::env::var_os(CHILD) else { return };
    let assumed = std::env::var(ASSUME_VALID).unwrap().parse().unwrap();
    let mut options = ReindexOptions::new(Path::new(&datadir), Network::Regtest, ScriptChecks::LeftOut);
    options.chain.threads = NonZeroUsize::new(2).unwrap();
    options.chain.assume_valid = AssumeValid::Block(assumed);
    options.chain.hooks.join_bytes = Some(JOIN_BYTES);
    options.chain.hooks.range_bytes = 256 << 10;
    options.chain.resume.checkpoint_interval = Duration::ZERO;
    let report =
        engine::reindex(&RealDisk, &options, Watch { sink: &|_| {}, interrupt: &AtomicBool::new(false) })
            .unwrap();
    assert_eq!(report.matching, engine::reindex::Matching::Parallel);
    println!("\n{{\"resumed_blocks\":{}}}", report.resumed);
}

/// Also kills in the stages that are too short to be hit by chance: the last ones rename and remove files.
#[test]
fn run_killed_in_any_stage_resumes() {
    let case = Case::new(33, 4_000_000);
    let mut rng = Rng::new(from_environment("PEREGRINE_SEED", 3), "moments");
    let mut found = Found::default();
    let mut kills = 0;
    for (stage, times) in [("plan", 2), ("check", 2), ("finish", 3), ("prove", 3), ("commit", 12)] {
        for time in 0..times {
            case.restore();
            let running = Running::until_line(case.program(), stage);
            sleep(Duration::from_micros(rng.below(1 + 700 * time)));
            running.signal(Signal::KILL);
            let (output, _) = running.wait();
            kills += u32::from(output.status.signal() == Some(Signal::KILL.as_raw()));
            let what = format!("{stage}, time {time}");
            case.inspect(&what, &mut found);
            case.assert_done(&case.program().output().unwrap(), &what);
        }
    }
    println!("{kills} kills: {found:?}");
    assert!(kills >= 10 && found.half_built > 0, "{kills} kills: {found:?}");
    case.assert_blocks_untouched();
}

#[test]
fn interrupted_run_saves_its_state_and_resumes() {
    let case = Case::new(34, 20_000_000);
    let mut rng = Rng::new(from_environment("PEREGRINE_SEED", 4), "moments");
    let started = Instant::now();
    case.assert_done(&case.program().output().unwrap(), "not interrupted");
    let mut duration = started.elapsed();
    let (mut interrupts, mut saved, mut longest) = (0, 0, Duration::ZERO);
    for round in 0..200 {
        if interrupts >= 10 {
            break;
        }
        case.restore();
        let started = Instant::now();
        let running = Running::until_line(case.program(), "plan"); // the first stage
        sleep(Duration::from_micros(rng.below(duration.as_micros() as u64)));
        running.signal(Signal::INT);
        let signalled = Instant::now();
        let (output, stderr) = running.wait();
        let shutdown = signalled.elapsed();
        let what = format!("round {round}: {stderr}");
        if output.status.code() == Some(0) {
            duration = duration.min(started.elapsed());
            case.assert_done(&output, &what);
            continue;
        }
        assert_eq!(output.status.code(), Some(130), "{what}");
        assert!(shutdown < INTERRUPT_TIMEOUT, "{shutdown:?}, {what}");
        longest = longest.max(shutdown);
        interrupts += 1;
        let error = &json(&output)["error"];
        assert!(error["detail"].as_str().unwrap().contains("the datadir is unchanged"), "{error}");
        let blocks = case.blocks_done(error["help"][0].as_str().unwrap_or_default());
        case.inspect(&what, &mut Found::default());
        let (output, stderr) = Running::start(case.program()).wait();
        case.assert_done(&output, &what);
        assert_eq!(stderr.contains("resuming an interrupted run"), blocks > 0, "{error}; {stderr}");
        assert_eq!(resumed(&output), blocks, "{error}");
        saved += u32::from(blocks > 0);
    }
    println!(
        "a run takes {duration:?}; {interrupts} interrupts, {saved} after a checkpoint; longest {longest:?}"
    );
    assert!(interrupts >= 10 && saved > 0, "{interrupts} interrupts, {saved} after a checkpoint");
    case.assert_blocks_untouched();
}

mod long {
    use super::{Case, from_environment, kill_at_random};

    #[test]
    fn killed_run_resumes() {
        let (seed, case) = (from_environment("PEREGRINE_SEED", 1), Case::new(31, 12_000_000));
        kill_at_random(&case, seed, || case.program());
    }

    #[test]
    fn killed_run_that_spills_and_merges_resumes() {
        let (seed, case) = (from_environment("PEREGRINE_SEED", 2), Case::new(32, 16_000_000));
        let found = kill_at_random(&case, seed, || case.little_memory());
        assert!(found.last_run > 2 * 32, "runs were hardly ever merged: {found:?}");
    }
}

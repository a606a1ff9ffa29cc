//! The file of `--report`: what a run did, how long it took, and on what machine, to be sent to the
//! developers. It names no user, no host and no path; what is wrong with a chain is in it as codes only.

use crate::{
    args::{CheckArgs, ReindexArgs, VerifyArgs},
    core_args::Located,
    notes::NoteJson,
    report::json::{RebuildFacts, VerifyFacts},
    storage::StorageJson,
};
use engine::{CORE_VERSION, ChainOptions, Error, Event, Network, ReindexReport, VerifyReport, Warning};
use peregrine::{
    exit::Exit,
    output::{self, SCHEMA},
    run_log::{Run, create_new},
    version,
};
use serde::Serialize;
use std::{
    env,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// Number of points in `progress`, about.
const POINTS: u32 = 100;

/// A run, without names and paths.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SharedReport {
    /// Version of this format, which is that of all JSON.
    schema: u32,
    /// `reindex` or `verify`.
    command: &'static str,
    exit_code: u8,
    program: ProgramJson,
    machine: MachineJson,
    options: OptionsJson,
    /// Blocks and bytes that were done by then, and so the sizes of blocks by height: blocks are checked
    /// nearly in order.
    progress: Vec<PointJson>,
    /// When each stage began. How long those take that run side by side is in `rebuild`.
    stages: Vec<StageStartJson>,
    rebuild: Option<RebuildFacts>,
    verification: Option<VerifyFacts>,
    /// Codes of the notes.
    notes: Vec<String>,
    error: Option<SharedError>,
    seconds: f64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProgramJson {
    version: &'static str,
    commit: Option<&'static str>,
    /// Version of Bitcoin Core whose rules these are.
    rules_core_version: &'static str,
    /// Version of Bitcoin Core whose code runs scripts; `null` if this build runs none.
    script_core_version: Option<&'static str>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MachineJson {
    architecture: &'static str,
    system: &'static str,
    /// The numbers of the kernel's release.
    kernel: Option<String>,
    cpu: Option<String>,
    cores: Option<usize>,
    memory_bytes: Option<u64>,
    /// The disk of the block files.
    blocks_disk: StorageJson,
    /// The disk of the new chainstate, or of the old one.
    chainstate_disk: StorageJson,
}

/// How the program was run.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OptionsJson {
    threads: usize,
    memory_bytes: u64,
    /// A block hash, `0` or `default`.
    assumevalid: String,
    undo: &'static str,
    scan: bool,
    work_dir: bool,
    /// The rest is of `reindex` only, and `against_chainstate` of `verify`.
    stop_at_height: Option<u32>,
    output: bool,
    restart: bool,
    hints: bool,
    without_undo: bool,
    against_chainstate: bool,
}

#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PointJson {
    seconds: f64,
    blocks: u32,
    bytes: u64,
    memory_bytes: Option<u64>,
}

#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StageStartJson {
    stage: &'static str,
    seconds: f64,
}

/// Why a run failed, as codes: a text could contain a path.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SharedError {
    kind: String,
    height: Option<u32>,
    block_hash: Option<String>,
    txid: Option<String>,
    input: Option<u32>,
    rule: Option<&'static str>,
    core: Option<String>,
    remedies: Vec<&'static str>,
}

/// What a command did.
pub enum Outcome<'a> {
    Rebuilt(&'a ReindexReport),
    Verified(&'a VerifyReport, Network),
    Failed(&'a Error),
}

/// Records a run, and writes the report at its end.
pub struct Recorder {
    file: PathBuf,
    command: &'static str,
    machine: MachineJson,
    options: OptionsJson,
    started: Instant,
    seen: Mutex<Seen>,
}

/// What the events have shown.
#[derive(Default)]
struct Seen {
    progress: Vec<PointJson>,
    stages: Vec<StageStartJson>,
}

impl Recorder {
    /// Begins to record a rebuild, if its options want that.
    ///
    /// # Errors
    /// [`engine::ErrorKind::Environment`] if the file cannot be created.
    pub fn of_rebuild(
        args: &ReindexArgs,
        located: &Located,
        chain: &ChainOptions,
    ) -> Result<Option<Self>, Error> {
        let Some(file) = &args.report else { return Ok(None) };
        let options = OptionsJson {
            stop_at_height: args.stop_at_height,
            output: args.output.is_some(),
            restart: args.resume.restart,
            hints: args.hints.is_some(),
            without_undo: args.without_undo,
            ..options(&args.check, chain)
        };
        let result = args.output.clone().unwrap_or_else(|| located.datadir().chainstate_dir());
        Self::new(file, ("reindex", options), located, &result).map(Some)
    }

    /// Begins to record a verification, if its options want that.
    ///
    /// # Errors
    /// The same errors as [`Recorder::of_rebuild`].
    pub fn of_verification(
        args: &VerifyArgs,
        located: &Located,
        chain: &ChainOptions,
    ) -> Result<Option<Self>, Error> {
        let Some(file) = &args.report else { return Ok(None) };
        let options =
            OptionsJson { against_chainstate: args.against_chainstate, ..options(&args.check, chain) };
        Self::new(file, ("verify", options), located, &located.datadir().chainstate_dir()).map(Some)
    }

    fn new(
        file: &Path,
        (command, options): (&'static str, OptionsJson),
        located: &Located,
        chainstate: &Path,
    ) -> Result<Self, Error> {
        // What cannot be written is found out now. No file stays: after an interrupt, the same command must
        // work.
        drop(create_new(file)?);
        let _ = std::fs::remove_file(file);
        let run = Run::of(&located.chain_options()).machine;
        let machine = MachineJson {
            architecture: env::consts::ARCH,
            system: env::consts::OS,
            kernel: run.kernel.as_deref().map(release_numbers),
            cpu: run.cpu,
            cores: run.cores,
            memory_bytes: run.memory_bytes,
            blocks_disk: StorageJson::of(&located.datadir().blocks_dir()),
            chainstate_disk: StorageJson::of(chainstate),
        };
        let (file, started) = (file.to_owned(), Instant::now());
        Ok(Self { file, command, machine, options, started, seen: Mutex::default() })
    }

    /// Writes the report. Returns the line about it, with a newline before it.
    ///
    /// # Errors
    /// [`engine::ErrorKind::Environment`] if it cannot be written.
    pub fn finish(self, outcome: &Outcome<'_>) -> Result<String, Error> {
        let seen = self.seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (rebuild, verification, warnings, error): (_, _, &[Warning], _) = match outcome {
            Outcome::Rebuilt(report) => (Some(RebuildFacts::new(report)), None, &report.notes, None),
            Outcome::Verified(report, network) => {
                (None, Some(VerifyFacts::new(report, *network)), &report.notes, None)
            }
            Outcome::Failed(error) => (None, None, &[], Some(SharedError::new(error))),
        };
        let report = SharedReport {
            schema: SCHEMA,
            command: self.command,
            exit_code: outcome.exit() as u8,
            program: ProgramJson {
                version: env!("CARGO_PKG_VERSION"),
                commit: version::commit(),
                rules_core_version: CORE_VERSION,
                script_core_version: version::script_core_version(),
            },
            machine: self.machine,
            options: self.options,
            progress: seen.progress,
            stages: seen.stages,
            rebuild,
            verification,
            notes: NoteJson::codes(warnings),
            error,
            seconds: self.started.elapsed().as_secs_f64(),
        };
        let mut file = create_new(&self.file)?;
        writeln!(file, "{}", output::json(&report)).map_err(|error| {
            let what = format!("the report cannot be written: {error}");
            Error::new(engine::ErrorKind::Environment, what).in_file(&self.file, None)
        })?;
        Ok(format!("\nto be shared       {} (without names and paths)", self.file.display()))
    }

    /// Records an event.
    pub fn event(&self, event: &Event) {
        let seconds = self.started.elapsed().as_secs_f64();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Started(stage) => seen.stages.push(StageStartJson { stage: stage.name(), seconds }),
            Event::Progress(progress) => {
                let last = seen.progress.last().map_or(0, |point| point.blocks);
                if progress.blocks >= last + (progress.blocks_total / POINTS).max(1) {
                    seen.progress.push(PointJson {
                        seconds,
                        blocks: progress.blocks,
                        bytes: progress.bytes,
                        memory_bytes: engine::resident_bytes(),
                    });
                }
            }
            _ => {}
        }
    }
}

impl Outcome<'_> {
    /// The exit code of the process.
    fn exit(&self) -> Exit {
        match self {
            Self::Rebuilt(_) => Exit::Done,
            Self::Verified(report, _) if report.differs() => Exit::Damaged,
            Self::Verified(..) => Exit::Done,
            Self::Failed(error) => Exit::of(error),
        }
    }
}

impl SharedError {
    fn new(error: &Error) -> Self {
        Self {
            kind: output::error_kind(error),
            height: error.height.map(|height| height.0),
            block_hash: error.block_hash.map(|hash| hash.to_string()),
            txid: error.txid.map(|txid| txid.to_string()),
            input: error.input,
            rule: error.rule,
            core: error.core.as_ref().map(ToString::to_string),
            remedies: error.remedies.iter().map(engine::Remedy::name).collect(),
        }
    }
}

fn options(check: &CheckArgs, chain: &ChainOptions) -> OptionsJson {
    let run = Run::of(chain);
    OptionsJson {
        threads: run.threads,
        memory_bytes: run.memory_bytes,
        assumevalid: run.assumevalid,
        undo: check.undo.name(),
        scan: check.scan,
        work_dir: check.run.work_dir.is_some(),
        stop_at_height: None,
        output: false,
        restart: false,
        hints: false,
        without_undo: false,
        against_chainstate: false,
    }
}

/// Drops from the release of a kernel what a distribution or the user has added: it may be a name.
fn release_numbers(kernel: &str) -> String {
    let release = kernel.trim_start_matches("Linux ");
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(release.len());
    format!("Linux {}", &release[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_release_of_the_kernel_is_left_out() {
        assert_eq!(release_numbers("Linux 6.12.41-alice+rpt-rpi-2712"), "Linux 6.12.41");
        assert_eq!(release_numbers("Linux 6.1"), "Linux 6.1");
    }
}

//! The file of `--report`: what a run did, how long it took, and on what machine, to be sent to the
//! developers. It names no user, no host and no path; what is wrong with a chain is in it as codes only.

use crate::{
    prelude::*,
    progress::{PointJson, Recorder, StageStartJson, State},
    storage::StorageJson,
};
use engine::{CORE_VERSION, reindex::ReindexReport, unfinished, verify::VerifyReport};
use peregrine::{
    output::{self, SCHEMA},
    run_log::{Machine, Run, create_new},
    version,
};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;
use std::env;

json_of! {
/// A run, without names and paths.
pub struct SharedReport(
    run: ReportToShare, state: &State, exit: u8, report: Option<Value>, codes: Vec<Value>, why: Option<Value>
) {
    /// Version of this format, which is that of all JSON.
    schema: u32 = SCHEMA,
    /// `reindex` or `verify`.
    command: &'static str = run.command,
    exit_code: u8 = exit,
    program: ProgramJson = ProgramJson::of(),
    machine: MachineJson = run.machine,
    options: RecordedOptions = run.options,
    /// Blocks and bytes that were done by then, and so the sizes of blocks by height: blocks are checked
    /// nearly in order.
    progress: Vec<PointJson> = state.points.clone(),
    /// When each stage began. `rebuild` has the times of those that run side by side.
    stages: Vec<StageStartJson> = state.stage_starts.clone(),
    #[schemars(schema_with = "shared_schema::<ReindexReport>")]
    rebuild: Option<Value> = report.clone().filter(|_| run.command == "reindex"),
    #[schemars(schema_with = "shared_schema::<VerifyReport>")]
    verification: Option<Value> = report.filter(|_| run.command == "verify"),
    /// Codes of the notes.
    notes: Vec<Value> = codes,
    /// Why the run failed.
    #[schemars(schema_with = "shared_schema::<Error>")]
    error: Option<Value> = why,
    seconds: f64 = state.started.elapsed().as_secs_f64(),
}

struct ProgramJson() {
    version: &'static str = env!("CARGO_PKG_VERSION"),
    commit: Option<&'static str> = version::commit(),
    /// Version of Bitcoin Core whose rules these are.
    rules_core_version: &'static str = CORE_VERSION,
    /// Version of Bitcoin Core whose code runs scripts; `null` if this build runs none.
    script_core_version: Option<&'static str> = version::script_core_version(),
}

struct MachineJson(this: Machine, located: &Located, chainstate: &Path) {
    architecture: &'static str = env::consts::ARCH,
    system: &'static str = env::consts::OS,
    /// The numbers of the kernel's release.
    kernel: Option<String> = this.kernel.as_deref().map(release_numbers),
    cpu: Option<String> = this.cpu,
    cores: Option<usize> = this.cores,
    memory_bytes: Option<u64> = this.memory_bytes,
    /// The disk of the block files.
    blocks_disk: StorageJson = StorageJson::of(&located.datadir().blocks_dir()),
    /// The disk of the new chainstate, or of the old one.
    chainstate_disk: StorageJson = StorageJson::of(chainstate),
}
}

/// How the program was run.
#[derive(Serialize, Default, JsonSchema)]
pub struct RecordedOptions {
    pub threads: usize,
    pub memory_bytes: u64,
    /// A block hash, `0`, `default` or `checked`.
    pub assumevalid: String,
    pub undo: &'static str,
    pub scan: bool,
    pub work_dir: bool,
    /// From here on, the fields are for `reindex` only; `against_chainstate` is for `verify` only.
    pub stop_at_height: Option<u32>,
    pub output: bool,
    pub restart: bool,
    pub hints: bool,
    pub without_undo: bool,
    pub against_chainstate: bool,
}

/// The fields of reports and errors that are left out: paths, and texts that could contain some.
const LEFT_OUT: [&str; 9] =
    ["chainstate", "kept", "notes", "first_differences", "file", "offset", "requirement", "detail", "text"];

/// Returns the part of a report or an error that can be shared.
fn shared(report: &impl Serialize) -> Option<Value> {
    let mut value = serde_json::to_value(report).ok()?;
    let fields = value.as_object_mut()?;
    LEFT_OUT.iter().for_each(|name| drop(fields.remove(*name)));
    Some(value)
}

/// The schema of the part of `T` that can be shared.
fn shared_schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = T::json_schema(generator);
    for part in ["properties", "required"] {
        match schema.get_mut(part) {
            Some(Value::Object(fields)) => fields.retain(|name, _| !LEFT_OUT.contains(&&**name)),
            Some(Value::Array(names)) => {
                names.retain(|name| name.as_str().is_none_or(|name| !LEFT_OUT.contains(&name)));
            }
            _ => {}
        }
    }
    json_schema!({ "anyOf": [schema, { "type": "null" }] })
}

/// A report that is written at the end of a run.
pub struct ReportToShare {
    file: PathBuf,
    command: &'static str,
    machine: MachineJson,
    options: RecordedOptions,
}

impl ReportToShare {
    /// Prepares the report of a run, if one is wanted; `chainstate` is what the run writes or reads.
    ///
    /// # Errors
    /// [`engine::ErrorKind::Environment`] if the file cannot be created.
    pub fn new(
        file: Option<&Path>,
        command: &'static str,
        options: RecordedOptions,
        located: &Located,
        chainstate: &Path,
    ) -> Result<Option<Self>, Error> {
        let Some(file) = file else { return Ok(None) };
        // Finds out now whether the file can be written, and removes it: after an interrupt, the same command
        // must work.
        drop(create_new(file)?);
        let _ = std::fs::remove_file(file);
        let machine = MachineJson::of(Machine::this(), located, chainstate);
        Ok(Some(Self { file: file.to_owned(), command, machine, options }))
    }

    /// Writes the report of the run that has been recorded; `exit` is that of a run that has not failed.
    /// Returns a text with the name of its file, or why it could not be written, which is not an error of the
    /// run. After an interrupt, none is written: the same command must work.
    pub fn write<T: Serialize>(
        self,
        recorder: &Recorder,
        result: Result<&T, &Error>,
        exit: Exit,
    ) -> Option<String> {
        if result.is_err_and(|error| error.kind == engine::ErrorKind::Interrupted) {
            return None;
        }
        let whole = result.ok().and_then(|report| serde_json::to_value(report).ok()).unwrap_or_default();
        let codes = whole.get("notes").and_then(Value::as_array).into_iter().flatten();
        let notes = codes.filter_map(|note| note.get("code").cloned()).collect();
        let (file, exit) = (self.file.clone(), result.map_or_else(Exit::of, |_| exit));
        let (report, error) = (result.ok().and_then(shared), result.err().and_then(shared));
        let report = SharedReport::of(self, &recorder.state(), exit as u8, report, notes, error);
        let text = format!("{}\n", output::json(&report));
        let written = create_new(&file).and_then(|_| {
            Ok(unfinished::write(&RealDisk, &file, text.as_bytes()).inspect_err(|_| {
                // With a file here, the same command would be refused.
                let _ = std::fs::remove_file(&file);
            })?)
        });
        Some(match written {
            Ok(()) => format!("{} (without names and paths)", file.display()),
            Err(error) => format!("nothing, because the report could not be written: {error}"),
        })
    }
}

impl RecordedOptions {
    /// The options that both commands have.
    pub fn of(check: &CheckArgs, chain: &ChainOptions) -> Self {
        let run = Run::of(chain);
        Self {
            threads: run.threads,
            memory_bytes: run.memory_bytes,
            assumevalid: run.assumevalid,
            undo: check.undo.name(),
            scan: check.scan,
            work_dir: check.run.work_dir.is_some(),
            ..Self::default()
        }
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

//! The log of a run: one JSON object per line, so that the rebuild can be plotted afterwards by
//! `peregrine-bench plot` or any other program. One type is both written and read.

use crate::{exit::Exit, output::SCHEMA, remedy, version};
use engine::{AssumeValid, ChainOptions, Error, Event, Stage, hex_reversed, reindex::ReindexReport};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    env, fmt,
    fs::{self, File},
    io::{self, BufWriter, Write},
    num::NonZeroUsize,
    path::Path,
    sync::{Mutex, OnceLock},
    thread,
    time::Instant,
};

/// One line of the log. `seconds` count from the start of the run. Fields and names are stable; readers must
/// skip events and fields that they do not know.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line {
    /// The first line.
    Start {
        version: String,
        /// Everything else that is known when it starts; absent in logs of older versions.
        #[serde(flatten, default)]
        run: Option<Box<Run>>,
    },
    /// A stage begins.
    Stage { seconds: f64, stage: String },
    /// The plan is made.
    Plan {
        seconds: f64,
        /// Height of the last block of the chain that will be rebuilt.
        height: u32,
        /// Hash of that block, as Bitcoin Core prints it.
        #[serde(rename = "block_hash", alias = "hash")]
        hash: String,
        /// Upper bound of the bytes of blocks that will be read.
        block_bytes: u64,
    },
    /// The memory limit is divided.
    Memory {
        seconds: f64,
        /// What it is for, in bytes.
        #[serde(flatten)]
        parts: BTreeMap<String, u64>,
    },
    /// Blocks have been checked.
    Progress {
        seconds: f64,
        /// Number of blocks checked.
        blocks: u32,
        /// Number of blocks of the chain.
        blocks_total: u32,
        /// Bytes of blocks checked.
        bytes: u64,
        /// Bytes of blocks of the chain, or an upper bound.
        bytes_total: u64,
        /// Resident memory of the process; `None` where the system does not report it.
        memory_bytes: Option<u64>,
    },
    /// Something the user should know.
    Note { seconds: f64, text: String },
    /// The last line, also of a run that failed.
    End {
        seconds: f64,
        /// Exit code of the process; `None` in logs of older versions.
        #[serde(default)]
        exit_code: Option<u8>,
        /// Hash of the UTXO set; `None` if the run failed.
        #[serde(default)]
        hash_serialized_3: Option<String>,
    },
}

/// A run, as far as it is known when it starts.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Run {
    /// Version of this format.
    pub schema: u32,
    /// Commit of the program's source; `None` if it was not known when it was compiled.
    pub commit: Option<String>,
    /// The command line, with the program.
    pub arguments: Vec<String>,
    pub machine: Machine,
    /// Number of worker threads.
    pub threads: usize,
    /// The memory budget, in bytes.
    pub memory_bytes: u64,
    /// The assumed-valid block: a hash, `0` for none, `default`, or `checked`: what the block index marks.
    pub assumevalid: String,
}

/// A machine, as far as the system describes it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Machine {
    /// Name of the processor.
    pub cpu: Option<String>,
    /// Number of processors that this process may use.
    pub cores: Option<usize>,
    /// Memory of the machine, or what this process may use of it, in bytes.
    pub memory_bytes: Option<u64>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// The file system of the blocks, such as `ext4`.
    pub filesystem: Option<String>,
}

impl Run {
    /// Describes this process, whose job has these options. The file system is left to the caller.
    pub fn of(options: &ChainOptions) -> Self {
        Self {
            schema: SCHEMA,
            commit: version::commit().map(str::to_owned),
            arguments: env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            machine: Machine::this(),
            threads: options.threads.get(),
            memory_bytes: options.memory_bytes,
            assumevalid: match &options.assume_valid {
                AssumeValid::Block(hash) => hash.to_string(),
                AssumeValid::Off => "0".to_owned(),
                AssumeValid::Checked => "checked".to_owned(),
                AssumeValid::Default => "default".to_owned(),
            },
        }
    }
}

impl Machine {
    /// Describes the machine of this process. The file system is left to the caller.
    pub fn this() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu_line = |name| cpus.lines().find_map(|line: &str| line.strip_prefix(name)?.split_once(": "));
        // ARM's kernel has no names of processors, but that of the board, such as a Raspberry Pi's.
        let cpu = cpu_line("model name").or_else(|| cpu_line("Model"));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Self {
            cpu: cpu.map(|(_, name)| name.trim().to_owned()),
            cores: thread::available_parallelism().ok().map(NonZeroUsize::get),
            memory_bytes: engine::machine::total_memory_bytes(),
            kernel: kernel.map(|release| format!("Linux {}", release.trim())),
            filesystem: None,
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.cpu.clone(),
            self.cores.map(|cores| format!("{cores} cores")),
            self.memory_bytes.map(|bytes| format!("{:.0} GiB", bytes as f64 / f64::from(1 << 30))),
            self.kernel.clone(),
            self.filesystem.clone(),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// Writes the events of a run to a file. If the log can no longer be written, the run continues.
pub struct RunLog {
    file: Mutex<BufWriter<File>>,
    started: Instant,
    /// When all blocks were checked, in seconds from the start.
    checked: OnceLock<f64>,
}

impl RunLog {
    /// Creates a log and writes its first line.
    ///
    /// # Errors
    /// [`engine::ErrorKind::Environment`] if the file already exists or cannot be created.
    pub fn create(path: &Path, run: Run) -> Result<Self, Error> {
        let file = Mutex::new(BufWriter::new(create_new(path)?));
        let log = Self { file, started: Instant::now(), checked: OnceLock::new() };
        let (version, run) = (env!("CARGO_PKG_VERSION").to_owned(), Some(Box::new(run)));
        log.write(&Line::Start { version, run });
        Ok(log)
    }

    /// Writes an event, unless it is of a kind that the log does not contain.
    pub fn event(&self, event: &Event) {
        let seconds = self.seconds();
        if matches!(event, Event::Started(Stage::Finish)) {
            let _ = self.checked.set(seconds);
        }
        let line = match event {
            Event::Started(stage) => Line::Stage { seconds, stage: stage.name().to_owned() },
            Event::Planned { height, hash, block_bytes, .. } => {
                Line::Plan { seconds, height: height.0, hash: hash.to_string(), block_bytes: *block_bytes }
            }
            Event::Memory(table) => {
                let parts = table.map(|(name, bytes)| (format!("{name}_bytes"), bytes));
                Line::Memory { seconds, parts: parts.into() }
            }
            Event::Progress(progress) => Line::Progress {
                seconds,
                blocks: progress.blocks,
                blocks_total: progress.blocks_total,
                bytes: progress.bytes,
                bytes_total: progress.bytes_total,
                memory_bytes: engine::machine::resident_bytes(),
            },
            Event::Note(note) => Line::Note { seconds, text: remedy::note_text(note) },
            Event::Warning(warning) => Line::Note { seconds, text: remedy::warning_text(warning) },
            _ => return,
        };
        self.write(&line);
    }

    /// Writes the last lines. If the run succeeded, one of them records when all blocks were checked: the
    /// engine reports progress only a few times a second.
    pub fn close(&self, report: Result<&ReindexReport, &Error>) {
        if let Some((report, &seconds)) = report.ok().zip(self.checked.get()) {
            let (blocks, bytes) = (report.height.0.saturating_add(1), report.counts.block_bytes);
            self.write(&Line::Progress {
                seconds,
                blocks,
                blocks_total: blocks,
                bytes,
                bytes_total: bytes,
                memory_bytes: None,
            });
        }
        self.write(&Line::End {
            seconds: self.seconds(),
            exit_code: Some(report.map_or_else(Exit::of, |_| Exit::Done) as u8),
            hash_serialized_3: report.ok().map(|report| hex_reversed(&report.hash_serialized_3)),
        });
    }

    fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn write(&self, line: &Line) {
        let (Ok(mut file), Ok(text)) = (self.file.lock(), serde_json::to_string(line)) else { return };
        let _ = writeln!(file, "{text}").and_then(|()| file.flush());
    }
}

/// Creates a file that must not exist yet, so that measurements are never overwritten.
///
/// # Errors
/// [`engine::ErrorKind::Environment`] if it already exists or cannot be created.
pub fn create_new(path: &Path) -> Result<File, Error> {
    File::create_new(path).map_err(|error| {
        let help = match error.kind() {
            io::ErrorKind::AlreadyExists => "remove it or choose another file",
            io::ErrorKind::NotFound => "create its directory or choose another file",
            _ => "choose another file",
        };
        Error::environment(format!("cannot be created: {error}; {help}")).in_file(path, None)
    })
}

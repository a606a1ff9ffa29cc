//! The log of a run: one JSON object per line, so that the rebuild can be plotted afterwards by
//! `peregrine-bench plot` or any other program. One type is both written and read.

use crate::remedy;
use engine::{Error, ErrorKind, Event, ReindexReport, Stage};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    sync::{Mutex, OnceLock},
    time::Instant,
};

/// One line of the log. `seconds` count from the start of the run. Fields and names are stable; readers must
/// skip events and fields that they do not know.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line {
    /// The first line.
    Start {
        /// Version of the program.
        version: String,
    },
    /// A stage begins.
    Stage {
        /// Time since the start.
        seconds: f64,
        /// Name of the stage.
        stage: String,
    },
    /// The plan is made.
    Plan {
        /// Time since the start.
        seconds: f64,
        /// Height of the last block of the chain that will be rebuilt.
        height: u32,
        /// Hash of that block, as Bitcoin Core prints it.
        hash: String,
        /// Upper bound of the bytes of blocks that will be read.
        block_bytes: u64,
    },
    /// Blocks have been checked.
    Progress {
        /// Time since the start.
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
    Note {
        /// Time since the start.
        seconds: f64,
        /// The note.
        text: String,
    },
    /// The last line, also of a run that failed.
    End {
        /// Time since the start.
        seconds: f64,
    },
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
    /// [`ErrorKind::Environment`] if the file already exists or cannot be created.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let file = create_new(path)?;
        let file = Mutex::new(BufWriter::new(file));
        let log = Self { file, started: Instant::now(), checked: OnceLock::new() };
        log.write(&Line::Start { version: env!("CARGO_PKG_VERSION").to_owned() });
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
            Event::Progress(progress) => Line::Progress {
                seconds,
                blocks: progress.blocks,
                blocks_total: progress.blocks_total,
                bytes: progress.bytes,
                bytes_total: progress.bytes_total,
                memory_bytes: engine::resident_bytes(),
            },
            Event::Note(note) => Line::Note { seconds, text: remedy::note_text(note) },
            Event::Warning(warning) => Line::Note { seconds, text: remedy::warning_text(warning) },
            _ => return,
        };
        self.write(&line);
    }

    /// Writes the last lines. If the run succeeded, one of them records when all blocks were checked: the
    /// engine reports progress only a few times a second.
    pub fn close(&self, report: Option<&ReindexReport>) {
        if let Some((report, &seconds)) = report.zip(self.checked.get()) {
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
        self.write(&Line::End { seconds: self.seconds() });
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
/// [`ErrorKind::Environment`] if it already exists or cannot be created.
pub fn create_new(path: &Path) -> Result<File, Error> {
    File::create_new(path).map_err(|error| {
        let what = format!("cannot be created: {error}; remove it or choose another file");
        Error::new(ErrorKind::Environment, what).in_file(path, None)
    })
}

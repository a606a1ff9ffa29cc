//! A note in the datadir of which command has begun, so that `doctor` can print the one that resumes it, with
//! its work directory.
//!
//! It has the words of the command, not a line for a shell, and is read only if that command can resume: a
//! datadir can come from somebody else.

use engine::{ChainOptions, Datadir, Disk as _, RealDisk, unfinished};
use peregrine::shell;
use serde::{Deserialize, Serialize};
use std::{
    env, fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

/// Its name, in the directory of the network.
const NAME: &str = "peregrine-command";
/// Name of the directory that a run makes in the work directory, and of the checkpoint there.
const CHECKPOINT: &str = "peregrine-work/manifest";
/// Its maximum length in bytes.
const MAX_LEN: u64 = 1 << 20;
/// The commands that save checkpoints for a result in the datadir.
const RESUMABLE: [&str; 3] = ["reindex", "repair", "sync"];

/// A command that was interrupted after it had saved a checkpoint.
#[derive(Serialize, Deserialize)]
pub struct RunNote {
    /// The work directory.
    pub work_dir: PathBuf,
    /// The directory in which the command ran, if a path in an option may depend on it.
    directory: Option<String>,
    /// The words after the program.
    words: Vec<String>,
}

impl RunNote {
    /// The note of the command that this process runs, unless its checkpoint is for another place.
    fn of_this(datadir: &Datadir, options: &ChainOptions) -> Option<Self> {
        let words = env::args_os().skip(1).map(|word| word.into_string());
        let mut words: Vec<String> = words.collect::<Result<_, _>>().ok()?;
        words.retain(|word| word != "--restart");
        // The file of the log exists already, and that of the report may.
        for name in ["--log", "--report"] {
            while let Some(at) = words.iter().position(|word| word == name) {
                words.drain(at..words.len().min(at + 2));
            }
            words.retain(|word| !word.starts_with(&format!("{name}=")));
        }
        if words.iter().any(|word| word.starts_with("--output")) {
            return None;
        }
        let here = env::current_dir().ok()?;
        let chainstate = datadir.chainstate_dir();
        let chainstate = RealDisk.resolve(&chainstate).unwrap_or(chainstate);
        let beside = chainstate.parent().unwrap_or(Path::new(""));
        let work_dir = here.join(options.work_dir.as_deref().unwrap_or(beside));
        let is_relative = |word: &String| {
            let path = Path::new(word.rsplit('=').next().unwrap_or_default());
            path.is_relative() && path.exists()
        };
        let directory = words.iter().any(is_relative).then(|| here.display().to_string());
        let note = Self { work_dir, directory, words };
        note.command().is_some().then_some(note)
    }

    /// Returns the note in a datadir, if the checkpoint is still there.
    pub fn read(datadir: &Datadir) -> Option<Self> {
        let text = RealDisk.read(&datadir.net_dir().join(NAME), MAX_LEN).ok()?;
        let note: Self = serde_json::from_slice(&text).ok()?;
        let is_plain = |word: &String| !word.contains(char::is_control);
        let is_safe = note.words.iter().chain(&note.directory).all(is_plain) && note.command().is_some();
        (is_safe && note.work_dir.join(CHECKPOINT).exists()).then_some(note)
    }

    /// The name of the command, such as `reindex`, if it is one that resumes.
    pub fn command(&self) -> Option<&'static str> {
        RESUMABLE.into_iter().find(|name| self.words.first().is_some_and(|word| word == name))
    }

    /// Whether it is a command with these words, of which the first is its name. Options may have other
    /// values.
    pub fn does(&self, words: &[String]) -> bool {
        let name = |word: &str| word.split('=').next().map(str::to_owned);
        let has = |word: &String| self.words.iter().any(|own| name(own) == name(word));
        self.command().is_some() && words.first() == self.words.first() && words.iter().all(has)
    }

    /// The command as a line for a shell.
    pub fn line(&self) -> String {
        let words = ["peregrine".to_owned()].into_iter().chain(self.words.iter().cloned());
        let line = shell::command_line(words);
        match &self.directory {
            Some(dir) => format!("cd {} && {line}", shell::command_line([dir.clone()].into_iter())),
            None => line,
        }
    }
}

/// Keeps the note of the running command as long as it has a checkpoint. A note about another work directory
/// stays, because the files there still take space.
pub struct NoteKeeper {
    note: RunNote,
    datadir: Datadir,
    is_written: AtomicBool,
}

impl NoteKeeper {
    /// `None` if the command of this process does not resume.
    pub fn new(options: &ChainOptions) -> Option<Self> {
        let datadir = Datadir::new(&options.location());
        let note = RunNote::of_this(&datadir, options)?;
        Some(Self { note, datadir, is_written: AtomicBool::new(false) })
    }

    fn path(&self) -> PathBuf {
        self.datadir.net_dir().join(NAME)
    }

    /// Writes the note, when the work begins: the datadir is locked then, a checkpoint that is there is this
    /// run's, and nothing else is saved yet.
    pub fn begin(&self) {
        let Self { note, datadir, is_written } = self;
        let is_free = RunNote::read(datadir).is_none_or(|old| old.work_dir == note.work_dir);
        // A datadir can come from somebody else, and a link lead to any file.
        let is_link = RealDisk.is_link(&self.path()).unwrap_or(true);
        if is_free && !is_link && !is_written.swap(true, Ordering::Relaxed) {
            // It is only a help: without it, the user has to know the command.
            let _ = self.write();
        }
    }

    fn write(&self) -> io::Result<()> {
        let path = self.path();
        unfinished::write(&RealDisk, &path, &serde_json::to_vec(&self.note)?).map_err(io::Error::other)?;
        let mut ownership = RealDisk.ownership(self.datadir.net_dir())?;
        ownership.mode = RealDisk.ownership(&path)?.mode;
        RealDisk.set_ownership(&path, ownership)
    }

    /// Removes the note, unless the run can be resumed. Returns what to say if that is not possible.
    pub fn end(&self) -> Option<String> {
        let is_over = !self.note.work_dir.join(CHECKPOINT).exists();
        if !is_over || !self.is_written.load(Ordering::Relaxed) {
            return None;
        }
        let error = fs::remove_file(self.path()).err().filter(|error| error.kind() != ErrorKind::NotFound)?;
        Some(format!("{}: cannot be removed: {error}; the next run removes it", self.path().display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_does_what_its_options_are_for() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let text = "reindex --datadir d --scan --prune 600M";
        let note = RunNote { work_dir: PathBuf::new(), directory: None, words: words(text) };
        for (advised, is_done) in [
            ("reindex", true),
            ("reindex --scan", true),
            ("reindex --prune=550M", true),
            ("reindex --accept-lower-tip", false),
            ("repair --scan", false),
        ] {
            assert_eq!(note.does(&words(advised)), is_done, "{advised}");
        }
    }
}

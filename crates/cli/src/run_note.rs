//! A note in the datadir of which command has begun, so that `doctor` can print the one that resumes it, with
//! its work directory.

use engine::{ChainOptions, Datadir, Disk as _, RealDisk};
use peregrine::{running, shell};
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Its name, in the directory of the network.
const NAME: &str = "peregrine-command";
/// Name of the directory that a run makes in the work directory, and of the checkpoint there.
const CHECKPOINT: &str = "peregrine-work/manifest";
/// The commands that save checkpoints for a result in the datadir.
const RESUMABLE: [&str; 4] = ["reindex", "repair", "sync", "undo make"];

/// A command that was interrupted after it had saved a checkpoint.
pub struct RunNote {
    /// The work directory.
    pub work_dir: PathBuf,
    /// The name of the command, such as `reindex`.
    pub command: String,
    /// The command as a line for a shell.
    pub line: String,
}

impl RunNote {
    /// The note of the command that this process runs, unless its checkpoint is for another place.
    fn of_this(datadir: &Datadir, options: &ChainOptions) -> Option<Self> {
        let command = running::command().filter(|name| RESUMABLE.contains(name))?.to_owned();
        let words: Vec<String> = env::args().filter(|word| word != "--restart").collect();
        if words.iter().any(|word| word.starts_with("--output")) {
            return None;
        }
        let here = env::current_dir().ok()?;
        let chainstate = datadir.chainstate_dir();
        let chainstate = RealDisk.resolve(&chainstate).unwrap_or(chainstate);
        let beside = chainstate.parent().unwrap_or(Path::new(""));
        let work_dir = here.join(options.work_dir.as_deref().unwrap_or(beside));
        // A path in an option may depend on the directory in which the command ran.
        let is_relative = |word: &String| {
            let path = Path::new(word.rsplit('=').next().unwrap_or_default());
            path.is_relative() && path.exists()
        };
        let line = shell::command_line(words.iter().cloned());
        let line = match words.iter().any(is_relative) {
            true => format!("cd {} && {line}", shell::command_line([here.display().to_string()].into_iter())),
            false => line,
        };
        Some(Self { work_dir, command, line })
    }

    /// Returns the note in a datadir, if the checkpoint is still there.
    pub fn read(datadir: &Datadir) -> Option<Self> {
        let text = fs::read_to_string(datadir.net_dir().join(NAME)).ok()?;
        let mut lines = text.lines().map(str::to_owned);
        let work_dir = lines.next().filter(|dir| Path::new(dir).join(CHECKPOINT).exists())?.into();
        Some(Self { work_dir, command: lines.next()?, line: lines.next()? })
    }

    fn write(&self, datadir: &Datadir) {
        let Self { work_dir, command, line } = self;
        // It is only a help: without it, the user has to know the command.
        let _ =
            fs::write(datadir.net_dir().join(NAME), format!("{}\n{command}\n{line}\n", work_dir.display()));
    }
}

/// Runs `call`, and keeps a note of the command as long as there is a checkpoint of it. One of another work
/// directory stays: what is there is of no more use, but takes space.
pub fn noting<T>(options: &ChainOptions, call: impl FnOnce() -> T) -> T {
    let datadir = Datadir::new(&options.location());
    let Some(note) = RunNote::of_this(&datadir, options) else { return call() };
    let is_free = RunNote::read(&datadir).is_none_or(|old| old.work_dir == note.work_dir);
    if is_free {
        note.write(&datadir);
    }
    let done = call();
    if is_free && note.work_dir.join(CHECKPOINT).exists() {
        note.write(&datadir);
    } else if is_free {
        let _ = fs::remove_file(datadir.net_dir().join(NAME));
    }
    done
}

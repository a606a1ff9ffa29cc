//! A note in the datadir of which command has begun, so that `doctor` can print the one that resumes it, with
//! its work directory.
//!
//! A datadir can come from somebody else, or be a copy. So the note has the words of the command, not a line
//! for a shell, and none that choose a datadir: `doctor` adds those of the one that it examines. It counts
//! only in the directory in which it was written.

use crate::core_args::accept_core_spelling;
use engine::{ChainOptions, Datadir, Disk as _, RealDisk, unfinished};
use serde::{Deserialize, Serialize};
use std::{
    env,
    ffi::OsString,
    fs,
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
/// Options that a note leaves out: those that choose the datadir and the chain, and those that would keep the
/// command from resuming, as the file of the log exists already, and that of the report may.
const LEFT_OUT: [&str; 11] = [
    "--blocksdir",
    "--chain",
    "--conf",
    "--datadir",
    "--log",
    "--noconf",
    "--report",
    "--restart",
    "--signetchallenge",
    "--test",
    "--testactivationheight",
];
/// Options whose values can be paths, besides the work directory.
const PATHS: [&str; 3] = ["--block", "--from", "--hints"];
/// Options that a command advised as the next one may take from a note. None makes a chainstate end below the
/// old one's best block, where `--to` alone is refused; and what is assumed to be valid was decided when the
/// checkpoint was written.
const ADVISED: [&str; 29] = [
    "--addnode",
    "--aggregate",
    "--assumevalid",
    "--checkpoint-every",
    "--connect",
    "--dnsseed",
    "--engine",
    "--fixedseeds",
    "--hints",
    "--i2psam",
    "--index",
    "--json",
    "--keep-old",
    "--max-download-rate",
    "--memory",
    "--on-hint-failure",
    "--onlynet",
    "--peers",
    "--progress",
    "--proxy",
    "--prune",
    "--scan",
    "--threads",
    "--to",
    "--undo",
    "--v2transport",
    "--wait",
    "--without-undo",
    "--work-dir",
];

/// A command that was interrupted after it had saved a checkpoint.
#[derive(Clone, Serialize, Deserialize)]
pub struct RunNote {
    /// The work directory.
    pub work_dir: PathBuf,
    /// The directory of the network, without symbolic links.
    net_dir: PathBuf,
    /// The words after the program, as [`resuming`] returns them.
    words: Vec<String>,
}

/// Returns the words of a command line that resume it on a datadir that is to be named; `None` if the command
/// does not resume, or if its result is elsewhere.
fn resuming(words: impl Iterator<Item = OsString>) -> Option<Vec<String>> {
    let mut resuming: Vec<String> = Vec::new();
    let mut is_kept = true;
    for word in accept_core_spelling(words) {
        let word = word.into_string().ok().filter(|word| !word.contains(char::is_control))?;
        let (name, value) = match word.split_once('=') {
            Some((name, value)) if word.starts_with("--") => (name, Some(value)),
            _ => (&*word, None),
        };
        if name.starts_with("--output") || value.is_some_and(|value| value.starts_with('-')) {
            return None;
        }
        is_kept = if name.starts_with('-') { !LEFT_OUT.contains(&name) } else { is_kept };
        resuming.extend([Some(name), value].into_iter().flatten().filter(|_| is_kept).map(str::to_owned));
    }
    let is_resumable = resuming.first().is_some_and(|command| RESUMABLE.contains(&&**command));
    is_resumable.then_some(resuming)
}

impl RunNote {
    /// The note of the command that this process runs, unless its checkpoint is for another place.
    fn of_this(datadir: &Datadir, options: &ChainOptions) -> Option<Self> {
        let mut words = resuming(env::args_os().skip(1))?;
        let here = env::current_dir().ok()?;
        let mut option = String::new();
        for word in &mut words {
            let path = here.join(&*word);
            if option == "--work-dir" || PATHS.contains(&&*option) && path.exists() {
                *word = path.into_os_string().into_string().ok()?;
            }
            option.clone_from(word);
        }
        let chainstate = datadir.chainstate_dir();
        let chainstate = RealDisk.resolve(&chainstate).unwrap_or(chainstate);
        let beside = chainstate.parent().unwrap_or(Path::new(""));
        let work_dir = here.join(options.work_dir.as_deref().unwrap_or(beside));
        Some(Self { work_dir, net_dir: PathBuf::new(), words })
    }

    /// Returns the note in a datadir, if it was written there, and its checkpoint still exists.
    pub fn read(datadir: &Datadir) -> Option<Self> {
        let text = RealDisk.read(&datadir.net_dir().join(NAME), MAX_LEN).ok()?;
        let note: Self = serde_json::from_slice(&text).ok()?;
        let words = resuming(note.words.into_iter().map(OsString::from))?;
        let is_here = RealDisk.resolve(datadir.net_dir()).is_ok_and(|dir| dir == note.net_dir);
        (is_here && note.work_dir.join(CHECKPOINT).exists()).then_some(Self { words, ..note })
    }

    /// Removes the note in a datadir, unless its checkpoint still exists.
    pub fn remove_if_over(datadir: &Datadir) {
        if Self::read(datadir).is_none() {
            // Nothing depends on it: the next run replaces what is left.
            let _ = fs::remove_file(datadir.net_dir().join(NAME));
        }
    }

    /// Whether it is a command with these words, of which the first is its name, and with no others that
    /// would surprise a user who has not seen them. Options may have other values. Any of them ends with a
    /// rebuild, which another command would refuse beside its checkpoint.
    pub fn does(&self, words: &[String]) -> bool {
        let name = |word: &str| word.split('=').next().map(str::to_owned);
        let has = |words: &[String], word: &str| words.iter().any(|own| name(own) == name(word));
        let is_expected =
            |own: &String| !own.starts_with('-') || ADVISED.contains(&&**own) || has(words, own);
        (words.first() == self.words.first() || words == ["reindex"])
            && words.iter().skip(1).all(|word| has(&self.words, word))
            && self.words.iter().all(is_expected)
    }

    /// The words of the command, to be followed by those that name the datadir.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(|word| &**word)
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
        let note = RunNote { net_dir: RealDisk.resolve(self.datadir.net_dir())?, ..self.note.clone() };
        unfinished::write(&RealDisk, &path, &serde_json::to_vec(&note)?).map_err(io::Error::other)?;
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

    fn words(text: &str) -> impl Iterator<Item = String> {
        text.split(' ').map(str::to_owned)
    }

    fn note(text: &str) -> Option<RunNote> {
        let words = resuming(words(text).map(OsString::from))?;
        Some(RunNote { work_dir: PathBuf::new(), net_dir: PathBuf::new(), words })
    }

    #[test]
    fn a_command_does_what_its_options_are_for() {
        let note = note("reindex --datadir d --scan --prune 600M").unwrap();
        for (advised, is_done) in [
            ("reindex", true),
            ("reindex --scan", true),
            ("reindex --prune=550M", true),
            ("reindex --accept-lower-tip", false),
            ("repair --scan", false),
        ] {
            assert_eq!(note.does(&words(advised).collect::<Vec<_>>()), is_done, "{advised}");
        }
    }

    /// `doctor` advised a `reindex`, which refuses the checkpoint of the download.
    #[test]
    fn a_download_does_the_rebuild_that_is_advised() {
        let rebuild = ["reindex".to_owned()];
        assert!(note("sync --datadir d --prune 550M").unwrap().does(&rebuild));
        assert!(!note("sync --reconsider").unwrap().does(&rebuild));
        assert!(!note("sync").unwrap().does(&["reindex", "--scan"].map(str::to_owned)));
    }

    /// In a datadir of somebody else, a forged note once made `doctor` advise this for another datadir.
    #[test]
    fn a_note_neither_names_a_datadir_nor_lowers_a_chainstate_unseen() {
        for named in ["--datadir /x", "-datadir=/x", "--datadir=/x", "--conf c --blocksdir=/x", "--regtest"] {
            let note = note(&format!("reindex {named} --memory=1G --from b --restart")).unwrap();
            let kept: Vec<_> = note.words().collect();
            assert_eq!(kept, ["reindex", "--memory", "1G", "--from", "b"], "{named}");
            assert!(!note.does(&["reindex".to_owned()]), "{named}");
        }
        for elsewhere in ["--output /x", "--output=/x", "--json=--datadir=/x", "--json=-datadir=/x"] {
            assert!(note(&format!("reindex {elsewhere}")).is_none(), "{elsewhere}");
        }
        let lower = words("reindex --scan --accept-lower-tip").collect::<Vec<_>>();
        assert!(note("reindex --accept-lower-tip --scan").unwrap().does(&lower), "it is advised");
    }
}

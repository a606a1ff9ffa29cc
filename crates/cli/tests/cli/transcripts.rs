//! What commands print, word for word. The consoles in `transcripts` and in the pages are run, line by line,
//! and what is printed is compared; `SNAPSHOTS=overwrite` accepts what has changed, and `TRANSCRIPTS=hints`
//! runs only the files with that in their name.
//!
//! A console is a block of Markdown that begins with ` ```console given small as node `: it starts in a new
//! folder, in which the datadir `small` of [`datadirs`] is called `node`. It may be damaged in a way of
//! [`datadirs::damage`]: `given small as node with rev: one missing`. A console without `given` goes on in
//! the folder of the one before it. In it,
//!
//! - a line that begins with `$ ` is run by `sh`; it goes on after a `\` at its end, and with `> `,
//! - a line like `# damage node: rev: one missing` damages a datadir,
//! - all else is what is printed, to both streams, and `exit code 4` if that is not 0.
//!
//! The folder is called `DIR`, the time `TIME`, what differs from run to run is `[..]`, and `...` stands for
//! any lines. Each JSON object is printed with a line for each field, and must match its schema in
//! `docs/json`.

use crate::common::schemas::Schemas;
use crate::prelude::*;
use snapbox::{Assert, Data, assert::DEFAULT_ACTION_ENV, data::DataFormat};

/// Fields of JSON objects that differ from run to run, or from machine to machine.
const VOLATILE: &[&str] = &[
    "bound_by",
    "bytes_per_second",
    "bytes_per_second_and_core",
    "commit",
    "download_seconds",
    "free_bytes",
    "is_busy",
    "machine",
    "memory_budget_bytes",
    "memory_bytes",
    "peak_memory_bytes",
    "per_second",
    "pid",
    "program",
    "progress",
    "rebuild_scripts_seconds_most",
    "rebuild_seconds_estimate",
    "rebuild_seconds_least",
    "rebuild_seconds_most",
    "sample_bytes_per_second",
    "seconds",
    "seconds_remaining",
    "sha256_limit",
    "threads",
    "time",
    "user",
];

/// Beginnings of lines of text of which the rest differs in the same way.
const VOLATILE_LINES: &[&str] = &[
    "time               ",
    "                   plan ",
    "peak memory        ",
    "commit       ",
    "owner              ",
];

/// Beginnings of lines in which only times and free space differ.
const VOLATILE_AMOUNTS: &[&str] = &["rebuild  ", "                   about ", "disk space  ", "checked by  "];

/// Their units.
const UNITS: &[&str] = &["s", "min", "h", "MB", "GB", "TB"];

/// Runs the consoles of a file.
struct Runner<'a> {
    schemas: &'a Schemas,
    /// The folder of the last console.
    dir: TempDir,
}

impl Runner<'_> {
    /// Returns the text of a file with what its commands print now.
    fn run_all(&mut self, text: &str) -> String {
        let mut shown = String::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            shown.extend([line, "\n"]);
            let Some(about) = line.strip_prefix("```console") else { continue };
            if let Some(given) = about.strip_prefix(" given ") {
                self.dir = TempDir::new().unwrap();
                given.split(", ").for_each(|given| self.give(given));
            }
            while let Some(line) = lines.next_if(|line| *line != "```") {
                if let Some(damage) = line.strip_prefix("# damage ") {
                    let (name, damage) = damage.split_once(": ").unwrap();
                    datadirs::damage(&self.dir.path().join(name), damage);
                    shown.extend([line, "\n"]);
                } else if let Some(first) = line.strip_prefix("$ ") {
                    let mut command = first.to_owned();
                    shown.extend(["$ ", first, "\n"]);
                    while let Some(more) = lines.next_if(|line| goes_on(&command, line)) {
                        command.extend(["\n", more.strip_prefix("> ").unwrap_or(more)]);
                        shown.extend([more, "\n"]);
                    }
                    shown += &self.run(&command);
                }
            }
        }
        shown
    }

    /// Makes what `small as node` says, or `small as node with DAMAGE`; `nothing` is an empty folder.
    fn give(&self, given: &str) {
        if let Some((datadir, name)) = given.split_once(" as ") {
            let (name, damage) = name.split_once(" with ").unwrap_or((name, "nothing"));
            datadirs::write(datadir, &self.dir.path().join(name));
            datadirs::damage(&self.dir.path().join(name), damage);
        } else {
            assert_eq!(given, "nothing");
        }
    }

    fn run(&self, line: &str) -> String {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut command = shell(line);
        command.current_dir(self.dir.path()).env("HOME", self.dir.path()).env("LC_ALL", "C");
        command.env_remove("PEREGRINE_SHA256").env_remove("CLICOLOR_FORCE");
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        let code = child.wait().unwrap().code().unwrap();
        let dir = self.dir.path().display().to_string();
        let text = String::from_utf8_lossy(&bytes).replace(&dir, "DIR");
        let lines = text.lines().filter(|line| !is_progress(line));
        let mut shown: String = lines.map(|line| self.shown(line) + "\n").collect();
        if code != 0 {
            shown += &format!("exit code {code}\n");
        }
        shown
    }

    /// Returns a line, or the lines of a JSON object, without what differs from run to run.
    fn shown(&self, line: &str) -> String {
        if let Ok(mut object @ Value::Object(_)) = serde_json::from_str(line) {
            if object.get("schema").or(object.get("event")).is_some() {
                self.schemas.check(&object);
            }
            hide(&mut object);
            object.sort_all_objects();
            return serde_json::to_string_pretty(&object).unwrap();
        }
        shown_text(line)
    }
}

fn goes_on(command: &str, line: &str) -> bool {
    command.ends_with('\\') || line.starts_with("> ")
}

/// Returns a line of text without what differs from run to run.
fn shown_text(line: &str) -> String {
    if let Some(start) = VOLATILE_LINES.iter().find(|start| line.starts_with(*start)) {
        return format!("{start}[..]");
    }
    if line.get(4..5) == Some("-") && line.get(19..20) == Some("Z") {
        return format!("TIME{}", &line[20..]);
    }
    if !VOLATILE_AMOUNTS.iter().any(|start| line.starts_with(start)) {
        return line.to_owned();
    }
    let mut words: Vec<&str> = line.split(' ').collect();
    for at in 1..words.len() {
        let unit = words[at].trim_end_matches([',', ';']);
        if words[at - 1].parse::<f64>().is_ok() && UNITS.contains(&unit) {
            words[at - 1] = "[..]";
        }
    }
    words.join(" ").replace("; the machine is busy now, which makes it longer", "")
}

/// Whether a line is about how much of a stage is done, which is told every few seconds.
fn is_progress(line: &str) -> bool {
    line.starts_with(r#"{"event":"progress""#)
        || line.get(19..20) == Some("Z") && (line.contains(" % ") || line.contains(" since the start"))
}

/// Hides the values that differ from run to run.
fn hide(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| {
            let is_kernel = name == "sha256" && value.as_str().is_some_and(|name| name.len() < 64);
            if (VOLATILE.contains(&name.as_str()) || is_kernel) && !value.is_null() {
                *value = "[..]".into();
            } else {
                hide(value);
            }
        }),
        Value::Array(items) => items.iter_mut().for_each(hide),
        _ => {}
    }
}

/// Runs the consoles of these files, two files at a time. Returns the names of the commands of which reports
/// were seen.
fn check(files: Vec<PathBuf>) -> BTreeSet<String> {
    let wanted = std::env::var("TRANSCRIPTS").unwrap_or_default();
    let is_wanted = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().contains(&wanted);
    let (schemas, flaws) = (Schemas::read(), Mutex::new(Vec::new()));
    let waiting = Mutex::new(files.into_iter().filter(is_wanted));
    let assert = Assert::new().action_env(DEFAULT_ACTION_ENV).normalize_paths(false);
    let work = || {
        while let Some(path) = { waiting.lock().unwrap().next() } {
            let text = fs::read_to_string(&path).unwrap();
            let mut runner = Runner { schemas: &schemas, dir: TempDir::new().unwrap() };
            let shown = Data::text(runner.run_all(&text));
            let expected = Data::read_from(&path, Some(DataFormat::Text));
            let compared = assert.try_eq(None, shown, expected);
            flaws.lock().unwrap().extend(compared.err().map(|flaw| flaw.to_string()));
        }
    };
    thread::scope(|scope| [work, work].map(|work| scope.spawn(work)).into_iter().for_each(drop));
    let flaws = flaws.into_inner().unwrap();
    assert!(flaws.is_empty(), "{}", flaws.join("\n"));
    schemas.seen()
}

/// The files of a folder whose names end so.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = names.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    files.sort();
    files
}

#[test]
fn commands_print_what_the_transcripts_show() {
    let seen = check(files("tests/cli/transcripts", ".console"));
    if std::env::var_os("TRANSCRIPTS").is_none() {
        // It needs peers: `process.rs` and the modules `node` run it.
        let elsewhere = ["sync"].map(str::to_owned);
        let missing: Vec<_> = Schemas::read().commands().difference(&seen).cloned().collect();
        assert_eq!(missing, elsewhere, "no transcript has the report of these");
    }
}

#[test]
fn commands_print_what_the_pages_show() {
    let mut pages = files("../../docs", ".md");
    pages.extend(files("../..", "README.md"));
    pages.retain(|path| fs::read_to_string(path).unwrap().contains("```console"));
    assert!(pages.len() > 2, "the pages were not found");
    check(pages);
}

//! How a program prints its result and ends.

use crate::{exit::Exit, remedy::remedy_text, stop};
use anstyle::AnsiColor;
use engine::{Error, ErrorKind, Remedy};
use serde::Serialize;
use std::{
    io::{self, Write},
    process::ExitCode,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// The text that a command prints, and the exit code if printing succeeds.
pub type Done = Result<(String, Exit), Error>;

/// Whether errors are written to stderr as JSON objects.
static ERRORS_AS_JSON: AtomicBool = AtomicBool::new(false);

/// Makes each line of stderr a JSON object, errors included.
pub fn errors_as_json() {
    ERRORS_AS_JSON.store(true, Ordering::Relaxed);
}

/// Prints the result of a command, an error as JSON too if `json` is set, and returns the exit code.
#[must_use]
pub fn finish(json: bool, done: Done) -> ExitCode {
    let exit = match done {
        Ok((text, exit)) => print(&text, exit),
        Err(error) => {
            if json {
                print(&failure_json(&error), Exit::Done);
            }
            print_message(&error_message(&error));
            Exit::of(&error)
        }
    };
    exit.into()
}

/// Returns an error as it is written to stderr: a headline, what is known of the place on lines of its
/// own, and what helps. On a terminal, escape sequences give it colours.
#[must_use]
pub fn error_message(error: &Error) -> String {
    if ERRORS_AS_JSON.load(Ordering::Relaxed) {
        return json(&ErrorLine { event: "error", error: error_json(error) });
    }
    let code = error.core.as_deref().map(|core| core.split(" (").next().unwrap_or(core));
    let is_violation = error.kind == ErrorKind::Consensus;
    let headline = match (is_violation, error.height) {
        (false, _) => error.detail.clone(),
        (true, Some(height)) => format!("block {height} breaks a consensus rule"),
        (true, None) => "a block breaks a consensus rule".to_owned(),
    };
    let label = code.map_or("error".to_owned(), |code| format!("error[{code}]"));
    let mut text = message(Level::Error, &label, &headline);
    for (name, value) in places(error) {
        text += &format!("\n  {name:<6} {value}");
    }
    for (index, remedy) in error.remedies.iter().enumerate() {
        let or = if index == 0 { "" } else { "or " };
        text += &format!("\n{}", message(Level::Help, "help", &format!("{or}{}", remedy_text(remedy))));
    }
    if is_violation {
        let help = "bitcoind rejects this block too; if yours has accepted it, please report this bug";
        text += &format!("\n{}", message(Level::Help, "help", help));
    }
    text
}

/// What is known of the place of an error, and of the rule that is broken.
fn places(error: &Error) -> Vec<(&'static str, String)> {
    let is_violation = error.kind == ErrorKind::Consensus;
    let block = match (error.height, error.block_hash) {
        (Some(height), Some(hash)) if !is_violation => Some(format!("{hash} (height {height})")),
        (Some(height), None) if !is_violation => Some(format!("height {height}")),
        (_, hash) => hash.map(|hash| hash.to_string()),
    };
    let offset = error.offset.map_or(String::new(), |offset| format!(", byte {offset}"));
    let rule = error.rule.map(|rule| match &error.requirement {
        Some(requirement) => format!("{rule}: {requirement}"),
        None => rule.to_owned(),
    });
    let lines = [
        ("block", block),
        ("tx", error.txid.map(|txid| txid.to_string())),
        ("input", error.input.map(|input| input.to_string())),
        ("file", error.file.as_ref().map(|file| format!("{}{offset}", file.display()))),
        ("rule", rule),
        ("why", is_violation.then(|| error.detail.clone())),
        ("core", error.core.as_ref().filter(|core| core.contains(" (")).map(ToString::to_string)),
    ];
    lines.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The command has failed.
    Error,
    /// The operator must know it.
    Warning,
    /// The user should know it.
    Note,
    /// What helps.
    Help,
}

/// Returns a message with its label, coloured with escape sequences.
#[must_use]
pub fn message(level: Level, label: &str, text: &str) -> String {
    let colour = match level {
        Level::Error => AnsiColor::Red,
        Level::Warning => AnsiColor::Yellow,
        Level::Note => AnsiColor::Green,
        Level::Help => AnsiColor::Cyan,
    };
    let style = colour.on_default().bold();
    format!("{style}{label}{style:#}: {text}")
}

/// Returns the command line that runs `words` as the user with that number.
pub fn as_user(user: u32, words: impl Iterator<Item = String>) -> String {
    command_line(["sudo".to_owned(), "-u".to_owned(), user_name(user)].into_iter().chain(words))
}

/// Returns the command line that runs this process's command as the user with that number.
pub fn this_as_user(user: u32) -> String {
    let words = for_another_user(std::env::var("HOME").ok(), std::env::args().collect());
    as_user(user, words.into_iter())
}

/// Returns the words of a command line that has the same effect for another user: without a datadir, that of
/// this user's home directory is meant.
fn for_another_user(home: Option<String>, words: Vec<String>) -> Vec<String> {
    let is_datadir = |word: &String| word.trim_start_matches('-').starts_with("datadir");
    let home = home.filter(|_| !words.iter().any(is_datadir));
    let set = home.into_iter().flat_map(|home| ["env".to_owned(), format!("HOME={home}")]);
    set.chain(words.iter().cloned()).collect()
}

/// Returns the name of the user with that number, or `#` and the number, as `sudo` accepts both.
#[must_use]
pub fn user_name(user: u32) -> String {
    let found = uzers::get_user_by_uid(user);
    found.map_or_else(|| format!("#{user}"), |user| user.name().to_string_lossy().into_owned())
}

/// Returns `words` as a line for a shell.
pub fn command_line(words: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    let quote = |word: String| match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.map(quote).collect::<Vec<_>>().join(" ")
}

/// Writes a report; a reader that has gone away (a closed pipe) is not an error.
fn print(text: &str, exit: Exit) -> Exit {
    match stop::writing(|| writeln!(io::stdout(), "{text}")) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let detail = format!("cannot write the report to standard output: {error}");
            print_message(&error_message(&Error::new(ErrorKind::Environment, detail)));
            Exit::Environment
        }
        _ => exit,
    }
}

/// Writes a line to stderr; escape sequences only to a terminal.
pub fn print_message(text: &str) {
    let _ = stop::writing(|| write_message(text));
}

/// Like [`print_message`], for a caller that counts the write itself.
pub(crate) fn write_message(text: &str) -> io::Result<()> {
    writeln!(anstream::stderr(), "{text}")
}

/// Version of the JSON that is printed. It is raised when a field is removed or gets another meaning.
pub const SCHEMA: u32 = 1;

/// The command that runs.
static COMMAND: OnceLock<&'static str> = OnceLock::new();
/// Its network, once that is known.
static CHAIN: OnceLock<&'static str> = OnceLock::new();

/// Sets which command runs, for errors as JSON. Only the first call of a process counts.
pub fn set_command(command: &'static str) {
    let _ = COMMAND.set(command);
}

/// Sets on which network it runs. Only the first call of a process counts.
pub fn set_chain(chain: &'static str) {
    let _ = CHAIN.set(chain);
}

/// What is printed with `--json` if a command fails.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FailureJson {
    schema: u32,
    command: Option<&'static str>,
    chain: Option<&'static str>,
    exit_code: u8,
    error: ErrorJson,
}

/// An error as a line of stderr.
#[derive(Serialize)]
struct ErrorLine {
    event: &'static str,
    error: ErrorJson,
}

/// What went wrong.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ErrorJson {
    kind: KindJson,
    height: Option<u32>,
    block_hash: Option<String>,
    txid: Option<String>,
    input: Option<u32>,
    rule: Option<&'static str>,
    requirement: Option<String>,
    core: Option<String>,
    file: Option<String>,
    offset: Option<u64>,
    detail: String,
    remedies: Vec<&'static str>,
    help: Vec<String>,
}

/// An error as a JSON object.
#[must_use]
pub fn failure_json(error: &Error) -> String {
    json(&FailureJson {
        schema: SCHEMA,
        command: COMMAND.get().copied(),
        chain: CHAIN.get().copied(),
        exit_code: Exit::of(error) as u8,
        error: error_json(error),
    })
}

fn error_json(error: &Error) -> ErrorJson {
    ErrorJson {
        kind: KindJson::of(error),
        height: error.height.map(|height| height.0),
        block_hash: error.block_hash.map(|hash| hash.to_string()),
        txid: error.txid.map(|txid| txid.to_string()),
        input: error.input,
        rule: error.rule,
        requirement: error.requirement.clone(),
        core: error.core.as_ref().map(ToString::to_string),
        file: error.file.as_ref().map(|file| file.display().to_string()),
        offset: error.offset,
        detail: error.detail.clone(),
        remedies: error.remedies.iter().map(Remedy::name).collect(),
        help: error.remedies.iter().map(remedy_text).collect(),
    }
}

/// Returns the kind of an error, as `error.kind` of a failure has it.
#[must_use]
pub fn error_kind(error: &Error) -> String {
    json(&KindJson::of(error)).trim_matches('"').to_owned()
}

/// The kind of an error. Missing files have a kind of their own, and the exit code of damaged ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum KindJson {
    Usage,
    Consensus,
    Damaged,
    Missing,
    Hints,
    Environment,
    Interrupted,
    Internal,
}

impl KindJson {
    fn of(error: &Error) -> Self {
        match error.kind {
            ErrorKind::Usage => Self::Usage,
            ErrorKind::Consensus => Self::Consensus,
            ErrorKind::Damaged if error.is_missing => Self::Missing,
            ErrorKind::Damaged => Self::Damaged,
            ErrorKind::Hints => Self::Hints,
            ErrorKind::Environment => Self::Environment,
            ErrorKind::Interrupted => Self::Interrupted,
            _ => Self::Internal,
        }
    }
}

/// A value as JSON on one line.
pub fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":{{\"detail\":\"{error}\"}}}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the schema with the one in `docs`, or replaces that if UPDATE_DOCS is set.
    #[test]
    fn the_schema_of_failures_in_the_documentation_is_current() {
        let schema = serde_json::to_string_pretty(&schemars::schema_for!(FailureJson)).unwrap() + "\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json/failure.schema.json");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &schema).unwrap();
        }
        let documented = std::fs::read_to_string(path).unwrap_or_default();
        assert!(documented == schema, "{path} is not current: run the tests with UPDATE_DOCS=1");
    }

    #[test]
    fn a_command_for_another_user_can_be_pasted_into_a_shell() {
        let words = ["peregrine", "reindex", "--datadir", "my node"].map(str::to_owned);
        let line = as_user(4_000_000_000, words.into_iter());
        assert_eq!(line, "sudo -u '#4000000000' peregrine reindex --datadir 'my node'");
        let named = ["peregrine", "doctor", "-datadir=d"].map(str::to_owned).to_vec();
        assert_eq!(for_another_user(Some("h".to_owned()), named.clone()), named);
        let unnamed = for_another_user(Some("h".to_owned()), named[..2].to_vec());
        assert_eq!(unnamed, ["env", "HOME=h", "peregrine", "doctor"]);
        assert!(as_user(0, ["x".to_owned()].into_iter()).starts_with("sudo -u root x"));
    }
}

//! How a program prints its result and ends.

use crate::{exit::Exit, remedy::remedy_text, running, stop, wrap};
use anstyle::AnsiColor;
use engine::{Error, ErrorKind, Note, Stage, Warning};
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    fmt::Display,
    io::{self, Write},
    process::ExitCode,
    sync::atomic::AtomicBool,
};

/// The text that a command prints, and the exit code if printing succeeds.
pub type Done = Result<(String, Exit), Error>;

/// Prints the result of a command, an error as JSON too if `json` is set, and returns the exit code.
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
    ExitCode::from(exit as u8)
}

/// Prints as JSON that a command line was refused, with this text up to the first empty line: as the report,
/// and as a line of progress, where these are to be JSON.
pub fn print_refusal(text: &str, in_report: bool, in_progress: bool) {
    let detail = text.lines().map(str::trim).take_while(|it| !it.is_empty()).collect::<Vec<_>>().join(" ");
    let error = Error::usage(detail.trim_start_matches("error: "));
    if in_report {
        print(&failure_json(&error), Exit::Done);
    }
    if in_progress {
        let line = json(&ProgressJson::Error { error: ErrorWithHelp::new(&error) });
        let _ = stop::writing(|| writeln!(io::stderr(), "{line}"));
    }
}

/// Returns an error as it is written to stderr: a headline, what is known of the place on lines of its
/// own, and what helps. On a terminal, escape sequences give it colours.
pub fn error_message(error: &Error) -> String {
    if running::errors_as_json() {
        return json(&ProgressJson::Error { error: ErrorWithHelp::new(error) });
    }
    let code = error.core.as_deref().map(|core| core.split(" (").next().unwrap_or(core));
    let is_violation = error.kind == ErrorKind::Consensus;
    let headline = match (is_violation, error.height) {
        (false, _) => error.detail.clone(),
        (true, Some(height)) => format!("block {height} breaks a consensus rule"),
        (true, None) => "a block breaks a consensus rule".to_owned(),
    };
    let label = code.map_or("error".to_owned(), |code| format!("error[{code}]"));
    let mut text = message(&label, &headline);
    for (name, value) in places(error) {
        text += &format!("\n  {name:<6} {value}");
    }
    for (index, remedy) in error.remedies.iter().enumerate() {
        let or = if index == 0 { "" } else { "or " };
        text += &format!("\n{}", message("help", &format!("{or}{}", remedy_text(remedy))));
    }
    if is_violation {
        let help = "bitcoind rejects this block too; if yours has accepted it, please report this bug";
        text += &format!("\n{}", message("help", help));
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

/// Returns a message with its label, coloured with escape sequences.
pub fn message(label: &str, text: &str) -> String {
    let colour = match label {
        "help" => AnsiColor::Cyan,
        "note" => AnsiColor::Green,
        "warning" => AnsiColor::Yellow,
        _ => AnsiColor::Red,
    };
    let style = colour.on_default().bold();
    format!("{style}{label}{style:#}: {text}")
}

/// Writes a report; a reader that has gone away (a closed pipe) is not an error.
fn print(text: &str, exit: Exit) -> Exit {
    match stop::writing(|| writeln!(io::stdout(), "{text}")) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let detail = format!("cannot write the report to standard output: {error}; what was done stays");
            print_message(&error_message(&Error::environment(detail)));
            Exit::Environment
        }
        _ => exit,
    }
}

/// Writes a line to stderr; escape sequences only to a terminal.
pub fn print_message(text: &str) {
    let text = match running::errors_as_json() {
        true => text.to_owned(),
        false => wrap::for_stream(text, io::stderr()),
    };
    let _ = stop::writing(|| writeln!(anstream::stderr(), "{text}"));
}

/// Writes a note to stderr, unless a program reads that.
pub fn print_note(text: &str) {
    if !running::errors_as_json() {
        print_message(&format!("note: {text}"));
    }
}

/// Handles signals as [`stop::interrupt`] does. With `json`, an interrupt is also reported as JSON.
pub fn interrupt(json: bool) -> Result<&'static AtomicBool, Error> {
    stop::interrupt(move || {
        // A failure to write this does not matter: the process ends soon in any case.
        let error = Error::interrupted();
        if json {
            let _ = writeln!(io::stdout(), "{}", failure_json(&error));
        }
        let _ = writeln!(anstream::stderr(), "{}", error_message(&error));
    })
}

/// Version of the JSON that is printed. It is raised when a field is removed or gets another meaning.
pub const SCHEMA: u32 = 1;

/// What a command that has not failed prints with `--json`. Fields are only added; docs/json.md has the
/// promise.
#[derive(Serialize, JsonSchema)]
pub struct Output<T> {
    /// Version of this format.
    schema: u32,
    /// The exit code of the process.
    exit_code: u8,
    command: String,
    #[serde(flatten)]
    report: T,
}

/// Returns what a command prints: its report as JSON, or as text that fits the terminal; and the exit code.
pub fn reply<T: Serialize, D: Display>(report: &T, exit: Exit, text: impl FnOnce(&T) -> D) -> (String, Exit) {
    let command = running::command().unwrap_or_default();
    let output = || json(&Output { schema: SCHEMA, exit_code: exit as u8, command, report });
    let shown = || wrap::for_stream(&text(report).to_string(), io::stdout());
    (if running::as_json() { output() } else { shown() }, exit)
}

/// What is printed with `--json` if a command fails.
#[derive(Serialize, JsonSchema)]
pub struct FailureJson<'a> {
    schema: u32,
    command: Option<String>,
    chain: Option<&'static str>,
    exit_code: u8,
    error: ErrorWithHelp<'a>,
}

engine::named! {
/// How important a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Info = "info",
    Note = "note",
    Warning = "warning",
}
}

/// One line of `--progress json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ProgressJson<'a> {
    /// A stage begins.
    Stage { time: String, stage: Stage, number: Option<usize>, stages: Option<usize> },
    /// How much of a stage is done.
    Progress {
        time: String,
        stage: Stage,
        blocks: Option<u32>,
        blocks_total: Option<u32>,
        bytes: Option<u64>,
        bytes_total: Option<u64>,
        coins: Option<u64>,
        coins_total: Option<u64>,
        per_second: Option<f64>,
        seconds_remaining: Option<f64>,
        seconds: f64,
        peers: Option<usize>,
    },
    /// Something that the user should know. `note` has it as a code with fields, if it has one.
    Message { time: String, level: Level, note: Option<Code<'a>>, text: String },
    /// The last line of a run that fails.
    Error { error: ErrorWithHelp<'a> },
}

/// What a message is about.
#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Code<'a> {
    Note(&'a Note),
    Warning(&'a Warning),
}

/// What went wrong, and what helps.
#[derive(Serialize, JsonSchema)]
pub struct ErrorWithHelp<'a> {
    #[serde(flatten)]
    error: &'a Error,
    help: Vec<String>,
}

impl<'a> ErrorWithHelp<'a> {
    fn new(error: &'a Error) -> Self {
        Self { error, help: error.remedies.iter().map(remedy_text).collect() }
    }
}

pub fn failure_json(error: &Error) -> String {
    json(&FailureJson {
        schema: SCHEMA,
        command: running::command(),
        chain: running::chain(),
        exit_code: Exit::of(error) as u8,
        error: ErrorWithHelp::new(error),
    })
}

/// A value as JSON on one line.
pub fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":{{\"detail\":\"{error}\"}}}}"))
}

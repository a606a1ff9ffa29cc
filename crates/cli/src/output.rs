//! How a program prints its result and ends.

use crate::{exit::Exit, remedy, stop};
use engine::{Error, ErrorKind, Remedy};
use serde::Serialize;
use std::{
    io::{self, Write},
    process::ExitCode,
};

/// The text that a command prints, and the exit code if printing succeeds.
pub type Done = Result<(String, Exit), Error>;

/// Prints the result of a command, an error as JSON too if `json` is set, and returns the exit code.
#[must_use]
pub fn finish(json: bool, done: Done) -> ExitCode {
    let exit = match done {
        Ok((text, exit)) => print(&text, exit),
        Err(error) => {
            if json {
                print(&failure_json(&error), Exit::Done);
            }
            print_message(&format!("error: {}", remedy::error_text(&error)));
            for remedy in &error.remedies {
                if let Remedy::RunAs(user) = remedy {
                    print_message(&format!("help: {}", as_user(*user, std::env::args())));
                }
            }
            Exit::of(&error)
        }
    };
    exit.into()
}

/// Returns the command line that runs `words` as the user with that number.
pub fn as_user(user: u32, words: impl Iterator<Item = String>) -> String {
    command_line(["sudo".to_owned(), "-u".to_owned(), user_name(user)].into_iter().chain(words))
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
            print_message(&format!("error: cannot write the report to standard output: {error}"));
            Exit::Environment
        }
        _ => exit,
    }
}

/// Writes a line to stderr.
pub fn print_message(text: &str) {
    let _ = stop::writing(|| writeln!(io::stderr(), "{text}"));
}

#[derive(Serialize)]
struct FailureJson {
    error: ErrorJson,
}

#[derive(Serialize)]
struct ErrorJson {
    kind: &'static str,
    height: Option<u32>,
    block_hash: Option<String>,
    txid: Option<String>,
    rule: Option<&'static str>,
    core: Option<String>,
    file: Option<String>,
    offset: Option<u64>,
    detail: String,
    remedies: Vec<&'static str>,
}

/// An error as a JSON object.
#[must_use]
pub fn failure_json(error: &Error) -> String {
    json(&FailureJson {
        error: ErrorJson {
            kind: kind_name(error.kind),
            height: error.height.map(|height| height.0),
            block_hash: error.block_hash.map(|hash| hash.to_string()),
            txid: error.txid.map(|txid| txid.to_string()),
            rule: error.rule,
            core: error.core.as_ref().map(ToString::to_string),
            file: error.file.as_ref().map(|file| file.display().to_string()),
            offset: error.offset,
            detail: remedy::explanation(error),
            remedies: error.remedies.iter().map(Remedy::name).collect(),
        },
    })
}

fn kind_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Usage => "usage",
        ErrorKind::Consensus => "consensus",
        ErrorKind::Damaged => "damaged",
        ErrorKind::Hints => "hints",
        ErrorKind::Environment => "environment",
        ErrorKind::Interrupted => "interrupted",
        _ => "internal",
    }
}

/// A value as JSON on one line.
pub fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":{{\"detail\":\"{error}\"}}}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_for_another_user_can_be_pasted_into_a_shell() {
        let words = ["peregrine", "reindex", "--datadir", "my node"].map(str::to_owned);
        let line = as_user(4_000_000_000, words.into_iter());
        assert_eq!(line, "sudo -u '#4000000000' peregrine reindex --datadir 'my node'");
        assert!(as_user(0, ["x".to_owned()].into_iter()).starts_with("sudo -u root x"));
    }
}

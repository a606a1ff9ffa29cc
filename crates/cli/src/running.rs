//! What runs in this process: the command and its network, for reports and messages. A process runs one
//! command at a time, and nothing of the one before is left.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The command that runs.
struct Running {
    /// Its name and its options; `None` if they are not known.
    command: Option<(String, Vec<String>)>,
    json: bool,
    errors_as_json: bool,
    chain: Option<&'static str>,
    /// The options with which another command works on the same datadir, if that is known.
    place: Vec<String>,
}

static RUNNING: Mutex<Running> =
    Mutex::new(Running { command: None, json: false, errors_as_json: false, chain: None, place: Vec::new() });

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records which command runs, its long options without dashes, whether it prints JSON, and whether each line
/// that it writes to stderr is a JSON object, errors included.
pub fn begin(command: String, options: Vec<String>, json: bool, errors_as_json: bool) {
    let command = Some((command, options));
    *running() = Running { command, json, errors_as_json, chain: None, place: Vec::new() };
}

/// Whether the command that runs prints its report as JSON.
pub fn as_json() -> bool {
    running().json
}

/// Whether each line of stderr is to be a JSON object.
pub fn errors_as_json() -> bool {
    running().errors_as_json
}

/// Whether the command that runs has a long option; true if its options are not known.
pub fn has_option(name: &str) -> bool {
    running().command.as_ref().is_none_or(|(_, options)| options.iter().any(|option| option == name))
}

/// Sets on which network it runs, if that was not known.
pub fn set_chain(chain: &'static str) {
    running().chain.get_or_insert(chain);
}

/// Sets with which options another command works on the same datadir.
pub fn set_place(place: Vec<String>) {
    running().place = place;
}

/// Returns the options with which another command works on the same datadir, if that is known.
pub fn place() -> Vec<String> {
    running().place.clone()
}

/// Returns the name of the command that runs, if it is known.
pub fn command() -> Option<String> {
    running().command.as_ref().map(|(name, _)| name.clone())
}

/// Returns the network on which it runs, if that is known.
pub fn chain() -> Option<&'static str> {
    running().chain
}

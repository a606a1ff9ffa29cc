//! What runs in this process: the command and its network, for reports and messages.

use std::sync::OnceLock;

/// The command that runs.
struct Running {
    command: String,
    options: Vec<String>,
    json: bool,
}

static RUNNING: OnceLock<Running> = OnceLock::new();
/// Its network, once that is known.
static CHAIN: OnceLock<&'static str> = OnceLock::new();

/// Records which command runs, its long options without dashes, and whether it prints JSON. Only the first
/// call of a process counts.
pub fn begin(command: String, options: Vec<String>, json: bool) {
    let _ = RUNNING.set(Running { command, options, json });
}

/// Whether the command that runs prints its report as JSON.
pub fn as_json() -> bool {
    RUNNING.get().is_some_and(|running| running.json)
}

/// Whether the command that runs has a long option; true if its options are not known.
pub fn has_option(name: &str) -> bool {
    RUNNING.get().is_none_or(|running| running.options.iter().any(|option| option == name))
}

/// Sets on which network it runs. Only the first call of a process counts.
pub fn set_chain(chain: &'static str) {
    let _ = CHAIN.set(chain);
}

/// Returns the name of the command that runs, if it is known.
pub fn command() -> Option<&'static str> {
    RUNNING.get().map(|running| running.command.as_str())
}

/// Returns the network on which it runs, if that is known.
pub fn chain() -> Option<&'static str> {
    CHAIN.get().copied()
}

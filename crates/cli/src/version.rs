//! Which sources the program was built from, and which version of Bitcoin Core it follows.

use engine::{CORE_VERSION, ChainParams, Network};
use std::sync::OnceLock;

/// Returns the commit of the sources; `None` if it was not known when they were compiled (`build.rs`).
pub fn commit() -> Option<&'static str> {
    option_env!("PEREGRINE_COMMIT").filter(|commit| !commit.is_empty())
}

/// Returns the commit of the sources, or the version of the program if that is not known.
pub fn commit_or_version() -> &'static str {
    commit().unwrap_or(env!("CARGO_PKG_VERSION"))
}

/// Returns the version of Bitcoin Core whose code runs scripts; `None` if this build cannot run any.
pub const fn script_core_version() -> Option<&'static str> {
    #[cfg(feature = "scripts")]
    return Some(script::CORE_VERSION);
    #[cfg(not(feature = "scripts"))]
    None
}

/// Returns what `--version` prints after the name of the program.
pub fn long_version() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let scripts = script_core_version().map_or_else(
            || "cannot be checked: this build does not contain Bitcoin Core's code".to_owned(),
            |version| format!("run by Bitcoin Core {version} (libbitcoinkernel)"),
        );
        let assumed = Network::ALL.map(|network| match ChainParams::of(network).assume_valid {
            Some((height, _)) => format!("{network} {height}"),
            None => format!("{network} none"),
        });
        format!(
            "{}\n\
             commit       {}\n\
             rules        as of Bitcoin Core {CORE_VERSION}\n\
             scripts      {scripts}\n\
             assumevalid  {}",
            env!("CARGO_PKG_VERSION"),
            commit().unwrap_or("unknown"),
            assumed.join(", ")
        )
    })
}

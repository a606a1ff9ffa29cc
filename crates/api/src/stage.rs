//! The stages of a rebuild, as events and reports name them.

#[cfg(feature = "serde")]
use crate::json::{JsonSchema, Serialize};
use std::fmt;

/// A stage, as reports and events name it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Stage {
    /// Downloading headers from peers, and validating them.
    Headers,
    /// Downloading blocks from peers, and storing them.
    Download,
    /// Choosing the chain and validating its headers.
    Plan,
    /// Reading blocks and undo data, or all coins.
    Read,
    /// Checking blocks and spends.
    Check,
    /// Running scripts.
    Scripts,
    /// Matching spends with coins.
    Match,
    /// Making undo data from the coins that were delivered to their spenders, and checking it.
    Undo,
    /// Validating blocks in order.
    Sequential,
    /// Connecting blocks to a chainstate, and disconnecting them.
    Connect,
    /// Writing the new chainstate.
    Finish,
    /// Reading the new chainstate back.
    Prove,
    /// Putting the new chainstate in place.
    Commit,
    /// Giving all coins on disk to the caller.
    Export,
    /// Waiting at the tip for new blocks, and connecting them.
    Follow,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 15] = [
        Self::Headers,
        Self::Download,
        Self::Plan,
        Self::Read,
        Self::Check,
        Self::Scripts,
        Self::Match,
        Self::Undo,
        Self::Sequential,
        Self::Connect,
        Self::Finish,
        Self::Prove,
        Self::Commit,
        Self::Export,
        Self::Follow,
    ];

    /// Returns the stage's name, one lower-case word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Headers => "headers",
            Self::Download => "download",
            Self::Plan => "plan",
            Self::Read => "read",
            Self::Check => "check",
            Self::Scripts => "scripts",
            Self::Match => "match",
            Self::Undo => "undo",
            Self::Sequential => "sequential",
            Self::Connect => "connect",
            Self::Finish => "finish",
            Self::Prove => "prove",
            Self::Commit => "commit",
            Self::Export => "export",
            Self::Follow => "follow",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

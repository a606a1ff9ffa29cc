//! The stages of a rebuild, as events and reports name them.

#[cfg(feature = "serde")]
use crate::json::{JsonSchema, Serialize};

/// A stage, as reports and events name it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema), serde(rename_all = "lowercase"))]
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

wire::named!(Stage {
    Headers = "headers",
    Download = "download",
    Plan = "plan",
    Read = "read",
    Check = "check",
    Scripts = "scripts",
    Match = "match",
    Undo = "undo",
    Sequential = "sequential",
    Connect = "connect",
    Finish = "finish",
    Prove = "prove",
    Commit = "commit",
    Export = "export",
    Follow = "follow",
});

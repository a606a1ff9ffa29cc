//! The stages of a rebuild, as events and reports name them.

use crate::json::{JsonSchema, Serialize};

wire::named! {
/// A stage, as reports and events name it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Downloading headers from peers, and validating them.
    Headers = "headers",
    /// Downloading blocks from peers, and storing them.
    Download = "download",
    /// Choosing the chain and validating its headers.
    Plan = "plan",
    /// Reading blocks and undo data, or all coins.
    Read = "read",
    /// Checking blocks and spends.
    Check = "check",
    /// Running scripts.
    Scripts = "scripts",
    /// Matching spends with coins.
    Match = "match",
    /// Making undo data from the coins that were delivered to their spenders, and checking it.
    Undo = "undo",
    /// Validating blocks in order.
    Sequential = "sequential",
    /// Connecting blocks to a chainstate, and disconnecting them.
    Connect = "connect",
    /// Writing the new chainstate.
    Finish = "finish",
    /// Reading the new chainstate back.
    Prove = "prove",
    /// Putting the new chainstate in place.
    Commit = "commit",
    /// Giving all coins on disk to the caller.
    Export = "export",
    /// Waiting at the tip for new blocks, and connecting them.
    Follow = "follow",
}
}

//! The stages of a rebuild, in order. One file each; control flow between them is in [`crate::reindex`].
//!
//! | stage | takes | gives |
//! | --- | --- | --- |
//! | plan | the datadir | the chain: where each block and its undo data lie, headers judged |
//! | read | the chain | raw blocks with their undo data, each to the worker who checks it |
//! | check | blocks | effects: coins made and coins claimed as spent |
//! | settle | effects, in any order | each claim matched with its coin (in [`coins::Join`]) |
//! | finish | coins left open | the new chainstate's tables, `hash_serialized_3` |
//! | prove | the new chainstate on disk | the same hash, from the bytes read back |
//! | commit | the proven chainstate | the datadir with it in place |
//!
//! When check or settle finds something that the chain may be guilty of, [`judge`] goes through the blocks in
//! order.

pub mod apply;
pub mod block_fault;
mod block_hashes;
pub mod check;
pub mod commit;
pub mod existing_state;
pub mod finish;
pub mod plan;
pub mod read;
pub mod recheck;
pub mod scripts;
pub mod sequential;
mod siblings;
pub mod spill;

use std::fmt;

/// A stage, as reports and events name it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// ChainPreferences the chain and judging its headers.
    Plan,
    /// Reading blocks and undo data.
    Read,
    /// Checking blocks and spends.
    Check,
    /// Running scripts.
    Scripts,
    /// Matching spends with coins.
    Match,
    /// Judging in order what the fast path could not.
    Sequential,
    /// Writing the new chainstate.
    Finish,
    /// Reading it back.
    Prove,
    /// Putting it in place.
    Commit,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 9] = [
        Self::Plan,
        Self::Read,
        Self::Check,
        Self::Scripts,
        Self::Match,
        Self::Sequential,
        Self::Finish,
        Self::Prove,
        Self::Commit,
    ];

    /// The stage's name, one lower-case word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Read => "read",
            Self::Check => "check",
            Self::Scripts => "scripts",
            Self::Match => "match",
            Self::Sequential => "sequential",
            Self::Finish => "finish",
            Self::Prove => "prove",
            Self::Commit => "commit",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

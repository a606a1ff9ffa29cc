//! The stages of a rebuild, in order. One file each; control flow between them is in [`crate::reindex`].
//!
//! | stage | input | output |
//! | --- | --- | --- |
//! | plan | the datadir | the chain, with valid headers, and the positions of each block and its undo data |
//! | read | the chain | raw blocks with their undo data, each read by the worker that checks it |
//! | check | blocks | effects: coins created, and claims of coins spent |
//! | scripts | inputs of checked blocks | nothing: each script was run and succeeded |
//! | match | effects, in any order | each claim matched with its coin (in [`coins::Join`]) |
//! | finish | the survivors | the new chainstate's tables, `hash_serialized_3` |
//! | prove | the new chainstate on disk | the same hash, from the bytes read back |
//! | commit | the proven chainstate | the datadir with the new chainstate in place |
//!
//! If check, scripts or match finds something that may be wrong with the chain, [`sequential`] validates the
//! blocks in order.

pub mod apply;
pub mod block_fault;
mod block_hashes;
pub mod block_source;
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
    /// Choosing the chain and validating its headers.
    Plan,
    /// Reading blocks and undo data.
    Read,
    /// Checking blocks and spends.
    Check,
    /// Running scripts.
    Scripts,
    /// Matching spends with coins.
    Match,
    /// Validating blocks in order, if parallel matching proves too little.
    Sequential,
    /// Writing the new chainstate.
    Finish,
    /// Reading the new chainstate back.
    Prove,
    /// Putting the new chainstate in place.
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

    /// Returns the stage's name, one lower-case word.
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

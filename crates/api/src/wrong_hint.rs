//! A hint that is wrong, as the check of hints finds it.

use std::fmt;
use wire::{BlockHash, Height};

reported! {
/// A hint that contradicts the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongHint {
    /// Height of the block.
    pub height: Height,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// The output's index within its block, in the file's numbering.
    pub index: u32,
    /// Whether the output is hinted unspent and is spent; otherwise the reverse.
    pub hinted_unspent: bool,
}
}

impl fmt::Display for WrongHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { height, hash, index, .. } = self;
        let (hinted, is) = if self.hinted_unspent { ("unspent", "spent") } else { ("spent", "unspent") };
        write!(f, "output {index} of the block at height {height} ({hash}) is hinted {hinted}, but is {is}")
    }
}

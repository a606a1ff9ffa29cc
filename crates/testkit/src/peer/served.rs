//! A chain as a peer has it.

use crate::block::{GeneratedBlock, header_of};
use std::collections::HashMap;
use wire::{BlockHash, Header};

/// The blocks of a chain by height, from the genesis block on.
#[derive(Clone, Debug)]
pub struct ServedChain {
    /// The headers.
    pub headers: Vec<Header>,
    /// Their hashes.
    pub hashes: Vec<BlockHash>,
    /// The serialised blocks.
    pub blocks: Vec<Vec<u8>>,
    heights: HashMap<BlockHash, usize>,
}

impl ServedChain {
    /// A chain of serialised blocks, each with a header.
    ///
    /// # Panics
    /// If a block is shorter than a header.
    #[must_use]
    pub fn new(blocks: Vec<Vec<u8>>) -> Self {
        let headers: Vec<Header> = blocks.iter().map(|block| header_of(block)).collect();
        let hashes: Vec<BlockHash> = headers.iter().map(Header::hash).collect();
        let heights = hashes.iter().copied().zip(0..).collect();
        Self { headers, hashes, blocks, heights }
    }

    /// A chain of generated blocks.
    #[must_use]
    pub fn of<'a>(blocks: impl IntoIterator<Item = &'a GeneratedBlock>) -> Self {
        Self::new(blocks.into_iter().map(|block| block.bytes.clone()).collect())
    }

    /// Returns the height of the last block.
    #[must_use]
    pub fn height(&self) -> usize {
        self.blocks.len() - 1
    }

    /// Returns the height of a block.
    #[must_use]
    pub fn find(&self, hash: &BlockHash) -> Option<usize> {
        self.heights.get(hash).copied()
    }
}

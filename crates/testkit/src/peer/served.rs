//! A chain as a peer has it.

use crate::{block::header_of, prelude::*};

/// The blocks of a chain by height, from the genesis block on.
#[derive(Clone, Debug)]
pub struct ServedChain {
    pub headers: Vec<Header>,
    pub hashes: Vec<BlockHash>,
    pub blocks: Vec<Vec<u8>>,
    /// The undo data of each block; empty if the peer does not have it.
    pub undo: Vec<Vec<u8>>,
    heights: HashMap<BlockHash, usize>,
}

impl ServedChain {
    /// A chain of serialised blocks, each with a header.
    ///
    /// # Panics
    /// If a block is shorter than a header.
    pub fn new(blocks: Vec<Vec<u8>>) -> Self {
        let headers: Vec<Header> = blocks.iter().map(|block| header_of(block)).collect();
        let hashes: Vec<BlockHash> = headers.iter().map(Header::hash).collect();
        let heights = hashes.iter().copied().zip(0..).collect();
        Self { headers, hashes, undo: vec![Vec::new(); blocks.len()], blocks, heights }
    }

    /// The same chain, with this undo data of each block from the genesis block on.
    pub fn with_undo(mut self, undo: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.undo.iter_mut().zip(undo).for_each(|(own, undo)| *own = undo);
        self
    }

    /// Returns the coins that a block spends, as a peer sends them: code and compressed output.
    ///
    /// # Panics
    /// If the undo data is malformed.
    pub fn coins(&self, height: usize) -> Vec<(u32, Vec<u8>)> {
        let mut arena = UndoArena::default();
        let undo = UndoView::parse(&self.undo[height], &mut arena).expect("the undo data is sound");
        undo.coins().map(|coin| (coin.code, coin.out.to_vec())).collect()
    }

    pub fn of<'a>(blocks: impl IntoIterator<Item = &'a GeneratedBlock>) -> Self {
        let all =
            blocks.into_iter().map(|block| (block.bytes.clone(), block.undo.clone().unwrap_or_default()));
        let (blocks, undo): (_, Vec<_>) = all.unzip();
        Self::new(blocks).with_undo(undo)
    }

    /// Returns the height of the last block.
    pub fn height(&self) -> usize {
        self.blocks.len() - 1
    }

    /// Returns the height of a block.
    pub fn find(&self, hash: &BlockHash) -> Option<usize> {
        self.heights.get(hash).copied()
    }
}

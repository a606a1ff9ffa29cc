//! The headers of a block index, whether their blocks are stored or not, with their work: for decisions about
//! a block that may not be stored. The tree of the plan is about blocks that are.

use api::error::Error;
use disk::index::IndexRows;
use rules::{ChainParams, U256, work};
use std::path::Path;
use vfs::Disk;
use wire::{BlockHash, Height};

/// A header, and what descends to it.
struct Node {
    hash: BlockHash,
    /// Number of the previous block; `None` for the genesis block.
    parent: Option<u32>,
    height: Height,
    /// Sum of the work up to this block.
    work: U256,
    /// Whether Core has found the block or an ancestor invalid.
    failed: bool,
}

/// The headers that descend from genesis. About 90 bytes for each.
pub struct Headers {
    /// In the byte order of their hashes.
    nodes: Vec<Node>,
}

/// A header in [`Headers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeaderId(u32);

impl Headers {
    /// Reads the block index in `dir`. The headers' rules are not checked: Core has done so.
    pub fn read(disk: &dyn Disk, dir: &Path, params: &ChainParams) -> Result<Self, Error> {
        let (mut nodes, mut parents) = (Vec::new(), Vec::new());
        IndexRows::open(disk, dir)?.stream(|entry| {
            let work = work(entry.header.bits);
            let failed = entry.status.is_failed();
            parents.push(entry.header.prev);
            nodes.push(Node { hash: entry.hash, parent: None, height: entry.height, work, failed });
        })?;
        let find = |nodes: &[Node], hash: &BlockHash| {
            nodes.binary_search_by_key(hash, |node| node.hash).ok().map(|at| at as u32)
        };
        for at in 0..nodes.len() {
            let parent = parents.get(at).and_then(|hash| find(&nodes, hash));
            if let Some(node) = nodes.get_mut(at) {
                node.parent = parent;
            }
        }
        let mut headers = Self { nodes };
        headers.link(params);
        Ok(headers)
    }

    /// Sums up the work from genesis on. What does not descend from it counts as failed.
    fn link(&mut self, params: &ChainParams) {
        let mut order: Vec<u32> = (0..self.nodes.len() as u32).collect();
        order.sort_unstable_by_key(|at| self.height(HeaderId(*at)));
        for at in order {
            let node = self.node(HeaderId(at));
            let is_genesis = node.hash == params.genesis_hash;
            let parent = node.parent.map(|parent| self.node(HeaderId(parent)));
            let parent = parent.filter(|parent| parent.height.0 + 1 == node.height.0);
            let (work, failed) = match parent {
                Some(parent) => (parent.work.wrapping_add(node.work), parent.failed || node.failed),
                None => (node.work, !is_genesis),
            };
            if let Some(node) = self.nodes.get_mut(at as usize) {
                (node.work, node.failed) = (work, failed);
            }
        }
    }

    #[expect(clippy::indexing_slicing, reason = "ids are made from indices here")]
    fn node(&self, id: HeaderId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub fn find(&self, hash: &BlockHash) -> Option<HeaderId> {
        self.nodes.binary_search_by_key(hash, |node| node.hash).ok().map(|at| HeaderId(at as u32))
    }

    pub fn height(&self, id: HeaderId) -> Height {
        self.node(id).height
    }

    /// The work of its chain.
    pub fn work(&self, id: HeaderId) -> U256 {
        self.node(id).work
    }

    /// Whether Core has found it or an ancestor invalid.
    pub fn has_failed(&self, id: HeaderId) -> bool {
        self.node(id).failed
    }

    /// Returns the header with the most work that has not failed.
    pub fn best(&self) -> Option<HeaderId> {
        let ids = (0..self.nodes.len() as u32).map(HeaderId);
        ids.filter(|id| !self.has_failed(*id)).max_by_key(|id| self.work(*id))
    }

    /// Returns the hashes from a block down to genesis.
    pub fn chain_to(&self, id: HeaderId) -> impl Iterator<Item = BlockHash> {
        self.ancestors(id).map(|id| self.node(id).hash)
    }

    /// Returns the block at `height` in the chain that ends with `id`.
    pub fn ancestor(&self, id: HeaderId, height: Height) -> Option<HeaderId> {
        self.ancestors(id).find(|id| self.height(*id) == height)
    }

    fn ancestors(&self, id: HeaderId) -> impl Iterator<Item = HeaderId> {
        std::iter::successors(Some(id), |id| self.node(*id).parent.map(HeaderId))
    }
}

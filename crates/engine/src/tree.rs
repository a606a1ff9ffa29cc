//! The tree of block headers, from the block index or from a scan, and the choice of the chain to rebuild.
//!
//! Each header is judged on its branch when it is linked. Chosen is the most-work branch of which every block
//! and its undo data are on disk, without blocks that Core marked as failed: what `-reindex-chainstate` would
//! end at, but for blocks that were stored and never connected. Those have no undo data; bitcoind connects
//! them when it next starts.

use crate::{
    chain::ChainBlock,
    error::{Error, ErrorKind},
};
use rules::{Ancestors, ChainParams, HeaderContext, U256, Violation, check_header};
use std::{cell::Cell, collections::HashMap};
use wire::{BlockHash, BlockTime, ByteOffset, FileNo, Header, Height};

/// What is known of one block.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its header.
    pub header: Header,
    /// The header's hash.
    pub hash: BlockHash,
    /// Where its bytes start: file, and offset after the record's frame.
    pub data: Option<(FileNo, ByteOffset)>,
    /// Where its undo data starts in the `rev` file of the same number.
    pub undo_pos: Option<ByteOffset>,
    /// Transactions in the block.
    pub tx_count: u32,
    /// Core found the block or one before it invalid.
    pub failed: bool,
}

/// All blocks that descend from the genesis block.
pub struct Tree {
    /// In order of height; parents before children.
    nodes: Vec<Linked>,
    /// The latest of the blocks that have been connected once, and yet do not descend from genesis.
    lost: Option<Node>,
}

struct Linked {
    node: Node,
    parent: Option<u32>,
    height: Height,
    work: U256,
    /// Up to here, all blocks and undo data are on disk, and none has failed.
    connected: bool,
    /// Up to here, all blocks are on disk, and none has failed.
    stored: bool,
    failed: bool,
    /// The header, or one before it, breaks a rule.
    invalid: bool,
    /// The rule that this header breaks.
    violation: Option<Box<Violation>>,
}

/// The chosen branch.
pub struct Choice {
    /// Headers from genesis to the tip.
    pub headers: Vec<Header>,
    /// Hashes and places, likewise.
    pub blocks: Vec<ChainBlock>,
    /// Stored blocks on top of it that were never connected.
    pub unconnected: u32,
    /// Scripts of blocks up to here need not be run ([`Tree::assumed_valid_to`]).
    pub assumed_valid_to: Option<Height>,
}

impl Tree {
    /// Links blocks to their parents and judges their headers; `now` is for the one rule that knows a clock.
    /// Blocks that do not descend from `genesis` are left out; of blocks given twice the first one counts.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if the genesis block is not among them.
    pub fn link(given: Vec<Node>, params: &ChainParams, now: BlockTime) -> Result<Self, Error> {
        let genesis = params.genesis_hash;
        let mut index_of: HashMap<BlockHash, u32> = HashMap::with_capacity(given.len());
        for (index, node) in given.iter().enumerate() {
            index_of.entry(node.hash).or_insert(index as u32);
        }
        if !index_of.contains_key(&genesis) {
            return Err(Error::damaged(format!(
                "the genesis block {genesis} is not there: these blocks are of another network, files are \
                 missing, or xor.dat is not theirs"
            )));
        }
        let heights = heights(&given, &index_of, genesis);
        let unlinked = given.iter().zip(&heights).filter(|(_, height)| height.is_none());
        let lost = unlinked
            .map(|(node, _)| node)
            .filter(|node| node.data.is_some() && node.undo_pos.is_some() && !node.failed)
            .max_by_key(|node| node.header.time)
            .cloned();
        let mut order: Vec<u32> = (0..given.len() as u32)
            .filter(|&i| heights[i as usize].is_some() && index_of.get(&given[i as usize].hash) == Some(&i))
            .collect();
        order.sort_by_key(|&i| heights[i as usize]);
        let mut position: HashMap<BlockHash, u32> = HashMap::with_capacity(order.len());
        let mut given: Vec<Option<Node>> = given.into_iter().map(Some).collect();
        let mut nodes: Vec<Linked> = Vec::with_capacity(order.len());
        for index in order {
            let (Some(node), Some(height)) = (given[index as usize].take(), heights[index as usize]) else {
                continue;
            };
            let parent = position.get(&node.header.prev).copied().filter(|_| height > 0);
            position.insert(node.hash, nodes.len() as u32);
            let height = Height(height);
            let mut linked = Linked::new(node, height, parent.map(|p| (p, &nodes[p as usize])));
            if !linked.invalid {
                let parent = parent.unwrap_or(0);
                let ancestors = Branch { nodes: &nodes, parent, last: Cell::new(parent) };
                let (header, hash) = (&linked.node.header, &linked.node.hash);
                let context = HeaderContext { params, height, header, hash, ancestors: &ancestors, now };
                if let Err(violation) = check_header(&context) {
                    linked.violation = Some(Box::new(violation));
                    linked.invalidate();
                }
            }
            nodes.push(linked);
        }
        Ok(Self { nodes, lost })
    }

    /// Each block whose header and ancestors' headers are valid, with its height, in order of height.
    pub fn valid(&self) -> impl Iterator<Item = (&Node, Height)> {
        self.nodes.iter().filter(|linked| !linked.invalid).map(|linked| (&linked.node, linked.height))
    }

    /// Chooses the branch to rebuild, up to `stop_at`, and tells how far `assume_valid` vouches for its
    /// scripts.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if a block with more work is on disk but blocks or undo data beneath it are not
    /// (a pruned node, lost files); [`ErrorKind::Usage`] if `stop_at` is above the tip.
    pub fn choose(
        &self,
        stop_at: Option<Height>,
        params: &ChainParams,
        assume_valid: Option<BlockHash>,
    ) -> Result<Choice, Error> {
        let (best, tip) = self.most_work(|linked| linked.connected).ok_or_else(|| {
            Error::damaged(
                "not even the genesis block is on disk: the blocks folder is empty or of a pruned node",
            )
        })?;
        if let Some((lone, above)) = self.most_work(|linked| linked.has_undo() && !linked.failed)
            && above.work > tip.work
        {
            return Err(self.gap_beneath(lone));
        }
        // How high such a block was is not known, but that it came after the tip tells that it was above.
        if let Some(lost) = self.lost.as_ref().filter(|lost| lost.header.time > tip.node.header.time) {
            return Err(Error::damaged(format!(
                "the chain on disk ends at height {}, but block {} was connected above it once and the block \
                 before that, {}, is not on disk: files are missing or damaged (restore them, or let \
                 bitcoind -reindex fetch the blocks again)",
                tip.height, lost.hash, lost.header.prev
            )));
        }
        let unconnected = match self.most_work(|linked| linked.stored) {
            Some((_, stored)) if stored.work > tip.work => stored.height.0.saturating_sub(tip.height.0),
            _ => 0,
        };
        let mut branch: Vec<&Linked> = self.branch(best).collect();
        branch.reverse();
        let assumed_valid_to = assume_valid.and_then(|hash| self.assumed_valid_to(&branch, params, hash));
        if let Some(stop) = stop_at {
            if stop > tip.height {
                return Err(Error::new(
                    ErrorKind::Usage,
                    format!(
                        "--stop-at-height {stop} is above the last connected block on disk ({})",
                        tip.height
                    ),
                ));
            }
            branch.truncate(stop.0 as usize + 1);
        }
        Ok(Choice {
            headers: branch.iter().map(|linked| linked.node.header).collect(),
            blocks: branch.iter().filter_map(|linked| linked.place()).collect(),
            unconnected,
            assumed_valid_to,
        })
    }

    /// Up to which height of `chain` scripts need not be run, given that the user vouches for `assumed`:
    /// Core's conditions, see [`rules::assume`].
    fn assumed_valid_to(
        &self,
        chain: &[&Linked],
        params: &ChainParams,
        assumed: BlockHash,
    ) -> Option<Height> {
        let assumed = self.nodes.iter().position(|linked| linked.node.hash == assumed)?;
        let (best, top) = self.most_work(|linked| !linked.invalid && !linked.failed)?;
        if top.work < params.minimum_chain_work {
            return None;
        }
        // The highest block of a branch that is in the chain too.
        let fork = |tip: usize| {
            let mut branch = self.branch(tip);
            let common = branch.find(|theirs| {
                chain.get(theirs.height.0 as usize).is_some_and(|ours| ours.node.hash == theirs.node.hash)
            });
            common.map(|common| common.height)
        };
        let limit = fork(assumed)?.min(fork(best)?);
        let below = chain.get(..=limit.0 as usize)?;
        let bits = top.node.header.bits;
        let buried =
            below.partition_point(|linked| rules::assume::is_buried(params, linked.work, top.work, bits));
        buried.checked_sub(1).map(|height| Height(height as u32))
    }

    fn most_work(&self, eligible: impl Fn(&Linked) -> bool) -> Option<(usize, &Linked)> {
        let mut best: Option<(usize, &Linked)> = None;
        for (index, linked) in self.nodes.iter().enumerate().filter(|(_, linked)| eligible(linked)) {
            // Of equal work the block that was stored first wins, as it would have reached the node first.
            let better = best.is_none_or(|(_, top)| {
                linked.work > top.work || linked.work == top.work && linked.node.data < top.node.data
            });
            if better {
                best = Some((index, linked));
            }
        }
        best
    }

    /// From a block back to genesis.
    fn branch(&self, from: usize) -> impl Iterator<Item = &Linked> {
        let first = self.nodes.get(from);
        std::iter::successors(first, |linked| {
            linked.parent.and_then(|parent| self.nodes.get(parent as usize))
        })
    }

    /// Why a block with data and undo data is not connected.
    fn gap_beneath(&self, lone: usize) -> Error {
        let gap = self.branch(lone).filter(|linked| linked.violation.is_some() || !linked.has_undo()).last();
        let Some(linked) = gap else { return Error::new(ErrorKind::Internal, "no gap beneath a lone block") };
        let error = match &linked.violation {
            Some(violation) => Error::violation(violation),
            None => {
                let what =
                    if linked.node.data.is_none() { "the block" } else { "the undo data of the block" };
                Error::damaged(format!(
                    "{what} is not on disk, but blocks above it are: this is a pruned node or files are \
                     missing; a chainstate can only be rebuilt from all blocks and undo data (restore the \
                     files, or let bitcoind -reindex fetch the blocks again)"
                ))
            }
        };
        error.at_block(linked.height, linked.node.hash)
    }
}

/// The branch below a new block. Rules ask for ancestors from the parent downwards, so the last answer is
/// where the walk to the next one starts.
struct Branch<'a> {
    nodes: &'a [Linked],
    parent: u32,
    last: Cell<u32>,
}

impl Branch<'_> {
    fn at(&self, height: Height) -> &Linked {
        let mut index = self.last.get();
        if self.nodes[index as usize].height < height {
            index = self.parent;
        }
        while self.nodes[index as usize].height > height {
            index = self.nodes[index as usize].parent.unwrap_or(0);
        }
        self.last.set(index);
        &self.nodes[index as usize]
    }
}

impl Ancestors for Branch<'_> {
    fn time(&self, height: Height) -> BlockTime {
        self.at(height).node.header.time
    }

    fn bits(&self, height: Height) -> u32 {
        self.at(height).node.header.bits
    }
}

impl Linked {
    fn new(node: Node, height: Height, parent: Option<(u32, &Self)>) -> Self {
        let own = rules::work(node.header.bits);
        let failed = node.failed || parent.is_some_and(|(_, parent)| parent.failed);
        let stored = !failed && node.data.is_some() && parent.is_none_or(|(_, parent)| parent.stored);
        let mut linked = Self {
            parent: parent.map(|(index, _)| index),
            work: parent.map_or(own, |(_, parent)| parent.work.wrapping_add(own)),
            height,
            connected: false,
            stored,
            failed,
            invalid: false,
            violation: None,
            node,
        };
        linked.connected = stored && linked.has_undo() && parent.is_none_or(|(_, parent)| parent.connected);
        if parent.is_some_and(|(_, parent)| parent.invalid) {
            linked.invalidate();
        }
        linked
    }

    fn invalidate(&mut self) {
        (self.invalid, self.connected, self.stored) = (true, false, false);
    }

    /// Whether block and undo data are on disk (the genesis block needs no undo data).
    fn has_undo(&self) -> bool {
        self.node.data.is_some() && (self.node.undo_pos.is_some() || self.parent.is_none())
    }

    fn place(&self) -> Option<ChainBlock> {
        let (file, data_pos) = self.node.data?;
        let undo_pos = self.node.undo_pos.filter(|_| self.parent.is_some());
        Some(ChainBlock { hash: self.node.hash, file, data_pos, undo_pos })
    }
}

/// The height of each block that descends from genesis.
fn heights(given: &[Node], index_of: &HashMap<BlockHash, u32>, genesis: BlockHash) -> Vec<Option<u32>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Known {
        Not,
        Walking,
        Height(Option<u32>),
    }
    let mut known = vec![Known::Not; given.len()];
    let mut path = Vec::new();
    for start in 0..given.len() {
        let mut at = start;
        // Walk towards genesis until a block of known height, or one without a parent, is met.
        let mut height = loop {
            match known[at] {
                Known::Height(height) => break height,
                Known::Walking => break None,
                Known::Not if given[at].hash == genesis => {
                    known[at] = Known::Height(Some(0));
                    break Some(0);
                }
                Known::Not => {
                    known[at] = Known::Walking;
                    path.push(at);
                    match index_of.get(&given[at].header.prev) {
                        Some(&parent) => at = parent as usize,
                        None => break None,
                    }
                }
            }
        };
        while let Some(at) = path.pop() {
            height = height.map(|height| height + 1);
            known[at] = Known::Height(height);
        }
    }
    known
        .into_iter()
        .map(|known| match known {
            Known::Height(height) => height,
            Known::Not | Known::Walking => None,
        })
        .collect()
}

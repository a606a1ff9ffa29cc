//! The tree of block headers, from the block index or from a scan, and the choice of the chain to rebuild.
//!
//! Each header is validated on its branch. The chosen branch has the most work among those that are entirely
//! on disk, blocks and undo data, and that contain no block marked as failed by Core. `-reindex-chainstate`
//! would end at the same block, except for blocks that were stored and never connected: they have no undo
//! data, and bitcoind connects them when it next starts. A rebuild with hints and without undo data needs no
//! undo data up to the hints' last block; up to there it is enough that blocks are stored.
//!
//! Among branches with the same work, the one with the preferred block is chosen; otherwise the one whose
//! last block was stored first, because it would have reached the node first.
//!
//! A mainnet tree has a million headers, and must fit into 128 MiB along with everything else: a block takes
//! its hash and 32 bytes. Parents are numbers; heights and sums of work are known only while headers are
//! linked, height by height; merkle root and nonce, which no header rule uses, are not kept.

mod assumed;
mod best_block;
mod copies;
mod errors;
mod reconsider;

use crate::{
    blocks::{
        chain::{BlockPosition, Chain},
        damage::KnownDamage,
        hash_list::HashList,
    },
    plan::chain_request::ChainRequest,
};
use api::{error::Error, lower_tip::Gap, remedy::Remedy};
use rules::{Ancestors, ChainParams, HeaderContext, U256, Violation, check_header, pow::has_proof_of_work};
use std::{cell::Cell, num::NonZeroU32};
use wire::{BlockHash, BlockTime, ByteOffset, FileNo, Header, Height};

/// A block of the tree, without its hash.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    version: i32,
    time: BlockTime,
    bits: u32,
    file: FileNo,
    /// Position of the block in the `blk` file, after the record's frame.
    data_pos: Option<NonZeroU32>,
    /// Position of its undo data in the `rev` file of the same number.
    undo_pos: Option<NonZeroU32>,
    /// Number of the previous block; `NONE` for the genesis block, and if that block is missing.
    parent: u32,
    /// Bits; see the constants below.
    state: u16,
}

const NONE: u32 = u32::MAX;

/// Core marked the block or an ancestor as invalid.
const FAILED: u16 = 1;
/// The block descends from genesis, and is the first with its hash.
const LINKED: u16 = 2;
/// All blocks and undo data up to this block are on disk, and none has failed.
const CONNECTED: u16 = 4;
/// All blocks up to this block are on disk, or awaited, and none has failed.
const STORED: u16 = 8;
/// The header, or that of an ancestor, breaks a rule.
const INVALID: u16 = 16;
/// The header itself breaks a rule.
const BREAKS_RULE: u16 = 32;
/// The block is the preferred one or descends from it.
const PREFERRED: u16 = 64;
/// The caller knows that the block was connected ([`ChainRequest::connected`]).
const KNOWN: u16 = 128;
/// The block index marks the block or an ancestor as invalid, which is not believed.
const RECONSIDERED: u16 = 256;
/// The block index marks the block's scripts as checked ([`Node::with_mark`]).
const CHECKED: u16 = 512;
/// The block index does not count the block as connected, whether it has undo data or not.
const UNCONNECTED: u16 = 1024;
/// The block index says that the block came with its witnesses.
const WITNESSES: u16 = 2048;

const _: () = assert!(size_of::<Node>() == 32, "a million of them must fit into the smallest budget");

/// Converts a position to 32 bits; `None` if no record can be there.
fn nonzero_position(pos: ByteOffset) -> Option<NonZeroU32> {
    u32::try_from(pos.0).ok().and_then(NonZeroU32::new)
}

impl Node {
    /// A block with its header, the positions of its data and undo data, and whether Core marked it as
    /// invalid; `None` if a position cannot be one: at the start of the file, or above 4 GiB.
    pub fn new(
        header: &Header,
        data: Option<(FileNo, ByteOffset)>,
        undo_pos: Option<ByteOffset>,
        failed: bool,
    ) -> Option<Self> {
        let mut node = Self {
            version: header.version,
            time: header.time,
            bits: header.bits,
            file: FileNo(0),
            data_pos: None,
            undo_pos: None,
            parent: NONE,
            state: if failed { FAILED } else { 0 },
        };
        if let Some((file, pos)) = data {
            (node.file, node.data_pos) = (file, Some(nonzero_position(pos)?));
        }
        if let Some(pos) = undo_pos {
            node.undo_pos = Some(nonzero_position(pos)?);
        }
        Some(node)
    }

    fn has(&self, bits: u16) -> bool {
        self.state & bits == bits
    }

    fn data(&self) -> Option<(FileNo, NonZeroU32)> {
        self.data_pos.map(|pos| (self.file, pos))
    }

    /// The position of undo data that shows that the block was connected.
    fn connected_undo(&self) -> Option<NonZeroU32> {
        self.undo_pos.filter(|_| !self.has(UNCONNECTED))
    }
}

/// All blocks, and which of them descend from the genesis block.
pub struct Tree<'a> {
    params: &'a ChainParams,
    now: BlockTime,
    hashes: HashList,
    /// Nodes, in the order of the hashes.
    nodes: Vec<Node>,
    genesis: u32,
    /// The stored blocks whose parents are not in the tree.
    roots: Vec<Orphan>,
}

/// The most-work block of several kinds.
#[derive(Default)]
struct BestTips {
    connected: Option<BestTip>,
    stored: Option<BestTip>,
    /// With data and undo data, whatever its ancestors have, and not failed.
    with_undo: Option<BestTip>,
    /// With a valid header, and not failed.
    header: Option<BestTip>,
    /// With data and a valid header, whatever its ancestors have, and not failed.
    placed: Option<BestTip>,
    /// With data and a valid header, and failed.
    failed: Option<BestTip>,
}

/// The most-work block of one kind.
#[derive(Clone, Copy)]
struct BestTip {
    node: u32,
    height: Height,
    /// Sum of work up to this block.
    work: U256,
}

#[derive(Clone, Copy, Debug)]
struct Orphan {
    node: u32,
    prev: BlockHash,
}

/// The stored blocks that seem to be above the last connected one, but a block below them is in no file, so
/// that their heights are not known.
#[derive(Clone, Copy, Debug)]
pub struct Orphans {
    pub blocks: u32,
    /// Whether one of them was once connected.
    pub were_connected: bool,
    /// The latest of them.
    pub last: BlockHash,
    /// The lowest whose parent is in no file, and that parent.
    lowest: Option<Orphan>,
}

pub struct ChosenChain {
    /// Numbers of its blocks, from genesis to the tip.
    pub branch: Vec<u32>,
    pub choice: Choice,
    /// The last block that could be rebuilt: the last of the branch, unless the caller stops below it.
    pub last_connected: u32,
}

/// What the choice of a chain has shown.
#[derive(Clone, Default, Debug)]
pub struct Choice {
    /// Sum of work of the chain.
    pub work: U256,
    /// Number of blocks that the chain lacks of the best stored branch; 0 if that has no more work.
    pub unconnected: u32,
    /// Why they are not connected, and cannot be rebuilt.
    pub gap: Option<Gap>,
    /// Stored blocks above the last connected one that do not descend from it.
    pub orphans: Option<Orphans>,
    /// Height up to which scripts need not be run, because of the assumed-valid block.
    pub assumed_valid_to: Option<Height>,
    /// Height up to which they need not be run, because the block index says that they were: above the other
    /// one, and only if the caller believes that.
    pub checked_to: Option<Height>,
    /// If blocks with more work are left out because the block index marks one as invalid: that block, and
    /// the height of the last one.
    pub marked_invalid: Option<(Height, BlockHash, Height)>,
    pub tip_time: BlockTime,
    /// The lowest block of the chain that the block index marks as invalid, which is not believed.
    pub reconsidered: Option<Height>,
    /// The blocks that lose such a mark if the chain is valid, sorted by hash: those of the chain, and what
    /// descends from them.
    pub unmarked: Vec<BlockHash>,
    /// Number of blocks of another chain ([`disk::departed`]), which are left out.
    pub departed: u32,
    /// Whether the block index does not mark all blocks of the chain as valid, as bitcoind does with those
    /// that it has connected.
    pub lacks_marks: bool,
}

impl<'a> Tree<'a> {
    /// Links blocks to their parents. `now` is for the one header rule that depends on the time. If a block
    /// is given twice, the first one counts.
    ///
    /// Blocks come in hash order. `links` is called once, and passes the hash and the previous hash of each
    /// block to its callback, in the same order.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Damaged`] if the genesis block is missing;
    /// [`api::error::ErrorKind::Environment`] if `links` passes other blocks; the errors of `links`.
    pub fn link(
        hashes: Vec<BlockHash>,
        nodes: Vec<Node>,
        links: impl FnOnce(&mut dyn FnMut(BlockHash, BlockHash)) -> Result<(), Error>,
        params: &'a ChainParams,
        now: BlockTime,
    ) -> Result<Self, Error> {
        let hashes = HashList::new(hashes);
        let genesis = hashes.find(&params.genesis_hash).ok_or_else(|| {
            Error::damaged(format!(
                "the genesis block {} is missing: these blocks belong to another network, files are \
                 missing, or xor.dat belongs to other files",
                params.genesis_hash
            ))
            .with_remedies([Remedy::Repair])
        })?;
        let mut tree = Self { params, now, hashes, nodes, genesis, roots: Vec::new() };
        tree.find_parents(links)?;
        Ok(tree)
    }

    fn find_parents(
        &mut self,
        links: impl FnOnce(&mut dyn FnMut(BlockHash, BlockHash)) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (hashes, nodes, roots) = (&self.hashes, &mut self.nodes, &mut self.roots);
        let (mut number, mut others) = (0, false);
        links(&mut |hash, prev| {
            match nodes.get_mut(number as usize) {
                Some(node) if hash == *hashes.get(number) => {
                    if hash != self.params.genesis_hash {
                        node.parent = hashes.find(&prev).unwrap_or(NONE);
                        let is_root = node.parent == NONE && node.data_pos.is_some();
                        roots.extend(is_root.then_some(Orphan { node: number, prev }));
                    }
                }
                _ => others = true,
            }
            number = number.saturating_add(1);
        })?;
        if others || number as usize != self.nodes.len() {
            return Err(Error::environment(
                "the block index has changed while it was read; run again when no other process writes to it",
            ));
        }
        Ok(())
    }

    /// Returns number and height of each block that descends from genesis and is the first with its hash.
    pub fn linked(&self) -> impl Iterator<Item = (u32, Height)> {
        let known = (0..).zip(self.heights());
        let first = known.filter(|&(number, height)| height != NONE && !self.hashes.is_repeated(number));
        first.map(|(number, height)| (number, Height(height)))
    }

    pub fn hash(&self, number: u32) -> BlockHash {
        *self.hashes.get(number)
    }

    /// Returns the number of the files that a block is in, and its position in the `blk` file, if it is on
    /// disk.
    pub fn data_pos(&self, number: u32) -> Option<(FileNo, ByteOffset)> {
        let (file, pos) = self.nodes.get(number as usize)?.data()?;
        Some((file, ByteOffset(pos.get().into())))
    }

    pub fn time(&self, number: u32) -> BlockTime {
        self.nodes.get(number as usize).map_or(BlockTime(0), |node| node.time)
    }

    /// Where the undo data of a block is, if it shows that the block was connected.
    pub fn undo_pos(&self, number: u32) -> Option<ByteOffset> {
        self.nodes.get(number as usize)?.connected_undo().map(|pos| ByteOffset(pos.get().into()))
    }

    /// Sets or removes the position of a block's undo data. Returns false if there can be no record at that
    /// position.
    pub fn set_undo_pos(&mut self, number: u32, pos: Option<ByteOffset>) -> bool {
        let narrowed = pos.and_then(nonzero_position);
        if let Some(node) = self.nodes.get_mut(number as usize) {
            node.undo_pos = narrowed;
        }
        narrowed.is_some() == pos.is_some()
    }

    /// Returns the height of each block that descends from genesis; `NONE` for the others.
    fn heights(&self) -> Vec<u32> {
        const NOT_YET: u32 = NONE - 1;
        const WALKING: u32 = NONE - 2;
        let mut heights = vec![NOT_YET; self.nodes.len()];
        let mut path = Vec::new();
        for start in 0..self.nodes.len() as u32 {
            let mut at = start;
            // Walk towards genesis, to a block whose height is known or that has no parent.
            let mut height = loop {
                match heights[at as usize] {
                    NOT_YET => {}
                    WALKING => break NONE,
                    known => break known,
                }
                let parent = self.nodes[at as usize].parent;
                if parent == NONE {
                    let is_genesis = *self.hashes.get(at) == self.params.genesis_hash;
                    heights[at as usize] = if is_genesis { 0 } else { NONE };
                    break heights[at as usize];
                }
                heights[at as usize] = WALKING;
                path.push(at);
                at = parent;
            };
            while let Some(at) = path.pop() {
                height = if height == NONE { NONE } else { height + 1 };
                heights[at as usize] = height;
            }
        }
        heights
    }

    /// Returns the numbers of the stored blocks that do not descend from genesis, after all blocks were
    /// evaluated. One without proof of work is no block, but damage.
    fn find_orphans(&self) -> Vec<u32> {
        let is_orphan = |&number: &u32| {
            let (node, hash) = (&self.nodes[number as usize], self.hashes.get(number));
            node.state & (LINKED | FAILED) == 0
                && node.data_pos.is_some()
                && self.find_linked(hash).is_none()
                && has_proof_of_work(self.params, hash, node.bits)
        };
        (0..self.nodes.len() as u32).filter(is_orphan).collect()
    }

    /// Looks at the orphans above the block `tip`: their heights are unknown, but their times show that they
    /// were above it. A node that downloads has blocks whose parents have not come yet. Those have no
    /// undo data, so they are no loss, unless undo data is lost too.
    fn orphans_above(&self, tip: &BestTip) -> Option<Orphans> {
        let orphans = self.find_orphans();
        let time = |number: u32| self.nodes[number as usize].time;
        let above = || orphans.iter().copied().filter(|number| time(*number) >= time(tip.node));
        let last = above().max_by_key(|number| time(*number))?;
        let lacks_undo = tip.height > Height(0) && self.undo_pos(tip.node).is_none();
        let was_connected = |number: u32| lacks_undo || self.undo_pos(number).is_some();
        let roots = self.roots.iter().filter(|root| orphans.binary_search(&root.node).is_ok());
        let lowest = roots.min_by_key(|root| (time(root.node) < time(tip.node), time(root.node)));
        Some(Orphans {
            blocks: above().count() as u32,
            were_connected: above().any(was_connected),
            last: *self.hashes.get(last),
            lowest: lowest.copied(),
        })
    }

    /// Returns the numbers of the linked blocks ordered by height and then by number, and the end of each
    /// height's part of the list.
    fn by_height(&self) -> (Vec<u32>, Vec<u32>) {
        let mut heights = self.heights();
        for (number, height) in (0..).zip(&mut heights) {
            if self.hashes.is_repeated(number) {
                *height = NONE;
            }
        }
        let linked = || (0..).zip(&heights).filter(|(_, height)| **height != NONE);
        let count = linked().map(|(_, height)| *height as usize + 1).max().unwrap_or(0);
        let mut ends = vec![0; count];
        for (_, &height) in linked() {
            // For now, this is where the next height begins.
            if let Some(next) = ends.get_mut(height as usize + 1) {
                *next += 1;
            }
        }
        let mut sum = 0;
        for begin in &mut ends {
            sum += *begin;
            *begin = sum;
        }
        let mut order = vec![0; linked().count()];
        for (number, &height) in linked() {
            let at = &mut ends[height as usize];
            order[*at as usize] = number;
            *at += 1;
        }
        (order, ends)
    }

    /// Marks blocks that were found invalid. The undo data that was assigned to them belongs to others.
    fn mark_invalid(&mut self, invalid: &[BlockHash]) {
        for number in invalid.iter().filter_map(|hash| self.hashes.find(hash)) {
            let node = &mut self.nodes[number as usize];
            (node.state, node.undo_pos) = (node.state | FAILED, None);
        }
    }

    /// Forgets where blocks and their undo data are.
    fn forget_places(&mut self, blocks: &[BlockHash]) {
        for number in blocks.iter().filter_map(|hash| self.hashes.find(hash)) {
            let node = &mut self.nodes[number as usize];
            (node.data_pos, node.undo_pos) = (None, None);
        }
    }

    /// Forgets where damaged blocks and damaged undo data are.
    fn mark_damaged(&mut self, damage: &KnownDamage) {
        self.forget_places(&damage.blocks);
        for number in damage.undo.iter().filter_map(|hash| self.hashes.find(hash)) {
            self.nodes[number as usize].undo_pos = None;
        }
    }

    /// Evaluates all blocks, parents before children, and finds the most-work ones.
    fn evaluate_all(&mut self, request: &ChainRequest<'_>) -> BestTips {
        let (order, ends) = self.by_height();
        let mut best_tips = BestTips::default();
        let preferred = request.tie_break().and_then(|hash| self.hashes.find(&hash));
        let (mut parents, mut parents_work): (&[u32], Vec<U256>) = (&[], Vec::new());
        let (mut begin, mut work) = (0, Vec::new());
        for (height, &end) in (0..).map(Height).zip(&ends) {
            let level = &order[begin..end as usize];
            for &number in level {
                let before = parents.binary_search(&self.nodes[number as usize].parent).ok();
                let before = before.and_then(|at| parents_work.get(at)).copied().unwrap_or(U256::ZERO);
                let own = rules::work(self.nodes[number as usize].bits);
                let block = BestTip { node: number, height, work: before.wrapping_add(own) };
                self.evaluate(&block, preferred, request);
                self.consider(block, &mut best_tips);
                work.push(block.work);
            }
            (parents, begin) = (level, end as usize);
            std::mem::swap(&mut parents_work, &mut work);
            work.clear();
        }
        best_tips
    }

    /// Computes the state of a block whose parent has been evaluated.
    fn evaluate(&mut self, block: &BestTip, preferred: Option<u32>, request: &ChainRequest<'_>) {
        let node = &self.nodes[block.node as usize];
        let parent = self.nodes.get(node.parent as usize).map_or(CONNECTED | STORED, |parent| parent.state);
        let mut state =
            node.state & (FAILED | KNOWN | RECONSIDERED | CHECKED | UNCONNECTED | WITNESSES) | LINKED;
        state |= parent & (FAILED | INVALID | PREFERRED | RECONSIDERED);
        if preferred == Some(block.node) {
            state |= PREFERRED;
        }
        let has_data = node.data_pos.is_some() || state & KNOWN != 0 || request.awaits.is_some();
        if state & (FAILED | INVALID) == 0 && has_data {
            state |= parent & STORED;
        }
        if state & STORED != 0 && (block.height < request.undo_from() || self.has_undo(block.node)) {
            state |= parent & CONNECTED;
        }
        if state & INVALID == 0 && self.check_header(block.node, block.height).is_err() {
            state = state & !(STORED | CONNECTED) | INVALID | BREAKS_RULE;
        }
        self.nodes[block.node as usize].state = state;
    }

    fn check_header(&self, number: u32, height: Height) -> Result<(), Violation> {
        let node = &self.nodes[number as usize];
        let parent = (node.parent, height.0.saturating_sub(1));
        let ancestors = Branch { nodes: &self.nodes, parent, last: Cell::new(parent) };
        // No rule uses the fields left out; the hash is passed separately.
        let (version, time, bits) = (node.version, node.time, node.bits);
        let header = &Header { version, time, bits, ..Header::default() };
        let (params, hash, now) = (self.params, self.hashes.get(number), self.now);
        check_header(&HeaderContext { params, height, header, hash, ancestors: &ancestors, now })
    }

    /// Records a block as the most-work one of each kind to which it belongs, if it is.
    fn consider(&self, block: BestTip, best_tips: &mut BestTips) {
        let node = &self.nodes[block.node as usize];
        let (not_failed, has_undo) = (!node.has(FAILED), self.has_undo(block.node));
        for (tip, eligible) in [
            (&mut best_tips.connected, node.has(CONNECTED)),
            (&mut best_tips.stored, node.has(STORED)),
            (&mut best_tips.with_undo, not_failed && has_undo),
            (&mut best_tips.header, not_failed && !node.has(INVALID)),
            (&mut best_tips.placed, not_failed && !node.has(INVALID) && node.data_pos.is_some()),
            (&mut best_tips.failed, !not_failed && !node.has(INVALID) && node.data_pos.is_some()),
        ] {
            let better = tip.is_none_or(|tip| {
                let other = &self.nodes[tip.node as usize];
                // Among branches of equal work, prefer the preferred one, then one that was connected, then
                // the one that was stored first.
                let rank = |node: &Node| (!node.has(PREFERRED), node.connected_undo().is_none(), node.data());
                block.work > tip.work || block.work == tip.work && rank(node) < rank(other)
            });
            if eligible && better {
                *tip = Some(block);
            }
        }
    }

    /// Reports whether the tree has a block with this hash, linked or not.
    pub fn has(&self, hash: &BlockHash) -> bool {
        self.hashes.find(hash).is_some()
    }

    /// Validates all headers, chooses the branch to rebuild, and determines up to which block scripts are
    /// assumed to be valid.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Damaged`] if a block with more work is on disk but blocks or undo data below
    /// it are not (a pruned node, lost files); [`api::error::ErrorKind::Usage`] if the requested last block
    /// is above the tip, or the tree lacks the block to be reconsidered.
    pub fn choose(&mut self, request: &ChainRequest<'_>) -> Result<ChosenChain, Error> {
        request.reconsider.map(|which| self.reconsider(which)).transpose()?;
        self.forget_places(request.awaits.unwrap_or_default());
        self.mark_invalid(request.invalid);
        self.mark_known(request.connected);
        request.damage.into_iter().for_each(|damage| self.mark_damaged(damage));
        let best_tips = self.evaluate_all(request);
        let mut chosen = self.pick(&best_tips, request)?;
        (chosen.choice.reconsidered, chosen.choice.unmarked) = self.passing(&chosen.branch);
        Ok(chosen)
    }

    fn pick(&self, best_tips: &BestTips, request: &ChainRequest<'_>) -> Result<ChosenChain, Error> {
        let tip = best_tips.connected.ok_or_else(errors::no_genesis)?;
        let orphans = self.orphans_above(&tip);
        let undo_from = request.undo_from();
        let is_missed = |block: &BestTip| {
            let is_altered = self.nodes[block.node as usize].has(BREAKS_RULE);
            // If blocks above lack their parent, this is that parent, with an altered header.
            block.work > tip.work || is_altered && orphans.is_some_and(|orphans| orphans.were_connected)
        };
        let must_have_all = request.damage.is_none() && request.end.is_none();
        if let Some(block) = best_tips.with_undo.filter(is_missed).filter(|_| must_have_all) {
            return Err(self.gap_error(block.node, undo_from));
        }
        if let Some(end) = self.hints_end_above_gap(request) {
            return Err(self.gap_error(end, undo_from));
        }
        if let Some(orphans) = orphans.filter(|orphans| must_have_all && orphans.were_connected) {
            return Err(self.orphans_error(tip.height, &orphans));
        }
        let tip = match request.end {
            Some(end) => self.end_of_branch(&end, undo_from)?,
            None => tip,
        };
        let mut branch = self.chain_to(tip.node);
        let above = best_tips.stored.filter(|stored| stored.work > tip.work);
        let is_left_out = |&(number, height): &(u32, Height)| branch.get(height.0 as usize) != Some(&number);
        let left_out = above.map(|it| self.branch_with_heights(it.node).take_while(is_left_out).count());
        let assumed = request.assume_valid.zip(best_tips.header);
        let assumed_valid_to = assumed.and_then(|(hash, best)| self.assumed_valid_to(&branch, hash, &best));
        let checked_to = request.believes_checked.then(|| self.checked_to(&branch)).flatten();
        let checked_to = checked_to.filter(|&height| Some(height) > assumed_valid_to);
        if let Some(stop) = request.stop_at_height {
            if stop > tip.height {
                return Err(errors::above_last(stop, tip.height));
            }
            branch.truncate(stop.0 as usize + 1);
        }
        let gap = above.and_then(|stored| self.gap_above(stored.node, undo_from));
        let work = self.work_of(branch.iter().copied());
        let better = best_tips.failed.filter(|failed| failed.work > tip.work);
        let marked_invalid = better.and_then(|better| self.marked_invalid_below(&better, request.invalid));
        let last_connected = tip.node;
        let tip_time = branch.last().map(|&tip| self.nodes[tip as usize].time).unwrap_or_default();
        let marked = self.checked_to(&branch).map_or(0, |Height(height)| height as usize);
        let choice = Choice {
            work,
            unconnected: left_out.map_or(0, |blocks| blocks as u32),
            gap,
            orphans,
            assumed_valid_to,
            checked_to,
            marked_invalid,
            tip_time,
            lacks_marks: marked + 1 < branch.len(),
            ..Choice::default()
        };
        Ok(ChosenChain { branch, choice, last_connected })
    }

    /// Converts the branch to a [`Chain`], with undo data from height `undo_from` on. Frees the parts of the
    /// tree step by step, to limit memory.
    pub fn into_chain(self, branch: Vec<u32>, undo_from: Height) -> Chain {
        let node = |&number: &u32| self.nodes[number as usize];
        let positions = branch.iter().map(node).zip((0..).map(Height)).map(|(node, height)| BlockPosition {
            file: node.file,
            data_pos: node.data_pos.map_or(0, NonZeroU32::get),
            undo_pos: node.undo_pos.filter(|_| node.parent != NONE && height >= undo_from),
        });
        let positions = positions.collect();
        let median_times = rules::median_times(branch.iter().map(|number| node(number).time).collect());
        drop(self.nodes);
        let hashes = branch.iter().map(|&number| *self.hashes.get(number)).collect();
        drop((branch, self.hashes));
        Chain::from_parts(hashes, positions, median_times)
    }

    /// Returns the numbers of a block and its ancestors, back to genesis.
    pub fn branch(&self, from: u32) -> impl Iterator<Item = u32> + Clone {
        let parent = |number: u32| self.nodes.get(number as usize).map(|node| node.parent);
        std::iter::successors(Some(from), move |&number| parent(number).filter(|&parent| parent != NONE))
    }

    /// Returns numbers and heights of a block that descends from genesis and of its ancestors, back to
    /// genesis.
    fn branch_with_heights(&self, from: u32) -> impl Iterator<Item = (u32, Height)> + Clone {
        let heights = (0..self.branch(from).count() as u32).rev().map(Height);
        self.branch(from).zip(heights)
    }

    /// Returns the numbers of the ancestors of a block from genesis on, and its own.
    fn chain_to(&self, tip: u32) -> Vec<u32> {
        let mut chain = Vec::with_capacity(self.branch(tip).count());
        chain.extend(self.branch(tip));
        chain.reverse();
        chain
    }

    /// Returns the number of a block that descends from genesis, after all blocks were evaluated.
    fn find_linked(&self, hash: &BlockHash) -> Option<u32> {
        self.hashes.find(hash).filter(|&number| self.nodes[number as usize].has(LINKED))
    }

    /// Reports whether block and undo data are on disk (the genesis block needs no undo data).
    fn has_undo(&self, number: u32) -> bool {
        let node = &self.nodes[number as usize];
        node.data_pos.is_some() && (node.connected_undo().is_some() || number == self.genesis)
    }
}

/// The ancestors of a new block. Rules look up ancestors from the parent downwards, so each look-up starts
/// from the previous result.
struct Branch<'a> {
    nodes: &'a [Node],
    /// Number and height.
    parent: (u32, u32),
    last: Cell<(u32, u32)>,
}

impl Ancestors for Branch<'_> {
    fn at(&self, height: Height) -> (BlockTime, u32) {
        let (mut number, mut at) = self.last.get();
        if at < height.0 {
            (number, at) = self.parent;
        }
        while at > height.0 {
            (number, at) = (self.nodes[number as usize].parent, at - 1);
        }
        self.last.set((number, at));
        let node = &self.nodes[number as usize];
        (node.time, node.bits)
    }
}

#[cfg(test)]
mod tests;

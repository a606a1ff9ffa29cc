//! The headers of the best known chain, and of one branch of each peer that may become better.
//!
//! Each header is validated when it is added, so the chain never contains one that breaks a rule. An attacker
//! can make it no longer than [`HeaderChain::add`] allows: memory is bounded, and the chain is used only once
//! it has the network's minimum work.

use crate::blocks::block_check::ExpectedBlock;
use rules::{
    Ancestors, ChainParams, HeaderContext, U256, Violation, ViolationClass, check_header, median_time_past,
};
use std::{cmp::Reverse, collections::HashMap, iter};
use wire::{BlockHash, BlockTime, Header, Height};

/// Headers of all branches together, of 80 bytes each, above which the longest branch is forgotten, except
/// that which grows: [`HeaderChain::most_headers`] limits that one.
const MAX_BRANCH_HEADERS: usize = 1_000_000;
/// The number for headers that no peer has sent.
const NO_PEER: u64 = u64::MAX;
/// Number of headers above that which the time since the genesis block suggests, in percent.
const SPARE_HEADERS_PERCENT: u64 = 25;
/// Factor by which more headers are accepted on networks whose blocks can come faster than intended.
const TEST_NETWORK_FACTOR: u64 = 10;

/// Why headers were not added.
#[derive(Clone, Debug)]
pub enum RefusedHeaders {
    /// They do not follow a block of the chain or of the peer's branch.
    Unconnected,
    /// One of them breaks a rule.
    Invalid,
    /// One of them is a block that was found invalid.
    KnownInvalid,
    /// One of them is a block that the block index marks as invalid: this one, at this height.
    Marked(BlockHash, Height),
    /// One of them is a block that no peer has sent.
    Withheld,
    /// There cannot be so many blocks yet.
    TooMany,
}

/// Headers above a block of the chain.
struct Branch {
    /// The last block that the branch shares with the chain.
    fork: Height,
    /// The headers above it, at least one.
    headers: Vec<Header>,
    tip: BlockHash,
    work: U256,
}

impl Branch {
    fn hash(&self, height: Height) -> Option<BlockHash> {
        hash_at(&self.headers, self.tip, height.0.checked_sub(self.fork.0 + 1)? as usize)
    }

    fn height_of(&self, hash: &BlockHash) -> Option<Height> {
        let end = self.fork.0 + self.headers.len() as u32;
        // Most that are asked for are near its end.
        (self.fork.0 + 1..=end).rev().map(Height).find(|&height| self.hash(height) == Some(*hash))
    }
}

pub struct HeaderChain {
    params: &'static ChainParams,
    /// By height, from the genesis block on. Each contains the hash of the one before it.
    headers: Vec<Header>,
    tip: BlockHash,
    work: U256,
    /// By the number of the peer that sends it, so that no peer displaces what another one sends.
    branches: HashMap<u64, Branch>,
    /// Heights by the first bytes of the hashes of the chain's blocks, and of blocks that it has lost.
    heights: HashMap<[u8; 8], Height>,
    /// Blocks that are not added whatever their headers are, and why.
    refused: HashMap<BlockHash, RefusedHeaders>,
}

fn work_above(below: U256, header: &Header) -> U256 {
    below.wrapping_add(rules::work(header.bits))
}

fn work_of(headers: &[Header]) -> U256 {
    headers.iter().fold(U256::ZERO, work_above)
}

/// Returns the hash of one of consecutive headers: it is in the next one, and `last` is that of the last one.
fn hash_at(headers: &[Header], last: BlockHash, at: usize) -> Option<BlockHash> {
    let next = headers.get(at + 1).map(|next| next.prev);
    next.or_else(|| (at + 1 == headers.len()).then_some(last))
}

/// Part of a hash that no two blocks with work share, which ends with zeros.
fn first_bytes(hash: &BlockHash) -> [u8; 8] {
    hash.0.first_chunk().copied().unwrap_or_default()
}

/// The headers below a new one: the chain up to a height, what is kept of the branch above it, and the new
/// ones.
struct Below<'a> {
    chain: &'a [Header],
    kept: &'a [Header],
    new: &'a [Header],
}

impl Ancestors for Below<'_> {
    fn at(&self, height: Height) -> (BlockTime, u32) {
        let at = height.0 as usize;
        let above = || at - self.chain.len();
        let kept = || self.kept.get(above());
        let header = self.chain.get(at).or_else(kept).unwrap_or_else(|| &self.new[above() - self.kept.len()]);
        (header.time, header.bits)
    }
}

/// A header that was found, and leads on from the chain.
#[derive(Clone, Copy)]
struct Reached<'a> {
    child: &'a (Header, BlockHash),
    /// Sum of work up to it.
    work: U256,
    /// Which one it follows, if that is not in the chain.
    below: Option<usize>,
}

/// Number of last blocks on which [`HeaderChain::add_found`] builds: the last ones may be stale.
const LAST_PARENTS: usize = 288;

/// What [`HeaderChain::add`] has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddedHeaders {
    /// Number of headers that were not known.
    pub new: usize,
    /// Height of the last of the headers.
    pub height: Height,
    /// Height of the last of them, or of their ancestors, that is in the chain.
    pub shared: Height,
    /// The last block that the chain shares with what it was before, if it has lost blocks.
    pub fork: Option<Height>,
    /// The time of the first of them that is too far in the future. It may be valid later; like those above
    /// it, it was not added.
    pub from_future: Option<BlockTime>,
}

impl HeaderChain {
    /// The chain of the genesis block alone.
    pub fn new(params: &'static ChainParams) -> Self {
        let mut chain = Self {
            params,
            headers: vec![params.genesis],
            tip: params.genesis_hash,
            work: rules::work(params.genesis.bits),
            branches: HashMap::new(),
            heights: HashMap::new(),
            refused: HashMap::new(),
        };
        chain.note_heights(Height(0));
        chain
    }

    /// A chain whose headers were validated: `headers` are those from the genesis block on, and `tip` is the
    /// hash of the last one.
    pub fn of_validated(params: &'static ChainParams, headers: Vec<Header>, tip: BlockHash) -> Self {
        let work = work_of(&headers);
        let mut chain = Self { headers, tip, work, ..Self::new(params) };
        chain.note_heights(Height(1));
        chain
    }

    pub fn tip_height(&self) -> Height {
        Height(self.headers.len() as u32 - 1)
    }

    pub const fn work(&self) -> U256 {
        self.work
    }

    /// Returns whether the chain has the work below which Bitcoin Core downloads no blocks.
    pub fn has_minimum_work(&self) -> bool {
        self.work >= self.params.minimum_chain_work
    }

    /// Returns the header at a height; `None` above the tip.
    pub fn header(&self, height: Height) -> Option<&Header> {
        self.headers.get(height.0 as usize)
    }

    /// Returns the hash of the block at a height; `None` above the tip.
    pub fn hash(&self, height: Height) -> Option<BlockHash> {
        hash_at(&self.headers, self.tip, height.0 as usize)
    }

    /// Returns the heights of all blocks in the order of their hashes.
    pub fn heights_by_hash(&self) -> Vec<Height> {
        let mut heights: Vec<Height> = (0..=self.tip_height().0).map(Height).collect();
        heights.sort_unstable_by_key(|&height| self.hash(height));
        heights
    }

    /// Returns the median time past of the block below `height`, which must be in the chain.
    pub fn median_time_before(&self, height: Height) -> BlockTime {
        let end = (height.0 as usize).min(self.headers.len());
        let start = end.saturating_sub(rules::header::MEDIAN_TIME_SPAN);
        let times: Vec<BlockTime> = self.headers[start..end].iter().map(|header| header.time).collect();
        if times.is_empty() { BlockTime(0) } else { median_time_past(&times) }
    }

    /// What the block with this hash must be if it is the one at `height`.
    pub fn expected(&self, height: Height, hash: BlockHash) -> ExpectedBlock {
        let median_time_past_prev = self.median_time_before(height);
        ExpectedBlock { params: self.params, height, hash, median_time_past_prev }
    }

    /// Adds headers of a peer that follow each other; `hashes` are theirs, and `parent` is the block of the
    /// chain or of the peer's branch that the first one follows. The chain with the most work wins; among
    /// chains of equal work, the one that was known first.
    ///
    /// # Errors
    /// [`RefusedHeaders`]; then nothing has changed. Of headers that come too early
    /// ([`AddedHeaders::from_future`]), those before are kept, as Core does.
    pub fn add(
        &mut self,
        peer: u64,
        parent: BlockHash,
        headers: &[Header],
        hashes: &[BlockHash],
        now: BlockTime,
    ) -> Result<AddedHeaders, RefusedHeaders> {
        if let Some((_, refused)) = self.first_refused(parent, hashes) {
            return Err(refused);
        }
        let branch = self.branches.get(&peer);
        let below = self.height_of(&parent).or_else(|| branch?.height_of(&parent));
        let below = below.ok_or(RefusedHeaders::Unconnected)?;
        // They can lead from the chain into the branch.
        let known = hashes.iter().zip(below.0 + 1..).take_while(|(hash, height)| {
            let height = Height(*height);
            [self.hash(height), branch.and_then(|branch| branch.hash(height))].contains(&Some(**hash))
        });
        let known = known.count();
        let on_chain = self.height_of(hashes[..known].last().unwrap_or(&parent)).is_some();
        let parent = Height(below.0 + known as u32);
        let (headers, hashes) = (&headers[known..], &hashes[known..]);
        let (fork, kept) = match branch {
            Some(branch) if !on_chain => {
                (branch.fork, &branch.headers[..(parent.0 - branch.fork.0) as usize])
            }
            _ => (parent, Default::default()),
        };
        let none = AddedHeaders { new: 0, height: parent, shared: fork, fork: None, from_future: None };
        if hashes.is_empty() {
            return Ok(none);
        }
        if u64::from(parent.0) + headers.len() as u64 > self.most_headers(now) {
            return Err(RefusedHeaders::TooMany);
        }
        let (new, violation) = self.validate(fork, kept, headers, hashes, now);
        if violation.is_some_and(|violation| violation.rule.class != ViolationClass::TimeFuture) {
            return Err(RefusedHeaders::Invalid);
        }
        let from_future = headers.get(new).map(|header| header.time);
        let Some(&tip) = hashes[..new].last() else { return Ok(AddedHeaders { from_future, ..none }) };
        let taken = self.branches.remove(&peer).filter(|_| !on_chain);
        let taken = taken.map(|branch| (branch.headers, branch.work));
        let (mut above, work) = taken.unwrap_or((Vec::new(), U256::ZERO));
        let dropped = above.split_off((parent.0 - fork.0) as usize);
        above.extend(&headers[..new]);
        // Each header is counted once: a branch can be long.
        let work = work.wrapping_sub(work_of(&dropped)).wrapping_add(work_of(&headers[..new]));
        let height = Height(parent.0 + new as u32);
        if self.has_as_much_work_above(fork, work) {
            self.branches.insert(peer, Branch { fork, headers: above, tip, work });
            self.limit_branches(peer);
            return Ok(AddedHeaders { new, height, shared: fork, fork: None, from_future });
        }
        let left = (fork < self.tip_height()).then_some(fork);
        if left.is_some() {
            self.truncate(fork);
        }
        let first = Height(self.headers.len() as u32);
        self.headers.append(&mut above);
        (self.tip, self.work) = (tip, self.work.wrapping_add(work));
        self.note_heights(first);
        // What shares more with the chain than it did is sent again.
        let Self { headers, tip, branches, .. } = self;
        branches
            .retain(|_, it| it.hash(Height(it.fork.0 + 1)) != hash_at(headers, *tip, it.fork.0 as usize + 1));
        Ok(AddedHeaders { new, height, shared: height, fork: left, from_future })
    }

    /// Forgets the branch of a peer that is gone.
    pub fn forget_branch(&mut self, peer: u64) {
        self.branches.remove(&peer);
    }

    /// Forgets the longest branch, but not that of `peer`, if all together take too much memory.
    fn limit_branches(&mut self, peer: u64) {
        let len: usize = self.branches.values().map(|branch| branch.headers.len()).sum();
        let others = self.branches.iter().filter(|(other, _)| **other != peer);
        let longest = others.max_by_key(|(_, branch)| branch.headers.len()).map(|(other, _)| *other);
        if let Some(longest) = longest.filter(|_| len > MAX_BRANCH_HEADERS) {
            self.branches.remove(&longest);
        }
    }

    /// Returns whether the chain's blocks above `fork` have at least this work. A branch from far below is
    /// outweighed by the first of them.
    fn has_as_much_work_above(&self, fork: Height, work: U256) -> bool {
        let mut sum = U256::ZERO;
        self.headers[fork.0 as usize + 1..].iter().any(|header| {
            sum = sum.wrapping_add(rules::work(header.bits));
            sum >= work
        })
    }

    /// Adds headers that were found with their blocks, in any order, if they lead on from one of the last
    /// blocks. What the chain has had last is then added to them, so that it can come back. Returns the last
    /// block that the chain shares with what it was before.
    ///
    /// Only one branch of them is kept beside the chain, so that branches are added one by one, the one with
    /// the most work first. If a header of it breaks a rule, those below it are kept, and the next branch is
    /// tried.
    pub fn add_found(&mut self, found: &mut Vec<(Header, BlockHash)>, now: BlockTime) -> Height {
        let last = self.tip_height().0.saturating_sub(LAST_PARENTS as u32)..=self.tip_height().0;
        let own = last.map(Height).filter_map(|height| Some((*self.header(height)?, self.hash(height)?)));
        let own = own.collect::<Vec<_>>();
        found.sort_unstable_by_key(|(header, hash)| (header.prev, *hash));
        found.dedup();
        let children = |parent: BlockHash, work: U256, below: Option<usize>| {
            let first = found.partition_point(|(header, _)| header.prev < parent);
            let children = found.iter().skip(first).take_while(move |(header, _)| header.prev == parent);
            children.map(move |child| Reached { child, work: work_above(work, &child.0), below })
        };
        let (mut reached, mut work) = (Vec::new(), self.work);
        for (height, header) in self.headers.iter().enumerate().rev().take(LAST_PARENTS + 1) {
            let hash = self.hash(Height(height as u32));
            reached.extend(hash.into_iter().flat_map(|hash| children(hash, work, None)));
            work = work.wrapping_sub(rules::work(header.bits));
        }
        let (mut at, mut ends) = (0, Vec::new());
        while let Some(&Reached { child: (_, hash), work, .. }) = reached.get(at) {
            let before = reached.len();
            reached.extend(children(*hash, work, Some(at)));
            ends.extend((reached.len() == before).then_some(at));
            at += 1;
        }
        ends.sort_by_key(|&end| Reverse(reached[end].work));
        let mut shared = self.tip_height();
        for end in ends {
            if reached[end].work <= self.work {
                break;
            }
            let path = iter::successors(Some(end), |&at| reached[at].below).collect::<Vec<_>>();
            for (header, hash) in path.into_iter().rev().map(|at| reached[at].child) {
                let Ok(added) = self.add(NO_PEER, header.prev, &[*header], &[*hash], now) else { break };
                shared = shared.min(added.fork.unwrap_or(shared));
            }
        }
        found.extend(own);
        shared
    }

    /// Returns why headers with these hashes above `parent` are not added, whatever they are, and the number
    /// of headers before the first of them.
    pub fn first_refused(&self, parent: BlockHash, hashes: &[BlockHash]) -> Option<(usize, RefusedHeaders)> {
        let all = [parent].into_iter().chain(hashes.iter().copied());
        let (at, refused) = all.enumerate().find_map(|(at, hash)| Some((at, self.refused.get(&hash)?)))?;
        Some((at.saturating_sub(1), refused.clone()))
    }

    pub fn is_invalid(&self, hash: &BlockHash) -> bool {
        matches!(self.refused.get(hash), Some(RefusedHeaders::KnownInvalid))
    }

    /// Records that the block index marks a block as invalid. It must not be in the chain.
    pub fn note_marked(&mut self, hash: BlockHash, height: Height) {
        self.refused.insert(hash, RefusedHeaders::Marked(hash, height));
    }

    /// Records that a block was found invalid by this run. It must not be in the chain.
    pub fn note_invalid(&mut self, hash: BlockHash) {
        self.refused.insert(hash, RefusedHeaders::KnownInvalid);
    }

    /// Removes a block that was found invalid, and what follows it. Headers of these blocks are refused from
    /// now on, and headers above them.
    pub fn invalidate(&mut self, height: Height) {
        let hashes = (height.0..=self.tip_height().0).filter_map(|height| self.hash(Height(height)));
        let hashes: Vec<BlockHash> = hashes.collect();
        self.cut(height);
        hashes.into_iter().for_each(|hash| self.note_invalid(hash));
    }

    /// Removes a block that no peer has, and what follows it: the download could never get past it. Headers
    /// above it are refused from now on.
    pub fn set_aside(&mut self, height: Height) {
        let hash = self.cut(height);
        self.refused.extend(hash.map(|hash| (hash, RefusedHeaders::Withheld)));
    }

    /// Accepts headers of blocks that were set aside once more, because another peer may have the blocks.
    pub fn forget_withheld(&mut self) {
        self.refused.retain(|_, why| !matches!(why, RefusedHeaders::Withheld));
    }

    /// Removes the blocks from `height` on, and returns the hash of the first of them.
    fn cut(&mut self, height: Height) -> Option<BlockHash> {
        let (hash, below) = (self.hash(height)?, height.0.checked_sub(1)?);
        self.truncate(Height(below));
        self.branches.clear();
        Some(hash)
    }

    /// Validates headers above a block of the chain and what is `kept` of the branch there. Returns the
    /// number of those before the first one that breaks a rule, and which rule that is.
    fn validate(
        &self,
        fork: Height,
        kept: &[Header],
        headers: &[Header],
        hashes: &[BlockHash],
        now: BlockTime,
    ) -> (usize, Option<Violation>) {
        let (params, chain) = (self.params, &self.headers[..=fork.0 as usize]);
        for (number, (header, hash)) in headers.iter().zip(hashes).enumerate() {
            let ancestors = &Below { chain, kept, new: &headers[..number] };
            let height = Height((chain.len() + kept.len() + number) as u32);
            let context = HeaderContext { params, height, header, hash, ancestors, now };
            if let Err(violation) = check_header(&context) {
                return (number, Some(violation));
            }
        }
        (headers.len(), None)
    }

    /// Number of headers that there can be at most.
    fn most_headers(&self, now: BlockTime) -> u64 {
        let params = self.params;
        if params.no_retargeting {
            return u64::from(u32::MAX) / 2;
        }
        // A clock that is far behind the chain says nothing of how many there can be.
        let now = self.headers.last().map_or(now, |tip| now.max(tip.time));
        let age = u64::from(now.0.saturating_sub(params.genesis.time.0));
        let expected = age / u64::from(params.pow_target_spacing) + 2_016;
        let factor = if params.allow_min_difficulty_blocks { TEST_NETWORK_FACTOR } else { 1 };
        expected * factor * (100 + SPARE_HEADERS_PERCENT) / 100
    }

    fn truncate(&mut self, tip: Height) {
        // Others would follow a block that the chain does not have any more.
        self.branches.retain(|_, branch| branch.fork <= tip);
        if let Some(hash) = self.hash(tip) {
            self.headers.truncate(tip.0 as usize + 1);
            self.tip = hash;
            self.work = work_of(&self.headers);
        }
    }

    /// Makes the blocks from `first` on known to [`Self::height_of`].
    fn note_heights(&mut self, first: Height) {
        for height in (first.0..self.headers.len() as u32).map(Height) {
            let key = self.hash(height).map(|hash| first_bytes(&hash));
            self.heights.extend(key.map(|key| (key, height)));
        }
    }

    pub fn height_of(&self, hash: &BlockHash) -> Option<Height> {
        // It may be that of a block which the chain has lost.
        let height = self.heights.get(&first_bytes(hash)).copied();
        height.filter(|&height| self.hash(height) == Some(*hash))
    }
}

#[cfg(test)]
mod tests;

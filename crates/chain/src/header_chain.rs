//! The headers of the best known chain, and of one branch that may become better.
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

/// Number of headers above that which the time since the genesis block suggests, in percent.
const SPARE_HEADERS_PERCENT: u64 = 25;
/// Factor by which more headers are accepted on networks whose blocks can come faster than intended.
const TEST_NETWORK_FACTOR: u64 = 10;

/// Why headers were not added.
#[derive(Clone, Debug)]
pub enum RefusedHeaders {
    /// They do not follow a block of the chain or the branch.
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

pub struct HeaderChain {
    params: &'static ChainParams,
    /// By height, from the genesis block on. Each contains the hash of the one before it.
    headers: Vec<Header>,
    tip: BlockHash,
    work: U256,
    branch: Option<Branch>,
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
            branch: None,
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

    /// Adds headers that follow each other; `hashes` are theirs, and `parent` is the block that the first one
    /// follows. The chain with the most work wins; among chains of equal work, the one that was known first.
    ///
    /// # Errors
    /// [`RefusedHeaders`]; then nothing has changed. Of headers that come too early
    /// ([`AddedHeaders::from_future`]), those before are kept, as Core does.
    pub fn add(
        &mut self,
        parent: BlockHash,
        headers: &[Header],
        hashes: &[BlockHash],
        now: BlockTime,
    ) -> Result<AddedHeaders, RefusedHeaders> {
        if let Some((_, refused)) = self.first_refused(parent, hashes) {
            return Err(refused);
        }
        let below = self.height_of(&parent).or_else(|| self.height_in_branch(&parent));
        let below = below.ok_or(RefusedHeaders::Unconnected)?;
        // They can lead from the chain into the branch.
        let known = hashes.iter().zip(below.0 + 1..).take_while(|(hash, height)| {
            let height = Height(*height);
            [self.hash(height), self.branch_hash(height)].contains(&Some(**hash))
        });
        let known = known.count();
        let on_chain = self.height_of(hashes[..known].last().unwrap_or(&parent)).is_some();
        let parent = Height(below.0 + known as u32);
        let (headers, hashes) = (&headers[known..], &hashes[known..]);
        let (fork, kept) = match &self.branch {
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
        let taken = self.branch.take_if(|_| !on_chain).map(|branch| (branch.headers, branch.work));
        let (mut above, work) = taken.unwrap_or((Vec::new(), U256::ZERO));
        let dropped = above.split_off((parent.0 - fork.0) as usize);
        above.extend(&headers[..new]);
        // Each header is counted once: a branch can be long.
        let work = work.wrapping_sub(work_of(&dropped)).wrapping_add(work_of(&headers[..new]));
        let height = Height(parent.0 + new as u32);
        if self.has_as_much_work_above(fork, work) {
            self.branch = Some(Branch { fork, headers: above, tip, work });
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
        Ok(AddedHeaders { new, height, shared: height, fork: left, from_future })
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
    /// Only one branch is kept beside the chain, so that branches are added one by one, the one with the most
    /// work first. If a header of it breaks a rule, those below it are kept, and the next branch is tried.
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
                let Ok(added) = self.add(header.prev, &[*header], &[*hash], now) else { break };
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
        self.branch = None;
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
        // It would follow a block that the chain does not have any more.
        self.branch.take_if(|branch| branch.fork > tip);
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

    fn height_in_branch(&self, hash: &BlockHash) -> Option<Height> {
        let branch = self.branch.as_ref()?;
        let end = branch.fork.0 + branch.headers.len() as u32;
        // Most that are asked for are near its end.
        (branch.fork.0 + 1..=end).rev().map(Height).find(|&height| self.branch_hash(height) == Some(*hash))
    }

    fn branch_hash(&self, height: Height) -> Option<BlockHash> {
        let branch = self.branch.as_ref()?;
        hash_at(&branch.headers, branch.tip, height.0.checked_sub(branch.fork.0 + 1)? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::block;
    use wire::Network;

    const NOW: BlockTime = BlockTime(1_700_000_000);

    /// A chain of regtest headers above `parent`, each found by trying nonces.
    fn mine(parent: (BlockHash, BlockTime), count: u32, salt: u8) -> (Vec<Header>, Vec<BlockHash>) {
        let params = ChainParams::of(Network::Regtest);
        let ((mut prev, mut time), merkle_root) = (parent, [salt; 32]);
        let mined = (0..count).map(|_| {
            time = BlockTime(time.0 + 1);
            let mut header = Header { version: 4, prev, merkle_root, time, nonce: 0, ..params.genesis };
            prev = block::mine(&mut header, block::has_work);
            (header, prev)
        });
        mined.unzip()
    }

    /// A chain of the genesis block alone; headers and hashes of so many blocks above it.
    fn mined(count: u32) -> (HeaderChain, Vec<Header>, Vec<BlockHash>) {
        let params = ChainParams::of(Network::Regtest);
        let (headers, hashes) = mine((params.genesis_hash, params.genesis.time), count, 1);
        (HeaderChain::new(params), headers, hashes)
    }

    /// The same, where the chain has them.
    fn grown(count: u32) -> (HeaderChain, Vec<Header>, Vec<BlockHash>) {
        let (mut chain, headers, hashes) = mined(count);
        chain.add(chain.tip, &headers, &hashes, NOW).unwrap();
        (chain, headers, hashes)
    }

    #[test]
    fn the_chain_with_the_most_work_wins_and_known_headers_are_not_new() {
        let (mut chain, first, first_hashes) = mined(5);
        let (genesis, time) = (chain.tip, chain.headers[0].time);
        let added = chain.add(genesis, &first, &first_hashes, NOW).unwrap();
        let all =
            AddedHeaders { new: 5, height: Height(5), shared: Height(5), fork: None, from_future: None };
        assert_eq!((added, chain.tip_height()), (all, Height(5)));
        assert_eq!(chain.add(genesis, &first, &first_hashes, NOW).unwrap().new, 0);
        assert_eq!(chain.hash(Height(3)), Some(first_hashes[2]));

        // Another branch above block 2: as long, then longer.
        let (other, other_hashes) = mine((first_hashes[1], first[1].time), 4, 2);
        let added = chain.add(first_hashes[1], &other[..3], &other_hashes[..3], NOW).unwrap();
        assert_eq!(added, AddedHeaders { new: 3, height: Height(5), shared: Height(2), ..all });
        assert_eq!(chain.hash(Height(5)), Some(first_hashes[4]), "the first one stays");
        let added = chain.add(other_hashes[2], &other[3..], &other_hashes[3..], NOW).unwrap();
        let expected =
            AddedHeaders { new: 1, height: Height(6), shared: Height(6), fork: Some(Height(2)), ..all };
        assert_eq!(added, expected);
        let hashes: Vec<_> = (0..=6).filter_map(|height| chain.hash(Height(height))).collect();
        assert_eq!(hashes, [&[genesis], &first_hashes[..2], &other_hashes].concat());
        let work = (0..7).fold(U256::ZERO, |sum, _| sum.wrapping_add(rules::work(first[0].bits)));
        assert_eq!(chain.work, work);
        let times: Vec<_> = [time, first[0].time, first[1].time].to_vec();
        assert_eq!(chain.median_time_before(Height(3)), median_time_past(&times));
    }

    #[test]
    fn wrong_headers_are_refused_and_change_nothing() {
        let (mut chain, headers, hashes) = mined(3);
        let refused = chain.add(hashes[0], &headers[1..], &hashes[1..], NOW).unwrap_err();
        assert!(matches!(refused, RefusedHeaders::Unconnected));
        let mut early = headers.clone();
        early[2].time = BlockTime(chain.headers[0].time.0 - 1);
        let early_hashes: Vec<_> = early.iter().map(Header::hash).collect();
        let refused = chain.add(chain.tip, &early, &early_hashes, NOW).unwrap_err();
        assert!(matches!(refused, RefusedHeaders::Invalid), "{refused:?}");
        assert_eq!(chain.tip_height(), Height(0));
    }

    /// All headers of a message were dropped once, because of the last ones.
    #[test]
    fn headers_before_one_from_the_future_are_kept() {
        let (mut chain, headers, hashes) = mined(5);
        let (genesis, time) = (chain.tip, chain.headers[0].time);
        for (clock, new) in [(0, 0), (2, 2), (2, 0), (5, 3)] {
            let now = BlockTime(time.0 + clock - 7_200);
            let added = chain.add(genesis, &headers, &hashes, now).unwrap();
            let next = headers.get(clock as usize).map(|header| header.time);
            assert_eq!((added.new, added.from_future), (new, next), "{clock}");
            assert_eq!((added.height, chain.tip_height()), (Height(clock), Height(clock)));
        }
    }

    /// It once removed the branch: its peers had to send that again.
    #[test]
    fn a_bad_header_does_not_lose_the_branch_that_it_follows() {
        let (mut chain, main, hashes) = grown(6);
        let (other, others) = mine((hashes[1], main[1].time), 7, 2);
        chain.add(hashes[1], &other[..4], &others[..4], NOW).unwrap();
        for (parent, time) in [(3, 1), (3, NOW.0 + 9_000), (1, 1), (1, NOW.0 + 9_000)] {
            let (mut bad, _) = mine((others[parent], other[parent].time), 1, 3);
            bad[0].time = BlockTime(time);
            let hash = block::mine(&mut bad[0], block::has_work);
            let added = chain.add(others[parent], &bad, &[hash], NOW);
            assert_eq!(added.is_ok_and(|added| added.new == 0), time > 1, "{parent}");
        }
        let added = chain.add(others[3], &other[4..], &others[4..], NOW).unwrap();
        assert_eq!((added.height, added.fork), (Height(9), Some(Height(2))));
    }

    /// It once cut the branch back, so that what its peer sent next was refused.
    #[test]
    fn a_second_copy_of_the_beginning_of_a_branch_changes_nothing() {
        let (mut chain, main, hashes) = grown(6);
        let (other, others) = mine((hashes[1], main[1].time), 7, 2);
        // The last copy begins below the fork.
        let (across, hashes_across) = ([&main[1..2], &other].concat(), [&hashes[1..2], &others].concat());
        for (parent, headers, copied, len, new) in
            [(1, &other, &others, 4, 4), (1, &other, &others, 2, 0), (0, &across, &hashes_across, 3, 0)]
        {
            let added = chain.add(hashes[parent], &headers[..len], &copied[..len], NOW).unwrap();
            let height = Height((parent + 1 + len) as u32);
            assert_eq!((added.new, added.height, added.shared), (new, height, Height(2)), "{len} headers");
        }
        let added = chain.add(others[3], &other[4..], &others[4..], NOW).unwrap();
        assert_eq!((added.height, added.fork), (Height(9), Some(Height(2))));
    }

    /// Its headers were once added above another block of the same height.
    #[test]
    fn a_branch_above_a_block_that_the_chain_has_lost_is_forgotten() {
        let (mut chain, first, hashes) = grown(6);
        let (branch, of_branch) = mine((hashes[3], first[3].time), 5, 2);
        chain.add(hashes[3], &branch[..1], &of_branch[..1], NOW).unwrap();
        let (better, of_better) = mine((hashes[1], first[1].time), 5, 3);
        assert_eq!(chain.add(hashes[1], &better, &of_better, NOW).unwrap().fork, Some(Height(2)));
        let above = chain.add(of_branch[0], &branch[1..], &of_branch[1..], NOW);
        assert!(matches!(above, Err(RefusedHeaders::Unconnected)), "{above:?}");
        let found: Vec<_> = (3..=7).filter_map(|height| chain.hash(Height(height))).collect();
        assert_eq!((found, chain.tip_height()), (of_better, Height(7)));
    }

    #[test]
    fn heights_are_found_in_what_the_chain_is_now() {
        let (mut chain, _, hashes) = grown(40);
        for tip in [40, 29, 5] {
            chain.truncate(Height(tip));
            let found: Vec<_> = hashes.iter().filter_map(|hash| chain.height_of(hash)).collect();
            assert_eq!(found, (1..=tip).map(Height).collect::<Vec<_>>());
        }
        let again = HeaderChain::of_validated(chain.params, chain.headers, chain.tip);
        let found = [again.params.genesis_hash, hashes[2]].map(|hash| again.height_of(&hash));
        assert_eq!(found, [Some(Height(0)), Some(Height(3))]);
    }

    /// Only one was kept beside the chain: blocks above the others were left out.
    #[test]
    fn of_many_branches_that_were_found_that_with_the_most_valid_work_is_taken() {
        let (chain, main, hashes) = grown(6);
        let branch = |at: usize, count, salt| mine((hashes[at], main[at].time), count, salt);
        let branches = [branch(4, 2, 2), branch(2, 6, 3), branch(3, 4, 4), branch(5, 1, 5)];
        let found = branches.iter().flat_map(|(headers, hashes)| headers.iter().copied().zip(hashes.clone()));
        let found: Vec<_> = found.collect();
        let mut bad = branch(1, 9, 6);
        bad.0[3].time = BlockTime(1);
        // It has more work, but only as far as below the header that breaks a rule.
        for is_beside_bad in [false, true] {
            let mut chain = HeaderChain::of_validated(chain.params, chain.headers.clone(), chain.tip);
            let mut found = found.clone();
            found.extend(bad.0.iter().copied().zip(bad.1.clone()).filter(|_| is_beside_bad));
            assert_eq!(chain.add_found(&mut found, NOW), Height(3), "{is_beside_bad}");
            assert_eq!((chain.tip_height(), chain.tip), (Height(9), branches[1].1[5]));
        }
    }

    /// One that no peer has comes back once that is forgotten; an invalid one never.
    #[test]
    fn an_invalid_or_withheld_block_and_what_follows_it_do_not_come_back() {
        for is_invalid in [true, false] {
            let (mut chain, headers, hashes) = grown(4);
            let refuse = if is_invalid { HeaderChain::invalidate } else { HeaderChain::set_aside };
            refuse(&mut chain, Height(3));
            assert_eq!((chain.tip_height(), chain.hash(Height(2))), (Height(2), Some(hashes[1])));
            assert_eq!(chain.is_invalid(&hashes[2]), is_invalid);
            let again = |chain: &mut HeaderChain| chain.add(hashes[1], &headers[2..], &hashes[2..], NOW);
            let refused = again(&mut chain).unwrap_err();
            assert_eq!(matches!(refused, RefusedHeaders::KnownInvalid), is_invalid);
            assert_eq!(matches!(refused, RefusedHeaders::Withheld), !is_invalid);
            let (other, other_hashes) = mine((hashes[1], headers[1].time), 1, 9);
            let added = chain.add(hashes[1], &other, &other_hashes, NOW).unwrap();
            assert_eq!((added.new, added.height), (1, Height(3)));
            chain.forget_withheld();
            assert_eq!(again(&mut chain).is_ok_and(|added| added.height == Height(4)), !is_invalid);
        }
    }

    #[test]
    fn blocks_that_an_index_marks_as_invalid_are_refused() {
        let (mut chain, headers, hashes) = mined(2);
        chain.note_marked(hashes[1], Height(2));
        let refused = chain.add(chain.tip, &headers, &hashes, NOW).unwrap_err();
        assert!(matches!(refused, RefusedHeaders::Marked(hash, Height(2)) if hash == hashes[1]));
        let (before, _) = chain.first_refused(chain.tip, &hashes).unwrap();
        assert_eq!(before, 1, "the first block is not marked");
    }

    #[test]
    fn the_genesis_block_alone_has_not_the_minimum_work() {
        assert!(!HeaderChain::new(ChainParams::of(Network::Main)).has_minimum_work());
        assert!(mined(0).0.has_minimum_work(), "that of regtest is 0");
    }

    #[test]
    fn there_cannot_be_more_headers_than_the_time_allows() {
        let params = ChainParams::of(Network::Main);
        let chain = HeaderChain::new(params);
        let years = |years: u32| BlockTime(params.genesis.time.0 + years * 31_557_600);
        assert!((600_000..700_000).contains(&chain.most_headers(years(10))));
        let test = HeaderChain::new(ChainParams::of(Network::Test));
        assert!(test.most_headers(years(12)) > 4_000_000);
    }

    /// All honest peers were closed, as if they had sent more headers than there can be.
    #[test]
    fn with_a_clock_that_is_years_behind_the_next_header_is_from_the_future() {
        let regtest = ChainParams::of(Network::Regtest).clone();
        let changing = ChainParams { no_retargeting: false, allow_min_difficulty_blocks: false, ..regtest };
        let params: &ChainParams = Box::leak(Box::new(changing));
        let (genesis, now) = (params.genesis, params.genesis.time);
        let (headers, hashes) = mine((params.genesis_hash, BlockTime(now.0 + 31_557_600)), 2_601, 1);
        let (tip, below) = (hashes[2_599], [&[genesis][..], &headers[..2_600]].concat());
        let mut chain = HeaderChain::of_validated(params, below, tip);
        let added = chain.add(tip, &headers[2_600..], &hashes[2_600..], now).unwrap();
        assert_eq!((added.new, added.from_future), (0, Some(headers[2_600].time)));
    }
}

//! The headers of the best known chain, and of one branch that may become better.
//!
//! Each header is validated when it is added, so the chain never contains one that breaks a rule. An attacker
//! can make it no longer than [`HeaderChain::add`] allows: memory is bounded, and the chain is used only once
//! it has the network's minimum work.

use rules::{
    Ancestors, ChainParams, HeaderContext, U256, Violation, ViolationClass, check_header, median_time_past,
};
use std::collections::{HashMap, HashSet};
use wire::{BlockHash, BlockTime, Header, Height};

/// Number of headers above that which the time since the genesis block suggests, in percent.
const SPARE_HEADERS_PERCENT: u64 = 25;
/// On networks whose blocks can come faster than intended, that many times as many headers are accepted.
const TEST_NETWORK_FACTOR: u64 = 10;

/// Why headers were not added.
#[derive(Clone, Debug)]
pub enum RefusedHeaders {
    /// They do not follow a block of the chain or the branch.
    Unconnected,
    /// One of them breaks a rule.
    Invalid,
    /// One of them is too far in the future, and may be valid later.
    FromFuture,
    /// One of them is a block that was found invalid.
    KnownInvalid,
    /// One of them is a block that the block index marks as invalid: this one, at this height.
    Marked(BlockHash, Height),
    /// One of them is a block that nobody has shown.
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
    /// Hash of the last one.
    tip: BlockHash,
    /// Sum of work of the headers above the fork.
    work: U256,
}

/// See the module.
pub struct HeaderChain {
    params: &'static ChainParams,
    /// By height, from the genesis block on. Each contains the hash of the one before it.
    headers: Vec<Header>,
    tip: BlockHash,
    work: U256,
    branch: Option<Branch>,
    /// Blocks that were found invalid, with those above them.
    invalid: HashSet<BlockHash>,
    /// Blocks that the block index marks as invalid, with their heights.
    marked: HashMap<BlockHash, Height>,
    /// Blocks that no peer has.
    withheld: HashSet<BlockHash>,
}

fn refused(violation: &Violation) -> RefusedHeaders {
    match violation.rule.class {
        ViolationClass::TimeFuture => RefusedHeaders::FromFuture,
        _ => RefusedHeaders::Invalid,
    }
}

fn work_of(headers: &[Header]) -> U256 {
    headers.iter().fold(U256::ZERO, |sum, header| sum.wrapping_add(rules::work(header.bits)))
}

/// The headers below a new one: the chain up to a height, and a branch above it.
struct Below<'a> {
    chain: &'a [Header],
    branch: &'a [Header],
}

impl Below<'_> {
    fn at(&self, height: Height) -> &Header {
        let at = height.0 as usize;
        self.chain.get(at).unwrap_or_else(|| &self.branch[at - self.chain.len()])
    }
}

impl Ancestors for Below<'_> {
    fn time(&self, height: Height) -> BlockTime {
        self.at(height).time
    }

    fn bits(&self, height: Height) -> u32 {
        self.at(height).bits
    }
}

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
}

impl HeaderChain {
    /// The chain of the genesis block alone.
    #[must_use]
    pub fn new(params: &'static ChainParams) -> Self {
        Self {
            params,
            headers: vec![params.genesis],
            tip: params.genesis_hash,
            work: rules::work(params.genesis.bits),
            branch: None,
            invalid: HashSet::new(),
            marked: HashMap::new(),
            withheld: HashSet::new(),
        }
    }

    /// A chain whose headers were validated: `headers` are those from the genesis block on, and `tip` is the
    /// hash of the last one.
    #[must_use]
    pub fn of_validated(params: &'static ChainParams, headers: Vec<Header>, tip: BlockHash) -> Self {
        let work = work_of(&headers);
        Self { headers, tip, work, ..Self::new(params) }
    }

    /// Height of the last block.
    #[must_use]
    pub fn tip_height(&self) -> Height {
        Height(self.headers.len() as u32 - 1)
    }

    /// Sum of work of the chain.
    #[must_use]
    pub const fn work(&self) -> U256 {
        self.work
    }

    /// Returns whether the chain has the work below which Bitcoin Core downloads no blocks.
    #[must_use]
    pub fn has_minimum_work(&self) -> bool {
        self.work >= self.params.minimum_chain_work
    }

    /// Returns the header at a height; `None` above the tip.
    #[must_use]
    pub fn header(&self, height: Height) -> Option<&Header> {
        self.headers.get(height.0 as usize)
    }

    /// Returns the hash of the block at a height; `None` above the tip.
    #[must_use]
    pub fn hash(&self, height: Height) -> Option<BlockHash> {
        match self.headers.get(height.0 as usize + 1) {
            Some(next) => Some(next.prev),
            None => (height == self.tip_height()).then_some(self.tip),
        }
    }

    /// Returns the heights of all blocks in the order of their hashes.
    #[must_use]
    pub fn heights_by_hash(&self) -> Vec<Height> {
        let mut heights: Vec<Height> = (0..=self.tip_height().0).map(Height).collect();
        heights.sort_unstable_by_key(|&height| self.hash(height));
        heights
    }

    /// Returns the median time past of the block below `height`, which must be in the chain.
    #[must_use]
    pub fn median_time_before(&self, height: Height) -> BlockTime {
        let end = (height.0 as usize).min(self.headers.len());
        let start = end.saturating_sub(rules::header::MEDIAN_TIME_SPAN);
        let times: Vec<BlockTime> = self.headers[start..end].iter().map(|header| header.time).collect();
        if times.is_empty() { BlockTime(0) } else { median_time_past(&times) }
    }

    /// Adds headers that follow each other; `hashes` are theirs, and `parent` is the block that the first one
    /// follows. The chain with the most work wins; among chains of equal work, the one that was known first.
    ///
    /// # Errors
    /// [`RefusedHeaders`]; valid headers before the one that breaks a rule are not kept.
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
        let in_branch = self.height_in_branch(&parent);
        let (mut parent, on_chain) = match (self.height_of(&parent), in_branch) {
            (Some(height), _) => (height, true),
            (None, Some(height)) => (height, false),
            (None, None) => return Err(RefusedHeaders::Unconnected),
        };
        let known = hashes.iter().zip(1..).take_while(|(hash, above)| {
            let height = Height(parent.0 + above);
            let known = if on_chain { self.hash(height) } else { self.branch_hash(height) };
            known == Some(**hash)
        });
        let known = known.count();
        parent.0 += known as u32;
        let (headers, hashes) = (&headers[known..], &hashes[known..]);
        let Some(&last) = hashes.last() else {
            let shared = if on_chain { parent } else { self.branch.as_ref().map_or(parent, |it| it.fork) };
            return Ok(AddedHeaders { new: 0, height: parent, shared, fork: None });
        };
        if u64::from(parent.0) + headers.len() as u64 > self.most_headers(now) {
            return Err(RefusedHeaders::TooMany);
        }
        let extends_chain = on_chain && parent == self.tip_height();
        let mut branch = match self.branch.take_if(|_| !on_chain) {
            Some(branch) => branch,
            None => Branch { fork: parent, headers: Vec::new(), tip: last, work: U256::ZERO },
        };
        let shared = (parent.0 - branch.fork.0) as usize;
        if shared < branch.headers.len() {
            branch.headers.truncate(shared);
            branch.work = work_of(&branch.headers);
        }
        self.validate(&mut branch, headers, hashes, now).map_err(|violation| refused(&violation))?;
        branch.work = branch.work.wrapping_add(work_of(headers));
        branch.tip = last;
        let (new, height) = (headers.len(), Height(parent.0 + headers.len() as u32));
        if extends_chain || branch.work > self.work_above(branch.fork) {
            let fork = (branch.fork < self.tip_height()).then_some(branch.fork);
            if fork.is_some() {
                self.truncate(branch.fork);
            }
            self.work = self.work.wrapping_add(branch.work);
            self.headers.append(&mut branch.headers);
            self.tip = branch.tip;
            return Ok(AddedHeaders { new, height, shared: height, fork });
        }
        let shared = branch.fork;
        self.branch = Some(branch);
        Ok(AddedHeaders { new, height, shared, fork: None })
    }

    /// Returns why headers with these hashes above `parent` are not added, whatever they are, and the number
    /// of headers before the first of them.
    #[must_use]
    pub fn first_refused(&self, parent: BlockHash, hashes: &[BlockHash]) -> Option<(usize, RefusedHeaders)> {
        let is_known = |hash: &BlockHash| {
            self.invalid.contains(hash) || self.marked.contains_key(hash) || self.withheld.contains(hash)
        };
        let at = [parent].iter().chain(hashes).position(is_known)?;
        let hash = at.checked_sub(1).and_then(|at| hashes.get(at)).copied().unwrap_or(parent);
        let refused = match self.marked.get(&hash) {
            _ if self.invalid.contains(&hash) => RefusedHeaders::KnownInvalid,
            Some(&height) => RefusedHeaders::Marked(hash, height),
            None => RefusedHeaders::Withheld,
        };
        Some((at.saturating_sub(1), refused))
    }

    /// Returns whether a block was found invalid.
    #[must_use]
    pub fn is_invalid(&self, hash: &BlockHash) -> bool {
        self.invalid.contains(hash)
    }

    /// Records that the block index marks a block as invalid. It must not be in the chain.
    pub fn note_marked(&mut self, hash: BlockHash, height: Height) {
        self.marked.insert(hash, height);
    }

    /// Records that a block was found invalid by this run. It must not be in the chain.
    pub fn note_invalid(&mut self, hash: BlockHash) {
        self.invalid.insert(hash);
    }

    /// Removes a block that was found invalid, and what follows it. Headers of these blocks are refused from
    /// now on, and headers above them.
    pub fn invalidate(&mut self, height: Height) {
        let hashes = (height.0..=self.tip_height().0).filter_map(|height| self.hash(Height(height)));
        let hashes: Vec<BlockHash> = hashes.collect();
        self.cut(height);
        self.invalid.extend(hashes);
    }

    /// Removes a block that no peer has, and what follows it: the chain would end there for ever. Headers
    /// above it are refused from now on.
    pub fn set_aside(&mut self, height: Height) {
        let hash = self.cut(height);
        self.withheld.extend(hash);
    }

    /// Takes headers of blocks that were set aside again, when there is another peer that may have them.
    pub fn forget_withheld(&mut self) {
        self.withheld.clear();
    }

    /// Removes the blocks from `height` on, and returns the hash of the first of them.
    fn cut(&mut self, height: Height) -> Option<BlockHash> {
        let (hash, below) = (self.hash(height)?, height.0.checked_sub(1)?);
        self.truncate(Height(below));
        self.branch = None;
        Some(hash)
    }

    fn validate(
        &self,
        branch: &mut Branch,
        headers: &[Header],
        hashes: &[BlockHash],
        now: BlockTime,
    ) -> Result<(), Violation> {
        let chain = &self.headers[..=branch.fork.0 as usize];
        for (header, hash) in headers.iter().zip(hashes) {
            let ancestors = Below { chain, branch: &branch.headers };
            let height = Height((chain.len() + branch.headers.len()) as u32);
            let params = self.params;
            check_header(&HeaderContext { params, height, header, hash, ancestors: &ancestors, now })?;
            branch.headers.push(*header);
        }
        Ok(())
    }

    /// Number of headers that there can be at most.
    fn most_headers(&self, now: BlockTime) -> u64 {
        let params = self.params;
        if params.no_retargeting {
            return u64::from(u32::MAX) / 2;
        }
        let age = u64::from(now.0.saturating_sub(params.genesis.time.0));
        let expected = age / u64::from(params.pow_target_spacing) + 2_016;
        let factor = if params.allow_min_difficulty_blocks { TEST_NETWORK_FACTOR } else { 1 };
        expected * factor * (100 + SPARE_HEADERS_PERCENT) / 100
    }

    fn work_above(&self, height: Height) -> U256 {
        work_of(&self.headers[height.0 as usize + 1..])
    }

    fn truncate(&mut self, tip: Height) {
        if let Some(hash) = self.hash(tip) {
            self.headers.truncate(tip.0 as usize + 1);
            self.tip = hash;
            self.work = work_of(&self.headers);
        }
    }

    /// Returns the height of a block of the chain. Most that are asked for are near the tip.
    #[must_use]
    pub fn height_of(&self, hash: &BlockHash) -> Option<Height> {
        if *hash == self.tip {
            return Some(self.tip_height());
        }
        let next = self.headers.iter().rposition(|header| header.prev == *hash)?;
        next.checked_sub(1).map(|height| Height(height as u32))
    }

    fn height_in_branch(&self, hash: &BlockHash) -> Option<Height> {
        let branch = self.branch.as_ref()?;
        let end = branch.fork.0 + branch.headers.len() as u32;
        (branch.fork.0 + 1..=end).map(Height).find(|&height| self.branch_hash(height) == Some(*hash))
    }

    /// Returns the hash of a block of the branch.
    fn branch_hash(&self, height: Height) -> Option<BlockHash> {
        let branch = self.branch.as_ref()?;
        let at = height.0.checked_sub(branch.fork.0 + 1)? as usize;
        match branch.headers.get(at + 1) {
            Some(next) => Some(next.prev),
            None => (at + 1 == branch.headers.len()).then_some(branch.tip),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Network;

    const NOW: BlockTime = BlockTime(1_700_000_000);

    /// A chain of regtest headers above `parent`, each found by trying nonces.
    fn mine(parent: (BlockHash, BlockTime), count: u32, salt: u8) -> (Vec<Header>, Vec<BlockHash>) {
        let params = ChainParams::of(Network::Regtest);
        let (mut prev, mut time) = parent;
        let mined = (0..count).map(|_| {
            time = BlockTime(time.0 + 1);
            let mut header = Header {
                version: 4,
                prev,
                merkle_root: [salt; 32],
                time,
                bits: params.genesis.bits,
                nonce: 0,
            };
            while !rules::pow::has_proof_of_work(params, &header.hash(), header.bits) {
                header.nonce += 1;
            }
            prev = header.hash();
            (header, prev)
        });
        mined.unzip()
    }

    fn chain() -> (HeaderChain, BlockHash, BlockTime) {
        let params = ChainParams::of(Network::Regtest);
        (HeaderChain::new(params), params.genesis_hash, params.genesis.time)
    }

    #[test]
    fn the_chain_with_the_most_work_wins_and_known_headers_are_not_new() {
        let (mut chain, genesis, time) = chain();
        let (first, first_hashes) = mine((genesis, time), 5, 1);
        let added = chain.add(genesis, &first, &first_hashes, NOW).unwrap();
        let all = AddedHeaders { new: 5, height: Height(5), shared: Height(5), fork: None };
        assert_eq!((added, chain.tip_height()), (all, Height(5)));
        assert_eq!(chain.add(genesis, &first, &first_hashes, NOW).unwrap().new, 0);
        assert_eq!(chain.hash(Height(3)), Some(first_hashes[2]));

        // Another branch above block 2: as long, then longer.
        let (other, other_hashes) = mine((first_hashes[1], first[1].time), 4, 2);
        let added = chain.add(first_hashes[1], &other[..3], &other_hashes[..3], NOW).unwrap();
        assert_eq!(added, AddedHeaders { new: 3, height: Height(5), shared: Height(2), fork: None });
        assert_eq!(chain.hash(Height(5)), Some(first_hashes[4]), "the first one stays");
        let added = chain.add(other_hashes[2], &other[3..], &other_hashes[3..], NOW).unwrap();
        assert_eq!(
            added,
            AddedHeaders { new: 1, height: Height(6), shared: Height(6), fork: Some(Height(2)) }
        );
        let hashes: Vec<_> = (0..=6).filter_map(|height| chain.hash(Height(height))).collect();
        assert_eq!(hashes, [&[genesis], &first_hashes[..2], &other_hashes].concat());
        assert_eq!(
            chain.work,
            (0..7).fold(U256::ZERO, |sum, _| sum.wrapping_add(rules::work(first[0].bits)))
        );
        let times: Vec<_> = [time, first[0].time, first[1].time].to_vec();
        assert_eq!(chain.median_time_before(Height(3)), median_time_past(&times));
    }

    #[test]
    fn wrong_headers_are_refused_and_change_nothing() {
        let (mut chain, genesis, time) = chain();
        let (headers, hashes) = mine((genesis, time), 3, 1);
        let refused = chain.add(hashes[0], &headers[1..], &hashes[1..], NOW).unwrap_err();
        assert!(matches!(refused, RefusedHeaders::Unconnected));
        let early_now = BlockTime(time.0 - 7_200);
        let refused = chain.add(genesis, &headers, &hashes, early_now).unwrap_err();
        assert!(matches!(refused, RefusedHeaders::FromFuture));
        let mut early = headers.clone();
        early[2].time = BlockTime(time.0 - 1);
        let early_hashes: Vec<_> = early.iter().map(Header::hash).collect();
        let refused = chain.add(genesis, &early, &early_hashes, NOW).unwrap_err();
        assert!(matches!(refused, RefusedHeaders::Invalid), "{refused:?}");
        assert_eq!(chain.tip_height(), Height(0));
    }

    #[test]
    fn an_invalid_block_and_what_follows_it_do_not_come_back() {
        let (mut chain, genesis, time) = chain();
        let (headers, hashes) = mine((genesis, time), 4, 1);
        chain.add(genesis, &headers, &hashes, NOW).unwrap();
        chain.invalidate(Height(3));
        assert_eq!((chain.tip_height(), chain.hash(Height(2))), (Height(2), Some(hashes[1])));
        let again = chain.add(hashes[1], &headers[2..], &hashes[2..], NOW).unwrap_err();
        assert!(matches!(again, RefusedHeaders::KnownInvalid));
        let (other, other_hashes) = mine((hashes[1], headers[1].time), 1, 9);
        assert_eq!(chain.add(hashes[1], &other, &other_hashes, NOW).unwrap().new, 1);
    }

    #[test]
    fn a_withheld_block_and_what_follows_it_do_not_come_back_but_are_not_invalid() {
        let (mut chain, genesis, time) = chain();
        let (headers, hashes) = mine((genesis, time), 4, 1);
        chain.add(genesis, &headers, &hashes, NOW).unwrap();
        chain.set_aside(Height(3));
        assert_eq!((chain.tip_height(), chain.is_invalid(&hashes[2])), (Height(2), false));
        let again = chain.add(hashes[1], &headers[2..], &hashes[2..], NOW).unwrap_err();
        assert!(matches!(again, RefusedHeaders::Withheld));
        let (other, other_hashes) = mine((hashes[1], headers[1].time), 1, 9);
        assert_eq!(chain.add(hashes[1], &other, &other_hashes, NOW).unwrap().height, Height(3));
        chain.forget_withheld();
        assert_eq!(chain.add(hashes[1], &headers[2..], &hashes[2..], NOW).unwrap().height, Height(4));
    }

    #[test]
    fn blocks_that_an_index_marks_as_invalid_are_refused() {
        let (mut chain, genesis, time) = chain();
        let (headers, hashes) = mine((genesis, time), 2, 1);
        chain.note_marked(hashes[1], Height(2));
        let refused = chain.add(genesis, &headers, &hashes, NOW).unwrap_err();
        assert!(matches!(refused, RefusedHeaders::Marked(hash, Height(2)) if hash == hashes[1]));
        let (before, _) = chain.first_refused(genesis, &hashes).unwrap();
        assert_eq!(before, 1, "the first block is not marked");
    }

    #[test]
    fn the_genesis_block_alone_has_not_the_minimum_work() {
        assert!(!HeaderChain::new(ChainParams::of(Network::Main)).has_minimum_work());
        assert!(chain().0.has_minimum_work(), "that of regtest is 0");
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
}

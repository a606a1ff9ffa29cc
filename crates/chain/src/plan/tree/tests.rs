//! Tests the choice of a chain among branches that differ in what is on disk.

use super::*;
use crate::plan::chain_request::HintsEnd;
use api::error::ErrorKind;
use testkit::block::{has_work, mine};
use wire::Network;

/// Returns a child of a block on regtest; `salt` makes siblings differ.
fn child(parent: &Header, salt: u32) -> Header {
    let time = BlockTime(parent.time.0 + 600 + salt);
    let mut header = Header { version: 4, prev: parent.hash(), time, nonce: 0, ..*parent };
    mine(&mut header, has_work);
    header
}

/// Headers in the order in which their blocks are stored, each with two flags: undo data is on disk, Core
/// marked it as invalid.
#[derive(Default)]
struct Stored(Vec<(Header, bool, bool)>);

impl Stored {
    /// The genesis block and `count` more blocks, with undo data.
    fn chain(count: usize) -> Self {
        let genesis = ChainParams::of(Network::Regtest).genesis;
        let line = std::iter::successors(Some(genesis), |parent| Some(child(parent, 0)));
        Self(line.take(count + 1).map(|header| (header, true, false)).collect())
    }

    fn header(&self, at: usize) -> Header {
        self.0[at].0
    }

    fn hash(&self, at: usize) -> BlockHash {
        self.header(at).hash()
    }

    /// Stores a child of the block at index `at`; returns the index of the child.
    fn add(&mut self, at: usize, salt: u32, undo: bool) -> usize {
        self.0.push((child(&self.header(at), salt), undo, false));
        self.0.len() - 1
    }

    /// Links all headers; of the block at `lacking`, only the header is stored. Returns the sorted hashes
    /// too.
    fn tree(&self, lacking: Option<usize>) -> Result<(Vec<BlockHash>, Tree<'static>), Error> {
        let mut order: Vec<usize> = (0..self.0.len()).collect();
        order.sort_by_key(|&at| self.hash(at));
        let pos = |at: usize| ByteOffset(at as u64 * 1000 + 8);
        let nodes = order.iter().map(|&at| {
            let (header, undo, failed) = &self.0[at];
            let data = (lacking != Some(at)).then_some((FileNo(0), pos(at)));
            let undo_pos = Some(pos(at)).filter(|_| *undo && at > 0);
            Node::new(header, data, undo_pos, *failed).unwrap()
        });
        let links = |link: &mut dyn FnMut(BlockHash, BlockHash)| {
            order.iter().for_each(|&at| link(self.hash(at), self.header(at).prev));
            Ok(())
        };
        let hashes: Vec<_> = order.iter().map(|&at| self.hash(at)).collect();
        // So that blocks can be easier than the genesis block.
        let pow_limit = !U256::ZERO;
        let params = ChainParams { pow_limit, ..ChainParams::of(Network::Regtest).clone() };
        let params: &ChainParams = Box::leak(Box::new(params));
        let tree = Tree::link(hashes.clone(), nodes.collect(), links, params, BlockTime(u32::MAX))?;
        Ok((hashes, tree))
    }

    fn choose(&self, request: &ChainRequest<'_>) -> Result<(Vec<BlockHash>, ChosenChain), Error> {
        let (hashes, mut tree) = self.tree(None)?;
        let choice = tree.choose(request)?;
        let branch = choice.branch.iter().map(|&number| hashes[number as usize]).collect();
        Ok((branch, choice))
    }

    /// Returns the index of the last block of the chosen chain.
    fn tip(&self, request: &ChainRequest<'_>) -> usize {
        let (branch, _) = self.choose(request).unwrap();
        (0..self.0.len()).find(|&at| self.hash(at) == *branch.last().unwrap()).unwrap()
    }
}

fn preferring(hash: BlockHash) -> ChainRequest<'static> {
    ChainRequest { preferred: Some(hash), ..ChainRequest::default() }
}

fn without_undo(height: u32, hash: Option<BlockHash>) -> ChainRequest<'static> {
    let hints = Some(HintsEnd { height: Height(height), hash });
    ChainRequest { hints, without_undo: true, ..ChainRequest::default() }
}

#[test]
fn among_branches_of_equal_work_the_preferred_one_wins_then_the_one_stored_first() {
    let mut stored = Stored::chain(5);
    let first = stored.add(5, 1, true);
    let second = stored.add(5, 2, true);
    assert_eq!(stored.tip(&ChainRequest::default()), first);
    assert_eq!(stored.tip(&preferring(stored.hash(second))), second);
    assert_eq!(stored.tip(&preferring(stored.hash(first))), first);
    assert_eq!(stored.tip(&preferring(stored.hash(4))), first, "both descend from it");
    assert_eq!(stored.tip(&preferring(BlockHash([7; 32]))), first, "an unknown block has no effect");
    // Below the tips, the branch that descends from the preferred block.
    let on_first = stored.add(first, 0, true);
    let on_second = stored.add(second, 0, true);
    assert_eq!(stored.tip(&preferring(stored.hash(second))), on_second);
    // More work beats any preference.
    let more = stored.add(on_first, 0, true);
    assert_eq!(stored.tip(&preferring(stored.hash(on_second))), more);
}

#[test]
fn a_preferred_block_that_cannot_be_connected_is_not_chosen() {
    let mut stored = Stored::chain(3);
    let tip = stored.add(3, 1, true);
    let never = stored.add(3, 2, false);
    assert_eq!(stored.tip(&preferring(stored.hash(never))), tip);
    stored.0[never].1 = true;
    stored.0[never].2 = true;
    assert_eq!(stored.tip(&preferring(stored.hash(never))), tip);
}

#[test]
fn an_invalid_block_and_its_descendants_are_not_chosen() {
    let mut stored = Stored::chain(3);
    let first = stored.add(3, 1, true);
    let second = stored.add(3, 2, true);
    let invalid = [stored.hash(first)];
    let request = ChainRequest { invalid: &invalid, ..ChainRequest::default() };
    assert_eq!(stored.tip(&request), second);
    stored.add(first, 0, false);
    let (_, chosen) = stored.choose(&request).unwrap();
    assert_eq!(chosen.choice.unconnected, 0, "no block can be connected to it");
}

#[test]
fn stored_blocks_without_undo_data_suffice_up_to_the_last_block_of_the_hints() {
    let mut stored = Stored::chain(8);
    stored.0[1..=6].iter_mut().for_each(|block| block.1 = false);
    let error = stored.choose(&ChainRequest::default()).map(|(branch, _)| branch).unwrap_err();
    assert_eq!((error.kind, error.height), (ErrorKind::Damaged, Some(Height(1))), "{error}");
    for hash in [None, Some(stored.hash(6))] {
        assert_eq!(stored.tip(&without_undo(6, hash)), 8);
        assert_eq!(stored.tip(&without_undo(8, hash)), 8);
        // Below that, the undo data of block 6 is missing.
        let error = stored.choose(&without_undo(5, None)).map(|(branch, _)| branch).unwrap_err();
        assert_eq!((error.kind, error.height), (ErrorKind::Damaged, Some(Height(6))), "{error}");
        assert!(error.detail.contains("undo data of the block is not on disk"), "{error}");
    }
}

#[test]
fn blocks_without_undo_data_above_the_last_block_of_the_hints_count_as_never_connected() {
    let mut stored = Stored::chain(6);
    stored.0[1..].iter_mut().for_each(|block| block.1 = false);
    let (branch, chosen) = stored.choose(&without_undo(4, Some(stored.hash(4)))).unwrap();
    assert_eq!((branch.len(), chosen.choice.unconnected), (5, 2));
    assert_eq!(stored.tip(&ChainRequest::default()), 0);
}

#[test]
fn reports_a_missing_block_below_the_last_block_of_the_hints() {
    let mut stored = Stored::chain(6);
    stored.0[1..].iter_mut().for_each(|block| block.1 = false);
    let end = stored.hash(6);
    stored.0[5].2 = true;
    let branch = stored.choose(&without_undo(6, Some(end))).unwrap().0;
    assert_eq!(branch.len(), 5, "a failed block has no descendants in the chain");
    // Only the header, as on a pruned node.
    stored.0[5].2 = false;
    let (_, mut tree) = stored.tree(Some(3)).unwrap();
    let error = tree.choose(&without_undo(6, Some(end))).map(|choice| choice.branch).unwrap_err();
    assert_eq!((error.kind, error.height), (ErrorKind::Damaged, Some(Height(3))), "{error}");
    assert!(error.detail.starts_with("the block is not on disk"), "{error}");
}

#[test]
fn among_stored_branches_the_one_of_the_hints_is_preferred() {
    let mut stored = Stored::chain(4);
    stored.0[1..].iter_mut().for_each(|block| block.1 = false);
    let first = stored.add(4, 1, false);
    let second = stored.add(4, 2, false);
    assert_eq!(stored.tip(&without_undo(5, None)), first);
    let request = ChainRequest { preferred: Some(stored.hash(second)), ..without_undo(5, None) };
    assert_eq!(stored.tip(&request), second);
}

#[test]
fn of_blocks_whose_ancestors_are_missing_the_lowest_is_named() {
    let mut stored = Stored::chain(10);
    let [missing, lowest, other] = [4, 5, 9].map(|at| stored.hash(at));
    stored.0.remove(8);
    stored.0.remove(4);
    let error = stored.choose(&ChainRequest::default()).map(|(branch, _)| branch).unwrap_err();
    assert!(error.detail.starts_with("the chain on disk ends at height 3, but 5 blocks above it"), "{error}");
    let named = format!("the lowest of them is {lowest} in blk00000.dat at byte 4008");
    assert!(error.detail.contains(&named), "{error}");
    assert!(error.detail.contains(&format!("{missing}, is not on disk")), "{error}");
    assert!(!error.detail.contains(&other.to_string()), "{error}");
    // A node that downloads has blocks whose parents have not come yet.
    stored.0.iter_mut().skip(4).for_each(|(_, undo, _)| *undo = false);
    let (branch, chosen) = stored.choose(&ChainRequest::default()).unwrap();
    assert_eq!((branch.len(), chosen.choice.orphans.map(|orphans| orphans.blocks)), (4, Some(5)));
    // Without undo data of the tip, nobody knows.
    stored.0.iter_mut().for_each(|(_, undo, _)| *undo = false);
    let scan = ChainRequest { makes_undo: true, ..ChainRequest::default() };
    assert!(stored.choose(&scan).is_err());
}

/// Heights were compared: a better branch that is not higher was not announced, nor taken for the best one.
#[test]
fn branches_are_compared_by_work_where_late_blocks_are_easier() {
    let mut stored = Stored::chain(1);
    let usual = stored.header(0).bits;
    let mut add = |at: usize, seconds: u32, bits: u32, undo: bool| {
        let parent = stored.header(at);
        let time = BlockTime(parent.time.0 + seconds);
        let mut header = Header { prev: parent.hash(), time, bits, nonce: 0, ..parent };
        mine(&mut header, has_work);
        stored.0.push((header, undo, false));
        stored.0.len() - 1
    };
    let easy = (0..3).fold(1, |at, _| add(at, 1201, 0x2100_ffff, true));
    let hard = (0..2).fold(1, |at, _| add(at, 600, usual, false));
    let header_only = add(easy, 600, usual, false);
    let (hashes, mut tree) = stored.tree(Some(header_only)).unwrap();
    let last = |branch: &[u32]| hashes[*branch.last().unwrap() as usize];
    assert_eq!(last(&tree.best_stored_chain()), stored.hash(hard));
    let chosen = tree.choose(&ChainRequest::default()).unwrap();
    assert_eq!(last(&chosen.branch), stored.hash(easy));
    assert_eq!((chosen.choice.unconnected, chosen.choice.gap.is_some()), (2, true));
}

//! Whether bytes are a certain block, and obey the rules that need no other block.
//!
//! If they are not the bytes to which the block's header commits, they say nothing about the block: a file is
//! damaged, or a peer has sent something else. If they are, and break a rule, the block is invalid. All code
//! that checks a block calls this module, and knows what either case means for the source of the bytes.

use crate::blocks::{block_hashes::BlockHashes, chain::Chain, damage::Damage};
use rules::{
    BlockContext, ChainParams, Violation, ViolationClass, check_block, check_signet_solution,
    merkle::{MerkleRoot, merkle_root},
};
use wire::{BlockHash, BlockTime, BlockView, Height, ScriptVerifier, TxView, Txid};

/// The block that bytes must be.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedBlock {
    pub params: &'static ChainParams,
    pub height: Height,
    pub hash: BlockHash,
    pub median_time_past_prev: BlockTime,
}

/// Why bytes were not accepted.
#[derive(Debug)]
pub enum BlockFlaw {
    /// They are not those to which the header of the block commits.
    Damaged(Damage),
    /// They are, and break a rule.
    Invalid(Violation),
}

/// A block that is valid as far as that can be known without other blocks.
#[derive(Debug)]
pub struct CheckedBlock {
    pub hash: BlockHash,
    pub bytes: Vec<u8>,
    pub facts: BlockFacts,
}

/// What is known of a block that was checked as far as that is possible without other blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockFacts {
    pub txids: Vec<Txid>,
    /// Number of signature operations of its own scripts.
    pub legacy_sigops: u32,
}

impl CheckedBlock {
    pub const fn memory_bytes(&self) -> u64 {
        (self.bytes.capacity() + self.facts.txids.capacity() * size_of::<Txid>()) as u64
    }
}

impl ExpectedBlock {
    /// The block at a height of a chain.
    ///
    /// # Panics
    /// If `height` is above the tip.
    pub fn at(chain: &Chain, params: &'static ChainParams, height: Height) -> Self {
        let (hash, median_time_past_prev) = (chain.block(height).hash, chain.median_time_before(height));
        Self { params, height, hash, median_time_past_prev }
    }

    /// Checks that a computed hash is that of this block.
    pub fn check_hash(&self, found: BlockHash) -> Result<(), Damage> {
        if found == self.hash { Ok(()) } else { Err(Damage::OtherBlock(found)) }
    }

    /// Hashes a parsed block, without its witnesses, and its undo data if there is any. Returns whether its
    /// txids are those to which the header commits: then it is this block, apart from its witnesses.
    pub fn has_txids_of(&self, block: &BlockView<'_>, undo_data: &[u8], hashes: &mut BlockHashes) -> bool {
        hashes.without_wtxids(block, undo_data);
        let wanted = MerkleRoot { root: block.header().merkle_root, mutated: false };
        hashes.block == self.hash && merkle_root(hashes.txids.iter().map(|txid| txid.0).collect()) == wanted
    }

    /// Hashes a parsed block, and its undo data if there is any. Checks that it is this block, and that it
    /// obeys the rules; returns the result of [`check_block`]. On a signed network, `verifier` runs its
    /// solution, before the other rules: bitcoind would not start on a datadir with a block without one.
    ///
    /// # Errors
    /// [`BlockFlaw`]; `hashes` are those of the block that was given, in any case.
    pub fn check(
        &self,
        verifier: Option<&dyn ScriptVerifier>,
        block: &BlockView<'_>,
        undo_data: &[u8],
        hashes: &mut BlockHashes,
    ) -> Result<u32, BlockFlaw> {
        hashes.of_block(block, undo_data);
        self.check_hash(hashes.block).map_err(BlockFlaw::Damaged)?;
        let checked = check_block(&BlockContext {
            params: self.params,
            height: self.height,
            block,
            txids: &hashes.txids,
            wtxids: &hashes.wtxids,
            median_time_past_prev: self.median_time_past_prev,
        });
        match checked {
            Err(violation) if violation.rule.class == ViolationClass::Mutated => {
                Err(BlockFlaw::Damaged(Damage::Mutated(violation)))
            }
            checked => {
                let (params, height) = (self.params, self.height);
                let solution = verifier
                    .map(|verifier| check_signet_solution(params, verifier, block, height, &hashes.txids));
                solution.transpose().and(checked).map_err(BlockFlaw::Invalid)
            }
        }
    }
}

/// Whether what was parsed as transactions could be nodes of the merkle tree, whose root would be the same: a
/// block without a coinbase in which a transaction has 64 bytes (Core `IsBlockMutated`).
pub(crate) fn may_be_merkle_nodes(block: &BlockView<'_>) -> bool {
    let stripped_len = |tx: TxView<'_>| tx.txid_message().0.iter().map(|part| part.len()).sum::<usize>();
    block.tx(0).is_none_or(|tx| !tx.is_coinbase()) && block.txs().any(|tx| stripped_len(tx) == 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{ChainSpec, verifiers::Refusing};
    use wire::{BlockArena, Network};

    /// Checks the genesis block of regtest after `change`, as the block at a height.
    fn check(height: u32, change: impl Fn(&mut Vec<u8>)) -> Result<u32, BlockFlaw> {
        let params = ChainParams::of(Network::Regtest);
        let mut bytes = params.genesis_block();
        change(&mut bytes);
        let (hash, median_time_past_prev) = (params.genesis_hash, params.genesis.time);
        let expected = ExpectedBlock { params, height: Height(height), hash, median_time_past_prev };
        let (mut arena, mut hashes) = (BlockArena::default(), BlockHashes::default());
        let checked = expected.check(None, &arena.parse(&bytes).unwrap(), &[], &mut hashes);
        assert_eq!(hashes.txids.len(), 1, "they are there in any case");
        checked
    }

    #[test]
    fn only_the_bytes_to_which_the_header_commits_break_a_rule() {
        assert_eq!(check(0, |_| {}).unwrap(), 1);
        let other = check(0, |bytes| bytes[79] ^= 1);
        assert!(matches!(other, Err(BlockFlaw::Damaged(Damage::OtherBlock(_)))), "{other:?}");
        // The last byte is one of the lock time.
        let mutated = check(0, |bytes| *bytes.last_mut().unwrap() ^= 1);
        assert!(matches!(mutated, Err(BlockFlaw::Damaged(Damage::Mutated(_)))), "{mutated:?}");
        // The coinbase does not have the height.
        let invalid = check(1, |_| {});
        assert!(
            matches!(&invalid, Err(BlockFlaw::Invalid(violation)) if violation.core == "bad-cb-height"),
            "{invalid:?}"
        );
    }

    /// A block without one was once stored: bitcoind could not read it, and did not start.
    #[test]
    fn a_block_of_a_signed_network_needs_a_solution() {
        let chain = testkit::Chain::generate(&ChainSpec { blocks: Some(2), ..ChainSpec::new(1, 10_000) });
        let block = chain.main().nth(1).unwrap();
        let regtest = ChainParams::of(Network::Regtest);
        let signed = ChainParams { signet_challenge: Some(&[]), ..regtest.clone() };
        for (params, is_refused) in [(regtest, false), (&*Box::leak(Box::new(signed)), true)] {
            let (hash, median_time_past_prev) = (block.hash, params.genesis.time);
            let expected = ExpectedBlock { params, height: Height(1), hash, median_time_past_prev };
            let (mut arena, mut hashes) = (BlockArena::default(), BlockHashes::default());
            let checked =
                expected.check(Some(&Refusing), &arena.parse(&block.bytes).unwrap(), &[], &mut hashes);
            let refused = matches!(&checked, Err(BlockFlaw::Invalid(it)) if it.core == "bad-signet-blksig");
            assert_eq!((refused, checked.is_ok()), (is_refused, !is_refused), "{checked:?}");
        }
    }
}

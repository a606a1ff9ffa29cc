//! Blocks that break exactly one consensus rule, with Bitcoin Core's reject string.
//!
//! Each row makes the next block of a valid chain with one violation in it. Everything else is correct:
//! merkle root, witness commitment, proof of work, coinbase amount, and undo data as a node without that rule
//! would have written it. If a rule has a boundary, another row is exactly on it and must be accepted, which
//! shows that the rejected row fails for the stated reason and no other.

mod block;
mod block_builder;
mod header;
mod script;
mod spend;
mod tapscript;
mod tx;

pub use block_builder::{BlockBuilder, BuilderCoin, Draft, anyone, paying};

use crate::prelude::*;

/// Core's reject string for a script that fails for this reason (`script_error.cpp`, `ScriptErrorString`).
macro_rules! failed {
    ($reason:literal) => {
        concat!("block-script-verify-flag-failed (", $reason, ")")
    };
}
use failed;

/// Reject strings of a body that its header does not commit to: the header may be valid, and a block on disk
/// is damaged (Core `BLOCK_MUTATED`).
pub const MUTATED: &[&str] = &[
    "bad-txnmrklroot",
    "bad-txns-duplicate",
    "bad-witness-nonce-size",
    "bad-witness-merkle-match",
    "unexpected-witness",
];

/// What is needed to detect a violation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckLevel {
    /// The header and the headers before it.
    Header,
    /// The block's own bytes, with the context of its header.
    Block,
    /// The coins that the block spends.
    Spend,
    /// The scripts of these coins.
    Script,
}

/// A row of the table: how to make a block, and Core's verdict.
#[derive(Debug)]
pub struct Mutation {
    /// A unique name.
    pub name: &'static str,
    /// Core's reject string; `None` if the block is valid.
    pub core: Option<&'static str>,
    /// The level of checks that the rule belongs to.
    pub level: CheckLevel,
    make: Make,
}

/// A chain whose last block was made by a mutation.
#[derive(Clone, Debug)]
pub struct MutatedChain {
    /// Valid blocks that were added before the mutated block.
    pub setup: Vec<GeneratedBlock>,
    /// The mutated block, which is the tip.
    pub block: GeneratedBlock,
    /// All blocks, with the mutated one and its undo data at the end. The model has the coins at the last
    /// *valid* block.
    pub chain: Chain,
}

type Make = fn(&mut BlockBuilder<'_>) -> Draft;

impl CheckLevel {
    /// A row of a block that breaks a rule of this level.
    const fn rejects(self, name: &'static str, core: &'static str, make: Make) -> Mutation {
        Mutation { name, core: Some(core), level: self, make }
    }

    /// A row of a block that barely keeps a rule of this level.
    const fn accepts(self, name: &'static str, make: Make) -> Mutation {
        Mutation { name, core: None, level: self, make }
    }
}

impl Mutation {
    /// Builds the mutated block on `chain`, which must have enough reserved coins; see [`base_chain`].
    pub fn apply(&self, chain: &Chain) -> MutatedChain {
        let mut builder = BlockBuilder::new(chain, Rng::new(chain.spec.seed, self.name).next_u64());
        let draft = (self.make)(&mut builder);
        let block = builder.seal(&draft);
        let mut mutated = chain.clone();
        let setup = builder.into_added();
        for valid in setup.iter().chain(self.core.is_none().then_some(&block)) {
            mutated.model.apply(&valid.bytes, valid.height);
        }
        mutated.blocks.extend(setup.iter().chain([&block]).cloned());
        MutatedChain { setup, block, chain: mutated }
    }
}

/// Generates a small chain with reserved coins for mutations.
pub fn base_chain(seed: u64) -> Chain {
    let spec = ChainSpec { blocks: Some(160), reserved: 30, ..ChainSpec::new(seed, 400_000) };
    Chain::generate(&spec)
}

pub fn mutations() -> impl Iterator<Item = &'static Mutation> {
    [header::ROWS, block::ROWS, tx::ROWS, spend::ROWS, script::ROWS, tapscript::ROWS].into_iter().flatten()
}

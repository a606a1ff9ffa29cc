//! Blocks that break exactly one rule, with what Bitcoin Core says of them.
//!
//! Each row makes the next block of a valid chain and spoils one thing in it; all else is made right again:
//! merkle root, witness commitment, proof of work, coinbase amount, and undo data as a node would have
//! written it that lacks that one rule. Where a rule has a boundary, a twin row stands exactly on it and must
//! be accepted: it shows that the row beside it fails for its reason and no other.

mod block;
mod block_builder;
mod header;
mod script;
mod script_limits;
mod spend;
mod tapscript;
mod tx;

pub use block_builder::{BlockBuilder, BuilderCoin, Draft};

use crate::{block::GeneratedBlock, chain::Chain, generate::ChainSpec, rng::Rng};

/// Core's reject string for a script that fails so (`script_error.cpp`, `ScriptErrorString`).
macro_rules! failed {
    ($reason:literal) => {
        concat!("block-script-verify-flag-failed (", $reason, ")")
    };
}
use failed;

/// What must see the flaw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckLevel {
    /// The header, with those before it.
    Header,
    /// The block's own bytes, with its header's context.
    Block,
    /// The coins it spends.
    Spend,
    /// Their scripts.
    Script,
}

/// A way to make a block.
#[derive(Debug)]
pub struct Mutation {
    /// Unique, for messages.
    pub name: &'static str,
    /// Core's reject string; `None`: the block is valid.
    pub core: Option<&'static str>,
    /// What sees it.
    pub level: CheckLevel,
    make: fn(&mut BlockBuilder<'_>) -> Draft,
}

/// A chain whose last block is mutated.
#[derive(Clone, Debug)]
pub struct MutatedChain {
    /// Valid blocks between the chain and the mutated block.
    pub setup: Vec<GeneratedBlock>,
    /// The mutated block: the tip.
    pub block: GeneratedBlock,
    /// All blocks, the mutated one at the end with its undo data; the model holds the coins at the last
    /// *valid* block.
    pub chain: Chain,
}

impl Mutation {
    const fn rejects(
        name: &'static str,
        core: &'static str,
        level: CheckLevel,
        make: fn(&mut BlockBuilder<'_>) -> Draft,
    ) -> Self {
        Self { name, core: Some(core), level, make }
    }

    const fn accepts(
        name: &'static str,
        level: CheckLevel,
        make: fn(&mut BlockBuilder<'_>) -> Draft,
    ) -> Self {
        Self { name, core: None, level, make }
    }

    /// Builds the mutated block on `chain`, which must have enough reserved coins: see [`base_chain`].
    #[must_use]
    pub fn apply(&self, chain: &Chain) -> MutatedChain {
        let mut builder = BlockBuilder::new(chain, Rng::new(chain.spec.seed, self.name).next_u64());
        let draft = (self.make)(&mut builder);
        let block = builder.seal(&draft);
        let mut mutated = chain.clone();
        let setup = builder.into_added();
        for valid in &setup {
            mutated.model.apply(&valid.bytes, valid.height);
        }
        if self.core.is_none() {
            mutated.model.apply(&block.bytes, block.height);
        }
        mutated.blocks.extend(setup.iter().chain([&block]).cloned());
        MutatedChain { setup, block, chain: mutated }
    }
}

/// A small chain that mutations can be built on.
#[must_use]
pub fn base_chain(seed: u64) -> Chain {
    let spec = ChainSpec { blocks: Some(160), reserved: 30, ..ChainSpec::new(seed, 400_000) };
    Chain::generate(&spec)
}

/// All rows.
pub fn mutations() -> impl Iterator<Item = &'static Mutation> {
    [header::ROWS, block::ROWS, tx::ROWS, spend::ROWS, script::ROWS, script_limits::ROWS, tapscript::ROWS]
        .into_iter()
        .flatten()
}

//! A small generated chain in memory, with a model of its coins.

use crate::{
    block::GeneratedBlock,
    generate::{ChainSpec, Totals, generate},
    model::Model,
};
use std::convert::Infallible;

#[derive(Clone, Debug)]
pub struct Chain {
    pub spec: ChainSpec,
    /// All blocks: the active chain from the genesis block up, each stale branch after the block it competes
    /// with.
    pub blocks: Vec<GeneratedBlock>,
    /// The coins at the tip, from applying each block naively.
    pub model: Model,
    pub totals: Totals,
}

impl Chain {
    /// Generates a chain. Meant for tens of megabytes at most.
    pub fn generate(spec: &ChainSpec) -> Self {
        let mut blocks = Vec::new();
        let collect = |block| -> Result<(), Infallible> {
            blocks.push(block);
            Ok(())
        };
        let totals = match generate(spec, collect) {
            Ok(totals) => totals,
            Err(never) => match never {},
        };
        let model = Model::of(blocks.iter().filter(|block| !block.stale));
        Self { spec: spec.clone(), blocks, model, totals }
    }

    /// Returns the active chain, genesis block first.
    pub fn main(&self) -> impl DoubleEndedIterator<Item = &GeneratedBlock> {
        self.blocks.iter().filter(|block| !block.stale)
    }

    /// Returns the last block of the active chain.
    pub fn tip(&self) -> &GeneratedBlock {
        self.main().next_back().expect("there is the genesis block")
    }
}

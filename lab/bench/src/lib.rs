//! Shared code of the micro benchmarks (`benches`), the regression guard (`guard`) and the proposals: the
//! input blocks, the work, the steps of a rebuild in several ways, and a hash of the results.
//!
//! Inputs are generated from a seed, so that anyone can repeat a measurement. Every benchmarked function adds
//! its result to [`Answers`], whose hash is printed at the end: an optimisation must not change it.
#![forbid(unsafe_code)]

pub mod baseline;
pub mod real;
pub mod steps;
pub mod work;

use digest::sha256::Sha256;
use disk::undo::{UndoArena, UndoView};
use rules::{SpentCoin, median_times};
use testkit::{Chain, ChainSpec, block::ids};
use wire::{BlockArena, BlockHash, BlockTime, BlockView, Coin, Height, Txid, Wtxid};

/// A block with all data that is needed to check it.
#[derive(Debug)]
pub struct Block<'a> {
    pub height: Height,
    pub hash: BlockHash,
    pub view: BlockView<'a>,
    pub undo: &'a [u8],
    /// The coins that it spends, in block order.
    pub claims: Vec<Coin<'a>>,
    /// The same coins, decoded.
    pub spent: Vec<SpentCoin<'a>>,
    pub txids: Vec<Txid>,
    /// Empty if no transaction has a witness.
    pub wtxids: Vec<Wtxid>,
}

/// Buffers for the spans of parsed blocks and undo data.
#[derive(Debug)]
pub struct Arenas(Vec<(BlockArena, UndoArena)>);

/// A block of the chain as it is stored.
#[derive(Clone, Debug)]
pub struct StoredBlock {
    pub hash: BlockHash,
    /// The time in its header.
    pub time: BlockTime,
    pub bytes: Vec<u8>,
    /// Its undo data; the genesis block has none.
    pub undo: Vec<u8>,
}

/// The chain that all benchmarks use.
#[derive(Debug)]
pub struct Inputs {
    chain: Vec<StoredBlock>,
    /// Median time past of each block, by height.
    pub median_times: Vec<BlockTime>,
}

impl Inputs {
    /// Generates a chain of about `bytes` bytes. Its signatures are placeholders: no benchmark verifies
    /// scripts.
    pub fn generate(bytes: u64) -> Self {
        let spec = ChainSpec { signed: false, stale: false, ..ChainSpec::new(1, bytes) };
        let blocks = Chain::generate(&spec).blocks.into_iter().map(|block| StoredBlock {
            hash: block.hash,
            time: block.header.time,
            bytes: block.bytes,
            undo: block.undo.unwrap_or_default(),
        });
        Self::new(blocks.collect())
    }

    /// A chain of these blocks, from the genesis block on.
    pub fn new(chain: Vec<StoredBlock>) -> Self {
        let median_times = median_times(chain.iter().map(|block| block.time).collect());
        Self { chain, median_times }
    }

    /// Creates the buffers for [`Inputs::blocks`].
    pub fn arenas(&self) -> Arenas {
        Arenas(self.chain.iter().skip(1).map(|_| Default::default()).collect())
    }

    /// Returns all blocks except the genesis block, by height.
    ///
    /// # Panics
    /// If a block or its undo data is malformed.
    pub fn blocks<'a>(&'a self, arenas: &'a mut Arenas) -> Vec<Block<'a>> {
        let blocks = (1..).zip(self.chain.iter().skip(1)).zip(&mut arenas.0);
        blocks
            .map(|((height, block), (arena, undo_arena))| {
                let view = arena.parse(&block.bytes).expect("blocks are well-formed");
                let undo = &block.undo[..];
                let coins = UndoView::parse(undo, undo_arena).expect("undo data is well-formed");
                let claims: Vec<_> = coins.coins().collect();
                let spent = claims.iter().map(SpentCoin::from_coin).collect::<Result<_, _>>();
                let (txids, wtxids) = ids(&view);
                Block {
                    height: Height(height),
                    hash: block.hash,
                    view,
                    undo,
                    spent: spent.expect("coins are well-formed"),
                    claims,
                    txids,
                    wtxids,
                }
            })
            .collect()
    }
}

/// The hash of all results.
#[derive(Debug, Default)]
pub struct Answers(Sha256);

impl Answers {
    pub fn add(&mut self, name: &str, result: &[u8]) {
        for bytes in [name.as_bytes(), result] {
            self.0.update(&(bytes.len() as u64).to_le_bytes());
            self.0.update(bytes);
        }
    }

    /// Returns the first 16 hexadecimal digits of the hash.
    pub fn hash(&self) -> String {
        self.0.clone().finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

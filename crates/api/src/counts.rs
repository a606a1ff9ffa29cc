//! Numbers of blocks and of what is in them.

use derive_more::AddAssign;
use wire::BlockView;

reported! {
/// Numbers of blocks, transactions, inputs and outputs that were read and checked. The genesis block counts
/// as a block with one transaction; coinbase inputs do not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, AddAssign)]
pub struct Counts {
    /// Number of blocks.
    pub blocks: u64,
    /// Number of transactions.
    pub transactions: u64,
    /// Number of inputs that spend a coin.
    pub inputs: u64,
    /// Number of outputs, unspendable ones included.
    pub outputs as "outputs_created": u64,
    /// Bytes of serialised blocks.
    pub block_bytes: u64,
    /// Number of inputs whose scripts were run.
    pub scripts as "script_inputs": u64,
}
}

impl Counts {
    pub fn of(block: &BlockView<'_>) -> Self {
        Self {
            blocks: 1,
            transactions: block.tx_count() as u64,
            inputs: (block.input_count() as u64).saturating_sub(1),
            outputs: block.output_count() as u64,
            block_bytes: block.bytes().len() as u64,
            scripts: 0,
        }
    }

    /// Returns the numbers in the order in which files contain them.
    pub const fn to_words(self) -> [u64; 6] {
        let Self { blocks, transactions, inputs, outputs, block_bytes, scripts } = self;
        [blocks, transactions, inputs, outputs, block_bytes, scripts]
    }

    /// Returns the counts from which [`Counts::to_words`] made these numbers.
    pub const fn of_words(words: [u64; 6]) -> Self {
        let [blocks, transactions, inputs, outputs, block_bytes, scripts] = words;
        Self { blocks, transactions, inputs, outputs, block_bytes, scripts }
    }
}

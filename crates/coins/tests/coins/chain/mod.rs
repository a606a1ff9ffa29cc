//! Chains of the small universe of the model tests.

use peregrine_coins::OwnedCoin;
use proptest::prelude::*;
use std::collections::HashMap;
use wire::{Coin, Height, OutPoint, Sats, Txid, coin::compressed_output, read::write_compact_size};

/// The coins of sequential validation.
pub type Model = HashMap<OutPoint, OwnedCoin>;

pub const TXS: usize = 16;

/// Transactions below this are coinbases; the others have fixed inputs: outputs of lower-numbered ones.
const COINBASES: usize = 6;

/// Returns the txid of a transaction. Three of four are in the same shard; half of them have equal bytes in
/// the prefix by which entries are sorted first.
pub fn txid(tx: usize) -> Txid {
    let mut id = [0; 32];
    id[0] = [0, 0, 0, 255][tx % 4];
    id[1 + tx % 2 * 15] = tx as u8;
    id[31] = tx as u8;
    Txid(id)
}

#[derive(Clone, Debug)]
pub struct TxShape {
    /// Number of outputs; the third, if there is one, is unspendable.
    outputs: u32,
    inputs: Vec<OutPoint>,
}

#[derive(Clone, Debug)]
pub struct Chain {
    pub shapes: Vec<TxShape>,
    /// Transactions by number; the first of a block is a coinbase.
    pub blocks: Vec<Vec<usize>>,
}

fn script(tx: usize, vout: u32) -> Vec<u8> {
    match (vout, tx % 3) {
        (2, _) => vec![0x6a, tx as u8],
        // P2TR, a long script, and a short one.
        (_, 0) => [vec![0x51, 32], vec![tx as u8; 32]].concat(),
        (_, 1) => vec![vout as u8 + 1; 70 + tx],
        _ => vec![0x51, tx as u8],
    }
}

fn amount(tx: usize, vout: u32) -> Sats {
    Sats((tx as i64 + 1) * 123_456_789 + i64::from(vout))
}

impl Chain {
    pub fn heights(&self) -> impl Iterator<Item = (Height, &Vec<usize>)> {
        (1..).map(Height).zip(&self.blocks)
    }

    pub fn inputs(&self, tx: usize) -> impl Iterator<Item = OutPoint> {
        self.shapes[tx].inputs.iter().copied()
    }

    /// Returns the coins that a transaction creates.
    pub fn outputs(
        &self,
        tx: usize,
        tx_index: usize,
        height: Height,
    ) -> impl Iterator<Item = (OutPoint, OwnedCoin)> {
        (0..self.shapes[tx].outputs).filter(|&vout| vout != 2).map(move |vout| {
            let out = compressed_output(amount(tx, vout), &script(tx, vout));
            let code = Coin::code_of(height, tx_index == 0);
            (OutPoint { txid: txid(tx), vout }, OwnedCoin { code, out: out.into() })
        })
    }

    pub fn block_bytes(&self, block: usize) -> Vec<u8> {
        let mut bytes = vec![0; 80];
        write_compact_size(&mut bytes, self.blocks[block].len() as u64);
        for (tx_index, &tx) in self.blocks[block].iter().enumerate() {
            let shape = &self.shapes[tx];
            bytes.extend(2u32.to_le_bytes());
            let inputs = if tx_index == 0 { vec![OutPoint::NULL] } else { shape.inputs.clone() };
            write_compact_size(&mut bytes, inputs.len() as u64);
            for input in inputs {
                bytes.extend(input.txid.0);
                bytes.extend(input.vout.to_le_bytes());
                bytes.extend([0; 5]);
            }
            write_compact_size(&mut bytes, shape.outputs.into());
            for vout in 0..shape.outputs {
                bytes.extend(amount(tx, vout).0.to_le_bytes());
                let script = script(tx, vout);
                write_compact_size(&mut bytes, script.len() as u64);
                bytes.extend(script);
            }
            bytes.extend([0; 4]);
        }
        bytes
    }

    /// Returns the chain with one transaction, not a coinbase, left out, repeated or moved.
    pub fn changed(&self, (kind, from, to, place): &Change) -> Self {
        let mut chain = self.clone();
        let places: Vec<(usize, usize)> = (0..chain.blocks.len())
            .flat_map(|block| (1..chain.blocks[block].len()).map(move |at| (block, at)))
            .collect();
        if places.is_empty() {
            return chain;
        }
        let (block, at) = places[from.index(places.len())];
        let tx = chain.blocks[block][at];
        if *kind != 1 {
            chain.blocks[block].remove(at);
        }
        if *kind != 0 {
            let to = to.index(chain.blocks.len());
            let len = chain.blocks[to].len();
            chain.blocks[to].insert(1 + place.index(len), tx);
        }
        chain
    }
}

pub type Change = (u8, prop::sample::Index, prop::sample::Index, prop::sample::Index);

pub fn change() -> impl Strategy<Value = Change> {
    (0u8..3, any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<prop::sample::Index>())
}

/// Returns the claims of each block: the real coin if it exists when the block comes; otherwise the coin that
/// some other block creates, possibly later; otherwise an arbitrary coin that is old enough.
pub fn claims_of(chain: &Chain) -> Vec<Vec<OwnedCoin>> {
    let mut ever = Model::new();
    for (height, block) in chain.heights() {
        for (tx_index, &tx) in block.iter().enumerate() {
            ever.extend(chain.outputs(tx, tx_index, height));
        }
    }
    let mut coins = Model::new();
    let mut claims = Vec::new();
    for (height, block) in chain.heights() {
        let mut of_block = Vec::new();
        for (tx_index, &tx) in block.iter().enumerate() {
            for outpoint in chain.inputs(tx) {
                let (spent, ever_created) = (coins.remove(&outpoint), ever.get(&outpoint).cloned());
                let made_up = OwnedCoin {
                    code: Coin::code_of(Height((height.0 - 1).max(1)), false),
                    out: [1, 6].into(),
                };
                of_block.push(spent.or(ever_created).unwrap_or(made_up));
            }
            coins.extend(chain.outputs(tx, tx_index, height));
        }
        claims.push(of_block);
    }
    claims
}

fn shapes() -> impl Strategy<Value = Vec<TxShape>> {
    let shape = |tx: usize| {
        let inputs = if tx < COINBASES { 0..=0 } else { 1..=3 };
        let outpoint = (0..tx.max(1), 0u32..4).prop_map(|(tx, vout)| OutPoint { txid: txid(tx), vout });
        (1u32..=4, prop::collection::btree_set(outpoint, inputs))
            .prop_map(|(outputs, inputs)| TxShape { outputs, inputs: inputs.into_iter().collect() })
    };
    (0..TXS).map(shape).collect::<Vec<_>>()
}

/// Generates arbitrary blocks, which are mostly invalid.
pub fn any_chain() -> impl Strategy<Value = Chain> {
    let block = (0..COINBASES, prop::collection::vec(COINBASES..TXS, 0..4)).prop_map(|(coinbase, rest)| {
        let mut block = vec![coinbase];
        block.extend(rest);
        block
    });
    (shapes(), prop::collection::vec(block, 1..6)).prop_map(|(shapes, blocks)| Chain { shapes, blocks })
}

/// Generates valid chains: the inputs are set to coins that exist.
pub fn valid_chain() -> impl Strategy<Value = Chain> {
    let picks = prop::collection::vec((any::<prop::sample::Index>(), 0usize..4, any::<bool>()), TXS);
    (shapes(), picks).prop_map(|(mut shapes, picks)| {
        let mut blocks: Vec<Vec<usize>> = vec![vec![0]];
        let mut open: Vec<OutPoint> = Vec::new();
        let open_outputs = |open: &mut Vec<OutPoint>, tx: usize, outputs: u32| {
            open.extend((0..outputs).filter(|&v| v != 2).map(|vout| OutPoint { txid: txid(tx), vout }));
        };
        open_outputs(&mut open, 0, shapes[0].outputs);
        let (mut coinbase, mut next) = (1, COINBASES);
        for (pick, inputs, new_block) in picks {
            if new_block && coinbase < COINBASES {
                open_outputs(&mut open, coinbase, shapes[coinbase].outputs);
                blocks.push(vec![coinbase]);
                coinbase += 1;
            } else if next < TXS && inputs > 0 && !open.is_empty() {
                shapes[next].inputs.clear();
                for _ in 0..inputs.min(open.len()) {
                    let spent = open.swap_remove(pick.index(open.len()));
                    shapes[next].inputs.push(spent);
                }
                open_outputs(&mut open, next, shapes[next].outputs);
                blocks.last_mut().expect("there is a first block").push(next);
                next += 1;
            }
        }
        Chain { shapes, blocks }
    })
}

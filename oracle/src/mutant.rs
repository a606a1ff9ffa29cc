//! Makes random mutants of blocks with several violations at once. They show which of two violations is found
//! first, which the table of mutations, with one violation per block, cannot show.

mod spend;

use bitcoin::{
    Amount, Block, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut, absolute::LockTime,
    block::Version as BlockVersion, consensus, hashes::Hash, transaction::Version,
};
use testkit::{
    GeneratedBlock, block,
    model::{Model, ModelCoin, outpoint, write_undo},
    rng::Rng,
};
use wire::{Sats, read::write_compact_size};

/// What mutants are made from.
#[derive(Debug)]
pub struct Site<'a> {
    /// A valid block.
    pub block: &'a GeneratedBlock,
    /// The coins before the block.
    pub coins: &'a Model,
    /// Median time of the eleven blocks before the block.
    pub median_time_past: u32,
}

/// Amounts at the limits of what the rules allow.
const AMOUNTS: [u64; 7] = [
    0,
    1,
    Sats::MAX_MONEY.0 as u64,
    Sats::MAX_MONEY.0 as u64 + 1,
    i64::MAX as u64,
    i64::MIN as u64,
    u64::MAX,
];
/// OP_RETURN, OP_CHECKSIG, OP_CHECKMULTISIG, OP_TRUE.
const OPCODES: [u8; 4] = [0x6a, 0xac, 0xae, 0x51];

impl Site<'_> {
    /// Mutates a copy of the block in one to three ways, then corrects most of its hashes, and makes undo
    /// data as a node that checks nothing would have written it.
    ///
    /// # Panics
    /// If the site's block is not well-formed.
    pub fn mutant(&self, rng: &mut Rng) -> GeneratedBlock {
        let mut block: Block = consensus::deserialize(&self.block.bytes).expect("a valid block");
        for _ in 0..1 + rng.below(3) {
            match rng.below(8) {
                0 | 1 => self.mutate_block(&mut block, rng),
                2..=4 => self.mutate_tx(&mut block, rng),
                _ => {
                    let index = rng.below(block.txdata.len() as u64) as usize;
                    spend::mutate(&mut block.txdata[index], rng);
                }
            }
        }
        if rng.chance(5, 6) {
            recommit(&mut block);
        }
        if rng.chance(19, 20)
            && let Some(root) = block.compute_merkle_root()
        {
            block.header.merkle_root = root;
        }
        let work = !rng.chance(1, 40);
        block.header.nonce = rng.below(1 << 31) as u32;
        while block::has_work(&wire::BlockHash(*block.block_hash().as_ref())) != work {
            block.header.nonce += 1;
        }
        let bytes = consensus::serialize(&block);
        let header = block::header_of(&bytes);
        let undo = Some(self.undo(&block));
        let txs = block.txdata.len() as u32;
        GeneratedBlock {
            bytes,
            hash: header.hash(),
            header,
            height: self.block.height,
            txs,
            undo,
            stale: false,
        }
    }

    fn mutate_block(&self, block: &mut Block, rng: &mut Rng) {
        let count = block.txdata.len() as u64;
        let (a, b) = (rng.below(count) as usize, rng.below(count) as usize);
        let median = self.median_time_past;
        match rng.below(8) {
            0 => block.txdata.swap(a, b),
            1 if count > 1 => drop(block.txdata.remove(a)),
            2 => block.txdata.push(block.txdata[a].clone()),
            3 => block.txdata.extend_from_within(count as usize - (count as usize).min(2)..),
            4 => block.header.version = BlockVersion::from_consensus(rng.below(6) as i32 - 1),
            5 => block.header.time = median - 1 + rng.below(3) as u32,
            6 => {
                block.header.bits = bitcoin::CompactTarget::from_consensus(block::BITS - rng.below(3) as u32)
            }
            _ => mutate_coinbase(&mut block.txdata[0], rng),
        }
    }

    fn mutate_tx(&self, block: &mut Block, rng: &mut Rng) {
        let count = block.txdata.len() as u64;
        let index = rng.below(count) as usize;
        let other = &block.txdata[rng.below(count) as usize];
        let from_block = OutPoint::new(other.compute_txid(), rng.below(2) as u32);
        let twice = other.input.first().map_or(OutPoint::null(), |input| input.previous_output);
        let some_coin = self.coins.coins.keys().nth(rng.below(self.coins.coins.len() as u64) as usize);
        let height = self.block.height;
        let tx = &mut block.txdata[index];
        let input = rng.below(tx.input.len() as u64) as usize;
        let output = rng.below(tx.output.len() as u64) as usize;
        match rng.below(12) {
            0 | 1 => {
                if let Some(input) = tx.input.get_mut(input) {
                    let coin = some_coin.map_or(OutPoint::null(), |coin| {
                        OutPoint::new(bitcoin::Txid::from_byte_array(coin.txid.0), coin.vout)
                    });
                    let next = OutPoint { vout: input.previous_output.vout ^ 1, ..input.previous_output };
                    input.previous_output =
                        [from_block, twice, coin, coin, next, OutPoint::null()][rng.below(6) as usize];
                }
            }
            2 => {
                if let Some(input) = tx.input.get_mut(input) {
                    let by_height = rng.below(u64::from(height)) as u32;
                    let by_time = 1 << 22 | rng.below(200) as u32;
                    let sequence = [0, by_height, by_time, 1 << 31, u32::MAX - 1][rng.below(5) as usize];
                    input.sequence = Sequence(sequence);
                    tx.version = Version(2);
                }
            }
            3 => {
                let near = [height, self.median_time_past][rng.below(2) as usize];
                tx.lock_time = LockTime::from_consensus(near - 2 + rng.below(4) as u32);
                if let Some(input) = tx.input.get_mut(input) {
                    input.sequence = Sequence(0);
                }
            }
            4 | 5 => {
                if let Some(output) = tx.output.get_mut(output) {
                    let value = output.value.to_sat();
                    let near = value.wrapping_add(rng.below(3)).wrapping_sub(1);
                    let edge = AMOUNTS[rng.below(AMOUNTS.len() as u64) as usize];
                    output.value = Amount::from_sat(if rng.chance(1, 2) { near } else { edge });
                }
            }
            6 => {
                let script = script(rng);
                if let Some(input) = tx.input.get_mut(input) {
                    input.script_sig = script;
                }
            }
            7 => tx.output.push(TxOut { value: Amount::from_sat(rng.below(2)), script_pubkey: script(rng) }),
            8 => {
                let copy = tx.input.get(input).cloned();
                tx.input.extend(copy);
            }
            9 => drop(tx.output.pop()),
            10 => tx.version = Version([-1, 0, 1, 2, 3, i32::MAX][rng.below(6) as usize]),
            _ => {
                if let Some(input) = tx.input.get_mut(input) {
                    if rng.chance(1, 2) { input.witness.clear() } else { input.witness.push([7; 33]) }
                }
            }
        }
    }

    /// Makes claims for all inputs of the block: real coins where there are any, invented ones for the
    /// others.
    fn undo(&self, block: &Block) -> Vec<u8> {
        let mut made = Model::default();
        for (index, tx) in block.txdata.iter().enumerate() {
            let txid = tx.compute_txid();
            for (vout, output) in (0..).zip(&tx.output) {
                let code = self.block.height << 1 | u32::from(index == 0);
                let (amount, script) = (output.value.to_sat() as i64, output.script_pubkey.to_bytes());
                let coin = ModelCoin { code, amount, script };
                made.coins.insert(outpoint(&OutPoint { txid, vout }), coin);
            }
        }
        let claim = |input: &TxIn| {
            let prevout = outpoint(&input.previous_output);
            let coin = self.coins.coins.get(&prevout).or_else(|| made.coins.get(&prevout)).cloned();
            let coin = coin.unwrap_or_else(|| ModelCoin { code: 2, amount: 0, script: vec![0x51] });
            // A node never writes an amount outside the money range.
            let amount = if Sats(coin.amount).in_money_range() { coin.amount } else { 0 };
            ModelCoin { amount, ..coin }
        };
        let mut undo = Vec::new();
        write_compact_size(&mut undo, block.txdata.len().saturating_sub(1) as u64);
        for tx in block.txdata.iter().skip(1) {
            let coins: Vec<ModelCoin> = tx.input.iter().map(claim).collect();
            write_undo(coins.iter(), &mut undo);
        }
        undo
    }
}

fn mutate_coinbase(tx: &mut Transaction, rng: &mut Rng) {
    let Some(input) = tx.input.first_mut() else { return };
    let mut bytes = input.script_sig.to_bytes();
    match rng.below(4) {
        0 => bytes.truncate(rng.below(4) as usize),
        1 => bytes.resize(99 + rng.below(3) as usize, 0),
        2 => bytes.get_mut(1).into_iter().for_each(|byte| *byte ^= 1),
        _ => input.previous_output.vout ^= 1,
    }
    input.script_sig = ScriptBuf::from_bytes(bytes);
}

/// Returns a script at a size limit, or full of signature operations.
fn script(rng: &mut Rng) -> ScriptBuf {
    let len = [0, 1, 100, 520, 1001, 10_000, 10_001, 20_001][rng.below(8) as usize];
    ScriptBuf::from_bytes(vec![OPCODES[rng.below(4) as usize]; len])
}

/// Corrects the last witness commitment of the coinbase, if it has one.
fn recommit(block: &mut Block) {
    let (Some(root), Some(coinbase)) = (block.witness_root(), block.txdata.first_mut()) else { return };
    let reserved = coinbase.input.first().and_then(|input| input.witness.nth(0)).unwrap_or_default();
    let commitment = Block::compute_witness_commitment(&root, reserved);
    let is_commitment =
        |output: &&mut TxOut| output.script_pubkey.as_bytes().starts_with(&block::COMMITMENT_PREFIX);
    if let Some(output) = coinbase.output.iter_mut().rev().find(is_commitment) {
        let script = [&block::COMMITMENT_PREFIX[..], commitment.as_ref()].concat();
        output.script_pubkey = ScriptBuf::from_bytes(script);
    }
}

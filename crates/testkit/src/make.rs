//! Makes planned transactions on all threads: signs, serialises and hashes them, and makes their undo data.

use crate::{
    plan::{BlockPlan, InputPlan, OutputPlan, TxPlan},
    prelude::*,
    scripts::Prevout,
};
use bitcoin::{OutPoint, Txid, consensus::Encodable, hashes::Hash};
use digest::sha256::{Message, sha256d_many};
use rayon::prelude::*;
use wire::coin::compress_amount;

/// Number of transactions of the same depth that one thread makes at a time.
const CHUNK: usize = 32;

/// A transaction, serialised and hashed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MadeTx {
    /// Serialised, with witness.
    pub bytes: Vec<u8>,
    /// Size without witness, in bytes.
    pub stripped_size: usize,
    /// In internal byte order.
    pub txid: [u8; 32],
    /// In internal byte order.
    pub wtxid: [u8; 32],
    /// Undo data of its inputs: their number and the coins; empty for a coinbase.
    pub undo: Vec<u8>,
}

impl MadeTx {
    /// Serialises and hashes a transaction.
    pub fn new(tx: &Transaction, undo: Vec<u8>) -> Self {
        let mut made = Self::serialised(tx, undo);
        hash_all(std::slice::from_mut(&mut made));
        made
    }

    fn serialised(tx: &Transaction, undo: Vec<u8>) -> Self {
        let mut bytes = Vec::with_capacity(256);
        tx.consensus_encode(&mut bytes).expect("a vector can be written to");
        let witness: usize = tx.input.iter().map(|input| input.witness.size()).sum();
        let has_witness = tx.input.iter().any(|input| !input.witness.is_empty());
        let stripped_size = bytes.len() - if has_witness { witness + 2 } else { 0 };
        Self { bytes, stripped_size, undo, ..Self::default() }
    }

    pub fn has_witness(&self) -> bool {
        self.stripped_size != self.bytes.len()
    }

    pub fn weight(&self) -> u64 {
        self.stripped_size as u64 * 3 + self.bytes.len() as u64
    }

    fn txid_message(&self) -> Message<'_> {
        let bytes = &self.bytes;
        if !self.has_witness() {
            return Message([bytes, &[], &[]]);
        }
        Message([&bytes[..4], &bytes[6..self.stripped_size - 4 + 2], &bytes[bytes.len() - 4..]])
    }
}

fn hash_all(txs: &mut [MadeTx]) {
    let mut ids = Vec::with_capacity(txs.len() * 2);
    let messages: Vec<Message<'_>> = txs.iter().map(MadeTx::txid_message).collect();
    sha256d_many(&messages, &mut ids);
    let whole: Vec<Message<'_>> = txs.iter().map(|tx| Message([&tx.bytes, &[], &[]])).collect();
    sha256d_many(&whole, &mut ids);
    let (txids, wtxids) = ids.split_at(txs.len());
    for (tx, (txid, wtxid)) in txs.iter_mut().zip(txids.iter().zip(wtxids)) {
        (tx.txid, tx.wtxid) = (*txid, *wtxid);
    }
}

/// Makes blocks in plan order, and keeps the txids that later blocks spend from.
#[derive(Debug)]
pub struct Maker<'a> {
    pool: &'a ScriptPool,
    /// Txids by slot.
    txids: Vec<[u8; 32]>,
}

impl<'a> Maker<'a> {
    pub const fn new(pool: &'a ScriptPool) -> Self {
        Self { pool, txids: Vec::new() }
    }

    pub fn txid(&self, slot: u32) -> [u8; 32] {
        self.txids[slot as usize]
    }

    /// Makes the transactions of a block in block order, without the coinbase. Runs on the current rayon
    /// pool.
    pub fn make(&mut self, plan: &BlockPlan) -> Vec<MadeTx> {
        let mut made = vec![MadeTx::default(); plan.txs.len()];
        let mut order: Vec<usize> = (0..plan.txs.len()).collect();
        order.sort_by_key(|at| plan.txs[*at].depth);
        for wave in order.chunk_by(|a, b| plan.txs[*a].depth == plan.txs[*b].depth) {
            let make = |chunk: &[usize]| {
                let mut txs: Vec<MadeTx> =
                    chunk.iter().map(|at| self.make_tx(plan, &plan.txs[*at])).collect();
                hash_all(&mut txs);
                txs
            };
            let done: Vec<Vec<MadeTx>> = wave.par_chunks(CHUNK).map(make).collect();
            for (at, tx) in wave.iter().zip(done.into_iter().flatten()) {
                self.publish(&plan.outputs[plan.txs[*at].outputs.clone()], tx.txid);
                made[*at] = tx;
            }
        }
        made
    }

    /// Makes these outputs available to later transactions.
    pub fn publish(&mut self, outputs: &[OutputPlan], txid: [u8; 32]) {
        for slot in outputs.iter().filter_map(|output| output.slot) {
            let slot = slot as usize;
            if slot >= self.txids.len() {
                self.txids.resize((slot + 1).next_power_of_two(), [0; 32]);
            }
            self.txids[slot] = txid;
        }
    }

    fn make_tx(&self, block: &BlockPlan, plan: &TxPlan) -> MadeTx {
        let inputs = &block.inputs[plan.inputs.clone()];
        let outputs = &block.outputs[plan.outputs.clone()];
        MadeTx::serialised(&self.satisfied(plan, inputs, outputs), self.undo(inputs))
    }

    fn satisfied(&self, plan: &TxPlan, inputs: &[InputPlan], outputs: &[OutputPlan]) -> Transaction {
        let unsigned = |input: &InputPlan| {
            let txid = Txid::from_byte_array(self.txid(input.coin.slot));
            let previous_output = OutPoint::new(txid, input.coin.vout);
            TxIn { previous_output, sequence: Sequence(input.sequence), ..TxIn::default() }
        };
        let mut tx = Transaction {
            version: Version(plan.version),
            lock_time: LockTime::from_consensus(plan.lock_time),
            input: inputs.iter().map(unsigned).collect(),
            output: outputs.iter().map(|output| self.output(output)).collect(),
        };
        let prevouts: Vec<Prevout> = inputs.iter().map(prevout).collect();
        self.pool.satisfy(&mut tx, &prevouts);
        tx
    }

    fn undo(&self, inputs: &[InputPlan]) -> Vec<u8> {
        let mut undo = Vec::with_capacity(inputs.len() * 32 + 3);
        write_compact_size(&mut undo, inputs.len() as u64);
        let mut out = Vec::with_capacity(64);
        for InputPlan { coin, .. } in inputs {
            out.clear();
            write_var_int(&mut out, compress_amount(coin.amount));
            self.pool.write_compressed(coin.script, &mut out);
            Coin { code: coin.code, out: &out }.write_undo(&mut undo);
        }
        undo
    }

    pub fn output(&self, plan: &OutputPlan) -> TxOut {
        TxOut { value: Amount::from_sat(plan.amount), script_pubkey: self.pool.script(plan.script) }
    }
}

fn prevout(input: &InputPlan) -> Prevout {
    Prevout { amount: input.coin.amount, script: input.coin.script }
}

//! Assembles blocks from transactions: merkle root, witness commitment, proof of work, undo data.

use crate::{mutation::anyone, prelude::*};
use digest::sha256::{sha256d, sha256d_many, sha256d_pairs};
use wire::{BlockView, Wtxid};

/// Regtest's target in compact form.
pub const BITS: u32 = 0x207f_ffff;
/// The first bytes of a witness commitment (BIP-0141).
pub const COMMITMENT_PREFIX: [u8; 6] = [0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed];

/// A generated block, of the main chain or stale.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GeneratedBlock {
    pub bytes: Vec<u8>,
    pub hash: BlockHash,
    pub header: Header,
    pub height: u32,
    pub txs: u32,
    /// Undo data (without magic, length and checksum). `None` for the genesis block and for blocks that were
    /// never connected. A stale block with undo data was in the active chain for a time.
    pub undo: Option<Vec<u8>>,
    /// Whether the block is outside the active chain.
    pub stale: bool,
}

impl GeneratedBlock {
    /// Returns the genesis block of regtest.
    pub fn genesis() -> Self {
        let block = bitcoin::constants::genesis_block(bitcoin::Network::Regtest);
        let bytes = bitcoin::consensus::serialize(&block);
        let header = header_of(&bytes);
        Self { bytes, hash: header.hash(), header, height: 0, txs: 1, undo: None, stale: false }
    }
}

pub fn header_of(block: &[u8]) -> Header {
    Header::read(&mut wire::Reader::new(block)).expect("a block starts with a header")
}

/// Returns the txids of a block, and its wtxids if a transaction has a witness.
pub fn ids(block: &BlockView<'_>) -> (Vec<Txid>, Vec<Wtxid>) {
    let (mut txids, mut wtxids) = (Vec::new(), Vec::new());
    sha256d_many(&block.txs().map(|tx| tx.txid_message()).collect::<Vec<_>>(), &mut txids);
    if block.txs().any(|tx| tx.has_witness()) {
        sha256d_many(&block.txs().map(|tx| tx.wtxid_message()).collect::<Vec<_>>(), &mut wtxids);
    }
    (txids.into_iter().map(Txid).collect(), wtxids.into_iter().map(Wtxid).collect())
}

/// The header fields that do not follow from the transactions.
#[derive(Clone, Copy, Debug)]
pub struct HeaderPlan {
    pub height: u32,
    pub prev: BlockHash,
    pub version: i32,
    pub time: u32,
}

/// Computes the root of a merkle tree (Core `ComputeMerkleRoot`): an odd level repeats its last node.
pub fn merkle_root(mut level: Vec<[u8; 32]>) -> [u8; 32] {
    while level.len() > 1 {
        if level.len() % 2 == 1 {
            level.extend(level.last().copied());
        }
        let mut next = Vec::with_capacity(level.len() / 2);
        sha256d_pairs(&level, &mut next);
        level = next;
    }
    level.pop().unwrap_or_default()
}

/// Returns the median of the last eleven of these times.
pub fn median_time_past(times: &[u32]) -> u32 {
    let mut last = times[times.len().saturating_sub(11)..].to_vec();
    last.sort_unstable();
    last[last.len() / 2]
}

pub fn coinbase(height: u32, extra_nonce: u64, outputs: Vec<TxOut>) -> Transaction {
    let script_sig = Builder::new()
        .push_int(height.into())
        .push_slice(extra_nonce.to_le_bytes())
        .push_slice(b"/peregrine/");
    Transaction {
        version: Version::TWO,
        lock_time: LockTime::ZERO,
        // The default input spends nothing, like that of a coinbase.
        input: vec![TxIn { script_sig: script_sig.into_script(), ..TxIn::default() }],
        output: outputs,
    }
}

/// Adds to the coinbase the witness commitment of a block whose other transactions have these wtxids.
pub fn commit_to_witnesses(coinbase: &mut Transaction, wtxids: impl Iterator<Item = [u8; 32]>) {
    let root = merkle_root(std::iter::once([0; 32]).chain(wtxids).collect());
    let reserved = [0; 32];
    let mut script = COMMITMENT_PREFIX.to_vec();
    script.extend(sha256d(&[root, reserved].concat()));
    coinbase.output.push(TxOut { value: Amount::ZERO, script_pubkey: ScriptBuf::from_bytes(script) });
    coinbase.input[0].witness = Witness::from_slice(&[reserved]);
}

/// Returns whether a hash meets regtest's target.
pub fn has_work(hash: &BlockHash) -> bool {
    hash.0[31] < 0x7f
}

/// Searches for a nonce whose hash satisfies `wanted`.
pub fn mine(header: &mut Header, wanted: impl Fn(&BlockHash) -> bool) -> BlockHash {
    loop {
        let hash = header.hash();
        if wanted(&hash) {
            return hash;
        }
        header.nonce = header.nonce.wrapping_add(1);
    }
}

pub fn serialise<'a>(header: &Header, txs: impl ExactSizeIterator<Item = &'a MadeTx> + Clone) -> Vec<u8> {
    let size: usize = txs.clone().map(|tx| tx.bytes.len()).sum();
    let mut bytes = Vec::with_capacity(size + 89);
    bytes.extend_from_slice(&header.to_bytes());
    write_compact_size(&mut bytes, txs.len() as u64);
    for tx in txs {
        bytes.extend_from_slice(&tx.bytes);
    }
    bytes
}

/// Concatenates the undo data of a block's transactions.
pub fn undo_data<'a>(txs: impl ExactSizeIterator<Item = &'a MadeTx> + Clone) -> Vec<u8> {
    let size: usize = txs.clone().map(|tx| tx.undo.len()).sum();
    let mut undo = Vec::with_capacity(size + 9);
    write_compact_size(&mut undo, txs.len() as u64 - 1);
    for tx in txs.skip(1) {
        undo.extend_from_slice(&tx.undo);
    }
    undo
}

/// Assembles a valid block from the coinbase and the other transactions.
pub fn assemble(plan: HeaderPlan, coinbase: &MadeTx, txs: &[MadeTx], stale: bool) -> GeneratedBlock {
    let all: Vec<&MadeTx> = std::iter::once(coinbase).chain(txs).collect();
    let mut header = Header {
        version: plan.version,
        prev: plan.prev,
        merkle_root: merkle_root(all.iter().map(|tx| tx.txid).collect()),
        time: BlockTime(plan.time),
        bits: BITS,
        nonce: 0,
    };
    let hash = mine(&mut header, has_work);
    let bytes = serialise(&header, all.iter().copied());
    let undo = (!stale).then(|| undo_data(all.iter().copied()));
    GeneratedBlock { bytes, hash, header, height: plan.height, txs: txs.len() as u32 + 1, undo, stale }
}

/// Makes a block on top of another with only this coinbase.
pub fn with_coinbase(prev: &GeneratedBlock, coinbase: &Transaction) -> GeneratedBlock {
    let Header { version, time, .. } = prev.header;
    let plan = HeaderPlan { height: prev.height + 1, prev: prev.hash, version, time: time.0 + 1 };
    assemble(plan, &MadeTx::new(coinbase, Vec::new()), &[], false)
}

/// Makes a block on top of `prev` with only a coinbase, which claims the whole subsidy for anyone. `salt`
/// distinguishes blocks of the same height.
pub fn empty(prev: BlockHash, height: u32, time: u32, salt: u64) -> GeneratedBlock {
    let coinbase = coinbase(height, salt, vec![anyone(subsidy(height) as i64)]);
    let plan = HeaderPlan { height, prev, version: 0x2000_0000, time };
    assemble(plan, &MadeTx::new(&coinbase, Vec::new()), &[], false)
}

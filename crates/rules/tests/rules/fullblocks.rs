//! btcd's full block tests: 205 steps of valid, invalid, stale and orphan blocks on regtest, with the answer
//! of Bitcoin Core's `submitblock` to each. None of its blocks fails in a script, so every verdict must equal
//! Core's, and so must the final UTXO set.
//!
//! The driver is as simple as possible: each connected block keeps the whole UTXO set after it, so a
//! reorganisation only selects another tip.

use crate::common;

use digest::sha256::sha256d;
use peregrine_rules::{
    Ancestors, BIP30, ChainParams, HeaderContext, MISSING_OR_SPENT, SpendContext, SpentCoin, U256, Violation,
    ViolationDetails, bip30_enforced, check_coinbase_amount, check_header, check_tx_spends, median_time_past,
};
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    io::Read,
};
use wire::{
    BlockArena, BlockHash, BlockTime, BlockView, Coin, Header, Height, Network, OutPoint, TxIndex,
    coin::{chainstate_key_order, compress_output},
    script::is_unspendable,
};

/// Compressed coins by outpoint.
type Utxos = HashMap<OutPoint, (u32, Vec<u8>)>;

/// A block whose own bytes are valid.
struct Node {
    bytes: Vec<u8>,
    /// Headers from the genesis block on, this one included.
    headers: Vec<Header>,
    work: U256,
    /// The UTXO set after the block; `None` until it has been connected.
    utxos: Option<Utxos>,
    is_invalid: bool,
}

impl Node {
    fn height(&self) -> Height {
        Height(self.headers.len() as u32 - 1)
    }

    fn hash(&self) -> BlockHash {
        self.headers[self.headers.len() - 1].hash()
    }
}

/// A chain of blocks in memory, without network, disk or scripts.
struct Chain {
    params: &'static ChainParams,
    now: BlockTime,
    nodes: HashMap<BlockHash, Node>,
    orphans: Vec<Vec<u8>>,
    tip: BlockHash,
}

impl Chain {
    fn new(now: BlockTime) -> Self {
        let params = ChainParams::of(Network::Regtest);
        let genesis = Node {
            bytes: vec![],
            headers: vec![params.genesis],
            work: peregrine_rules::work(params.genesis.bits),
            utxos: Some(Utxos::new()),
            is_invalid: false,
        };
        let tip = params.genesis_hash;
        Self { params, now, nodes: HashMap::from([(tip, genesis)]), orphans: vec![], tip }
    }

    /// Returns the answer of Core's `submitblock`; `None` if the block is the new tip.
    fn submit(&mut self, bytes: &[u8]) -> Option<String> {
        let answer = self.accept(bytes);
        // Orphans whose parent is now known follow.
        while let Some(index) =
            self.orphans.iter().position(|orphan| self.nodes.contains_key(&parent(orphan)))
        {
            let orphan = self.orphans.swap_remove(index);
            self.accept(&orphan);
        }
        answer
    }

    fn accept(&mut self, bytes: &[u8]) -> Option<String> {
        let mut arena = BlockArena::default();
        let Ok(block) = arena.parse(bytes) else { return Some("Block decode failed".into()) };
        let Some(parent) = self.nodes.get(&block.header().prev) else {
            self.orphans.push(bytes.to_vec());
            return Some("prev-blk-not-found".into());
        };
        if parent.is_invalid {
            return Some("bad-prevblk".into());
        }
        let mut headers = parent.headers.clone();
        if let Err(violation) = self.check_own_bytes(&headers, &block) {
            return Some(violation.core.into_owned());
        }
        headers.push(*block.header());
        let work = parent.work.wrapping_add(peregrine_rules::work(block.header().bits));
        let hash = block.header().hash();
        let node = Node { bytes: bytes.to_vec(), headers, work, utxos: None, is_invalid: false };
        self.nodes.insert(hash, node);
        match self.activate(hash) {
            Err(violation) => Some(violation.core.into_owned()),
            Ok(()) if self.tip == hash => None,
            Ok(()) => Some("inconclusive".into()),
        }
    }

    fn check_own_bytes(&self, ancestors: &[Header], block: &BlockView<'_>) -> Result<(), Violation> {
        let height = Height(ancestors.len() as u32);
        check_header(&HeaderContext {
            params: self.params,
            height,
            header: block.header(),
            hash: &block.header().hash(),
            ancestors: &ancestors,
            now: self.now,
        })?;
        let median = *medians(ancestors).last().unwrap();
        common::check_bytes(self.params, height, block, median).map(|_| ())
    }

    /// Makes the block the tip if it has more work than the tip and connects together with its ancestors.
    fn activate(&mut self, hash: BlockHash) -> Result<(), Violation> {
        if self.nodes[&hash].work <= self.nodes[&self.tip].work {
            return Ok(());
        }
        let mut branch = vec![hash];
        while self.nodes[&branch[branch.len() - 1]].utxos.is_none() {
            branch.push(parent(&self.nodes[&branch[branch.len() - 1]].bytes));
        }
        for index in (1..branch.len()).rev() {
            let (child, parent) = (&self.nodes[&branch[index - 1]], &self.nodes[&branch[index]]);
            match self.connect(child, parent.utxos.as_ref().unwrap()) {
                Ok(utxos) => self.nodes.get_mut(&branch[index - 1]).unwrap().utxos = Some(utxos),
                Err(violation) => {
                    for hash in &branch[..index] {
                        self.nodes.get_mut(hash).unwrap().is_invalid = true;
                    }
                    // If an ancestor fails rather than the new block, Core reports nothing about the new
                    // block.
                    return if index == 1 { Err(violation) } else { Ok(()) };
                }
            }
        }
        self.tip = hash;
        Ok(())
    }

    /// Connects a block (Core `ConnectBlock` without scripts) and returns the UTXO set after it.
    fn connect(&self, node: &Node, before: &Utxos) -> Result<Utxos, Violation> {
        let (params, height, hash) = (self.params, node.height(), node.hash());
        let mut arena = BlockArena::default();
        let block = arena.parse(&node.bytes).unwrap();
        let txids = common::ids(&block).0;
        let mut utxos = before.clone();
        let ancestors = &node.headers[..node.headers.len() - 1];
        let at_bip34 = ancestors.get(params.bip34_height.0 as usize).map(Header::hash);
        if bip30_enforced(params, height, &hash, at_bip34.as_ref()) {
            for (tx, txid) in block.txs().zip(&txids) {
                let mut created = (0..tx.output_count() as u32).map(|vout| OutPoint { txid: *txid, vout });
                if let Some(outpoint) = created.find(|outpoint| utxos.contains_key(outpoint)) {
                    return Err(ViolationDetails::new(format!("{outpoint} exists")).of(&BIP30));
                }
            }
        }
        let mtp_by_height = medians(ancestors);
        let (mut totals, mut claims) = (peregrine_rules::BlockTotals::default(), Vec::new());
        for ((tx, txid), index) in block.txs().zip(&txids).zip(0..) {
            let prevouts: Vec<_> =
                tx.inputs().map(|input| input.prevout()).filter(|p| !p.is_null()).collect();
            let Some(spent) =
                prevouts.iter().map(|prevout| utxos.get(prevout).cloned()).collect::<Option<Vec<_>>>()
            else {
                let details = ViolationDetails::new("no such coin").at_tx(TxIndex(index));
                return Err(details.of(&MISSING_OR_SPENT));
            };
            let coins = decode(&spent);
            totals = check_tx_spends(&SpendContext {
                params,
                height,
                hash: &hash,
                tx: &tx,
                tx_index: TxIndex(index),
                coins: &coins,
                mtp_by_height: &mtp_by_height,
                before: totals,
            })?;
            claims.extend(spent);
            prevouts.iter().for_each(|prevout| _ = utxos.remove(prevout));
            for (output, vout) in tx.outputs().zip(0..).filter(|(o, _)| !is_unspendable(o.script_pubkey())) {
                let mut out = Vec::new();
                compress_output(&mut out, output.value(), output.script_pubkey());
                utxos.insert(OutPoint { txid: *txid, vout }, (Coin::code_of(height, index == 0), out));
            }
        }
        let coinbase = block.tx(0).unwrap();
        let reward =
            peregrine_rules::RewardContext { params, height, coinbase: &coinbase, fees: totals.fees };
        check_coinbase_amount(&reward)?;
        // Checking the whole block at once, with the fused pass and with the table, gives the same sums.
        let whole = common::check_spends(params, height, &hash, &block, &decode(&claims), &mtp_by_height);
        assert_eq!(whole, Ok(totals));
        Ok(utxos)
    }
}

fn decode(coins: &[(u32, Vec<u8>)]) -> Vec<SpentCoin<'_>> {
    coins.iter().map(|(code, out)| SpentCoin::from_coin(&Coin { code: *code, out }).unwrap()).collect()
}

/// Returns the hash of a block's parent from the block's bytes.
fn parent(bytes: &[u8]) -> BlockHash {
    BlockHash(bytes[4..36].try_into().unwrap())
}

/// Returns the median time past of each block of a chain.
fn medians(headers: &[Header]) -> Vec<BlockTime> {
    let times: Vec<_> = (0..headers.len() as u32).map(|height| headers.time(Height(height))).collect();
    (1..=times.len()).map(|end| median_time_past(&times[end.saturating_sub(11)..end])).collect()
}

/// Returns Core's `hash_serialized_3` of a UTXO set.
fn hash_serialized(utxos: &Utxos) -> BlockHash {
    let mut sorted: Vec<_> = utxos.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| chainstate_key_order(a, b));
    let mut elements = Vec::new();
    for (outpoint, (code, out)) in sorted {
        Coin { code: *code, out }.write_utxo_element(outpoint, &mut elements).unwrap();
    }
    BlockHash(sha256d(&elements))
}

fn steps() -> Option<Vec<Value>> {
    let path = testdata::shared_data("consensus/btcd_fullblocktests.jsonl.xz")?;
    let mut text = String::new();
    liblzma::read::XzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn every_verdict_equals_cores() {
    let Some(steps) = steps() else { return };
    let (meta, steps) = steps.split_first().unwrap();
    assert_eq!(steps.len(), 205);
    let mut chain = Chain::new(BlockTime(meta["mocktime"].as_u64().unwrap() as u32));
    let mut strings = HashSet::new();
    for step in steps {
        let name = step["name"].as_str().unwrap();
        let hash = |field: &str| step[field].as_str().unwrap().parse::<BlockHash>().unwrap();
        match step["kind"].as_str().unwrap() {
            "expected_tip" => assert_eq!(chain.tip, hash("hash"), "{name}"),
            "disconnect_expect_utxo" => {
                let before = &chain.nodes[&parent(&chain.nodes[&hash("hash")].bytes)];
                let (txid, vout) = step["outpoint"].as_str().unwrap().split_once(':').unwrap();
                let outpoint = OutPoint { txid: txid.parse().unwrap(), vout: vout.parse().unwrap() };
                let exists = before.utxos.as_ref().unwrap().contains_key(&outpoint);
                assert_eq!(Some(exists), step["expected"].as_bool(), "{name}");
            }
            _ => {
                let answer = chain.submit(&common::unhex(step["raw"].as_str().unwrap()));
                assert_eq!(answer.as_deref(), step["core_submitblock"].as_str(), "{name}");
                assert_eq!(chain.tip, hash("core_tip_after"), "{name}");
                strings.extend(answer);
            }
        }
    }
    assert!(strings.len() > 20, "{strings:?}");
    let tip = &chain.nodes[&chain.tip];
    let utxos = tip.utxos.as_ref().unwrap();
    assert_eq!(Some(u64::from(tip.height().0)), meta["final_height"].as_u64());
    assert_eq!(Some(utxos.len() as u64), meta["final"]["txouts"].as_u64());
    assert_eq!(hash_serialized(utxos).to_string(), meta["final"]["hash_serialized_3"].as_str().unwrap());
}

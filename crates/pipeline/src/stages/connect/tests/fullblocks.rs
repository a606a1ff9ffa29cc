//! btcd's full block tests: 205 steps of valid, invalid, stale and orphan blocks on regtest, with the answer
//! of Bitcoin Core's `submitblock` to each. None of its blocks fails in a script, so every verdict must equal
//! Core's, and so must the final UTXO set.
//!
//! The driver is as simple as possible: each connected block keeps the whole UTXO set after it, so a
//! reorganisation only selects another tip.

use super::*;
use chain::blocks::{
    block_check::{BlockFlaw, ExpectedBlock},
    block_hashes::BlockHashes,
    damage::Damage,
};
use hex_conservative::decode_to_vec;
use rules::{HeaderContext, U256, Violation, check_header};
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    io::Read,
};

/// A block whose own bytes are valid.
struct Node {
    block: Block,
    /// Headers from the genesis block on, this one included.
    headers: Vec<Header>,
    work: U256,
    /// The coins after the block; `None` until it has been connected.
    coins: Option<MemoryCoins>,
    is_invalid: bool,
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
        let mut coins = no_coins();
        coins.set_best_block(params.genesis_hash);
        let (bytes, hash) = (params.genesis_block(), params.genesis_hash);
        let genesis = Node {
            block: Block { bytes, height: Height(0), hash, bip34_ancestor: None },
            headers: vec![params.genesis],
            work: rules::work(params.genesis.bits),
            coins: Some(coins),
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
        let (height, hash) = (Height(headers.len() as u32), block.header().hash());
        let bip34_ancestor = headers.get(self.params.bip34_height.0 as usize).map(Header::hash);
        headers.push(*block.header());
        let node = Node {
            block: Block { bytes: bytes.to_vec(), height, hash, bip34_ancestor },
            work: parent.work.wrapping_add(rules::work(block.header().bits)),
            headers,
            coins: None,
            is_invalid: false,
        };
        self.nodes.insert(hash, node);
        match self.activate(hash) {
            Err(violation) => Some(violation.core.into_owned()),
            Ok(()) if self.tip == hash => None,
            Ok(()) => Some("inconclusive".into()),
        }
    }

    fn check_own_bytes(&self, ancestors: &[Header], block: &BlockView<'_>) -> Result<(), Violation> {
        let (height, hash, header) = (Height(ancestors.len() as u32), block.header().hash(), block.header());
        let (params, now) = (self.params, self.now);
        check_header(&HeaderContext { params, height, header, hash: &hash, ancestors: &ancestors, now })?;
        let median_time_past_prev = *medians(ancestors).last().unwrap();
        let expected = ExpectedBlock { params, height, hash, median_time_past_prev };
        match expected.check(None, block, &[], &mut BlockHashes::default()) {
            Ok(_) => Ok(()),
            Err(BlockFlaw::Invalid(violation) | BlockFlaw::Damaged(Damage::Mutated(violation))) => {
                Err(violation)
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Makes the block the tip if it has more work than the tip and connects together with its ancestors.
    fn activate(&mut self, hash: BlockHash) -> Result<(), Violation> {
        if self.nodes[&hash].work <= self.nodes[&self.tip].work {
            return Ok(());
        }
        let mut branch = vec![hash];
        while self.nodes[&branch[branch.len() - 1]].coins.is_none() {
            branch.push(parent(&self.nodes[&branch[branch.len() - 1]].block.bytes));
        }
        for index in (1..branch.len()).rev() {
            let (child, parent) = (&self.nodes[&branch[index - 1]], &self.nodes[&branch[index]]);
            let (mut coins, medians) = (parent.coins.clone().unwrap(), medians(&parent.headers));
            let connect = |context: &ConnectContext<'_>| connect_block(&mut coins, context, None);
            match child.block.with_context(self.params, &medians, connect) {
                Ok(_) => self.nodes.get_mut(&branch[index - 1]).unwrap().coins = Some(coins),
                Err(error) => {
                    let violation = super::violation(error);
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
}

fn parent(bytes: &[u8]) -> BlockHash {
    BlockHash(bytes[4..36].try_into().unwrap())
}

fn medians(headers: &[Header]) -> Vec<BlockTime> {
    rules::median_times(headers.iter().map(|header| header.time).collect())
}

/// Returns Core's `hash_serialized_3` of coins.
fn hash_serialized(coins: MemoryCoins) -> BlockHash {
    let mut elements = Vec::new();
    for shard in coins.into_survivors().into_shards() {
        for entry in shard.sort().iter() {
            entry.coin.write_utxo_element(&entry.outpoint, &mut elements).unwrap();
        }
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
                let before = &chain.nodes[&parent(&chain.nodes[&hash("hash")].block.bytes)];
                let (txid, vout) = step["outpoint"].as_str().unwrap().split_once(':').unwrap();
                let outpoint = OutPoint { txid: txid.parse().unwrap(), vout: vout.parse().unwrap() };
                let exists = before.coins.as_ref().unwrap().coin(&outpoint).unwrap().is_some();
                assert_eq!(Some(exists), step["expected"].as_bool(), "{name}");
            }
            _ => {
                let answer = chain.submit(&decode_to_vec(step["raw"].as_str().unwrap()).unwrap());
                assert_eq!(answer.as_deref(), step["core_submitblock"].as_str(), "{name}");
                assert_eq!(chain.tip, hash("core_tip_after"), "{name}");
                strings.extend(answer);
            }
        }
    }
    assert!(strings.len() > 20, "{strings:?}");
    let tip = &chain.nodes[&chain.tip];
    let coins = tip.coins.clone().unwrap();
    assert_eq!(Some(u64::from(tip.block.height.0)), meta["final_height"].as_u64());
    assert_eq!(Some(coins.iter().count() as u64), meta["final"]["txouts"].as_u64());
    assert_eq!(hash_serialized(coins).to_string(), meta["final"]["hash_serialized_3"].as_str().unwrap());
}

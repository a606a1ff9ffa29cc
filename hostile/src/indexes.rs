//! What a node answers by way of its indexes, before and after the runs of a case.

use crate::{Res, base::Base};
use serde_json::json;
use std::collections::BTreeMap;
use testkit::node::Node;

/// Heights at which a node is asked.
const HEIGHTS: std::ops::Range<u32> = 1..150;

/// Whether a node answers of something that is in its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It does.
    Found,
    /// It has the block, but denies what is in it.
    Denied,
    /// It does not have the block.
    NoBlock,
}

/// The answers of a node, by transaction.
pub type Answers = BTreeMap<String, Answer>;

/// Asks a node that runs for a transaction of each block, and for the spender of an output; `None` if it has
/// no index by which it could answer, or its indexes do not get to its tip.
///
/// # Errors
/// Any error of the connection.
pub fn ask(node: &Node, base: &Base) -> Res<Option<Answers>> {
    if !base.has_index("-txindex") || node.wait_for_indexes().is_err() {
        return Ok(None);
    }
    let has_spenders = base.has_index("-txospenderindex");
    let mut answers = Answers::new();
    for height in HEIGHTS {
        let Ok(hash) = node.call("getblockhash", json!([height])) else { break };
        let Ok(block) = node.call("getblock", json!([hash, 2])) else {
            answers.insert(hash.to_string(), Answer::NoBlock);
            continue;
        };
        let Some(tx) = block["tx"].as_array().and_then(|txs| txs.last()) else { continue };
        let found = |is: bool| if is { Answer::Found } else { Answer::Denied };
        let answer = node.call("getrawtransaction", json!([tx["txid"], 1]));
        answers.insert(format!("{hash} {}", tx["txid"]), found(answer.is_ok()));
        let spent = &tx["vin"][0];
        if has_spenders && spent["txid"].is_string() {
            let outpoint = json!([{"txid": spent["txid"], "vout": spent["vout"]}]);
            let answer = node.call("gettxspendingprevout", json!([outpoint]));
            let is = answer.is_ok_and(|answer| answer[0]["spendingtxid"] == tx["txid"]);
            answers.insert(format!("{hash} spender {}", tx["txid"]), found(is));
        }
    }
    Ok(Some(answers))
}

/// What is denied now although it is in a block that the node has, and was not denied before for the same
/// block.
pub fn denied<'a>(before: Option<&Answers>, now: &'a Answers) -> Option<&'a str> {
    let was = |what: &str| {
        let block = what.split(' ').next().unwrap_or_default();
        before.and_then(|before| before.get(what).or_else(|| before.get(block))).copied()
    };
    let denied = now.iter().filter(|(_, answer)| **answer == Answer::Denied);
    denied.map(|(what, _)| what.as_str()).find(|what| was(what) != Some(Answer::Denied))
}

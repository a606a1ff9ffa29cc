//! What a node answers by way of its indexes, before and after the runs of a case.

use crate::prelude::*;

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
pub fn ask(node: &Node, base: &Base) -> Res<Option<Answers>> {
    if !base.has_index("-txindex") || node.wait_for_indexes().is_err() {
        return Ok(None);
    }
    let mut answers = Answers::new();
    let heights: Vec<Value> = HEIGHTS.map(|height| json!([height])).collect();
    let hashes = node.call_all("getblockhash", &heights)?.into_iter().map_while(Result::ok);
    let of_blocks: Vec<Value> = hashes.map(|hash| json!([hash, 2])).collect();
    let (mut of_txs, mut of_spenders) = (Questions::default(), Questions::default());
    for (of_block, block) in of_blocks.iter().zip(node.call_all("getblock", &of_blocks)?) {
        let hash = &of_block[0];
        let Ok(block) = block else {
            answers.insert(hash.to_string(), Answer::NoBlock);
            continue;
        };
        let Some(tx) = block["tx"].as_array().and_then(|txs| txs.last()) else { continue };
        let (txid, spent) = (&tx["txid"], &tx["vin"][0]);
        of_txs.add(format!("{hash} {txid}"), txid, json!([txid, 1]));
        if base.has_index("-txospenderindex") && spent["txid"].is_string() {
            let outpoint = json!([{"txid": spent["txid"], "vout": spent["vout"]}]);
            of_spenders.add(format!("{hash} spender {txid}"), txid, json!([outpoint]));
        }
    }
    of_txs.ask(node, "getrawtransaction", |answer| &answer["txid"], &mut answers)?;
    of_spenders.ask(node, "gettxspendingprevout", |answer| &answer[0]["spendingtxid"], &mut answers)?;
    Ok(Some(answers))
}

/// Calls of one method, each with what it is about and the id of the transaction that the answer must name.
#[derive(Default)]
struct Questions {
    about: Vec<(String, Value)>,
    params: Vec<Value>,
}

impl Questions {
    fn add(&mut self, about: String, txid: &Value, params: Value) {
        self.about.push((about, txid.clone()));
        self.params.push(params);
    }

    fn ask(self, node: &Node, method: &str, named: fn(&Value) -> &Value, answers: &mut Answers) -> Res<()> {
        let given = node.call_all(method, &self.params)?;
        answers.extend(self.about.into_iter().zip(given).map(|((about, txid), answer)| {
            let is_found = answer.is_ok_and(|answer| named(&answer) == &txid);
            (about, if is_found { Answer::Found } else { Answer::Denied })
        }));
        Ok(())
    }
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

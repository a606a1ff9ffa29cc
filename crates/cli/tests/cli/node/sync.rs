//! What `sync` leaves of invalid chains and marks, beside a real bitcoind.

use super::indexes::copy;
use crate::prelude::*;
use testkit::sibling::greedy_sibling;

/// Blocks up to a height, with other ones above `fork`, of which the first pays its coinbase too much.
fn greedy(main: &[GeneratedBlock], fork: usize) -> Vec<GeneratedBlock> {
    let mut blocks = main.to_vec();
    blocks[fork + 1] = greedy_sibling(&blocks[fork + 1], 1);
    blocks[fork + 2..].iter_mut().for_each(|block| *block = sibling(block, 1, |_| {}));
    rebase(blocks[fork + 1..].iter_mut(), main[fork].hash);
    blocks
}

fn sync(datadir: &Path, peers: &[&ScriptedPeer], more: &[&str]) -> (Option<i32>, Value) {
    let addresses: Vec<String> = peers.iter().map(|peer| peer.address().to_string()).collect();
    let connect = addresses.iter().flat_map(|address| ["--connect", address]);
    let words: Vec<&str> = ["sync", "--json"].into_iter().chain(connect).collect();
    let output = run(datadir, &[&words, more].concat());
    (output.status.code(), json(&output))
}

#[test]
fn bitcoind_goes_on_with_what_is_left_of_an_invalid_chain_and_a_mark() {
    let chain =
        Chain::generate(&ChainSpec { blocks: Some(130), stale: false, ..ChainSpec::new(17, 200_000) });
    let main: Vec<GeneratedBlock> = chain.main().cloned().collect();
    let tip = main.len() - 6;
    let sound = peer_with(&main[..=tip]);
    for more in [&[][..], &["--prune", "550M"]] {
        let dir = TempDir::new().unwrap();
        let args: &[&str] = if more.is_empty() { &[] } else { &["-prune=550"] };
        let evil = peer_with(&greedy(&main, tip - 12));
        let (code, report) = sync(dir.path(), &[&evil, &sound], more);
        assert_eq!((code, &report["height"]), (Some(0), &tip.into()), "{report}");
        let Some(node) = Node::start(dir.path(), args) else { return };
        let best = main[tip].hash.to_string();
        assert_eq!(node.call("getbestblockhash", json!([])).unwrap(), best.as_str());
        assert!(node.finds_sound(4, 0));
        // The user marks the tip; a peer goes on with it.
        node.call("invalidateblock", json!([best])).unwrap();
        node.stop().unwrap();
        let (code, report) = sync(dir.path(), &[&sound], more);
        assert_eq!(code, Some(3), "{report}");
        assert_eq!([&report["height"], &report["chainstate_height"]], [&Value::from(tip - 1); 2], "{report}");
        let text = report["notes"][0]["text"].as_str().unwrap().to_owned();
        assert!(text.contains(&format!("reconsiderblock {best}")), "{text}");
        let node = Node::start(dir.path(), args).unwrap();
        assert_eq!(node.height() as usize, tip - 1);
        node.call("reconsiderblock", json!([best])).unwrap();
        assert_eq!(node.height() as usize, tip);
        node.stop().unwrap();
    }
}

/// What a node does that refuses a block of the best chain: it goes on with a branch of its own.
#[test]
fn bitcoind_follows_the_chain_again_that_it_has_marked_as_invalid() {
    let (original, chain) = rebuilt();
    let (tip, back) =
        (chain.tip(), chain.main().nth(chain.tip().height as usize - 9).unwrap().hash.to_string());
    let best = tip.hash.to_string();
    let Some(node) = Node::start(original.path(), &[]) else { return };
    node.call("invalidateblock", json!([back])).unwrap();
    node.call("generatetodescriptor", json!([3, "raw(51)"])).unwrap();
    node.stop().unwrap();
    let next = |dir: &Path| json(&run(dir, &["doctor", "--json"]))["next"].as_str().unwrap().to_owned();
    assert!(next(original.path()).starts_with("bitcoind "), "the mark may be meant");
    for (command, which) in [("update", &*back), ("reindex", &best), ("repair", ""), ("reindex", "")] {
        let dir = copy(original.path());
        let report = json(&run(dir.path(), &[command, "--json"]));
        assert!(!report.to_string().contains(&best), "{report}");
        let words = [command, "--json", "--reconsider", which];
        done(run(dir.path(), words.strip_suffix(&[""]).unwrap_or(&words)));
        let node = Node::start(dir.path(), &[]).unwrap();
        let tips = node.call("getchaintips", json!([])).unwrap();
        let of = |status: &str| tips.as_array().unwrap().iter().filter(|tip| tip["status"] == status).count();
        assert_eq!((&tips[0]["hash"], of("active"), of("invalid")), (&best.as_str().into(), 1, 0), "{tips}");
        assert!(node.finds_sound(4, 0));
        node.stop().unwrap();
    }
}

#[test]
fn bitcoind_finds_sound_what_two_broken_datadirs_make() {
    let (one, chain) = rebuilt();
    let two = TempDir::new().unwrap();
    chain.write_datadir(two.path(), &Layout { file_size: 60_000, ..Layout::new(18) }).unwrap();
    fs::remove_file(two.path().join("regtest/blocks/blk00001.dat")).unwrap();
    let blk = one.path().join("regtest/blocks/blk00000.dat");
    let mut bytes = fs::read(&blk).unwrap();
    bytes[60_000..100_000].fill(0);
    fs::write(&blk, bytes).unwrap();
    let peer = peer_with(chain.main());
    let (address, from) = (peer.address().to_string(), two.path().display().to_string());
    let report = report(one.path(), &["repair", "--from", &from, "--connect", &address]);
    assert!(report["taken"].as_u64() > Some(0), "{report}");
    let Some(node) = Node::start(one.path(), &[]) else { return };
    assert_eq!(node.call("getbestblockhash", json!([])).unwrap(), chain.tip().hash.to_string());
    assert!(node.finds_sound(4, 0));
    node.stop().unwrap();
}

//! Indexes of a real bitcoind, before and after each command that could make one wrong.
//!
//! Releases up to 31 write a `txindex` with positions, 32 one without.

use crate::prelude::*;
use serde_json::json as value;
use testkit::node::index_options;

/// Height of the block that is damaged.
const HIT: u32 = 115;

fn version() -> (u32, u32) {
    let output = Command::new(program().unwrap()).arg("-version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers =
        text.split_once(" version v").unwrap().1.split(['.', '-']).map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// All indexes that this bitcoind knows.
pub fn flags() -> &'static [&'static str] {
    static FLAGS: OnceLock<Vec<&str>> = OnceLock::new();
    FLAGS.get_or_init(|| {
        let mut options = index_options(&program().unwrap()).unwrap();
        // Release 29 and older ones keep statistics in another folder and form.
        options.retain(|option| *option != "-coinstatsindex" || version() >= (29, 99));
        options
    })
}

/// Starts bitcoind with all indexes, and waits until it says that they are at its tip.
pub fn start(datadir: &Path) -> Option<Node> {
    program()?;
    let node = Node::start(datadir, flags())?;
    node.wait_for_indexes().unwrap();
    Some(node)
}

/// What bitcoind answers of transactions, filters, spent outputs and statistics, by way of its indexes.
pub fn answers(node: &Node, chain: &Chain) -> Vec<Value> {
    let (mut answers, mut spent) = (Vec::new(), Vec::new());
    let has_stats = flags().contains(&"-coinstatsindex");
    for (height, block) in (0..).zip(chain.main()) {
        let parsed: Block = deserialize(&block.bytes).unwrap();
        for tx in parsed.txdata.iter().skip(1) {
            let outpoints = tx.input.iter().map(|input| input.previous_output);
            spent.extend(outpoints.map(|it| value!({"txid": it.txid.to_string(), "vout": it.vout})));
        }
        // bitcoind does not give out the coinbase of the genesis block.
        for tx in parsed.txdata.iter().filter(|_| height > 0 && (height == HIT || height % 9 == 0)) {
            let txid = tx.compute_txid().to_string();
            let found = node.call("getrawtransaction", value!([txid, 1]));
            let found = found.unwrap_or_else(|error| panic!("height {height}: {txid}: {error}"));
            assert_eq!(found["blockhash"], block.hash.to_string(), "height {height}: {txid}");
            answers.push(found["hash"].clone());
        }
        if height % 10 == 0 || height == HIT {
            let filter = node.call("getblockfilter", value!([block.hash.to_string()]));
            answers.push(filter.unwrap_or_else(|error| panic!("height {height}: {error}")));
        }
        if has_stats && (height % 10 == 0 || height == HIT) {
            let statistics = node.call("gettxoutsetinfo", value!(["muhash", height]));
            answers.push(statistics.unwrap_or_else(|error| panic!("height {height}: {error}")));
        }
    }
    if flags().contains(&"-txospenderindex") {
        for spent in spent.chunks(200) {
            let found = node.call("gettxspendingprevout", value!([spent])).unwrap();
            let all = found.as_array().unwrap();
            assert!(all.iter().all(|it| it["spendingtxid"].is_string()), "{found}");
            answers.push(found);
        }
    }
    answers
}

/// Takes so many blocks back and connects them again.
pub fn reorganise(node: &Node, chain: &Chain, blocks: u32) {
    let tip = chain.tip().height;
    let hash = chain.main().nth((tip + 1 - blocks) as usize).unwrap().hash.to_string();
    node.call("invalidateblock", value!([hash])).unwrap();
    node.wait_for_height(tip - blocks).unwrap();
    node.call("reconsiderblock", value!([hash])).unwrap();
    node.wait_for_height(tip).unwrap();
}

pub fn copy(datadir: &Path) -> TempDir {
    let dir = TempDir::new().unwrap();
    copy_all(&datadir.join("."), dir.path()).unwrap();
    dir
}

/// Brings a datadir into the state that a command mends.
fn damage(command: &str, datadir: &Path) {
    let at = Place::new(datadir, datadir);
    match command {
        "sync" => {
            fs::remove_dir_all(datadir.join("regtest/blocks")).unwrap();
            fs::remove_dir_all(datadir.join("regtest/chainstate")).unwrap();
        }
        "undo make" => {
            let (file, _) = at.block(HIT).unwrap();
            fs::remove_file(datadir.join(format!("regtest/blocks/rev{:05}.dat", file.0))).unwrap();
        }
        "repair" | "reindex --until-damage" | "reindex --block BLOCK" => at.flip_in_block(HIT, 100).unwrap(),
        _ => {}
    }
}

#[test]
fn indexes_of_bitcoind_stay_right_or_are_built_again() {
    let (dir, chain) = rebuilt();
    let Some(node) = start(dir.path()) else { return };
    let before = answers(&node, &chain);
    node.stop().unwrap();
    let peer = peer_with(chain.main());
    let address = peer.address().to_string();
    let block = dir.path().join("block");
    fs::write(&block, &chain.main().nth(HIT as usize).unwrap().bytes).unwrap();
    for (command, may_be_refused) in [
        ("reindex", false),
        ("reindex --scan", false),
        ("reindex --to 120 --accept-lower-tip", false),
        ("undo make", false),
        ("update", false),
        ("reindex --until-damage", true),
        ("reindex --block BLOCK", true),
        ("repair", true),
        ("sync", true),
    ] {
        let case = copy(dir.path());
        damage(command, case.path());
        let mut words: Vec<&str> = command.split(' ').collect();
        words.iter_mut().filter(|word| **word == "BLOCK").for_each(|word| *word = block.to_str().unwrap());
        if ["repair", "sync"].contains(&command) {
            words.extend(["--connect", &address]);
        }
        words.extend(["--json", "--progress", "none"]);
        let mut output = run(case.path(), &words);
        if output.status.code() == Some(2) {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(may_be_refused && error.contains("--set-aside-indexes"), "{command}: {error}");
            output = run(case.path(), &[&words[..], &["--set-aside-indexes"]].concat());
        }
        assert_eq!(output.status.code(), Some(0), "{command}: {output:?}");
        let report = json(&output);
        println!("{command}: {}", report["notes"]);
        let node = start(case.path()).unwrap();
        // bitcoind connects what is above the chainstate, and would download what is missing.
        if command == "reindex --until-damage" {
            assert_eq!(node.height(), HIT - 1);
            node.submit(chain.main().nth(HIT as usize)).unwrap();
            node.stop().unwrap();
            let node = start(case.path()).unwrap();
            assert_eq!(node.height(), chain.tip().height);
            assert!(answers(&node, &chain) == before, "{command}: bitcoind answers otherwise");
            node.stop().unwrap();
            continue;
        }
        assert_eq!(node.height(), chain.tip().height, "{command}");
        assert!(node.finds_sound(4, 0), "{command}");
        assert!(answers(&node, &chain) == before, "{command}: bitcoind answers otherwise");
        node.stop().unwrap();
    }
}

//! Indexes that are made and continued, beside a real bitcoind: it starts on them, answers from them as from
//! its own, and continues them; and its own are those that a check wants.

use super::indexes;
use crate::prelude::*;
use indexes::{answers, copy, flags, reorganise, start};

/// An address of regtest, to which blocks are mined.
const ADDRESS: &str = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080";

/// Runs a command, which must succeed, and returns its report.
fn report(datadir: &Path, line: &str) -> Value {
    crate::common::report(datadir, &line.split(' ').chain(["--progress", "none"]).collect::<Vec<_>>())
}

/// Asserts that a check of all indexes finds nothing, and that they end at this height.
fn assert_sound(datadir: &Path, height: u32, what: &str) {
    let report = report(datadir, "index check");
    let indexes = report["indexes"].as_array().unwrap();
    assert_eq!(indexes.len(), flags().len(), "{what}: {report}");
    for index in indexes {
        assert_eq!((&index["height"], &index["flaws"]), (&height.into(), &0.into()), "{what}: {report}");
    }
}

/// The names of the indexes that this bitcoind knows, after these words.
fn with_names(words: &str, option: &str) -> String {
    let names = flags().iter().map(|flag| format!(" {option}{}", &flag[1..]));
    words.to_owned() + &names.collect::<String>()
}

/// Starts bitcoind, whose indexes must be at its tip at once.
fn synced(datadir: &Path, what: &str) -> Node {
    let mut node = start(datadir).unwrap();
    // It says so of each block after which 30 seconds have passed, and of the first.
    let is_made = node.log().iter().any(|line| line.contains("Syncing "));
    assert!(!is_made, "{what}: bitcoind has made an index itself");
    node
}

/// Makes the block filters anew if bitcoind has damaged them itself: 31.99 forgets, when it is killed after a
/// reorganisation, where the next filter goes, and would write it over one that is needed.
fn mend_filters(datadir: &Path) {
    let words = ["index", "check", "blockfilterindex", "--json", "--progress", "none"];
    let output = run(datadir, &words);
    let flaw = &json(&output)["indexes"][0]["first"]["detail"];
    if output.status.code() == Some(4) {
        assert_eq!(*flaw, "bitcoind would write the next filter over this one");
        report(datadir, "index make blockfilterindex");
    }
}

#[test]
fn bitcoind_answers_from_indexes_that_were_made_as_from_its_own() {
    let (bare, chain) = rebuilt();
    let tip = chain.tip().height;
    let own = copy(bare.path());
    let Some(node) = start(own.path()) else { return };
    let wanted = answers(&node, &chain);
    node.stop().unwrap();
    assert_sound(own.path(), tip, "those of bitcoind");
    // The form of the index that is there is kept.
    let form = report(own.path(), "index make txindex")["indexes"][0]["form"].clone();
    let knows_rows_by_block = form == "by-block";
    for rows in ["by-txid", "by-block"].into_iter().filter(|rows| knows_rows_by_block || *rows == "by-txid") {
        let case = copy(bare.path());
        report(case.path(), &(with_names("index make", "") + " --txindex-rows " + rows));
        let node = synced(case.path(), rows);
        assert!(answers(&node, &chain) == wanted, "{rows}: bitcoind answers otherwise");
        reorganise(&node, &chain, 20);
        node.wait_for_indexes().unwrap();
        let found = answers(&node, &chain);
        assert!(found == wanted, "{rows}: bitcoind answers otherwise after a reorganisation");
        node.stop().unwrap();
        assert_sound(case.path(), tip, rows);
        let node = synced(case.path(), rows);
        reorganise(&node, &chain, 20);
        node.wait_for_indexes().unwrap();
        // Killed: what it has not written yet, it makes again.
        drop(node);
        let node = start(case.path()).unwrap();
        assert!(answers(&node, &chain) == wanted, "{rows}: bitcoind answers otherwise after it was killed");
        node.stop().unwrap();
        mend_filters(case.path());
        assert_sound(case.path(), tip, "after it was killed");
        let node = start(case.path()).unwrap();
        node.call("generatetoaddress", json!([3, ADDRESS])).unwrap();
        node.wait_for_indexes().unwrap();
        node.stop().unwrap();
        assert_sound(case.path(), tip + 3, rows);
    }
}

#[test]
fn indexes_that_were_continued_are_those_that_bitcoind_goes_on_with() {
    let (dir, chain) = rebuilt();
    let tip = chain.tip().height;
    let Some(node) = Node::start(dir.path(), &[]) else { return };
    node.stop().unwrap();
    report(dir.path(), &with_names("index make", ""));
    let node = Node::start(dir.path(), &[]).unwrap();
    node.call("generatetoaddress", json!([5, ADDRESS])).unwrap();
    node.stop().unwrap();
    report(dir.path(), "index update");
    assert_sound(dir.path(), tip + 5, "continued");
    let node = synced(dir.path(), "continued");
    answers(&node, &chain);
    node.stop().unwrap();
    // The same by a command that changes the chainstate.
    let node = Node::start(dir.path(), &[]).unwrap();
    node.call("generatetoaddress", json!([2, ADDRESS])).unwrap();
    node.stop().unwrap();
    fs::remove_dir_all(dir.path().join("regtest/indexes/blockfilter")).unwrap();
    let rebuilt = report(dir.path(), &with_names("reindex", "--index "));
    assert_eq!(rebuilt["indexes"]["indexes"].as_array().unwrap().len(), flags().len(), "{rebuilt}");
    assert_sound(dir.path(), tip + 7, "after a rebuild");
    synced(dir.path(), "after a rebuild").stop().unwrap();
}

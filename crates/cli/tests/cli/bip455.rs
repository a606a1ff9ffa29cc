//! Coins of spent outputs from a node: with PEREGRINE_BSPENT_BITCOIND, the path of a bitcoind of the
//! reference code of BIP 455 (branch `bip-block-undo`), which has bitcoin-cli beside it.

use crate::prelude::*;
use testkit::data::skip;

#[test]
fn the_reference_code_of_bip_455_sends_the_coins_of_all_blocks() {
    let Some(program) = std::env::var_os("PEREGRINE_BSPENT_BITCOIND") else {
        return skip("PEREGRINE_BSPENT_BITCOIND names no bitcoind of BIP 455");
    };
    let chain = Chain::generate(&ChainSpec { blocks: Some(200), ..ChainSpec::new(23, 2_000_000) });
    let (source, tip) = (TempDir::new().unwrap(), chain.tip().height);
    chain.write_datadir(source.path(), &Layout::new(3)).unwrap();
    let server = Node::start_server(program.as_ref(), source.path(), &["-peerblockinputs=1"]);
    let mut hashes = Vec::new();
    for more in [&["--spent-coins"][..], &["--spent-coins", "--v2transport", "0", "--threads", "1"], &[]] {
        let dir = TempDir::new().unwrap();
        let words = ["sync", "--chain", "regtest", "--json", "--connect", &server.address()];
        let output = command(&[&words, more].concat(), dir.path()).output().unwrap();
        let report = json(&output);
        assert_eq!((output.status.code(), &report["height"]), (Some(0), &tip.into()), "{report}");
        let asked = if more.is_empty() { 0 } else { tip };
        assert_eq!(report["blocks_with_coins"], asked, "{report}");
        assert_eq!(report["notes"].as_array().map(Vec::len), Some(0), "{report}");
        hashes.push(report["rebuild"]["hash_serialized_3"].clone());
        let node = Node::start_program(program.as_ref(), dir.path(), &[]);
        assert_eq!(node.height(), tip);
        assert!(node.finds_sound(4, 0));
        node.stop().unwrap();
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[2] && hash.is_string()), "{hashes:?}");
}

//! Generated chains are what they promise: the model agrees with the planner's books, and the shapes are there.

use testkit::{Chain, ChainSpec};

#[test]
fn books_and_model_agree_and_seeds_repeat() {
    let mut spec = ChainSpec::new(1, 3_000_000);
    let chain = Chain::generate(&spec);
    println!("{:?}", chain.totals);
    assert_eq!(chain.model.stats(), chain.totals.utxo);
    assert!(chain.totals.bytes > 2_000_000 && chain.totals.bytes < 4_500_000, "{}", chain.totals.bytes);
    assert!(chain.totals.stale_blocks > 0);
    spec.threads = 1;
    let again = Chain::generate(&spec);
    assert!(again.blocks == chain.blocks, "threads must not change a byte");
    spec.seed = 2;
    assert_ne!(Chain::generate(&spec).totals.hash, chain.totals.hash);
}

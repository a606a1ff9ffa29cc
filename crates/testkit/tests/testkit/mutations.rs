//! The table of mutations is consistent: each row builds a block, and all blocks differ.

use std::collections::BTreeSet;
use testkit::mutation::{base_chain, mutations};
use wire::BlockArena;

#[test]
fn names_are_unique_and_rows_cover_many_reject_strings() {
    let names: BTreeSet<&str> = mutations().map(|mutation| mutation.name).collect();
    assert_eq!(names.len(), mutations().count());
    let strings: BTreeSet<&str> = mutations().filter_map(|mutation| mutation.core).collect();
    assert!(strings.len() >= 30, "{} reject strings", strings.len());
    assert!(mutations().filter(|mutation| mutation.core.is_none()).count() >= 25);
}

#[test]
fn each_row_builds_a_well_formed_block() {
    let base = base_chain(1);
    let mut hashes = BTreeSet::new();
    for mutation in mutations() {
        let mutated = mutation.apply(&base);
        let mut arena = BlockArena::default();
        let view = arena.parse(&mutated.block.bytes).unwrap();
        assert_eq!(view.header().hash(), mutated.block.hash, "{}", mutation.name);
        assert_eq!(view.tx_count() as u32, mutated.block.txs, "{}", mutation.name);
        assert!(hashes.insert(mutated.block.hash), "{} repeats a block", mutation.name);
        assert_eq!(mutated.chain.tip().hash, mutated.block.hash);
        let undo = mutated.block.undo.as_deref().unwrap();
        let mut coins = disk::undo::UndoArena::default();
        let view = disk::undo::UndoView::parse(undo, &mut coins).unwrap();
        assert_eq!(view.tx_count() as u32, mutated.block.txs.saturating_sub(1), "{}", mutation.name);
    }
}

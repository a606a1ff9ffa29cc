//! Blocks that break one rule, and blocks that are just valid: Core and a rebuild agree on each, and with the
//! table of mutations.

use oracle::{
    CoreNode, Verdict, Wipe,
    block_verdict::{self, BlockVerdict, Way},
    coins::Rows,
    datadir, scenario,
};
use std::{error::Error, path::Path};
use testkit::{
    Chain,
    datadir::Layout,
    mutation::{CheckLevel, MutatedChain, Mutation, base_chain, mutations},
};
use wire::Network;

/// Mutations for which Core's verdict on a submitted block differs from its verdict on the same block in a
/// datadir that it reindexes: name, whether it is a scan, and the reason. A rebuild agrees with the reindex.
const REINDEX_DIFFERS: &[(&str, bool, &str)] = &[
    (
        "time-in-2106",
        false,
        "the rule about the current time applies to new headers, not to those in an index",
    ),
    (
        "no-transactions",
        true,
        "a scan finds no undo data for a block without transactions, and leaves it out as if never connected",
    ),
];

/// Returns Core's verdict and coins, on a copy of a datadir with the chain before the block.
fn core_verdict(base: &Path, mutated: &MutatedChain) -> Result<(BlockVerdict, Rows), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    datadir::copy(base, dir.path(), &|_| true)?;
    let node = CoreNode::open(dir.path(), Network::Regtest, Wipe::Nothing)?;
    for block in &mutated.setup {
        assert_eq!(node.submit(&block.bytes), Verdict::Connected, "height {}", block.height);
    }
    let verdict = BlockVerdict::from_core(node.submit(&mutated.block.bytes));
    drop(node);
    Ok((verdict, Rows::read(&dir.path().join("chainstate"))?))
}

fn disagreements(mutation: &Mutation, base: &Chain, base_dir: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mutated = mutation.apply(base);
    let (core, core_rows) = core_verdict(base_dir, &mutated)?;
    let mut found = Vec::new();
    if core.reject() != mutation.core {
        found.push(format!("{}: table: {:?}, Core: {core:?}", mutation.name, mutation.core));
    }
    for way in [Way::Index, Way::Scan, Way::WithoutUndo] {
        let scan = way == Way::Scan;
        let differs = REINDEX_DIFFERS.iter().any(|row| (row.0, row.1) == (mutation.name, scan));
        let (core, core_rows) =
            if differs { core_reindex_verdict(&mutated, scan)? } else { (core.clone(), core_rows.clone()) };
        let (own, rows) = block_verdict::rebuild_verdict(&mutated.chain, mutated.block.hash, way)?;
        if !own.agrees_with(&core) {
            found.push(format!("{}: Core: {core:?}, rebuild: {own:?} ({way:?})", mutation.name));
        }
        if rows.is_some_and(|rows| !core_rows.differences(&rows).is_empty()) {
            found.push(format!("{}: Core's and the rebuild's coins differ ({way:?})", mutation.name));
        }
    }
    Ok(found)
}

/// Returns the verdict and coins of Core's own reindex of the datadir that the rebuild gets.
fn core_reindex_verdict(mutated: &MutatedChain, scan: bool) -> Result<(BlockVerdict, Rows), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    mutated.chain.write_datadir(dir.path(), &Layout::new(1))?;
    let net_dir = dir.path().join("regtest");
    let node = CoreNode::open(&net_dir, Network::Regtest, if scan { Wipe::All } else { Wipe::Chainstate })?;
    let verdict =
        if node.tip().1 == mutated.block.hash { BlockVerdict::Accepted } else { BlockVerdict::LeftOut };
    drop(node);
    Ok((verdict, Rows::read(&net_dir.join("chainstate"))?))
}

/// Compares the verdicts on every second row of the table, on one chain.
fn assert_core_and_rebuild_agree(half: usize) -> Result<(), Box<dyn Error>> {
    let base = base_chain(11);
    let base_dir = tempfile::tempdir()?;
    drop(scenario::feed(&base, base_dir.path())?);
    let (mut found, mut rows, mut of_scripts) = (Vec::new(), 0, 0);
    for mutation in mutations().skip(half).step_by(2) {
        found.extend(disagreements(mutation, &base, base_dir.path())?);
        rows += 1;
        of_scripts += u32::from(mutation.level == CheckLevel::Script);
    }
    println!("{rows} rows, {of_scripts} of scripts");
    assert_eq!(found, Vec::<String>::new());
    assert!(rows >= 70 && of_scripts >= 15, "{rows} rows, {of_scripts} of scripts");
    Ok(())
}

#[test]
fn core_and_rebuild_agree_on_even_mutations() -> Result<(), Box<dyn Error>> {
    assert_core_and_rebuild_agree(0)
}

#[test]
fn core_and_rebuild_agree_on_odd_mutations() -> Result<(), Box<dyn Error>> {
    assert_core_and_rebuild_agree(1)
}

//! Blocks that break one rule, and blocks that are just valid: Core's verdict on each is the one in the table
//! of mutations, as is a rebuild's (`crates/acceptance/tests/acceptance/ways/verdicts.rs`, which runs no
//! scripts: a rebuild that runs them is compared here).

use crate::prelude::*;
use oracle::block_verdict::{self, BlockVerdict};
use testkit::mutation::{MUTATED, MutatedChain, Mutation};

/// Returns Core's verdict and coins, on a copy of a datadir with the chain before the block.
fn core_verdict(base: &Path, mutated: &MutatedChain) -> Result<(BlockVerdict, Rows), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    copy_dir(base, dir.path())?;
    let node = CoreNode::open(dir.path(), Network::Regtest, Wipe::Nothing)?;
    for block in &mutated.setup {
        assert_eq!(node.submit(&block.bytes), Verdict::Connected, "height {}", block.height);
    }
    let verdict = BlockVerdict::from_core(node.submit(&mutated.block.bytes));
    drop(node);
    Ok((verdict, Rows::read(&dir.path().join("chainstate"))?))
}

fn disagreements(
    mutation: &Mutation,
    mutated: &MutatedChain,
    base_dir: &Path,
) -> Result<Vec<String>, Box<dyn Error>> {
    let (core, core_rows) = core_verdict(base_dir, mutated)?;
    let mut found = Vec::new();
    let expected = match mutation.core {
        None => BlockVerdict::Accepted,
        Some(core) if MUTATED.contains(&core) => BlockVerdict::Mutated(core.to_owned()),
        Some(core) => BlockVerdict::Rejected(core.to_owned()),
    };
    if core != expected {
        found.push(format!("{}: table: {expected:?}, Core: {core:?}", mutation.name));
    }
    if mutation.core.is_none() {
        let differences = core_rows.differences(&Rows::of_model(&mutated.chain));
        found.extend(differences.into_iter().map(|row| format!("{}: Core, model: {row}", mutation.name)));
    }
    let ways = [Way::Index, Way::Scan, Way::WithoutUndo];
    for way in ways.into_iter().filter(|_| mutation.level == CheckLevel::Script) {
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

/// Asserts that there are no disagreements about the rows of scripts, or about the others, of which there are
/// at least so many.
fn assert_agrees(are_of_scripts: bool, least: usize) -> Result<(), Box<dyn Error>> {
    let base = base_chain(11);
    let base_dir = tempfile::tempdir()?;
    drop(scenario::feed(&base, base_dir.path())?);
    let rows: Vec<_> =
        mutations().filter(|row| (row.level == CheckLevel::Script) == are_of_scripts).collect();
    let mut found = Vec::new();
    for mutation in &rows {
        found.extend(disagreements(mutation, &mutation.apply(&base), base_dir.path())?);
    }
    assert_eq!(found, Vec::<String>::new());
    assert!(rows.len() >= least, "{} rows", rows.len());
    Ok(())
}

#[test]
fn core_agrees_with_the_table() -> Result<(), Box<dyn Error>> {
    assert!(mutations().count() >= 140);
    assert_agrees(false, 100)
}

#[test]
fn core_agrees_with_the_table_and_a_rebuild_on_scripts() -> Result<(), Box<dyn Error>> {
    assert_agrees(true, 30)
}

/// Core takes a block of the future from its index, because the rule about the current time applies to new
/// headers. A scan finds no undo data for a block without transactions, and leaves it out as if never
/// connected, as Core's does.
#[test]
fn core_reindexes_two_blocks_otherwise_than_it_takes_them() -> Result<(), Box<dyn Error>> {
    for (name, way, wipe, expected) in [
        ("time-in-2106", Way::Index, Wipe::Chainstate, BlockVerdict::Accepted),
        ("no-transactions", Way::Scan, Wipe::All, BlockVerdict::LeftOut),
    ] {
        let mutation = mutations().find(|mutation| mutation.name == name).expect("the row exists");
        let mutated = mutation.apply(&base_chain(11));
        let dir = tempfile::tempdir()?;
        mutated.chain.write_datadir(dir.path(), &Layout::new(1))?;
        let net_dir = dir.path().join("regtest");
        let tip = CoreNode::open(&net_dir, Network::Regtest, wipe)?.tip().1;
        assert_eq!(tip == mutated.block.hash, expected == BlockVerdict::Accepted, "{name}");
        let (own, rows) = block_verdict::rebuild_verdict(&mutated.chain, mutated.block.hash, way)?;
        assert_eq!(own, expected, "{name}");
        let core = Rows::read(&net_dir.join("chainstate"))?;
        assert_eq!(core.differences(&rows.unwrap_or_default()), Vec::<String>::new(), "{name}");
    }
    Ok(())
}

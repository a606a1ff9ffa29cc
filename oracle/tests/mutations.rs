//! Blocks that break one rule, and their twins that just do not: Core and a rebuild say the same of each, and
//! both say what the table of mutations says.

use oracle::{
    CoreNode, Verdict, Wipe,
    coins::Rows,
    datadir,
    said::{self, Said},
    scenario,
};
use std::{error::Error, path::Path};
use testkit::{
    Chain,
    datadir::Layout,
    mutation::{CheckLevel, MutatedChain, Mutation, base_chain, mutations},
};
use wire::Network;

/// Where Core says one thing of a block that is submitted and another of the same block in a datadir that it
/// reindexes. A rebuild sides with the latter.
const REINDEX_DIFFERS: &[(&str, bool, &str)] = &[
    (
        "time-in-2106",
        false,
        "the rule that asks the clock is for headers that are new, not for those in an index",
    ),
    (
        "no-transactions",
        true,
        "a scan finds no undo data for no transactions: as if never connected, it is left out",
    ),
];

/// Rows whose script fails for a reason that a rebuild does not tell, and why not. It runs beginnings of a
/// script to find where it fails, and in those no signature is right (`crates/script/src/trace.rs`).
const UNTOLD: &[(&str, &[&str])] = &[
    ("a right signature would fail for another reason than a wrong one", &["tapscript-item-below"]),
    (
        "tapscripts with signature checks are known in one shape only, `<key> CHECKSIG`",
        &[
            "opcode-below-the-success-opcodes",
            "signature-budget-1-short",
            "unknown-keys-1-over-the-budget",
            "annex-1-over-the-budget",
            "checksigadd-1-of-3",
            "checksigadd-3-of-3",
            "checksigadd-signature-byte",
            "checksigadd-signature-63-bytes",
            "checksigadd-to-5-bytes",
            "tapscript-key-unknown-signature-empty",
            "tapscript-key-empty",
            "tapscript-key-and-signature-empty",
            "tapscript-checksigverify-of-nothing",
            "code-separator-not-signed",
        ],
    ),
];

/// Core, on a copy of a datadir that has the chain beneath.
fn core_says(base: &Path, mutated: &MutatedChain) -> Result<(Said, Rows), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    datadir::copy(base, dir.path(), &|_| true)?;
    let node = CoreNode::open(dir.path(), Network::Regtest, Wipe::Nothing)?;
    for block in &mutated.setup {
        assert_eq!(node.submit(&block.bytes), Verdict::Connected, "height {}", block.height);
    }
    let said = Said::of_verdict(node.submit(&mutated.block.bytes));
    drop(node);
    Ok((said, Rows::read(&dir.path().join("chainstate"))?))
}

fn disagreements(mutation: &Mutation, base: &Chain, base_dir: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mutated = mutation.apply(base);
    let (core, core_rows) = core_says(base_dir, &mutated)?;
    let mut found = Vec::new();
    if core.reject() != mutation.core {
        found.push(format!("{}: the table says {:?}, Core {core:?}", mutation.name, mutation.core));
    }
    for scan in [false, true] {
        let differs = REINDEX_DIFFERS.iter().any(|row| (row.0, row.1) == (mutation.name, scan));
        let (core, core_rows) =
            if differs { core_reindexes(&mutated, scan)? } else { (core.clone(), core_rows.clone()) };
        let (ours, rows) = said::rebuild_says(&mutated.chain, mutated.block.hash, scan)?;
        let is_untold = UNTOLD.iter().any(|(_, rows)| rows.contains(&mutation.name));
        if !ours.agrees_with(&core) || (ours == core) == is_untold {
            found.push(format!("{}: Core says {core:?}, the rebuild {ours:?} (scan: {scan})", mutation.name));
        }
        if rows.is_some_and(|rows| !core_rows.differences(&rows).is_empty()) {
            found
                .push(format!("{}: Core and the rebuild end with other coins (scan: {scan})", mutation.name));
        }
    }
    Ok(found)
}

/// Core's own reindex of the datadir that the rebuild is given.
fn core_reindexes(mutated: &MutatedChain, scan: bool) -> Result<(Said, Rows), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    mutated.chain.write_datadir(dir.path(), &Layout::new(1))?;
    let net_dir = dir.path().join("regtest");
    let node = CoreNode::open(&net_dir, Network::Regtest, if scan { Wipe::All } else { Wipe::Chainstate })?;
    let said = if node.tip().1 == mutated.block.hash { Said::Accepted } else { Said::LeftOut };
    drop(node);
    Ok((said, Rows::read(&net_dir.join("chainstate"))?))
}

/// Every second row of the table, on one chain.
fn core_and_rebuild_say_the_same(half: usize) -> Result<(), Box<dyn Error>> {
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
    assert!(rows >= 120 && of_scripts >= 80, "{rows} rows, {of_scripts} of scripts");
    Ok(())
}

#[test]
fn core_and_rebuild_say_the_same_of_one_half_of_the_mutations() -> Result<(), Box<dyn Error>> {
    core_and_rebuild_say_the_same(0)
}

#[test]
fn core_and_rebuild_say_the_same_of_the_other_half() -> Result<(), Box<dyn Error>> {
    core_and_rebuild_say_the_same(1)
}

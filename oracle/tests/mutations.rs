//! Blocks that break one rule, and their twins that just do not: Core and a rebuild say the same of each, and
//! both say what the table of mutations says.

use bitcoinkernel::BlockValidationResult;
use engine::ErrorKind;
use oracle::{Judge, Rebuild, Verdict, Wipe, coins::Rows, datadir, scenario};
use std::{error::Error, path::Path};
use testkit::{
    Chain,
    datadir::Layout,
    mutation::{MutatedChain, Mutation, base_chain, mutations},
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

/// What is said of a mutated block.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Said {
    /// It is valid.
    Accepted,
    /// It breaks a rule.
    Rejected(String),
    /// Its header may be good, but these are not the bytes that it was made for. (Core: `BLOCK_MUTATED`, and
    /// the block is not marked as invalid. A rebuild: the block file is damaged.)
    Mutated(String),
    /// It was left out: the chain ends at the block beneath.
    LeftOut,
    /// Anything else, which is no verdict.
    Other(String),
}

/// Core, on a copy of a datadir that has the chain beneath.
fn core_says(base: &Path, mutated: &MutatedChain) -> Result<(Said, Rows), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    datadir::copy(base, dir.path(), &|_| true)?;
    let judge = Judge::open(dir.path(), Network::Regtest, Wipe::Nothing)?;
    for block in &mutated.setup {
        assert_eq!(judge.submit(&block.bytes), Verdict::Connected, "height {}", block.height);
    }
    let said = match judge.submit(&mutated.block.bytes) {
        Verdict::Connected => Said::Accepted,
        Verdict::Rejected(rejection) if rejection.result == BlockValidationResult::Mutated => {
            Said::Mutated(rejection.reason.reject)
        }
        Verdict::Rejected(rejection) => Said::Rejected(rejection.reason.reject),
        other => Said::Other(format!("{other:?}")),
    };
    drop(judge);
    Ok((said, Rows::read(&dir.path().join("chainstate"))?))
}

/// A rebuild of a datadir whose tip is the mutated block, with the undo data that goes with it.
fn rebuild_says(mutated: &MutatedChain, scan: bool) -> Result<(Said, Option<Rows>), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    mutated.chain.write_datadir(dir.path(), &Layout::new(1))?;
    Ok(match (Rebuild { scan, ..Rebuild::default() }).run(dir.path(), Network::Regtest) {
        Ok(report) if report.hash == mutated.block.hash => {
            (Said::Accepted, Some(Rows::read(&dir.path().join("regtest/chainstate"))?))
        }
        Ok(_) => (Said::LeftOut, Some(Rows::read(&dir.path().join("regtest/chainstate"))?)),
        Err(error) => (judged(&error, mutated), None),
    })
}

fn judged(error: &engine::Error, mutated: &MutatedChain) -> Said {
    let reject = mutated_reject(error);
    match (error.kind, &error.core) {
        _ if error.block_hash != Some(mutated.block.hash) => Said::Other(error.to_string()),
        (ErrorKind::Consensus, Some(core)) => Said::Rejected(core.to_string()),
        (ErrorKind::Damaged, _) => reject.map_or_else(|| Said::Other(error.to_string()), Said::Mutated),
        _ => Said::Other(error.to_string()),
    }
}

/// The reject string within `the block does not match its header (bad-txnmrklroot: ..)`.
fn mutated_reject(error: &engine::Error) -> Option<String> {
    let (_, rest) = error.detail.split_once("does not match its header (")?;
    Some(rest.split_once(':')?.0.to_owned())
}

fn disagreements(mutation: &Mutation, base: &Chain, base_dir: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mutated = mutation.apply(base);
    let (core, core_rows) = core_says(base_dir, &mutated)?;
    let mut found = Vec::new();
    let reject = match &core {
        Said::Rejected(reject) | Said::Mutated(reject) | Said::Other(reject) => Some(reject.as_str()),
        Said::Accepted | Said::LeftOut => None,
    };
    if reject != mutation.core {
        found.push(format!("{}: the table says {:?}, Core {core:?}", mutation.name, mutation.core));
    }
    for scan in [false, true] {
        let differs = REINDEX_DIFFERS.iter().any(|row| (row.0, row.1) == (mutation.name, scan));
        let (core, core_rows) =
            if differs { core_reindexes(&mutated, scan)? } else { (core.clone(), core_rows.clone()) };
        let (ours, rows) = rebuild_says(&mutated, scan)?;
        if ours != core {
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
    let judge = Judge::open(&net_dir, Network::Regtest, if scan { Wipe::All } else { Wipe::Chainstate })?;
    let said = if judge.tip().1 == mutated.block.hash { Said::Accepted } else { Said::LeftOut };
    drop(judge);
    Ok((said, Rows::read(&net_dir.join("chainstate"))?))
}

/// All rows of the table, on one chain.
#[test]
fn core_and_rebuild_say_the_same_of_each_mutation() -> Result<(), Box<dyn Error>> {
    let base = base_chain(11);
    let base_dir = tempfile::tempdir()?;
    drop(scenario::feed(&base, base_dir.path())?);
    let mut found = Vec::new();
    for mutation in mutations() {
        found.extend(disagreements(mutation, &base, base_dir.path())?);
    }
    assert_eq!(found, Vec::<String>::new());
    Ok(())
}

//! Testkit's table of mutations, applied to the functions that the engine calls: each row is refused by the
//! rule that it breaks, or accepted. The tests that the table of rules names exist and are of the stated
//! kind.

use crate::common::{self, base, check_tip, mutated, mutation, regtest, worth};

use peregrine_rules::{BIP30, ChainParams, MISSING_OR_SPENT, RuleInfo, Tests, table::sections};
use std::{collections::BTreeSet, fs, path::Path};
use testkit::mutation::{CheckLevel, mutations};
use wire::{BlockArena, BlockHash, Height};

/// Returns whether Core's reject string is the rule's, alone or with a value or reason in brackets.
fn is_string_of(rule: &RuleInfo, core: &str) -> bool {
    core.strip_prefix(rule.core).is_some_and(|rest| rest.is_empty() || rest.trim_start().starts_with('('))
}

/// Returns the id of the rule that refuses the tip that a row makes.
fn refusing(params: &ChainParams, name: &str) -> Option<&'static str> {
    check_tip(params, &mutated(name)).err().map(|(_, violation)| violation.rule.id)
}

#[test]
fn each_row_is_refused_at_its_level_with_cores_reject_string() {
    // Which coins exist and whether scripts succeed is known elsewhere.
    let elsewhere = [MISSING_OR_SPENT.core, BIP30.core];
    for row in mutations() {
        let here = row.core.filter(|core| row.level != CheckLevel::Script && !elsewhere.contains(core));
        match check_tip(regtest(), &row.apply(base()).chain) {
            Ok(()) => assert_eq!(here, None, "{}", row.name),
            Err((level, violation)) => {
                assert_eq!((Some(&*violation.core), level), (here, row.level), "{}: {violation}", row.name);
                assert!(is_string_of(violation.rule, &violation.core) && !violation.detail.is_empty());
            }
        }
    }
}

fn holds_test(source: &str, name: &str) -> bool {
    let opening = format!("fn {name}() {{");
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    lines.windows(2).any(|pair| pair[0] == "#[test]" && pair[1] == opening)
}

#[test]
fn each_rule_names_an_accepting_and_a_rejecting_test() {
    let rules: Vec<RuleInfo> = sections().iter().flat_map(|s| &s.rows).map(|(rule, _)| **rule).collect();
    let place = |id: &str| rules.iter().position(|rule| rule.id == id);
    assert_eq!(rules.iter().map(|rule| rule.id).collect::<BTreeSet<_>>().len(), rules.len());
    for rule in &rules {
        match rule.tests {
            Tests::Mutations(accepts, rejects) => {
                let refused_by = refusing(regtest(), accepts);
                let is_accepted = refused_by.map_or_else(
                    || mutation(accepts).core.is_none_or(|core| !is_string_of(rule, core)),
                    |other| place(other) > place(rule.id),
                );
                assert!(is_accepted, "{}: {accepts} is refused by {refused_by:?}", rule.id);
                let core = mutation(rejects).core.unwrap_or_default();
                assert!(is_string_of(rule, core), "{}: {rejects} gives {core:?}", rule.id);
                let refused_by = refusing(regtest(), rejects);
                assert!(refused_by.is_none_or(|id| id == rule.id), "{rejects} is refused by {refused_by:?}");
            }
            Tests::Functions(file, accepts, rejects) => {
                assert_ne!(accepts, rejects, "{}: one test cannot be both", rule.id);
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
                let source = fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"));
                for name in [accepts, rejects] {
                    assert!(holds_test(&source, name), "{}: {file} has no test {name}", rule.id);
                }
            }
        }
    }
}

#[test]
fn rules_begin_at_the_heights_of_their_deployments() {
    type Deployment = fn(&mut ChainParams) -> &mut Height;
    let bip34: Deployment = |params| &mut params.bip34_height;
    let bip66: Deployment = |params| &mut params.bip66_height;
    let bip65: Deployment = |params| &mut params.bip65_height;
    let csv: Deployment = |params| &mut params.csv_height;
    let segwit: Deployment = |params| &mut params.segwit_height;
    for (row, deployment, below) in [
        ("height-of-the-block-before", bip34, None),
        ("version-1", bip34, Some("version-3")),
        ("version-2", bip66, Some("version-4")),
        ("version-3", bip65, None),
        // Below, lock times are compared with the time of the block.
        ("lock-at-the-median-time", csv, None),
        ("lock-at-the-time-of-the-block", csv, Some("lock-time")),
        ("relative-lock-of-4-blocks", csv, None),
        ("reserved-value-absent", segwit, None),
        ("another-commitment", segwit, Some("unexpected-witness")),
        ("last-commitment-counts", segwit, Some("unexpected-witness")),
        ("neither-commitment-nor-witness", segwit, None),
    ] {
        let height = mutated(row).tip().height;
        let with = |height| {
            let mut params = regtest().clone();
            *deployment(&mut params) = Height(height);
            refusing(&params, row)
        };
        assert_eq!(with(height), refusing(regtest(), row), "{row}");
        assert_eq!(with(height + 1), below, "{row}");
    }
}

/// For each single flipped bit, the fused pass and the table give the same verdict.
#[test]
fn the_fused_pass_equals_the_table_for_every_flipped_bit() {
    let coin = worth(5_000_000_000);
    let (mut accepted, mut violated) = (0, BTreeSet::new());
    for chain in ["three-transactions", "relative-lock-of-3-blocks"].map(mutated) {
        let (original, height) = (&chain.tip().bytes, Height(chain.tip().height));
        let medians = common::medians_below_tip(&chain);
        for (bit, sealed) in (0..original.len() * 8).flat_map(|bit| [(bit, false), (bit, true)]) {
            let mut bytes = original.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let mut arena = BlockArena::default();
            if sealed {
                let Ok(block) = arena.parse(&bytes) else { continue };
                let leaves = testkit::block::ids(&block).0.iter().map(|txid| txid.0).collect();
                bytes[36..68].copy_from_slice(&peregrine_rules::merkle::merkle_root(leaves).root);
            }
            let mut arena = BlockArena::default();
            let Ok(block) = arena.parse(&bytes) else { continue };
            let coins = vec![coin; block.input_count().saturating_sub(1)];
            let hash = BlockHash::default();
            let checked = common::check_bytes(regtest(), height, &block, *medians.last().unwrap());
            accepted += u32::from(checked.is_ok());
            let checked = checked.and_then(|_| {
                common::check_spends(regtest(), height, &hash, &block, &coins, &medians).map(|_| ())
            });
            violated.extend(checked.err().map(|violation| violation.rule.id));
        }
    }
    assert!(accepted > 100, "{accepted}");
    assert!(violated.len() > 10, "{violated:?}");
}

//! `docs/rules.md` is generated from the table: this test writes it (`UPDATE_DOCS=1`) or fails if it is
//! stale. Each of Core's reject strings has a row, or a reason not to have one.

use crate::prelude::*;
use peregrine_rules::table::{Active, sections};
use std::{collections::BTreeSet, fmt::Write};

/// Returns the first height at which a rule applies on a network, or `None` if it never does.
fn active_from(active: Active, params: &ChainParams) -> Option<u32> {
    let buried = [
        params.bip34_height,
        params.bip65_height,
        params.bip66_height,
        params.csv_height,
        params.segwit_height,
    ];
    let mut heights: Vec<u32> = buried.into_iter().map(|height| height.0).chain([0, 1]).collect();
    heights.sort_unstable();
    heights.into_iter().find(|&height| active(params, Height(height)))
}

fn active_in_words(active: Active) -> String {
    let from = Network::ALL.map(|network| active_from(active, ChainParams::of(network)));
    if from.iter().all(|height| *height == Some(0)) {
        return "always".to_owned();
    }
    if from.iter().all(|height| *height == Some(1)) {
        return "after the genesis block".to_owned();
    }
    let words = Network::ALL.iter().zip(from).map(|(network, height)| match height {
        Some(height) => format!("{network} {height}"),
        None => format!("{network} never"),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn page() -> String {
    let mut page = "# Consensus rules\n\n\
        Generated from the table in `crates/rules/src/table.rs` by\n\
        `UPDATE_DOCS=1 cargo test -p peregrine-rules --test rules docs`; do not edit.\n\n\
        Rules are in validation order: the first broken rule is reported. *Core* is Bitcoin Core's reject\n\
        string (`bad-version` is followed by the version). *Class* is the meaning of a violation: `mutated`\n\
        is damage to the body, which does not make the block itself invalid.\n\n\
        If a rule has a boundary, the accepting test is exactly on it and the rejecting test one step\n\
        beyond it. `name` is a row of the table of mutations in `crates/testkit/src/mutation`, which is\n\
        also compared with Bitcoin Core (`plain`: a block that breaks no rule; a row that this rule accepts\n\
        may break a later one); `file::name` is a test function in `crates`.\n"
        .to_owned();
    for section in sections() {
        write!(page, "\n## {}\n\n| id | rule | source | Core | active from | class ", section.title).unwrap();
        page.push_str("| accepting test | rejecting test |\n");
        page.push_str("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
        for (rule, active) in section.rows {
            let active = match rule.id {
                "bip30" => "always, except for two blocks, and where BIP-0034 implies it".to_owned(),
                _ => active_in_words(active),
            };
            let (id, must, source, core, class) = (rule.id, rule.must, rule.source, rule.core, rule.class);
            write!(page, "| {id} | {must} | {source} | `{core}` | {active} | {class} ").unwrap();
            let [accepts, rejects] = rule.tests.names();
            writeln!(page, "| `{accepts}` | `{rejects}` |").unwrap();
        }
    }
    page
}

#[test]
fn docs_match_the_table() {
    testkit::pages::assert_file("docs/rules.md", &page());
}

#[test]
fn each_rule_contains_must_and_ends_with_a_full_stop() {
    for (rule, _) in sections().iter().flat_map(|section| &section.rows) {
        assert!(rule.must.contains("MUST") && rule.must.ends_with('.'), "{}", rule.id);
    }
}

/// Lists all reject strings for a block in Core of August 2026 (`validation.cpp`, `tx_check.cpp`,
/// `tx_verify.cpp`), and the reasons why some have no row.
#[test]
fn every_reject_string_of_core_has_a_row_or_a_reason() {
    let reasons = [
        ("mempool-script-verify-flag-failed", "not for blocks"),
        ("bad-txns-fee-outofrange", "cannot happen: inputs are in range and pay the outputs"),
        ("prev-blk-not-found", "a state of the node: the parent is unknown"),
        ("bad-prevblk", "a state of the node: the parent is invalid by another row"),
        ("duplicate-invalid", "a state of the node: the block is invalid by another row"),
        ("too-little-chainwork", "a policy against spam"),
    ];
    let core: BTreeSet<&str> =
        "high-hash bad-diffbits time-too-old time-timewarp-attack time-too-new bad-version \
        bad-signet-blksig bad-txnmrklroot bad-txns-duplicate bad-blk-length bad-cb-missing \
        bad-cb-multiple bad-txns-vin-empty bad-txns-vout-empty bad-txns-oversize \
        bad-txns-vout-negative bad-txns-vout-toolarge bad-txns-txouttotal-toolarge \
        bad-txns-inputs-duplicate bad-cb-length bad-txns-prevout-null bad-blk-sigops \
        bad-txns-nonfinal bad-cb-height bad-witness-nonce-size bad-witness-merkle-match \
        unexpected-witness bad-blk-weight bad-txns-BIP30 bad-txns-inputs-missingorspent \
        bad-txns-premature-spend-of-coinbase bad-txns-inputvalues-outofrange bad-txns-in-belowout \
        bad-txns-fee-outofrange bad-txns-accumulated-fee-outofrange bad-cb-amount \
        block-script-verify-flag-failed mempool-script-verify-flag-failed prev-blk-not-found \
        bad-prevblk duplicate-invalid too-little-chainwork"
            .split_whitespace()
            .collect();
    let rows: BTreeSet<&str> = sections().iter().flat_map(|s| &s.rows).map(|(rule, _)| rule.core).collect();
    let absent: BTreeSet<&str> = reasons.iter().map(|(string, _)| *string).collect();
    assert!(rows.is_disjoint(&absent));
    assert_eq!(&rows | &absent, core);
}

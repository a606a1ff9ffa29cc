//! `docs/rules.md` is the table in words: this test writes it (`UPDATE_DOCS=1`) and fails when it is stale.
#![allow(clippy::unwrap_used, reason = "tests may; clippy sees only functions marked as tests")]

use rules::{
    ChainParams,
    table::{Active, sections},
};
use std::{fmt::Write, path::Path};
use wire::{Height, Network};

/// The first height at which a row binds on a network, if any.
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
        Written from the table in `crates/rules/src/table.rs` by\n\
        `UPDATE_DOCS=1 cargo test -p rules --test docs`; do not edit.\n\n\
        Rules stand in validation order: the first broken one names the verdict. *Core* is Bitcoin Core's\n\
        reject string (`bad-version` is followed by the version). *Class* says what a breach means:\n\
        `mutated` is damage to the body and says nothing about the block.\n\n\
        Where a rule has a boundary, the accepting test stands exactly on it, the rejecting one is one\n\
        over. `name` is a row of the table of mutations in `crates/testkit/src/mutation`, which Bitcoin\n\
        Core is asked about too (`plain`: a block that breaks nothing); `file::name` is a test function\n\
        below `crates`.\n"
        .to_owned();
    for section in sections() {
        write!(page, "\n## {}\n\n| id | rule | source | Core | active from | class ", section.title).unwrap();
        page.push_str("| accepting test | rejecting test |\n");
        page.push_str("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
        for (rule, active) in section.rows {
            let active = match rule.id {
                "bip30" => "always, but for two blocks, and where BIP-0034 implies it".to_owned(),
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
fn docs_are_fresh() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rules.md"));
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == page, "docs/rules.md is stale: UPDATE_DOCS=1 cargo test -p rules --test docs");
}

#[test]
fn each_rule_says_must() {
    for (rule, _) in sections().iter().flat_map(|section| &section.rows) {
        assert!(rule.must.contains("MUST") && rule.must.ends_with('.'), "{}", rule.id);
    }
}

//! The tests that the table of rules names exist and are of the stated kind. This test is here because
//! `rules` cannot depend on `testkit`.

use rules::{RuleInfo, Tests, table::sections};
use std::{fs, path::Path};
use testkit::mutation::{CheckLevel, Mutation, mutations};

fn mutation(rule: &RuleInfo, name: &str) -> &'static Mutation {
    mutations()
        .find(|mutation| mutation.name == name)
        .unwrap_or_else(|| panic!("{}: no mutation is called {name}", rule.id))
}

/// Returns the level at which the rules of a section are checked.
fn level_of(section: &str) -> CheckLevel {
    match section {
        "Headers" => CheckLevel::Header,
        "Blocks, before their transactions" | "Transactions" | "Blocks, after their transactions" => {
            CheckLevel::Block
        }
        "Transactions and the coins they spend" | "Rewards" => CheckLevel::Spend,
        "Scripts" => CheckLevel::Script,
        other => panic!("the section {other} needs a level"),
    }
}

/// Returns whether Core's reject string is the rule's, alone or with a value or reason in brackets.
fn is_string_of(rule: &RuleInfo, core: &str) -> bool {
    core.strip_prefix(rule.core).is_some_and(|rest| rest.is_empty() || rest.trim_start().starts_with('('))
}

/// Returns whether the source contains a test of this name.
fn holds_test(source: &str, name: &str) -> bool {
    let opening = format!("fn {name}() {{");
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    lines.windows(2).any(|pair| pair[0] == "#[test]" && pair[1] == opening)
}

#[test]
fn each_rule_names_an_accepting_and_a_rejecting_test() {
    for section in sections() {
        for (rule, _) in section.rows {
            match rule.tests {
                Tests::Mutations(accepts, rejects) => {
                    assert_eq!(mutation(rule, accepts).core, None, "{}: {accepts} must accept", rule.id);
                    let rejecting = mutation(rule, rejects);
                    let core = rejecting.core.unwrap_or_default();
                    assert!(is_string_of(rule, core), "{}: {rejects} gives {core:?}", rule.id);
                    assert_eq!(rejecting.level, level_of(section.title), "{}: {rejects}", rule.id);
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
}

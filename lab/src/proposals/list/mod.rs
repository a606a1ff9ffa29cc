//! The proposals, with what their documents said.

mod commands;
mod hashes;
mod swiftsync;
mod tracking;
mod unmeasured;

pub use commands::CONTROLS;
pub use unmeasured::UNMEASURED;

use super::proposal::{CoreCommand, Measure, Proposal, Run, Statement, Step, Unit, Variant, Work};

/// The documents: pull requests of Bitcoin Core, #32043 being the one that tracks all, and a thread.
const TRACKING: &str = "#32043";
const JUMBO: &str = "SipHash-1-3 with jumbo blocks";
const OBFUSCATION: &str = "#31144";
const SWIFTSYNC: &str = "thread on SwiftSync";
/// The machine of most measurements in the tracking document.
const I9: &str = "i9-9900K, 64 GB, NVMe RAID, dbcache 5000";

const fn said(
    what: &'static str,
    (before, after): (f64, f64),
    unit: &'static str,
    machine: &'static str,
    source: &'static str,
) -> Statement {
    Statement { what, before, after, unit, machine, source }
}

const fn step(name: &'static str, step: Step) -> Variant {
    Variant { name, work: Work::Step(step) }
}

const fn command(
    name: &'static str,
    command: &'static [&'static str],
    args: &'static [&'static str],
    answer: &'static str,
) -> Variant {
    Variant { name, work: Work::Run(Run { command, args, answer, is_packed: false, runs_scripts: false }) }
}

const fn core(name: &'static str, words: &'static [&'static str], answer: &'static str) -> Variant {
    Variant { name, work: Work::Core(CoreCommand { words, answer }) }
}

const fn rebuild(name: &'static str, args: &'static [&'static str]) -> Variant {
    command(name, &["reindex", "--output", "{output}"], args, "hash_serialized_3")
}

const fn hinted(name: &'static str, args: &'static [&'static str]) -> Variant {
    command(name, &["reindex", "--output", "{output}", "--hints", "{hints}"], args, "hash_serialized_3")
}

/// Returns all proposals, in the order in which they are reported.
pub fn all() -> impl Iterator<Item = &'static Proposal> {
    [tracking::PROPOSALS, hashes::PROPOSALS, swiftsync::PROPOSALS, commands::PROPOSALS].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_proposal_has_a_name_of_its_own_variants_and_one_sentence() {
        let names: BTreeSet<_> = all().map(|proposal| proposal.name).collect();
        assert_eq!(names.len(), all().count());
        for Proposal { name, differs, variants, .. } in all() {
            let variant_names: BTreeSet<_> = variants.iter().map(|variant| variant.name).collect();
            assert!(!variants.is_empty() && variant_names.len() == variants.len(), "{name}");
            assert!(variant_names.iter().all(|name| !name.contains('"')), "CSV quotes them: {name}");
            assert!(differs.ends_with('.') && differs.matches(". ").count() == 0, "{name}: {differs}");
        }
    }

    #[test]
    fn what_documents_said_has_an_origin_and_a_ratio() {
        for statement in all().flat_map(|proposal| proposal.statements) {
            assert!(!statement.source.is_empty() && !statement.machine.is_empty(), "{statement:?}");
            assert!((0.4..30.0).contains(&statement.ratio()), "{statement:?}");
        }
    }
}

//! The types of a rule and of its violation.

use crate::params::ChainParams;
use std::{borrow::Cow, fmt};
use wire::{Height, TxIndex};

/// The source that defines a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleSource {
    /// A Bitcoin improvement proposal.
    Bip(u16),
    /// A function of Bitcoin Core, for rules that no proposal states.
    Core(&'static str),
    /// The vulnerability that the rule fixed.
    Cve(&'static str),
}

impl fmt::Display for RuleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bip(number) => write!(f, "BIP-{number:04}"),
            Self::Core(function) => write!(f, "Core {function}"),
            Self::Cve(number) => write!(f, "CVE-{number}"),
        }
    }
}

wire::named! {
/// The meaning of a violation for the block (Core `BlockValidationResult`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ViolationClass {
    /// The header is invalid, and so is every chain on top of it.
    InvalidHeader = "invalid header",
    /// The header may become valid later.
    TimeFuture = "time in the future",
    /// The body is not the one to which the header commits: damage, which does not make the block itself
    /// invalid.
    Mutated = "mutated",
    /// The block is invalid.
    Consensus = "consensus",
}
}

/// The two tests of a rule: the first is exactly on its boundary, and the rule accepts it; the second is one
/// step beyond it, and the rule rejects it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tests {
    /// Rows of the table of mutations, which are also compared with Bitcoin Core: accepted by this rule,
    /// though perhaps not by a later one; rejected.
    Mutations(&'static str, &'static str),
    /// Test functions: their file in `crates`, the accepting test, the rejecting test.
    Functions(&'static str, &'static str, &'static str),
}

impl Tests {
    /// Returns the accepting and the rejecting test as the docs name them: `amount-0`, or
    /// `crate/tests/file.rs::name`.
    pub fn names(&self) -> [String; 2] {
        match *self {
            Self::Mutations(accepts, rejects) => [accepts, rejects].map(str::to_owned),
            Self::Functions(file, accepts, rejects) => {
                [accepts, rejects].map(|name| format!("{file}::{name}"))
            }
        }
    }
}

/// The description of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleInfo {
    /// Peregrine's name for the rule, unique in the table.
    pub id: &'static str,
    /// The requirement, as one RFC 2119 sentence.
    pub must: &'static str,
    pub source: RuleSource,
    /// Bitcoin Core's reject string. For version rules, Core appends the version: see [`Violation::core`].
    pub core: &'static str,
    /// The meaning of a violation.
    pub class: ViolationClass,
    /// The tests of its boundary; a test of `testkit` checks that they exist.
    pub tests: Tests,
}

/// Begins the description of a rule. It needs [`RuleInfo::must`] and [`RuleInfo::tests`] too, or the tests of
/// the table fail.
pub(crate) const fn rule(
    id: &'static str,
    source: RuleSource,
    core: &'static str,
    class: ViolationClass,
) -> RuleInfo {
    RuleInfo { id, must: "", source, core, class, tests: Tests::Mutations("", "") }
}

impl RuleInfo {
    /// Sets the requirement.
    pub(crate) const fn must(self, must: &'static str) -> Self {
        Self { must, ..self }
    }

    /// Sets the tests of the boundary.
    pub(crate) const fn tests(self, tests: Tests) -> Self {
        Self { tests, ..self }
    }

    /// Makes the row of a rule that applies to the blocks for which `active` is true.
    pub const fn checked<F: Copy>(self, active: fn(&ChainParams, Height) -> bool, check: F) -> Rule<F> {
        Rule { info: self, active, check }
    }
}

/// A row of the table; `F` is the type of its check, a function of the section's context.
#[derive(Clone, Copy, Debug)]
pub struct Rule<F: 'static> {
    pub info: RuleInfo,
    /// Returns whether the rule applies to a block at this height.
    pub active: fn(&ChainParams, Height) -> bool,
    pub check: F,
}

/// The result of a failed check: the values, and the location in the block.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ViolationDetails {
    tx: Option<TxIndex>,
    input: Option<u32>,
    detail: String,
    /// Core's reject string, for rules where it contains a value.
    pub(crate) core: Option<String>,
}

impl ViolationDetails {
    /// Creates details with the values, such as `pushed 812344, expected 812345`.
    pub fn new(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..Self::default() }
    }

    /// Adds the index of the transaction.
    #[must_use]
    pub const fn at_tx(mut self, index: TxIndex) -> Self {
        self.tx = Some(index);
        self
    }

    #[must_use]
    pub const fn at_input(mut self, index: u32) -> Self {
        self.input = Some(index);
        self
    }

    pub fn of(self, rule: &'static RuleInfo) -> Violation {
        let core = self.core.map_or(Cow::Borrowed(rule.core), Cow::Owned);
        Violation { rule, tx: self.tx, input: self.input, core, detail: self.detail }
    }
}

/// Returns an error with the values that `detail` names unless a condition holds.
pub(crate) fn require<D: Into<String>>(
    holds: bool,
    detail: impl FnOnce() -> D,
) -> Result<(), ViolationDetails> {
    if holds { Ok(()) } else { Err(ViolationDetails::new(detail())) }
}

/// A broken rule, with the location in the block and the values that break it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Violation {
    pub rule: &'static RuleInfo,
    /// The transaction in the block; `None` if the violation does not concern a single one.
    pub tx: Option<TxIndex>,
    /// The input of that transaction; `None` if the violation does not concern a single one.
    pub input: Option<u32>,
    /// Core's reject string: the rule's, or `bad-version(0x00000001)`.
    pub core: Cow<'static, str>,
    /// The values that break the rule.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(tx) = self.tx {
            write!(f, "transaction {tx}")?;
            if let Some(input) = self.input {
                write!(f, ", input {input}")?;
            }
            f.write_str(": ")?;
        }
        write!(f, "{}: {} ({}, ", self.rule.id, self.detail, self.rule.source)?;
        match self.rule.source {
            RuleSource::Core(_) => write!(f, "{})", self.core),
            RuleSource::Bip(_) | RuleSource::Cve(_) => write!(f, "Core {})", self.core),
        }
    }
}

/// Checks the rules that apply, in order, and returns the first violation.
pub(crate) fn first_violation<F: Copy>(
    rules: &'static [Rule<F>],
    params: &ChainParams,
    height: Height,
    check: impl Fn(F) -> Result<(), ViolationDetails>,
) -> Result<(), Violation> {
    for rule in rules.iter().filter(|rule| (rule.active)(params, height)) {
        check(rule.check).map_err(|details| details.of(&rule.info))?;
    }
    Ok(())
}

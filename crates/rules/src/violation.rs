//! What a rule is and what a broken one says.

use crate::params::ChainParams;
use std::{borrow::Cow, fmt};
use wire::{Height, TxIndex};

/// Where a rule is written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleSource {
    /// A Bitcoin improvement proposal.
    Bip(u16),
    /// A function of Bitcoin Core, for rules that no proposal states.
    Core(&'static str),
    /// The hole that the rule closed.
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

/// What a broken rule means for the block (Core `BlockValidationResult`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// The header is invalid, and so is each chain on top of it.
    InvalidHeader,
    /// The header may become valid as time goes by.
    TimeFuture,
    /// The body is not the one that the header commits to: damage, which says nothing about the block itself.
    Mutated,
    /// The block is invalid.
    Consensus,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidHeader => "invalid header",
            Self::TimeFuture => "time in the future",
            Self::Mutated => "mutated",
            Self::Consensus => "consensus",
        })
    }
}

/// The two tests of a rule: the first stands exactly on its boundary and is allowed, the second is one over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tests {
    /// Rows of the table of mutations, which Bitcoin Core is asked about as well: accepting, rejecting.
    Mutations(&'static str, &'static str),
    /// Test functions: their file below `crates`, accepting, rejecting.
    Functions(&'static str, &'static str, &'static str),
}

impl Tests {
    /// The accepting and the rejecting test, as docs name them: `amount-0`, or `room/tests/file.rs::name`.
    #[must_use]
    pub fn names(&self) -> [String; 2] {
        match *self {
            Self::Mutations(accepts, rejects) => [accepts, rejects].map(str::to_owned),
            Self::Functions(file, accepts, rejects) => {
                [accepts, rejects].map(|name| format!("{file}::{name}"))
            }
        }
    }
}

/// The words of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleInfo {
    /// Our name of it, unique in the table.
    pub id: &'static str,
    /// What it demands, in one sentence.
    pub must: &'static str,
    /// Where it is written down.
    pub source: RuleSource,
    /// What Bitcoin Core answers when it is broken. Version rules have the version appended: see
    /// [`Violation::core`].
    pub core: &'static str,
    /// What a breach means.
    pub class: Class,
    /// What shows where it begins to bind; `testkit` passes_all that they exist.
    pub tests: Tests,
}

/// A row of a table; `F` is the type of its check, a function of the table's context.
#[derive(Clone, Copy, Debug)]
pub struct Rule<F: 'static> {
    /// Its words.
    pub info: RuleInfo,
    /// Whether it binds a block at this height.
    pub active: fn(&ChainParams, Height) -> bool,
    /// Whether it passes_all.
    pub check: F,
}

/// What a check found wrong: the values, and the place within the block.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ViolationDetails {
    tx: Option<TxIndex>,
    input: Option<u32>,
    detail: String,
    core: Option<String>,
}

impl ViolationDetails {
    /// States the values, such as `pushed 812344, expected 812345`.
    #[must_use]
    pub fn new(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..Self::default() }
    }

    /// Names the transaction.
    #[must_use]
    pub const fn at_tx(mut self, index: TxIndex) -> Self {
        self.tx = Some(index);
        self
    }

    /// Names the input.
    #[must_use]
    pub const fn at_input(mut self, index: u32) -> Self {
        self.input = Some(index);
        self
    }

    /// Gives Core's reject string where it passes_all a value.
    #[must_use]
    pub fn with_core(mut self, core: String) -> Self {
        self.core = Some(core);
        self
    }

    /// Makes it a breach of a rule.
    #[must_use]
    pub fn of(self, rule: &'static RuleInfo) -> Violation {
        let core = self.core.map_or(Cow::Borrowed(rule.core), Cow::Owned);
        Violation { rule, tx: self.tx, input: self.input, core, detail: self.detail }
    }
}

/// A broken rule, with its place and values.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Violation {
    /// The row.
    pub rule: &'static RuleInfo,
    /// The transaction in the block, where it is one's fault.
    pub tx: Option<TxIndex>,
    /// The input of that transaction, where it is one's fault.
    pub input: Option<u32>,
    /// Core's reject string: the row's, or `bad-version(0x00000001)`.
    pub core: Cow<'static, str>,
    /// The values.
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

/// Runs the active rows of a table in order; the first broken one wins.
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

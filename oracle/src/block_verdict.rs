//! Verdicts of Core and of a rebuild on the last block of a chain, as one type.

use crate::{
    coins::Rows,
    core_node::Verdict,
    rebuild::{Rebuild, remove_undo_files},
};
use bitcoinkernel::BlockValidationResult;
use engine::{ErrorKind, UndoPolicy};
use rules::Violation;
use std::error::Error as _;
use testkit::{Chain, datadir::Layout};
use wire::{BlockHash, Network, WireError};

/// The first part of the reject string of a failing script.
const SCRIPT_FAILED: &str = rules::SCRIPT.core;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BlockVerdict {
    /// The block is valid.
    Accepted,
    /// The block breaks a rule; contains Core's reject string.
    Rejected(String),
    /// The header may be valid, but the block does not match it. (Core: `BLOCK_MUTATED`, and the block is not
    /// marked as invalid. A rebuild: the block file is damaged.)
    Mutated(String),
    /// The bytes are not a block.
    Malformed,
    /// The block was left out: the chain ends at the block before it.
    LeftOut,
    /// Anything else, which is not a verdict.
    Other(String),
}

impl BlockVerdict {
    pub fn from_core(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Connected => Self::Accepted,
            Verdict::Malformed => Self::Malformed,
            Verdict::Rejected(rejection) if rejection.result == BlockValidationResult::Mutated => {
                Self::Mutated(rejection.reason.reject)
            }
            Verdict::Rejected(rejection) => Self::Rejected(rejection.reason.reject),
            other => Self::Other(format!("{other:?}")),
        }
    }

    /// Converts the error of a rebuild into its verdict on the block `hash`.
    pub fn from_rebuild_error(error: &engine::Error, hash: BlockHash) -> Self {
        let other = || Self::Other(error.to_string());
        if error.block_hash != Some(hash) {
            return other();
        }
        match (error.kind, &error.core, error.source()) {
            // A stored header without proof of work is damage, because Core stores none.
            (ErrorKind::Consensus | ErrorKind::Damaged, Some(core), _) if error.rule.is_some() => {
                Self::Rejected(core.to_string())
            }
            (ErrorKind::Damaged, _, Some(cause)) => match cause.downcast_ref::<Violation>() {
                Some(violation) => Self::Mutated(violation.core.to_string()),
                None if cause.is::<WireError>() => Self::Malformed,
                None => other(),
            },
            _ => other(),
        }
    }

    /// Returns whether this verdict of a rebuild agrees with Core's. Core also reports why a script fails.
    #[must_use]
    pub fn agrees_with(&self, core: &Self) -> bool {
        match (self, core) {
            (Self::Rejected(own), Self::Rejected(core)) if own == SCRIPT_FAILED => {
                core.strip_prefix(SCRIPT_FAILED).is_some_and(|reason| reason.starts_with(" ("))
            }
            _ => self == core,
        }
    }

    pub fn is_script_failure(&self) -> bool {
        self.reject().is_some_and(|reject| reject.starts_with(SCRIPT_FAILED))
    }

    pub fn reject(&self) -> Option<&str> {
        match self {
            Self::Rejected(reject) | Self::Mutated(reject) => Some(reject),
            _ => None,
        }
    }
}

/// How a datadir is rebuilt for a verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// With its block index and its undo data.
    Index,
    Scan,
    /// With its block index. All undo data is removed before, so it is made.
    WithoutUndo,
}

/// Rebuilds the chain's datadir. Returns the verdict on the block `hash` in it, and the coins if the rebuild
/// succeeds.
///
/// # Errors
/// If the datadir cannot be written or the chainstate cannot be read.
pub fn rebuild_verdict(
    chain: &Chain,
    hash: BlockHash,
    way: Way,
) -> Result<(BlockVerdict, Option<Rows>), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    chain.write_datadir(dir.path(), &Layout { preallocate: false, ..Layout::new(1) })?;
    let mut rebuild = Rebuild { scan: way == Way::Scan, ..Rebuild::default() };
    if way == Way::WithoutUndo {
        remove_undo_files(dir.path(), Network::Regtest)?;
        rebuild.undo = UndoPolicy::Make;
    }
    Ok(match rebuild.run(dir.path(), Network::Regtest) {
        Ok(report) => {
            let verdict =
                if report.hash == chain.tip().hash { BlockVerdict::Accepted } else { BlockVerdict::LeftOut };
            (verdict, Some(Rows::read(&dir.path().join("regtest/chainstate"))?))
        }
        Err(error) => (BlockVerdict::from_rebuild_error(&error, hash), None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_script_agrees_whatever_the_reason() {
        let verdict = |reject: &str| BlockVerdict::Rejected(reject.to_owned());
        let core = verdict("block-script-verify-flag-failed (Negative locktime)");
        assert!(verdict(SCRIPT_FAILED).agrees_with(&core));
        assert!(!core.agrees_with(&verdict(SCRIPT_FAILED)));
        assert!(!verdict(SCRIPT_FAILED).agrees_with(&verdict("bad-cb-amount")));
        assert!(!verdict(SCRIPT_FAILED).agrees_with(&BlockVerdict::Accepted));
    }
}

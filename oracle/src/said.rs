//! What Core and a rebuild say of the last block of a chain, in the same words.

use crate::{coins::Rows, core_node::Verdict, ours::Rebuild};
use bitcoinkernel::BlockValidationResult;
use engine::ErrorKind;
use testkit::{Chain, datadir::Layout};
use wire::{BlockHash, Network};

/// What a failing script's reject string begins with.
const SCRIPT_FAILED: &str = script::BLOCK_SCRIPT_VERIFY_FLAG_FAILED;

/// What is said of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// It is valid.
    Accepted,
    /// It breaks a rule.
    Rejected(String),
    /// Its header may be good, but these are not the bytes that it was made for. (Core: `BLOCK_MUTATED`, and
    /// the block is not marked as invalid. A rebuild: the block file is damaged.)
    Mutated(String),
    /// The bytes are not a block.
    Malformed,
    /// It was left out: the chain ends at the block beneath.
    LeftOut,
    /// Anything else, which is no verdict.
    Other(String),
}

impl Said {
    /// In the words of Core's node.
    #[must_use]
    pub fn of_verdict(verdict: Verdict) -> Self {
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

    /// What a rebuild's error says of the block `hash`.
    #[must_use]
    pub fn of_error(error: &engine::Error, hash: BlockHash) -> Self {
        let other = || Self::Other(error.to_string());
        if error.block_hash != Some(hash) {
            return other();
        }
        match (error.kind, &error.core) {
            // A stored header without proof of work is damage: Core stores none.
            (ErrorKind::Consensus | ErrorKind::Damaged, Some(core)) => Self::Rejected(core.to_string()),
            (ErrorKind::Damaged, _) if error.detail.contains("the block is malformed") => Self::Malformed,
            (ErrorKind::Damaged, _) => mutated_reject(&error.detail).map_or_else(other, Self::Mutated),
            _ => other(),
        }
    }

    /// Whether a rebuild that says so says what Core does. Core always tells why a script fails, a rebuild
    /// only where no doubt is left.
    #[must_use]
    pub fn agrees_with(&self, core: &Self) -> bool {
        match (self, core) {
            (Self::Rejected(ours), Self::Rejected(core)) if ours == SCRIPT_FAILED => {
                core.strip_prefix(SCRIPT_FAILED).is_some_and(|reason| reason.starts_with(" ("))
            }
            _ => self == core,
        }
    }

    /// Whether it is a script that fails.
    #[must_use]
    pub fn is_of_script(&self) -> bool {
        self.reject().is_some_and(|reject| reject.starts_with(SCRIPT_FAILED))
    }

    /// Core's reject string.
    #[must_use]
    pub fn reject(&self) -> Option<&str> {
        match self {
            Self::Rejected(reject) | Self::Mutated(reject) => Some(reject),
            _ => None,
        }
    }
}

/// The reject string within `the block does not match its header (bad-txnmrklroot: ..)`.
fn mutated_reject(detail: &str) -> Option<String> {
    let (_, rest) = detail.split_once("does not match its header (")?;
    Some(rest.split_once(':')?.0.to_owned())
}

/// What a rebuild of the chain's datadir says of the block `hash` in it, and the coins it ends with, if it
/// does.
///
/// # Errors
/// If the datadir cannot be written or the chainstate not read.
pub fn rebuild_says(
    chain: &Chain,
    hash: BlockHash,
    scan: bool,
) -> Result<(Said, Option<Rows>), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    chain.write_datadir(dir.path(), &Layout { preallocate: false, ..Layout::new(1) })?;
    Ok(match (Rebuild { scan, ..Rebuild::default() }).run(dir.path(), Network::Regtest) {
        Ok(report) => {
            let said = if report.hash == chain.tip().hash { Said::Accepted } else { Said::LeftOut };
            (said, Some(Rows::read(&dir.path().join("regtest/chainstate"))?))
        }
        Err(error) => (Said::of_error(&error, hash), None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_may_lack_but_not_differ() {
        let said = |reject: &str| Said::Rejected(reject.to_owned());
        let core = said("block-script-verify-flag-failed (Negative locktime)");
        assert!(core.agrees_with(&core) && said(SCRIPT_FAILED).agrees_with(&core));
        assert!(!core.agrees_with(&said(SCRIPT_FAILED)));
        assert!(!said("block-script-verify-flag-failed (unknown error)").agrees_with(&core));
        assert!(!said(SCRIPT_FAILED).agrees_with(&said("bad-cb-amount")));
        assert!(!said(SCRIPT_FAILED).agrees_with(&Said::Accepted));
    }
}

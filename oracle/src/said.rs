//! What Core and a rebuild say of the last block of a chain, in the same words.

use crate::{coins::Rows, judge::Verdict, ours::Rebuild};
use bitcoinkernel::BlockValidationResult;
use engine::ErrorKind;
use testkit::{Chain, datadir::Layout};
use wire::{BlockHash, Network};

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
    /// In the words of Core's judge.
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
            (ErrorKind::Consensus, Some(core)) => Self::Rejected(core.to_string()),
            (ErrorKind::Damaged, _) if error.detail.contains("the block is malformed") => Self::Malformed,
            (ErrorKind::Damaged, _) => mutated_reject(&error.detail).map_or_else(other, Self::Mutated),
            _ => other(),
        }
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

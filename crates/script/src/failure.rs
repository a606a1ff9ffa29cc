//! How verification ends when it does not pass.

use crate::BLOCK_SCRIPT_VERIFY_FLAG_FAILED;
use std::borrow::Cow;
use wire::ScriptFlags;

/// An input whose script fails: its block is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the script of input {input} fails under the flags {flags}{}", clause(*decisive))]
pub struct ScriptFailure {
    /// The input's position in its transaction.
    pub input: u32,
    /// The flags that bound it.
    pub flags: ScriptFlags,
    /// The flag of narrowest effect without which the script would pass; none if no single one decides.
    pub decisive: Option<ScriptFlags>,
    /// Core's words for why it fails (`ScriptErrorString`), where they can be told for certain.
    pub reason: Option<&'static str>,
}

impl ScriptFailure {
    /// The reject string of a block with this failure (Core `ConnectBlock`), without a reason where none is
    /// known.
    #[must_use]
    pub fn core(&self) -> Cow<'static, str> {
        match self.reason {
            Some(reason) => format!("{BLOCK_SCRIPT_VERIFY_FLAG_FAILED} ({reason})").into(),
            None => BLOCK_SCRIPT_VERIFY_FLAG_FAILED.into(),
        }
    }
}

fn clause(decisive: Option<ScriptFlags>) -> String {
    decisive.map(|flag| format!("; without {flag} it would pass")).unwrap_or_default()
}

/// Why inputs were not found valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// A script fails.
    #[error(transparent)]
    Failed(#[from] ScriptFailure),
    /// The coins are not one per input.
    #[error("{coins} coins for a transaction of {inputs} inputs; give one per input")]
    CoinCount {
        /// Coins given.
        coins: usize,
        /// Inputs of the transaction.
        inputs: usize,
    },
    /// An input that the transaction does not have.
    #[error("there is no input {input} in a transaction of {inputs} inputs")]
    NoInput {
        /// The input asked for.
        input: u32,
        /// Inputs of the transaction.
        inputs: u32,
    },
    /// Flags that Core does not run together: WITNESS needs P2SH.
    #[error("the flags {0} contradict one another; WITNESS needs P2SH")]
    Flags(ScriptFlags),
    /// Core's library refused something that has no other name.
    #[error("libbitcoinkernel refused: {0}; report this as a bug")]
    Refused(String),
}

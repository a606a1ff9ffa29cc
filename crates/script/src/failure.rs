//! The errors of verification.

use wire::ScriptFlags;

/// The failure of an input's script, which makes the block invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the script of input {input} fails under the flags {flags}{}", clause(*decisive))]
pub struct ScriptFailure {
    /// The index of the input in its transaction.
    pub input: u32,
    /// The flags under which it was verified.
    pub flags: ScriptFlags,
    /// The flag of narrowest effect without which the script would pass; `None` if there is no such single
    /// flag.
    pub decisive: Option<ScriptFlags>,
}

fn clause(decisive: Option<ScriptFlags>) -> String {
    decisive.map(|flag| format!("; without {flag} it would pass")).unwrap_or_default()
}

/// The reason why inputs were not verified.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// A script fails.
    #[error(transparent)]
    Failed(#[from] ScriptFailure),
    /// The number of coins is not the number of inputs.
    #[error("{coins} coins for a transaction of {inputs} inputs; give one per input")]
    CoinCount {
        /// Number of coins.
        coins: usize,
        /// Number of inputs of the transaction.
        inputs: usize,
    },
    /// The transaction does not have that input.
    #[error("there is no input {input} in a transaction of {inputs} inputs")]
    NoInput {
        /// The requested index.
        input: u32,
        /// Number of inputs of the transaction.
        inputs: u32,
    },
    /// Core does not accept this combination of flags: WITNESS needs P2SH.
    #[error("the flags {0} contradict one another; WITNESS needs P2SH")]
    Flags(ScriptFlags),
    /// Any other error of Core's library.
    #[error("libbitcoinkernel refused: {0}; report this as a bug")]
    Refused(String),
}

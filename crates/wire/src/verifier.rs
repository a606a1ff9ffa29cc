//! The face of whoever runs scripts, for whoever must not know how: room `script` shows it, the engine asks
//! it.
//!
//! Here, below both, so that the engine is built and tested without Bitcoin Core's code (ADR 4).

use crate::{Sats, ScriptFlags, TxView};
use std::{fmt, ops::Range, sync::Arc};

/// Makes transactions ready to have their scripts run.
pub trait ScriptVerifier: fmt::Debug + Sync {
    /// Takes a transaction with amount and script of each coin it spends, in input order. Not for coinbases.
    ///
    /// # Errors
    /// [`ScriptFault`] if it cannot be read, or the coins are not as many as the inputs.
    fn transaction(
        &self,
        tx: &TxView<'_>,
        coins: &[(Sats, Vec<u8>)],
    ) -> Result<Arc<dyn TxVerifier>, ScriptFault>;
}

/// A transaction whose inputs any thread may verify.
pub trait TxVerifier: Send + Sync {
    /// Runs the scripts of a range of inputs in order, up to the first that fails.
    ///
    /// # Errors
    /// [`ScriptFault`] of the first that fails.
    fn verify(&self, inputs: Range<u32>, flags: ScriptFlags) -> Result<(), ScriptFault>;
}

/// An input whose script does not pass.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScriptFault {
    /// The input, where it is one's fault.
    pub input: Option<u32>,
    /// Core's words for it (`ScriptErrorString`), where they are known.
    pub reason: Option<&'static str>,
    /// What is wrong, with flags.
    pub detail: String,
}

impl fmt::Display for ScriptFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for ScriptFault {}

//! The interface of a script verifier: crate `script` implements it, and the engine calls it.
//!
//! It is in this crate, on which both depend, so that the engine is built and tested without Bitcoin Core's
//! code (ADR 4).

use crate::{Sats, ScriptFlags, TxView};
use std::{fmt, ops::Range, sync::Arc};

/// Prepares transactions for script verification.
pub trait ScriptVerifier: fmt::Debug + Send + Sync {
    /// Prepares a transaction, given the amount and script of each coin that it spends, in input order. It
    /// must not be a coinbase.
    ///
    /// # Errors
    /// [`ScriptFault`] if the transaction cannot be read, or the number of coins is not the number of inputs.
    fn transaction(
        &self,
        tx: &TxView<'_>,
        coins: &[(Sats, Vec<u8>)],
    ) -> Result<Arc<dyn TxVerifier>, ScriptFault>;
}

/// A transaction whose inputs can be verified on any thread.
pub trait TxVerifier: Send + Sync {
    /// Runs the scripts of a range of inputs in order, up to the first failure.
    ///
    /// # Errors
    /// [`ScriptFault`] for the first input that fails.
    fn verify(&self, inputs: Range<u32>, flags: ScriptFlags) -> Result<(), ScriptFault>;
}

/// A script failure, or a transaction that could not be prepared.
#[derive(Clone, PartialEq, Eq, Debug, Default, thiserror::Error)]
#[error("{detail}")]
pub struct ScriptFault {
    /// The index of the input, or `None` if the failure does not concern one input.
    pub input: Option<u32>,
    /// The description of the failure, with the script flags.
    pub detail: String,
}

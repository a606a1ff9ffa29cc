//! A script verifier that refuses every transaction.

use std::sync::Arc;
use wire::{Sats, ScriptFault, ScriptVerifier, TxVerifier, TxView};

#[derive(Debug)]
pub struct Refusing;

impl ScriptVerifier for Refusing {
    fn transaction(&self, _: &TxView<'_>, _: &[(Sats, Vec<u8>)]) -> Result<Arc<dyn TxVerifier>, ScriptFault> {
        Err(ScriptFault::default())
    }
}

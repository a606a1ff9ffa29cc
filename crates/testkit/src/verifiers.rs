//! Script verifiers that run no scripts.

use std::{ops::Range, sync::Arc};
use wire::{Sats, ScriptFault, ScriptFlags, ScriptVerifier, TxVerifier, TxView};

/// Refuses every transaction.
#[derive(Debug)]
pub struct Refusing;

impl ScriptVerifier for Refusing {
    fn transaction(&self, _: &TxView<'_>, _: &[(Sats, Vec<u8>)]) -> Result<Arc<dyn TxVerifier>, ScriptFault> {
        Err(ScriptFault::default())
    }
}

/// Says of each input of a transaction that spends these coins whether it is accepted.
type Decide = fn(&TxView<'_>, &[(Sats, Vec<u8>)]) -> Vec<bool>;

/// Accepts the inputs that a function accepts.
#[derive(Debug)]
pub struct Deciding(pub Decide);

struct Decided(Vec<bool>);

impl ScriptVerifier for Deciding {
    fn transaction(
        &self,
        tx: &TxView<'_>,
        coins: &[(Sats, Vec<u8>)],
    ) -> Result<Arc<dyn TxVerifier>, ScriptFault> {
        Ok(Arc::new(Decided((self.0)(tx, coins))))
    }
}

impl TxVerifier for Decided {
    fn verify(&self, mut inputs: Range<u32>, _: ScriptFlags) -> Result<(), ScriptFault> {
        match inputs.find(|&input| !self.0[input as usize]) {
            Some(input) => Err(ScriptFault { input: Some(input), ..ScriptFault::default() }),
            None => Ok(()),
        }
    }
}

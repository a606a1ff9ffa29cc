//! Runs any script on any stack with the kernel, for [`super::trace`].

use bitcoinkernel::{
    KernelError, PrecomputedTransactionData, ScriptPubkey, Transaction, TxOut,
    prelude::{TransactionExt, TxInExt},
    verify,
};
use wire::ScriptFlags;

/// A spend that equals the failed one in the fields that locks depend on: version, sequence, lock time. No
/// signature is valid for it.
pub(crate) struct Probe {
    version: [u8; 4],
    sequence: u32,
    lock_time: u32,
}

impl Probe {
    /// Creates a probe with the locks of a transaction's input.
    pub(crate) fn like(tx: &Transaction, input: &impl TxInExt) -> Result<Self, KernelError> {
        let bytes = tx.consensus_encode()?;
        let version = *bytes.first_chunk().ok_or(KernelError::OutOfBounds)?;
        Ok(Self { version, sequence: input.sequence(), lock_time: tx.locktime() })
    }

    /// Returns whether running the two scripts in sequence succeeds with a true result.
    pub(crate) fn passes(&self, script_sig: &[u8], script: &[u8], flags: ScriptFlags) -> bool {
        self.run(script_sig, script, flags).is_ok()
    }

    fn run(&self, script_sig: &[u8], script: &[u8], flags: ScriptFlags) -> Result<(), KernelError> {
        let script = ScriptPubkey::new(script)?;
        let tx = Transaction::new(&self.spend(script_sig))?;
        let shared = PrecomputedTransactionData::new(&tx, &[TxOut::new(&script, 0)])?;
        verify(&script, Some(0), &tx, 0, Some(flags.bits()), &shared)
    }

    /// Returns a serialised transaction with one input and one empty output of amount 0.
    fn spend(&self, script_sig: &[u8]) -> Vec<u8> {
        let mut tx = [&self.version[..], &[1], &[7; 36]].concat();
        wire::read::write_compact_size(&mut tx, script_sig.len() as u64);
        tx.extend(script_sig);
        tx.extend(self.sequence.to_le_bytes());
        tx.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        tx.extend(self.lock_time.to_le_bytes());
        tx
    }
}

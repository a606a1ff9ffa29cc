//! Runs scripts with Bitcoin Core's own code, linked as `libbitcoinkernel`.
//!
//! This is the only crate of the product that depends on Core's code, and its interface is small:
//! [`TxScripts`] takes a transaction and the coins that it spends, parses it once, computes the hashes that
//! its signatures share once, and then verifies any of its inputs, from any thread. The solution of a signed
//! network's block (BIP-0325, Core `CheckSignetBlockSolution`) is the transaction that `rules` makes of it.
//!
//! The flags of a block are determined by `rules::script_flags`, not here. Results are not cached: each
//! script is run once.
//!
//! # Core's reject string
//! A failing script makes a block invalid with `block-script-verify-flag-failed`. Core adds the reason in
//! parentheses, which the kernel's API does not report. If Core runs scripts on several threads, it names the
//! input that failed first in time, and violations of other rules in later transactions, and `bad-cb-amount`,
//! are reported before it; on one thread it names the first failing input in block order, before those.
//!
//! ```
//! use peregrine_script::TxScripts;
//! use wire::{BlockArena, Sats, ScriptFlags};
//!
//! // A transaction without signatures: its only input spends a coin that pays to anyone (OP_TRUE).
//! let mut tx = vec![1, 0, 0, 0, 1];
//! tx.extend([7; 36]); // outpoint
//! tx.extend([0, 0xff, 0xff, 0xff, 0xff]); // empty script, sequence
//! tx.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]); // one output of 0 satoshi, lock time
//! let mut arena = BlockArena::default();
//! let tx = arena.parse_tx(&tx).expect("a transaction");
//! let coins = [(Sats(0), [0x51])];
//! let scripts = TxScripts::new(&tx, coins.into_iter()).expect("a coin for each input");
//! assert!(scripts.verify(0..scripts.input_count(), ScriptFlags::P2SH).is_ok());
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod failure;

pub use failure::{ScriptError, ScriptFailure};

use bitcoinkernel::{
    KernelError, PrecomputedTransactionData, ScriptPubkey, ScriptVerifyError, Transaction, TxOut,
    prelude::TxOutExt, verify,
};
use std::{fmt, ops::Range, sync::Arc};
use wire::{Sats, ScriptFault, ScriptFlags, ScriptVerifier, TxVerifier, TxView, script::witness_program};

/// The version of Bitcoin Core whose code is linked: that of `libbitcoinkernel-sys`, which does not state it
/// in its interface. A test compares it with its sources.
pub const CORE_VERSION: &str = "31.99";

/// The flags, ordered by how much of a script they affect: without the last three, whole programs are not
/// run, so that they are decisive for almost any failure in one.
const NARROWEST_FIRST: [ScriptFlags; 7] = [
    ScriptFlags::DERSIG,
    ScriptFlags::NULLDUMMY,
    ScriptFlags::CHECKLOCKTIMEVERIFY,
    ScriptFlags::CHECKSEQUENCEVERIFY,
    ScriptFlags::TAPROOT,
    ScriptFlags::WITNESS,
    ScriptFlags::P2SH,
];

/// A transaction whose inputs are ready to be verified. Threads can share it: huge transactions are split
/// into ranges of inputs.
pub struct TxScripts {
    tx: Transaction,
    coins: Vec<TxOut>,
    /// The hashes that signatures share according to BIP-0143 and BIP-0341; the latter cover `coins`. The
    /// kernel copies all of this for each input. The coins are in it only if an output of BIP-0341 is spent:
    /// otherwise, the time would grow with the square of their number.
    shared: PrecomputedTransactionData,
    /// The flag that is left out, because it changes no verdict here, and the kernel demands the coins for
    /// it: `TAPROOT`, if no output of BIP-0341 is spent.
    left_out: ScriptFlags,
}

impl fmt::Debug for TxScripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxScripts").field("input_count", &self.input_count()).finish_non_exhaustive()
    }
}

impl TxScripts {
    /// Passes a transaction to Core, with the amount and script of each coin that it spends, in input order.
    ///
    /// It must not be a coinbase, which spends no coins.
    ///
    /// # Errors
    /// [`ScriptError::CoinCount`]; [`ScriptError::Refused`] if Core cannot read bytes that `wire` can.
    pub fn new(
        tx: &TxView<'_>,
        coins: impl ExactSizeIterator<Item = (Sats, impl AsRef<[u8]>)>,
    ) -> Result<Self, ScriptError> {
        if coins.len() != tx.input_count() {
            return Err(ScriptError::CoinCount { coins: coins.len(), inputs: tx.input_count() });
        }
        let refused = |error: KernelError| ScriptError::Refused(error.to_string());
        let mut spends_taproot = false;
        let coins = coins.map(|(value, script)| {
            let script = script.as_ref();
            spends_taproot |= matches!(witness_program(script), Some((1, program)) if program.len() == 32);
            Ok(TxOut::new(&ScriptPubkey::new(script)?, value.0))
        });
        let coins = coins.collect::<Result<Vec<_>, KernelError>>().map_err(refused)?;
        let tx = Transaction::new(tx.bytes()).map_err(refused)?;
        let (in_shared, left_out): (&[TxOut], _) =
            if spends_taproot { (&coins, ScriptFlags::empty()) } else { (&[], ScriptFlags::TAPROOT) };
        let shared = PrecomputedTransactionData::new(&tx, in_shared).map_err(refused)?;
        Ok(Self { tx, coins, shared, left_out })
    }

    /// Returns the number of inputs.
    pub fn input_count(&self) -> u32 {
        self.coins.len() as u32
    }

    /// Verifies the inputs of a range in order, up to the first failure.
    ///
    /// # Errors
    /// [`ScriptError::Failed`] if a script fails, so that the chain is invalid. Caller errors:
    /// [`ScriptError::NoInput`] if the range exceeds the inputs, and [`ScriptError::Flags`] if the flags
    /// contradict one another.
    pub fn verify(&self, inputs: Range<u32>, flags: ScriptFlags) -> Result<(), ScriptError> {
        for input in inputs {
            if !self.passes(input, flags)? {
                return Err(ScriptError::Failed(self.explain(input, flags)));
            }
        }
        Ok(())
    }

    /// Returns whether the script of one input passes.
    fn passes(&self, input: u32, flags: ScriptFlags) -> Result<bool, ScriptError> {
        let inputs = self.input_count();
        let coin = self.coins.get(input as usize).ok_or(ScriptError::NoInput { input, inputs })?;
        let (script, bits) = (coin.script_pubkey(), flags.difference(self.left_out).bits());
        match verify(&script, Some(coin.value()), &self.tx, input as usize, Some(bits), &self.shared) {
            Ok(()) => Ok(true),
            Err(KernelError::ScriptVerify(ScriptVerifyError::Invalid)) => Ok(false),
            Err(KernelError::ScriptVerify(ScriptVerifyError::InvalidFlagsCombination)) => {
                Err(ScriptError::Flags(flags))
            }
            Err(error) => Err(ScriptError::Refused(error.to_string())),
        }
    }

    /// Determines why a script fails.
    fn explain(&self, input: u32, flags: ScriptFlags) -> ScriptFailure {
        let is_decisive = |flag: &ScriptFlags| {
            // WITNESS is not allowed without P2SH.
            let with = if *flag == ScriptFlags::P2SH { ScriptFlags::WITNESS } else { ScriptFlags::empty() };
            let fewer = flags.difference(flag.union(with));
            flags.contains(*flag) && self.passes(input, fewer).is_ok_and(|passes| passes)
        };
        let decisive = NARROWEST_FIRST.into_iter().find(is_decisive);
        ScriptFailure { input, flags, decisive }
    }
}

/// The [`ScriptVerifier`] that runs scripts with Bitcoin Core's code.
#[derive(Clone, Copy, Debug, Default)]
pub struct Core;

impl ScriptVerifier for Core {
    fn transaction(
        &self,
        tx: &TxView<'_>,
        coins: &[(Sats, Vec<u8>)],
    ) -> Result<Arc<dyn TxVerifier>, ScriptFault> {
        let coins = coins.iter().map(|(amount, script)| (*amount, script.as_slice()));
        Ok(Arc::new(TxScripts::new(tx, coins).map_err(fault)?))
    }
}

impl TxVerifier for TxScripts {
    fn verify(&self, inputs: Range<u32>, flags: ScriptFlags) -> Result<(), ScriptFault> {
        self.verify(inputs, flags).map_err(fault)
    }
}

fn fault(error: ScriptError) -> ScriptFault {
    let detail = error.to_string();
    match error {
        ScriptError::Failed(failure) => ScriptFault { input: Some(failure.input), detail },
        _ => ScriptFault { detail, ..ScriptFault::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use wire::BlockArena;

    /// Returns a serialised transaction with these signature scripts and one empty output of amount 0.
    fn tx(script_sigs: &[&[u8]]) -> Vec<u8> {
        let mut tx = vec![1, 0, 0, 0];
        wire::read::write_compact_size(&mut tx, script_sigs.len() as u64);
        for (at, script_sig) in script_sigs.iter().enumerate() {
            tx.extend([at as u8; 36]);
            wire::read::write_compact_size(&mut tx, script_sig.len() as u64);
            tx.extend(*script_sig);
            tx.extend([0xff; 4]);
        }
        tx.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        tx.extend([0; 4]);
        tx
    }

    fn scripts(script_sigs: &[&[u8]], pubkeys: &[&[u8]]) -> Result<TxScripts, ScriptError> {
        let bytes = tx(script_sigs);
        let mut arena = BlockArena::default();
        let view = arena.parse_tx(&bytes).unwrap();
        TxScripts::new(&view, pubkeys.iter().map(|script| (Sats(1), *script)))
    }

    fn failed(result: Result<(), ScriptError>) -> ScriptFailure {
        match result {
            Err(ScriptError::Failed(failure)) => failure,
            other => panic!("not a failure: {other:?}"),
        }
    }

    #[test]
    fn flags_equal_the_kernels_bits() {
        use bitcoinkernel as kernel;
        for (flag, bits) in [
            (ScriptFlags::empty(), kernel::VERIFY_NONE),
            (ScriptFlags::P2SH, kernel::VERIFY_P2SH),
            (ScriptFlags::DERSIG, kernel::VERIFY_DERSIG),
            (ScriptFlags::NULLDUMMY, kernel::VERIFY_NULLDUMMY),
            (ScriptFlags::CHECKLOCKTIMEVERIFY, kernel::VERIFY_CHECKLOCKTIMEVERIFY),
            (ScriptFlags::CHECKSEQUENCEVERIFY, kernel::VERIFY_CHECKSEQUENCEVERIFY),
            (ScriptFlags::WITNESS, kernel::VERIFY_WITNESS),
            (ScriptFlags::TAPROOT, kernel::VERIFY_TAPROOT),
            (ScriptFlags::all(), kernel::VERIFY_ALL),
        ] {
            assert_eq!(flag.bits(), bits, "{flag}");
        }
    }

    #[test]
    fn reports_the_first_failing_input_of_the_range() {
        let scripts = scripts(&[&[0x51], &[0x00], &[0x51], &[0x00]], &[&[][..]; 4]).unwrap();
        let verify = |range| scripts.verify(range, ScriptFlags::all());
        assert_eq!(failed(verify(0..4)).input, 1);
        assert_eq!(failed(verify(2..4)).input, 3);
        assert!(verify(2..3).is_ok() && verify(1..1).is_ok());
        assert!(matches!(verify(4..5), Err(ScriptError::NoInput { input: 4, inputs: 4 })));
    }

    /// Signature script, output script, decisive flag.
    type Case<'a> = (&'a [u8], Vec<u8>, Option<ScriptFlags>);

    #[test]
    fn reports_the_decisive_flag() {
        let [op_1, drop, cltv, csv, checkmultisig] = [0x51, 0x75, 0xb1, 0xb2, 0xae];
        let hash_of_nothing =
            [&0xb472_a266_d0bd_89c1_3706_a413_2ccf_b16f_u128.to_be_bytes()[..], &[0x7c, 0x3b, 0x9f, 0xcb]]
                .concat();
        let pay_to_nothing = [&[0xa9, 20][..], &hash_of_nothing, &[0x87]].concat();
        let (cltv_flag, csv_flag) = (ScriptFlags::CHECKLOCKTIMEVERIFY, ScriptFlags::CHECKSEQUENCEVERIFY);
        let cases: [Case<'_>; 13] = [
            (&[], vec![1, 5, cltv, drop, op_1], Some(cltv_flag)),
            (&[], vec![1, 0x81, cltv, drop, op_1], Some(cltv_flag)),
            (&[], vec![op_1, csv, drop, op_1], Some(csv_flag)),
            (&[op_1], vec![cltv, drop, op_1], Some(cltv_flag)),
            (&[0x4f], vec![csv, drop, op_1], Some(csv_flag)),
            // Too long for arithmetic.
            (&[5, 1, 1, 1, 1, 1], vec![cltv, drop, op_1], Some(cltv_flag)),
            (&[5, 1, 1, 1, 1, 0x81], vec![cltv, drop, op_1], Some(cltv_flag)),
            // Not pushed immediately before.
            (&[5, 1, 1, 1, 1, 1], vec![0x61, csv, drop, op_1], Some(csv_flag)),
            (&[op_1], vec![0, 0, checkmultisig], Some(ScriptFlags::NULLDUMMY)),
            // An empty redeem script leaves nothing on the stack.
            (&[0], pay_to_nothing, Some(ScriptFlags::P2SH)),
            (&[], [&[0, 20][..], &[7; 20]].concat(), Some(ScriptFlags::WITNESS)),
            (&[], [&[0x51, 32][..], &[7; 32]].concat(), Some(ScriptFlags::TAPROOT)),
            (&[0], vec![], None),
        ];
        for (script_sig, pubkey, decisive) in cases {
            let scripts = scripts(&[script_sig], &[&pubkey[..]]).unwrap();
            let verify = |flags| scripts.verify(0..1, flags);
            let failure = failed(verify(ScriptFlags::all()));
            assert_eq!(failure.decisive, decisive, "{failure}");
            assert_eq!(failure.flags, ScriptFlags::all());
        }
    }

    /// Regression: all coins were copied for each input: 10,000 took six times as long as in bitcoind.
    #[test]
    fn an_input_of_a_large_transaction_takes_no_longer() {
        let time = |inputs: u32, repeats| {
            let (empty, anyone) = (&b""[..], &b"\x51"[..]);
            let scripts = scripts(&vec![empty; inputs as usize], &vec![anyone; inputs as usize]).unwrap();
            let time_once = |_| {
                let started = Instant::now();
                (0..repeats).for_each(|_| scripts.verify(0..inputs, ScriptFlags::all()).unwrap());
                started.elapsed()
            };
            // Other programs can delay it.
            (0..5).map(time_once).min().unwrap()
        };
        let (of_small, of_large) = (time(200, 100), time(20_000, 1));
        assert!(of_large < 10 * of_small, "{of_large:?} and {of_small:?}");
    }

    #[test]
    fn caller_errors_are_not_script_failures() {
        let few = scripts(&[&[0x51], &[0x51]], &[&[]]).unwrap_err();
        assert!(matches!(few, ScriptError::CoinCount { coins: 1, inputs: 2 }), "{few}");
        let scripts = scripts(&[&[0x51]], &[&[]]).unwrap();
        let flags = scripts.verify(0..1, ScriptFlags::WITNESS).unwrap_err();
        assert!(matches!(flags, ScriptError::Flags(ScriptFlags::WITNESS)), "{flags}");
    }
}

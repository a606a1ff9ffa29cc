//! The script rules that apply to a block: those of Core's verify flags that consensus uses.
//!
//! They are in this crate rather than in `script` because `rules` determines the flags of a block and must
//! not depend on Core's code. The bits are those of Core's `script/interpreter.h`; policy-only flags are
//! absent, since they do not affect the validity of blocks.

use std::fmt;

bitflags::bitflags! {
/// A set of consensus script rules. The empty one has only those that have applied from the start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ScriptFlags: u32 {
    /// Pay to script hash (BIP-0016).
    const P2SH = 1 << 0;
    /// Signatures are strict DER (BIP-0066).
    const DERSIG = 1 << 2;
    /// The item that CHECKMULTISIG drops is empty (BIP-0147).
    const NULLDUMMY = 1 << 4;
    /// CHECKLOCKTIMEVERIFY (BIP-0065).
    const CHECKLOCKTIMEVERIFY = 1 << 9;
    /// CHECKSEQUENCEVERIFY (BIP-0112).
    const CHECKSEQUENCEVERIFY = 1 << 10;
    /// Witness programs (BIP-0141, BIP-0143). It has no effect without [`ScriptFlags::P2SH`].
    const WITNESS = 1 << 11;
    /// Taproot (BIP-0341, BIP-0342).
    const TAPROOT = 1 << 17;
}
}

/// The notation of Core's tests: `P2SH,WITNESS`, or `NONE`.
impl fmt::Display for ScriptFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter_names().map(|(name, _)| name).collect();
        if names.is_empty() { f.write_str("NONE") } else { f.write_str(&names.join(",")) }
    }
}

impl fmt::Debug for ScriptFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

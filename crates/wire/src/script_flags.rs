//! The script rules that apply to a block: those of Core's verify flags that consensus uses.
//!
//! They are in this crate rather than in `script` because `rules` determines the flags of a block and must
//! not depend on Core's code. The bits are those of Core's `script/interpreter.h`; policy-only flags are
//! absent, since they do not affect the validity of blocks.

use std::fmt;

/// A set of consensus script rules.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ScriptFlags(u32);

impl ScriptFlags {
    /// Only the rules that have applied from the start.
    pub const NONE: Self = Self(0);
    /// Pay to script hash (BIP-0016).
    pub const P2SH: Self = Self(1 << 0);
    /// Signatures are strict DER (BIP-0066).
    pub const DERSIG: Self = Self(1 << 2);
    /// The item that CHECKMULTISIG drops is empty (BIP-0147).
    pub const NULLDUMMY: Self = Self(1 << 4);
    /// CHECKLOCKTIMEVERIFY (BIP-0065).
    pub const CHECKLOCKTIMEVERIFY: Self = Self(1 << 9);
    /// CHECKSEQUENCEVERIFY (BIP-0112).
    pub const CHECKSEQUENCEVERIFY: Self = Self(1 << 10);
    /// Witness programs (BIP-0141, BIP-0143). It has no effect without [`ScriptFlags::P2SH`].
    pub const WITNESS: Self = Self(1 << 11);
    /// Taproot (BIP-0341, BIP-0342).
    pub const TAPROOT: Self = Self(1 << 17);

    /// Each flag with Core's name, in the order of the bits.
    pub const NAMED: [(Self, &'static str); 7] = [
        (Self::P2SH, "P2SH"),
        (Self::DERSIG, "DERSIG"),
        (Self::NULLDUMMY, "NULLDUMMY"),
        (Self::CHECKLOCKTIMEVERIFY, "CHECKLOCKTIMEVERIFY"),
        (Self::CHECKSEQUENCEVERIFY, "CHECKSEQUENCEVERIFY"),
        (Self::WITNESS, "WITNESS"),
        (Self::TAPROOT, "TAPROOT"),
    ];
    /// All flags: those of a block at today's tip.
    pub const ALL: Self = Self::P2SH
        .with(Self::DERSIG)
        .with(Self::NULLDUMMY)
        .with(Self::CHECKLOCKTIMEVERIFY)
        .with(Self::CHECKSEQUENCEVERIFY)
        .with(Self::WITNESS)
        .with(Self::TAPROOT);

    /// Returns Core's bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether this set contains all flags of `other`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The notation of Core's tests: `P2SH,WITNESS`, or `NONE`.
impl fmt::Display for ScriptFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("NONE");
        }
        let mut separator = "";
        for (flag, name) in Self::NAMED {
            if self.contains(flag) {
                write!(f, "{separator}{name}")?;
                separator = ",";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ScriptFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

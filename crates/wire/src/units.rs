//! Newtypes for numbers that must not be confused. The name of each type is its unit.

use derive_more::Display;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Display)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema), serde(transparent))]
        pub struct $name(pub $inner);
    };
}

unit! {
    /// Height of a block in its chain; the genesis block has height 0.
    Height(u32)
}
unit! {
    /// An amount in satoshis, signed like Core's `CAmount`: hostile bytes may contain any value; the rules
    /// limit it.
    Sats(i64)
}
unit! {
    /// Weight units of BIP-0141: 3 x stripped size + total size.
    Weight(u64)
}
unit! {
    /// Number of a `blk`/`rev` file pair.
    FileNo(u32)
}
unit! {
    /// Byte offset from the start of a file.
    ByteOffset(u64)
}
unit! {
    /// Seconds since 1970-01-01 UTC, the time in headers.
    BlockTime(u32)
}
unit! {
    /// Index of a transaction in its block; the coinbase has index 0.
    TxIndex(u32)
}

impl Sats {
    /// Satoshis in one bitcoin.
    pub const COIN: Self = Self(100_000_000);
    /// The highest valid amount (Core `MAX_MONEY`).
    pub const MAX_MONEY: Self = Self(21_000_000 * Self::COIN.0);

    /// Returns whether the amount is within 0..=[`Sats::MAX_MONEY`] (Core `MoneyRange`).
    pub const fn in_money_range(self) -> bool {
        0 <= self.0 && self.0 <= Self::MAX_MONEY.0
    }
}

/// Maximum length of a block in bytes (BIP-0141, Core `MAX_BLOCK_SERIALIZED_SIZE`).
pub const MAX_BLOCK_LEN: usize = Weight::MAX_BLOCK.0 as usize;

impl Weight {
    /// Weight units per byte of the stripped serialisation (Core `WITNESS_SCALE_FACTOR`).
    pub const WITNESS_SCALE_FACTOR: u64 = 4;
    /// The maximum weight of a block (BIP-0141, Core `MAX_BLOCK_WEIGHT`).
    pub const MAX_BLOCK: Self = Self(4_000_000);
}

//! Hashes as identifiers. Bytes are in internal order (as hashed and stored); text is reversed, as Core
//! displays it.

use std::{fmt, str::FromStr};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[cfg_attr(feature = "serde", derive(schemars::JsonSchema), schemars(with = "String", inline))]
        pub struct $name(pub [u8; 32]);

        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().rev().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }

        impl FromStr for $name {
            type Err = ParseHashError;

            fn from_str(text: &str) -> Result<Self, ParseHashError> {
                parse_reversed(text).map(Self)
            }
        }
    };
}

id! {
    /// SHA-256d of a block's 80-byte header.
    BlockHash
}
id! {
    /// SHA-256d of a transaction without its witness.
    Txid
}
id! {
    /// SHA-256d of a transaction with its witness (BIP-0141).
    Wtxid
}

/// The error for a text that is not 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a hash must have 64 hexadecimal digits")]
pub struct ParseHashError;

fn parse_reversed(text: &str) -> Result<[u8; 32], ParseHashError> {
    let mut bytes: [u8; 32] = hex_conservative::decode_to_array(text).map_err(|_| ParseHashError)?;
    bytes.reverse();
    Ok(bytes)
}

/// The key of a coin: output `vout` of transaction `txid` (Core `COutPoint`).
///
/// Ordered by txid bytes, then numerically by `vout`. That is *not* the chainstate's key order for `vout >=
/// 16512`: see [`crate::coin::chainstate_key_order`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, derive_more::Display)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
#[display("{txid}:{vout}")]
pub struct OutPoint {
    /// The transaction that creates the coin.
    pub txid: Txid,
    /// Index among its outputs.
    pub vout: u32,
}

impl OutPoint {
    /// The outpoint of a coinbase's input (Core `COutPoint::SetNull`).
    pub const NULL: Self = Self { txid: Txid([0; 32]), vout: u32::MAX };

    pub fn is_null(&self) -> bool {
        *self == Self::NULL
    }
}

/// The error for a text that is not an outpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an outpoint is TXID:VOUT: 64 hexadecimal digits, a colon and the index of the output")]
pub struct ParseOutPointError;

impl FromStr for OutPoint {
    type Err = ParseOutPointError;

    fn from_str(text: &str) -> Result<Self, ParseOutPointError> {
        let (txid, vout) = text.split_once(':').ok_or(ParseOutPointError)?;
        let is_number = vout.bytes().all(|byte| byte.is_ascii_digit());
        let vout = vout.parse().ok().filter(|_| is_number).ok_or(ParseOutPointError)?;
        Ok(Self { txid: txid.parse().map_err(|_| ParseOutPointError)?, vout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_reversed_and_round_trips() {
        let text = "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f";
        let hash: BlockHash = text.parse().unwrap();
        assert_eq!(hash.0[31], 0);
        assert_eq!(hash.0[0], 0x6f);
        assert_eq!(hash.to_string(), text);
        assert_eq!("00".parse::<Txid>(), Err(ParseHashError));
        assert_eq!("g".repeat(64).parse::<Txid>(), Err(ParseHashError));
    }

    #[test]
    fn outpoints_are_parsed_from_their_text() {
        let outpoint = OutPoint { txid: Txid([7; 32]), vout: u32::MAX };
        assert_eq!(outpoint.to_string().parse(), Ok(outpoint));
        let txid = outpoint.txid;
        for text in
            [format!("{txid}"), format!("{txid}:"), format!("{txid}:+1"), format!("{txid}:4294967296")]
        {
            assert_eq!(text.parse::<OutPoint>(), Err(ParseOutPointError), "{text}");
        }
        assert_eq!("00:0".parse::<OutPoint>(), Err(ParseOutPointError));
    }
}

//! Coins made and coins spent, as they are matched, spilled and merged: one after the other, or summed up.

use crate::{coin::Coin, hash::OutPoint};
use std::ops;

/// A coin made, or an input's claim of the coin it spends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Whether it is a spend.
    pub spend: bool,
    /// The coin's place.
    pub outpoint: OutPoint,
    /// The coin made, or claimed.
    pub coin: Coin<'a>,
}

/// How much creations are, less how much spends are: of parts of a chain it may be negative, and the sum over
/// all parts is the size of the UTXO set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetSize {
    /// Number of coins.
    pub coins: i64,
    /// Bytes of their chainstate keys.
    pub key_bytes: i64,
    /// Bytes of their chainstate values.
    pub value_bytes: i64,
}

impl NetSize {
    /// One coin's.
    #[inline]
    #[must_use]
    pub const fn of(vout: u32, coin: Coin<'_>) -> Self {
        Self {
            coins: 1,
            key_bytes: 1 + 32 + var_int_len(vout),
            value_bytes: var_int_len(coin.code) + coin.out.len() as i64,
        }
    }
}

/// Bytes of VARINT(value). Each length starts where the shorter ones end: 2^7, 2^7 + 2^14, ...
#[inline]
const fn var_int_len(value: u32) -> i64 {
    match value {
        0..0x80 => 1,
        0x80..0x4080 => 2,
        0x4080..0x20_4080 => 3,
        0x20_4080..0x1020_4080 => 4,
        _ => 5,
    }
}

impl ops::Add for NetSize {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self {
            coins: self.coins + other.coins,
            key_bytes: self.key_bytes + other.key_bytes,
            value_bytes: self.value_bytes + other.value_bytes,
        }
    }
}

impl ops::Sub for NetSize {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self {
            coins: self.coins - other.coins,
            key_bytes: self.key_bytes - other.key_bytes,
            value_bytes: self.value_bytes - other.value_bytes,
        }
    }
}

impl std::iter::Sum for NetSize {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), ops::Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{coin::write_chainstate_key, hash::Txid, read::write_var_int};

    #[test]
    fn sizes_are_those_of_the_rows() {
        for value in (0..32).flat_map(|bit| [(1u32 << bit) - 1, 1 << bit]).chain([
            0x407f,
            0x4080,
            0x20_407f,
            0x20_4080,
            0x1020_407f,
            0x1020_4080,
            u32::MAX,
        ]) {
            let mut bytes = Vec::new();
            write_var_int(&mut bytes, value.into());
            assert_eq!(var_int_len(value), bytes.len() as i64, "{value}");
            let outpoint = OutPoint { txid: Txid([1; 32]), vout: value };
            let coin = Coin { code: value, out: &[1, 2, 3] };
            let (mut key, mut row) = (Vec::new(), Vec::new());
            write_chainstate_key(&mut key, &outpoint);
            coin.write_chainstate_value(&mut row);
            let size = NetSize { coins: 1, key_bytes: key.len() as i64, value_bytes: row.len() as i64 };
            assert_eq!(NetSize::of(value, coin), size);
        }
    }
}

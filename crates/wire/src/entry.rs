//! Creations and spends of coins as they are matched, spilled and merged: single entries, and net sizes.

use crate::{coin::Coin, hash::OutPoint};
use derive_more::{Add, Sub, Sum};

/// The creation of a coin, or the spend of one with its claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    pub is_spend: bool,
    pub outpoint: OutPoint,
    /// The coin created, or the coin claimed by the spend.
    pub coin: Coin<'a>,
}

/// The size of creations minus the size of spends. It may be negative for parts of a chain; the sum over all
/// parts is the size of the UTXO set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Add, Sub, Sum)]
pub struct NetSize {
    pub coins: i64,
    /// Total length of their chainstate keys, in bytes.
    pub key_bytes: i64,
    /// Total length of their chainstate values, in bytes.
    pub value_bytes: i64,
}

impl NetSize {
    /// Returns the size of one coin.
    #[inline]
    pub const fn of_coin(vout: u32, coin: Coin<'_>) -> Self {
        Self {
            coins: 1,
            key_bytes: 1 + 32 + var_int_len(vout),
            value_bytes: var_int_len(coin.code) + coin.out.len() as i64,
        }
    }
}

/// Returns the length of VARINT(value) in bytes. Each length starts where the shorter ones end: 2^7, 2^7 +
/// 2^14, ...
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{coin::write_chainstate_key, hash::Txid, read::write_var_int};

    #[test]
    fn net_size_equals_the_size_of_the_chainstate_row() {
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
            assert_eq!(NetSize::of_coin(value, coin), size);
        }
    }
}

//! Chainstates as lists of rows, and the differences between two of them.
//!
//! Rows are compared as bytes without obfuscation, all except the obfuscation key itself, so rows that are
//! not coins are compared too.

use bitcoin::hex::DisplayHex as _;
use leveldb::{Database, LevelDbError};
use std::{cmp::Ordering, path::Path};
use testkit::Chain;
use vfs::RealDisk;
use wire::{BlockHash, Coin, OutPoint, Sats, Txid, coin};

/// Key of the row with the obfuscation key (Core `CDBWrapper::OBFUSCATION_KEY`), which itself is not
/// obfuscated.
const OBFUSCATION_KEY: &[u8] = b"\x0e\x00obfuscate_key";
/// Key of the row with the best block (Core `DB_BEST_BLOCK`).
const BEST_BLOCK: &[u8] = b"B";

/// Key and value of a row of a chainstate, without obfuscation.
pub type Row = (Vec<u8>, Vec<u8>);

/// All rows of a chainstate in key order, without the row of the obfuscation key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rows(pub Vec<Row>);

impl Rows {
    /// Reads the database in `dir`. No process may have it open for writing.
    pub fn read(dir: &Path) -> Result<Self, LevelDbError> {
        let database = Database::open(&RealDisk, dir)?;
        // Length 8, then the key; a database without one is not obfuscated.
        let key = database.get(OBFUSCATION_KEY)?.map_or_else(Vec::new, |value| value[1..].to_vec());
        let mut rows = Vec::new();
        let mut cursor = database.range(&[], None)?;
        while cursor.advance()? {
            if cursor.key() != OBFUSCATION_KEY {
                let mut value = cursor.value().to_vec();
                value.iter_mut().zip(key.iter().cycle()).for_each(|(byte, pad)| *byte ^= pad);
                rows.push((cursor.key().to_vec(), value));
            }
        }
        Ok(Self(rows))
    }

    /// Returns the rows of the coins in a generated chain's naive model.
    pub fn of_model(chain: &Chain) -> Self {
        let mut rows = vec![(BEST_BLOCK.to_vec(), chain.tip().hash.0.to_vec())];
        rows.extend(chain.model.coins.iter().map(|(outpoint, model)| {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            coin::write_chainstate_key(&mut key, outpoint);
            let out = coin::compressed_output(Sats(model.amount), &model.script);
            Coin { code: model.code, out: &out }.write_chainstate_value(&mut value);
            (key, value)
        }));
        rows.sort();
        Self(rows)
    }

    pub fn coins(&self) -> usize {
        self.0.iter().filter(|(key, _)| key.first() == Some(&coin::COIN_KEY_PREFIX)).count()
    }

    pub fn best_block(&self) -> Option<BlockHash> {
        let (_, value) = self.0.iter().find(|(key, _)| key == BEST_BLOCK)?;
        value.as_slice().try_into().ok().map(BlockHash)
    }

    /// Returns descriptions of all differences between `self` (left) and `other` (right); empty if they are
    /// equal.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut found = Vec::new();
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return found,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.0.cmp(&b.0),
            };
            let a = if order.is_le() { left.next() } else { None };
            let b = if order.is_ge() { right.next() } else { None };
            if a != b {
                found.push(format!(
                    "{}: left {}, right {}",
                    name(a.or(b)),
                    a.map_or_else(|| "absent".to_owned(), describe),
                    b.map_or_else(|| "absent".to_owned(), describe)
                ));
            }
        }
    }
}

fn name(row: Option<&Row>) -> String {
    let Some((key, _)) = row else { return String::new() };
    match coin::split_chainstate_key(key) {
        Ok((txid, vout)) => format!("coin {}", OutPoint { txid: Txid(*txid), vout }),
        Err(_) => format!("row {}", key.escape_ascii()),
    }
}

fn describe(row: &Row) -> String {
    match Coin::read_chainstate_value(&row.1) {
        Ok(coin) if row.0.first() == Some(&coin::COIN_KEY_PREFIX) => {
            let coinbase = if coin.is_coinbase() { " coinbase" } else { "" };
            format!("height {}{coinbase} out {}", coin.height(), coin.out.as_hex())
        }
        _ => row.1.to_lower_hex_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_of_differences_are_described() {
        let row = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
        let best = row(BEST_BLOCK, &[7; 32]);
        let coin_key = [&b"C"[..], &[1; 32], &[0]].concat();
        let (coin, other) = (row(&coin_key, &[3, 9, 0x06]), row(&coin_key, &[2, 9, 0x06]));
        let left = Rows(vec![best.clone(), coin, row(b"X", b"a")]);
        let right = Rows(vec![best, other, row(b"Y", b"b")]);
        assert_eq!(left.differences(&left), Vec::<String>::new());
        let found = left.differences(&right);
        assert_eq!(found.len(), 3);
        assert!(found[0].contains("left height 1 coinbase out 0906, right height 1 out 0906"), "{found:?}");
        assert!(found[1].contains("row X: left 61, right absent"), "{found:?}");
        assert!(found[2].contains("row Y: left absent, right 62"), "{found:?}");
        assert_eq!((left.coins(), left.best_block()), (1, Some(BlockHash([7; 32]))));
    }
}

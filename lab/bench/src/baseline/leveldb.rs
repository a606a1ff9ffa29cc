//! A database of coins that is written as Bitcoin Core writes its own: in batches, each of which goes through
//! LevelDB's log and its table in memory. LevelDB is that of crate `rusty-leveldb`.

use crate::Answers;
use rusty_leveldb::{DB, LdbIterator as _, Options, Status, WriteBatch};
use std::path::Path;
use wire::{Coin, OutPoint, coin::write_chainstate_key};

/// Bytes of a batch in Bitcoin Core until #31645, and since.
pub const SMALL_BATCH: usize = 16 << 20;
/// The same as #31645 proposed; Bitcoin Core has taken 32 MiB.
pub const LARGE_BATCH: usize = 64 << 20;
/// Bytes of a table file in Bitcoin Core since #30039.
const FILE_BYTES: usize = 32 << 20;

pub struct Database {
    db: DB,
    batch_bytes: usize,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Database {
    /// Creates a database in an empty or missing folder.
    pub fn create(dir: &Path, batch_bytes: usize) -> Result<Self, Status> {
        let options = Options { max_file_size: FILE_BYTES, ..Options::default() };
        let db = DB::open(dir, options)?;
        Ok(Self { db, batch_bytes, key: Vec::new(), value: Vec::new() })
    }

    /// Writes coins, and removes those without one.
    pub fn write<'c>(
        &mut self,
        rows: impl IntoIterator<Item = (OutPoint, Option<Coin<'c>>)>,
    ) -> Result<(), Status> {
        let (mut batch, mut bytes) = (WriteBatch::default(), 0);
        for (outpoint, coin) in rows {
            self.key.clear();
            write_chainstate_key(&mut self.key, &outpoint);
            self.value.clear();
            match coin {
                Some(coin) => {
                    coin.write_chainstate_value(&mut self.value);
                    batch.put(&self.key, &self.value);
                }
                None => batch.delete(&self.key),
            }
            bytes += self.key.len() + self.value.len();
            if bytes >= self.batch_bytes {
                self.db.write(std::mem::take(&mut batch), false)?;
                bytes = 0;
            }
        }
        self.db.write(batch, false)?;
        self.db.flush()
    }

    pub fn get(&mut self, outpoint: &OutPoint) -> Option<Vec<u8>> {
        self.key.clear();
        write_chainstate_key(&mut self.key, outpoint);
        if let Some(value) = self.db.get(&self.key) {
            return Some(value.to_vec());
        }
        // The crate takes the removal of the next key for one of this key if a filter lets it look.
        let mut rows = self.db.new_iter().ok()?;
        rows.seek(&self.key);
        rows.current().filter(|(key, _)| **key == *self.key).map(|(_, value)| value.to_vec())
    }

    /// Returns a hash of all coins.
    pub fn answer(&mut self) -> Result<String, Status> {
        let (mut rows, mut answers) = (self.db.new_iter()?, Answers::default());
        while let Some((key, value)) = rows.next() {
            answers.add("coin", &[key, value].concat());
        }
        Ok(answers.hash())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest::sha256::sha256;
    use std::collections::BTreeMap;
    use wire::Txid;

    #[test]
    fn coins_are_found_among_removed_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut database = Database::create(dir.path(), 1 << 10).unwrap();
        let mut coins = BTreeMap::new();
        let outpoint = |number: u32| OutPoint { txid: Txid(sha256(&number.to_le_bytes())), vout: number };
        for flush in 0..100_u32 {
            let created: Vec<_> = (flush * 2_000..(flush + 1) * 2_000).collect();
            // Half of the coins of the flush before are spent.
            let spent: Vec<_> = created.iter().filter_map(|number| number.checked_sub(2_000)).collect();
            let spent: Vec<_> = spent.into_iter().filter(|number| number % 2 == 0).collect();
            coins.extend(created.iter().map(|number| (*number, flush)));
            spent.iter().for_each(|number| assert_eq!(coins.remove(number), Some(flush - 1)));
            let rows =
                created.iter().map(|number| (outpoint(*number), Some(Coin { code: flush, out: &[9, 0] })));
            database.write(rows.chain(spent.iter().map(|number| (outpoint(*number), None)))).unwrap();
        }
        for (number, flush) in &coins {
            let mut value = Vec::new();
            Coin { code: *flush, out: &[9, 0] }.write_chainstate_value(&mut value);
            assert_eq!(database.get(&outpoint(*number)), Some(value), "{number}");
        }
        assert_eq!(database.get(&outpoint(0)), None);
    }
}

//! A database of coins that is written as Bitcoin Core writes its own: in batches, each of which goes through
//! LevelDB's log and its table in memory. LevelDB is that of crate `rusty-leveldb`.

use crate::Answers;
use rusty_leveldb::{DB, LdbIterator as _, Options, Status, WriteBatch};
use std::path::Path;
use wire::{Coin, OutPoint, coin::write_chainstate_key};

/// Bytes of a batch in Bitcoin Core until #31645, and since.
pub const SMALL_BATCH: usize = 16 << 20;
/// The same since #31645.
pub const LARGE_BATCH: usize = 64 << 20;
/// Bytes of a table file in Bitcoin Core until #30039.
pub const SMALL_FILE: usize = 2 << 20;
/// The same since #30039.
pub const LARGE_FILE: usize = 32 << 20;

/// A database of coins.
pub struct Database {
    db: DB,
    batch_bytes: usize,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Database {
    /// Creates a database in an empty or missing folder.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn create(dir: &Path, batch_bytes: usize, file_bytes: usize) -> Result<Self, Status> {
        let options = Options { max_file_size: file_bytes, ..Options::default() };
        let db = DB::open(dir, options)?;
        Ok(Self { db, batch_bytes, key: Vec::new(), value: Vec::new() })
    }

    /// Writes coins, and removes those without one.
    ///
    /// # Errors
    /// If the disk fails.
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

    /// Returns the value of a coin.
    pub fn get(&mut self, outpoint: &OutPoint) -> Option<impl AsRef<[u8]> + use<>> {
        self.key.clear();
        write_chainstate_key(&mut self.key, outpoint);
        self.db.get(&self.key)
    }

    /// Returns a hash of all coins.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn answer(&mut self) -> Result<String, Status> {
        let (mut rows, mut answers) = (self.db.new_iter()?, Answers::default());
        while let Some((key, value)) = rows.next() {
            answers.add("coin", &[key, value].concat());
        }
        Ok(answers.hash())
    }
}

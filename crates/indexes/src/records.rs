//! The records that stand for rows of transactions, collected from blocks in any order.

use crate::{
    options::TxForm,
    partitions::Partitions,
    rows::RowSet,
    starts::Starts,
    tx::{ByBlock, ByTxid, SPENDER_KEY, Spends, TxPlace, key_value},
};
use api::{block_observer::ObservedBlock, error::Error};
use chain::blocks::chain::Chain;
use digest::siphash::SipKey;
use disk::{checkpoint::ROWS_SUFFIX, node_indexes::IndexKind};
use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
};
use vfs::Disk;

/// Record bytes for each thousand bytes of blocks, on mainnet with some more to spare: it decides only about
/// how many partitions there are.
const TX_RECORD_SHARE: u64 = 90;
const SPEND_RECORD_SHARE: u64 = 90;

/// Returns the path of a temporary file.
pub fn work_file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}{ROWS_SUFFIX}"))
}

/// Records of one kind.
pub struct RecordSet<K, const N: usize> {
    /// Heights of the blocks of which they are collected.
    heights: RangeInclusive<u32>,
    /// What they are made with.
    key: K,
    partitions: Partitions<N>,
}

/// Records of the kinds that are wanted.
#[derive(Default)]
pub struct Records {
    by_txid: Option<RecordSet<(), 40>>,
    by_block: Option<RecordSet<ByBlock, 13>>,
    spends: Option<RecordSet<SipKey, 16>>,
}

/// Where records are kept.
pub struct RecordFiles<'a> {
    /// The file system.
    pub disk: &'a dyn Disk,
    /// The directory.
    pub dir: &'a Path,
    /// Bytes of a block on average.
    pub block_bytes: u64,
    /// Memory in bytes for the records of one kind.
    pub memory: usize,
    /// Number of threads that collect.
    pub threads: usize,
}

impl RecordFiles<'_> {
    /// Creates the files for the rows of `starts`. `sequences` are the sequence numbers of the blocks of
    /// which a `txindex` gets rows by block.
    pub fn create(&self, starts: &Starts, sequences: Vec<Option<u32>>) -> Result<Records, Error> {
        let mut records = Records::default();
        if let Some(start) = starts.of(IndexKind::Tx) {
            let by_txid = match start.tx_form {
                TxForm::ByTxid => Some(&start.heights),
                TxForm::ByBlock => {
                    let key = ByBlock::new(start.key, sequences);
                    let set = self.set("tx-hashes", &start.heights, key, TX_RECORD_SHARE / 3);
                    records.by_block = Some(set?);
                    start.rows_by_txid.as_ref()
                }
            };
            records.by_txid =
                by_txid.map(|heights| self.set("txids", heights, (), TX_RECORD_SHARE)).transpose()?;
        }
        if let Some(start) = starts.of(IndexKind::TxoSpender) {
            records.spends = Some(self.set("spends", &start.heights, start.key, SPEND_RECORD_SHARE)?);
        }
        Ok(records)
    }

    /// Records of which there are about `share` bytes for each thousand bytes of blocks.
    fn set<K, const N: usize>(
        &self,
        name: &str,
        heights: &RangeInclusive<u32>,
        key: K,
        share: u64,
    ) -> Result<RecordSet<K, N>, Error> {
        let bytes = self.block_bytes * heights.clone().count() as u64 / 1000 * share;
        let path = work_file(self.dir, name);
        let partitions = Partitions::create(self.disk, &path, bytes, self.memory, self.threads)?;
        Ok(RecordSet { heights: heights.clone(), key, partitions })
    }
}

impl<K, const N: usize> RecordSet<K, N> {
    /// Adds records, if they are wanted of this block.
    fn add(
        &self,
        block: &ObservedBlock<'_>,
        records: impl FnOnce(&mut dyn FnMut([u8; N]) -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if !self.heights.contains(&block.height.0) {
            return Ok(());
        }
        self.partitions
            .with_collector(|collector| records(&mut |record| self.partitions.add(collector, &record)))
    }
}

impl Records {
    /// Adds the records of a block's transactions. The genesis block has none.
    pub fn add(&self, block: &ObservedBlock<'_>) -> Result<(), Error> {
        let height = block.height;
        if height.0 == 0 {
            return Ok(());
        }
        let place = |offset: usize| TxPlace { height, offset: offset as u32 };
        let mut txs = block.block.txs().zip(block.txids);
        if let Some(set) = &self.by_txid {
            let mut txs = txs.clone();
            set.add(block, |add| {
                txs.try_for_each(|(tx, txid)| add(ByTxid::record(txid, place(tx.offset()))))
            })?;
        }
        if let Some(set) = self.by_block.as_ref().filter(|set| set.key.sequence(height).is_some()) {
            let mut txs = txs.clone();
            set.add(block, |add| {
                txs.try_for_each(|(tx, txid)| add(set.key.record(txid, place(tx.offset()))))
            })?;
        }
        if let Some(set) = &self.spends {
            set.add(block, |add| {
                txs.next();
                txs.try_for_each(|(tx, _)| {
                    let place = place(tx.offset());
                    tx.inputs().try_for_each(|input| add(Spends::record(set.key, &input.prevout(), place)))
                })
            })?;
        }
        Ok(())
    }

    /// Returns the rows of these records. `chain` has the places of the blocks.
    pub fn into_rows(self, chain: &Chain) -> Result<CollectedRows<'_>, Error> {
        let Self { by_txid, by_block, spends } = self;
        Ok(CollectedRows {
            by_txid: by_txid.map(|set| RowSet::new(ByTxid(chain), set.partitions, Vec::new())).transpose()?,
            by_block: by_block.map(|set| RowSet::new(set.key, set.partitions, Vec::new())).transpose()?,
            spends: spends
                .map(|RecordSet { key, partitions, .. }| {
                    let others = vec![(SPENDER_KEY.to_vec(), key_value(key))];
                    RowSet::new(Spends(chain), partitions, others)
                })
                .transpose()?,
        })
    }
}

/// Rows of transactions.
#[derive(Default)]
pub struct CollectedRows<'a> {
    /// Rows of a txindex by txid.
    pub by_txid: Option<RowSet<ByTxid<'a>, 40>>,
    /// Rows of a txindex by block.
    pub by_block: Option<RowSet<ByBlock, 13>>,
    /// Rows of a txospenderindex.
    pub spends: Option<RowSet<Spends<'a>, 16>>,
}

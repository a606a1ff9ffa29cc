//! The temporary files of the rows of transactions.

use crate::{
    base::Base,
    options::TxForm,
    partitions::Partitions,
    rows::{Row, RowForm, SortedRows, TxRows},
    tx::{ByBlock, ByTxid, SPENDER_KEY, Spends, key_value},
};
use api::error::Error;
use disk::{checkpoint::ROWS_SUFFIX, node_indexes::IndexKind};
use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
};
use vfs::Disk;

/// Bytes of compact rows for each thousand bytes of blocks: those of mainnet, and some more to spare. Only
/// the number of partitions depends on it.
const ROWS_SHARE: u64 = 90;

/// Where the rows of transactions are kept until they are sorted.
pub struct RowFiles<'a> {
    /// The file system.
    pub disk: &'a dyn Disk,
    /// The directory of the temporary files.
    pub dir: &'a Path,
    /// Bytes of a block on average.
    pub block_bytes: u64,
    /// Memory in bytes for the rows of one form.
    pub memory: usize,
    /// Number of threads that add rows.
    pub threads: usize,
}

impl RowFiles<'_> {
    /// Creates the temporary files for the rows of transactions that are added to these indexes.
    pub fn create(&self, bases: &[Base]) -> Result<Vec<Box<dyn TxRows>>, Error> {
        let mut all = Vec::new();
        for base in bases {
            let by_txid = match (base.kind, base.tx_form) {
                (IndexKind::Tx, TxForm::ByTxid) => Some(&base.heights),
                (IndexKind::Tx, TxForm::ByBlock) => {
                    let form = ByBlock::new(base.key, Arc::clone(&base.sequences));
                    all.push(self.rows("tx-hashes", form, &base.heights, ROWS_SHARE / 3, None)?);
                    base.rows_by_txid.as_ref()
                }
                (IndexKind::TxoSpender, _) => {
                    let other = Some((SPENDER_KEY.to_vec(), key_value(base.key)));
                    all.push(self.rows("spends", Spends(base.key), &base.heights, ROWS_SHARE, other)?);
                    None
                }
                _ => None,
            };
            if let Some(heights) = by_txid {
                all.push(self.rows("txids", ByTxid, heights, ROWS_SHARE, None)?);
            }
        }
        Ok(all)
    }

    /// Creates the file of rows that have about `share` bytes for each thousand bytes of blocks.
    fn rows<F: RowForm<N> + 'static, const N: usize>(
        &self,
        name: &str,
        form: F,
        heights: &RangeInclusive<u32>,
        share: u64,
        other: Option<Row>,
    ) -> Result<Box<dyn TxRows>, Error> {
        let bytes = self.block_bytes * heights.clone().count() as u64 / 1000 * share;
        let path = work_file(self.dir, name);
        let partitions = Partitions::create(self.disk, &path, bytes, self.memory, self.threads)?;
        Ok(Box::new(SortedRows { form, heights: heights.clone(), partitions, other }))
    }
}

/// Returns the path of a temporary file.
pub fn work_file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}{ROWS_SUFFIX}"))
}

//! The base of new rows: an empty index, or an index that ends at its best block and is continued.

use crate::{
    block_filter::FilterPlace,
    coin_stats::Totals,
    locator::locator,
    options::{IndexOptions, TxForm},
    rows::{Row, RowSink},
    stored::StoredIndex,
    tx::{NEXT_SEQUENCE, Sequences, TXID_SALT, give_block_rows, key_value},
};
use api::{error::Error, machine};
use chain::blocks::{chain::Chain, files::Files};
use digest::{muhash::MuHash3072, siphash::SipKey};
use disk::node_indexes::{BEST_BLOCK, BEST_BLOCK_V2, IndexKind};
use std::ops::RangeInclusive;
use wire::Height;

/// What an index has before its new rows, and the blocks that these are made from.
#[derive(Clone, Debug)]
pub struct Base {
    pub kind: IndexKind,
    /// Heights of the first and of the last block that new rows are made from.
    pub heights: RangeInclusive<u32>,
    /// The form of the rows of a `txindex`.
    pub tx_form: TxForm,
    /// The heights of the blocks that have older rows by txid in a `txindex` with rows by block. Only a check
    /// needs them.
    pub rows_by_txid: Option<RangeInclusive<u32>>,
    /// The key of the hashes in a `txospenderindex`, or in a `txindex` with rows by block.
    pub key: SipKey,
    /// The sequence numbers of the blocks that rows by block are made from.
    pub sequences: Sequences,
    /// The next sequence number of the `txindex` without its new rows.
    pub next_sequence: u32,
    /// The header of the filter of the block below the first.
    pub header: [u8; 32],
    pub place: FilterPlace,
    /// The totals at the block below the first.
    pub totals: Totals,
    /// The MuHash at the block below the first, with denominator 1.
    pub muhash: MuHash3072,
}

impl Base {
    fn new(kind: IndexKind, heights: RangeInclusive<u32>, tx_form: TxForm, key: SipKey) -> Self {
        Self {
            kind,
            heights,
            tx_form,
            rows_by_txid: None,
            key,
            sequences: Sequences::default(),
            next_sequence: 0,
            header: [0; 32],
            place: FilterPlace::default(),
            totals: Totals::default(),
            muhash: MuHash3072::new(),
        }
    }

    /// Returns the base of a new index with the blocks up to `to`.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`](api::error::ErrorKind) if the system has no random numbers.
    pub fn of_new(
        kind: IndexKind,
        options: &IndexOptions,
        tx_form: TxForm,
        to: Height,
    ) -> Result<Self, Error> {
        let mut base = Self::new(kind, 0..=to.0, tx_form, options.key.map_or_else(machine::random_key, Ok)?);
        if base.is_by_block() {
            base.sequences = (0..=to.0).map(|height| height.checked_sub(1)).collect();
        }
        Ok(base)
    }

    /// Returns the base for rows of the blocks at `heights`, whose hashes have the same key as those in
    /// `index`.
    pub fn with_keys_of(index: &StoredIndex<'_>, heights: RangeInclusive<u32>) -> Result<Self, Error> {
        Ok(Self::new(index.kind, heights, index.tx_form(), index.key_of_hashes()?))
    }

    /// Returns the base for rows of the blocks above `best`, the best block of `index`. It has no sequence
    /// numbers yet.
    pub fn above(
        index: &StoredIndex<'_>,
        files: &Files<'_>,
        chain: &Chain,
        best: Height,
    ) -> Result<Self, Error> {
        let mut base = Self::with_keys_of(index, best.0 + 1..=chain.tip_height().0)?;
        match index.kind {
            IndexKind::Tx if base.is_by_block() => base.next_sequence = index.next_sequence()?,
            IndexKind::BlockFilter => {
                let last = index.last_filter(files.disk, chain, best)?;
                (base.header, base.place) = (last.header, index.next_place()?);
            }
            IndexKind::CoinStats => {
                let (totals, hash) = index.totals(chain, best)?;
                (base.totals, base.muhash) = (totals, index.muhash(hash)?);
            }
            _ => {}
        }
        Ok(base)
    }

    /// Whether the index is a `txindex` with rows by block.
    pub fn is_by_block(&self) -> bool {
        self.kind == IndexKind::Tx && self.tx_form == TxForm::ByBlock
    }

    /// The form of the rows, if the index is a `txindex`.
    pub fn form(&self) -> Option<TxForm> {
        (self.kind == IndexKind::Tx).then_some(self.tx_form)
    }

    /// Gives the first rows of the index to `sink`, before those of transactions or heights. The last block
    /// of `chain` is the best block. `state` is the row from which bitcoind continues filters or statistics.
    pub fn give_first_rows(
        &self,
        chain: &Chain,
        state: Option<Row>,
        sink: &mut RowSink<'_>,
    ) -> Result<(), Error> {
        let locator = locator(chain, chain.tip_height());
        let mut rows = match self.is_by_block() {
            true => {
                let last = self.sequences.iter().flatten().max();
                let next = last.map_or(self.next_sequence, |last| last + 1);
                vec![
                    (BEST_BLOCK_V2.to_vec(), locator),
                    (NEXT_SEQUENCE.to_vec(), next.to_le_bytes().to_vec()),
                    (TXID_SALT.to_vec(), key_value(self.key)),
                ]
            }
            false => vec![(BEST_BLOCK.to_vec(), locator)],
        };
        rows.extend(state);
        rows.sort_unstable();
        rows.iter().try_for_each(|(key, value)| sink(key, value, None))?;
        give_block_rows(&self.sequences, chain, sink)
    }
}

pub fn base_of(bases: &[Base], kind: IndexKind) -> Option<&Base> {
    bases.iter().find(|base| base.kind == kind)
}

/// Returns the heights of the blocks that any new rows are made from.
pub fn heights_of(bases: &[Base]) -> Option<RangeInclusive<u32>> {
    let all = || bases.iter().map(|base| &base.heights).filter(|heights| !heights.is_empty());
    let first = all().map(RangeInclusive::start).min();
    let last = all().map(RangeInclusive::end).max();
    Some(*first?..=*last?)
}

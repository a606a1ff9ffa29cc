//! Where the rows of indexes begin: at genesis, or above the best block of an index that is continued.

use crate::{
    block_filter::FilterPlace,
    coin_stats::Totals,
    options::{IndexOptions, TxForm},
    stored::StoredIndex,
};
use api::{error::Error, machine};
use chain::blocks::{chain::Chain, files::Files};
use digest::{muhash::MuHash3072, siphash::SipKey};
use disk::node_indexes::IndexKind;
use std::ops::RangeInclusive;
use wire::Height;

/// Where the rows of each index begin.
#[derive(Clone, Debug)]
pub struct Start {
    /// Heights of the first and of the last block.
    pub heights: RangeInclusive<u32>,
    /// The form of the rows of a `txindex`.
    pub tx_form: TxForm,
    /// Of a `txindex` with rows by block, the heights of the blocks that have rows by txid from before.
    pub rows_by_txid: Option<RangeInclusive<u32>>,
    /// The key of its hashes, or of those of a `txospenderindex`.
    pub key: SipKey,
    /// The next sequence number of a `txindex`.
    pub next_sequence: u32,
    /// The header of the filter below.
    pub header: [u8; 32],
    /// The place of the next filter.
    pub place: FilterPlace,
    /// The totals below.
    pub totals: Totals,
    /// The MuHash below.
    pub muhash: MuHash3072,
}

impl Start {
    /// The form of the rows, if it is that of a `txindex`.
    pub fn form_of(&self, kind: IndexKind) -> Option<TxForm> {
        (kind == IndexKind::Tx).then_some(self.tx_form)
    }

    /// That of a new index.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`] if the system has no random numbers.
    pub fn of_new(options: &IndexOptions, tx_form: TxForm, to: Height) -> Result<Self, Error> {
        Ok(Self {
            heights: 0..=to.0,
            tx_form,
            rows_by_txid: None,
            key: options.key.map_or_else(machine::random_key, Ok)?,
            next_sequence: 0,
            header: [0; 32],
            place: FilterPlace::default(),
            totals: Totals::default(),
            muhash: MuHash3072::new(),
        })
    }

    /// That of an index which has rows up to the block of the chain at `best`, and gets those of the blocks
    /// above.
    pub fn above(
        index: &StoredIndex<'_>,
        options: &IndexOptions,
        files: &Files<'_>,
        chain: &Chain,
        best: Height,
    ) -> Result<Self, Error> {
        let to = chain.tip_height();
        let tx_form = if index.is_by_block() { TxForm::ByBlock } else { TxForm::ByTxid };
        let mut start = Self { heights: best.0 + 1..=to.0, ..Self::of_new(options, tx_form, to)? };
        match index.kind {
            IndexKind::Tx if index.is_by_block() => {
                (start.key, start.next_sequence) = (index.txid_salt()?, index.next_sequence()?);
            }
            IndexKind::TxoSpender => start.key = index.spender_key()?,
            IndexKind::BlockFilter => {
                let last = index.last_filter(files.disk, chain, best)?;
                (start.header, start.place) = (last.header, index.next_place()?);
            }
            IndexKind::CoinStats => {
                let (totals, hash) = index.totals(chain, best)?;
                (start.totals, start.muhash) = (totals, index.muhash(hash)?);
            }
            _ => {}
        }
        Ok(start)
    }
}

/// Where the rows of each index begin that is meant.
#[derive(Default)]
pub struct Starts(Vec<(IndexKind, Start)>);

impl Starts {
    pub fn add(&mut self, kind: IndexKind, start: Start) {
        self.0.push((kind, start));
    }

    /// Where the rows of an index begin, if it is meant.
    pub fn of(&self, kind: IndexKind) -> Option<&Start> {
        self.0.iter().find(|(other, _)| *other == kind).map(|(_, start)| start)
    }

    /// The heights of which any index gets rows.
    pub fn heights(&self) -> Option<RangeInclusive<u32>> {
        let all = || self.0.iter().map(|(_, start)| &start.heights).filter(|heights| !heights.is_empty());
        let first = all().map(RangeInclusive::start).min();
        let last = all().map(RangeInclusive::end).max();
        Some(*first?..=*last?)
    }
}

/// The sequence numbers of the blocks of a new `txindex`, by height.
pub fn sequences_of_new(tip: Height) -> Vec<Option<u32>> {
    (0..=tip.0).map(|height| height.checked_sub(1)).collect()
}

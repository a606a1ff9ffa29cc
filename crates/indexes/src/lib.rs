//! The indexes that bitcoind keeps besides the block index and the chainstate: made, checked and continued
//! from the blocks on disk.
//!
//! | index | what it is from | rows |
//! | --- | --- | --- |
//! | `txindex` | blocks | `tx.rs` |
//! | `txospenderindex` | blocks | `tx.rs` |
//! | `blockfilterindex` | blocks and undo data | `block_filter.rs` |
//! | `coinstatsindex` | blocks and undo data | `coin_stats.rs` |
//!
//! All that are wanted are made in one pass over the blocks (`collect.rs`): rows whose keys are hashes are
//! sorted through a temporary file (`partitions.rs`), and what depends on the blocks below is taken in their
//! order (`in_order.rs`). A check makes the same rows, and compares them with those that are there. A rebuild
//! shows its blocks to an observer (`observer.rs`), so that they need not be read again.
//!
//! Source of all formats: Core `src/index/`.

#![forbid(unsafe_code)]

mod block_filter;
mod bring;
mod check;
mod coin_stats;
mod collect;
mod filter_reader;
mod findings;
mod in_order;
mod job;
mod last_rows;
mod locator;
mod make;
mod observer;
mod options;
mod output;
mod partitions;
mod places;
mod records;
mod rewind;
mod rows;
mod starts;
mod stored;
mod tx;
mod update;
mod write;

pub use bring::bring_indexes;
pub use check::check_indexes;
pub use disk::node_indexes::IndexKind;
pub use make::make_indexes;
pub use observer::IndexObserver;
pub use options::{
    CheckedIndex, CheckedIndexesReport, IndexFlaw, IndexOptions, MadeIndex, MadeIndexesReport, TxForm,
};
pub use update::update_indexes;

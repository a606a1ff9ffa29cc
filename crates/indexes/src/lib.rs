//! Makes, checks and continues bitcoind's optional indexes from the blocks on disk.
//!
//! | index | made from | rows |
//! | --- | --- | --- |
//! | `txindex` | blocks | `tx.rs` |
//! | `txospenderindex` | blocks | `tx.rs` |
//! | `blockfilterindex` | blocks and undo data | `block_filter.rs` |
//! | `coinstatsindex` | blocks and undo data | `coin_stats.rs` |
//!
//! One pass over the blocks serves all indexes that are wanted (`collect.rs`). Rows whose keys are hashes
//! (`rows.rs`) are sorted through a temporary file (`partitions.rs`). Filters and statistics depend on the
//! blocks below, so each part of the blocks waits for its turn. A check makes the same rows, and compares
//! them with those in the index. A rebuild shows its blocks to an observer (`observer.rs`), so that they
//! need not be read again.
//!
//! Source of all formats: Core `src/index/`.

#![forbid(unsafe_code)]

mod base;
mod block_filter;
mod bring;
mod check;
mod coin_stats;
mod collect;
mod filter_reader;
mod findings;
mod job;
mod last_rows;
mod locator;
mod make;
mod observer;
mod options;
mod output;
mod partitions;
mod places;
mod rewind;
mod row_files;
mod rows;
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
    CheckedIndex, CheckedIndexes, CheckedIndexesReport, IndexFlaw, IndexOptions, IndexesReport, MadeIndex,
    MadeIndexes, MadeIndexesReport, TxForm,
};
pub use update::update_indexes;

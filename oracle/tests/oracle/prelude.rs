//! What several of these tests use.

pub use oracle::{
    CoreNode, Rebuild, Verdict, Wipe,
    block_verdict::Way,
    coins::Rows,
    rebuild::{self, remove_undo_files},
    scenario::{self, assert_core_continues, feed},
};
pub use std::{collections::BTreeMap, error::Error, path::Path};
pub use testkit::{
    Chain, ChainSpec,
    corrupt::copy_dir,
    datadir::Layout,
    mutation::{CheckLevel, base_chain, mutations},
    rng::Rng,
};
pub use wire::{Height, Network};

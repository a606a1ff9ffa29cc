//! What several of these tests use.

pub use peregrine_rules::{
    ChainParams, HeaderContext, SpentCoin, TxContext, U256, Violation, check_header, check_tx,
};
pub use std::fs;
pub use wire::{BlockArena, BlockHash, BlockTime, BlockView, Header, Height, Network, Sats, TxIndex};

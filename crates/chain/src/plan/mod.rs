//! Chooses the chain to rebuild, before any block is read.

pub mod best_block;
pub mod chain_request;
pub mod existing_state;
pub mod indexes;
pub mod planner;
pub mod second_chainstate;
pub mod siblings;
pub mod tree;
pub mod unconnected;

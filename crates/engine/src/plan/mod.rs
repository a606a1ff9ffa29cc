//! Chooses the chain to rebuild, before any block is read.

pub mod best_block;
pub mod chain_request;
pub mod dependents;
pub mod existing_state;
pub mod headers;
pub mod indexes;
pub mod planner;
pub mod siblings;
pub mod tree;

//! Downloads headers and blocks from peers into a datadir.
//!
//! [`header_chain`] validates headers, [`fetch`] polls the client of the `net` crate, [`block_writer`] checks
//! blocks and appends them to the block files, in the order in which they come, [`stored_blocks`] knows
//! which blocks are stored and writes the block index, [`given_blocks`] stores blocks that the user has,
//! [`pruning`] decides which files are deleted, [`invalid_blocks`] marks what was found invalid, and
//! [`status`] knows what the peers do.

mod block_writer;
pub mod fetch;
pub mod given_blocks;
pub mod header_chain;
pub mod invalid_blocks;
pub mod new_datadir;
pub mod pruning;
mod status;
pub mod stored_blocks;

//! Downloads headers and blocks from peers into a datadir.
//!
//! [`header_chain`] validates headers, [`fetch`] polls the client of the `net` crate, [`block_writer`] checks
//! blocks and appends them to the block files, in the order in which they come, [`stored_blocks`] knows
//! which blocks are stored and writes the block index, and [`status`] what the peers do.

mod block_writer;
pub mod fetch;
pub mod header_chain;
pub mod new_datadir;
mod status;
pub mod stored_blocks;

//! A datadir of Bitcoin Core and its chain.
//!
//! [`session`] opens and locks datadirs, [`plan`] validates headers and chooses the chain, [`blocks`] has the
//! chain and where its blocks are, and [`commit`] puts new databases in place. Blocks that arrive, from a
//! peer or from the user, go through [`header_chain`], which validates headers, [`block_writer`], which
//! checks blocks and appends them to the block files in the order in which they come, and [`stored_blocks`],
//! which knows which blocks are stored and writes the block index. [`given_blocks`] stores blocks that the
//! user has, and [`invalid_blocks`] marks what was found invalid.
#![forbid(unsafe_code)]

pub mod block_writer;
pub mod blocks;
pub mod blocks_elsewhere;
pub mod commit;
pub mod given_blocks;
pub mod header_chain;
pub mod invalid_blocks;
pub mod plan;
pub mod session;
pub mod stored_blocks;
pub mod threads;

//! Peers of Bitcoin's network, as a client sees them that downloads headers and blocks.
//!
//! This crate frames and enciphers messages, shakes hands, and decides which block is asked of which peer. It
//! does no file I/O and knows no consensus rules: blocks are bytes, and their receiver checks
//! them. All but the poll loop are state machines without sockets and clocks: bytes, messages and the time
//! are arguments, what is to be sent is a result.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod address;
pub mod addresses;
mod cipher;
pub mod client;
pub mod download;
pub mod frame;
pub mod handshake;
pub mod headers;
pub mod message;
pub mod peer;
pub mod pool;
mod random;
pub mod sam;
pub mod seeds;
pub mod socks;
pub mod transport;

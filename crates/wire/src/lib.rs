//! Types for the contents of a block file: heights, amounts, outpoints, coins, and blocks as views of bytes.
//!
//! This crate does not check validity and does no I/O. Parsing is exactly as strict as Bitcoin Core's
//! deserialisation: it accepts what Core can read, and reports what Core rejects as malformed as a
//! [`WireError`] with its offset. A block is parsed once into a reusable [`block::BlockArena`] of spans;
//! views borrow the bytes and copy nothing.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod block;
pub mod coin;
pub mod entry;
pub mod hash;
pub mod header;
pub mod network;
pub mod read;
pub mod script;
pub mod script_flags;
pub mod units;
pub mod verifier;

pub use block::{BlockArena, BlockView, InputView, OutputView, TxView};
pub use coin::{Coin, CoinError};
pub use entry::{Entry, NetSize};
pub use hash::{BlockHash, OutPoint, Txid, Wtxid};
pub use header::Header;
pub use network::{Network, UnknownNetwork};
pub use read::{Reader, WireError};
pub use script_flags::ScriptFlags;
pub use units::{BlockTime, ByteOffset, FileNo, Height, Sats, TxIndex, Weight};
pub use verifier::{ScriptFault, ScriptVerifier, TxVerifier};

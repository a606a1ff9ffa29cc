//! Types for the contents of a block file: heights, amounts, outpoints, coins, and blocks as views of bytes.
//!
//! This crate does not check validity and does no I/O. Parsing is exactly as strict as Bitcoin Core's
//! deserialisation: it accepts what Core can read, and reports what Core rejects as malformed as a
//! [`WireError`] with its offset. A block is parsed once into a reusable [`block::BlockArena`] of spans;
//! views borrow the bytes and copy nothing.
//!
//! ```
//! use peregrine_wire::{Coin, Height, Sats, coin::compressed_output};
//!
//! // The coin of a coinbase in block 1 that pays 50 BTC to anyone, as Bitcoin Core's chainstate stores it.
//! let out = compressed_output(Sats(5_000_000_000), &[0x51]);
//! let coin = Coin { code: Coin::code_of(Height(1), true), out: &out };
//! let mut value = Vec::new();
//! coin.write_chainstate_value(&mut value);
//! assert_eq!(value, [3, 50, 7, 0x51]);
//! assert_eq!(Coin::read_chainstate_value(&value)?, coin);
//! # Ok::<(), peregrine_wire::CoinError>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod block;
pub mod coin;
pub mod entry;
pub mod hash;
pub mod header;
mod named;
pub mod network;
pub mod read;
pub mod script;
pub mod script_flags;
pub mod spent_coins;
pub mod units;
pub mod verifier;

pub use block::{BlockArena, BlockView, InputView, OutputView, TxView};
pub use coin::{Coin, CoinError, UtxoElement};
pub use entry::{Entry, NetSize};
pub use hash::{BlockHash, OutPoint, ParseOutPointError, Txid, Wtxid};
pub use header::Header;
pub use named::UnknownName;
pub use network::Network;
pub use read::{Reader, WireError};
pub use script_flags::ScriptFlags;
pub use spent_coins::{SpentCoinsError, SpentCoinsForm};
pub use units::{BlockTime, ByteOffset, FileNo, Height, MAX_BLOCK_LEN, Sats, TxIndex, Weight};
pub use verifier::{ScriptFault, ScriptVerifier, TxVerifier};

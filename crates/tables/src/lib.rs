//! Makes rows of tables from the blocks and coins that the engine gives.
//!
//! Crate `export` has the columns; this crate says what is in them, what scripts are called ([`ScriptType`])
//! and which addresses stand for them. Programs with and without a command line use it.
#![forbid(unsafe_code)]

pub mod ages;
#[cfg(feature = "export")]
mod rows;
pub mod script_type;
#[cfg(feature = "export")]
mod sighash;

#[cfg(feature = "export")]
pub use rows::{BlockRows, history_row, with_coin_row, with_script_row};
pub use script_type::ScriptType;

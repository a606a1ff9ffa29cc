//! The hash functions of Bitcoin, as fast as the machine allows: SHA-256 and SHA-256d in batches, SipHash,
//! MuHash3072, the XOR that block files are obfuscated with, and a hint to the cache.
//!
//! It knows bytes, not blocks, and imports nothing. Txids are the hot path of the whole program, so SHA-256
//! exists once per instruction set: `sha256/portable.rs` is the meaning, its neighbours are the same
//! functions made fast, and [`kernel`] chooses among them once. This is the only room that may hold
//! `unsafe`, and only for those instructions: a [`kernel::Kernel`] is the proof that the processor has
//! them, and safe code cannot forge one; a prefetch needs none.

pub mod cache;
pub mod kernel;
pub mod muhash;
pub mod obfuscation;
pub mod sha256;
pub mod siphash;

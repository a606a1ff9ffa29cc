//! Bitcoin's hash functions, as fast as the machine allows: SHA-256 and SHA-256d in batches, SipHash,
//! MuHash3072, the XOR that obfuscates block files, and cache prefetching.
//!
//! The crate handles bytes, not blocks, and has no dependencies. Txids are the hot path of the whole program,
//! so SHA-256 is implemented once per instruction set: `sha256/portable.rs` is the specification, the files
//! beside it are faster versions of the same functions, and [`kernel`] selects one of them once. This is the
//! only crate that may contain `unsafe`, and only for those instructions: a [`kernel::Kernel`] proves that
//! the processor has them, and safe code cannot forge one; a prefetch needs no such proof.

pub mod cache;
pub mod kernel;
pub mod muhash;
pub mod obfuscation;
pub mod sha256;
pub mod siphash;

//! Bitcoin's hash functions, as fast as the machine allows: SHA-256 and SHA-256d in batches (re-exported from
//! crate `sha256d`), merkle roots, SipHash, MuHash3072, the XOR that obfuscates block files, and cache
//! prefetching.
//!
//! The crate handles bytes, not blocks.
//!
//! ```
//! use peregrine_digest::muhash::MuHash3072;
//!
//! // The hash of a set does not depend on the order of its elements.
//! let (mut one, mut other) = (MuHash3072::new(), MuHash3072::new());
//! one.insert(b"first");
//! one.insert(b"second");
//! other.insert(b"second");
//! other.insert(b"first");
//! assert_eq!(one.finalize(), other.finalize());
//! ```
//!
//! Apart from `sha256d`, this is the only crate that may contain `unsafe`: for the instructions of SipHash
//! and MuHash3072, and for prefetching.

pub mod cache;
pub mod merkle;
pub mod muhash;
pub mod obfuscation;
pub mod siphash;

pub use sha256d::{self as sha256, kernel};

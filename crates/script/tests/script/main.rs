//! Scripts: the vectors of Bitcoin Core, real and generated spends.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;
mod core_vectors;
mod core_version;
mod generated;
mod prelude;
mod real_blocks;
mod signet;
mod taproot_vectors;

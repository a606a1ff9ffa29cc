//! The rules of blocks, at their boundaries and on real blocks.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod boundaries;
mod common;
mod core_vectors;
mod docs;
mod headers;
mod mutations;
mod prelude;
mod real_blocks;

//! The test kit itself, and rules that hold for the whole workspace.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod arrows;
mod block_files;
mod caps;
mod chain;
mod fuzz_smoke;
mod modules;
mod mutations;
mod pages;
mod tidy;
mod workspace;

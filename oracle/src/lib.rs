//! Compares Peregrine with Bitcoin Core's own code on the same blocks, linked as `libbitcoinkernel`.
//!
//! Everything that Peregrine claims about a chain can be checked here: whether Core accepts a block, with
//! which reject string it refuses another, which coins it has in the end, and whether it opens the databases
//! that Peregrine wrote. Only tests use this crate, so that no release contains Core's code through it, and a
//! build of the rest needs no C++.
//!
//! - [`core_node`] runs Core on a datadir.
//! - [`log`] captures reject strings (the API gives only classes).
//! - [`coins`] reads and compares chainstates row by row.
//! - [`rebuild`] runs a rebuild, and [`block_verdict`] converts the verdicts of both to one type.
//! - [`mutant`] makes random mutants of blocks, and [`scenario`] has steps that several tests share.

#![forbid(unsafe_code)]

pub mod block_verdict;
pub mod coins;
pub mod core_node;
pub mod log;
pub mod mutant;
pub mod rebuild;
pub mod scenario;

pub use core_node::{CoreError, CoreNode, Rejection, Verdict, Wipe};
pub use rebuild::Rebuild;

//! The node of last resort: the same blocks through Bitcoin Core's own code, linked as `libbitcoinkernel`.
//!
//! Everything that Peregrine claims about a chain can be asked again here: does Core accept this block, with
//! which reject string does it refuse that one, which coins does it hold in the end, does it open the
//! databases that we wrote. Only tests use this room, so that no release carries Core's code, and a build of
//! the rest needs no C++.
//!
//! [`node`] runs Core over a datadir, [`log`] hears the reject strings (the API gives classes only),
//! [`coins`] dumps and compares chainstates row by row, [`ours`] runs a rebuild, [`said`] puts both verdicts
//! in the same words, [`mine`] makes empty blocks for any branch, [`mutant`] spoils blocks at random,
//! [`scenario`] has what several tests do, [`datadir`] copies datadirs so that each test has its own.

#![forbid(unsafe_code)]

pub mod coins;
pub mod core_node;
pub mod datadir;
pub mod log;
pub mod mine;
pub mod mutant;
pub mod ours;
pub mod said;
pub mod scenario;

pub use core_node::{CoreNode, JudgeError, Rejection, Verdict, Wipe};
pub use ours::Rebuild;

//! Generates test chains that look like Bitcoin's from a seed, valid or with exactly one violation.
//!
//! [`ChainSpec`] describes a chain; [`Chain::generate`] makes a small one in memory, with a naive model of
//! its coins; [`generate::generate`] streams a large one. [`datadir`] writes blocks to disk in Core's layout.
//! [`mutation`] breaks one consensus rule, [`corrupt`] damages files, [`situation`] lists what datadirs can
//! be like, [`fault`] injects I/O errors, [`peer`] serves a chain over the network, [`sockets`] has other
//! servers, [`node`] runs a real bitcoind, [`fuzz`] has the fuzz targets.
#![forbid(unsafe_code)]

pub mod block;
pub mod chain;
pub mod coin_pool;
pub mod corrupt;
pub mod data;
pub mod datadir;
pub mod fault;
pub mod fuzz;
pub mod generate;
pub mod keys;
pub mod make;
pub mod model;
pub mod mutation;
pub mod node;
pub mod pages;
pub mod peer;
pub mod plan;
mod prelude;
pub mod rng;
pub mod scripts;
pub mod sibling;
pub mod situation;
pub mod snapshot_chain;
pub mod sockets;
pub mod verifiers;

pub use block::GeneratedBlock;
pub use chain::Chain;
pub use generate::{ChainSpec, Totals};

use prelude::{PathBuf, TempDir};

/// Returns a new temporary folder, and a path in it at which nothing is yet.
///
/// # Panics
/// If the folder cannot be made.
pub fn fresh_path(name: &str) -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let path = folder.path().join(name);
    (folder, path)
}

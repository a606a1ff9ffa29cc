//! Reads and writes the files of a Bitcoin Core datadir and Peregrine's own, one format per module. Validates
//! encoding, not consensus.
//!
//! All file access goes through [`vfs`]. [`leveldb`] reads and writes databases without knowing their
//! content. Core's formats build on both: [`blk`] and [`undo`] records, read and appended by [`block_files`],
//! their obfuscation ([`xor`]), the block [`index`], the [`chainstate`] and its hash ([`utxo_stats`]).
//! [`datadir`] has the paths in a datadir and [`mod@lock`] its locks; [`scan`] finds blocks without the
//! index, [`keyed_search`] without the key; [`replace`] puts new databases in place of old ones,
//! [`made_undo`] new undo data at the end of what there is.
//!
//! ```no_run
//! use peregrine_disk::{chainstate::ChainstateReader, datadir::{Datadir, Location}};
//! use vfs::RealDisk;
//! use wire::Network;
//!
//! let datadir = Datadir::open(&RealDisk, &Location::new("datadir".as_ref(), Network::Main))?;
//! let chainstate = ChainstateReader::open(&RealDisk, &datadir.chainstate_dir())?;
//! let mut coins = chainstate.coins()?;
//! while let Some((outpoint, coin)) = coins.advance()? {
//!     println!("{outpoint} was created in block {}", coin.height());
//! }
//! # Ok::<(), peregrine_disk::DiskError>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod blk;
pub mod block_files;
pub mod chainstate;
pub mod checkpoint;
pub mod datadir;
pub mod delta;
pub mod departed;
mod error;
pub mod index;
pub mod keyed_search;
pub mod lock;
pub mod made_undo;
pub mod node_indexes;
mod pack;
pub mod range_plan;
pub mod replace;
mod row_kinds;
pub mod scan;
pub mod scratch_file;
mod sealed;
pub mod snapshot;
pub mod sorted_run;
pub mod undo;
pub mod utxo_stats;
pub mod utxo_tree;
pub mod xor;

pub use error::{DiskError, Obstacle};
pub use leveldb::{LevelDbError, is_database_file};

//! Keep it: the files of a Bitcoin datadir and our own, each format in one file. Knows bytes, not validity.
//!
//! Below all lies [`fs`], the one door to files; [`leveldb`] knows databases as such. On them stand Core's
//! formats: [`blk`] and [`undo`] records, their obfuscation ([`xor`]), the block [`index`], the
//! [`chainstate`] and its hash ([`utxo_stats`]). [`datadir`] and [`mod@lock`] know where things lie and who
//! uses them; [`scan`] does without the index; [`replace`] puts new databases in the place of old ones.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod blk;
pub mod chainstate;
pub mod checkpoint;
pub mod datadir;
mod error;
pub mod fs;
pub mod hints;
pub mod index;
pub mod leveldb;
pub mod lock;
pub mod replace;
pub mod scan;
pub mod snapshot;
pub mod sorted_run;
mod table_run;
pub mod undo;
mod unfinished;
pub mod utxo_stats;
pub mod xor;

pub use error::DiskError;

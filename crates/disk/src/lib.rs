//! Keep it: the files of a Bitcoin datadir and our own, each format in one file. Knows bytes, not validity.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod fs;
pub mod leveldb;

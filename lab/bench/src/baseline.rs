//! Other ways of doing what Peregrine does: those that Bitcoin Core has left behind, and plain references.
//!
//! They are here so that what a better way gains can be measured on the same blocks in the same run. The
//! product has none of them, and no switch that would select them.

pub mod distinct;
pub mod engine;
pub mod files;
pub mod hashers;
pub mod leveldb;
pub mod tables;

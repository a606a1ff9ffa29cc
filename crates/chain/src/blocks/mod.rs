//! The chain that is rebuilt, and where its blocks are.

pub mod awaited;
pub mod block_check;
pub mod block_hashes;
pub mod chain;
pub mod claims;
pub mod damage;
pub mod files;
pub mod hash_list;

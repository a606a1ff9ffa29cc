//! What several of these tests use.

pub use digest::obfuscation::Obfuscation;
pub use peregrine_disk::{
    DiskError,
    chainstate::ChainstateReader,
    datadir::Datadir,
    index::{
        BlockIndex, BlockStatus, FileInfo, IndexEntry, PrunedFlag, read_block_index, rewrite_block_index,
        write_block_index,
    },
};
pub use std::path::{Path, PathBuf};
pub use testkit::{corrupt::snapshot, fault::FaultDisk};
pub use vfs::{Disk, RealDisk};
pub use wire::{BlockHash, ByteOffset, Coin, Network, OutPoint, Txid};

//! What several files of this crate use.

pub use crate::{
    Chain, ChainSpec, GeneratedBlock,
    block::{COMMITMENT_PREFIX, commit_to_witnesses, has_work, mine},
    corrupt::truncate,
    make::MadeTx,
    peer::ServedChain,
    plan::subsidy,
    rng::Rng,
    scripts::{ScriptPool, ScriptRef},
};
pub use bitcoin::{
    Amount, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Witness,
    absolute::LockTime,
    consensus::deserialize,
    opcodes::OP_TRUE,
    script::{Builder, PushBytesBuf},
    secp256k1::Secp256k1,
    transaction::Version,
};
pub use disk::{
    datadir::Datadir,
    index::{BlockIndex, BlockStatus, IndexEntry, read_block_index},
    undo::{UndoArena, UndoView},
};
pub use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    net::TcpStream,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
pub use tempfile::TempDir;
pub use vfs::{Disk, RealDisk};
pub use wire::{
    BlockArena, BlockHash, BlockTime, Coin, FileNo, Header, Height, Network, OutPoint, Sats, Txid,
    coin::compressed_output,
    read::{write_compact_size, write_var_int},
};

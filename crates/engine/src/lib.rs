#![doc = include_str!("../README.md")]
//!
//! # Why the result can be trusted
//!
//! Workers check blocks on all cores, in any order. The coins that a block spends are first taken from its
//! undo data: claims, which nothing vouches for. [`coins::join`] then proves that each claim equals, byte for
//! byte, the coin that an earlier transaction created, and that no coin is spent twice. If this parallel
//! matching proves less than that, the result is not yet an error: `job::verdict` checks all blocks again
//! without undo data, which finds the lowest block that may be invalid, or the first false undo data. That
//! block is connected to the coins below it as Bitcoin Core does it, and this verdict is final.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod commands;

#[doc(hidden)]
pub use api::options::TestHooks;
pub use api::{
    counts::Counts,
    disk_need::DiskNeed,
    error::{Error, ErrorInfo, ErrorKind},
    event::{CoinProgress, Event, EventSink, Progress, Watch},
    hex, hex_reversed, machine,
    note::{Note, Warning},
    options::{
        AssumeValid, ChainOptions, FileSource, Reconsider, Remote, RemoteBody, ResumeOptions, ScriptChecks,
        UndoPolicy,
    },
    remedy::Remedy,
    size::{HumanMemory, HumanShare, HumanSize},
    stage::Stage,
    subject::Subject,
};
pub use commands::{
    blocks, doctor, hints, history,
    recover::{self, recover},
    reindex::{self, reindex},
    snapshot, undo,
    update::{self, update},
    utxo,
    verify::{self, verify},
};
pub use digest::kernel::Kernel;
pub use disk::{
    datadir::{Datadir, FileKind, Location},
    node_indexes::IndexKind,
    replace::free_name,
};
pub use rules::{BuriedDeployment, CORE_VERSION, ChainParams, SpentCoin};
pub use vfs::{
    AtomicFile, Disk, During, Limit, LockHolder, RealDisk, dir_of, open_regular, unfinished, unsynced_dir,
};
pub use wire::{
    BlockHash, BlockTime, BlockView, FileNo, Height, Network, OutPoint, Sats, ScriptVerifier, TxView, Txid,
    UtxoElement, Wtxid, coin::CompressedScript, named, read::compact_size_len, script::is_unspendable,
};

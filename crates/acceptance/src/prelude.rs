//! What most tests of this crate use.

pub use crate::{
    Case, THREADS, TIP, Template, assert_fails, assert_mentions, assert_offers, assert_same_tree, blk,
    bounded, chain, changed, diagnosed, elsewhere, entry, examined,
    faults::{Scenario, Trouble},
    layout, leftovers, lowered, notes, options, pinned_set, pinning, quiet, refused, refused_by, rev, run,
    run_on, run_seen, run_until, scratch, snapshot_at, stages, stats, stats_by_height, tree, trusting,
    unwatched, up_to, with_threads,
};
pub use ::sync::{RepairOptions, RepairReport, SyncOptions, SyncReport};
pub use disk::{
    datadir::Datadir,
    index::{BlockStatus, IndexEntry},
    xor::read_block_obfuscation,
};
pub use engine::{
    AssumeValid, BlockHash, ChainOptions, ChainParams, Error, ErrorKind, Event, Height, Network, Note,
    Remedy, ScriptChecks, UndoPolicy, Warning, Watch,
    doctor::{Advice, Diagnosis, DoctorOptions, diagnose},
    hex_reversed,
    reindex::{Engine, ReindexOptions, ReindexReport},
};
pub use rules::params::PinnedUtxoSet;
pub use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
pub use tempfile::TempDir;
pub use testkit::{
    Chain, ChainSpec, GeneratedBlock,
    corrupt::{copy_dir, edit_index, flip_bit, overwrite, truncate},
    data::{known_answers, unpack_core_datadir},
    datadir::Layout,
    fault::{Crashes, FaultDisk, InjectedFault, Operations},
    model::{Model, ModelStats},
    peer::{Fault, ScriptedPeer},
    rng::Rng,
    sibling::{greedy_sibling, rebase, sibling},
};
pub use vfs::RealDisk;
pub use wire::{ByteOffset, Coin, FileNo, Header, OutPoint, Sats};

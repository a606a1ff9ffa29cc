//! What most tests of this crate use.

pub use crate::{
    Case, THREADS, Template, assert_mentions, assert_offers, assert_same_tree, blk, bounded, chain, changed,
    entry, faults::Scenario, layout, leftovers, notes, options, refused, rev, run, run_on, run_seen,
    run_until, scratch, stages, stats, stats_by_height, tree, trusting, with_threads,
};
pub use disk::index::{BlockStatus, IndexEntry};
pub use engine::{
    Advice, AssumeValid, BlockHash, ChainOptions, ChainParams, DoctorOptions, Error, ErrorKind, Event,
    Height, Network, Note, ReindexOptions, ReindexReport, Remedy, ScriptChecks, UndoPolicy, Warning, Watch,
};
pub use std::{
    collections::BTreeMap,
    fs, io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
pub use tempfile::TempDir;
pub use testkit::{
    Chain, ChainSpec, GeneratedBlock,
    data::{known_answers, unpack_core_datadir},
    datadir::Layout,
    fault::{Crashes, FaultDisk, InjectedFault, Operations},
    rng::Rng,
};
pub use vfs::RealDisk;

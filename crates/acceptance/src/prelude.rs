//! What most tests of this crate use.

pub use crate::{
    Case, THREADS, TIP, Template, Tree, assert_fails, assert_mentions, assert_offers, assert_same_tree,
    assert_says, below, blk, block_at, bounded, chain, changed, datadir_of, diagnosed, elsewhere, entry,
    examined,
    faults::{Scenario, Trouble, each_operation, tiny_case},
    files,
    hinted::{AGGREGATES, TRUTH, Truth, buried, bury, with_hints, with_join_fallback, without_undo},
    layout, leftovers, lowered, notes, options, pinned_set, pinning, quiet, refused, refused_by, rev, run,
    run_on, run_seen, run_until, scratch, snapshot_at, stages, stats, stats_by_height,
    sync::{
        assert_index_is_true, assert_synced, assert_synced_to, from_to, greedy_branch, honest, impatient,
        interrupt_when, main_to, repairing, run_while, served, serving, try_repair, try_run, wait_until,
    },
    tree, trusting,
    undo::{Expected, UndoDamage, UndoFiles, assert_complete, files_of, with_undo},
    unwatched, up_to,
    update::{AT_ONCE, EACH_BLOCK, How, assert_coins, behind, replace, store, update, update_options},
    ways::{Means, Source, WAYS, Way},
    with_threads, write_file,
};
pub use ::sync::{RepairOptions, RepairReport, SyncOptions, SyncReport};
pub use disk::{
    datadir::Datadir,
    index::{BlockStatus, IndexEntry},
    xor::read_block_obfuscation,
};
pub use engine::{
    AssumeValid, BlockHash, BuriedDeployment, ChainOptions, ChainParams, Error, ErrorKind, Event, FileSource,
    Height, Network, Note, Remedy, ScriptChecks, UndoPolicy, Warning, Watch,
    doctor::{Advice, Diagnosis, DoctorOptions, diagnose},
    hex_reversed,
    hints::{AggregateKind, HintFormat},
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
    block::{has_work, mine},
    corrupt::{copy_dir, edit_index, flip_bit, overwrite, truncate},
    data::{known_answers, known_tip, unpack_core_datadir},
    datadir::Layout,
    fault::{Crashes, FaultDisk, InjectedFault, Operations},
    model::{Model, ModelCoin, ModelStats},
    mutation::{base_chain, mutations},
    peer::{Fault, ScriptedPeer, peer_with},
    rng::Rng,
    sibling::{greedy_sibling, rebase, sibling},
};
pub use vfs::RealDisk;
pub use wire::{ByteOffset, Coin, FileNo, Header, OutPoint, Sats};

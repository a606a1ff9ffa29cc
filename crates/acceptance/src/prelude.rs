//! What several files of this crate use, its tests and its helpers.

pub use crate::{
    BUSY, CORE_DATADIRS, Case, THREADS, TIP, Template, Tree, assert_fails, assert_mentions, assert_offers,
    assert_same_tree, assert_says, assert_shown_and_interrupted, below, blk, block_at, bounded, chain,
    changed, damage, datadir_of, diagnosed, elsewhere, entry, examined,
    faults::{Scenario, Trouble, each_operation, tiny, tiny_case},
    files,
    hinted::{AGGREGATES, Hints, TRUTH, Truth, buried, bury, with_hints, with_join_fallback, without_undo},
    layout, leftovers,
    lies::falsify_claim,
    lowered,
    matrix::{assert_table, refuses},
    notes, options, pinned_set, pinning, quiet, refused, refused_by, rev, rewrite_chainstate, run, run_on,
    run_seen, run_until, scratch,
    shell::Shell,
    snapshot_at, snapshot_coins, stages, stale_below, stats, stats_by_height, stored_coins,
    sync::{
        Seen, assert_index_is_true, assert_sound, assert_synced, assert_synced_to, branch, branch_of, from,
        from_to, greedy_branch, hints_of, honest, impatient, index, interrupt_at, interrupt_when,
        invalid_blocks, main_to, mark_next, marked, repairing, run_while, served, serving, tip, try_repair,
        try_run, wait_until,
    },
    tree, trusting,
    undo::{Expected, UndoDamage, UndoFiles, assert_complete, checked, files_of, with_undo},
    unwatched, up_to,
    update::{AT_ONCE, EACH_BLOCK, How, assert_coins, behind, replace, store, update, update_options},
    ways::{Means, Source, WAYS, Way},
    with_threads, write_file, write_snapshot,
};
pub use ::indexes::{IndexKind, IndexOptions, MadeIndexesReport, TxForm, bring_indexes, check_indexes};
pub use ::sync::{RepairOptions, RepairReport, SyncOptions, SyncReport};
pub use digest::obfuscation::Obfuscation;
pub use disk::{
    blk::RECORD_HEADER_LEN,
    chainstate::ChainstateReader,
    datadir::Datadir,
    index::{BlockIndex, BlockStatus, FileInfo, IndexEntry, read_block_index},
    xor::read_block_obfuscation,
};
pub use engine::{
    AssumeValid, BlockHash, BuriedDeployment, ChainOptions, ChainParams, Disk, Error, ErrorKind, Event,
    FileSource, Height, Location, Network, Note, Remedy, ScriptChecks, Stage, UndoPolicy, Warning, Watch,
    doctor::{Advice, Diagnosis, DoctorOptions, diagnose},
    hex_reversed,
    hints::{AggregateKind, HintFormat},
    machine::MIN_MEMORY,
    reindex::{Engine, Matching, ReindexOptions, ReindexReport, SetAsideIndexes},
    utxo::UtxoStatsReport,
};
pub use rules::params::PinnedUtxoSet;
pub use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs, io,
    num::NonZeroUsize,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
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
    block::{has_work, mine, with_coinbase},
    corrupt::{copy_dir, edit_index, flip_bit, overwrite, truncate},
    data::{known_answers, known_tip, unpack_core_datadir},
    datadir::Layout,
    fault::{Crashes, FaultDisk, InjectedFault, Operations},
    model::{Model, ModelCoin, ModelStats, change_output},
    mutation::{base_chain, mutations, paying},
    peer::{Fault, ScriptedPeer, ServedChain, peer_with},
    rng::Rng,
    sibling::{greedy_sibling, rebase, sibling},
    situation,
};
pub use vfs::RealDisk;
pub use wire::{
    BlockArena, BlockTime, ByteOffset, Coin, FileNo, Header, OutPoint, Reader, Sats, Txid,
    coin::chainstate_key_order, read::write_var_int,
};

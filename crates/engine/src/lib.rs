//! Rebuilds a chainstate that Bitcoin Core opens, from the block files of a Bitcoin Core datadir.
//!
//! [`reindex`] runs the whole rebuild; crate `sync` downloads the blocks first; [`utxo_stats`],
//! [`get_coins`], [`scan_coins`] and [`read_coins`] read a chainstate. The engine never prints: it sends
//! [`Event`]s to the caller's [`EventSink`] and returns a report or one [`Error`].
//!
//! # Why the result can be trusted
//!
//! Workers check blocks on all cores, in any order. The coins that a block spends are first taken from its
//! undo data: claims, which nothing vouches for. [`coins::join`] then proves that each claim equals, byte for
//! byte, the coin that an earlier transaction created, and that no coin is spent twice. If this parallel
//! matching proves less than that, the result is not yet an error: `job::verdict` checks all blocks again
//! without undo data, which finds the lowest block that may be invalid, or the first false undo data. That
//! block is connected to the coins below it as Bitcoin Core does it, and this verdict is final.
//!
//! ```no_run
//! use peregrine_engine::{
//!     Error, Event, Network, RealDisk, ReindexOptions, ScriptChecks, ScriptVerifier, reindex,
//! };
//! use std::{path::Path, sync::{Arc, atomic::AtomicBool}};
//!
//! # fn rebuild(core: impl ScriptVerifier + 'static) -> Result<(), Error> {
//! // `core` is `script::Core`, Bitcoin Core's own code. Scripts are left out only by
//! // `ScriptChecks::LeftOut`.
//! let scripts = ScriptChecks::By(Arc::new(core));
//! let options = ReindexOptions {
//!     output: Some("rebuilt".into()),
//!     ..ReindexOptions::new(Path::new("datadir"), Network::Main, scripts)
//! };
//! let on_event = |event| {
//!     if let Event::Progress(now) = event {
//!         println!("{} of {} blocks", now.blocks, now.blocks_total);
//!     }
//! };
//! let report = reindex(&RealDisk, &options, &on_event, &AtomicBool::new(false))?;
//! println!("{} coins at height {}", report.txouts, report.height);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod commands;

pub use api::{
    counts::Counts,
    disk_need::DiskNeed,
    error::{Error, ErrorInfo, ErrorKind},
    event::{CoinProgress, Event, EventSink, Progress, Watch},
    hex, hex_reversed,
    lower_tip::{Gap, LowerPart, LowerTip},
    machine::{MIN_MEMORY, Sha256Limit, memory_limit, peak_memory_bytes, resident_bytes, total_memory_bytes},
    note::{Note, Warning},
    options::{
        AssumeValid, AtHeightsOptions, ChainOptions, ChainstateOptions, CheckHintsOptions, Engine,
        HintOptions, MakeOptions, Matching, Reconsider, ReindexOptions, Remote, RemoteBody, ResumeOptions,
        ScriptChecks, SetAsideIndexes, TestHooks, UndoPolicy, VerifyOptions,
    },
    remedy::Remedy,
    report::{
        BoundBy, CheckedScripts, HintsReport, ReindexReport, ScriptTrust, ScriptsReport, SpillVolume,
        StageTime, Trusted, UndoReport, UpdateReport,
    },
    size::{HumanMemory, HumanShare, HumanSize},
    spend_ages::SpendAges,
    stage::Stage,
    subject::Subject,
    utxo_stats::UtxoStatsReport,
    wrong_hint::WrongHint,
};
pub use coins::aggregate::AggregateKind;
pub use commands::{
    doctor::{
        Absence, Advice, ChainstatePosition, ChainstateState, DatabaseState, DatadirState, DeepState,
        Diagnosis, DoctorOptions, FilesState, FoundIndex, IndexKind, IndexSetting, IndexStanding, IndexState,
        LastStart, Leftovers, LockState, NodeSettings, Owner, RebuildNeed, RebuildTime, ScriptWork,
        SnapshotState, StartFault, StartState, diagnose,
    },
    export_undo::{ExportUndoOptions, ExportedUndo, export_undo},
    fetch_snapshot::{FetchOptions, FetchedSnapshotReport, SnapshotSource, SourceFault, fetch_snapshot},
    get_coins::{GetReport, get_coins},
    hints::{
        CoinSource, HintFileInfo, check_hints, convert_hints, describe_hints, hints_info, make_hints,
        make_hints_from_coins,
    },
    load_snapshot::{LoadedSnapshotReport, load_snapshot},
    read_blocks::{BlockRange, BlockStats, ReadBlocksOptions, SpendsOptions, SpentTo, read_blocks},
    read_coins::{CreationTimes, EachCoin, EachSet, GiveCoins, StoredCoins, read_coins, read_coins_after},
    read_history::{HistoryConsumer, HistoryRange, HistoryReport, ReadHistoryOptions, read_history},
    recover::{RecoveryReport, recover},
    reindex::reindex,
    scan_coins::{FoundCoin, ScanReport, scan_coins},
    share_snapshot::{SharedSnapshotReport, scheduled_heights, share_snapshot_file, share_snapshots},
    snapshot::{
        SnapshotReport, SnapshotVerdict, make_snapshot, make_snapshot_of_chainstate, snapshot_info,
        verify_snapshot,
    },
    stats::{StatsOptions, utxo_stats},
    stats_at::{UtxoStatsAt, utxo_stats_at},
    undo::{CheckUndoOptions, MadeUndoReport, MakeUndoOptions, UndoCheck, check_undo, make_undo},
    update::{UpdateOptions, update},
    verify::{Comparison, Difference, VerifyReport, verify},
};
pub use digest::kernel::Kernel;
pub use disk::{
    datadir::{Datadir, FileKind, Location},
    replace::Recovery,
    snapshot::SnapshotMetadata,
    utxo_tree::CHUNK_LEN,
    xor::kept_key_file,
};
pub use hints::{
    HintFormat, HintInfo, Numbering,
    packed::{PackedFile, Packing},
    pinned::Pinned,
};
pub use pipeline::job::{hints::HintCheck, stored_chainstate::StoredCoin};
pub use pipeline::stages::{
    block_parts::{BlockConsumer, BlockData, HashAt, PartConsumer, SpendingInput},
    history::{HistoryEntry, HistorySink, ScriptHistory},
    spending_inputs::UnspentOutputs,
    stats_change::{BlockAmounts, UnspendableAmounts},
    undo_survey::{FlawedUndo, UndoFileCheck},
};
pub use rules::{BuriedDeployment, CORE_VERSION, ChainParams, SpentCoin};
pub use vfs::{AtomicFile, Disk, Limit, LockHolder, RealDisk, open_regular, unsynced_dir};
pub use wire::{
    BlockHash, BlockTime, BlockView, FileNo, Height, Network, OutPoint, Sats, ScriptVerifier, TxView, Txid,
    UtxoElement, Wtxid, coin::CompressedScript, script::is_unspendable,
};

//! Pins the public interface of the engine: what a program that uses it may name, and which traits hold.
//! Removing a name or a trait is a breaking change, and fails here.

use peregrine_engine::{
    Absence, Advice, AggregateKind, AssumeValid, BlockData, BlockHash, BlockRange, BlockStats, BoundBy,
    BuriedDeployment, ChainOptions, ChainParams, ChainstateOptions, ChainstatePosition, ChainstateState,
    CheckHintsOptions, CheckRangeOptions, CheckUndoOptions, CoinProgress, CoinSource, Comparison, Counts,
    DatabaseState, Datadir, DatadirState, DeepState, DeltaReport, Diagnosis, Difference, Disk, DiskNeed,
    DoctorOptions, Error, ErrorInfo, ErrorKind, Event, EventSink, FileKind, FilesState, FinishRangesOptions,
    FlawedUndo, FoundCoin, Gap, GetReport, Height, HintCheck, HintFileInfo, HintFormat, HintInfo,
    HintOptions, HintsReport, HumanMemory, HumanShare, HumanSize, IndexState, Kernel, Leftovers, Limit,
    LoadedSnapshotReport, Location, LockHolder, LockState, LowerPart, LowerTip, MIN_MEMORY, MadeUndoReport,
    MakeOptions, MakeUndoOptions, Matching, MergeDeltasOptions, Network, Note, Numbering, OutPoint, Owner,
    PackedFile, Packing, Pinned, PlanRangesOptions, Progress, RangeCheck, RangeFile, RangePlan, RangesReport,
    ReadBlocksOptions, RealDisk, RebuildNeed, Recovery, ReindexOptions, ReindexReport, Remedy, RemoteFile,
    RepairOptions, RepairReport, ResumeOptions, Sats, ScanReport, ScriptVerifier, ScriptsReport, Sha256Limit,
    SnapshotMetadata, SnapshotReport, SnapshotVerdict, SpillVolume, Stage, StatsOptions, StoredCoin,
    StoredCoins, TestHooks, Txid, UndoCheck, UndoFileCheck, UpdateOptions, UpdateReport, UtxoElement,
    UtxoStatsReport, VerifyOptions, VerifyReport, Warning, WrongHint,
};
use std::fmt::{Debug, Display};

#[test]
fn values_can_be_printed_and_sent_to_other_threads() {
    fn check<T: Debug + Send + Sync>() {}
    check::<(Absence, Advice, ChainstatePosition, ChainstateState, DatabaseState, DatadirState, DeepState)>();
    check::<(Diagnosis, DoctorOptions, FilesState, IndexState, Leftovers, LockHolder, LockState)>();
    check::<(CoinProgress, Owner, RebuildNeed, UpdateOptions, UpdateReport, RepairOptions, RepairReport)>();
    check::<(ChainstateOptions, FoundCoin, GetReport, LoadedSnapshotReport, OutPoint, ScanReport)>();
    check::<(StoredCoin, StoredCoins, UtxoElement<'_>)>();
    check::<(BuriedDeployment, ChainParams, Datadir, Location)>();
    check::<(CheckUndoOptions, FlawedUndo, MadeUndoReport, MakeUndoOptions, UndoCheck, UndoFileCheck)>();
    check::<(CoinSource, AggregateKind, AssumeValid, BlockHash, BoundBy, Comparison, Counts, Difference)>();
    check::<(ChainOptions, CheckHintsOptions, MakeOptions, ResumeOptions, TestHooks, VerifyOptions)>();
    check::<(DiskNeed, Error, ErrorInfo, ErrorKind, Event, FileKind, Gap, Height, HintCheck, HintFormat)>();
    check::<(BlockData<'_>, BlockRange, BlockStats, ReadBlocksOptions)>();
    check::<(RangePlan, PlanRangesOptions, RangeFile, CheckRangeOptions, DeltaReport, MergeDeltasOptions)>();
    check::<(FinishRangesOptions, RangesReport, RangeCheck)>();
    check::<(HintFileInfo, PackedFile, Packing, Pinned)>();
    check::<(HintInfo, HintOptions, HintsReport, Kernel, Limit, LowerPart, LowerTip, Matching, Network)>();
    check::<(Note, Numbering, Progress, RealDisk, Recovery, ReindexOptions, ReindexReport, Remedy, Sats)>();
    check::<(ScriptsReport, Sha256Limit, SnapshotMetadata, SnapshotReport, SnapshotVerdict)>();
    check::<(SpillVolume, Stage, StatsOptions, Txid, UtxoStatsReport, VerifyReport, Warning, WrongHint)>();
}

#[test]
fn texts_for_users_can_be_displayed() {
    fn check<T: Display>() {}
    check::<Error>();
    check::<Note>();
    check::<Warning>();
    check::<Remedy>();
    check::<Difference>();
    check::<WrongHint>();
    check::<LowerTip>();
    check::<DiskNeed>();
    check::<HumanMemory>();
    check::<HumanShare>();
    check::<HumanSize>();
    check::<Stage>();
    assert_eq!(MIN_MEMORY, 128 << 20);
}

#[test]
fn errors_are_standard_errors_with_causes() {
    fn check<T: std::error::Error + Clone + 'static>() {}
    check::<Error>();
}

#[test]
fn disks_sinks_and_verifiers_are_interfaces_for_callers() {
    fn is_object_safe(_: Option<(&dyn Disk, &dyn EventSink, &dyn ScriptVerifier)>) {}
    is_object_safe(None);
    fn is_remote_file(_: Option<&dyn RemoteFile>) {}
    is_remote_file(None);
    fn is_sink(_: impl EventSink) {}
    is_sink(|_: Event| {});
}

/// The operations take a disk, options, a sink and an interrupt. Those that are called here fail at once,
/// since there is no datadir.
#[test]
fn operations_fail_without_a_datadir() {
    use peregrine_engine::{make_hints, make_snapshot, reindex, repair, update, utxo_stats, verify};
    use std::sync::atomic::AtomicBool;
    let root = tempfile::tempdir().unwrap();
    let datadir = root.path().join("missing");
    let (options, never) = (ReindexOptions::new(&datadir, Network::Regtest), AtomicBool::new(false));
    let make = MakeOptions::new(&datadir, Network::Regtest);
    let disk: &dyn Disk = &RealDisk;
    let sink: &dyn EventSink = &|_: Event| {};
    let file = root.path().join("file");
    let kinds = [
        reindex(disk, &options, sink, &never).unwrap_err().kind,
        verify(disk, &VerifyOptions::new(&datadir, Network::Regtest), sink, &never).unwrap_err().kind,
        make_hints(disk, &make, &file, HintFormat::Peregrine, sink, &never).unwrap_err().kind,
        make_snapshot(disk, &make, &file, sink, &never).unwrap_err().kind,
        update(disk, &UpdateOptions::new(&datadir, Network::Regtest), sink, &never).unwrap_err().kind,
        repair(disk, &RepairOptions::new(&datadir, Network::Regtest), sink, &never).unwrap_err().kind,
    ];
    assert_eq!(kinds, [ErrorKind::Damaged; 6]);
    let _ = (utxo_stats, peregrine_engine::check_hints, peregrine_engine::hints_info);
    let _ = peregrine_engine::load_snapshot;
    let _ = (peregrine_engine::get_coins, peregrine_engine::scan_coins::<Vec<u8>>);
    let _ = (peregrine_engine::read_coins, peregrine_engine::read_coins_after);
    let _ = (peregrine_engine::describe_hints, peregrine_engine::hex);
    let _ =
        (peregrine_engine::make_hints_from_coins, peregrine_engine::check_undo, peregrine_engine::make_undo);
    let _ = (peregrine_engine::snapshot_info, peregrine_engine::verify_snapshot);
    let doctor = DoctorOptions::new(&datadir, Network::Regtest);
    let found = peregrine_engine::diagnose(disk, &doctor, sink, &never).unwrap();
    assert!(!found.is_sound() && found.advice == Advice::NameDatadir, "a missing datadir is a diagnosis");
    let _ = (peregrine_engine::memory_limit, peregrine_engine::peak_memory_bytes);
}

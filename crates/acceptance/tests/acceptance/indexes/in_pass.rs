//! Indexes that a rebuild makes of the blocks that it checks are those that are made afterwards.

use acceptance::prelude::*;
use acceptance::{
    indexes::{Rows, all_indexes, assert_sound, make, of_case, with_indexes},
    sync,
};
use indexes::IndexObserver;

/// A disk that an observer may keep.
pub fn healthy() -> &'static FaultDisk {
    static DISK: OnceLock<FaultDisk> = OnceLock::new();
    DISK.get_or_init(FaultDisk::healthy)
}

fn contents(root: &Path) -> (Vec<Rows>, Vec<u8>) {
    acceptance::indexes::contents(root, &IndexKind::ALL)
}

/// What `make` gives.
fn wanted(tx_form: TxForm) -> (Vec<Rows>, Vec<u8>) {
    contents(with_indexes(tx_form).0.root())
}

/// Lets an observer see the blocks of a job with these options.
fn observe(chain: &mut ChainOptions, tx_form: TxForm, disk: &'static FaultDisk) -> Arc<IndexObserver> {
    observe_for(all_indexes(chain.clone(), tx_form), chain, disk)
}

/// The same, for these indexes.
pub fn observe_for(
    options: IndexOptions,
    chain: &mut ChainOptions,
    disk: &'static FaultDisk,
) -> Arc<IndexObserver> {
    let observer = Arc::new(IndexObserver::new(disk, options));
    chain.observer = Some(Arc::clone(&observer) as _);
    observer
}

fn bring(
    disk: &FaultDisk,
    chain: &ChainOptions,
    tx_form: TxForm,
    observer: &IndexObserver,
) -> Result<MadeIndexesReport, Error> {
    let options = all_indexes(ChainOptions { observer: None, ..chain.clone() }, tx_form);
    bring_indexes(disk, &options, Some(observer), unwatched())
}

/// Rebuilds and makes indexes of a datadir that has none; returns the number of blocks that were read again.
fn rebuild(options: &ReindexOptions, tx_form: TxForm) -> u32 {
    let mut options = options.clone();
    let observer = observe(&mut options.chain, tx_form, healthy());
    run_on(healthy(), &options).unwrap();
    let made = bring(healthy(), &options.chain, tx_form, &observer).unwrap();
    drop((observer, options));
    made.result.blocks_read
}

#[test]
fn a_rebuild_makes_the_indexes_of_the_blocks_that_it_checks() {
    for tx_form in [TxForm::ByTxid, TxForm::ByBlock] {
        let wanted = wanted(tx_form);
        let with = |change: fn(&mut ReindexOptions)| move |options| changed(options, change);
        let ways: [(&str, &dyn Fn(ReindexOptions) -> ReindexOptions); 5] = [
            ("one thread", &|options| options),
            ("eight threads", &|options| with_threads(&options, 8)),
            ("little memory", &with(|it| it.chain.memory_bytes = MIN_MEMORY)),
            ("undo data made", &with(|it| it.chain.undo = UndoPolicy::Make)),
            ("undo data made, spilled", &|options| {
                bounded(&changed(with_threads(&options, 3), |it| it.chain.undo = UndoPolicy::Make))
            }),
        ];
        for (name, way) in ways {
            let case = Case::new();
            assert_eq!(rebuild(&way(case.options()), tx_form), 0, "{name}: blocks were read again");
            assert!(contents(case.root()) == wanted, "{name}, {tx_form:?}");
            assert_eq!(leftovers(case.root()), [] as [&Path; 0], "{name}");
        }
    }
}

/// With hints, the job does not know the coins that blocks spend.
#[test]
fn blocks_whose_coins_the_rebuild_does_not_know_are_read_again() {
    let (case, truth, dir) = (Case::new(), Truth::of(chain()), scratch());
    let file = dir.path().join("hints");
    truth.write(&file, HintFormat::Peregrine, &truth.hints(100));
    bury(&case.blocks("index"));
    let hinted = with_hints(&case.options(), &file, AggregateKind::Sha256);
    let read = rebuild(&without_undo(&hinted, truth.hash(100)), TxForm::ByTxid);
    assert!((101..=TIP).contains(&read), "{read}");
    assert!(contents(case.root()) == wanted(TxForm::ByTxid));
}

#[test]
fn blocks_that_an_interrupted_run_has_checked_are_read_again() {
    let case = Case::new();
    let options = bounded(&case.options());
    let (done, _) = run_until(&options, 150);
    assert!(done.is_err());
    let read = rebuild(&options, TxForm::ByBlock);
    assert!((1..=TIP).contains(&read), "{read}");
    assert!(contents(case.root()) == wanted(TxForm::ByBlock));
}

#[test]
fn indexes_are_there_when_a_download_has_ended() {
    let (dir, peer) = (scratch(), sync::honest());
    let mut options = sync::from(dir.path(), &[&peer]);
    let observer = observe(&mut options.chain, TxForm::ByTxid, healthy());
    let (report, _) = sync::run(&options);
    assert!(report.rebuild.is_some());
    let made = bring(healthy(), &options.chain, TxForm::ByTxid, &observer).unwrap();
    assert_eq!((made.height.0, made.result.blocks_read), (TIP, 0));
    assert_sound(&all_indexes(ChainOptions { observer: None, ..options.chain }, TxForm::ByTxid), TIP);
}

/// Regression: this was found when the rebuild had ended, and it was by block where the user had it by txid.
#[test]
fn a_damaged_txindex_of_unknown_form_is_refused_before_the_rebuild() {
    let (case, _) = with_indexes(TxForm::ByBlock);
    let unknown = IndexOptions { tx_form: None, ..of_case(&case, TxForm::ByTxid) };
    assert_eq!(unknown.clone().with_old_form(healthy()).tx_form, Some(TxForm::ByBlock));
    let current = case.net(IndexKind::Tx.database_dir()).join("CURRENT");
    fs::write(current, "MANIFEST-999999\n").unwrap();
    let mut options = case.options();
    let _observer = observe_for(unknown, &mut options.chain, healthy());
    let error = refused_by(case.root(), ErrorKind::Usage, &[], || run_on(healthy(), &options));
    assert_offers(&error, &[Remedy::ChooseTxForm]);
}

/// What is there is continued afterwards.
#[test]
fn an_index_that_is_there_is_not_made_in_the_pass() {
    let case = Case::new();
    let all = of_case(&case, TxForm::ByTxid);
    make(healthy(), &IndexOptions { kinds: vec![IndexKind::Tx], ..all }).unwrap();
    assert_eq!(rebuild(&case.options(), TxForm::ByTxid), 3);
    assert!(contents(case.root()) == wanted(TxForm::ByTxid));
}

#[test]
fn a_full_disk_leaves_the_old_chainstate_or_the_new_one_and_no_index_or_whole_ones() {
    each_operation(9, |at| {
        let (case, kind) = (tiny_case(), io::ErrorKind::StorageFull);
        let disk: &'static FaultDisk =
            Box::leak(Box::new(FaultDisk::fail_at(at, InjectedFault::Sticky, Operations::Changes, kind)));
        let mut options = case.options();
        let observer = observe(&mut options.chain, TxForm::ByTxid, disk);
        let done = run_on(disk, &options)
            .and_then(|_| bring(disk, &options.chain, TxForm::ByTxid, &observer).map(drop));
        let has_failed = disk.has_failed();
        disk.heal();
        drop((observer, options));
        assert!(done.is_ok() || has_failed);
        // The next run succeeds.
        rebuild(&changed(case.options(), |it| it.chain.resume.discard_other = true), TxForm::ByTxid);
        assert_sound(&of_case(&case, TxForm::ByTxid), tiny().tip().height);
        assert_eq!(leftovers(case.root()), [] as [&Path; 0], "operation {at}");
        !has_failed
    });
}

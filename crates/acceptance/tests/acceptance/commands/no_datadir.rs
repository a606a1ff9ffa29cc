//! Every operation is called through the interfaces that a caller may implement, and fails at once, since
//! there is no datadir.

use acceptance::prelude::*;
use engine::{
    Disk, HintFormat, MIN_MEMORY, MakeOptions, UpdateOptions, VerifyOptions, make_hints, make_snapshot,
    reindex, update, verify,
};
use sync::{SyncSink, repair};

#[test]
fn operations_fail_without_a_datadir() {
    let root = tempfile::tempdir().unwrap();
    let (datadir, file) = (root.path().join("missing"), root.path().join("file"));
    let (network, scripts) = (Network::Regtest, || ScriptChecks::LeftOut);
    let disk: &dyn Disk = &RealDisk;
    let sink: &dyn SyncSink = &|_: Event| {};
    let never = AtomicBool::new(false);
    let make = MakeOptions::new(&datadir, network, scripts());
    let kinds = [
        reindex(disk, &ReindexOptions::new(&datadir, network, scripts()), sink, &never).unwrap_err().kind,
        verify(disk, &VerifyOptions::new(&datadir, network, scripts()), sink, &never).unwrap_err().kind,
        make_hints(disk, &make, &file, HintFormat::Peregrine, sink, &never).unwrap_err().kind,
        make_snapshot(disk, &make, &file, sink, &never).unwrap_err().kind,
        update(disk, &UpdateOptions::new(&datadir, network, scripts()), sink, &never).unwrap_err().kind,
        repair(disk, &RepairOptions::new(&datadir, network, scripts()), sink, &never).unwrap_err().kind,
    ];
    assert_eq!(kinds, [ErrorKind::Damaged; 6]);
    let found = diagnose(disk, &DoctorOptions::new(&datadir, network), sink, &never).unwrap();
    assert!(!found.is_sound() && found.advice == Advice::NameDatadir, "a missing datadir is a diagnosis");
    assert_eq!(MIN_MEMORY, 128 << 20);
}

#[test]
fn errors_can_be_kept_and_sent_to_other_threads() {
    fn check<T: std::error::Error + Clone + Send + Sync + 'static>() {}
    check::<Error>();
}

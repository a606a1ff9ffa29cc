//! Every operation is called through the interfaces that a caller may implement, and fails at once, since
//! there is no datadir. Of one that is there, only a diagnosis says that it is new.

use acceptance::prelude::*;
use testkit::datadir::write_chainstate;

#[test]
fn operations_fail_without_a_datadir() {
    let root = scratch();
    let shell = Shell::at(&root.path().join("missing"));
    for command in ["reindex", "verify", "hints make", "snapshot make", "update", "repair"] {
        assert_eq!(shell.run(command).err().map(|error| error.kind), Some(ErrorKind::Damaged), "{command}");
    }
    let found = shell.diagnosis();
    assert!(!found.is_sound() && found.advice == Advice::NameDatadir, "a missing datadir is a diagnosis");
    assert_eq!(MIN_MEMORY, 128 << 20);
}

#[test]
fn errors_can_be_kept_and_sent_to_other_threads() {
    fn check<T: std::error::Error + Clone + Send + Sync + 'static>() {}
    check::<Error>();
}

/// bitcoind begins again with the genesis block alone, and would overwrite other blocks, or lack those of the
/// chainstate.
#[test]
fn a_datadir_with_a_second_block_file_or_a_chainstate_is_not_new() {
    let (dir, peer) = (scratch(), honest());
    try_run(&SyncOptions { blocks_only: true, ..from_to(dir.path(), &[&peer], 0) }).unwrap();
    let advice = || diagnosed(dir.path(), false).advice;
    let at = |name: &str| dir.path().join("regtest").join(name);
    fs::remove_dir_all(at("blocks/index")).unwrap();
    assert_eq!(advice(), Advice::StartBitcoind);
    fs::copy(at("blocks/blk00000.dat"), at("blocks/blk00001.dat")).unwrap();
    assert_eq!(advice(), Advice::ReindexByScan);
    fs::remove_file(at("blocks/blk00001.dat")).unwrap();
    fs::create_dir_all(at("chainstate")).unwrap();
    write_chainstate(&FaultDisk::healthy(), &at("chainstate"), [5; 8], BlockHash([9; 32]), []).unwrap();
    assert_eq!(advice(), Advice::Repair);
}

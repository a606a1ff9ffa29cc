//! Behind a download, one thread begins to make undo data while another replaces the block index.

use crate::prelude::*;
use peregrine_disk::{made_undo::MadeUndo, replace::Replacement};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Time in which a thread that does not wait for the other would have done its work.
const PAUSE: Duration = Duration::from_millis(100);

/// A file of the index vanished before it was read: the rebuild failed, and ended the download.
#[test]
fn an_index_that_is_read_when_undo_data_is_begun_is_replaced_afterwards() {
    static IS_READ: AtomicBool = AtomicBool::new(false);
    static IS_REPLACED: AtomicBool = AtomicBool::new(false);
    let disk = &FaultDisk::healthy().with_lie("CURRENT", |_| {
        IS_READ.store(true, Ordering::SeqCst);
        thread::sleep(PAUSE);
        assert!(!IS_REPLACED.load(Ordering::SeqCst));
    });
    let root = tempfile::tempdir().unwrap();
    let datadir = &Datadir::at(root.path(), Network::Regtest);
    write_block_index(disk, &datadir.index_dir(), &BlockIndex::default()).unwrap();
    let index = [Path::new("blocks/index")];
    let replacement = Replacement::begin(&RealDisk, datadir.net_dir(), &index, [7; 16], false).unwrap();
    write_block_index(&RealDisk, replacement.building(0), &BlockIndex::default()).unwrap();
    IS_READ.store(false, Ordering::SeqCst);
    thread::scope(|scope| {
        let begins = scope.spawn(move || {
            drop(MadeUndo::begin(disk, datadir, datadir, Obfuscation::default(), Vec::new()).unwrap());
        });
        while !(IS_READ.load(Ordering::SeqCst) || begins.is_finished()) {
            thread::yield_now();
        }
        replacement.commit(|| IS_REPLACED.store(true, Ordering::SeqCst)).unwrap();
    });
    assert!(IS_READ.load(Ordering::SeqCst));
    drop(MadeUndo::resume(&RealDisk, datadir, datadir, Obfuscation::default()).unwrap());
}

//! Behind a download, one thread begins to make undo data while another replaces the block index.

use digest::obfuscation::Obfuscation;
use peregrine_disk::{
    DiskError,
    datadir::Datadir,
    made_undo::{MadeUndo, keep_made_undo},
};
use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use tempfile::TempDir;
use testkit::fault::FaultDisk;
use vfs::{Disk, RealDisk, write_synced};
use wire::Network;

/// Time in which a thread that does not wait for the other would have done its work.
const PAUSE: Duration = Duration::from_millis(100);

/// A datadir with a block index, and the one that is to replace it.
struct Case {
    _root: TempDir,
    datadir: Datadir,
    next: PathBuf,
}

impl Case {
    fn new(disk: &dyn Disk) -> Self {
        let root = tempfile::tempdir().unwrap();
        let (datadir, next) = (Datadir::at(root.path(), Network::Regtest), root.path().join("next"));
        for (index, log) in [(&datadir.index_dir(), "000003.log"), (&next, "000005.log")] {
            fs::create_dir_all(index).unwrap();
            write_synced(disk, &index.join(log), b"rows").unwrap();
        }
        Self { _root: root, datadir, next }
    }

    fn begin(&self, disk: &dyn Disk) {
        let Self { datadir, .. } = self;
        drop(MadeUndo::begin(disk, datadir, datadir, Obfuscation::default(), Vec::new()).unwrap());
    }

    /// Replaces the block index, and calls `before` just before the exchange.
    fn replace_index(&self, before: impl FnOnce()) {
        let exchange = || {
            before();
            RealDisk.exchange(&self.next, &self.datadir.index_dir()).unwrap();
            Ok::<_, DiskError>(())
        };
        keep_made_undo(&RealDisk, &self.datadir, &self.next, &[], exchange).unwrap();
    }

    fn assert_resumes(&self) {
        drop(MadeUndo::resume(&RealDisk, &self.datadir, &self.datadir, Obfuscation::default()).unwrap());
    }
}

/// The mark was that of the old index for ever: a run that was interrupted started over, and with pruning
/// downloaded all blocks again.
#[test]
fn undo_data_that_is_begun_during_a_replacement_belongs_to_the_new_index() {
    let case = &Case::new(&RealDisk);
    thread::scope(|scope| {
        case.replace_index(|| {
            let begins = scope.spawn(move || case.begin(&RealDisk));
            thread::sleep(PAUSE);
            assert!(!begins.is_finished());
        });
    });
    case.assert_resumes();
}

/// A file of the index vanished before it was read: the rebuild failed, and ended the download.
#[test]
fn an_index_that_is_read_when_undo_data_is_begun_is_replaced_afterwards() {
    static IS_READ: AtomicBool = AtomicBool::new(false);
    static IS_REPLACED: AtomicBool = AtomicBool::new(false);
    let disk = &FaultDisk::healthy().with_lie("000003.log", |_| {
        IS_READ.store(true, Ordering::SeqCst);
        thread::sleep(PAUSE);
        assert!(!IS_REPLACED.load(Ordering::SeqCst));
    });
    let case = &Case::new(disk);
    thread::scope(|scope| {
        let begins = scope.spawn(move || case.begin(disk));
        while !(IS_READ.load(Ordering::SeqCst) || begins.is_finished()) {
            thread::yield_now();
        }
        case.replace_index(|| IS_REPLACED.store(true, Ordering::SeqCst));
    });
    case.assert_resumes();
}

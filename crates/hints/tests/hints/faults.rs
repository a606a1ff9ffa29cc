//! The writer of hint files on a disk that fails at the n-th operation, for every n: the path contains the
//! complete file or none, and a second attempt succeeds and leaves no other file.

use crate::common::{check, simulated, write, write_on};
use peregrine_hints::{HintFormat, HintReader, HintsError};
use std::io;
use testkit::fault::{FaultDisk, InjectedFault, Operations};
use vfs::{Disk, RealDisk, UnfinishedError};

#[test]
fn a_failed_write_leaves_a_complete_hint_file_or_none() {
    let chain = simulated(40, 40);
    for format in HintFormat::ALL {
        for at in 0.. {
            let (dir, path) = testkit::fresh_path("hints");
            let faults =
                FaultDisk::fail_at(at, InjectedFault::Once, Operations::All, io::ErrorKind::StorageFull);
            let result = write_on(&faults, &path, format, &chain);
            if faults.count() <= at {
                assert!(result.is_ok() && at >= 5, "all operations have failed once");
                break;
            }
            let error = result.err().map(|error| error.to_string());
            assert!(error.is_some_and(|text| text.contains("cannot")), "{format}: operation {at}");
            // Only the last sync comes after the file has its name.
            if !path.exists() {
                write(&path, format, &chain);
            }
            check(&mut HintReader::open(&RealDisk, &path, Some(format)).unwrap(), &chain);
            assert_eq!(RealDisk.list(dir.path()).unwrap(), ["hints"], "{format}: operation {at}");
        }
    }
}

/// The second of two runs with one output replaced the file of the first, and both ended well.
#[test]
fn a_file_that_another_run_has_completed_is_not_replaced() {
    let [first, second] = [20, 40].map(|count| simulated(count, count.into()));
    for format in HintFormat::ALL {
        let (dir, path) = testkit::fresh_path("hints");
        write(&path, format, &first);
        let error = write_on(&RealDisk, &path, format, &second).unwrap_err();
        assert!(matches!(error, HintsError::Unfinished(UnfinishedError::Exists(_))), "{format}: {error}");
        check(&mut HintReader::open(&RealDisk, &path, Some(format)).unwrap(), &first);
        assert_eq!(RealDisk.list(dir.path()).unwrap(), ["hints"], "{format}");
    }
}
